//! The synchronous client.

use super::{
    DEL, GET, Login, Pipeline, SET, Value, encode_checked, int, ok, owned, plain, value, values,
};
use crate::address::Address;
use crate::blocking::Connection;
use crate::config::Config;
use crate::error::Error;
use crate::framing::RespFraming;
use crate::window::Repeat;

/// A client that makes one request at a time on the calling thread. It starts no thread.
///
/// It connects at its first request, and again after a failure. The window and the offline settings
/// of the configuration are ignored.
///
/// ```
/// use tierce_client::{Config, resp::{Login, SyncClient, Value}};
/// # let server = tierce_client::testing::FakeServer::resp();
/// # let address = server.address();
///
/// let mut client = SyncClient::new(address, Config::default(), &Login::default());
/// client.set(b"color", b"blue")?;
/// assert_eq!(client.get(b"color")?, Some(b"blue".to_vec()));
/// assert_eq!(client.command(&["STRLEN", "color"])?, Value::Int(4));
/// assert!(client.del(b"color")?);
/// # Ok::<(), tierce_client::Error>(())
/// ```
pub struct SyncClient {
    connection: Connection<RespFraming>,
    write_repeat: Repeat,
}

impl SyncClient {
    /// Makes a client that is not connected yet.
    pub fn new(address: impl Into<Address>, config: Config, login: &Login) -> SyncClient {
        let write_repeat = config.write_repeat();
        let connection = Connection::new(address.into(), config, login.greeting());
        SyncClient { connection, write_repeat }
    }

    /// Connects and logs in, if there is no connection.
    ///
    /// # Errors
    /// If the server cannot be reached, or refuses the login.
    pub fn connect(&mut self) -> Result<(), Error> {
        self.connection.connect()
    }

    /// Makes any command.
    ///
    /// # Errors
    /// If there is no reply, or it is an error.
    pub fn command<A: AsRef<[u8]>>(&mut self, args: &[A]) -> Result<Value, Error> {
        let encode = |out: &mut Vec<u8>| encode_checked(args, out);
        self.connection.request(encode, Repeat::No, 1, |reply| value(Ok(reply)))
    }

    /// Makes a command that may be executed twice, such as one that only reads.
    ///
    /// # Errors
    /// If there is no reply, or it is an error.
    pub fn query<A: AsRef<[u8]>>(&mut self, args: &[A]) -> Result<Value, Error> {
        let encode = |out: &mut Vec<u8>| encode_checked(args, out);
        self.connection.request(encode, Repeat::Yes, 1, |reply| value(Ok(reply)))
    }

    /// GET: returns the value of a key.
    ///
    /// # Errors
    /// If there is no reply, or it is an error.
    pub fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        self.plain(GET, &[key], Repeat::Yes, |reply| owned(Ok(reply)))
    }

    /// SET: stores a value.
    ///
    /// # Errors
    /// If there is no reply, or it is an error.
    pub fn set(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.plain(SET, &[key, value], self.write_repeat, |reply| ok(Ok(reply)))
    }

    /// DEL: deletes a key. Returns true if the key existed.
    ///
    /// # Errors
    /// If there is no reply, or it is an error.
    pub fn del(&mut self, key: &[u8]) -> Result<bool, Error> {
        self.plain(DEL, &[key], self.write_repeat, |reply| Ok(int(Ok(reply))? > 0))
    }

    /// Sends several commands at once. The replies may be errors.
    ///
    /// # Errors
    /// If a reply is missing.
    pub fn pipeline(&mut self, pipeline: &Pipeline) -> Result<Vec<Value>, Error> {
        let encode = |out: &mut Vec<u8>| pipeline.append_to(out);
        self.connection.request(encode, Repeat::No, pipeline.len(), values)
    }

    /// Closes the connection. The next request reconnects.
    pub fn disconnect(&mut self) {
        self.connection.disconnect();
    }

    fn plain<T>(
        &mut self,
        command: &[u8],
        args: &[&[u8]],
        repeat: Repeat,
        read: impl Fn(&[u8]) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let encode = |out: &mut Vec<u8>| plain(command, args, out);
        self.connection.request(encode, repeat, 1, read)
    }
}
