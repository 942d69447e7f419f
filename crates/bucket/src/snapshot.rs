//! Snapshots: uploaded next to the log, and valid only once a SNAPSHOT record in the log says so.
//!
//! The record names a position that was committed when the upload began, the hash of the record there, and the hash of
//! the manifest, which has the hashes of the parts. An upload whose owner was deposed gets no record, and never
//! becomes valid.

use std::collections::VecDeque;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, stream::FuturesOrdered};

use crate::append::Outcome;
use crate::body::SnapshotInfo;
use crate::error::{Error, Result};
use crate::fields::{Reader, Writer, hex};
use crate::group::Group;
use crate::owner::Owner;
use crate::payload::{Piece, pack};
use crate::record::{Hash, Id, Kind, VERSION, hash};
use crate::store::Store;

const MAGIC: [u8; 8] = *b"TIERCEBM";

/// Parts in flight at once.
const PARTS_AT_ONCE: usize = 4;

/// A snapshot that is being uploaded, concurrently with appends.
pub struct SnapshotUpload {
    store: Store,
    cluster: Id,
    position: u64,
    position_hash: Hash,
    nonce: Id,
    buffer: Vec<u8>,
    parts: Vec<Piece>,
    next_part: usize,
    uploads: FuturesOrdered<BoxFuture<'static, Result<Piece>>>,
    /// True if a call failed or was dropped, so that something may be missing.
    has_gap: bool,
}

/// A complete snapshot that is not valid yet: see [`Owner::snapshot`].
pub struct UploadedSnapshot(SnapshotInfo);

impl UploadedSnapshot {
    /// Returns the stored bytes of its parts.
    pub fn stored(&self) -> u64 {
        self.0.stored
    }
}

impl Owner {
    /// Begins the upload of a snapshot that holds the state after all records up to `position`.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if `position` is not committed or was pruned; else the store's errors.
    pub async fn begin_snapshot(&self, position: u64) -> Result<SnapshotUpload> {
        self.group().begin_snapshot(position).await
    }

    /// Makes an uploaded snapshot valid, by a SNAPSHOT record.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if a later snapshot is valid already, or the log was pruned up to one; else as for
    /// [`Owner::append`].
    pub async fn snapshot(&mut self, uploaded: UploadedSnapshot) -> Result<Outcome> {
        let mut info = uploaded.0;
        let payload = info.encode();
        // A pending append, finished first, takes the number that this record would have had.
        if let Some(deposed) = self.settled().await? {
            return Ok(deposed);
        }
        // Any process that prunes goes up to a valid snapshot, and may have deleted this one.
        let end = self.group().end();
        let newest = end.snapshot.as_ref().map_or(0, |newest| newest.position);
        if info.position < newest || info.position + 1 < end.floor {
            return Err(Error::Invalid(format!(
                "the snapshot at {} is of no use: there is one at {newest} already",
                info.position
            )));
        }
        info.record = self.group().end().number + 1;
        info.wall = self.next_wall();
        self.append_small(Kind::Snapshot, &payload, Some(info)).await
    }
}

impl Group {
    /// As [`Owner::begin_snapshot`], concurrently with the appends of the owner of this log.
    ///
    /// # Errors
    ///
    /// As there.
    pub async fn begin_snapshot(&self, position: u64) -> Result<SnapshotUpload> {
        let end = self.end();
        if position > end.number || position + 1 < end.floor || position == 0 {
            return Err(Error::Invalid(format!(
                "a snapshot at {position} is not within the log, which has {} to {}",
                end.floor, end.number
            )));
        }
        let position_hash = match position == end.number {
            true => end.hash,
            false => self.peek(position).await?.hash,
        };
        let store = self.store().clone();
        Ok(SnapshotUpload {
            cluster: end.cluster,
            position,
            position_hash,
            nonce: store.env.random(),
            store,
            buffer: Vec::new(),
            parts: Vec::new(),
            next_part: 0,
            uploads: FuturesOrdered::new(),
            has_gap: false,
        })
    }
}

impl SnapshotUpload {
    /// Adds the next bytes of the snapshot. Waits while too many parts are in flight.
    ///
    /// # Errors
    ///
    /// The store's: then the upload is useless, and pruning removes its objects. The same holds if the future is
    /// dropped midway. All later calls are refused.
    pub async fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.refuse_gap()?;
        self.has_gap = true;
        self.add(bytes).await?;
        self.has_gap = false;
        Ok(())
    }

    fn refuse_gap(&self) -> Result<()> {
        match self.has_gap {
            true => Err(Error::Invalid("a part of this snapshot is missing".into())),
            false => Ok(()),
        }
    }

    async fn add(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            // Never 0: a full buffer was uploaded.
            let room = self.store.tuning.part_len - self.buffer.len();
            let (now, later) = bytes.split_at(bytes.len().min(room));
            self.buffer.extend_from_slice(now);
            bytes = later;
            if self.buffer.len() == self.store.tuning.part_len {
                self.upload_part().await?;
            }
        }
        Ok(())
    }

    async fn upload_part(&mut self) -> Result<()> {
        while self.uploads.len() >= PARTS_AT_ONCE {
            self.finish_one().await?;
        }
        let part = std::mem::take(&mut self.buffer);
        let name = part_name(self.position, self.nonce, self.next_part);
        self.next_part += 1;
        let store = self.store.clone();
        let upload = async move {
            let (encoding, stored) = pack(&part);
            let piece = Piece {
                encoding,
                len: part.len() as u64,
                stored: stored.len() as u64,
                hash: hash(&stored),
            };
            store.ensure(&name, stored).await?;
            Ok(piece)
        };
        self.uploads.push_back(upload.boxed());
        Ok(())
    }

    async fn finish_one(&mut self) -> Result<bool> {
        let Some(piece) = self.uploads.next().await else { return Ok(false) };
        self.parts.push(piece?);
        Ok(true)
    }

    /// Uploads the remaining bytes, and the manifest. `description` is the caller's, and comes first in a restore.
    ///
    /// # Errors
    ///
    /// As for [`SnapshotUpload::write`].
    pub async fn finish(mut self, description: &[u8]) -> Result<UploadedSnapshot> {
        self.refuse_gap()?;
        if !self.buffer.is_empty() {
            self.upload_part().await?;
        }
        while self.finish_one().await? {}
        let manifest = Manifest {
            cluster: self.cluster,
            position: self.position,
            position_hash: self.position_hash,
            description: Bytes::copy_from_slice(description),
            parts: self.parts.into(),
        };
        let object = manifest.encode();
        let (parts, stored, len) = manifest.sizes();
        let info = SnapshotInfo {
            record: 0,
            position: self.position,
            position_hash: self.position_hash,
            nonce: self.nonce,
            manifest: hash(&object),
            parts,
            stored,
            len,
            wall: 0,
        };
        self.store.ensure(&manifest_name(&info), object.into()).await?;
        Ok(UploadedSnapshot(info))
    }
}

