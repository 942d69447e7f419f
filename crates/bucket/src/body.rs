//! Payloads of all records but batches, and the framing of batches.

use bytes::Bytes;

use crate::error::{Error, Result};
use crate::fields::{Reader, Writer};
use crate::record::{Hash, Header, Id, Kind, log_name};
use crate::store::WHOLE_LIMIT;

/// A CLAIM: the process that may write from here on, and its lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimInfo {
    /// Its number in the log.
    pub number: u64,
    /// Count of claims up to this one; the first is 1.
    pub epoch: u64,
    /// The node that claimed.
    pub node: Id,
    /// Nonce of its record, which tells the attempts of that node apart.
    pub nonce: Id,
    /// Address that the node gives for itself, such as `host:port`.
    pub address: String,
    /// True if another process may take over when the lease is over.
    pub takeover: bool,
    /// Milliseconds for which each append holds the log.
    pub lease_ms: u64,
    /// Milliseconds that others wait beyond the lease.
    pub margin_ms: u64,
    /// The longest lease and margin of this claim and of earlier claims that may still be in force. Others wait this
    /// long before they take over, and pruning waits this long before it deletes.
    pub fence_ms: u64,
    /// Wall clock of the CLAIM.
    pub wall: u64,
}

impl ClaimInfo {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Writer::default();
        out.u8(u8::from(self.takeover));
        out.u64(self.lease_ms);
        out.u64(self.margin_ms);
        out.u64(self.fence_ms);
        out.counted(self.address.as_bytes());
        out.finish()
    }

    pub(crate) fn decode(header: &Header, payload: &[u8]) -> Result<Self> {
        let mut fields = Reader::new(payload);
        let mut read = || {
            let takeover = fields.u8()? != 0;
            let claim = Self {
                number: header.number,
                epoch: header.epoch,
                node: header.node,
                nonce: header.nonce,
                takeover,
                lease_ms: fields.u64()?,
                margin_ms: fields.u64()?,
                fence_ms: fields.u64()?,
                address: fields.text()?,
                wall: header.wall,
            };
            fields.is_done().then_some(claim)
        };
        read().ok_or_else(|| nonsense(header, "CLAIM"))
    }
}

/// A RELEASE: the owner has stopped.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ReleaseInfo {
    /// Address of the process that is to claim next. All others wait for a margin first.
    pub successor: Option<String>,
}

impl ReleaseInfo {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Writer::default();
        if let Some(successor) = &self.successor {
            out.counted(successor.as_bytes());
        }
        out.finish()
    }

    pub(crate) fn decode(header: &Header, payload: &[u8]) -> Result<Self> {
        let mut fields = Reader::new(payload);
        if fields.is_done() {
            return Ok(Self::default());
        }
        let successor = fields.text().filter(|_| fields.is_done());
        let successor = successor.ok_or_else(|| nonsense(header, "RELEASE"))?;
        Ok(Self { successor: Some(successor) })
    }
}

/// A SNAPSHOT record: the state after all records up to `position`, stored in objects of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotInfo {
    /// The number of the SNAPSHOT record.
    pub record: u64,
    /// The last record that the snapshot contains.
    pub position: u64,
    /// The hash of that record's object.
    pub position_hash: Hash,
    /// Part of the names of its objects.
    pub nonce: Id,
    /// The hash of its manifest.
    pub manifest: Hash,
    /// Number of parts.
    pub parts: u64,
    /// Stored bytes of the parts.
    pub stored: u64,
    /// Bytes of the parts before compression.
    pub len: u64,
    /// The wall clock of the SNAPSHOT record.
    pub wall: u64,
}

impl SnapshotInfo {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Writer::default();
        out.u64(self.position);
        out.bytes(&self.position_hash);
        out.bytes(&self.nonce);
        out.bytes(&self.manifest);
        out.u64(self.parts);
        out.u64(self.stored);
        out.u64(self.len);
        out.finish()
    }

    pub(crate) fn decode(header: &Header, payload: &[u8]) -> Result<Self> {
        let mut fields = Reader::new(payload);
        let mut read = || {
            let snapshot = Self {
                record: header.number,
                position: fields.u64()?,
                position_hash: fields.array()?,
                nonce: fields.array()?,
                manifest: fields.array()?,
                parts: fields.u64()?,
                stored: fields.u64()?,
                len: fields.u64()?,
                wall: header.wall,
            };
            let is_possible = snapshot.position < header.number
                && snapshot.parts.checked_mul(WHOLE_LIMIT as u64) >= Some(snapshot.len);
            (fields.is_done() && is_possible).then_some(snapshot)
        };
        read().ok_or_else(|| nonsense(header, "SNAPSHOT"))
    }
}

/// A BRANCH record: the log that this log continues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BranchInfo {
    /// Location of the parent, as for `--bucket`.
    pub parent: String,
    /// The parent's cluster id.
    pub cluster: Id,
    /// Last record of the parent that belongs to this log.
    pub position: u64,
    /// The hash of that record's object.
    pub hash: Hash,
    /// Name of the pin in the parent that protects the records this branch needs.
    pub pin: String,
}

impl BranchInfo {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Writer::default();
        out.counted(self.parent.as_bytes());
        out.bytes(&self.cluster);
        out.u64(self.position);
        out.bytes(&self.hash);
        out.counted(self.pin.as_bytes());
        out.finish()
    }

    pub(crate) fn decode(header: &Header, payload: &[u8]) -> Result<Self> {
        let mut fields = Reader::new(payload);
        let mut read = || {
            let branch = Self {
                parent: fields.text()?,
                cluster: fields.array()?,
                position: fields.u64()?,
                hash: fields.array()?,
                pin: fields.text()?,
            };
            fields.is_done().then_some(branch)
        };
        read().ok_or_else(|| nonsense(header, "BRANCH"))
    }
}

/// Joins batches, each with its length in four bytes before it.
pub(crate) fn join_batches(batches: &[&[u8]]) -> Result<Vec<u8>> {
    if batches.iter().any(|batch| u32::try_from(batch.len()).is_err()) {
        return Err(Error::Invalid("a batch of 4 GiB or more does not fit into the bucket".into()));
    }
    let mut out = Writer::with_capacity(batches.iter().map(|batch| batch.len() + 4).sum());
    batches.iter().for_each(|batch| out.counted(batch));
    Ok(out.finish())
}

/// Splits the payload of a BATCH record into its batches.
pub(crate) fn split_batches(number: u64, payload: &Bytes) -> Result<Vec<Bytes>> {
    let mut fields = Reader::new(payload);
    let mut batches = Vec::new();
    while !fields.is_done() {
        let Some(batch) = fields.counted() else {
            return Err(Error::damaged(log_name(number), "a batch is longer than its record"));
        };
        batches.push(payload.slice_ref(batch));
    }
    Ok(batches)
}

fn nonsense(header: &Header, what: &str) -> Error {
    debug_assert_ne!(header.kind, Kind::Batch);
    Error::damaged(log_name(header.number), format!("its {what} makes no sense"))
}
