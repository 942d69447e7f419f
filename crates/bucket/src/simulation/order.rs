//! Tries every order of the requests of two processes with few switches between them, which random lives rarely meet.
//!
//! A schedule lets one process send some requests, then the other, and so on; after the last switch both run to their
//! ends. `TIERCE_BUCKET_SWITCHES=n` tries more switches than an ordinary test run.

use std::pin::pin;
use std::sync::OnceLock;

use tierce_harness::effort;

use super::lab::{self, Lab, Objects, append, claim, entries, snapshot};
use super::number;
use crate::rules::Rule;
use crate::{Error, Group, Moment, Outcome, Owner, Retention, Right, Store, verify};

/// Permits of one request: one to take effect, one to be answered.
const PERMITS: usize = 2;

/// Number of requests that each process sends in turn, and which process begins.
#[derive(Debug, Clone)]
struct Schedule {
    first: usize,
    turns: Vec<usize>,
}

/// Error text of a violated guarantee.
type Shown = Result<(), String>;

/// Two processes and a store, in one order of their requests.
struct Scene {
    name: &'static str,
    play: fn(Option<Rule>, &Schedule) -> Shown,
    /// Maximum number of requests of a process.
    requests: usize,
    /// Number of switches between the processes that are tried, before the last one.
    switches: usize,
}

/// Runs two processes in the order of a schedule.
async fn play<A: Future, B: Future>(
    lab: &Lab,
    schedule: &Schedule,
    a: A,
    b: B,
) -> (A::Output, B::Output) {
    lab.require_permits(0);
    lab.require_permits(1);
    let (mut a, mut b) = (pin!(a), pin!(b));
    let (mut a_done, mut b_done) = (None, None);
    let rest = [100, 100];
    for (turn, requests) in schedule.turns.iter().chain(&rest).enumerate() {
        let process = (schedule.first + turn) % 2;
        let steps = requests * PERMITS;
        if process == 0 && a_done.is_none() {
            a_done = lab.steps(0, a.as_mut(), steps).await;
        } else if process == 1 && b_done.is_none() {
            b_done = lab.steps(1, b.as_mut(), steps).await;
        }
    }
    // A process that is not done may be pausing, which permits do not shorten.
    lab.permit_all();
    if a_done.is_none() {
        a_done = Some(a.await);
    }
    if b_done.is_none() {
        b_done = Some(b.await);
    }
    (a_done.expect("its end"), b_done.expect("its end"))
}

/// Returns all schedules of up to `switches` switches in which no process sends more than `requests` at once.
fn schedules(switches: usize, requests: usize) -> Vec<Schedule> {
    let mut all = Vec::new();
    for first in 0..2 {
        let mut turns = vec![Vec::new()];
        for _ in 0..switches {
            turns = turns
                .into_iter()
                .flat_map(|turns| {
                    let used: usize = turns.iter().rev().skip(1).step_by(2).sum();
                    (1..=requests.saturating_sub(used)).map(move |next| {
                        let mut turns = turns.clone();
                        turns.push(next);
                        turns
                    })
                })
                .collect();
        }
        all.extend(turns.into_iter().map(|turns| Schedule { first, turns }));
    }
    all
}

/// Returns the first schedule that violates a guarantee, and the number of schedules tried.
fn explore(
    scene: &Scene,
    left_out: Option<Rule>,
    is_tried: impl Fn(usize) -> bool,
) -> (usize, Option<String>) {
    let more = number("TIERCE_BUCKET_SWITCHES").map_or(0, |n| n as usize);
    let schedules = schedules(scene.switches.max(more), scene.requests);
    let mut tried = 0;
    for (number, schedule) in schedules.iter().enumerate() {
        if !is_tried(number) {
            continue;
        }
        tried += 1;
        if let Err(shown) = (scene.play)(left_out, schedule) {
            return (tried, Some(format!("{schedule:?}: {shown}")));
        }
    }
    (tried, None)
}

