//! The state of one connection that speaks a protocol of memcached.

use std::sync::Arc;

use tierce_wire::memcached::{binary, text};

use crate::clients::Client;

/// What a connection remembers from one request to the next.
pub struct Session {
    /// The part that others may see.
    pub client: Arc<Client>,
    /// What it speaks.
    pub language: Language,
    /// May use commands other than those for authentication.
    pub authenticated: bool,
    /// Waits for the end of a pause.
    pub held: bool,
    /// The place in the log of the last write of this client.
    pub logged_at: u64,
    /// Its replies are kept back until the log is on the device up to `logged_at`.
    pub awaits_device: bool,
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
        Self {
            client,
            language: Language::Unknown,
            authenticated,
            held: false,
            logged_at: 0,
            awaits_device: false,
        }
    }
}
