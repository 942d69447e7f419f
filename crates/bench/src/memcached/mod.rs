//! Loading memcached servers: requests and replies.

mod replies;
mod request;

pub(crate) use replies::Scanner;
pub(crate) use request::Operation;