/// Creates a log with an owner, and a snapshot in the middle: CLAIM, a, b, c, SNAPSHOT, d.
async fn log(lab: &Lab) -> crate::Result<Owner> {
    let mut owner = Owner::claim(&lab.store(0, "", None), claim(1, Right::Orderly)).await?;
    for entry in ["a", "b", "c"] {
        append(&mut owner, &[entry]).await?;
    }
    snapshot(&mut owner, &texts(&["a", "b", "c"])).await?;
    append(&mut owner, &["d"]).await?;
    Ok(owner)
}

fn texts(entries: &[&str]) -> Vec<String> {
    entries.iter().map(|&entry| entry.to_owned()).collect()
}

/// Returns the objects of that log.
fn objects() -> Objects {
    static OBJECTS: OnceLock<Objects> = OnceLock::new();
    let made = OBJECTS.get_or_init(|| {
        lab::run(async {
            let lab = Lab::new(Objects::new(), 1);
            log(&lab).await.expect("a log");
            lab.objects()
        })
    });
    made.clone()
}

async fn prune_now(mut group: Group) -> crate::Result<u64> {
    match group.prune(Retention::default()).await? {
        Some(deletion) => group.delete(&deletion).await,
        None => Ok(0),
    }
}

/// Tests a reader that restores a moment which a pruner is about to delete: it gets all of it, or an error that it was
/// pruned.
fn restore_during_pruning(left_out: Option<Rule>, schedule: &Schedule) -> Shown {
    let objects = objects();
    lab::run(async {
        let lab = Lab::new(objects, 2);
        let group = open(&lab, 0, left_out).await;
        let pruner = open(&lab, 1, left_out).await;
        let reader = async { entries(&group, Moment::Position(3)).await };
        let (read, pruned) = play(&lab, schedule, reader, prune_now(pruner)).await;
        pruned.map_err(|error| format!("pruning: {error}"))?;
        match read {
            Ok(read) if read == ["a", "b"] => Ok(()),
            Ok(read) => Err(format!("restored {read:?}")),
            Err(Error::History(_)) => Ok(()),
            Err(error) => Err(format!("the restore: {error}")),
        }
    })
}

async fn open(lab: &Lab, process: usize, left_out: Option<Rule>) -> Group {
    let store = lab.store(process, "", left_out);
    Group::open(&store).await.expect("the log")
}

/// Tests a process that searches for the end of a log while its beginning is deleted.
fn open_during_pruning(left_out: Option<Rule>, schedule: &Schedule) -> Shown {
    let objects = objects();
    lab::run(async {
        let lab = Lab::new(objects, 2);
        let pruner = open(&lab, 1, left_out).await;
        let store = lab.store(0, "", left_out);
        let (opened, pruned) = play(&lab, schedule, Group::open(&store), prune_now(pruner)).await;
        pruned.map_err(|error| format!("pruning: {error}"))?;
        match opened.map(|group| group.end().number) {
            Ok(6) => Ok(()),
            Ok(end) => Err(format!("the log ends at 6, and {end} was found")),
            Err(error) => Err(format!("opening: {error}")),
        }
    })
}

