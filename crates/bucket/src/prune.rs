//! Deletes what the retention no longer needs, and never reopens a number for a deposed process.
//!
//! The order is: the floor, which tells readers that a missing object below it means nothing; then the list of pins,
//! which a restore puts before it reads the floor; then, in a second step after any lease and its margin, the
//! deletion. CLAIMs stay: the next number of a deposed process is that of the CLAIM which deposed it, and must never
//! become free again.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::body::SnapshotInfo;
use crate::error::{Error, Result};
use crate::group::{Group, floor_name, number_in, read_claim, read_floor, read_snapshot};
use crate::owner::{Owner, next_wall};
use crate::pin::Pin;
use crate::rules::Rule;

/// Amount of history to keep.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Retention {
    /// Every moment of this period can be restored. Zero: the newest snapshot and the records after it.
    pub keep: Duration,
}

/// The second step of pruning: see [`Group::delete`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deletion {
    /// The new floor: records below it can no longer be restored.
    pub floor: u64,
    /// Records below this are deleted: the floor, or the lowest pin.
    pub below: u64,
    /// Earliest time of the deletion, by [`crate::Env::boottime`].
    pub not_before: Duration,
}

impl Owner {
    /// As [`Group::prune`], for the log that this process owns.
    ///
    /// # Errors
    ///
    /// [`Error::Deposed`] after an earlier [`crate::Outcome::Deposed`]; else as there.
    pub async fn prune(&mut self, retention: Retention) -> Result<Option<Deletion>> {
        self.refuse_if_deposed()?;
        self.group_mut().prune(retention).await
    }

    /// Notes a floor that was set by pruning a clone of this log's [`Group`].
    pub fn note_floor(&mut self, floor: u64) {
        let end = &mut self.group_mut().end;
        end.floor = end.floor.max(floor);
    }

    /// As [`Group::delete`], for the log that this process owns.
    ///
    /// # Errors
    ///
    /// [`Error::Deposed`] after an earlier [`crate::Outcome::Deposed`]; else as there.
    pub async fn delete(&self, deletion: &Deletion) -> Result<u64> {
        self.refuse_if_deposed()?;
        self.group().delete(deletion).await
    }
}

/// A process that prunes need not own the log: only committed records decide what is deleted.
impl Group {
    /// Runs the first step: finds the newest snapshot that is as old as the retention, sets the floor after it, and
    /// then lists the pins. `None`: there is nothing to prune.
    ///
    /// # Errors
    ///
    /// The store's, and those of damaged records.
    pub async fn prune(&mut self, retention: Retention) -> Result<Option<Deletion>> {
        let snapshot = match self.oldest_needed(retention).await {
            Err(error @ Error::Missing { .. }) => {
                // A deposed owner may prune for a while, and this process may be deposed without knowing it.
                let floor = read_floor(&self.store).await?;
                if floor <= self.end.floor {
                    return Err(error);
                }
                None
            }
            found => found?,
        };
        let Some(snapshot) = snapshot else { return Ok(None) };
        let floor = snapshot.position + 1;
        if floor < self.end.floor {
            return Ok(None);
        }
        let store = self.store.clone();
        let too_early = match store.keeps(Rule::FloorBeforePins) {
            true => None,
            false => Some(Pin::list(&store).await?),
        };
        store.ensure(&floor_name(floor), Default::default()).await?;
        self.end.floor = floor;
        let now = next_wall(&store, &self.end);
        let pins = match too_early {
            Some(pins) => pins,
            None => Pin::list(&store).await?,
        };
        let holding = pins.iter().filter(|pin| pin.holds(now));
        let mut below = holding.map(|pin| pin.number).fold(floor, u64::min);
        if !store.keeps(Rule::PinsHold) {
            below = floor;
        }
        let mut fence = self.end.claim.as_ref().map_or(0, |claim| claim.fence_ms);
        if !store.keeps(Rule::DeleteLater) {
            fence = 0;
        }
        let not_before = store.env.boottime() + Duration::from_millis(fence);
        Ok(Some(Deletion { floor, below, not_before }))
    }

    /// Finds the newest snapshot that is at least as old as the retention.
    async fn oldest_needed(&self, retention: Retention) -> Result<Option<SnapshotInfo>> {
        let (store, end) = (&self.store, &self.end);
        let keep = u64::try_from(retention.keep.as_millis()).unwrap_or(u64::MAX);
        let since = next_wall(store, end).saturating_sub(keep);
        let mut snapshot = end.snapshot.clone();
        while let Some(found) = &snapshot {
            if found.wall <= since {
                break;
            }
            let record = self.peek(found.record).await?;
            if record.header.snapshot < end.floor {
                return Ok(None);
            }
            snapshot = read_snapshot(store, &record.header).await?;
        }
        Ok(snapshot)
    }

    /// Runs the second step: deletes records, pieces and snapshots below the floor and all pins. Returns the number of
    /// objects.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if it is too early; else as for [`Group::prune`].
    pub async fn delete(&self, deletion: &Deletion) -> Result<u64> {
        let store = &self.store;
        if store.env.boottime() < deletion.not_before {
            return Err(Error::Invalid("what was pruned is deleted later than a lease".into()));
        }
        let claims = match store.keeps(Rule::ClaimsStay) {
            true => self.claims_below(deletion.below).await?,
            false => self.end.claim.iter().map(|claim| claim.number).collect(),
        };
        let until = format!("{:020}", deletion.below);
        // A snapshot at `below - 1` is the one directly before `below`.
        let snapshots_until = format!("{:020}", deletion.below - 1);
        // The previous floor is deleted only now: a list that is read during a put and a delete must show one of the
        // two floors.
        let floors_until = format!("{:020}", deletion.floor);
        let mut names = Vec::new();
        for (folder, until) in [
            ("log", &until),
            ("blob", &until),
            ("snapshot", &snapshots_until),
            ("floor", &floors_until),
        ] {
            let listed = store.list(folder, Some(until)).await?;
            names.extend(listed.into_iter().map(|listed| listed.name));
        }
        names.retain(|name| {
            !(name.starts_with("log/")
                && number_in(name).is_none_or(|number| claims.contains(&number)))
        });
        for names in names.chunks(1000) {
            store.delete(names).await?;
        }
        // Restores that crashed have left their pins.
        let now = next_wall(store, &self.end);
        for pin in Pin::list(store).await?.iter().filter(|pin| !pin.holds(now)) {
            pin.remove(store).await?;
        }
        Ok(names.len() as u64)
    }

    /// Returns the numbers of all CLAIMs below a record: each names the one before.
    async fn claims_below(&self, below: u64) -> Result<BTreeSet<u64>> {
        let mut claims = BTreeSet::new();
        let mut next = self.end.claim.clone();
        while let Some(claim) = next {
            if claim.number < below {
                claims.insert(claim.number);
            }
            let record = self.peek(claim.number).await?;
            next = read_claim(&self.store, &record.header).await?;
        }
        Ok(claims)
    }
}
