//! One process of a simulation: it claims, restores, and appends, snapshots, prunes and releases at random, and checks
//! the answers it gets against the state of the store.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;

use object_store::path::Path;
use tokio::task::spawn_local;
use tokio::time::{Instant, Sleep, sleep, sleep_until, timeout};

use super::store::{Machine, Shared};
use crate::rules::Rule;
use crate::{
    Claim, Error, Group, Item, Moment, Outcome, Owner, Restore, Retention, Right, Store, Tuning,
};

const LEASE: Duration = Duration::from_millis(500);

/// Settings of a process.
#[derive(Clone)]
pub(super) struct Process {
    pub world: Shared,
    pub store: Store,
    pub id: usize,
    pub node: u8,
    pub right: Right,
}

/// Returns a store as the process `id` on the machine `node` sees it.
pub(super) fn store(world: &Shared, prefix: &str, node: u8, left_out: Option<Rule>) -> Store {
    let skew = [0, 5_000, -60_000][usize::from(node) % 3];
    let env = Arc::new(Machine { world: world.clone(), skew });
    let sibling = world.clone();
    let mut store = Store::with(Arc::new(world.clone()), Path::from(prefix), prefix, env, tuning())
        .with_siblings(Arc::new(move |url| Ok(self::store(&sibling, url, 0, None))));
    store.left_out = left_out;
    store
}

/// Short times and small objects.
pub(super) fn tuning() -> Tuning {
    Tuning {
        attempt: Duration::from_secs(2),
        pause_min: Duration::from_millis(10),
        pause_max: Duration::from_millis(500),
        patience: Duration::from_secs(60),
        piece_len: 64,
        part_len: 100,
        read_ahead: 2,
        poll: Duration::from_millis(100),
        floor_poll: Duration::from_secs(10),
    }
}

/// Returns true if the store caused the error, so that a process may end with it.
pub(super) fn is_weather(error: &Error) -> bool {
    matches!(error, Error::Store { .. } | Error::Timeout { .. })
}

impl Process {
    fn violation(&self, what: String) {
        self.world.lock().violation(format!("process {}: {what}", self.id));
    }

    fn below(&self, end: usize) -> usize {
        self.world.lock().random.below(end)
    }

    /// Runs the whole life.
    pub async fn live(self) {
        match self.try_live().await {
            Ok(()) => {}
            Err(error) if is_weather(&error) => {}
            Err(Error::Owned { .. } | Error::Deposed { .. }) => {}
            Err(error) => self.violation(format!("died: {error}")),
        }
    }

