//! Durability levels beyond this server: a write is acknowledged after replicas have it.
//!
//! The replies of a batch with writes wait here, outside of the connection's output, until enough replicas have
//! confirmed the last of these writes. The connection executes nothing meanwhile. So replies stay in order, and a
//! pipeline waits once for each batch. If the confirmations are late, each reply to a write becomes an error: the write
//! is done, but may be lost.

use std::fmt;

use tierce_output::{Output, OwnedOutput};
use tierce_wire::number;
use tierce_wire::resp::Proto;

use crate::engine::Engine;
use crate::error::CommandError;
use crate::reply::Reply;

/// Number of replicas that must have a write before it is acknowledged. With 0, the write does not wait for replicas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReplicaLevel {
    /// Number of replicas.
    pub replicas: usize,
    /// True if their logs must have it on disk; otherwise memory is enough.
    pub is_logged: bool,
}

/// A reply that waits.
#[derive(Debug)]
pub struct HeldReply {
    /// The bytes.
    pub reply: OwnedOutput,
    /// True if its request has changed data.
    pub has_written: bool,
}

/// Replies of one connection that wait for replicas. Each is removed from the output when its request has run, with a
/// flag that is true if the request has changed data: an error may have to replace it.
#[derive(Debug, Default)]
pub struct HeldReplies {
    /// Level that the writes wait for. Without it all replies are in the output, and none is here.
    pub level: Option<ReplicaLevel>,
    /// In order.
    pub replies: Vec<HeldReply>,
    /// True if there are writes. Their replies are among these, unless their client wants no replies.
    pub has_writes: bool,
    /// True if the connection is closed after these replies.
    pub closes: bool,
}

impl ReplicaLevel {
    /// Parses `replicas:N` or `replicas-logged:N` in any case; `None` for anything else.
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

    /// Returns the level of the server.
    #[inline]
    pub fn of_server(engine: &Engine) -> Option<Self> {
        let live = engine.config.live();
        let replicas = live.durability_replicas() as usize;
        (replicas > 0).then(|| Self { replicas, is_logged: live.durability_replicas_logged() })
    }

    /// Returns `None` for no replicas.
    #[inline]
    #[must_use]
    pub fn if_any(self) -> Option<Self> {
        Some(self).filter(|level| level.replicas > 0)
    }

    /// Returns the error for a client whose write was not confirmed in time.
    #[must_use]
    pub fn error(self) -> CommandError {
        let have = if self.replicas == 1 { "has" } else { "have" };
        CommandError::text(format!(
            "UNCONFIRMED The write is done on this server, but {self} {have} not confirmed it in time"
        ))
    }
}

impl fmt::Display for ReplicaLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let replicas = self.replicas;
        let plural = if replicas == 1 { "" } else { "s" };
        match self.is_logged {
            false => write!(f, "{replicas} replica{plural}"),
            true => write!(f, "the log{plural} of {replicas} replica{plural}"),
        }
    }
}

impl HeldReplies {
    /// Creates it with the reply to one write, or the joined replies to several.
    #[must_use]
    pub fn of_write(level: ReplicaLevel, reply: Option<OwnedOutput>) -> Self {
        let held = |reply| HeldReply { reply, has_written: true };
        let replies = reply.into_iter().map(held).collect();
        Self { level: Some(level), replies, has_writes: true, closes: false }
    }

    /// Discards the previous batch. Its connection may have ended without the replies.
    #[inline]
    pub fn begin(&mut self) {
        if !self.replies.is_empty() {
            self.replies.clear();
        }
        (self.level, self.has_writes) = (None, false);
    }

    /// Moves the output since the last reply into this list.
    #[cold]
    pub fn cut(&mut self, output: &mut Output, has_written: bool) {
        let reply = output.take();
        // Even without a reply, the following replies wait for the write.
        self.has_writes |= has_written;
        if !reply.is_empty() {
            self.replies.push(HeldReply { reply, has_written });
        }
    }

    /// Moves the replies back to the output, because nothing was changed.
    #[inline]
    pub fn give_back(&mut self, output: &mut Output) {
        if self.level.is_some() {
            self.cut(output, false);
            self.replies.drain(..).for_each(|held| output.append(held.reply));
        }
    }

    /// Returns the error that replaces replies to unconfirmed writes.
    #[must_use]
    pub fn error(&self) -> CommandError {
        self.level.unwrap_or_default().error()
    }

    /// Appends the replies. Unless the writes are confirmed, errors replace their replies.
    pub fn write(self, is_confirmed: bool, output: &mut Output, proto: Proto) {
        let error = self.error();
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

    #[test]
    fn one_replica_is_no_plural() {
        for (replicas, is_logged, text) in [
            (1, false, "1 replica has not"),
            (2, false, "2 replicas have not"),
            (1, true, "the log of 1 replica has not"),
            (2, true, "the logs of 2 replicas have not"),
        ] {
            let error = format!("{:?}", ReplicaLevel { replicas, is_logged }.error());
            assert!(error.contains(&format!("but {text} confirmed it")), "{error}");
        }
    }
}
