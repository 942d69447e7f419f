//! Followers and hand-overs in a directory, with the real clocks.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use tierce_bucket::{
    Claim, Env, Error, Followed, Follower, Group, Location, Outcome, Owner, Restore, Result,
    Retention, Right, Store, System,
};
use tierce_harness::TempDir;

fn claim(node: u8, takeover: bool) -> Claim {
    Claim {
        node: [node; 16],
        address: format!("node {node}"),
        takeover,
        lease: Duration::from_millis(200),
        margin: Duration::from_millis(40),
        right: Right::LeaseOver,
    }
}

fn open(dir: &Path) -> Store {
    let url = format!("file://{}", dir.display());
    Store::new(&Location::parse(&url).expect("a location")).with_poll(Duration::from_millis(5))
}

fn run(future: impl Future<Output = Result<()>>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(future).expect("no error");
}

/// Returns a follower at the end of a log.
async fn follow(store: &Store) -> Result<Follower> {
    let mut restore = Restore::newest(&Group::open(store).await?).await?;
    while restore.next().await?.is_some() {}
    Follower::after(restore).await
}

/// Returns the batches up to the next quiet moment.
async fn all(follower: &mut Follower) -> Result<Vec<Vec<u8>>> {
    let mut all = Vec::new();
    loop {
        match follower.next(Duration::from_millis(30)).await? {
            Followed::Batches { batches, .. } => all.extend(batches.iter().map(|b| b.to_vec())),
            Followed::Quiet => return Ok(all),
            _ => {}
        }
    }
}

#[test]
fn a_follower_takes_over_when_the_lease_is_over_and_the_old_owner_is_deposed() {
    let dir = TempDir::new();
    run(async {
        let store = open(dir.path());
        let mut owner = Owner::claim(&store, claim(1, true)).await?;
        let mut follower = follow(&store).await?;
        owner.append(&[b"a"]).await?;
        assert_eq!(all(&mut follower).await?, [b"a".to_vec()]);
        let early = follower.take_over(claim(2, true)).await;
        assert!(matches!(early, Err(Error::Owned { claim: 1, .. })), "the owner is alive");
        while owner.lease().is_held() {
            follower.next(Duration::from_millis(10)).await?;
        }
        let new = loop {
            match follower.take_over(claim(2, true)).await {
                Err(Error::Owned { .. }) => follower.next(Duration::from_millis(10)).await?,
                new => break new?,
            };
        };
        assert!(new.lease().until() > owner.lease().until());
        assert_eq!(new.before().number, 2);
        assert!(matches!(owner.append(&[b"b"]).await?, Outcome::Deposed { .. }));
        assert!(owner.lease().is_deposed() && !owner.lease().is_held());
        Ok(())
    });
}

#[test]
fn a_follower_hears_what_a_snapshot_is() {
    let dir = TempDir::new();
    run(async {
        let store = open(dir.path());
        let mut owner = Owner::claim(&store, claim(1, true)).await?;
        let mut follower = follow(&store).await?;
        for description in [&b"one"[..], b"another"] {
            let position = owner.group().end().number;
            let mut upload = owner.begin_snapshot(position).await?;
            upload.write(b"data").await?;
            owner.snapshot(upload.finish(description).await?).await?;
            let description = Bytes::from_static(description);
            let expected = Followed::Snapshot { position, description };
            assert_eq!(follower.next(Duration::ZERO).await?, expected);
        }
        Ok(())
    });
}

#[test]
fn what_came_before_the_claim_is_followed_first() {
    let dir = TempDir::new();
    run(async {
        let store = open(dir.path());
        let mut owner = Owner::claim(&store, claim(1, true)).await?;
        let mut follower = follow(&store).await?;
        while follower.free_at("node 2").is_some_and(|at| at > System.boottime()) {
            follower.next(Duration::from_millis(10)).await?;
        }
        owner.append(&[b"late"]).await?;
        let beaten = follower.take_over(claim(2, true)).await;
        assert!(matches!(beaten, Err(Error::Owned { .. })));
        assert_eq!(all(&mut follower).await?, [b"late".to_vec()]);
        Ok(())
    });
}

