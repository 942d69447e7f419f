//! Consistent hashing, compatible with libketama and libmemcached.
//!
//! Each server has points on a ring of 2^32 numbers, about 160 with equal weights. A key belongs to the server of the
//! first point at or after its hash. Adding or removing a server moves only the keys of its own points.
//!
//! The points are the four little-endian words of `MD5(name-i)` for i = 0..40. The hash of a key is the first such
//! word. Clients with the same names, weights and hash agree about every key: libmemcached with
//! `MEMCACHED_BEHAVIOR_KETAMA_WEIGHTED` and MD5, and the clients built on it.

use crate::address::Address;

/// Number of points of a server of average weight.
const POINTS_PER_SERVER: f32 = 160.0;

/// Number of points from one digest.
const POINTS_PER_DIGEST: usize = 4;

/// Port that libmemcached omits from names.
const MEMCACHED_PORT_SUFFIX: &str = ":11211";

/// A server on the ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    address: Address,
    name: String,
    weight: u32,
}

impl Server {
    /// Makes a server of weight 1. Its name on the ring is its address without the port 11211, as in libmemcached.
    pub fn new(address: impl Into<Address>) -> Server {
        let address = address.into();
        let text = address.to_string();
        let name = text.strip_suffix(MEMCACHED_PORT_SUFFIX).unwrap_or(&text).to_owned();
        Server { address, name, weight: 1 }
    }

    /// Sets the name on the ring, which stays when the address changes.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Server {
        self.name = name.into();
        self
    }

    /// Sets the weight, which determines the share of the keys. 0 means none.
    #[must_use]
    pub fn weight(mut self, weight: u32) -> Server {
        self.weight = weight;
        self
    }

    /// Returns the address.
    pub fn address(&self) -> &Address {
        &self.address
    }
}

/// The map from keys to servers.
///
/// ```
/// use tierce_client::{Ring, Server};
///
/// let ring = Ring::new(&["10.0.1.1:11211", "10.0.1.2:11211"].map(Server::new));
/// assert!(ring.server(b"color") < 2);
/// ```
#[derive(Clone, Debug)]
pub struct Ring {
    /// Points and the indexes of their servers, ascending.
    points: Vec<(u32, u32)>,
    servers: usize,
}

impl Ring {
    /// Makes the ring of these servers.
    pub fn new(servers: &[Server]) -> Ring {
        let total: u32 = servers.iter().map(|server| server.weight).fold(0, u32::saturating_add);
        let live = servers.iter().filter(|server| server.weight > 0).count();
        let mut points = Vec::new();
        for (index, server) in servers.iter().enumerate() {
            for digest_index in 0..digests(server.weight, total, live) {
                let digest = md5::compute(format!("{}-{digest_index}", server.name)).0;
                points.extend((0..POINTS_PER_DIGEST).map(|i| (word(&digest, i), index as u32)));
            }
        }
        points.sort_unstable();
        Ring { points, servers: servers.len() }
    }

    /// Returns the index of the server that has the key; 0 if no server has any weight.
    pub fn server(&self, key: &[u8]) -> usize {
        self.servers(key).next().unwrap_or(0)
    }

    /// Returns the servers in ring order, starting at the key: the one that has the key, the one that gets it if the
    /// first is removed, and so on.
    pub fn servers(&self, key: &[u8]) -> impl Iterator<Item = usize> {
        let hash = word(&md5::compute(key).0, 0);
        let first = self.points.partition_point(|&(point, _)| point < hash);
        let mut seen = vec![false; self.servers];
        let (before, from) = self.points.split_at(first);
        from.iter()
            .chain(before)
            .map(|&(_, server)| server as usize)
            .filter(move |&server| !std::mem::replace(&mut seen[server], true))
    }
}

/// Returns the number of digests of a server: 40 if all weights are equal. This is the arithmetic of libmemcached.
/// Its single precision yields 39 for some numbers of servers, such as 25; the amount that it adds before rounding
/// down is too small to help.
fn digests(weight: u32, total: u32, live: usize) -> usize {
    if weight == 0 {
        return 0;
    }
    let share = weight as f32 / total as f32;
    let digests = share * POINTS_PER_SERVER / POINTS_PER_DIGEST as f32 * live as f32;
    (f64::from(digests) + 0.000_000_000_1) as f32 as usize
}

/// Returns one of the four little-endian words of a digest.
fn word(digest: &[u8; 16], index: usize) -> u32 {
    let bytes = &digest[index * 4..index * 4 + 4];
    u32::from_le_bytes(bytes.try_into().expect("four bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares the servers of `key0`, `key1` and so on with those of the Python library uhashring (version 2.4,
    /// `hash_fn='ketama'`, nodes and weights as here).
    #[track_caller]
    fn check(servers: &[(&str, u32)], expected: &str, counts: &[usize]) {
        let servers: Vec<Server> =
            servers.iter().map(|&(name, weight)| Server::new(name).weight(weight)).collect();
        let ring = Ring::new(&servers);
        let owners: Vec<usize> =
            (0..1_000).map(|i| ring.server(format!("key{i}").as_bytes())).collect();
        let first: String = owners[..expected.len()].iter().map(usize::to_string).collect();
        assert_eq!(first, expected);
        for (server, &count) in counts.iter().enumerate() {
            assert_eq!(owners.iter().filter(|&&owner| owner == server).count(), count);
        }
    }

    #[test]
    fn other_clients_find_the_same_servers() {
        check(
            &[("10.0.1.1:11211", 1), ("10.0.1.2:11211", 1), ("10.0.1.3:11211", 1)],
            "001011222112220110021002221210001000210202122210210221021110",
            &[320, 345, 335],
        );
        check(
            &[
                ("10.0.1.1:1082", 1),
                ("10.0.1.2:1082", 1),
                ("10.0.1.3:1082", 1),
                ("10.0.1.4:1082", 1),
                ("10.0.1.5:1082", 1),
            ],
            "230333322442042433222440324431224443412413022040414340013024",
            &[196, 198, 196, 207, 203],
        );
        check(
            &[("a:1", 1), ("b:1", 2), ("c:1", 3)],
            "111221211120222211002022201222021111110101020211211022200211",
            &[148, 339, 513],
        );
    }

    #[test]
    fn single_precision_takes_a_digest_where_it_does_elsewhere() {
        let short: Vec<u32> =
            (1..=60).filter(|&live| digests(1, live, live as usize) == 39).collect();
        assert_eq!(short, [25, 47, 50, 55]);
        assert!((1..=60).all(|live| digests(1, live, live as usize) >= 39));
        assert_eq!(digests(0, 3, 2), 0);
    }

    #[test]
    fn only_keys_of_the_server_that_goes_move() {
        let servers = ["a:1", "b:1", "c:1", "d:1"].map(Server::new);
        let (all, fewer) = (Ring::new(&servers), Ring::new(&servers[..3]));
        for i in 0..2_000 {
            let key = format!("key{i}").into_bytes();
            let order: Vec<usize> = all.servers(&key).collect();
            assert_eq!(order.len(), 4, "every server follows somewhere");
            let expected = order.iter().find(|&&server| server != 3).copied();
            assert_eq!(Some(fewer.server(&key)), expected);
        }
    }

    #[test]
    fn a_ring_without_points_has_one_answer() {
        assert_eq!(Ring::new(&[Server::new("a:1").weight(0)]).server(b"key"), 0);
        assert_eq!(Ring::new(&[]).servers(b"key").count(), 0);
    }
}
