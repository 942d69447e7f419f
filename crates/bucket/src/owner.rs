//! The process that writes a log: it claims, appends one record at a time, and releases.
//!
//! Invariants:
//! - A process appends only after a CLAIM of its own. A request of an earlier process that is still in flight then
//!   collides with that CLAIM, or lies before it.
//! - One record is in flight. If the future that appends it is dropped, the next call finishes it first, with the same
//!   bytes, since it may have landed.
//! - After `Deposed` no append is sent any more.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::sleep;

use crate::append::{Outcome, Progress, append};
use crate::body::{ClaimInfo, ReleaseInfo, SnapshotInfo, join_batches};
use crate::error::{Error, Result};
use crate::group::{End, Group, read_floor};
use crate::lease::{Clock, Lease};
use crate::payload::{pack, store_payload};
use crate::record::{Encoding, Header, Id, Kind, Record, hash, log_name};
use crate::rules::Rule;
use crate::store::Store;

/// Right by which a process may claim a log that was not released.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Right {
    /// Only if the log is empty or was released.
    Orderly,
    /// Also if the last claim is of the same node: the caller has proved, by a lock and the boot id, that this process
    /// is dead.
    PredecessorDead,
    /// Also when the lease of the last claim is over, if that claim allows takeover. The claim waits for the end of
    /// the lease, and starts waiting again whenever the owner shows that it is alive.
    LeaseOver,
    /// In any case: the operator says so (`--bucket-claim force`).
    Force,
}

/// Parameters of a claim.
#[derive(Debug, Clone)]
pub struct Claim {
    /// The id of this process' data directory.
    pub node: Id,
    /// Address of this node for others, such as `host:port`.
    pub address: String,
    /// True if another process may take over when the lease is over.
    pub takeover: bool,
    /// Time for which an append extends the lease.
    pub lease: Duration,
    /// Additional time that others wait.
    pub margin: Duration,
    /// Right by which it claims.
    pub right: Right,
}

/// The process that may append.
pub struct Owner {
    group: Group,
    before: End,
    node: Id,
    pending: Option<Pending>,
    deposed: Option<(String, Id)>,
    progress: Arc<Progress>,
    /// Time before the first attempt of the newest committed record.
    held_from: Duration,
    lease: Arc<Lease>,
    clock: Arc<Clock>,
}

/// Outcome of a CLAIM.
pub(crate) enum Claimed {
    Owner(Box<Owner>),
    /// A record of another process came first.
    Beaten {
        node: Id,
    },
    /// The log was pruned since its end was read: the CLAIM lies in a gap, and is void.
    InGap,
}

/// A record that may have landed.
struct Pending {
    header: Header,
    object: Bytes,
    snapshot: Option<SnapshotInfo>,
    first_attempt: Duration,
}

impl Owner {
    /// Claims the log of a group. On success, all records of other processes lie before the CLAIM. [`Owner::before`]
    /// tells whether that is the state this process last knew.
    ///
    /// # Errors
    ///
    /// [`Error::Owned`] if another owner may be alive; else the store's errors and those of a damaged end.
    pub async fn claim(store: &Store, claim: Claim) -> Result<Self> {
        let mut group = Group::open(store).await?;
        let mut seen_at = store.env.boottime();
        // Only the predecessor is known to be dead, not an owner that has claimed since.
        let known = group.end.claim.as_ref().map(|claim| claim.number);
        loop {
            if claim.right == Right::LeaseOver {
                wait_for_lease(&mut group, &claim, seen_at).await?;
            } else {
                check_right(&group.end, &claim, known)?;
            }
            #[cfg(test)]
            if !store.keeps(Rule::ClaimAtStart) && group.end.number > 0 && !group.end.released {
                return Ok(Self::without_claim(group, claim.node));
            }
            match Self::put_claim(&group, &claim, store.nonce(), Arc::default()).await? {
                Claimed::Owner(owner) => return Ok(*owner),
                // A living owner keeps appending. To win against it, the next attempt must come at once.
                Claimed::Beaten { .. } if group.end.number > 0 => match group.catch_up().await {
                    Ok(()) => {}
                    // In a gap that pruning left, records do not match each other.
                    Err(Error::Damaged { .. }) if read_floor(store).await? > group.end.floor => {
                        group = Group::open(store).await?;
                    }
                    Err(error) => return Err(error),
                },
                Claimed::Beaten { .. } | Claimed::InGap => group = Group::open(store).await?,
            }
            seen_at = store.env.boottime();
        }
    }

