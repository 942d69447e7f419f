//! The state of one connection that speaks PedroKV.

use std::sync::Arc;

use crate::clients::Client;
use crate::foreign::Waits;
use crate::server::Server;

/// What a connection remembers from one request to the next.
pub struct Session {
    /// The part that others may see.
    pub client: Arc<Client>,
    /// What it waits for.
    pub waits: Waits,
    /// There was no password at some time since it came.
    is_let_in: bool,
}

impl Session {
    /// A fresh session; `is_let_in` when no password is set.
    #[must_use]
    pub fn new(client: Arc<Client>, is_let_in: bool) -> Self {
        Self { client, waits: Waits::default(), is_let_in }
    }

    /// Whether the client was not let in when it was served last.
    #[inline]
    pub fn is_stranger(&self) -> bool {
        !self.is_let_in
    }

    /// Whether the client may use the data. As with the other protocols, a password that is set
    /// later shuts out nobody who is in.
    #[inline]
    pub(super) fn may(&mut self, server: &Server) -> bool {
        self.is_let_in = self.is_let_in || server.is_open();
        self.is_let_in
    }
}
