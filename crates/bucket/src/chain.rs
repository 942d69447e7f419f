//! The rules that tie a record to the one before it. Restores and `verify` go through all records with one [`Chain`].

use bytes::Bytes;

use crate::body::{ClaimInfo, ReleaseInfo, SnapshotInfo};
use crate::error::{Error, Result};
use crate::record::{Hash, Header, Id, Kind, Record, log_name};

/// State after a record, which the next record must match.
#[derive(Debug, Clone)]
pub(crate) struct Chain {
    pub cluster: Id,
    /// The last record's number.
    pub number: u64,
    /// Hash of the last object. `None`: it was pruned.
    pub hash: Option<Hash>,
    /// `None` until the first record has been read, since the records before it were pruned.
    in_force: Option<InForce>,
}

/// State that a record inherits from the records before it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct InForce {
    epoch: u64,
    claim: u64,
    /// `None`: the CLAIM was pruned, and the first record says whose it is.
    node: Option<Id>,
    snapshot: u64,
    wall: u64,
    released: bool,
}

impl Chain {
    /// Returns the chain after the record `number`. Its hash may be unknown.
    pub(crate) fn after(cluster: Id, number: u64, hash: Option<Hash>) -> Self {
        let in_force = (number == 0).then_some(InForce {
            epoch: 0,
            claim: 0,
            node: None,
            snapshot: 0,
            wall: 0,
            released: true,
        });
        Self { cluster, number, hash, in_force }
    }

    /// Takes the next record, if it is allowed to follow.
    pub(crate) fn follow(&mut self, record: &Record, payload: &Bytes) -> Result<()> {
        let header = &record.header;
        let damaged = |reason: &str| Err(Error::damaged(log_name(header.number), reason));
        if header.number != self.number + 1 {
            return damaged("it does not follow the record before");
        }
        if header.cluster != self.cluster {
            return damaged("it belongs to another log");
        }
        if self.hash.is_some_and(|hash| hash != header.before) {
            return damaged("the object before it is not the one it was written behind");
        }
        if let Some(reason) = self.in_force.as_ref().and_then(|now| now.objection(header)) {
            return damaged(reason);
        }
        match header.kind {
            Kind::Claim => ClaimInfo::decode(header, payload).map(drop)?,
            Kind::Release => ReleaseInfo::decode(header, payload).map(drop)?,
            Kind::Snapshot => SnapshotInfo::decode(header, payload).map(|_| ())?,
            _ => {}
        }
        self.number = header.number;
        self.hash = Some(record.hash);
        self.in_force = Some(InForce::after(header));
        Ok(())
    }
}

impl InForce {
    /// Returns why a record must not follow, or `None` if it may.
    fn objection(&self, header: &Header) -> Option<&'static str> {
        if header.claim != self.claim || header.snapshot != self.snapshot {
            return Some("it refers to another CLAIM or SNAPSHOT than the one in force");
        }
        if header.wall < self.wall {
            return Some("its time is before that of the record before");
        }
        if header.kind == Kind::Claim {
            return (header.epoch != self.epoch + 1).then_some("its epoch is not the next one");
        }
        if header.kind == Kind::Branch {
            return (header.number != 1 || header.epoch != 0)
                .then_some("a branch begins with its first record only");
        }
        if header.epoch != self.epoch || self.node.is_some_and(|node| node != header.node) {
            return Some("it is of a process that had not claimed the log");
        }
        self.released.then_some("it follows a RELEASE without a CLAIM")
    }

    fn after(header: &Header) -> Self {
        let number = header.number;
        Self {
            epoch: header.epoch,
            claim: if header.kind == Kind::Claim { number } else { header.claim },
            node: Some(header.node),
            snapshot: if header.kind == Kind::Snapshot { number } else { header.snapshot },
            wall: header.wall,
            released: matches!(header.kind, Kind::Release | Kind::Branch),
        }
    }
}
