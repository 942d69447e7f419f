//! The state of one connection that speaks a protocol of memcached.

use std::sync::Arc;

use tierce_wire::memcached::{binary, text};

use super::dump::Dump;
use crate::acl::{Attempt, Rights, Users};
use crate::clients::Client;
use crate::waiting::Waits;

/// What a connection remembers from one request to the next.
pub struct Session {
    /// The part that others may see.
    pub client: Arc<Client>,
    /// What it speaks.
    pub language: Language,
    /// May use commands other than those for authentication.
    pub authenticated: bool,
    /// The user that it is.
    pub rights: Rights,
    /// Its attempt to authenticate.
    pub attempt: Attempt,
    /// What it waits for.
    pub waits: Waits,
    /// The reply that is being written; later requests wait for it.
    pub dump: Option<Dump>,
}

/// What a connection speaks, with the state of an incomplete request.
pub enum Language {
    /// It has not said anything yet.
    Unknown,
    /// Lines.
    Text(text::Parser),
    /// Frames.
    Binary(binary::Parser),
}

impl Session {
    /// A fresh session of a client that has not said who it is.
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

    /// Becomes the user who has authenticated.
    pub fn become_user(&mut self, rights: Rights) {
        self.client.set_user(rights.user());
        (self.rights, self.authenticated) = (rights, true);
    }
}
