//! Errors sent to rejected clients, in the protocol that they speak.

use tierce_net::{ListenerTag, TurnedAway};

use crate::listening::{MEMCACHED, PEDROKV};

/// Error sent in protected mode; clients and people look for its first sentence.
const DENIED: &str = "-DENIED Redis is running in protected mode because protected mode is enabled \
     and no password is set for the default user. Until one is, connections are accepted from this \
     machine only. To let others in, do one of these from here: set a password with CONFIG SET \
     requirepass, or, if only trusted clients can reach this server, switch the protection off with \
     CONFIG SET protected-mode no; CONFIG REWRITE makes either permanent.\r\n";

/// Error sent in protected mode to clients of memcached's protocols.
const DENIED_MEMCACHED: &str = "SERVER_ERROR protected mode is on and no password is set: only \
     clients on this machine are accepted\r\n";

/// Error sent in protected mode to clients of PedroKV: a reply to the request with id 0, which is a client's first one.
const DENIED_PEDROKV: &[u8] = b"\0\x1d\x01\0\0\0\0err: protected mode on";

/// Error sent to a rejected client.
const TOO_MANY_PEDROKV: &[u8] = b"\0\x1c\x01\0\0\0\0err: too many clients";

/// Error sent to a client whose address opens connections too fast.
const TOO_FAST_PEDROKV: &[u8] = b"\0\x20\x01\0\0\0\0err: connections too fast";

/// Returns the error for a client that protected mode rejects.
pub fn denial(listener: ListenerTag) -> &'static [u8] {
    match listener {
        MEMCACHED => DENIED_MEMCACHED.as_bytes(),
        PEDROKV => DENIED_PEDROKV,
        _ => DENIED.as_bytes(),
    }
}

/// Returns the error for a client that the acceptor rejects.
pub fn turned_away(listener: ListenerTag, why: TurnedAway) -> &'static [u8] {
    match (why, listener) {
        (TurnedAway::NoDescriptor, _) => too_many(listener),
        (TurnedAway::TooFast, MEMCACHED) => b"ERROR Too many new connections\r\n",
        (TurnedAway::TooFast, PEDROKV) => TOO_FAST_PEDROKV,
        (TurnedAway::TooFast, _) => b"-ERR max number of new connections per second reached\r\n",
    }
}

/// Returns the error for a client beyond `maxclients`.
pub fn too_many(listener: ListenerTag) -> &'static [u8] {
    match listener {
        MEMCACHED => b"ERROR Too many open connections\r\n",
        PEDROKV => TOO_MANY_PEDROKV,
        _ => b"-ERR max number of clients reached\r\n",
    }
}

#[cfg(test)]
mod tests {
    use tierce_wire::pedrokv::{Response, Step};

    use super::*;

    #[test]
    fn clients_of_pedrokv_are_refused_in_frames() {
        for refusal in [DENIED_PEDROKV, TOO_MANY_PEDROKV, TOO_FAST_PEDROKV] {
            let Step::Frame { frame, len } = Response::read(refusal) else { panic!("no frame") };
            assert_eq!((frame.id, len), (0, refusal.len()));
            assert!(frame.data.starts_with(b"err: "));
        }
    }
}