/// Entries that an owner was told are committed, with their numbers.
type Told = crate::Result<Vec<(u64, &'static str)>>;

/// Appends one entry. Returns what the owner is told, or nothing if it is deposed.
async fn tell(owner: &mut Owner, entry: &'static str) -> Told {
    match append(owner, &[entry]).await {
        Ok(Outcome::Committed(number)) => Ok(vec![(number, entry)]),
        Ok(Outcome::Deposed { .. }) | Err(Error::Deposed { .. }) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

async fn claim_and_append(store: Store, node: u8, right: Right, entry: &'static str) -> Told {
    match Owner::claim(&store, claim(node, right)).await {
        Ok(mut owner) => tell(&mut owner, entry).await,
        Err(Error::Owned { .. }) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Appends, takes a snapshot and prunes, until the process is deposed.
async fn append_and_prune(mut owner: Owner) -> Told {
    let mut told = tell(&mut owner, "e").await?;
    if told.is_empty() {
        return Ok(told);
    }
    told.extend(tell(&mut owner, "f").await?);
    let state = texts(&["a", "b", "c", "d", "e", "f"]);
    match snapshot(&mut owner, &state).await {
        Ok(Outcome::Committed(_)) => {}
        Ok(Outcome::Deposed { .. }) | Err(Error::Deposed { .. }) => return Ok(told),
        Err(error) => return Err(error),
    }
    prune_now(owner.group().clone()).await?;
    Ok(told)
}

/// Checks that all entries reported as committed are in the log, and that it is sound.
async fn all_told(lab: &Lab, told: [Told; 2]) -> Shown {
    let store = lab.store(0, "", None);
    let told: Vec<_> = match told {
        [Ok(a), Ok(b)] => a.into_iter().chain(b).collect(),
        [Err(error), _] | [_, Err(error)] => return Err(error.to_string()),
    };
    let group = Group::open(&store).await.map_err(|error| error.to_string())?;
    verify(&group, |_| {}).await.map_err(|error| error.to_string())?;
    let state = entries(&group, Moment::Newest).await.map_err(|error| error.to_string())?;
    let count = |entry: &str| state.iter().filter(|there| *there == entry).count();
    match told.iter().find(|(_, entry)| count(entry) != 1) {
        Some((number, entry)) => Err(format!("{entry} was committed as {number}: {state:?}")),
        None => Ok(()),
    }
}

/// Tests a process that claims a log while its owner appends and prunes.
fn claim_during_pruning(left_out: Option<Rule>, schedule: &Schedule) -> Shown {
    lab::run(async {
        let lab = Lab::new(Objects::new(), 2);
        log(&lab).await.expect("a log");
        // This one knows the left-out rule, and is a process of its own.
        let store = lab.store(1, "", left_out);
        let owner = Owner::claim(&store, claim(1, Right::Force)).await.expect("a claim");
        let claimer = claim_and_append(lab.store(0, "", left_out), 2, Right::Force, "x");
        let (a, b) = play(&lab, schedule, claimer, append_and_prune(owner)).await;
        all_told(&lab, [a, b]).await
    })
}

/// Tests an owner that is deposed without knowing it, and appends while its successor prunes.
fn append_next_to_successor(left_out: Option<Rule>, schedule: &Schedule) -> Shown {
    lab::run(async {
        let lab = Lab::new(Objects::new(), 2);
        let mut owner = log(&lab).await.expect("a log");
        let deposed = async { tell(&mut owner, "x").await };
        let store = lab.store(1, "", left_out);
        let successor = async {
            let mut told = claim_and_append(store.clone(), 2, Right::Force, "y").await?;
            // One more CLAIM, so that the one which deposed the first owner is not the newest.
            let mut owner = Owner::claim(&store, claim(3, Right::Force)).await?;
            told.extend(tell(&mut owner, "z").await?);
            let group = Group::open(&store).await?;
            let state = entries(&group, Moment::Newest).await?;
            snapshot(&mut owner, &state).await?;
            prune_now(owner.group().clone()).await?;
            Ok(told)
        };
        let (a, b) = play(&lab, schedule, deposed, successor).await;
        all_told(&lab, [a, b]).await
    })
}

/// Entries that are stored in pieces.
const LONG: [&str; 2] = [
    "x the first of two entries that are longer than a piece, so that each goes into two of them",
    "y another entry that is longer than a piece, so that it goes into two of them, as the first",
];

/// Tests a copied directory: two processes with one node id start, and each believes that its predecessor is dead.
fn one_node_twice(left_out: Option<Rule>, schedule: &Schedule) -> Shown {
    lab::run(async {
        let lab = Lab::new(Objects::new(), 2);
        log(&lab).await.expect("a log");
        let a = claim_and_append(lab.store(0, "", left_out), 1, Right::PredecessorDead, LONG[0]);
        let b = claim_and_append(lab.store(1, "", left_out), 1, Right::PredecessorDead, LONG[1]);
        let (a, b) = play(&lab, schedule, a, b).await;
        all_told(&lab, [a, b]).await
    })
}

/// Tests two machines that start with the same bucket, which is empty or has a log.
fn two_claims(left_out: Option<Rule>, schedule: &Schedule) -> Shown {
    for is_empty in [true, false] {
        lab::run(async {
            let lab = Lab::new(Objects::new(), 2);
            if !is_empty {
                log(&lab).await.expect("a log");
            }
            let a = claim_and_append(lab.store(0, "", left_out), 2, Right::Force, "x");
            let b = claim_and_append(lab.store(1, "", left_out), 3, Right::Force, "y");
            let (a, b) = play(&lab, schedule, a, b).await;
            all_told(&lab, [a, b]).await
        })?;
    }
    Ok(())
}

/// Tests a directory with data that opens a released log. Another machine claims, writes and releases it before the
/// directory claims: the directory must never append after records that its data lacks.
fn claim_with_data(left_out: Option<Rule>, schedule: &Schedule) -> Shown {
    lab::run(async {
        let lab = Lab::new(Objects::new(), 2);
        let owner = log(&lab).await.expect("a log");
        let known = owner.group().end().number + 1;
        owner.release().await.expect("a release");
        let (store, other) = (lab.store(0, "", left_out), lab.store(1, "", left_out));
        let with_data = async {
            let group = Group::open(&store).await?;
            if group.end().number != known {
                return Ok(Vec::new());
            }
            let claim = claim(1, Right::PredecessorDead);
            match Owner::claim_behind(&store, group.end(), claim, store.nonce()).await {
                Ok(mut owner) => tell(&mut owner, "x").await,
                Err(Error::WentOn { position }) if position == known => Ok(Vec::new()),
                Err(error) => Err(error),
            }
        };
        let without = async {
            let mut owner = match Owner::claim(&other, claim(2, Right::Orderly)).await {
                Err(Error::Owned { .. }) => return Ok(Vec::new()),
                claimed => claimed?,
            };
            let told = tell(&mut owner, "y").await?;
            owner.release().await?;
            Ok(told)
        };
        let (a, b) = play(&lab, schedule, with_data, without).await;
        all_told(&lab, [a, b]).await?;
        let state = entries(&open(&lab, 0, None).await, Moment::Newest).await;
        match state.map_err(|error| error.to_string())?.iter().position(|entry| entry == "x") {
            None | Some(4) => Ok(()),
            Some(at) => Err(format!("x is behind {at} entries, and the data have 4")),
        }
    })
}

const SCENES: [Scene; 7] = [
    Scene {
        name: "restore beside pruning",
        play: restore_during_pruning,
        requests: 13,
        switches: 3,
    },
    Scene { name: "open beside pruning", play: open_during_pruning, requests: 14, switches: 2 },
    Scene { name: "claim beside pruning", play: claim_during_pruning, requests: 26, switches: 2 },
    Scene {
        name: "append beside a successor",
        play: append_next_to_successor,
        requests: 120,
        switches: 1,
    },
    Scene { name: "one node twice", play: one_node_twice, requests: 17, switches: 2 },
    Scene { name: "two claims", play: two_claims, requests: 12, switches: 2 },
    Scene { name: "a claim with data", play: claim_with_data, requests: 26, switches: 2 },
];

#[test]
fn no_order_shows_anything() {
    for scene in &SCENES {
        // One of five neighbouring schedules, or more if the effort says so.
        let (tried, shown) = explore(scene, None, |number| number % 5 < effort(1));
        println!("{}: {tried} orders", scene.name);
        assert_eq!(shown, None, "{}", scene.name);
    }
}

#[test]
fn an_order_shows_each_rule_that_is_left_out() {
    for (rule, scene) in [
        (Rule::FloorBeforePins, 0),
        (Rule::PinBeforeFloor, 0),
        (Rule::PinsHold, 0),
        (Rule::FloorAfterAbsence, 1),
        (Rule::FloorAfterClaim, 2),
        (Rule::ClaimsStay, 3),
        (Rule::Nonce, 4),
        (Rule::ClaimAtStart, 5),
    ] {
        let (tried, shown) = explore(&SCENES[scene], Some(rule), |_| true);
        println!("{rule:?}: in the order {tried} of {}: {shown:?}", SCENES[scene].name);
        assert!(shown.is_some(), "{}: no order shows {rule:?}", SCENES[scene].name);
    }
}
