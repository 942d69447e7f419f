//! A process that reads a log continuously, and takes over when the owner has stopped.
//!
//! Invariants:
//! - A follower returns every record up to [`Follower::end`], once, in order.
//! - Its CLAIM lies directly after the records it has returned: if the log went on meanwhile, there is no CLAIM.
//! - The lease of the owner is counted from the receipt of the response that first showed the newest record. The owner
//!   counts from before its first attempt, which was earlier. While the store is unreachable, the owner cannot renew
//!   the lease, so after an outage it is counted anew.
//!
//! A missing next record means either the end of the log or pruning. Only the floor tells which. Reading the floor
//! takes a list request, so it is read only at intervals, and always before and after a CLAIM. In between, an
//! overtaken follower wrongly believes that it is at the end, which does no harm. A CLAIM in a pruned gap does no harm
//! either: its writer then finds the floor above it, and appends nothing after it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use tokio::time::{Instant, sleep};

use crate::append::{Outcome, Progress, Trouble};
use crate::body::{ClaimInfo, SnapshotInfo, split_batches};
use crate::chain::Chain;
use crate::error::{Error, Result};
use crate::group::{End, Group, describe, read_floor};
use crate::owner::{Claim, Claimed, Owner, Right, free_at, is_outage, lease_over_at, owned};
use crate::payload::load_payload;
use crate::pin::{Pin, remove_pins};
use crate::record::{Hash, Kind, Record, log_name};
use crate::restore::Restore;
#[cfg(test)]
use crate::rules::Rule;
use crate::snapshot::Manifest;
use crate::store::Store;

/// An event that a follower returns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Followed {
    /// The batches of one record.
    Batches {
        /// The record's number.
        number: u64,
        /// Its wall clock, in milliseconds since 1970.
        wall: u64,
        /// The batches, as they were given to [`Owner::append`].
        batches: Vec<Bytes>,
    },
    /// Another process owns the log from here on.
    Claimed(ClaimInfo),
    /// A snapshot is valid from here on. It may contain data that no earlier batch has: only its description tells.
    Snapshot {
        /// The last record that it contains.
        position: u64,
        /// Description that the owner passed to [`crate::SnapshotUpload::finish`].
        description: Bytes,
    },
    /// The owner has stopped in an orderly way.
    Released,
    /// The owner is alive: a record that changes no data.
    Alive,
    /// Nothing new arrived within the waiting time.
    Quiet,
}

/// A reader of a log that continues at its end.
pub struct Follower {
    group: Group,
    chain: Chain,
    /// Protect what a restore has not read yet.
    pins: Vec<(Store, Pin)>,
    /// Objects after the end that were read ahead, with the time of their receipt.
    ahead: VecDeque<(Bytes, Duration)>,
    /// Number of objects in the next request.
    ask: usize,
    /// Time at which the response arrived that first showed the newest record, or the first one after an outage.
    seen_at: Duration,
    /// Time at which the floor was last read after a record was missing.
    floor_at: Option<Duration>,
    trouble: Option<Trouble>,
    claiming: Arc<Progress>,
}

impl Follower {
    /// Continues after a restore that has returned everything. Its pins are removed once the end is reached.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if the restore is not complete; [`Error::Overtaken`] if the log was pruned past this
    /// position, which a pin prevents; else the store's.
    pub async fn after(restore: Restore) -> Result<Self> {
        let end = restore.into_end()?;
        let mut pins = end.pins;
        match Self::at(&end.store, end.position, end.hash).await {
            Ok(follower) => Ok(Self { pins, ..follower }),
            Err(error) => {
                // Pins that could not be removed expire after a day.
                let _ = remove_pins(&mut pins).await;
                Err(error)
            }
        }
    }

