//! A window, and the I/O thread that serves it.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::address::Address;
use crate::callback::{Callback, Outcome};
use crate::config::Config;
use crate::driver::Driver;
use crate::engine::{Engine, Greeting};
use crate::error::Error;
use crate::framing::Framing;
use crate::reply::Reply;
use crate::wakeup::Wakeup;
use crate::window::{LinkStatus, Repeat, Window};

/// The connection to one server, shared by the clones of a client. Dropping the last clone closes it.
pub(crate) struct Channel {
    window: Arc<Window>,
    address: Address,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Channel {
    /// Starts the thread, which connects on its own.
    ///
    /// # Errors
    /// If the operating system has no descriptors or threads left.
    pub(crate) fn start<F: Framing + Default>(
        address: Address,
        config: &Config,
        greeting: Greeting,
    ) -> io::Result<Arc<Channel>> {
        let window = Arc::new(Window::new(config.window(), Wakeup::new()?));
        let random = RandomState::new().hash_one(address.to_string());
        let engine =
            Engine::new(F::default(), Arc::clone(&window), config.clone(), greeting, random);
        let driver = Driver::new(engine, Arc::clone(&window), address.clone(), config.clone())?;
        let thread =
            thread::Builder::new().name("tierce-client".to_owned()).spawn(move || driver.run())?;
        Ok(Arc::new(Channel { window, address, thread: Mutex::new(Some(thread)) }))
    }

    /// Blocks until there is a connection.
    ///
    /// # Errors
    /// If the first attempt fails.
    pub(crate) fn wait_connected(&self, within: Duration) -> Result<(), Error> {
        match self.window.wait_link(within) {
            LinkStatus::Up => Ok(()),
            LinkStatus::Connecting => Err(Error::Unreachable(io::ErrorKind::TimedOut)),
            LinkStatus::Down(error) => Err(error),
        }
    }

    /// Returns true if the last attempt to connect has failed.
    pub(crate) fn is_down(&self) -> bool {
        matches!(self.window.link(), LinkStatus::Down(_))
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.window.link() == LinkStatus::Up
    }

    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    /// Makes a request and returns a future. `read` converts the received bytes to the answer.
    pub(crate) fn ask<T: Send + 'static>(
        &self,
        encode: impl FnOnce(&mut Vec<u8>) -> Result<(), Error>,
        repeat: Repeat,
        replies: u32,
        read: fn(Outcome<'_>) -> Result<T, Error>,
    ) -> Reply<Result<T, Error>> {
        let (reply, cell) = Reply::pending(read);
        self.window.submit(encode, repeat, replies, Callback::to(cell));
        reply
    }

    /// Makes a request with a callback, as soon as the window has room.
    #[inline]
    pub(crate) fn call(
        &self,
        encode: impl FnOnce(&mut Vec<u8>) -> Result<(), Error>,
        repeat: Repeat,
        callback: Callback,
    ) {
        match self.enter() {
            Ok(entry) => entry.send(encode, repeat, 1, callback),
            Err(error) => callback.call(Err(error)),
        }
    }

    /// Completes all requests with [`Error::Closed`] and ends the thread. After it returns, no more callbacks are
    /// called, unless a callback is the caller.
    pub(crate) fn close(&self) {
        self.window.close();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        match thread {
            Some(thread) if thread.thread().id() != thread::current().id() => {
                // The thread has no panics of its own to report: panics of callbacks are caught.
                let _ = thread.join();
            }
            _ => {}
        }
    }

    /// Waits at most `within` until nothing is in flight, and closes. Returns true if all completed.
    pub(crate) fn finish(&self, within: Duration) -> bool {
        let is_idle = self.window.wait_idle(within);
        self.close();
        is_idle
    }
}

impl Deref for Channel {
    type Target = Window;

    fn deref(&self) -> &Window {
        &self.window
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        self.close();
    }
}

/// Methods that every client has besides its requests.
macro_rules! window_of_channel {
    ($client:ty) => {
        impl $client {
            /// Becomes ready when the window has room. Reserves nothing: another caller may be faster.
            pub fn ready(&self) -> Reply<Result<(), Error>> {
                self.channel.ready()
            }

            /// Returns the number of requests in flight or waiting in line. A request that has just completed may
            /// still count, because requests that are answered together return their slots together.
            pub fn outstanding(&self) -> usize {
                self.channel.outstanding()
            }

            /// Returns true if there is a connection now.
            pub fn is_connected(&self) -> bool {
                self.channel.is_connected()
            }

            /// Returns true if the last attempt to connect failed. The client keeps trying.
            pub fn is_down(&self) -> bool {
                self.channel.is_down()
            }

            /// Returns the address of the server.
            pub fn address(&self) -> &Address {
                self.channel.address()
            }

            /// Closes the client: requests in flight, waiting in line or made later complete with [`Error::Closed`].
            /// All callbacks have been called when this returns, unless one of them is the caller.
            pub fn close(&self) {
                self.channel.close();
            }

            /// Waits at most `within` for the requests in flight, then closes the client. Returns true if all of them
            /// completed in time.
            pub fn finish(&self, within: std::time::Duration) -> bool {
                self.channel.finish(within)
            }
        }
    };
}
pub(crate) use window_of_channel;