    /// As [`Owner::claim`], for a process that has data up to `end`, which [`Group::open`] has found: the CLAIM
    /// follows directly after `end`, or is not put. So no record lies between these data and the CLAIM, even if the
    /// future is dropped and the CLAIM lands later. The process stores its random `nonce` before the call, to
    /// recognise such a CLAIM ([`ClaimInfo::nonce`]). This waits for no lease.
    ///
    /// # Errors
    ///
    /// [`Error::WentOn`] if the log has another record there by now; else as for [`Owner::claim`].
    pub async fn claim_behind(store: &Store, end: &End, claim: Claim, nonce: Id) -> Result<Self> {
        let group = Group { store: store.clone(), end: end.clone() };
        check_right(end, &claim, end.claim.as_ref().map(|claim| claim.number))?;
        match Self::put_claim(&group, &claim, nonce, Arc::default()).await? {
            Claimed::Owner(owner) => Ok(*owner),
            Claimed::Beaten { .. } | Claimed::InGap => Err(Error::WentOn { position: end.number }),
        }
    }

    /// Puts a CLAIM after the end of a group. `progress` reports its state, and becomes that of the owner.
    pub(crate) async fn put_claim(
        group: &Group,
        claim: &Claim,
        nonce: Id,
        progress: Arc<Progress>,
    ) -> Result<Claimed> {
        let (mut group, store) = (group.clone(), &group.store);
        let clock = Clock::starting_at(Arc::clone(&store.env), group.end.wall);
        let held_from = store.env.boottime();
        let (header, info) = claim_header(&group.end, claim, nonce, store, &clock);
        let mut object = header.encode(&info.encode());
        // Two processes that claim an empty log have each made up an id.
        let known_cluster = (group.end.number > 0).then_some(header.cluster);
        match append(store, header.number, known_cluster, &mut object, &progress).await? {
            Outcome::Deposed { node, .. } => return Ok(Claimed::Beaten { node }),
            Outcome::Committed(number)
                if store.keeps(Rule::FloorAfterClaim) && read_floor(store).await? > number =>
            {
                return Ok(Claimed::InGap);
            }
            Outcome::Committed(_) => {}
        }
        let before = group.end.clone();
        let lease = info.takeover.then(|| held_from + Duration::from_millis(info.lease_ms));
        let lease = Lease::new(Arc::clone(&store.env), lease).into();
        group.end.advance(&header, hash(&object));
        group.end.claim = Some(info);
        let (node, pending, deposed, clock) = (claim.node, None, None, clock.into());
        let owner =
            Self { group, before, node, pending, deposed, progress, held_from, lease, clock };
        Ok(Claimed::Owner(owner.into()))
    }

    /// Creates an owner that continues at the end of the log without a CLAIM, to test that rule.
    #[cfg(test)]
    fn without_claim(group: Group, node: Id) -> Self {
        let held_from = group.store.env.boottime();
        let (before, progress) = (group.end.clone(), Arc::default());
        let lease = Lease::new(Arc::clone(&group.store.env), None).into();
        let clock = Clock::starting_at(Arc::clone(&group.store.env), before.wall).into();
        let (pending, deposed) = (None, None);
        Self { group, before, node, pending, deposed, progress, held_from, lease, clock }
    }