    /// Continues after the record `number`, whose object has this hash: for a process that has the data up to there.
    /// Number 0 is the beginning of a log that is empty or has all of its records.
    ///
    /// # Errors
    ///
    /// [`Error::Overtaken`] if the record was pruned, [`Error::History`] if the log has a different record or none
    /// under this number; else the store's.
    pub async fn at(store: &Store, number: u64, hash: Hash) -> Result<Self> {
        let floor = read_floor(store).await?;
        let end = match describe(store, number, floor).await {
            Ok(Some(end)) => end,
            Ok(None) => {
                return Err(Error::Overtaken { position: number, floor: read_floor(store).await? });
            }
            Err(Error::Missing { .. }) if floor > number => {
                return Err(Error::Overtaken { position: number, floor });
            }
            Err(Error::Missing { .. }) => {
                return Err(Error::History(format!("the log does not reach {number}")));
            }
            Err(error) => return Err(error),
        };
        if number > 0 && end.hash != hash {
            return Err(Error::History(format!("the log has another record {number}")));
        }
        Ok(Self::behind(Group { store: store.clone(), end }))
    }

    /// Continues after the end of a group, which was read before now.
    pub(crate) fn behind(group: Group) -> Self {
        let Group { store, end } = &group;
        let hash = if end.number == 0 { [0; 32] } else { end.hash };
        let (chain, seen_at) =
            (Chain::after(end.cluster, end.number, Some(hash)), store.env.boottime());
        Self {
            group,
            chain,
            pins: Vec::new(),
            ahead: VecDeque::new(),
            ask: 1,
            seen_at,
            floor_at: None,
            trouble: None,
            claiming: Arc::default(),
        }
    }

    /// Waits for the next record, at most for the given time. Transient failures are waited out as well, and are
    /// reported by [`Follower::trouble`]. The future may be dropped at any time.
    ///
    /// # Errors
    ///
    /// [`Error::Overtaken`], [`Error::Damaged`], [`Error::Missing`], [`Error::Newer`], and permanent failures of the
    /// store. After a failure of the store this may be called again.
    pub async fn next(&mut self, at_most: Duration) -> Result<Followed> {
        let start = Instant::now();
        loop {
            if self.ahead.is_empty() {
                let asked = self.ask().await;
                self.note(asked)?;
            }
            if let Some(followed) = self.follow_one().await? {
                return Ok(followed);
            }
            if self.is_floor_due() {
                let checked = self.check_floor().await;
                self.note(checked)?;
            }
            let left = at_most.saturating_sub(start.elapsed());
            if left.is_zero() {
                return Ok(Followed::Quiet);
            }
            sleep(left.min(self.group.store.tuning.poll)).await;
        }
    }

    /// Requests the next records, and more of them each time as long as they are there.
    async fn ask(&mut self) -> Result<()> {
        let store = &self.group.store;
        let from = self.group.end.number + 1;
        let names: Vec<_> = (from..from + self.ask as u64).map(log_name).collect();
        let objects = join_all(names.iter().map(|name| store.get_once(name))).await;
        let seen_at = store.env.boottime();
        let mut failure = None;
        for object in objects {
            match object {
                Ok(Some(object)) => self.ahead.push_back((object, seen_at)),
                Ok(None) => break,
                Err(error) => {
                    failure = Some(error);
                    break;
                }
            }
        }
        let all = self.ahead.len() == self.ask;
        self.ask = if all { (self.ask * 2).min(store.tuning.read_ahead) } else { 1 };
        match failure {
            Some(error) if self.ahead.is_empty() => Err(error),
            _ => Ok(()),
        }
    }

    /// Notes whether the store answers. Transient failures are no error.
    fn note(&mut self, outcome: Result<()>) -> Result<()> {
        match outcome {
            Ok(()) => {
                let now = self.group.store.env.boottime();
                let since = self.trouble.take().map(|trouble| trouble.since);
                if since.is_some_and(|since| is_outage(now.saturating_sub(since), self.fence())) {
                    self.seen_at = now;
                }
            }
            Err(error) if error.is_lasting() => return Err(error),
            Err(error) => {
                let now = self.group.store.env.boottime();
                let (since, attempts) =
                    self.trouble.as_ref().map_or((now, 0), |t| (t.since, t.attempts));
                let error = error.to_string();
                self.trouble = Some(Trouble { since, attempts: attempts + 1, error });
            }
        }
        Ok(())
    }

