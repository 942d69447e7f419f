//! The state of one connection that speaks a memcached protocol.

use std::sync::Arc;

use tierce_wire::memcached::{binary, text};

use super::dump::Dump;
use crate::acl::{Attempt, Rights, Users};
use crate::clients::Client;
use crate::waiting::Waits;

/// State of a connection from one request to the next.
pub struct Session {
    /// Part that other threads may see.
    pub client: Arc<Client>,
    /// Protocol that it speaks.
    pub language: Language,
    /// True if it may use commands other than those for authentication.
    pub authenticated: bool,
    /// Rights of its user.
    pub rights: Rights,
    /// State of its authentication attempt.
    pub attempt: Attempt,
    /// State of its waiting.
    pub waits: Waits,
    /// Reply that is being written; later requests wait for it.
    pub dump: Option<Dump>,
}

/// Protocol of a connection, with the state of an incomplete request.
pub enum Language {
    /// It has not sent anything yet.
    Unknown,
    /// Text protocol.
    Text(text::Parser),
    /// Binary protocol.
    Binary(binary::Parser),
}

impl Session {
    /// Creates a session of a client that is not authenticated.
    #[must_use]
    pub fn new(client: Arc<Client>, users: &Users) -> Self {
        let rights = Rights::of_default_user(users);
        client.set_user(rights.user());
        Self {
            client,
            language: Language::Unknown,
            authenticated: users.is_open(),
            rights,
            attempt: Attempt::default(),
            waits: Waits::default(),
            dump: None,
        }
    }

    /// Makes it the user that has authenticated.
    pub fn become_user(&mut self, rights: Rights) {
        self.client.set_user(rights.user());
        (self.rights, self.authenticated) = (rights, true);
    }
}
