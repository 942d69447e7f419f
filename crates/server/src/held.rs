//! The replies of a batch whose writes replicas have to have first (`replicas` in `CLIENT DURABILITY`).
//!
//! Each reply is taken out of the output when its request has run, together with the fact whether the request has
//! changed anything: an error may have to be sent in its place.

use tierce_output::Output;

use crate::commands::replica_level::{HeldReply, ReplicaLevel};

/// The replies so far. Without a level there are none: they are in the output.
#[derive(Default)]
pub struct Held {
    /// The replicas that have the writes of this batch before its replies are sent.
    pub level: Option<ReplicaLevel>,
    /// In order.
    pub replies: Vec<HeldReply>,
    /// The batch has writes, whose replies are among these unless their client does not want them.
    pub has_writes: bool,
}

impl Held {
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
    pub fn give_back(&mut self, output: &mut Output) {
        if self.level.is_some() {
            self.cut(output, false);
            self.replies.drain(..).for_each(|held| output.append(held.reply));
        }
    }
}