    /// Takes the next record that was read ahead.
    async fn follow_one(&mut self) -> Result<Option<Followed>> {
        let Some((object, seen_at)) = self.ahead.front().cloned() else { return Ok(None) };
        match self.follow(&object).await {
            Ok(followed) => {
                self.ahead.pop_front();
                self.seen_at = seen_at;
                #[cfg(test)]
                if !self.group.store.keeps(Rule::FromReceipt) {
                    self.seen_at = self.written_at();
                }
                Ok(Some(followed))
            }
            // In a gap that pruning left, records do not match each other.
            Err(error @ (Error::Damaged { .. } | Error::Missing { .. })) => {
                self.ahead.clear();
                self.refuse_if_overtaken().await?;
                Err(error)
            }
            Err(error) => Err(error),
        }
    }

    /// Returns the time at which the newest record was written, if the clocks of all machines were right.
    #[cfg(test)]
    fn written_at(&self) -> Duration {
        let env = &self.group.store.env;
        let age = env.wall().saturating_sub(self.group.end.wall);
        env.boottime().saturating_sub(Duration::from_millis(age))
    }

    async fn follow(&mut self, object: &Bytes) -> Result<Followed> {
        let end = &self.group.end;
        let number = end.number + 1;
        let known_cluster = (end.number > 0).then_some(end.cluster);
        let record = Record::decode(object, number, known_cluster)?;
        let payload = load_payload(&self.group.store, &record).await?;
        let header = &record.header;
        if end.number == 0 {
            self.chain.cluster = header.cluster;
        }
        let batches = match header.kind {
            Kind::Batch => split_batches(number, &payload)?,
            _ => Vec::new(),
        };
        let snapshot = match header.kind {
            Kind::Snapshot => {
                let info = SnapshotInfo::decode(header, &payload)?;
                Some(Manifest::load(&self.group.store, &info, header.cluster).await?)
            }
            _ => None,
        };
        // There is no await from here to the end: if the future is dropped, the record is followed, or not.
        self.chain.follow(&record, &payload)?;
        self.group.end.take(&record, &payload)?;
        if let Some(Manifest { position, description, .. }) = snapshot {
            return Ok(Followed::Snapshot { position, description });
        }
        Ok(match (header.kind, &self.group.end.claim) {
            (Kind::Batch, _) => Followed::Batches { number, wall: header.wall, batches },
            (Kind::Release, _) => Followed::Released,
            (Kind::Claim, Some(claim)) => {
                // The record may lie in a gap.
                self.floor_at = None;
                Followed::Claimed(claim.clone())
            }
            _ => Followed::Alive,
        })
    }

    /// Returns true if it is time to check whether pruning has overtaken this follower.
    fn is_floor_due(&self) -> bool {
        let store = &self.group.store;
        let now = store.env.boottime();
        self.floor_at.is_none_or(|at| now.saturating_sub(at) >= store.tuning.floor_poll)
    }

    async fn check_floor(&mut self) -> Result<()> {
        let now = self.group.store.env.boottime();
        self.refuse_if_overtaken().await?;
        self.floor_at = Some(now);
        // At the end, the objects that a restore pinned are no longer needed.
        remove_pins(&mut self.pins).await
    }

    /// Fails if the next record was pruned. The record, and the floor after it, may also have appeared since the
    /// request.
    async fn refuse_if_overtaken(&mut self) -> Result<()> {
        let position = self.group.end.number;
        let store = self.group.store.impatient();
        let floor = read_floor(&store).await?;
        if floor > position + 1 && !store.exists(&log_name(position + 1)).await? {
            return Err(Error::Overtaken { position, floor });
        }
        self.group.end.floor = floor;
        Ok(())
    }

    /// Returns the last record that was returned, and the state in force there. Its claim names the owner.
    pub fn end(&self) -> &End {
        &self.group.end
    }

    /// Returns the store that is followed.
    pub fn store(&self) -> &Store {
        &self.group.store
    }

