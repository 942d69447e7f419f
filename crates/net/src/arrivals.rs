//! Limits how fast each address opens connections, with a token bucket for each address that was active recently.
//!
//! - A bucket is stored as one time: when it will be full again. So a full bucket needs no memory, and dropping it
//!   changes nothing.
//! - A bucket holds the connections of one second. An idle address may open that many at once.
//! - IPv6 addresses count by their /64 network, because one machine usually owns all of its addresses.
//! - The table has a fixed size. When it is full, it drops the bucket that is nearest to full. Only a client with more
//!   addresses than the table has entries gains from that, and a limit per address never stops such a client.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;

/// Maximum number of addresses in the table.
const ADDRESSES_MAX: usize = 1 << 16;

/// Number of entries of one set; an address may use any entry of its set.
const WAYS: usize = 8;

const SETS: usize = ADDRESSES_MAX / WAYS;

const SECOND_NANOS: u64 = 1_000_000_000;

/// Upper bound of the limit: below it, rounding the nanoseconds of one connection never adds a connection to a bucket.
pub const ARRIVALS_PER_SECOND_MAX: u32 = 10_000;

/// Token bucket of one address.
#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    network: u64,
    /// Time at which it is full again.
    full_nanos: u64,
}

/// Token buckets of all addresses. They take one megabyte, allocated at the first limited connection.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    sets: Vec<[Bucket; WAYS]>,
    /// Seeded, so that no client can choose addresses that share a set.
    hasher: RandomState,
}

impl Arrivals {
    /// Returns true if a connection from this address is within its limit, and counts it then. `now_nanos` never
    /// decreases; `per_second` is 1 to [`ARRIVALS_PER_SECOND_MAX`].
    pub(crate) fn admits(&mut self, address: IpAddr, now_nanos: u64, per_second: u32) -> bool {
        let each_nanos = SECOND_NANOS / u64::from(per_second);
        let bucket = self.bucket(network_of(address));
        let full_nanos = bucket.full_nanos.max(now_nanos) + each_nanos;
        let is_in_time = full_nanos <= now_nanos + SECOND_NANOS;
        if is_in_time {
            bucket.full_nanos = full_nanos;
        }
        is_in_time
    }

    /// Drops all addresses, and frees their memory.
    pub(crate) fn forget(&mut self) {
        self.sets = Vec::new();
    }

    /// Returns the bucket of a network, a full one if there was none.
    fn bucket(&mut self, network: u64) -> &mut Bucket {
        if self.sets.is_empty() {
            self.sets = vec![Default::default(); SETS];
        }
        let set = &mut self.sets[self.hasher.hash_one(network) as usize % SETS];
        let found = set.iter().position(|bucket| bucket.network == network);
        let least = || (0..WAYS).min_by_key(|&way| set[way].full_nanos).unwrap_or_default();
        let way = found.unwrap_or_else(least);
        let bucket = &mut set[way];
        if found.is_none() {
            *bucket = Bucket { network, full_nanos: 0 };
        }
        bucket
    }
}

/// Returns the key of an address. IPv4 addresses map to reserved IPv6 networks, from which no connection comes.
fn network_of(address: IpAddr) -> u64 {
    match address.to_canonical() {
        IpAddr::V4(address) => u64::from(address.to_bits()),
        IpAddr::V6(address) => (address.to_bits() >> 64) as u64,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::net::{Ipv4Addr, Ipv6Addr};

    use proptest::prelude::*;
    use tierce_harness::effort;

    use super::*;

    fn v4(number: u32) -> IpAddr {
        Ipv4Addr::from_bits(number).into()
    }

    /// Tokens as fractions of a second, for every address.
    #[derive(Default)]
    struct Model(HashMap<IpAddr, (u64, u64)>);

    impl Model {
        fn admits(&mut self, address: IpAddr, now_nanos: u64, per_second: u32) -> bool {
            let each_nanos = SECOND_NANOS / u64::from(per_second);
            let (tokens, at) = self.0.entry(address).or_insert((SECOND_NANOS, now_nanos));
            *tokens = SECOND_NANOS.min(*tokens + now_nanos - *at);
            *at = now_nanos;
            let has_one = *tokens >= each_nanos;
            *tokens -= if has_one { each_nanos } else { 0 };
            has_one
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(effort(256)))]

        #[test]
        fn addresses_that_have_places_are_limited_as_by_tokens(
            per_second in 1..=ARRIVALS_PER_SECOND_MAX,
            steps in prop::collection::vec((1..=WAYS as u32, 0..SECOND_NANOS / 4, 1..50_usize), 1..60),
        ) {
            let (mut arrivals, mut model, mut now_nanos) = (Arrivals::default(), Model::default(), 0);
            for (address, later_nanos, times) in steps {
                now_nanos += later_nanos;
                for _ in 0..times {
                    let expected = model.admits(v4(address), now_nanos, per_second);
                    prop_assert_eq!(arrivals.admits(v4(address), now_nanos, per_second), expected);
                }
            }
        }
    }

    #[test]
    fn a_full_bucket_is_exactly_a_second_of_connections() {
        for per_second in 1..=ARRIVALS_PER_SECOND_MAX {
            let mut bucket = SECOND_NANOS / u64::from(per_second);
            bucket *= u64::from(per_second);
            assert!(bucket <= SECOND_NANOS, "{per_second}");
            assert!(bucket + SECOND_NANOS / u64::from(per_second) > SECOND_NANOS, "{per_second}");
        }
    }

    #[test]
    fn networks_of_ipv6_count_as_one_address_and_mapped_ones_as_ipv4() {
        let mut arrivals = Arrivals::default();
        let v6 = |network: u16, host: u16| {
            IpAddr::from(Ipv6Addr::new(0x2001, 0xdb8, 0, network, 0, 0, 0, host))
        };
        assert!(arrivals.admits(v6(1, 1), 0, 1));
        assert!(!arrivals.admits(v6(1, 2), 0, 1));
        assert!(arrivals.admits(v6(2, 1), 0, 1));
        assert!(arrivals.admits(v4(7), 0, 1));
        let mapped = IpAddr::from(Ipv4Addr::from_bits(7).to_ipv6_mapped());
        assert!(!arrivals.admits(mapped, 0, 1));
    }

    /// A flood from more addresses than the table has entries takes no more memory, and the fastest addresses are
    /// remembered longest.
    #[test]
    fn many_addresses_push_out_those_that_lack_least() {
        const PER_SECOND: u32 = 100;
        let mut arrivals = Arrivals::default();
        let fast = v4(1);
        while arrivals.admits(fast, 0, PER_SECOND) {}
        for other in 0..4 * ADDRESSES_MAX as u32 {
            assert!(arrivals.admits(v4(1000 + other), 0, PER_SECOND));
        }
        assert_eq!(arrivals.sets.len() * WAYS, ADDRESSES_MAX);
        assert!(!arrivals.admits(fast, 0, PER_SECOND), "its bucket is the emptiest");
        arrivals.forget();
        assert!(arrivals.sets.capacity() == 0 && arrivals.admits(fast, 0, PER_SECOND));
    }
}
