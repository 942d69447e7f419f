//! Starts the threads, and waits for their end.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crate::acceptor::{Acceptor, TurnedAway};
use crate::clock::Clock;
use crate::connection::{ListenerTag, WorkerId};
use crate::handle::Handle;
use crate::listener::Listener;
use crate::tls::TlsSettings;
use crate::worker::service::Service;
use crate::worker::{Worker, WorkerConfig};
use tierce_output::OutputLimits;

/// Maximum number of workers of a runtime.
pub const WORKERS_MAX: usize = 1024;

/// Configuration of a runtime.
#[derive(Clone, Debug)]
pub struct Config {
    /// Number of worker threads, 1 to [`WORKERS_MAX`].
    pub workers: usize,
    /// Size of the buffer each worker receives into; bounds the input of a connection in one turn.
    pub input_buffer_bytes: usize,
    /// Maximum input kept for a suspended session; beyond it the peer has to wait.
    pub suspended_input_bytes_max: usize,
    /// Bounds on unsent output.
    pub output_limits: OutputLimits,
    /// Seconds of silence after which a TCP peer is probed; 0 is never.
    pub keepalive_s: u32,
    /// Maximum number of connections per second from one address, at most
    /// [`ARRIVALS_PER_SECOND_MAX`](crate::ARRIVALS_PER_SECOND_MAX); 0 is no limit.
    pub arrivals_per_second: u32,
    /// Function that returns the error for a client that the acceptor rejects. Not sent on encrypted listeners.
    pub last_words: fn(ListenerTag, TurnedAway) -> &'static [u8],
    /// Settings of connections from listeners with [`Encryption::Tls`](crate::Encryption).
    pub tls: Option<TlsSettings>,
    /// Source of the time.
    pub clock: Clock,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            workers: std::thread::available_parallelism().map_or(1, |count| count.get()),
            input_buffer_bytes: 64 * 1024,
            suspended_input_bytes_max: 64 * 1024,
            output_limits: OutputLimits::default(),
            keepalive_s: 300,
            arrivals_per_second: 0,
            last_words: |_, _| b"",
            tls: None,
            clock: Clock::start(),
        }
    }
}

/// Running threads.
#[derive(Debug)]
pub struct Runtime<M: Send + 'static> {
    handle: Handle<M>,
    /// Present until it accepts.
    acceptor: Option<Acceptor<M>>,
    threads: Vec<JoinHandle<()>>,
}

impl<M: Send + 'static> Runtime<M> {
    /// Starts the workers and the acceptor.
    ///
    /// # Errors
    ///
    /// If the system cannot provide descriptors or threads.
    ///
    /// # Panics
    ///
    /// As [`Runtime::prepare`].
    pub fn start<S: Service<Message = M>>(
        config: Config,
        listeners: Vec<Listener>,
        service: Arc<S>,
    ) -> io::Result<Runtime<M>> {
        let mut runtime = Self::prepare(config, listeners, service)?;
        runtime.accept_after(|| ())?;
        Ok(runtime)
    }

    /// Starts the workers. Connections wait at the listeners until [`Runtime::accept_after`], so the program can
    /// connect its parts by the [`Handle`] before it has clients.
    ///
    /// # Errors
    ///
    /// If the system cannot provide descriptors or threads.
    ///
    /// # Panics
    ///
    /// If the number of workers or the size of the input buffer is out of range.
    pub fn prepare<S: Service<Message = M>>(
        config: Config,
        listeners: Vec<Listener>,
        service: Arc<S>,
    ) -> io::Result<Runtime<M>> {
        assert!((1..=WORKERS_MAX).contains(&config.workers), "1 to {WORKERS_MAX} workers");
        assert!(config.input_buffer_bytes >= 8 * 1024, "an input buffer of at least 8 KiB");
        let handle = Handle::new(config.workers, config.keepalive_s, config.arrivals_per_second)?;
        // Fallible parts are created first, so that no thread is left behind.
        let acceptor = Acceptor::new(handle.clone(), listeners, config.last_words)?;
        let pollers = (0..config.workers as u16)
            .map(|number| Worker::<S>::poller(&handle, WorkerId(number)))
            .collect::<io::Result<Vec<_>>>()?;
        let acceptor = Some(acceptor);
        let mut runtime = Runtime { handle: handle.clone(), acceptor, threads: Vec::new() };
        for (number, poller) in pollers.into_iter().enumerate() {
            let (id, service, handle) = (WorkerId(number as u16), service.clone(), handle.clone());
            let config = WorkerConfig {
                input_buffer_bytes: config.input_buffer_bytes,
                suspended_input_bytes_max: config.suspended_input_bytes_max,
                limits: config.output_limits,
                tls: config.tls.clone(),
                clock: config.clock.clone(),
            };
            runtime.spawn(format!("worker-{number}"), move || {
                Worker::new(id, poller, service, handle, config).run();
            })?;
        }
        Ok(runtime)
    }

    /// Accepts connections once `wait` has returned: earlier clients are in the queue of the listener.
    ///
    /// # Errors
    ///
    /// If the system cannot start a thread.
    pub fn accept_after(&mut self, wait: impl FnOnce() + Send + 'static) -> io::Result<()> {
        match self.acceptor.take() {
            Some(acceptor) => self.spawn("acceptor".into(), move || {
                wait();
                acceptor.run();
            }),
            None => Ok(()),
        }
    }

    fn spawn(&mut self, name: String, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
        match std::thread::Builder::new().name(name).spawn(run) {
            Ok(thread) => {
                self.threads.push(thread);
                Ok(())
            }
            Err(error) => {
                // The threads started so far end by themselves.
                self.handle.drain(Duration::ZERO);
                Err(error)
            }
        }
    }

    /// Returns the handle to all threads.
    pub fn handle(&self) -> &Handle<M> {
        &self.handle
    }

    /// Waits until all threads have ended, which [`Handle::drain`] causes.
    ///
    /// # Panics
    ///
    /// If a thread has panicked.
    pub fn join(self) {
        for thread in self.threads {
            if let Err(panic) = thread.join() {
                std::panic::resume_unwind(panic);
            }
        }
    }
}
