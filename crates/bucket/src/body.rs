//! Payloads of the records that are not batches, and the framing of batches.

use bytes::Bytes;

use crate::error::{Error, Result};
use crate::fields::{Reader, Writer};
use crate::record::{Hash, Header, Id, Kind, log_name};
use crate::store::WHOLE_LIMIT;

/// A CLAIM: who may write from here on, and under which lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimInfo {
    /// Its number in the log.
    pub number: u64,
    /// Which claim it is; the first is 1.
    pub epoch: u64,
    /// The node that claimed.
    pub node: Id,
    /// The nonce of its record: which of the attempts of that node it was.
    pub nonce: Id,
    /// What that node calls itself, such as `host:port`.
    pub address: String,
    /// Whether another may take over when the lease is over.
    pub takeover: bool,
    /// Milliseconds for which each append holds the log.
    pub lease_ms: u64,
    /// Milliseconds that others wait beyond the lease.
    pub margin_ms: u64,
    /// The longest lease and margin of this claim and of earlier ones that may still be in force. Others wait for so
    /// long before they take over, and so does pruning before it deletes.
    pub fence_ms: u64,
    /// Its wall clock.
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

/// A RELEASE: the owner has gone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ReleaseInfo {
    /// Who is to claim next: the address of its CLAIM. Others wait for a margin first.
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

/// A SNAPSHOT record: the state after all records up to `position`, as objects of their own.
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
    /// How many parts there are.
    pub parts: u64,
    /// Bytes of the parts as they are stored.
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

/// A BRANCH record: what this log continues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BranchInfo {
    /// The parent's location, as for `--bucket`.
    pub parent: String,
    /// The parent's cluster id.
    pub cluster: Id,
    /// The last of the parent's records that belongs to this log.
    pub position: u64,
    /// The hash of that record's object.
    pub hash: Hash,
    /// The pin in the parent that keeps what is needed.
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

/// Batches one after the other, each with its length in four bytes.
pub(crate) fn join_batches(batches: &[&[u8]]) -> Result<Vec<u8>> {
    if batches.iter().any(|batch| u32::try_from(batch.len()).is_err()) {
        return Err(Error::Invalid("a batch of 4 GiB or more does not fit into the bucket".into()));
    }
    let mut out = Writer::with_capacity(batches.iter().map(|batch| batch.len() + 4).sum());
    batches.iter().for_each(|batch| out.counted(batch));
    Ok(out.finish())
}

/// The batches of a BATCH record.
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
