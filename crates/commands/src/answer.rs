//! Replies that other threads make for a client of a connection.

use std::sync::Arc;

use tierce_output::OwnedOutput;

use crate::caller::Caller;
use crate::clients::Deferred;
use crate::pubsub::Invalidation;
use crate::waiting::{Awaited, ConnAddress, ReplyTo};

/// Recipient of an answer.
#[derive(Clone)]
pub enum Destination {
    /// A client that waits for it and does nothing else.
    Reply(ReplyTo),
    /// A client that continues meanwhile.
    Result(Arc<Deferred>),
}

/// Outcome of a command whose client waits for the reply.
pub enum Answered {
    /// The whole reply, in the client's protocol.
    With(OwnedOutput),
    /// A command on another thread found nothing and has registered the client, which now waits for this.
    Later(Awaited),
}

/// Answer to a client that waits for a reply, made by any thread.
pub struct Answer {
    /// The client that gets it.
    pub to: Destination,
    /// The reply, if there is one already.
    pub reply: Answered,
    /// End of the log after the changes that the reply reports, if there are any.
    pub logged_at: Option<u64>,
    /// Keys shown by the reply that the client tracks. They may have changed while the reply was on its way, and
    /// earlier messages may have said so. The invalidation is therefore sent again after the reply.
    pub invalidation: Option<Invalidation>,
    /// State of the caller after a command that ran on another thread.
    pub caller: Option<Box<Caller>>,
}

impl Destination {
    /// Returns the connection that gets the answer.
    #[must_use]
    pub fn conn(&self) -> ConnAddress {
        match self {
            Self::Reply(to) => to.conn,
            Self::Result(deferred) => deferred.to.conn,
        }
    }

    /// Returns the deferred result that the answer completes.
    #[must_use]
    pub fn deferred(&self) -> Option<&Arc<Deferred>> {
        match self {
            Self::Reply(_) => None,
            Self::Result(deferred) => Some(deferred),
        }
    }
}
