//! Interrupts every operation at every point: after each request, before and after the request took effect. The
//! process dies, or drops the future and goes on. Requests in flight are lost, or land before or after the next
//! process claims.
//!
//! Guarantee: all confirmed entries are there, once; the interrupted operation is there as a whole or not at all; the
//! log is sound, and can be pruned, branched and continued.

use std::pin::pin;

use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use tierce_harness::effort;
use tokio::time::{Duration, timeout};

use super::lab::{self, Entries, Fault, Lab, Objects, append, claim, entries, prune, snapshot};
use crate::{
    Error, Group, Moment, Outcome, Owner, Restore, Retention, Right, branch, list, probe, verify,
};

const LOG: &str = "log";
const CHILD: &str = "child";

/// Longer than a piece, and so split into several.
const LARGE: &str = "a large entry: 0123456789 abcdefghijklmnopqrstuvwxyz 9876543210 zyxwvutsrqponmlkjihgfedcba, \
                     and once more: 0123456789 abcdefghijklmnopqrstuvwxyz 9876543210 zyxwvutsrqponmlkjihgfedcba";

/// The interrupted operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operation {
    Claim,
    Append,
    AppendLarge,
    Renew,
    Snapshot,
    Prune,
    Release,
    Branch,
    Restore,
    Verify,
    List,
    Probe,
}

const OPERATIONS: [Operation; 12] = [
    Operation::Claim,
    Operation::Append,
    Operation::AppendLarge,
    Operation::Renew,
    Operation::Snapshot,
    Operation::Prune,
    Operation::Release,
    Operation::Branch,
    Operation::Restore,
    Operation::Verify,
    Operation::List,
    Operation::Probe,
];

/// Fate of the requests that had not landed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OnTheWay {
    Lost,
    BeforeTheNext,
    BehindTheNext,
}

/// A log, its owner, and the expected entries.
struct Setting {
    lab: Lab,
    owner: Option<Owner>,
    state: Vec<String>,
}

impl Setting {
    async fn new() -> Self {
        let lab = Lab::new(Objects::new(), 2);
        let store = lab.store(0, LOG, None);
        let mut owner = Owner::claim(&store, claim(1, Right::Orderly)).await.expect("a claim");
        let mut state = Vec::new();
        for entry in ["a", LARGE, "b"] {
            append(&mut owner, &[entry]).await.expect("an append");
            state.push(entry.to_owned());
        }
        snapshot(&mut owner, &state).await.expect("a snapshot");
        append(&mut owner, &["c"]).await.expect("an append");
        state.push("c".into());
        Self { lab, owner: Some(owner), state }
    }

