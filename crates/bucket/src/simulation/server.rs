//! A simulated server: it follows, takes over, executes operations, and sends replies by the rules of their levels.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, timeout};

use super::clients::{Answer, Event, History, INTERVAL, Level, Request};
use super::process::is_weather;
use super::store::Shared;
use crate::rules::Rule;
use crate::{
    Claim, Clock, Deletion, Error, Followed, Follower, Group, Item, Lease, Moment, Outcome, Owner,
    Restore, Result, Retention, Right, Store,
};

/// The values that a server has: the newest event of each key.
type Data = BTreeMap<u8, Event>;

/// The leases of all processes, of which the dead have dropped theirs.
pub(super) type Leases = Arc<Mutex<Vec<(usize, Weak<Lease>)>>>;

/// Settings of a server.
pub(super) struct Server {
    pub world: Shared,
    pub store: Store,
    pub history: History,
    pub id: usize,
    pub claim: Claim,
    /// True if it claims at its start, before it follows.
    pub claims_first: bool,
    /// The shortest lease and margin, by the fastest clock.
    pub fence: Duration,
    /// It is stopped at one of this many steps.
    pub pauses: usize,
    /// True if it reads at long intervals.
    pub is_slow: bool,
    /// True if it takes snapshots all the time.
    pub prunes: bool,
    /// The node of the newest owner.
    pub owner: Arc<AtomicU64>,
    /// The leases of all living servers.
    pub leases: Leases,
    pub inbox: mpsc::UnboundedReceiver<Request>,
}

/// Counts of the events in a life.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Seen {
    pub takeovers: usize,
    pub hand_overs: usize,
    pub deposed: usize,
    pub overtaken: usize,
    pub late_leases: usize,
    pub snapshots: usize,
    pub deletions: usize,
    pub bucket: usize,
    pub local: usize,
    pub lost: usize,
}

/// End of a period as the owner.
enum Ended {
    HandedOver(Box<Follower>, Data),
    Deposed,
}

impl Server {
    fn below(&self, end: usize) -> usize {
        self.world.lock().random.below(end)
    }

    fn millis(&self, end: usize) -> Duration {
        Duration::from_millis(self.below(end) as u64)
    }

    /// Stops here at random, sometimes for longer than a lease.
    async fn pause(&self) {
        if self.below(self.pauses) == 0 {
            let longest = [50, 1_000, 6_000][self.below(3)];
            sleep(self.millis(longest)).await;
        }
    }

    /// Runs the whole life. A server that was deposed or overtaken starts again.
    pub async fn live(mut self) {
        loop {
            match self.try_live().await {
                Ok(()) | Err(Error::Deposed { .. }) => {}
                Err(Error::Overtaken { position, .. }) => self.check_overtaken(position),
                Err(error) if is_weather(&error) => {}
                Err(error) => {
                    let text = format!("server {} died: {error}", self.id);
                    return self.world.lock().violation(text);
                }
            }
            sleep(self.millis(200)).await;
        }
    }

    async fn try_live(&mut self) -> Result<()> {
        let mut owned = None;
        if std::mem::take(&mut self.claims_first) {
            let patience = self.millis(4_000);
            let claimed = timeout(patience, Owner::claim(&self.store, self.claim.clone())).await;
            match claimed.unwrap_or(Err(Error::Invalid(String::new()))) {
                Ok(owner) => {
                    let to = Moment::Position(owner.before().number);
                    match restore(owner.group(), to).await {
                        Ok((_, data)) => owned = Some((owner, data)),
                        // Pruned by an owner that has claimed since.
                        Err(Error::History(_)) => return Ok(()),
                        Err(error) => return Err(error),
                    }
                }
                // The server gave up: its CLAIM may have landed, and then belongs to a dead process.
                Err(Error::Owned { .. } | Error::Invalid(_)) => {}
                Err(error) => return Err(error),
            }
        }
        // A right that its machine has at the start ends there.
        self.claim.right = Right::LeaseOver;
        loop {
            let (owner, data) = match owned.take() {
                Some(owned) => owned,
                None => {
                    let group = Group::open(&self.store).await?;
                    let (done, data) = restore(&group, Moment::Newest).await?;
                    self.follow(Follower::after(done).await?, data).await?
                }
            };
            let mut ended = Reign::new(self, owner, data).rule().await?;
            while let Ended::HandedOver(follower, data) = ended {
                let (owner, data) = self.follow(*follower, data).await?;
                ended = Reign::new(self, owner, data).rule().await?;
            }
        }
    }

