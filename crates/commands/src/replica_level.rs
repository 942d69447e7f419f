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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
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

/// Replies of one connection that wait for replicas, each taken out of the output when its request has run, together
/// with the fact whether the request has changed anything: an error may have to be sent in its place.
#[derive(Debug, Default)]
pub struct HeldReplies {
    /// The writes wait for these. Without a level there are no replies here: they are in the output.
    pub level: Option<ReplicaLevel>,
    /// In order.
    pub replies: Vec<HeldReply>,
    /// There are writes, whose replies are among these unless their client does not want them.
    pub has_writes: bool,
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
        let replicas = live.durability_replicas() as usize;
        (replicas > 0).then(|| Self { replicas, is_logged: live.durability_replicas_logged() })
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

impl HeldReplies {
    /// One reply to a write, or the replies to several.
    #[must_use]
    pub fn of_write(level: ReplicaLevel, reply: Option<OwnedOutput>) -> Self {
        let held = |reply| HeldReply { reply, has_written: true };
        let replies = reply.into_iter().map(held).collect();
        Self { level: Some(level), replies, has_writes: true, closes: false }
    }

    /// Forgets the batch before, whose connection may have ended without its replies.
    #[inline]
    pub fn begin(&mut self) {
        if !self.replies.is_empty() {
            self.replies.clear();
        }
        (self.level, self.has_writes) = (None, false);
    }

    /// Takes what was written since the last reply out of the output.
    #[cold]
    pub fn cut(&mut self, output: &mut Output, has_written: bool) {
        let reply = output.take();
        // A client that does not want the reply still has those behind it wait for the write.
        self.has_writes |= has_written;
        if !reply.is_empty() {
            self.replies.push(HeldReply { reply, has_written });
        }
    }

    /// Puts them back, as nothing has changed that they tell of.
    #[inline]
    pub fn give_back(&mut self, output: &mut Output) {
        if self.level.is_some() {
            self.cut(output, false);
            self.replies.drain(..).for_each(|held| output.append(held.reply));
        }
    }

    /// The error in place of replies to writes that are not confirmed.
    #[must_use]
    pub fn error(&self) -> CommandError {
        self.level.unwrap_or_default().error()
    }

    /// Appends the replies, with errors in place of those to writes that are not confirmed.
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
}
