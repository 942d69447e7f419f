//! A connection that speaks RESP.

use std::sync::Arc;

use tierce_wire::resp::Parser;

use crate::acl::Users;
use crate::caller::Caller;
use crate::clients::Client;

/// State of a connection from one request to the next.
pub struct Session {
    /// Part that commands may see.
    pub caller: Caller,
    /// Reads requests; holds the state of an incomplete one.
    pub parser: Parser,
}

impl Session {
    /// Creates a session of a client that is not authenticated.
    #[must_use]
    pub fn new(client: Arc<Client>, users: &Users) -> Self {
        Self { caller: Caller::of_client(client, users), parser: Parser::new() }
    }
}
