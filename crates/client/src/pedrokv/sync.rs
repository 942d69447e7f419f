//! The synchronous client.

use tierce_wire::pedrokv::Kind;

use super::{deleted, encode, owned, stored};
use crate::address::Address;
use crate::blocking::Connection;
use crate::config::Config;
use crate::engine::Greeting;
use crate::error::Error;
use crate::framing::PedroKvFraming;
use crate::window::Repeat;

/// A client that makes one request at a time on the calling thread. It starts no thread.
///
/// It connects at its first request, and again after a failure. The window and the offline settings
/// of the configuration are ignored.
///
/// ```
/// use tierce_client::{Config, pedrokv::SyncClient};
/// # let server = tierce_client::testing::FakeServer::pedrokv();
/// # let address = server.address();
///
/// let mut client = SyncClient::new(address, Config::default());
/// client.put(b"color", b"blue")?;
/// assert_eq!(client.get(b"color")?, Some(b"blue".to_vec()));
/// assert!(client.delete(b"color")?);
/// assert_eq!(client.get(b"color")?, None);
/// # Ok::<(), tierce_client::Error>(())
/// ```
pub struct SyncClient {
    connection: Connection<PedroKvFraming>,
    write_repeat: Repeat,
}

impl SyncClient {
    /// Makes a client that is not connected yet.
    pub fn new(address: impl Into<Address>, config: Config) -> SyncClient {
        let write_repeat = config.write_repeat();
        let connection = Connection::new(address.into(), config, Greeting::default());
        SyncClient { connection, write_repeat }
    }

    /// Connects, if there is no connection.
    ///
    /// # Errors
    /// If the server cannot be reached.
    pub fn connect(&mut self) -> Result<(), Error> {
        self.connection.connect()
    }

    /// Returns the value of a key.
    ///
    /// # Errors
    /// If there is no answer, or it is an error.
    pub fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        let encode = |out: &mut Vec<u8>| encode(Kind::Get, key, b"", out);
        self.connection.request(encode, Repeat::Yes, 1, |frame| owned(Ok(frame)))
    }

    /// Stores a value, which may be empty.
    ///
    /// # Errors
    /// If there is no answer, or it is an error.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        let encode = |out: &mut Vec<u8>| encode(Kind::Put, key, value, out);
        self.connection.request(encode, self.write_repeat, 1, |frame| stored(Ok(frame)))
    }

    /// Deletes a key. Returns true if the key existed.
    ///
    /// # Errors
    /// If there is no answer, or it is an error.
    pub fn delete(&mut self, key: &[u8]) -> Result<bool, Error> {
        let encode = |out: &mut Vec<u8>| encode(Kind::Delete, key, b"", out);
        self.connection.request(encode, self.write_repeat, 1, |frame| deleted(Ok(frame)))
    }

    /// Closes the connection. The next request reconnects.
    pub fn disconnect(&mut self) {
        self.connection.disconnect();
    }
}