    async fn try_live(&self) -> crate::Result<()> {
        let claim = Claim {
            node: [self.node; 16],
            address: format!("process {}", self.id),
            takeover: false,
            lease: LEASE,
            margin: LEASE / 5,
            right: self.right,
        };
        let mut owner = Owner::claim(&self.store, claim).await?;
        self.world.lock().tally.claims += 1;
        if self.store.keeps(Rule::ClaimAtStart) {
            self.check_end(&owner, "claim");
        }
        let mut state = self.restore(owner.group(), Moment::Newest, 0).await?;
        for step in 0..self.below(60) {
            let prunes = self.world.lock().prunes;
            match self.below(if prunes { 6 } else { 12 }) {
                0 => {
                    if !self.snapshot(&mut owner, &state).await? {
                        return Ok(());
                    }
                    if self.below(2) == 0 {
                        self.prune(&mut owner).await?;
                    }
                }
                1 => self.prune(&mut owner).await?,
                2 if step > 10 => {
                    owner.release().await?;
                    return Ok(());
                }
                3 => sleep(Duration::from_millis(self.below(3000) as u64)).await,
                _ => {
                    if !self.append(&mut owner, &mut state, step).await? {
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }

    /// Appends a few entries, perhaps with its future dropped midway. False: deposed.
    async fn append(
        &self,
        owner: &mut Owner,
        state: &mut Vec<String>,
        step: usize,
    ) -> crate::Result<bool> {
        let entries: Vec<String> = (0..1 + self.below(3))
            .map(|n| format!("{}.{step}.{n}.{}", self.id, "x".repeat(self.below(60))))
            .collect();
        let batches: Vec<&[u8]> = entries.iter().map(String::as_bytes).collect();
        let before = owner.group().end().number;
        let patience = match self.below(4) {
            0 => Duration::from_millis(self.below(100) as u64),
            _ => Duration::from_secs(100_000),
        };
        let outcome = match timeout(patience, owner.append(&batches)).await {
            Ok(outcome) => outcome?,
            Err(_) => match self.resume(owner, &batches, before).await? {
                Some(outcome) => outcome,
                None => return Ok(true),
            },
        };
        match outcome {
            Outcome::Committed(number) => {
                self.check_end(owner, "append");
                state.extend(entries.iter().cloned());
                let mut world = self.world.lock();
                world.tally.appends += 1;
                world.acknowledged.extend(entries.into_iter().map(|entry| (number, entry)));
                Ok(true)
            }
            Outcome::Deposed { node, .. } => {
                self.check_deposed(node);
                Ok(false)
            }
        }
    }

    /// Finishes an append that was dropped, or finds that it was dropped before its record was made. `None`: it never
    /// was in flight.
    async fn resume(
        &self,
        owner: &mut Owner,
        batches: &[&[u8]],
        before: u64,
    ) -> crate::Result<Option<Outcome>> {
        if !self.store.keeps(Rule::SettleFirst) {
            return owner.append(batches).await.map(Some);
        }
        let outcome = owner.settle().await?;
        match outcome {
            // Dropped while the pieces were uploaded.
            None if owner.group().end().number == before => Ok(None),
            None => Ok(Some(Outcome::Committed(owner.group().end().number))),
            outcome => Ok(outcome),
        }
    }

    /// Checks that the record the owner takes for its last came first under that number, and that its lease does not
    /// begin later.
    fn check_end(&self, owner: &Owner, what: &str) {
        let end = owner.group().end();
        let mut world = self.world.lock();
        let start = world.start;
        let wrong = match world.log.get(&end.number) {
            None => Some("was confirmed and never landed".to_owned()),
            Some(landed) if landed.hash != end.hash => {
                Some("was confirmed to one process, and another's came first".to_owned())
            }
            Some(landed) if owner.lease_until() > landed.at - start + LEASE => Some(format!(
                "holds the lease until {:?}, and landed at {:?}",
                owner.lease_until(),
                landed.at - start
            )),
            Some(_) => None,
        };
        if let Some(wrong) = wrong {
            world.violation(format!("process {}: {what} {} {wrong}", self.id, end.number));
        }
    }

    /// Checks that only a claim by another process deposes.
    fn check_deposed(&self, node: crate::Id) {
        let mut world = self.world.lock();
        world.tally.deposed += 1;
        let address = format!("process {}", self.id);
        let last = world.log.values().rev().find(|l| l.record.header.kind == crate::Kind::Claim);
        let by_itself = last.is_some_and(|claim| {
            let stored = &claim.record.stored;
            stored.ends_with(address.as_bytes())
        });
        if by_itself {
            world.violation(format!("process {} deposed by {node:?}, without a claim", self.id));
        }
    }

    async fn snapshot(&self, owner: &mut Owner, state: &[String]) -> crate::Result<bool> {
        if owner.group().end().number == 0 {
            return Ok(true);
        }
        let mut upload = owner.begin_snapshot(owner.group().end().number).await?;
        for entry in state {
            upload.write(entry.as_bytes()).await?;
            upload.write(b"\n").await?;
        }
        let uploaded = upload.finish(b"entries").await?;
        match owner.snapshot(uploaded).await? {
            Outcome::Committed(_) => {
                self.world.lock().tally.snapshots += 1;
                self.check_end(owner, "snapshot");
                Ok(true)
            }
            Outcome::Deposed { node, .. } => {
                self.check_deposed(node);
                Ok(false)
            }
        }
    }

    async fn prune(&self, owner: &mut Owner) -> crate::Result<()> {
        let (prunes, way) = {
            let world = self.world.lock();
            (world.prunes, world.way as usize)
        };
        if prunes {
            // A reader needs about this many requests to open the log and put a pin.
            for n in 1..=4 {
                let reader = Self { id: self.id + 500 * n, ..self.clone() };
                let delay = Duration::from_millis(self.below(20 * way) as u64);
                spawn_local(async move {
                    sleep(delay).await;
                    reader.read().await;
                });
            }
            sleep(Duration::from_millis(self.below(40 * way) as u64)).await;
        }
        let keep = Duration::from_millis(self.below(3) as u64 * 5_000);
        let Some(deletion) = owner.prune(Retention { keep }).await? else { return Ok(()) };
        let now = self.store.env.boottime();
        sleep(deletion.not_before.saturating_sub(now)).await;
        if owner.delete(&deletion).await? > 0 {
            self.world.lock().tally.deletions += 1;
        }
        Ok(())
    }

    /// Restores a moment, slowly, and compares it with the history of the store. Returns the state.
    pub async fn restore(
        &self,
        group: &Group,
        moment: Moment,
        pause_ms: usize,
    ) -> crate::Result<Vec<String>> {
        let mut restore = Restore::at(group, moment).await?;
        let (mut state, mut text) = (Vec::new(), Vec::new());
        while let Some(item) = restore.next().await? {
            match item {
                Item::Snapshot { .. } => text.clear(),
                Item::Part(part) => text.extend_from_slice(&part),
                Item::Batches { batches, .. } => {
                    state.extend(lines(&std::mem::take(&mut text)));
                    state.extend(batches.iter().map(|b| String::from_utf8_lossy(b).into_owned()));
                }
            }
            if pause_ms > 0 {
                sleep(Duration::from_millis(self.below(pause_ms) as u64)).await;
            }
        }
        state.extend(lines(&text));
        self.check_state(&state, restore.position());
        // If the store is slow, the pin stays for a day.
        let _ = restore.finish().await;
        Ok(state)
    }

    fn check_state(&self, state: &[String], position: u64) {
        let mut world = self.world.lock();
        world.tally.restores += 1;
        if state != world.state(position) {
            world.violation(format!("process {}: another state at {position}", self.id));
        }
    }

    /// Runs a reader next to the owner.
    pub async fn read(self) {
        match self.try_read().await {
            Ok(()) | Err(Error::History(_)) => {}
            Err(error) if is_weather(&error) => {}
            Err(error) => self.violation(format!("reader: {error}")),
        }
    }

    async fn try_read(&self) -> crate::Result<()> {
        let last = self.world.lock().last();
        let group = Group::open(&self.store).await?;
        if group.end().number < last {
            let found = group.end().number;
            self.violation(format!("the log ends at {last}, and {found} was taken for its end"));
        }
        let moment = match self.below(3) {
            0 => Moment::Newest,
            _ => {
                let (from, to) = (group.end().floor, group.end().number);
                Moment::Position(to.min(from + self.below(1 + to as usize) as u64))
            }
        };
        let pause_ms = [0, 50, 2_000][self.below(3)];
        self.restore(&group, moment, pause_ms).await.map(drop)
    }
}

fn lines(text: &[u8]) -> Vec<String> {
    String::from_utf8_lossy(text).lines().map(str::to_owned).collect()
}

/// Allows a process to be stopped for a while, and killed between any two steps.
pub(super) struct Gate<F> {
    process: Pin<Box<F>>,
    control: Arc<Control>,
    wait: Option<Pin<Box<Sleep>>>,
}

/// Control of a process from outside.
#[derive(Default)]
pub(super) struct Control {
    /// Stopped until then, in milliseconds of virtual time.
    pub stopped_until: AtomicU64,
    /// Number of the poll before which it is killed. 0: never.
    pub polls: AtomicU64,
    pub kill_at: AtomicU64,
    /// Number of the poll before which it is stopped for up to a minute. 0: never.
    pub stop_at: AtomicU64,
}

impl<F: Future<Output = ()>> Gate<F> {
    pub fn new(process: F, control: Arc<Control>) -> Self {
        Self { process: Box::pin(process), control, wait: None }
    }
}

impl<F: Future<Output = ()>> Future for Gate<F> {
    /// True if it ended by itself.
    type Output = bool;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<bool> {
        let this = &mut *self;
        let polls = this.control.polls.fetch_add(1, Relaxed) + 1;
        if polls == this.control.kill_at.load(Relaxed) {
            return Poll::Ready(false);
        }
        if polls == this.control.stop_at.load(Relaxed) {
            this.control.stopped_until.fetch_max(1 + (polls * 7919) % 60_000, Relaxed);
        }
        let stopped = Duration::from_millis(this.control.stopped_until.swap(0, Relaxed));
        if !stopped.is_zero() {
            this.wait = Some(Box::pin(sleep_until(Instant::now() + stopped)));
        }
        if let Some(wait) = &mut this.wait {
            if wait.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
            this.wait = None;
        }
        this.process.as_mut().poll(context).map(|()| true)
    }
}
