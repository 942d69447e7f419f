//! Workers without threads, listeners and a clock of their own. A simulation runs them one at a time.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::clock::simulation::World;
pub use crate::clock::simulation::{IsDue, System, can_read};
use crate::connection::{Endpoints, ListenerTag, WorkerId};
use crate::handle::{Accepted, Handle, Mail};
use crate::listener::Encryption;
use crate::runtime::Config;
use crate::worker::service::Service;
use crate::worker::{Worker, WorkerConfig};

/// Main function of a worker's thread.
pub type Body = Box<dyn FnOnce() + Send>;

/// Creates the workers of a runtime, each to be run on a thread of the simulation.
///
/// # Errors
///
/// If the system cannot provide descriptors.
pub fn workers<S: Service>(
    config: &Config,
    system: &Arc<dyn System>,
    service: &Arc<S>,
) -> io::Result<(Handle<S::Message>, Vec<Body>)> {
    let handle = Handle::new(config.workers, config.keepalive_s, config.arrivals_per_second)?;
    let mut bodies: Vec<Body> = Vec::new();
    for id in (0..config.workers as u16).map(WorkerId) {
        let poller = Worker::<S>::poller(&handle, id)?;
        let mut clock = config.clock.clone();
        clock.world = Some(World::new(system, poller.try_clone()?));
        let config = WorkerConfig {
            input_buffer_bytes: config.input_buffer_bytes,
            suspended_input_bytes_max: config.suspended_input_bytes_max,
            limits: config.output_limits,
            tls: None,
            clock,
        };
        let (service, handle) = (Arc::clone(service), handle.clone());
        bodies.push(Box::new(move || Worker::new(id, poller, service, handle, config).run()));
    }
    Ok((handle, bodies))
}

impl<M: Send> Handle<M> {
    /// Makes a worker serve a connected stream socket, which must be non-blocking. The ids must grow.
    pub fn hand_over(&self, worker: WorkerId, id: u64, socket: OwnedFd) {
        let (endpoints, listener) = (Endpoints::Unix, ListenerTag::default());
        let accepted = Accepted { id, socket, endpoints, listener, encryption: Encryption::None };
        self.connections(worker).fetch_add(1, Ordering::Relaxed);
        self.mailbox(worker).post(Mail::Accepted(accepted));
    }
}
