//! Branches, and branches of branches, are created and restored while all of the logs go on, take snapshots and are
//! pruned.
//!
//! Guarantee: as long as the pin of a branch exists, everything that the branch continues can be restored, even if its
//! parents were pruned long ago, and even if the pin of an intermediate branch was removed.

use std::cell::RefCell;
use std::rc::Rc;

use tierce_harness::Random;
use tokio::task::{LocalSet, spawn_local};
use tokio::time::{Duration, sleep};

use super::lab::{Lab, Objects, append, claim, entries, prune, run, snapshot};
use super::{seeds, world};
use crate::body::BranchInfo;
use crate::record::{Record, log_name};
use crate::rules::Rule;
use crate::{Error, Group, Kind, Moment, Outcome, Owner, Restore, Right, branch, list, verify};

/// Number of lives in an ordinary test run.
const SEEDS: u64 = 20;

/// Counts of the events in a life.
#[derive(Debug, Default, Clone, Copy)]
struct Tally {
    branches: usize,
    below_floor: usize,
    unpinned: usize,
    restores: usize,
}

/// State that all processes of a life share.
#[derive(Clone)]
struct Life {
    lab: Lab,
    left_out: Option<Rule>,
    urls: Rc<RefCell<Vec<String>>>,
    violations: Rc<RefCell<Vec<String>>>,
    tally: Rc<RefCell<Tally>>,
}

impl Life {
    fn below(&self, end: usize) -> usize {
        self.lab.below(end)
    }

    fn note<T>(&self, what: &str, outcome: crate::Result<T>) -> Option<T> {
        match outcome {
            Ok(value) => return Some(value),
            Err(Error::Store { .. } | Error::Timeout { .. } | Error::Deposed { .. }) => {}
            Err(Error::Owned { .. }) => {}
            Err(error) => self.violations.borrow_mut().push(format!("{what}: {error}")),
        }
        None
    }

    async fn pause(&self, up_to_ms: usize) {
        let pause = Duration::from_millis(self.below(up_to_ms) as u64);
        sleep(pause).await;
    }

    /// Returns the entries of a log up to a position, with those of the logs it continues, by the objects that landed
    /// first.
    fn truth(&self, url: &str, position: u64) -> Vec<String> {
        let mut state = Vec::new();
        for number in 1..=position {
            let object = self.lab.past(&format!("{url}/{}", log_name(number)));
            let object = object.expect("every number has landed");
            let record = Record::decode(&object, number, None).expect("a record");
            if record.header.kind == Kind::Branch {
                let info = BranchInfo::decode(&record.header, &record.stored).expect("a branch");
                state = self.truth(&info.parent, info.position);
            }
            let piece = |name: &str| self.lab.past(&format!("{url}/{name}"));
            state.extend(world::entries(&record, piece).expect("entries"));
        }
        state
    }

    /// Runs an owner: it appends, takes snapshots, prunes, and creates branches.
    async fn own(self, url: String, steps: usize) {
        if let Err(error) = self.try_own(&url, steps).await {
            self.note::<()>(&format!("the owner of {url}"), Err(error));
        }
    }

    async fn try_own(&self, url: &str, steps: usize) -> crate::Result<()> {
        let store = self.lab.store(0, url, self.left_out);
        let mut owner = Owner::claim(&store, claim(1, Right::Force)).await?;
        let end = owner.group().end().number;
        let mut state = entries(owner.group(), Moment::Newest).await?;
        if state != self.truth(url, end) {
            self.violations
                .borrow_mut()
                .push(format!("the owner of {url}: another state at {end}"));
        }
        for step in 0..steps {
            match self.below(6) {
                0 => {
                    if snapshot(&mut owner, &state).await? != committed(&owner) {
                        return Ok(());
                    }
                    if self.below(3) == 0 {
                        self.clone().unpin(url.to_owned()).await;
                    }
                    prune(&store).await?;
                }
                1 => self.begin_branch(url).await,
                _ => {
                    let entry = format!("{url}.{step}.{}", "x".repeat(self.below(90)));
                    if append(&mut owner, &[&entry]).await? != committed(&owner) {
                        return Ok(());
                    }
                    state.push(entry);
                }
            }
            self.pause(200).await;
        }
        Ok(())
    }

