//! Requests and replies of memcached's protocols.

mod replies;
mod request;

pub(crate) use replies::Scanner;
pub(crate) use request::Operation;