    /// Returns the end of the log that the CLAIM follows.
    pub fn before(&self) -> &End {
        &self.before
    }

    /// Returns the group with the end that this process knows: the last committed record.
    pub fn group(&self) -> &Group {
        &self.group
    }

    /// Returns the state of the append in flight.
    pub fn progress(&self) -> &Arc<Progress> {
        &self.progress
    }

    /// Returns the lease, for the threads that send replies.
    pub fn lease(&self) -> Arc<Lease> {
        Arc::clone(&self.lease)
    }

    /// Returns the clock by which keys expire while this process is the owner.
    pub fn clock(&self) -> Arc<Clock> {
        Arc::clone(&self.clock)
    }

    /// Returns when to call [`Owner::renew`] if nothing is appended before: after a third of the lease, by
    /// [`crate::Env::boottime`]. `None`: never, since no process takes over this log automatically.
    pub fn renew_due(&self) -> Option<Duration> {
        let claim = self.group.end.claim.as_ref().filter(|claim| claim.takeover)?;
        Some(self.held_from + Duration::from_millis(claim.lease_ms) / 3)
    }

    /// Returns the end of the lease, by [`crate::Env::boottime`], counted from before the first attempt of the newest
    /// committed record.
    pub fn lease_until(&self) -> Duration {
        let lease = self.group.end.claim.as_ref().map_or(0, |claim| claim.lease_ms);
        self.held_from + Duration::from_millis(lease)
    }

    /// Appends batches of logical operations as one record, and returns when its outcome is known. Large payloads are
    /// uploaded as pieces first.
    ///
    /// This is retried while the store fails, however long that takes; [`Owner::progress`] says why. The future may be
    /// dropped at any time. Then the record may still be committed: call [`Owner::settle`] before relying on the end.
    ///
    /// # Errors
    ///
    /// [`Error::Deposed`] after an earlier [`Outcome::Deposed`]; [`Error::Damaged`] and [`Error::Newer`] if an invalid
    /// object lies under the next number; the store's errors for pieces. After any of them the record may still be in
    /// flight: [`Owner::settle`] finishes it, while another append of the same batches would store them in the log
    /// twice.
    pub async fn append(&mut self, batches: &[&[u8]]) -> Result<Outcome> {
        let payload = join_batches(batches)?;
        if let Some(deposed) = self.settled().await? {
            return Ok(deposed);
        }
        let nonce = self.group.store.nonce();
        let number = self.group.end.number + 1;
        // Before the pieces: the lease counts from here.
        let first_attempt = self.group.store.env.boottime();
        let (store, progress) = (&self.group.store, &self.progress);
        let (encoding, stored) = store_payload(store, number, nonce, &payload, progress).await?;
        let mut header = self.header(Kind::Batch, nonce);
        (header.encoding, header.len) = (encoding, payload.len() as u64);
        self.commit(header, &stored, None, first_attempt).await
    }

    /// Appends a RENEW: this process is alive, and has nothing to write.
    ///
    /// # Errors
    ///
    /// As for [`Owner::append`].
    pub async fn renew(&mut self) -> Result<Outcome> {
        self.append_small(Kind::Renew, &[], None).await
    }

    /// Appends a RELEASE: the next process may claim at once. No reply is sent from here on, so clients that wait for
    /// a commit must have been answered before.
    ///
    /// # Errors
    ///
    /// As for [`Owner::append`].
    pub async fn release(mut self) -> Result<Outcome> {
        self.put_release(None).await
    }

    pub(crate) async fn put_release(&mut self, successor: Option<&str>) -> Result<Outcome> {
        if let Some(deposed) = self.settled().await? {
            return Ok(deposed);
        }
        // First: once the RELEASE has landed, another process may claim before this one knows the outcome.
        if self.group.store.keeps(Rule::EndBeforeRelease) {
            self.lease.release();
        }
        let payload = ReleaseInfo { successor: successor.map(str::to_owned) };
        let outcome = self.append_small(Kind::Release, &payload.encode(), None).await?;
        self.group.end.successor = payload.successor;
        Ok(outcome)
    }