    /// Follows until it owns the log.
    async fn follow(&mut self, mut follower: Follower, mut data: Data) -> Result<(Owner, Data)> {
        loop {
            while let Ok(request) = self.inbox.try_recv() {
                let _ = request.answer.send(Answer::NotHere);
            }
            let wait = self.millis(300);
            if let Followed::Batches { batches, .. } = follower.next(wait).await? {
                batches.iter().for_each(|batch| apply(&mut data, batch));
            }
            self.pause().await;
            if self.is_slow {
                sleep(self.millis(4_000)).await;
            }
            let free_at = follower.free_at(&self.claim.address);
            if free_at.is_none_or(|free_at| free_at > self.store.env.boottime()) {
                continue;
            }
            let was_released = follower.end().released;
            match follower.take_over(self.claim.clone()).await {
                Ok(owner) => {
                    let mut world = self.world.lock();
                    world.seen.takeovers += usize::from(!was_released);
                    return Ok((owner, data));
                }
                Err(Error::Owned { .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Checks that no other process may answer while this one may.
    fn check_leases(&self, own: &Arc<Lease>) {
        let Ok(mut leases) = self.leases.lock() else { return };
        leases.retain(|(_, lease)| lease.upgrade().is_some_and(|lease| !lease.has_ended()));
        for (id, lease) in leases.iter() {
            let lease = lease.upgrade().filter(|lease| !Arc::ptr_eq(lease, own) && lease.is_held());
            if let Some(lease) = lease.filter(|_| own.is_held()) {
                let text = format!(
                    "server {} holds the lease until {:?}, and {id} until {:?}",
                    self.id,
                    own.until(),
                    lease.until()
                );
                self.world.lock().violation(text);
            }
        }
    }

    /// Checks that pruning overtakes only servers that are behind by more than a lease and its margin.
    fn check_overtaken(&self, position: u64) {
        let mut world = self.world.lock();
        world.seen.overtaken += 1;
        let Some(next) = world.log.get(&(position + 1)) else { return };
        let behind = next.at.elapsed();
        if behind < self.fence {
            let text = format!("server {} was passed by: it was {behind:?} behind", self.id);
            world.violation(text);
        }
    }
}

/// Restores a moment.
async fn restore(group: &Group, moment: Moment) -> Result<(Restore, Data)> {
    let mut restore = Restore::at(group, moment).await?;
    let (mut data, mut text) = (Data::new(), Vec::new());
    while let Some(item) = restore.next().await? {
        match item {
            Item::Snapshot { .. } => {}
            Item::Part(part) => text.extend_from_slice(&part),
            Item::Batches { batches, .. } => {
                load(&mut data, &std::mem::take(&mut text));
                batches.iter().for_each(|batch| apply(&mut data, batch));
            }
        }
    }
    load(&mut data, &text);
    Ok((restore, data))
}

fn load(data: &mut Data, text: &[u8]) {
    text.split(|byte| *byte == b'\n').filter(|l| !l.is_empty()).for_each(|l| apply(data, l));
}

fn apply(data: &mut Data, batch: &[u8]) {
    let event = Event::decode(&String::from_utf8_lossy(batch));
    data.insert(event.key, event);
}

/// A period as the owner.
struct Reign<'a> {
    server: &'a mut Server,
    id: usize,
    owner: Option<Owner>,
    lease: Arc<Lease>,
    clock: Arc<Clock>,
    data: Data,
    /// Operations that wait because of backpressure.
    queue: VecDeque<Request>,
    /// Changes that are in no record yet, and the time of the first.
    unsent: Vec<String>,
    unsent_since: Option<Duration>,
    /// Time of the first change in the record in flight.
    sending_since: Option<Duration>,
    /// Number of changes so far, of those in the record in flight, and of those committed.
    changes: u64,
    sending: u64,
    committed: u64,
    /// Number of the newest change of each key.
    changed: BTreeMap<u8, u64>,
    waiting: Vec<Waiting>,
    work: Option<LocalBoxFuture<'static, (Option<Owner>, Result<Done>)>>,
    deletion: Option<Deletion>,
}

/// A reply that may not be sent yet.
struct Waiting {
    needs: u64,
    reply: Answer,
    to: oneshot::Sender<Answer>,
}

/// Result of a piece of work.
enum Done {
    Appended(Outcome),
    Snapshot(Outcome, Option<Deletion>),
    Deleted,
    HandedOver(Box<Follower>),
}

impl<'a> Reign<'a> {
    fn new(server: &'a mut Server, owner: Owner, data: Data) -> Self {
        let id = owner.group().end().number as usize;
        server.owner.store(server.claim.node[0].into(), Relaxed);
        if let Ok(mut leases) = server.leases.lock() {
            leases.push((server.id, Arc::downgrade(&owner.lease())));
        }
        Self {
            server,
            id,
            lease: owner.lease(),
            clock: owner.clock(),
            owner: Some(owner),
            data,
            queue: VecDeque::new(),
            unsent: Vec::new(),
            unsent_since: None,
            sending_since: None,
            changes: 0,
            sending: 0,
            committed: 0,
            changed: BTreeMap::new(),
            waiting: Vec::new(),
            work: None,
            deletion: None,
        }
    }

    fn keeps(&self, rule: Rule) -> bool {
        self.server.store.keeps(rule)
    }

    fn now(&self) -> Duration {
        self.server.store.env.boottime()
    }

    async fn rule(mut self) -> Result<Ended> {
        loop {
            self.begin_work();
            let tick = self.server.millis(60);
            let done = match &mut self.work {
                Some(work) => {
                    tokio::select! {
                        biased;
                        done = work => Some(done),
                        request = self.server.inbox.recv() => {
                            self.queue.extend(request);
                            None
                        }
                        () = sleep(tick) => None,
                    }
                }
                None => {
                    let request = timeout(tick, self.server.inbox.recv()).await;
                    self.queue.extend(request.ok().flatten());
                    None
                }
            };
            let woken = self.now();
            if let Some((owner, done)) = done {
                (self.work, self.owner) = (None, owner);
                if let Some(ended) = self.finish_work(done?) {
                    return Ok(ended);
                }
            }
            self.server.pause().await;
            while let Ok(request) = self.server.inbox.try_recv() {
                self.queue.push_back(request);
            }
            self.execute_all();
            self.server.pause().await;
            self.reply(woken).await;
        }
    }

    /// Executes the waiting operations, except for changes if too much is not in the bucket yet.
    fn execute_all(&mut self) {
        for request in std::mem::take(&mut self.queue) {
            let oldest = self.sending_since.or(self.unsent_since);
            let age = oldest.map_or(Duration::ZERO, |oldest| self.now().saturating_sub(oldest));
            let is_full = age >= INTERVAL && self.keeps(Rule::BackPressure);
            let changes = request.swap.is_some() || self.is_expired(request.key);
            match is_full && changes {
                true => self.queue.push_back(request),
                false => self.execute(request),
            }
        }
    }

    fn is_expired(&self, key: u8) -> bool {
        let now = self.clock.now();
        self.data.get(&key).is_some_and(|value| value.deadline > 0 && value.deadline <= now)
    }

    fn execute(&mut self, request: Request) {
        let Request { key, level, swap, answer } = request;
        let now = match self.keeps(Rule::ClockStarts) {
            true => self.clock.now(),
            false => self.server.store.env.wall(),
        };
        let mut current = self.data.get(&key).copied();
        let mut expired = 0;
        if let Some(value) = current.filter(|value| value.deadline > 0 && value.deadline <= now) {
            expired = value.deadline;
            let number = self.server.history.next_event();
            current = Some(self.change(key, number, value.number, 0));
        }
        let seen = current.map_or(0, |value| value.number);
        let shown = current.map_or(0, |value| value.deadline);
        if let Some((number, life)) = swap {
            self.change(key, number, seen, now + life);
        }
        let is_delayed = swap.is_some() || self.keeps(Rule::ReadsWaitForCommit);
        let needs = match level {
            Level::Bucket if is_delayed => self.changed.get(&key).copied().unwrap_or_default(),
            _ => 0,
        };
        let reply = Answer::Done { seen, shown, expired, owner: self.id, at: Instant::now() };
        self.waiting.push(Waiting { needs, reply, to: answer });
    }

    fn change(&mut self, key: u8, number: u64, before: u64, deadline: u64) -> Event {
        let event = Event { key, number, before, deadline };
        self.data.insert(key, event);
        self.unsent.push(event.encode());
        self.changes += 1;
        self.changed.insert(key, self.changes);
        if self.unsent_since.is_none() {
            self.unsent_since = Some(self.now());
        }
        event
    }

    /// Sends the replies whose changes are committed as far as their level requires, if the lease is valid.
    async fn reply(&mut self, woken: Duration) {
        let held = |reign: &Self| match reign.keeps(Rule::FreshClock) {
            true => reign.lease.is_held(),
            false => reign.lease.is_held_at(woken),
        };
        if !self.waiting.is_empty() && !held(self) {
            self.server.world.lock().seen.late_leases += 1;
            return;
        }
        self.server.check_leases(&self.lease);
        for waiting in std::mem::take(&mut self.waiting) {
            if waiting.needs > self.committed || !held(self) {
                self.waiting.push(waiting);
                continue;
            }
            self.server.pause().await;
            let _ = waiting.to.send(waiting.reply);
        }
    }

    /// Begins the next due work, if none is running.
    fn begin_work(&mut self) {
        let Some(mut owner) = self.owner.take_if(|_| self.work.is_none()) else { return };
        let now = self.server.store.env.boottime();
        let is_asked = self.waiting.iter().any(|waiting| waiting.needs > self.committed);
        let is_old =
            self.unsent_since.is_some_and(|since| now.saturating_sub(since) >= INTERVAL / 2);
        let is_empty = self.unsent.is_empty();
        let chance = if is_empty { self.server.below(200) } else { usize::MAX };
        let snapshots = if self.server.prunes { 15 } else { 1 };
        if !is_empty && (is_asked || is_old) {
            let batches = std::mem::take(&mut self.unsent);
            (self.sending, self.sending_since) = (self.changes, self.unsent_since.take());
            self.work = Some(
                async move {
                    let batches: Vec<&[u8]> = batches.iter().map(String::as_bytes).collect();
                    let outcome = owner.append(&batches).await;
                    (Some(owner), outcome.map(Done::Appended))
                }
                .boxed_local(),
            );
        } else if let Some(deletion) = self.deletion.take_if(|deletion| deletion.not_before <= now)
        {
            self.work = Some(
                async move {
                    let outcome = owner.delete(&deletion).await;
                    (Some(owner), outcome.map(|_| Done::Deleted))
                }
                .boxed_local(),
            );
        } else if chance < snapshots && self.deletion.is_none() {
            let data = self.data.clone();
            self.work = Some(snapshot(owner, data).boxed_local());
        } else if (50..52).contains(&chance) && self.waiting.is_empty() {
            // Other threads learn of it later.
            let late = self.server.millis(1_000);
            self.work = Some(
                async move {
                    let follower = owner.hand_over(None).await;
                    sleep(late).await;
                    (None, follower.map(|follower| Done::HandedOver(follower.into())))
                }
                .boxed_local(),
            );
        } else if owner.renew_due().is_some_and(|due| due <= now) {
            self.work = Some(
                async move {
                    let outcome = owner.renew().await;
                    (Some(owner), outcome.map(Done::Appended))
                }
                .boxed_local(),
            );
        } else {
            self.owner = Some(owner);
        }
    }

    fn finish_work(&mut self, done: Done) -> Option<Ended> {
        let outcome = match done {
            Done::Appended(outcome) => outcome,
            Done::Snapshot(outcome, deletion) => {
                self.server.world.lock().seen.snapshots += 1;
                self.deletion = deletion;
                outcome
            }
            Done::Deleted => {
                self.server.world.lock().seen.deletions += 1;
                return None;
            }
            Done::HandedOver(follower) => {
                self.server.world.lock().seen.hand_overs += 1;
                // Changes executed since are in no record, and no client was told of them.
                return self.hand_over(*follower);
            }
        };
        if let Outcome::Deposed { .. } = outcome {
            self.server.world.lock().seen.deposed += 1;
            return Some(Ended::Deposed);
        }
        self.committed = self.committed.max(self.sending);
        self.sending_since = None;
        None
    }

    fn hand_over(&mut self, follower: Follower) -> Option<Ended> {
        if self.unsent.is_empty() {
            return Some(Ended::HandedOver(follower.into(), std::mem::take(&mut self.data)));
        }
        Some(Ended::Deposed)
    }
}

async fn snapshot(mut owner: Owner, data: Data) -> (Option<Owner>, Result<Done>) {
    let work = async {
        let mut upload = owner.begin_snapshot(owner.group().end().number).await?;
        for event in data.values() {
            upload.write(event.encode().as_bytes()).await?;
            upload.write(b"\n").await?;
        }
        let uploaded = upload.finish(b"values").await?;
        let outcome = owner.snapshot(uploaded).await?;
        let deletion = match outcome {
            Outcome::Committed(_) => owner.prune(Retention { keep: Duration::ZERO }).await?,
            Outcome::Deposed { .. } => None,
        };
        Ok(Done::Snapshot(outcome, deletion))
    };
    let done = work.await;
    (Some(owner), done)
}

impl Seen {
    fn counts(&mut self) -> [&mut usize; 10] {
        let Self { takeovers, hand_overs, deposed, overtaken, late_leases, .. } = self;
        let Self { snapshots, deletions, bucket, local, lost, .. } = self;
        [
            takeovers,
            hand_overs,
            deposed,
            overtaken,
            late_leases,
            snapshots,
            deletions,
            bucket,
            local,
            lost,
        ]
    }

    pub fn add(&mut self, other: &Self) {
        let mut other = *other;
        for (sum, count) in self.counts().into_iter().zip(other.counts()) {
            *sum += *count;
        }
    }

    /// Returns the count of the rarest event.
    pub fn rarest(mut self) -> usize {
        self.counts().into_iter().map(|count| *count).min().unwrap_or_default()
    }
}