    /// Makes a branch of a log, and starts its owner.
    async fn begin_branch(&self, url: &str) {
        let number = self.urls.borrow().len();
        if number >= 8 {
            return;
        }
        let child_url = format!("branch-{number}");
        self.urls.borrow_mut().push(child_url.clone());
        let life = self.clone();
        let url = url.to_owned();
        spawn_local(async move {
            life.pause(300).await;
            let store = life.lab.store(0, &url, life.left_out);
            let Some(group) = life.note("open", Group::open(&store).await) else { return };
            let (from, to) = (group.end().floor, group.end().number);
            let moment = match life.below(3) {
                0 => Moment::Newest,
                _ => Moment::Position(from + life.below((1 + to - from) as usize) as u64),
            };
            life.pause(500).await;
            let child = life.lab.store(0, &child_url, life.left_out);
            match branch(&group, moment, &child).await {
                Ok(_) => life.tally.borrow_mut().branches += 1,
                // Pruned meanwhile.
                Err(Error::History(_)) => return,
                Err(error) => {
                    life.note::<()>("branch", Err(error));
                    return;
                }
            }
            life.pause(500).await;
            life.clone().own(child_url, 12).await;
        });
    }

    /// Restores some moment of some log.
    async fn read(self, url: String) {
        if let Err(error) = self.try_read(&url).await {
            self.note::<()>(&format!("a reader of {url}"), Err(error));
        }
    }

    async fn try_read(&self, url: &str) -> crate::Result<()> {
        let store = self.lab.store(0, url, self.left_out);
        let group = Group::open(&store).await?;
        let (floor, end) = (group.end().floor, group.end().number);
        if end == 0 {
            return Ok(());
        }
        let position = floor + self.below((end + 1 - floor) as usize) as u64;
        self.pause(300).await;
        let found = entries(&group, Moment::Position(position)).await;
        let is_pruned = Group::open(&store).await?.end().floor > floor.max(1);
        let found = match found {
            // Its own log was pruned, before the restore or meanwhile.
            Err(Error::History(_)) if is_pruned || floor > 1 => return Ok(()),
            // The branch gave up its parent, and can be restored from its own snapshot only.
            Err(Error::History(_)) if !self.holds_parent(&group).await? => return Ok(()),
            found => found?,
        };
        self.tally.borrow_mut().restores += 1;
        if let Ok(Some(info)) = group.branch().await
            && Group::open(&self.lab.store(0, &info.parent, None)).await?.end().floor
                > info.position
        {
            self.tally.borrow_mut().below_floor += 1;
        }
        if found != self.truth(url, position) {
            let text = format!("{url}: another state at {position}");
            self.violations.borrow_mut().push(text);
        }
        Ok(())
    }

    async fn holds_parent(&self, group: &Group) -> crate::Result<bool> {
        let Some(info) = group.branch().await? else { return Ok(true) };
        self.lab.store(0, &info.parent, None).exists(&info.pin).await
    }

    /// Removes the pin of a branch that has a snapshot of its own.
    async fn unpin(self, url: String) {
        let store = self.lab.store(0, &url, self.left_out);
        let Some(group) = self.note("open", Group::open(&store).await) else { return };
        if group.end().snapshot.is_none() {
            return;
        }
        let Some(Some(info)) = self.note("branch", group.branch().await) else { return };
        let parent = self.lab.store(0, &info.parent, self.left_out);
        if self.note("unpin", parent.delete(&[info.pin]).await).is_some() {
            self.tally.borrow_mut().unpinned += 1;
        }
    }

    /// Checks at rest that everything that is pinned can be restored, and is sound.
    async fn check_all(&self) {
        let urls = self.urls.borrow().clone();
        for url in urls {
            if let Err(error) = self.check(&url).await {
                self.violations.borrow_mut().push(format!("{url}, at the end: {error}"));
            }
        }
    }

    async fn check(&self, url: &str) -> crate::Result<()> {
        let group = Group::open(&self.lab.store(0, url, self.left_out)).await?;
        let (floor, end) = (group.end().floor, group.end().number);
        // A branch that was never created.
        if end == 0 {
            return Ok(());
        }
        list(&group).await?;
        verify(&group, |_| {}).await?;
        for position in [floor, end] {
            match entries(&group, Moment::Position(position)).await {
                // After pruning, all moments after its snapshot can be restored; before that, those of the snapshot
                // only.
                Err(Error::History(_)) if floor > 1 || !self.holds_parent(&group).await? => {}
                found => {
                    if found? != self.truth(url, position) {
                        let text = format!("{url}, at the end: another state at {position}");
                        self.violations.borrow_mut().push(text);
                    }
                }
            }
        }
        Ok(())
    }
}