    /// Finishes an append whose future was dropped, or that has failed. `None`: there was none.
    ///
    /// # Errors
    ///
    /// As for [`Owner::append`].
    pub async fn settle(&mut self) -> Result<Option<Outcome>> {
        self.refuse_if_deposed()?;
        if !self.group.store.keeps(Rule::SettleFirst) {
            self.pending = None;
        }
        if self.pending.is_none() {
            return Ok(None);
        }
        self.land().await.map(Some)
    }

    /// Checks whether another process has claimed the log, for an owner that has nothing to append or must not append.
    /// `Some`: this process is deposed.
    ///
    /// # Errors
    ///
    /// As for [`Owner::append`], and the store's.
    pub async fn look(&mut self) -> Result<Option<Outcome>> {
        self.refuse_if_deposed()?;
        let (number, cluster) = (self.group.end.number + 1, self.group.end.cluster);
        let object = log_name(number);
        let Some(there) = self.group.store.get_once(&object).await? else { return Ok(None) };
        if self.pending.as_ref().is_some_and(|pending| pending.object == there) {
            return Ok(None);
        }
        let node = Record::decode(&there, number, Some(cluster))?.header.node;
        self.pending = None;
        self.lease.depose();
        self.deposed = Some((object.clone(), node));
        Ok(Some(Outcome::Deposed { object, node }))
    }

    pub(crate) async fn append_small(
        &mut self,
        kind: Kind,
        payload: &[u8],
        snapshot: Option<SnapshotInfo>,
    ) -> Result<Outcome> {
        if let Some(deposed) = self.settled().await? {
            return Ok(deposed);
        }
        let first_attempt = self.group.store.env.boottime();
        let mut header = self.header(kind, self.group.store.nonce());
        let (encoding, stored) = pack(payload);
        (header.encoding, header.len) = (encoding, payload.len() as u64);
        self.commit(header, &stored, snapshot, first_attempt).await
    }

    /// Finishes the append in flight. `Some`: this process turned out to be deposed.
    pub(crate) async fn settled(&mut self) -> Result<Option<Outcome>> {
        let outcome = self.settle().await?;
        Ok(outcome.filter(|outcome| matches!(outcome, Outcome::Deposed { .. })))
    }

    pub(crate) fn into_group(self) -> Group {
        self.group
    }

    pub(crate) fn refuse_if_deposed(&self) -> Result<()> {
        match &self.deposed {
            Some((object, node)) => Err(Error::Deposed { object: object.clone(), node: *node }),
            None => Ok(()),
        }
    }

    pub(crate) fn group_mut(&mut self) -> &mut Group {
        &mut self.group
    }

    /// Returns the wall clock of the next record.
    pub(crate) fn next_wall(&self) -> u64 {
        owners_wall(&self.group.store, &self.group.end, &self.clock)
    }

    /// Returns the header of the next record.
    fn header(&self, kind: Kind, nonce: Id) -> Header {
        let claim = self.group.end.claim.as_ref().map_or(0, |claim| claim.number);
        let (end, store) = (&self.group.end, &self.group.store);
        Header { kind, claim, ..next_header(end, store, &self.clock, self.node, nonce) }
    }

    async fn commit(
        &mut self,
        header: Header,
        stored: &[u8],
        snapshot: Option<SnapshotInfo>,
        first_attempt: Duration,
    ) -> Result<Outcome> {
        let object = header.encode(stored);
        self.pending = Some(Pending { header, object, snapshot, first_attempt });
        self.land().await
    }

