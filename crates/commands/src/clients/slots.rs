//! Admission of clients under `maxclients`.
//!
//! Some connections are reserved for each protocol that has a listener, and for RESP clients on this machine. So a
//! flood of one protocol does not lock out clients of another protocol or the administrator. A reservation ends when
//! such a client uses it. All other connections are first come, first served.

use super::Client;

/// The protocol of a client. It never changes during a connection.
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

/// Maximum of reserved connections for each group, and never more than one in [`KEPT_SHARE`].
const KEPT_MAX: usize = 4;

const KEPT_SHARE: usize = 10;

/// Numbers of clients.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Slots {
    taken: usize,
    /// In the order of [`Protocol`].
    by_protocol: [usize; 3],
    /// RESP clients on this machine.
    administrators: usize,
}

impl Slots {
    /// Returns true if one more client is admitted, of `max` at most. A client with a reservation is admitted while any
    /// connection is free: after a change of the limit or the listeners, more may be reserved than there are.
    pub(super) fn admits(&self, client: &Client, max: usize, listening: Listening) -> bool {
        let each = (max / KEPT_SHARE).min(KEPT_MAX);
        let mut with_it = *self;
        with_it.take(client);
        let (before, after) = (self.kept(each, listening), with_it.kept(each, listening));
        self.taken < max && (after < before || with_it.taken + after <= max)
    }

    /// Returns the number of reserved connections that are still free; `each` is the number for every group.
    ///
    /// Administrators are RESP clients as well, so the reservation for RESP includes theirs. A client that leaves frees
    /// one connection and increases this number by one at most. So reserved connections stay free.
    fn kept(&self, each: usize, listening: Listening) -> usize {
        let [resp, memcached, pedrokv] = self.by_protocol;
        let for_resp =
            (2 * each).saturating_sub(resp).max(each.saturating_sub(self.administrators));
        let kept = [for_resp, each.saturating_sub(memcached), each.saturating_sub(pedrokv)];
        kept.iter().zip(listening).filter(|(_, is_on)| *is_on).map(|(kept, _)| kept).sum()
    }

    /// Counts a client that connects.
    pub(super) fn take(&mut self, client: &Client) {
        self.taken += 1;
        self.by_protocol[client.speaks as usize] += 1;
        self.administrators += usize::from(administers(client));
    }

    /// Counts a client that disconnects.
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

    /// Returns the number of such clients that are admitted.
    fn crowd(slots: &mut Slots, speaks: Protocol, local: bool, max: usize, on: Listening) -> usize {
        let client = client(speaks, local);
        let comes = || slots.admits(&client, max, on).then(|| slots.take(&client));
        std::iter::from_fn(comes).count()
    }

    #[test]
    fn a_crowd_leaves_places_for_all_others() {
        const ALL: Listening = [true; 3];
        let mut slots = Slots::default();
        let mut come = |speaks, local| crowd(&mut slots, speaks, local, 40, ALL);
        assert_eq!(come(Protocol::Memcached, LOCAL), 40 - (8 + 4));
        assert_eq!(come(Protocol::PedroKv, REMOTE), 4);
        assert_eq!(come(Protocol::Resp, REMOTE), 4);
        assert_eq!(come(Protocol::Resp, LOCAL), 4);
        assert_eq!(come(Protocol::Resp, LOCAL), 0);
    }

    #[test]
    fn nothing_is_kept_for_protocols_without_a_listener_and_of_few_places() {
        const RESP: Listening = [true, false, false];
        assert_eq!(crowd(&mut Slots::default(), Protocol::Resp, LOCAL, 10_000, RESP), 10_000);
        assert_eq!(crowd(&mut Slots::default(), Protocol::Resp, REMOTE, 10_000, RESP), 9_996);
        assert_eq!(crowd(&mut Slots::default(), Protocol::Resp, REMOTE, 19, RESP), 18);
        assert_eq!(crowd(&mut Slots::default(), Protocol::Resp, REMOTE, 9, RESP), 9);
    }

    /// One group has too few connections after the limit was lowered, or after a listener was added.
    #[test]
    fn who_takes_a_kept_place_comes_in_as_long_as_there_is_any() {
        let mut slots = Slots::default();
        let remote = crowd(&mut slots, Protocol::Resp, REMOTE, 100, [true, false, false]);
        assert_eq!(remote, 96);
        let on = [true, true, false];
        assert_eq!(crowd(&mut slots, Protocol::Resp, REMOTE, 100, on), 0);
        assert_eq!(crowd(&mut slots, Protocol::Memcached, REMOTE, 98, on), 2);
        assert_eq!(crowd(&mut slots, Protocol::Resp, LOCAL, 98, on), 0, "all are taken");
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
            let (mut slots, mut present) = (Slots::default(), Vec::new());
            for (protocol, local, comes) in steps {
                let next = client(spoken[protocol], local);
                if !comes {
                    if !present.is_empty() {
                        let gone: Client = present.swap_remove(protocol % present.len());
                        slots.leave(&gone);
                    }
                } else if on[protocol] {
                    let each = KEPT_MAX.min(max / KEPT_SHARE);
                    let lacks = slots.by_protocol[protocol] < each
                        || administers(&next) && slots.administrators < each;
                    let admitted = slots.admits(&next, max, on);
                    prop_assert!(admitted || !lacks);
                    if admitted {
                        slots.take(&next);
                        present.push(next);
                    }
                }
                prop_assert!(slots.taken == present.len() && slots.taken <= max);
                let each = KEPT_MAX.min(max / KEPT_SHARE);
                prop_assert!(slots.taken + slots.kept(each, on) <= max);
            }
        }
    }
}
