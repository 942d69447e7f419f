//! Which clients `maxclients` admits.
//!
//! Some connections are reserved for each protocol that has a listener, and for RESP clients on this machine, so that a
//! flood of one protocol locks out neither the clients of another one nor the administrator. A reservation ends when
//! such a client uses it. All other connections are first come, first served.

use super::Client;

/// The protocol that a client speaks, all its connection long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// Redis'.
    #[default]
    Resp,
    /// One of memcached's.
    Memcached,
    /// PedroKV's.
    PedroKv,
}

/// The protocols that the server listens for, in the order of [`Protocol`].
pub type Listening = [bool; 3];

/// Places kept for each group of clients, and never more than one in [`KEPT_SHARE`].
const KEPT_MAX: usize = 4;

const KEPT_SHARE: usize = 10;

/// How many clients there are.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Places {
    taken: usize,
    /// In the order of [`Protocol`].
    by_protocol: [usize; 3],
    /// Those of [`Protocol::Resp`] that are on this machine.
    administrators: usize,
}

impl Places {
    /// Whether one more client may come, of `max` at most. One that takes a kept place may as long as any is free: the
    /// limit and the listeners may have changed, so that more places have to be kept than there are.
    pub(super) fn admits(&self, client: &Client, max: usize, listening: Listening) -> bool {
        let each = (max / KEPT_SHARE).min(KEPT_MAX);
        let mut with_it = *self;
        with_it.take(client);
        let (before, after) = (self.kept(each, listening), with_it.kept(each, listening));
        self.taken < max && (after < before || with_it.taken + after <= max)
    }

    /// Reserved connections that are still free, `each` for every group.
    ///
    /// Administrators are clients of RESP as well, so what is kept for RESP includes what is kept for them. A client
    /// that goes frees one place, and this grows by one at most: what is kept stays free.
    fn kept(&self, each: usize, listening: Listening) -> usize {
        let [resp, memcached, pedrokv] = self.by_protocol;
        let for_resp =
            (2 * each).saturating_sub(resp).max(each.saturating_sub(self.administrators));
        let kept = [for_resp, each.saturating_sub(memcached), each.saturating_sub(pedrokv)];
        kept.iter().zip(listening).filter(|(_, is_on)| *is_on).map(|(kept, _)| kept).sum()
    }

    /// Counts a client that comes.
    pub(super) fn take(&mut self, client: &Client) {
        self.taken += 1;
        self.by_protocol[client.speaks as usize] += 1;
        self.administrators += usize::from(administers(client));
    }

    /// Counts a client that goes, and has come before.
    pub(super) fn leave(&mut self, client: &Client) {
        self.taken -= 1;
        self.by_protocol[client.speaks as usize] -= 1;
        self.administrators -= usize::from(administers(client));
    }
}

fn administers(client: &Client) -> bool {
    client.local && client.speaks == Protocol::Resp
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tierce_harness::effort;

    use super::super::Origin;
    use super::*;

    const REMOTE: bool = false;
    const LOCAL: bool = true;

    fn client(speaks: Protocol, local: bool) -> Client {
        Client::new(Origin { speaks, local, ..Origin::default() }, 0)
    }

    /// How many such clients come in.
    fn crowd(
        places: &mut Places,
        speaks: Protocol,
        local: bool,
        max: usize,
        on: Listening,
    ) -> usize {
        let client = client(speaks, local);
        let comes = || places.admits(&client, max, on).then(|| places.take(&client));
        std::iter::from_fn(comes).count()
    }

    #[test]
    fn a_crowd_leaves_places_for_all_others() {
        const ALL: Listening = [true; 3];
        let mut places = Places::default();
        let mut come = |speaks, local| crowd(&mut places, speaks, local, 40, ALL);
        assert_eq!(come(Protocol::Memcached, LOCAL), 40 - (8 + 4));
        assert_eq!(come(Protocol::PedroKv, REMOTE), 4);
        assert_eq!(come(Protocol::Resp, REMOTE), 4);
        assert_eq!(come(Protocol::Resp, LOCAL), 4);
        assert_eq!(come(Protocol::Resp, LOCAL), 0);
    }

    #[test]
    fn nothing_is_kept_for_protocols_without_a_listener_and_of_few_places() {
        const RESP: Listening = [true, false, false];
        assert_eq!(crowd(&mut Places::default(), Protocol::Resp, LOCAL, 10_000, RESP), 10_000);
        assert_eq!(crowd(&mut Places::default(), Protocol::Resp, REMOTE, 10_000, RESP), 9_996);
        assert_eq!(crowd(&mut Places::default(), Protocol::Resp, REMOTE, 19, RESP), 18);
        assert_eq!(crowd(&mut Places::default(), Protocol::Resp, REMOTE, 9, RESP), 9);
    }

    /// One group has too few places since the limit was lowered, or since there is another listener.
    #[test]
    fn who_takes_a_kept_place_comes_in_as_long_as_there_is_any() {
        let mut places = Places::default();
        let remote = crowd(&mut places, Protocol::Resp, REMOTE, 100, [true, false, false]);
        assert_eq!(remote, 96);
        let on = [true, true, false];
        assert_eq!(crowd(&mut places, Protocol::Resp, REMOTE, 100, on), 0);
        assert_eq!(crowd(&mut places, Protocol::Memcached, REMOTE, 98, on), 2);
        assert_eq!(crowd(&mut places, Protocol::Resp, LOCAL, 98, on), 0, "all are taken");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(effort(256)))]

        /// Clients never exceed the limit, and while it does not change, each group gets its reserved
        /// connections.
        #[test]
        fn kept_places_stay_free_for_their_group(
            max in 1..120_usize,
            on in any::<Listening>(),
            steps in prop::collection::vec((0..3_usize, any::<bool>(), any::<bool>()), 0..400),
        ) {
            let spoken = [Protocol::Resp, Protocol::Memcached, Protocol::PedroKv];
            let (mut places, mut present) = (Places::default(), Vec::new());
            for (protocol, local, comes) in steps {
                let next = client(spoken[protocol], local);
                if !comes {
                    if !present.is_empty() {
                        let gone: Client = present.swap_remove(protocol % present.len());
                        places.leave(&gone);
                    }
                } else if on[protocol] {
                    let each = KEPT_MAX.min(max / KEPT_SHARE);
                    let lacks = places.by_protocol[protocol] < each
                        || administers(&next) && places.administrators < each;
                    let admitted = places.admits(&next, max, on);
                    prop_assert!(admitted || !lacks);
                    if admitted {
                        places.take(&next);
                        present.push(next);
                    }
                }
                prop_assert!(places.taken == present.len() && places.taken <= max);
                let each = KEPT_MAX.min(max / KEPT_SHARE);
                prop_assert!(places.taken + places.kept(each, on) <= max);
            }
        }
    }
}
