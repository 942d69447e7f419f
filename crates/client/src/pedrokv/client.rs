//! The asynchronous client.

use std::io;
use std::sync::Arc;

use tierce_wire::pedrokv::Kind;

use super::{deleted, encode, found, owned, stored};
use crate::address::Address;
use crate::callback::{Callback, Outcome};
use crate::channel::{Channel, window_of_channel};
use crate::config::Config;
use crate::engine::Greeting;
use crate::error::Error;
use crate::framing::PedroKvFraming;
use crate::reply::Reply;
use crate::window::Repeat;

/// A client of PedroKV's protocol with many requests in flight on one connection.
///
/// Any number of threads and tasks can use it at a time; clones are the same client. Dropping the last clone closes
/// it.
///
/// Each request has two forms:
///
/// * `get`, `put` and `delete` return a [`Reply`], a future for any runtime. They never block. If the window is full,
///   the request waits in line until there is room, or until its future is dropped.
/// * `get_with`, `put_with` and `delete_with` take a callback, which is called exactly once in all cases. They block
///   while the window is full. A callback itself must not block: it always has room for one request in place of the
///   completed one. Further requests fail with [`Error::WindowFull`] if there is no room.
///
/// Callbacks run on the client's thread, one after the other. They should be short, and must not wait for the client.
///
/// ```
/// use tierce_client::{Config, pedrokv::Client};
/// # let server = tierce_client::testing::FakeServer::pedrokv();
/// # let address = server.address();
///
/// let client = Client::connect(address, Config { max_inflight: 1024, ..Config::default() })?;
///
/// // Callbacks, as PedroKV has them.
/// client.put_with(b"color", b"blue", |result| println!("stored: {result:?}"));
///
/// // Futures. The requests of both are under way before the first is awaited.
/// let (color, shape) = (client.get(b"color"), client.get(b"shape"));
/// # async fn both(color: tierce_client::Reply<Result<Option<Vec<u8>>, tierce_client::Error>>,
/// #     shape: tierce_client::Reply<Result<Option<Vec<u8>>, tierce_client::Error>>)
/// #     -> Result<(), tierce_client::Error> {
/// assert_eq!(color.await?, Some(b"blue".to_vec()));
/// assert_eq!(shape.await?, None);
/// # Ok(()) }
/// # tierce_client::testing::block_on(both(color, shape))?;
/// client.close();
/// # Ok::<(), tierce_client::Error>(())
/// ```
#[derive(Clone)]
pub struct Client {
    channel: Arc<Channel>,
    write_repeat: Repeat,
}

window_of_channel!(Client);

impl Client {
    /// Starts a client that connects on its own. Requests can be made at once.
    ///
    /// # Errors
    /// If the operating system has no descriptors or threads left.
    pub fn start(address: impl Into<Address>, config: Config) -> io::Result<Client> {
        let write_repeat = config.write_repeat();
        let channel =
            Channel::start::<PedroKvFraming>(address.into(), &config, Greeting::default())?;
        Ok(Client { channel, write_repeat })
    }

    /// Starts a client and blocks until it is connected.
    ///
    /// # Errors
    /// If the first attempt fails or is not possible.
    pub fn connect(address: impl Into<Address>, config: Config) -> Result<Client, Error> {
        let within = config.connect_timeout;
        let client =
            Client::start(address, config).map_err(|error| Error::Unreachable(error.kind()))?;
        client.channel.wait_connected(within)?;
        Ok(client)
    }

    /// Gets the value of a key.
    pub fn get(&self, key: &[u8]) -> Reply<Result<Option<Vec<u8>>, Error>> {
        self.ask(Kind::Get, key, b"", Repeat::Yes, owned)
    }

    /// Stores a value, which may be empty.
    pub fn put(&self, key: &[u8], value: &[u8]) -> Reply<Result<(), Error>> {
        self.ask(Kind::Put, key, value, self.write_repeat, stored)
    }

    /// Deletes a key. The answer is true if the key existed.
    pub fn delete(&self, key: &[u8]) -> Reply<Result<bool, Error>> {
        self.ask(Kind::Delete, key, b"", self.write_repeat, deleted)
    }

    /// Gets the value of a key. The callback borrows it without a copy.
    #[inline]
    pub fn get_with<C>(&self, key: &[u8], callback: C)
    where
        C: FnOnce(Result<Option<&[u8]>, Error>) + Send + 'static,
    {
        let callback = Callback::new(move |outcome: Outcome<'_>| callback(found(outcome)));
        self.call(Kind::Get, key, b"", Repeat::Yes, callback);
    }

    /// Stores a value, which may be empty.
    #[inline]
    pub fn put_with<C>(&self, key: &[u8], value: &[u8], callback: C)
    where
        C: FnOnce(Result<(), Error>) + Send + 'static,
    {
        let callback = Callback::new(move |outcome: Outcome<'_>| callback(stored(outcome)));
        self.call(Kind::Put, key, value, self.write_repeat, callback);
    }

    /// Deletes a key. The callback gets true if the key existed.
    #[inline]
    pub fn delete_with<C>(&self, key: &[u8], callback: C)
    where
        C: FnOnce(Result<bool, Error>) + Send + 'static,
    {
        let callback = Callback::new(move |outcome: Outcome<'_>| callback(deleted(outcome)));
        self.call(Kind::Delete, key, b"", self.write_repeat, callback);
    }

    /// [`Client::get_with`] that never blocks.
    ///
    /// # Errors
    /// Returns the callback, uncalled, if the window is full or the client closed.
    pub fn try_get_with<C>(&self, key: &[u8], callback: C) -> Result<(), C>
    where
        C: FnOnce(Result<Option<&[u8]>, Error>) + Send + 'static,
    {
        let Ok(entry) = self.channel.try_enter() else { return Err(callback) };
        let callback = Callback::new(move |outcome: Outcome<'_>| callback(found(outcome)));
        entry.send(|out| encode(Kind::Get, key, b"", out), Repeat::Yes, 1, callback);
        Ok(())
    }

    /// [`Client::put_with`] that never blocks.
    ///
    /// # Errors
    /// Returns the callback, uncalled, if the window is full or the client closed.
    pub fn try_put_with<C>(&self, key: &[u8], value: &[u8], callback: C) -> Result<(), C>
    where
        C: FnOnce(Result<(), Error>) + Send + 'static,
    {
        let Ok(entry) = self.channel.try_enter() else { return Err(callback) };
        let callback = Callback::new(move |outcome: Outcome<'_>| callback(stored(outcome)));
        entry.send(|out| encode(Kind::Put, key, value, out), self.write_repeat, 1, callback);
        Ok(())
    }

    fn call(&self, kind: Kind, key: &[u8], value: &[u8], repeat: Repeat, callback: Callback) {
        self.channel.call(|out| encode(kind, key, value, out), repeat, callback);
    }

    fn ask<T: Send + 'static>(
        &self,
        kind: Kind,
        key: &[u8],
        value: &[u8],
        repeat: Repeat,
        read: fn(Outcome<'_>) -> Result<T, Error>,
    ) -> Reply<Result<T, Error>> {
        self.channel.ask(|out| encode(kind, key, value, out), repeat, 1, read)
    }
}
