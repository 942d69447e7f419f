//! A store that is unreachable for longer than a lease: its owner is alive, but cannot renew the lease.

use std::time::Duration;

use tierce_harness::Random;

use super::lab::{Lab, Objects, claim, run};
use crate::{Claim, Follower, Outcome, Owner, Right};

const LEASE: Duration = Duration::from_secs(10);

fn with_takeover(node: u8, right: Right) -> Claim {
    Claim { takeover: true, lease: LEASE, margin: LEASE / 5, ..claim(node, right) }
}

/// From now on, all requests fail, or none does.
fn fail(lab: &Lab, all: bool) {
    lab.let_weather_in(Random::new(1), 1, usize::from(all));
}

#[test]
fn followers_wait_a_whole_fence_after_an_outage() {
    run(async {
        let lab = Lab::new(Objects::new(), 1);
        let store = lab.store(0, "log", None);
        let claim = with_takeover(1, Right::Orderly);
        let mut owner = Owner::claim(&store, claim).await.expect("an owner");
        let group = owner.group().clone();
        let mut follower = Follower::at(&store, 1, group.end().hash).await.expect("a follower");
        follower.next(Duration::from_secs(1)).await.expect("it reads");
        let first = follower.lease_over_at().expect("a lease");
        fail(&lab, true);
        follower.next(3 * LEASE).await.expect("it goes on");
        assert!(follower.trouble().is_some(), "no look at the floor clears it");
        assert!(store.env.boottime() > first);
        fail(&lab, false);
        follower.next(Duration::ZERO).await.expect("it reads");
        assert!(follower.trouble().is_none());
        let left = follower.free_at("another").expect("a lease") - store.env.boottime();
        assert!(left > LEASE, "{left:?}");
        // The owner, which is alive, is faster.
        assert_eq!(owner.append(&[b"a"]).await.expect("an answer"), Outcome::Committed(2));
    });
}

#[test]
fn a_start_waits_a_whole_fence_after_an_outage() {
    run(async {
        let lab = Lab::new(Objects::new(), 1);
        let store = lab.store(0, "log", None);
        let claim = with_takeover(1, Right::Orderly);
        let _owner = Owner::claim(&store, claim).await.expect("an owner");
        let outage = async {
            tokio::time::sleep(LEASE / 2).await;
            fail(&lab, true);
            tokio::time::sleep(3 * LEASE).await;
            fail(&lab, false);
            store.env.boottime()
        };
        let starts = async {
            let claim = with_takeover(2, Right::LeaseOver);
            Owner::claim(&store, claim).await.expect("an owner");
            store.env.boottime()
        };
        let (is_back, claimed) = futures_util::future::join(outage, starts).await;
        assert!(claimed - is_back > LEASE, "{:?}", claimed - is_back);
    });
}