#[test]
fn a_release_may_name_the_next_owner_and_the_old_one_goes_on_as_a_follower() {
    let dir = TempDir::new();
    run(async {
        let store = open(dir.path());
        let mut owner = Owner::claim(&store, claim(1, false)).await?;
        owner.append(&[b"a"]).await?;
        assert_eq!((owner.lease().until(), owner.renew_due()), (None, None));
        let mut follower = follow(&store).await?;
        assert_eq!(follower.lease_over_at(), None, "takeover is off");
        let lease = owner.lease();
        let mut old = owner.hand_over(Some("node 2")).await?;
        assert!(!lease.is_held() && lease.has_ended() && !lease.is_deposed());
        assert_eq!(follower.next(Duration::ZERO).await?, Followed::Released);
        assert_eq!(follower.end().successor.as_deref(), Some("node 2"));
        assert!(follower.free_at("node 3") > follower.free_at("node 2"));
        let reopened = Group::open(&store).await?;
        assert_eq!(reopened.end().successor.as_deref(), Some("node 2"));
        let mut new = follower.take_over(claim(2, true)).await?;
        new.append(&[b"b"]).await?;
        assert_eq!(all(&mut old).await?, [b"b".to_vec()]);
        let owner = old.end().claim.as_ref().map(|claim| claim.address.clone());
        assert_eq!(owner.as_deref(), Some("node 2"));
        Ok(())
    });
}

#[test]
fn a_start_waits_for_the_lease_of_a_dead_owner() {
    let dir = TempDir::new();
    run(async {
        let store = open(dir.path());
        let lease = Owner::claim(&store, claim(1, true)).await?.lease();
        let new = Owner::claim(&store, claim(2, false)).await?;
        assert!(!lease.is_held());
        assert_eq!(new.before().number, 1);
        let refused = Owner::claim(&store, claim(3, true)).await;
        assert!(matches!(refused, Err(Error::Owned { claim: 2, .. })), "takeover is off");
        Ok(())
    });
}

/// A process was killed after it had put its CLAIM, and only the next process of this node follows up to here.
#[test]
fn a_follower_takes_over_at_once_from_a_dead_process_of_its_own_node() {
    let dir = TempDir::new();
    run(async {
        let store = open(dir.path());
        let of_node = |node, right| Claim { right, ..claim(node, false) };
        drop(Owner::claim(&store, claim(1, false)).await?);
        let mut follower = follow(&store).await?;
        assert_eq!(follower.free_at("node 1"), None, "takeover is off");
        for refused in [of_node(1, Right::LeaseOver), of_node(2, Right::PredecessorDead)] {
            let refused = follower.take_over(refused).await;
            assert!(matches!(refused, Err(Error::Owned { claim: 1, .. })));
        }
        let mut owner = follower.take_over(of_node(1, Right::PredecessorDead)).await?;
        assert_eq!(owner.before().number, 1);
        assert!(matches!(owner.append(&[b"a"]).await?, Outcome::Committed(3)));
        Ok(())
    });
}

/// Also when it is about to read the floor, as it is at first.
#[test]
fn a_follower_says_at_once_that_the_store_does_not_answer() {
    let dir = TempDir::new();
    run(async {
        let root = dir.path().join("root");
        let store = open(&root);
        Owner::claim(&store, claim(1, true)).await?;
        let mut follower = follow(&store).await?;
        std::fs::rename(&root, dir.path().join("aside")).expect("moved");
        let next = follower.next(Duration::ZERO);
        let next = tokio::time::timeout(Duration::from_secs(20), next).await;
        assert!(matches!(next, Ok(Ok(Followed::Quiet))), "{next:?}");
        let error = follower.trouble().map(|trouble| trouble.error.clone());
        assert!(error.is_some_and(|error| error.contains("is its file system mounted?")));
        Ok(())
    });
}

#[test]
fn a_follower_that_pruning_passed_by_is_told_to_restore() {
    let dir = TempDir::new();
    run(async {
        let store = open(dir.path());
        let mut owner = Owner::claim(&store, claim(1, true)).await?;
        let mut follower = follow(&store).await?;
        let (number, hash) = (follower.end().number, follower.end().hash);
        // Removes its pin.
        follower.next(Duration::ZERO).await?;
        owner.append(&[b"a"]).await?;
        let uploaded = owner.begin_snapshot(2).await?.finish(b"").await?;
        owner.snapshot(uploaded).await?;
        owner.append(&[b"b"]).await?;
        let deletion = owner.prune(Retention { keep: Duration::ZERO }).await?.expect("a floor");
        while System.boottime() < deletion.not_before {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert!(owner.delete(&deletion).await? > 0);
        // It reads the floor at intervals, and always before a CLAIM.
        let mut forced = claim(2, true);
        forced.right = Right::Force;
        let passed = follower.take_over(forced).await;
        assert!(matches!(passed, Err(Error::Overtaken { position: 1, floor: 3 })));
        let again = Follower::at(&store, number, hash).await?.next(Duration::ZERO).await;
        assert!(matches!(again, Err(Error::Overtaken { position: 1, floor: 3 })), "{again:?}");
        Ok(())
    });
}
