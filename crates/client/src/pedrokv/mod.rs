//! PedroKV's protocol: Get, Put and Delete in short frames.
//!
//! [`Client`] keeps many requests in flight, with callbacks like PedroKV's own client, or with futures.
//! [`SyncClient`] makes one request at a time on the calling thread.

mod client;
mod sync;

pub use client::Client;
pub use sync::SyncClient;

use tierce_wire::pedrokv::{Failure, Kind, Request, Response, Status, Step};

use crate::callback::Outcome;
use crate::error::Error;

/// Appends a request without an id.
#[inline]
fn encode(kind: Kind, key: &[u8], value: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
    Ok(Request { kind, id: 0, key, value }.write(out)?)
}

/// Returns the data of a Get, or `None` if there is no such key.
#[inline]
fn found(outcome: Outcome<'_>) -> Result<Option<&[u8]>, Error> {
    match Response::read(outcome?) {
        Step::Frame { frame: Response { status: Status::Ok, data, .. }, .. } => Ok(Some(data)),
        Step::Frame { frame: Response { data, .. }, .. } => match Failure::from_text(data) {
            Some(Failure::NotFound) => Ok(None),
            _ => Err(Error::server(data)),
        },
        Step::NeedMore { .. } | Step::Broken => Err(Error::Protocol("half a frame".to_owned())),
    }
}

/// Returns the outcome of a Put.
fn stored(outcome: Outcome<'_>) -> Result<(), Error> {
    match found(outcome)? {
        Some(_) => Ok(()),
        None => Err(Error::Server(Failure::NotFound.text().to_owned())),
    }
}

/// Returns the outcome of a Delete: true if the key existed.
fn deleted(outcome: Outcome<'_>) -> Result<bool, Error> {
    Ok(found(outcome)?.is_some())
}

/// Returns the value of a Get as an owned copy.
fn owned(outcome: Outcome<'_>) -> Result<Option<Vec<u8>>, Error> {
    Ok(found(outcome)?.map(<[u8]>::to_vec))
}
