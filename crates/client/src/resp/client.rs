//! The asynchronous client.

use std::io;
use std::sync::Arc;

use super::{
    DEL, GET, Login, Pipeline, SET, Value, encode_checked, int, ok, owned, plain, string, value,
    values,
};
use crate::address::Address;
use crate::callback::{Callback, Outcome};
use crate::channel::{Channel, window_of_channel};
use crate::config::Config;
use crate::error::Error;
use crate::framing::RespFraming;
use crate::reply::Reply;
use crate::window::Repeat;

/// A client of the Redis protocol with many commands in flight on one connection.
///
/// Any number of threads and tasks can use it at a time; clones are the same client. Dropping the last clone closes
/// it.
///
/// Methods that return a [`Reply`] never block: if the window is full, the command waits in line until there is room,
/// or until its future is dropped. Methods with a callback block while the window is full. The client's thread calls
/// the callback exactly once in all cases. A callback always has room for one command in place of the completed one.
///
/// All commands share one connection. A command that blocks there (such as BLPOP) delays the others, and a
/// transaction must be one [`Pipeline`]. Commands after which replies no longer match commands (SUBSCRIBE, MONITOR
/// and the like) are refused.
///
/// ```
/// use tierce_client::{Config, resp::{Client, Value}};
/// # let server = tierce_client::testing::FakeServer::resp();
/// # let address = server.address();
///
/// let client = Client::connect(address, Config::default())?;
/// # tierce_client::testing::block_on(async {
/// client.set(b"color", b"blue").await?;
/// assert_eq!(client.get(b"color").await?, Some(b"blue".to_vec()));
/// assert_eq!(client.command(&["STRLEN", "color"]).await?, Value::Int(4));
/// assert_eq!(client.del(b"color").await?, true);
/// # Ok::<(), tierce_client::Error>(()) })?;
/// # Ok::<(), tierce_client::Error>(())
/// ```
#[derive(Clone)]
pub struct Client {
    channel: Arc<Channel>,
    write_repeat: Repeat,
}

window_of_channel!(Client);

impl Client {
    /// Starts a client that connects on its own. Commands can be made at once.
    ///
    /// # Errors
    /// If the operating system has no descriptors or threads left.
    pub fn start(address: impl Into<Address>, config: Config, login: &Login) -> io::Result<Client> {
        let write_repeat = config.write_repeat();
        let channel = Channel::start::<RespFraming>(address.into(), &config, login.greeting())?;
        Ok(Client { channel, write_repeat })
    }

    /// Starts a client without a login and blocks until it is connected.
    ///
    /// # Errors
    /// If the first attempt fails or is not possible.
    pub fn connect(address: impl Into<Address>, config: Config) -> Result<Client, Error> {
        Client::connect_as(address, config, &Login::default())
    }

    /// Starts a client and blocks until it is connected and logged in.
    ///
    /// # Errors
    /// If the first attempt fails or is not possible.
    pub fn connect_as(
        address: impl Into<Address>,
        config: Config,
        login: &Login,
    ) -> Result<Client, Error> {
        let within = config.connect_timeout;
        let client = Client::start(address, config, login)
            .map_err(|error| Error::Unreachable(error.kind()))?;
        client.channel.wait_connected(within)?;
        Ok(client)
    }

    /// Makes any command. After it was sent, it is not repeated; see [`Client::query`]. An error reply becomes
    /// [`Error::Server`].
    pub fn command<A: AsRef<[u8]>>(&self, args: &[A]) -> Reply<Result<Value, Error>> {
        self.channel.ask(|out| encode_checked(args, out), Repeat::No, 1, value)
    }

    /// Makes a command that may be executed twice, such as one that only reads. It is repeated if its connection is
    /// lost.
    pub fn query<A: AsRef<[u8]>>(&self, args: &[A]) -> Reply<Result<Value, Error>> {
        self.channel.ask(|out| encode_checked(args, out), Repeat::Yes, 1, value)
    }

    /// [`Client::command`] with a callback.
    pub fn command_with<A, C>(&self, args: &[A], callback: C)
    where
        A: AsRef<[u8]>,
        C: FnOnce(Result<Value, Error>) + Send + 'static,
    {
        let callback = Callback::new(move |outcome: Outcome<'_>| callback(value(outcome)));
        self.channel.call(|out| encode_checked(args, out), Repeat::No, callback);
    }

    /// GET: gets the value of a key.
    pub fn get(&self, key: &[u8]) -> Reply<Result<Option<Vec<u8>>, Error>> {
        self.channel.ask(|out| plain(GET, &[key], out), Repeat::Yes, 1, owned)
    }

    /// SET: stores a value.
    pub fn set(&self, key: &[u8], value: &[u8]) -> Reply<Result<(), Error>> {
        self.channel.ask(|out| plain(SET, &[key, value], out), self.write_repeat, 1, ok)
    }

    /// DEL: deletes a key. The answer is true if the key existed.
    pub fn del(&self, key: &[u8]) -> Reply<Result<bool, Error>> {
        let read = |outcome: Outcome<'_>| Ok(int(outcome)? > 0);
        self.channel.ask(|out| plain(DEL, &[key], out), self.write_repeat, 1, read)
    }

    /// GET with a callback that borrows the value without a copy.
    #[inline]
    pub fn get_with<C>(&self, key: &[u8], callback: C)
    where
        C: FnOnce(Result<Option<&[u8]>, Error>) + Send + 'static,
    {
        let callback = Callback::new(move |outcome: Outcome<'_>| callback(string(outcome)));
        self.channel.call(|out| plain(GET, &[key], out), Repeat::Yes, callback);
    }

    /// SET with a callback.
    #[inline]
    pub fn set_with<C>(&self, key: &[u8], value: &[u8], callback: C)
    where
        C: FnOnce(Result<(), Error>) + Send + 'static,
    {
        let callback = Callback::new(move |outcome: Outcome<'_>| callback(ok(outcome)));
        self.channel.call(|out| plain(SET, &[key, value], out), self.write_repeat, callback);
    }

    /// DEL with a callback.
    #[inline]
    pub fn del_with<C>(&self, key: &[u8], callback: C)
    where
        C: FnOnce(Result<bool, Error>) + Send + 'static,
    {
        let read = |outcome: Outcome<'_>| Ok(int(outcome)? > 0);
        let callback = Callback::new(move |outcome: Outcome<'_>| callback(read(outcome)));
        self.channel.call(|out| plain(DEL, &[key], out), self.write_repeat, callback);
    }

    /// Sends the commands of a pipeline without commands of other callers in between. Together they take one slot in
    /// the window. All replies are returned at once, errors among them.
    ///
    /// A pipeline is not repeated after a part of it was sent.
    pub fn pipeline(&self, pipeline: &Pipeline) -> Reply<Result<Vec<Value>, Error>> {
        let read = |outcome: Outcome<'_>| values(outcome?);
        let replies = pipeline.len() as u32;
        self.channel.ask(|out| pipeline.append_to(out), Repeat::No, replies, read)
    }
}