/// Content of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Manifest {
    pub cluster: Id,
    pub position: u64,
    pub position_hash: Hash,
    pub description: Bytes,
    pub parts: VecDeque<Piece>,
}

impl Manifest {
    fn encode(&self) -> Vec<u8> {
        let mut out = Writer::default();
        out.bytes(&MAGIC);
        out.u16(VERSION);
        out.bytes(&self.cluster);
        out.u64(self.position);
        out.bytes(&self.position_hash);
        out.counted(&self.description);
        let parts: Vec<Piece> = self.parts.iter().cloned().collect();
        out.bytes(&Piece::encode_all(&parts));
        out.finish()
    }

    /// Reads and checks the manifest that a SNAPSHOT record names.
    pub(crate) async fn load(store: &Store, info: &SnapshotInfo, cluster: Id) -> Result<Self> {
        let name = manifest_name(info);
        let object = store.get(&name).await?.ok_or_else(|| Error::missing(&name))?;
        if hash(&object) != info.manifest {
            return Err(Error::damaged(name, "its hash is not what the SNAPSHOT record has"));
        }
        let manifest = Self::decode(&object)
            .ok_or_else(|| Error::damaged(&name, "its fields make no sense"))?;
        let is_same = manifest.cluster == cluster
            && (manifest.position, manifest.position_hash) == (info.position, info.position_hash)
            && manifest.sizes() == (info.parts, info.stored, info.len);
        if !is_same {
            return Err(Error::damaged(name, "it is of another snapshot"));
        }
        Ok(manifest)
    }

    /// Returns the number of parts, and their bytes: stored, and before compression.
    fn sizes(&self) -> (u64, u64, u64) {
        let sum = |of: fn(&Piece) -> u64| self.parts.iter().map(of).fold(0, u64::saturating_add);
        (self.parts.len() as u64, sum(|part| part.stored), sum(|part| part.len))
    }

    fn decode(object: &Bytes) -> Option<Self> {
        let mut fields = Reader::new(object);
        // The version is that of the SNAPSHOT record, which was checked.
        let _ = (fields.array::<8>().filter(|magic| *magic == MAGIC)?, fields.u16()?);
        Some(Self {
            cluster: fields.array()?,
            position: fields.u64()?,
            position_hash: fields.array()?,
            description: object.slice_ref(fields.counted()?),
            parts: Piece::decode_all(fields.rest())?.into(),
        })
    }
}

/// Returns the newest folder of a snapshot up to a position, even if no record says that it is complete.
#[cfg(test)]
pub(crate) async fn newest_folder(store: &Store, to: u64) -> Result<Option<SnapshotInfo>> {
    let listed = store.list("snapshot", Some(&format!("{:020}", to + 1))).await?;
    let Some(name) = listed.last().and_then(|last| Some(last.name.rsplit_once('/')?.0.to_owned()))
    else {
        return Ok(None);
    };
    let name = name + "/manifest";
    let object = store.get(&name).await?.ok_or_else(|| Error::missing(&name))?;
    let damaged = || Error::damaged(&name, "planted");
    let manifest = Manifest::decode(&object).ok_or_else(damaged)?;
    let digits = name.split(['-', '/']).nth(2).unwrap_or_default();
    let nonce = u128::from_str_radix(digits, 16).map_err(|_| damaged())?.to_be_bytes();
    let (position, position_hash) = (manifest.position, manifest.position_hash);
    let (parts, stored, len) = manifest.sizes();
    Ok(Some(SnapshotInfo {
        record: position + 1,
        position,
        position_hash,
        nonce,
        manifest: hash(&object),
        parts,
        stored,
        len,
        wall: 0,
    }))
}

/// Returns `snapshot/<20 digits>-<nonce>`, with the position of the snapshot.
pub(crate) fn folder_name(position: u64, nonce: Id) -> String {
    format!("snapshot/{position:020}-{}", hex(&nonce))
}

pub(crate) fn manifest_name(info: &SnapshotInfo) -> String {
    folder_name(info.position, info.nonce) + "/manifest"
}

pub(crate) fn part_name(position: u64, nonce: Id, index: usize) -> String {
    format!("{}/{index:06}", folder_name(position, nonce))
}
