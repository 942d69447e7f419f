//! Distribution of keys over several servers.

mod ring;

pub use ring::{Ring, Server};

use crate::error::Error;
use crate::{pedrokv, resp};

/// Policy for a server that cannot be reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Failover {
    /// No failover: requests for its keys go to it and fail. No reader sees a stale value.
    #[default]
    Fail,
    /// Requests for its keys go to the next server on the ring, until it can be reached again. Only suitable for a
    /// cache: values written in the meantime stay there, and old values reappear.
    Next,
}

/// A client that a [`Cluster`] can use.
pub trait Shard {
    /// Returns true if the last attempt to reach the server has failed.
    fn is_down(&self) -> bool;
}

impl Shard for pedrokv::Client {
    fn is_down(&self) -> bool {
        pedrokv::Client::is_down(self)
    }
}

impl Shard for resp::Client {
    fn is_down(&self) -> bool {
        resp::Client::is_down(self)
    }
}

/// Clients of several servers, and the ring that maps keys to servers.
///
/// ```
/// use tierce_client::{Cluster, Config, Failover, Server, pedrokv::Client};
/// # let servers = [(); 3].map(|()| tierce_client::testing::FakeServer::pedrokv());
/// # let [a, b, c] = [0, 1, 2].map(|i| servers[i].address().to_string());
///
/// let servers = [Server::new(a), Server::new(b), Server::new(c).weight(2)];
/// let cluster = Cluster::new(&servers, Failover::Fail, |server| {
///     Client::connect(server.address(), Config::default())
/// })?;
/// cluster.client(b"color").put(b"color", b"blue").wait()?;
/// assert_eq!(cluster.client(b"color").get(b"color").wait()?, Some(b"blue".to_vec()));
/// # Ok::<(), tierce_client::Error>(())
/// ```
#[derive(Debug)]
pub struct Cluster<C> {
    ring: Ring,
    clients: Vec<C>,
    failover: Failover,
}

impl<C: Shard> Cluster<C> {
    /// Makes a client for each server by `connect`.
    ///
    /// # Errors
    /// The errors of `connect`.
    ///
    /// # Panics
    /// If there are no servers.
    pub fn new(
        servers: &[Server],
        failover: Failover,
        connect: impl FnMut(&Server) -> Result<C, Error>,
    ) -> Result<Cluster<C>, Error> {
        assert!(!servers.is_empty(), "a cluster needs a server");
        let clients = servers.iter().map(connect).collect::<Result<_, _>>()?;
        Ok(Cluster { ring: Ring::new(servers), clients, failover })
    }

    /// Returns the client for a key. With [`Failover::Next`], this is the first on the ring whose server is not down.
    /// If all are down, it is the one that owns the key.
    pub fn client(&self, key: &[u8]) -> &C {
        let first = self.ring.server(key);
        if self.failover == Failover::Fail || !self.clients[first].is_down() {
            return &self.clients[first];
        }
        let live = self.ring.servers(key).find(|&index| !self.clients[index].is_down());
        &self.clients[live.unwrap_or(first)]
    }

    /// Returns all clients, in the order of the servers.
    pub fn clients(&self) -> &[C] {
        &self.clients
    }

    /// Returns the ring.
    pub fn ring(&self) -> &Ring {
        &self.ring
    }
}
