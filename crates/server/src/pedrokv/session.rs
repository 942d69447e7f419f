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
    /// A fresh session.
    #[must_use]
    pub fn new(client: Arc<Client>) -> Self {
        Self { client, waits: Waits::default(), is_let_in: false }
    }

    /// Whether the client may use the data. As with the other protocols, a password that is set
    /// later shuts out nobody who is in.
    #[inline]
    pub(super) fn may(&mut self, server: &Server) -> bool {
        self.is_let_in = self.is_let_in || server.is_open();
        self.is_let_in
    }
}