/// Returns the outcome that an owner gets for its last append.
fn committed(owner: &Owner) -> Outcome {
    Outcome::Committed(owner.group().end().number)
}

/// Runs one life. Returns the violations, and counts of the events.
fn life(seed: u64, left_out: Option<Rule>) -> (Vec<String>, Tally) {
    run(LocalSet::new().run_until(async {
        let lab = Lab::new(Objects::new(), 1);
        let mut random = Random::new(seed);
        let (way_ms, faults) = ([10, 50, 400][random.below(3)], [0, 20, 60][random.below(3)]);
        lab.let_weather_in(random, way_ms, faults);
        let life = Life {
            lab,
            left_out,
            urls: Rc::new(RefCell::new(vec!["log".to_owned()])),
            violations: Rc::default(),
            tally: Rc::default(),
        };
        let owner = spawn_local(life.clone().own("log".into(), 40));
        for _ in 0..30 {
            life.pause(2_000).await;
            let url = {
                let urls = life.urls.borrow();
                urls[life.below(urls.len())].clone()
            };
            match life.below(4) {
                0 => drop(spawn_local(life.clone().unpin(url))),
                _ => drop(spawn_local(life.clone().read(url))),
            }
        }
        if life.below(2) == 0 {
            owner.abort();
        }
        sleep(Duration::from_secs(1_000)).await;
        life.lab.land();
        life.lab.let_weather_in(Random::new(seed), 1, 0);
        life.check_all().await;
        let (violations, tally) = (life.violations.borrow().clone(), *life.tally.borrow());
        (violations, tally)
    }))
}

#[test]
fn a_branch_stays_whole_while_its_pins_are_there() {
    let seeds = seeds(0, SEEDS);
    let mut sum = Tally::default();
    for seed in seeds.clone() {
        let (violations, tally) = life(seed, None);
        assert!(violations.is_empty(), "TIERCE_BUCKET_SEED={seed}: {violations:#?}");
        sum.branches += tally.branches;
        sum.below_floor += tally.below_floor;
        sum.unpinned += tally.unpinned;
        sum.restores += tally.restores;
    }
    println!("{sum:?}");
    let count = (seeds.end - seeds.start) as usize;
    if count >= SEEDS as usize {
        let enough =
            [sum.branches * 3 > count * 5, sum.below_floor * 3 > count, sum.unpinned * 6 > count];
        assert!(enough.iter().all(|is_enough| *is_enough), "{sum:?}");
    }
}

#[test]
fn what_is_pinned_is_missed() {
    let shown = (0..300).find_map(|seed| {
        let (violations, _) = life(seed, Some(Rule::PinsHold));
        violations.first().map(|violation| (seed, violation.clone()))
    });
    println!("PinsHold: {shown:?}");
    assert!(shown.is_some(), "no life shows that pins hold nothing");
}

/// Tests a branch of a branch whose intermediate branch has a snapshot of its own and has given up its pin.
fn grandchild(left_out: Option<Rule>) -> crate::Result<Vec<String>> {
    run(async {
        let lab = Lab::new(Objects::new(), 1);
        let [log, child, grandchild] =
            ["log", "child", "grandchild"].map(|url| lab.store(0, url, left_out));
        let mut owner = Owner::claim(&log, claim(1, Right::Orderly)).await?;
        append(&mut owner, &["a"]).await?;
        let between = branch(&Group::open(&log).await?, Moment::Newest, &child).await?;
        let mut of_child = Owner::claim(&child, claim(2, Right::Orderly)).await?;
        append(&mut of_child, &["b"]).await?;
        branch(&Group::open(&child).await?, Moment::Newest, &grandchild).await?;
        snapshot(&mut of_child, &["a".to_owned(), "b".to_owned()]).await?;
        log.delete(&[between.pin]).await?;
        snapshot(&mut owner, &["a".to_owned()]).await?;
        prune(&log).await?;
        let group = Group::open(&grandchild).await?;
        verify(&group, |_| {}).await?;
        entries(&group, Moment::Newest).await
    })
}

