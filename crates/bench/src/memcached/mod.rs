//! Loading servers that speak the protocols of memcached: their requests and their replies.

mod replies;
mod request;

pub(crate) use replies::Scanner;
pub(crate) use request::Operation;