    /// Appends the record in flight. If the future is dropped midway, the record is still in flight.
    async fn land(&mut self) -> Result<Outcome> {
        let Some(pending) = &mut self.pending else {
            return Err(Error::Invalid("no record is in flight".into()));
        };
        let Header { number, cluster, .. } = pending.header;
        let store = &self.group.store;
        let outcome =
            append(store, number, Some(cluster), &mut pending.object, &self.progress).await?;
        match (&outcome, self.pending.take()) {
            (Outcome::Committed(_), Some(pending)) => {
                self.group.end.advance(&pending.header, hash(&pending.object));
                self.held_from = match self.group.store.keeps(Rule::FirstAttempt) {
                    true => pending.first_attempt,
                    false => self.group.store.env.boottime(),
                };
                let claim = self.group.end.claim.as_ref();
                let lease = claim.map_or(0, |claim| claim.lease_ms);
                self.lease.extend(self.held_from + Duration::from_millis(lease));
                if pending.snapshot.is_some() {
                    self.group.end.snapshot = pending.snapshot;
                }
            }
            (Outcome::Deposed { object, node }, _) => {
                self.lease.depose();
                self.deposed = Some((object.clone(), *node));
            }
            _ => {}
        }
        Ok(outcome)
    }
}

/// Checks that the log may be claimed now. `known` is the claim that the caller's proof is about.
fn check_right(end: &End, claim: &Claim, known: Option<u64>) -> Result<()> {
    let Some(last) = end.claim.as_ref().filter(|_| !end.released) else { return Ok(()) };
    let allowed = match claim.right {
        Right::Orderly | Right::LeaseOver => false,
        Right::PredecessorDead => last.node == claim.node && Some(last.number) == known,
        Right::Force => true,
    };
    if allowed { Ok(()) } else { Err(owned(end, last.node)) }
}

/// Returns the error that the log of another process cannot be claimed now. `node` is known even if its CLAIM has not
/// been read.
pub(crate) fn owned(end: &End, node: Id) -> Error {
    let claim = end.claim.as_ref().filter(|claim| claim.node == node);
    Error::Owned {
        node,
        address: claim.map_or_else(String::new, |claim| claim.address.clone()),
        claim: claim.map_or(end.number + 1, |claim| claim.number),
        wall: claim.map_or(end.wall, |claim| claim.wall),
    }
}

/// Waits until the log may be claimed because it was released or its lease is over, and watches for new records. The
/// newest known record was first seen at `seen_at`.
async fn wait_for_lease(group: &mut Group, claim: &Claim, mut seen_at: Duration) -> Result<()> {
    let store = group.store.clone();
    let mut away_since = None;
    loop {
        let Some(free_at) = free_at(&store, &group.end, seen_at, &claim.address) else {
            return Err(owned(&group.end, group.end.claim.as_ref().map_or([0; 16], |c| c.node)));
        };
        let now = store.env.boottime();
        let left = free_at.saturating_sub(now);
        if left.is_zero() && away_since.is_none() {
            return Ok(());
        }
        let poll = store.tuning.poll;
        sleep(if left.is_zero() { poll } else { left.min(poll) }).await;
        match store.exists_once(&log_name(group.end.number + 1)).await {
            Ok(is_there) => {
                let away =
                    away_since.take().map(|since| store.env.boottime().saturating_sub(since));
                let fence = free_at.saturating_sub(seen_at);
                if is_there {
                    group.catch_up().await?;
                }
                if is_there || away.is_some_and(|away| is_outage(away, Some(fence))) {
                    seen_at = store.env.boottime();
                }
            }
            Err(error) if error.is_lasting() => return Err(error),
            Err(error) => {
                let since = *away_since.get_or_insert(now);
                if now.saturating_sub(since) > store.tuning.patience {
                    return Err(error);
                }
            }
        }
    }
}

/// Returns true if the store was unavailable for so long that an owner may have missed a renewal, which is due after
/// each third of a lease. The owner may still be alive, and gets another fence to show that.
pub(crate) fn is_outage(away: Duration, fence: Option<Duration>) -> bool {
    fence.is_some_and(|fence| away >= fence / 4)
}

