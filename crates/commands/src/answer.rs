//! Replies that other threads make for the client of a connection.

use std::sync::Arc;

use tierce_output::OwnedOutput;

use crate::caller::Caller;
use crate::clients::Deferred;
use crate::pubsub::Invalidation;
use crate::waiting::{Awaited, ConnAddress, ReplyTo};

/// Where an answer goes.
#[derive(Clone)]
pub enum Destination {
    /// To a client that waits for it, and does nothing else.
    Reply(ReplyTo),
    /// To a client that goes on meanwhile.
    Result(Arc<Deferred>),
}

/// What becomes of a reply that a client waits for, told by any thread.
pub enum Answered {
    /// The whole reply, in the client's protocol.
    With(OwnedOutput),
    /// The command that ran away found nothing, and has registered the client: it waits for this now.
    Later(Awaited),
}

/// The answer to a client that waits for a reply, made by any thread.
pub struct Answer {
    /// The client that gets it.
    pub to: Destination,
    /// The reply, if there is one already.
    pub reply: Answered,
    /// Where the log ended after what the reply tells of, if that has changed anything.
    pub logged_at: Option<u64>,
    /// What the reply shows of keys that its client tracks, if it does: it is told behind the reply that they have
    /// changed. They may have, and been told of, while the reply was on its way.
    pub invalidation: Option<Invalidation>,
    /// What a command that ran away from the worker has made of its caller.
    pub caller: Option<Box<Caller>>,
}

impl Destination {
    /// The connection that gets the answer.
    #[must_use]
    pub fn conn(&self) -> ConnAddress {
        match self {
            Self::Reply(to) => to.conn,
            Self::Result(deferred) => deferred.to.conn,
        }
    }

    /// The result that the answer is.
    #[must_use]
    pub fn deferred(&self) -> Option<&Arc<Deferred>> {
        match self {
            Self::Reply(_) => None,
            Self::Result(deferred) => Some(deferred),
        }
    }
}
