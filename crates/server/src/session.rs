//! A connection that speaks RESP.

use std::sync::Arc;

use tierce_wire::resp::Parser;

use crate::acl::Users;
use crate::caller::Caller;
use crate::clients::Client;

/// What a connection remembers from one request to the next.
pub struct Session {
    /// What commands may see of it.
    pub caller: Caller,
    /// Reads requests; holds the state of an incomplete one.
    pub parser: Parser,
}

impl Session {
    /// A fresh session of a client that has not said who it is.
    #[must_use]
    pub fn new(client: Arc<Client>, users: &Users) -> Self {
        Self { caller: Caller::of_client(client, users), parser: Parser::new() }
    }
}