    /// Runs the operation. Its outcome says whether entries of its own are in the log now.
    fn operate(&mut self, operation: Operation) -> LocalBoxFuture<'_, crate::Result<()>> {
        let (store, child) = (self.lab.store(0, LOG, None), self.lab.store(0, CHILD, None));
        let released = (operation == Operation::Release).then(|| self.owner.take()).flatten();
        let (owner, state) = (&mut self.owner, &self.state);
        async move {
            match (operation, owner) {
                (Operation::Claim, _) => {
                    Owner::claim(&store, claim(1, Right::PredecessorDead)).await.map(drop)
                }
                (Operation::Append, Some(owner)) => append(owner, &["x"]).await.map(drop),
                (Operation::AppendLarge, Some(owner)) => {
                    append(owner, &["x", LARGE]).await.map(drop)
                }
                (Operation::Renew, Some(owner)) => owner.renew().await.map(drop),
                (Operation::Snapshot, Some(owner)) => snapshot(owner, state).await.map(drop),
                (Operation::Prune, Some(owner)) => match owner.prune(Retention::default()).await? {
                    Some(deletion) => owner.delete(&deletion).await.map(drop),
                    None => Ok(()),
                },
                (Operation::Release, _) => match released {
                    Some(owner) => owner.release().await.map(drop),
                    None => Ok(()),
                },
                (Operation::Branch, _) => {
                    let group = Group::open(&store).await?;
                    branch(&group, Moment::Newest, &child).await.map(drop)
                }
                (Operation::Restore, _) => {
                    let group = Group::open(&store).await?;
                    let found = entries(&group, Moment::Newest).await?;
                    assert_eq!(&found, state);
                    Ok(())
                }
                (Operation::Verify, _) => {
                    let group = Group::open(&store).await?;
                    verify(&group, |_| {}).await.map(drop)
                }
                (Operation::List, _) => {
                    let group = Group::open(&store).await?;
                    list(&group).await.map(drop)
                }
                (Operation::Probe, _) => probe(&store).await,
                (_, None) => Ok(()),
            }
        }
        .boxed_local()
    }

    /// Returns the entries that the operation adds, if it takes effect.
    fn added(operation: Operation) -> Vec<String> {
        match operation {
            Operation::Append => vec!["x".into()],
            Operation::AppendLarge => vec!["x".into(), LARGE.into()],
            _ => Vec::new(),
        }
    }

    /// Runs the next process, or this one if it has only dropped the future: it finishes the append in flight, and
    /// appends.
    async fn go_on(&mut self, operation: Operation, dies: bool, on_the_way: OnTheWay) {
        if on_the_way == OnTheWay::BeforeTheNext {
            self.lab.land();
        }
        let kept = self.owner.take().filter(|_| !dies && operation != Operation::Claim);
        let store = self.lab.store(0, LOG, None);
        let mut owner = match kept {
            Some(mut owner) => {
                owner.settle().await.expect("what is in flight");
                owner
            }
            None => {
                let claim = claim(1, Right::PredecessorDead);
                Owner::claim(&store, claim).await.expect("the next claim")
            }
        };
        if on_the_way == OnTheWay::BehindTheNext {
            self.lab.land();
        }
        let outcome = append(&mut owner, &["next"]).await.expect("the next append");
        // An interrupted CLAIM may land after the next one, and depose it.
        if !(operation == Operation::Claim && on_the_way == OnTheWay::BehindTheNext) {
            assert!(matches!(outcome, Outcome::Committed(_)), "{outcome:?}");
        }
        if matches!(outcome, Outcome::Committed(_)) {
            self.state.push("next".into());
        }
        self.owner = Some(owner);
    }

    /// Checks that all confirmed entries are there, and that the log is sound, before and after pruning.
    async fn check(&mut self, operation: Operation) {
        let store = self.lab.store(0, LOG, None);
        let group = Group::open(&store).await.expect("the log");
        verify(&group, |_| {}).await.expect("a sound log");
        list(&group).await.expect("a list");
        let found = entries(&group, Moment::Newest).await.expect("a restore");
        let mut with = self.state.clone();
        let at = with.len() - usize::from(with.last().is_some_and(|last| last == "next"));
        with.splice(at..at, Self::added(operation));
        assert!(found == self.state || found == with, "{found:?} instead of {:?}", self.state);
        self.check_child(operation).await;
        if let Some(owner) = &mut self.owner
            && Group::open(&store).await.expect("the log").end().epoch == owner.group().end().epoch
        {
            snapshot(owner, &found).await.expect("a snapshot");
        }
        prune(&store).await.expect("pruning");
        let group = Group::open(&store).await.expect("the log");
        verify(&group, |_| {}).await.expect("a sound log, pruned");
        assert_eq!(entries(&group, Moment::Newest).await.expect("a restore"), found);
        self.check_child(operation).await;
    }

    /// Checks that a branch exists as a whole, or can be created.
    async fn check_child(&self, operation: Operation) {
        let (store, child) = (self.lab.store(0, LOG, None), self.lab.store(0, CHILD, None));
        let mut group = Group::open(&child).await.expect("the child");
        if group.end().number == 0 {
            if operation != Operation::Branch {
                return;
            }
            let parent = Group::open(&store).await.expect("the log");
            branch(&parent, Moment::Newest, &child).await.expect("a branch");
            group = Group::open(&child).await.expect("the child");
        }
        let found = entries(&group, Moment::Newest).await.expect("the child's state");
        assert!(found.starts_with(&["a".to_owned(), LARGE.to_owned()]), "{found:?}");
        verify(&group, |_| {}).await.expect("a sound child");
    }
}

/// Interrupts an operation after `steps` points. Returns true if it had finished by then.
async fn cut(operation: Operation, steps: usize, dies: bool, on_the_way: OnTheWay) -> bool {
    let mut setting = Setting::new().await;
    let lab = setting.lab.clone();
    lab.require_permits(0);
    let ended = {
        let mut running = pin!(setting.operate(operation));
        lab.steps(0, running.as_mut(), steps).await
    };
    lab.permit_all();
    if on_the_way == OnTheWay::Lost {
        lab.lose();
    }
    let is_done = ended.is_some();
    if let Some(ended) = ended {
        ended.expect("nothing was wrong");
        setting.state.extend(Setting::added(operation));
    }
    setting.go_on(operation, dies, on_the_way).await;
    // Its entries were counted as confirmed.
    let open = if is_done { Operation::List } else { operation };
    setting.check(open).await;
    if operation == Operation::Branch {
        setting.check_child(operation).await;
    }
    is_done
}

/// Number of combinations: a process dies or goes on, each with three fates of the request in flight.
const WAYS: usize = 6;

#[test]
fn an_operation_can_be_cut_short_at_every_point() {
    for operation in OPERATIONS {
        let mut points = 0;
        // A probe has many requests, all alike.
        for steps in 0.. {
            // A probe has many requests, all alike, and a branch begins with one.
            let probes = operation == Operation::Branch && (30..130).contains(&steps);
            if (probes || operation == Operation::Probe) && steps % 9 != 0 {
                continue;
            }
            let mut is_done = true;
            // A different combination at each point, or several.
            for way in steps..steps + WAYS.min(effort(1)) {
                let dies = way / 3 % 2 == 0;
                let on_the_way =
                    [OnTheWay::Lost, OnTheWay::BeforeTheNext, OnTheWay::BehindTheNext][way % 3];
                is_done &= lab::run(cut(operation, steps, dies, on_the_way));
            }
            points = steps;
            if is_done {
                break;
            }
        }
        println!("{operation:?}: {points} points");
        assert!(points >= 2);
    }
}