#[test]
fn a_branch_of_a_branch_does_not_depend_on_the_pin_between() {
    assert_eq!(grandchild(None).expect("a restore"), ["a", "b"]);
    let missed = grandchild(Some(Rule::ParentsPinned)).expect_err("its past is gone");
    assert!(matches!(missed, Error::History(_)), "{missed}");
}

/// Creates a log with its branch, with no request in flight.
async fn pair(lab: &Lab) -> crate::Result<()> {
    let store = lab.store(0, "log", None);
    let mut owner = Owner::claim(&store, claim(1, Right::Orderly)).await?;
    append(&mut owner, &["a"]).await?;
    let group = Group::open(&store).await?;
    branch(&group, Moment::Newest, &lab.store(0, "child", None)).await?;
    append(&mut owner, &["b"]).await?;
    snapshot(&mut owner, &["a".to_owned(), "b".to_owned()]).await?;
    prune(&store).await?;
    Ok(())
}

#[test]
fn what_is_before_a_branch_is_in_its_parent() {
    run(async {
        let lab = Lab::new(Objects::new(), 1);
        pair(&lab).await.expect("a log and a branch");
        let child = Group::open(&lab.store(0, "child", None)).await.expect("the child");
        for moment in [Moment::Position(0), Moment::Time(0)] {
            let error = Restore::at(&child, moment).await.err().expect("refused").to_string();
            assert!(error.contains("restore from log"), "{error}");
        }
        assert_eq!(entries(&child, Moment::Newest).await.expect("a restore"), ["a"]);
    });
}

#[test]
fn a_moment_before_the_floor_is_refused_at_once() {
    run(async {
        let lab = Lab::new(Objects::new(), 1);
        pair(&lab).await.expect("a log and a branch");
        let log = Group::open(&lab.store(0, "log", None)).await.expect("the log");
        for moment in [Moment::Position(0), Moment::Position(1), Moment::Time(0)] {
            let refused = Restore::at(&log, moment).await.err().expect("refused");
            assert!(matches!(refused, Error::History(_)), "{refused}");
        }
    });
}

#[test]
fn damage_in_a_parent_is_found_from_the_branch() {
    run(async {
        let lab = Lab::new(Objects::new(), 1);
        pair(&lab).await.expect("a log and a branch");
        let mut objects = lab.objects();
        let name = format!("log/{}", log_name(2));
        let object = objects.get_mut(&name).expect("a record");
        *object = object.slice(..object.len() - 1);
        let lab = Lab::new(objects, 1);
        let child = Group::open(&lab.store(0, "child", None)).await.expect("the child");
        let error = verify(&child, |_| {}).await.expect_err("damage").to_string();
        assert!(error.contains(&log_name(2)), "{error}");
        // And from the parent, as long as the branch needs it.
        let log = Group::open(&lab.store(0, "log", None)).await.expect("the log");
        let error = verify(&log, |_| {}).await.expect_err("damage").to_string();
        assert!(error.contains(&log_name(2)), "{error}");
        for pin in list(&log).await.expect("a list").pins {
            pin.remove(log.store()).await.expect("removed");
        }
        verify(&log, |_| {}).await.expect("sound from its floor on");
    });
}

#[test]
fn expired_pins_go_with_what_is_deleted() {
    run(async {
        let lab = Lab::new(Objects::new(), 1);
        let store = lab.store(0, "log", None);
        let mut owner = Owner::claim(&store, claim(1, Right::Orderly)).await.expect("a claim");
        append(&mut owner, &["a"]).await.expect("an append");
        // The pin of a restore that crashed.
        drop(Restore::newest(owner.group()).await.expect("a restore"));
        let pins = || lab.objects().keys().filter(|name| name.contains("/pins/")).count();
        snapshot(&mut owner, &["a".to_owned()]).await.expect("a snapshot");
        prune(&store).await.expect("pruning");
        assert_eq!(pins(), 1, "it may live");
        sleep(Duration::from_secs(2 * 24 * 3600)).await;
        prune(&store).await.expect("pruning");
        assert_eq!(pins(), 0);
    });
}
