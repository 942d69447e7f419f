//! The state of one connection that speaks a protocol of memcached.

use std::sync::Arc;

use tierce_wire::memcached::{binary, text};

use super::dump::Dump;
use crate::clients::Client;
use crate::foreign::Waits;

/// What a connection remembers from one request to the next.
pub struct Session {
    /// The part that others may see.
    pub client: Arc<Client>,
    /// What it speaks.
    pub language: Language,
    /// May use commands other than those for authentication.
    pub authenticated: bool,
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
    /// A fresh session; `authenticated` when no password is set.
    #[must_use]
    pub fn new(client: Arc<Client>, authenticated: bool) -> Self {
        let waits = Waits::default();
        Self { client, language: Language::Unknown, authenticated, waits, dump: None }
    }
}