#[test]
fn a_request_that_fails_is_repeated_or_looked_after() {
    for operation in OPERATIONS {
        for (first, fault) in [(1, Fault::Throttled), (2, Fault::Landed), (1, Fault::Late)] {
            let stride = if operation == Operation::Probe { 9 } else { (2 / effort(1)).max(1) };
            for after in (first..).step_by(stride) {
                let has_met = lab::run(async {
                    let mut setting = Setting::new().await;
                    let lab = setting.lab.clone();
                    let before = lab.requests();
                    lab.plan(after, fault);
                    let outcome = setting.operate(operation).await;
                    let requests = lab.requests() - before;
                    lab.land();
                    outcome.unwrap_or_else(|error| panic!("{operation:?}, {fault:?}: {error}"));
                    setting.state.extend(Setting::added(operation));
                    setting.go_on(operation, true, OnTheWay::Lost).await;
                    setting.check(Operation::List).await;
                    requests >= after
                });
                if !has_met {
                    break;
                }
            }
        }
    }
}

#[test]
fn expired_credentials_are_an_error_and_nothing_is_lost() {
    for operation in OPERATIONS {
        lab::run(async {
            let mut setting = Setting::new().await;
            let lab = setting.lab.clone();
            lab.expire(true);
            // An append is retried for as long as it takes.
            let outcome = timeout(Duration::from_secs(600), setting.operate(operation)).await;
            if let Ok(outcome) = outcome {
                let error = outcome.expect_err("no credentials");
                assert!(error.to_string().contains("ExpiredToken"), "{operation:?}: {error}");
                assert!(!matches!(error, Error::Missing { .. } | Error::Damaged { .. }));
            }
            lab.expire(false);
            setting.go_on(operation, false, OnTheWay::Lost).await;
            setting.check(operation).await;
        });
    }
}

#[test]
fn a_restore_whose_next_is_dropped_loses_nothing() {
    for steps in 0..40 {
        lab::run(async {
            let setting = Setting::new().await;
            let lab = &setting.lab;
            let group = Group::open(&lab.store(0, LOG, None)).await.expect("the log");
            let mut restore = Restore::newest(&group).await.expect("a restore");
            let mut read = Entries::default();
            lab.require_permits(0);
            let mut is_open = false;
            loop {
                let item = match is_open {
                    true => restore.next().await,
                    false => {
                        let next = pin!(restore.next());
                        match lab.steps(0, next, steps).await {
                            Some(item) => item,
                            // The future is dropped.
                            None => {
                                lab.permit_all();
                                is_open = true;
                                continue;
                            }
                        }
                    }
                };
                match item.expect("nothing is wrong") {
                    Some(item) => read.take(item),
                    None => break,
                }
            }
            lab.permit_all();
            restore.finish().await.expect("no pin is left");
            assert_eq!(read.finish(), setting.state);
        });
    }
}

#[test]
fn a_snapshot_with_a_gap_is_refused() {
    lab::run(async {
        let mut setting = Setting::new().await;
        let owner = setting.owner.as_mut().expect("an owner");
        let mut upload = owner.begin_snapshot(4).await.expect("an upload");
        // A part fails for good: from then on, the upload is incomplete.
        setting.lab.expire(true);
        let mut failures = 0;
        for _ in 0..20 {
            failures += usize::from(upload.write(LARGE.as_bytes()).await.is_err());
        }
        setting.lab.expire(false);
        assert!(failures > 10, "a failed upload does not go on: {failures}");
        let refused = upload.finish(b"entries").await.err().expect("refused").to_string();
        assert!(refused.contains("a part of this snapshot is missing"), "{refused}");
    });
}

#[test]
fn a_snapshot_behind_a_newer_one_is_refused() {
    lab::run(async {
        let mut setting = Setting::new().await;
        let state = setting.state.clone();
        let owner = setting.owner.as_mut().expect("an owner");
        let old = owner.begin_snapshot(6).await.expect("an upload");
        let old = old.finish(b"entries").await.expect("the old one");
        append(owner, &["d"]).await.expect("an append");
        let state: Vec<String> = state.into_iter().chain(["d".into()]).collect();
        snapshot(owner, &state).await.expect("the new one");
        // Another process prunes, which deletes the parts of the older snapshot.
        prune(&setting.lab.store(1, LOG, None)).await.expect("pruning");
        let refused = owner.snapshot(old).await.expect_err("it is of no use").to_string();
        assert!(refused.contains("of no use"), "{refused}");
        let group = Group::open(&setting.lab.store(0, LOG, None)).await.expect("the log");
        assert_eq!(entries(&group, Moment::Newest).await.expect("a restore"), state);
    });
}