/// Returns the time from which the process with this address may claim a log whose newest record was first seen at
/// `seen_at`. `None`: never automatically.
pub(crate) fn free_at(
    store: &Store,
    end: &End,
    seen_at: Duration,
    address: &str,
) -> Option<Duration> {
    let Some(claim) = &end.claim else { return Some(Duration::ZERO) };
    if !end.released {
        return lease_over_at(store, claim, seen_at);
    }
    match &end.successor {
        Some(successor) if successor != address => {
            Some(seen_at + Duration::from_millis(claim.margin_ms))
        }
        _ => Some(Duration::ZERO),
    }
}

/// Returns when the lease of a claim is over for all others, if no further record comes. `None`: never.
pub(crate) fn lease_over_at(
    store: &Store,
    claim: &ClaimInfo,
    seen_at: Duration,
) -> Option<Duration> {
    let wait = if store.keeps(Rule::Margin) { claim.fence_ms } else { claim.lease_ms };
    let may = claim.takeover || !store.keeps(Rule::TakeoverAsked);
    may.then(|| seen_at + Duration::from_millis(wait))
}

/// Returns the wall clock of the record after `end`. Times in the log never go back, even if a machine's clock does.
pub(crate) fn next_wall(store: &Store, end: &End) -> u64 {
    match store.keeps(Rule::WallNeverBack) {
        true => store.env.wall().max(end.wall),
        false => store.env.wall(),
    }
}

/// Returns the wall clock of the record after `end`, by an owner's clock.
fn owners_wall(store: &Store, end: &End, clock: &Clock) -> u64 {
    if store.keeps(Rule::WallNeverBack) { clock.now().max(end.wall) } else { store.env.wall() }
}

/// Returns the header of the record after `end`, as a RENEW.
fn next_header(end: &End, store: &Store, clock: &Clock, node: Id, nonce: Id) -> Header {
    Header {
        kind: Kind::Renew,
        encoding: Encoding::Plain,
        cluster: end.cluster,
        number: end.number + 1,
        epoch: end.epoch,
        node,
        nonce,
        wall: owners_wall(store, end, clock),
        claim: end.claim.as_ref().map_or(0, |claim| claim.number),
        snapshot: end.snapshot.as_ref().map_or(0, |snapshot| snapshot.record),
        before: end.hash,
        len: 0,
    }
}

/// Returns the longest lease and margin, in milliseconds, that may still be in force when the log is claimed.
fn fence_left(end: &End, last: &ClaimInfo, right: Right) -> u64 {
    let own = last.lease_ms.saturating_add(last.margin_ms);
    let is_over = match right {
        // The owner said so, and had waited for all others.
        _ if end.released => last.fence_ms <= own,
        Right::Force | Right::PredecessorDead => false,
        Right::Orderly | Right::LeaseOver => true,
    };
    if is_over { 0 } else { last.fence_ms }
}

/// Returns the header of a CLAIM after `end`, and its payload.
fn claim_header(
    end: &End,
    claim: &Claim,
    nonce: Id,
    store: &Store,
    clock: &Clock,
) -> (Header, ClaimInfo) {
    let mut header = next_header(end, store, clock, claim.node, nonce);
    header.kind = Kind::Claim;
    header.epoch = end.epoch + 1;
    if end.number == 0 {
        header.cluster = store.nonce();
    }
    let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let (lease_ms, margin_ms) = (millis(claim.lease), millis(claim.margin));
    let before = end.claim.as_ref().map_or(0, |last| fence_left(end, last, claim.right));
    let info = ClaimInfo {
        number: header.number,
        epoch: header.epoch,
        node: claim.node,
        nonce,
        address: claim.address.clone(),
        takeover: claim.takeover,
        lease_ms,
        margin_ms,
        fence_ms: before.max(lease_ms.saturating_add(margin_ms)),
        wall: header.wall,
    };
    header.len = info.encode().len() as u64;
    (header, info)
}
