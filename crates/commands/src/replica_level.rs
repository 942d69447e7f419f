//! The levels of durability beyond this server: a write is acknowledged when replicas have it.
//!
//! The replies of a batch with writes wait here, outside of the connection's output, until enough replicas have
//! confirmed the last of these writes, and the connection executes nothing meanwhile. So replies stay in order, and a
//! pipeline waits once for each batch. If the confirmations do not come in time, each reply to a write becomes an
//! error: the write is done, and may be lost.

use std::fmt;

use tierce_output::{Output, OwnedOutput};
use tierce_wire::number;
use tierce_wire::resp::Proto;

use crate::engine::Engine;
use crate::error::CommandError;
use crate::reply::Reply;

/// How many replicas have a write before it is acknowledged, and where. None of them: it does not wait for replicas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplicaLevel {
    /// So many of them.
    pub replicas: usize,
    /// They have it on their device, and not only in memory.
    pub is_logged: bool,
}

/// A reply that waits, and whether it is one to a write.
#[derive(Debug)]
pub struct HeldReply {
    /// The bytes.
    pub reply: OwnedOutput,
    /// The data have changed.
    pub has_written: bool,
}

/// Replies of one connection that wait for replicas.
#[derive(Debug)]
pub struct Unconfirmed {
    /// What the writes wait for.
    pub level: ReplicaLevel,
    /// In order.
    pub replies: Vec<HeldReply>,
    /// They wait for the device of this server as well.
    pub awaits_device: bool,
    /// The connection ends behind them.
    pub closes: bool,
}

impl ReplicaLevel {
    /// From `replicas:N` or `replicas-logged:N` in any case; `None` if it is neither.
    #[must_use]
    pub fn parse(word: &[u8]) -> Option<Self> {
        let word = word.to_ascii_lowercase();
        let (kind, number) = word.split_at(word.iter().position(|byte| *byte == b':')?);
        let is_logged = match kind {
            b"replicas" => false,
            b"replicas-logged" => true,
            _ => return None,
        };
        let replicas = usize::try_from(number::parse_i64(&number[1..])?).ok()?;
        Some(Self { replicas, is_logged })
    }

    /// That of the server.
    #[inline]
    pub fn of_server(engine: &Engine) -> Option<Self> {
        let live = engine.config.live();
        let (replicas, is_logged) = (live.durability_replicas(), live.durability_replicas_logged());
        Self { replicas: replicas as usize, is_logged }.if_any()
    }

    /// `None` for no replicas.
    #[inline]
    #[must_use]
    pub fn if_any(self) -> Option<Self> {
        Some(self).filter(|level| level.replicas > 0)
    }

    /// What a client is told whose write was not confirmed in time.
    #[must_use]
    pub fn error(self) -> CommandError {
        CommandError::text(format!(
            "UNCONFIRMED The write is done on this server, but {self} have not confirmed it in time"
        ))
    }
}

impl fmt::Display for ReplicaLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let replicas = self.replicas;
        match self.is_logged {
            false => write!(f, "{replicas} replicas"),
            true => write!(f, "the logs of {replicas} replicas"),
        }
    }
}

impl Unconfirmed {
    /// Appends the replies, with errors in place of those to writes that are not confirmed.
    pub fn write(self, is_confirmed: bool, output: &mut Output, proto: Proto) {
        let error = self.level.error();
        for HeldReply { reply, has_written } in self.replies {
            match is_confirmed || !has_written {
                true => output.append(reply),
                false => Reply::new(output, proto).error(&error),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_as_users_write_them() {
        let level = |replicas, is_logged| Some(ReplicaLevel { replicas, is_logged });
        assert_eq!(ReplicaLevel::parse(b"replicas:1"), level(1, false));
        assert_eq!(ReplicaLevel::parse(b"Replicas-Logged:20"), level(20, true));
        assert_eq!(ReplicaLevel::parse(b"replicas:0").map(ReplicaLevel::if_any), Some(None));
        for wrong in ["replicas", "replicas:", "replicas:-1", "replicas:x", "logged:1", ":1", ""] {
            assert_eq!(ReplicaLevel::parse(wrong.as_bytes()), None, "{wrong}");
        }
    }
}