    /// Returns why nothing can be read, if so.
    pub fn trouble(&self) -> Option<&Trouble> {
        self.trouble.as_ref()
    }

    /// Returns the state of the CLAIM of [`Follower::take_over`], which is retried while the store fails.
    pub fn claiming(&self) -> &Arc<Progress> {
        &self.claiming
    }

    /// Returns the end of the owner's lease, by [`crate::Env::boottime`], if no further record is seen. `None`: there
    /// is no owner, or the owner does not allow automatic takeover.
    pub fn lease_over_at(&self) -> Option<Duration> {
        let end = &self.group.end;
        let claim = end.claim.as_ref().filter(|_| !end.released)?;
        lease_over_at(&self.group.store, claim, self.seen_at)
    }

    fn fence(&self) -> Option<Duration> {
        Some(self.lease_over_at()?.saturating_sub(self.seen_at))
    }

    /// Returns the time from which a process with this address may take over, by [`crate::Env::boottime`]: at once if
    /// the log is empty or was released, a margin later if it was handed to another process, else when the lease is
    /// over. `None`: never automatically.
    pub fn free_at(&self, address: &str) -> Option<Duration> {
        free_at(&self.group.store, &self.group.end, self.seen_at, address)
    }

    /// Claims the log directly after the records that were returned, which must all have been applied. The CLAIM is
    /// retried while the store fails. If the future is dropped, the CLAIM may still land, and its lease must then
    /// expire like any other.
    ///
    /// [`Right::Force`] does not wait for [`Follower::free_at`], nor does [`Right::PredecessorDead`] if the last CLAIM
    /// is of the same node; all other rights do.
    ///
    /// # Errors
    ///
    /// [`Error::Owned`] if it is too early, or if the log went on: then call [`Follower::next`] first, which still
    /// returns the new records. [`Error::Overtaken`] if the log was pruned past this position. Else the store's.
    pub async fn take_over(&mut self, claim: Claim) -> Result<Owner> {
        let end = &self.group.end;
        let last = end.claim.as_ref().map_or([0; 16], |claim| claim.node);
        let now = self.group.store.env.boottime();
        let is_free = self.free_at(&claim.address).is_some_and(|free_at| free_at <= now);
        let may = match claim.right {
            Right::Force => true,
            Right::PredecessorDead => is_free || !end.released && last == claim.node,
            Right::Orderly | Right::LeaseOver => is_free,
        };
        if !self.ahead.is_empty() || !may {
            return Err(owned(end, last));
        }
        self.refuse_if_overtaken().await?;
        if self.group.end.floor > self.group.end.number + 1 {
            return Err(owned(&self.group.end, last));
        }
        #[cfg(test)]
        if !self.group.store.keeps(Rule::FollowFirst) && self.group.end.number > 0 {
            self.group.catch_up().await?;
        }
        let (nonce, claiming) = (self.group.store.nonce(), Arc::clone(&self.claiming));
        match Owner::put_claim(&self.group, &claim, nonce, claiming).await? {
            Claimed::Owner(owner) => Ok(*owner),
            Claimed::Beaten { node } => Err(owned(&self.group.end, node)),
            Claimed::InGap => {
                let (position, floor) =
                    (self.group.end.number, read_floor(&self.group.store).await?);
                Err(Error::Overtaken { position, floor })
            }
        }
    }
}

impl Owner {
    /// Releases the log like [`Owner::release`], to hand it over: `successor`, the address of another process'
    /// [`Claim`], may claim first, and others wait for a margin. This process goes on as a follower.
    ///
    /// # Errors
    ///
    /// [`Error::Deposed`] if another has claimed already; else as for [`Owner::append`].
    pub async fn hand_over(mut self, successor: Option<&str>) -> Result<Follower> {
        match self.put_release(successor).await? {
            Outcome::Committed(_) => Ok(Follower::behind(self.into_group())),
            Outcome::Deposed { object, node } => Err(Error::Deposed { object, node }),
        }
    }
}
