//! Reads a log from a snapshot, or from its first record, up to a position. Only verified data is returned.

use bytes::Bytes;
use futures_util::stream::BoxStream;
use futures_util::{StreamExt, stream};

use crate::body::{SnapshotInfo, split_batches};
use crate::chain::Chain;
use crate::error::{Error, Result};
use crate::group::{End, Group, read_floor};
use crate::payload::load_payload;
use crate::pin::{Pin, remove_pins};
use crate::record::{Hash, Id, Kind, Record, log_name};
use crate::snapshot::{Manifest, part_name};
use crate::span::{Moment, Span, parents, pinned};
use crate::store::Store;

/// Parts of a snapshot in flight at once.
const PARTS_AT_ONCE: usize = 8;

/// Payloads that are decompressed, or whose pieces are in flight, at once.
const PAYLOADS_AT_ONCE: usize = 2;

/// Lifetime of a restore's pin, in milliseconds. A restore that crashes leaves its pin behind.
const PIN_MS: u64 = 24 * 3600 * 1000;

/// An item of a restore, in this order: for each snapshot its description and its parts, then batches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    /// Start of a snapshot.
    Snapshot {
        /// The last record that it contains.
        position: u64,
        /// Description that the owner passed to [`crate::SnapshotUpload::finish`].
        description: Bytes,
    },
    /// Bytes of the snapshot, one part after the other.
    Part(Bytes),
    /// The batches of one record.
    Batches {
        /// The record's number.
        number: u64,
        /// Its wall clock, in milliseconds since 1970.
        wall: u64,
        /// The batches, as they were given to [`crate::Owner::append`].
        batches: Vec<Bytes>,
    },
}

/// Progress of a restore.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RestoreProgress {
    /// Bytes of snapshots returned so far.
    pub snapshot_bytes: u64,
    /// Bytes of snapshots in total.
    pub snapshot_bytes_total: u64,
    /// Records of the log read so far.
    pub records: u64,
    /// Records in total.
    pub records_total: u64,
}

/// A restore under way.
pub struct Restore {
    store: Store,
    pins: Vec<(Store, Pin)>,
    stages: Vec<Stage>,
    position: u64,
    hash: Hash,
    wall: u64,
    progress: RestoreProgress,
    /// An item was lost: no further item may be returned.
    has_failed: bool,
}

/// Objects in their order, several of them in flight.
type Ordered<T> = BoxStream<'static, Result<T>>;

/// A part of the work; the last of a list comes next.
enum Stage {
    Open { store: Store, info: SnapshotInfo, cluster: Id },
    Parts(Ordered<Bytes>),
    Log { records: Ordered<(Record, Bytes)>, chain: Chain, to: u64, to_hash: Hash },
}

impl Restore {
    /// Restores the end of the log that `group` has read.
    ///
    /// # Errors
    ///
    /// As for [`Restore::at`].
    pub async fn newest(group: &Group) -> Result<Self> {
        Self::at(group, Moment::Newest).await
    }

    /// Restores a moment: from the newest snapshot before it and the log after that. All needed objects are pinned
    /// against pruning; call [`Restore::finish`] at the end. Without the right to write, nothing is pinned.
    ///
    /// # Errors
    ///
    /// [`Error::History`] if the log does not reach back that far, or does not have that position; [`Error::Damaged`]
    /// and [`Error::Missing`], which name the object.
    pub async fn at(group: &Group, moment: Moment) -> Result<Self> {
        let until = pin_until(&group.store);
        let (group, span, pin) = pinned(group, moment, until, "restore").await?;
        Self::begin(&group, span, pin.ok()).await
    }

    /// Returns the batches of all records after a position, as far as `group` has read the log. `None` if some were
    /// pruned, if they exceed `bytes_max` bytes, or if not all are of this node.
    ///
    /// # Errors
    ///
    /// As for [`Restore::next`].
    pub async fn behind(
        group: &Group,
        position: u64,
        node: Id,
        bytes_max: usize,
    ) -> Result<Option<Vec<Vec<u8>>>> {
        let End { number: to, hash, cluster, floor, .. } = group.end;
        if position >= to || position + 1 < floor {
            return Ok((position == to).then(Vec::new));
        }
        let (mut all, mut bytes) = (Vec::new(), 0);
        let mut chain = Chain::after(cluster, position, None);
        let mut records = records(group.store.clone(), cluster, position + 1, to);
        while let Some(next) = records.next().await {
            let (record, payload) = next?;
            chain.follow(&record, &payload)?;
            bytes += payload.len();
            if record.header.node != node || bytes > bytes_max {
                return Ok(None);
            }
            if record.header.kind == Kind::Batch {
                let batches = split_batches(record.header.number, &payload)?;
                all.extend(batches.into_iter().map(Vec::from));
            }
        }
        check_last(&chain, to, hash)?;
        Ok(Some(all))
    }

    async fn begin(group: &Group, span: Span, pin: Option<Pin>) -> Result<Self> {
        let mut restore = Self {
            store: group.store.clone(),
            pins: pin.map(|pin| (group.store.clone(), pin)).into_iter().collect(),
            stages: Vec::new(),
            position: span.to,
            hash: span.to_hash,
            wall: span.to_wall,
            progress: RestoreProgress::default(),
            has_failed: false,
        };
        match restore.add_all(group, span).await {
            Ok(()) => Ok(restore),
            Err(error) => {
                // Pins that could not be removed expire after a day.
                let _ = restore.finish().await;
                Err(error)
            }
        }
    }

    /// Pins the logs that this log continues, and adds their spans and the log's own.
    async fn add_all(&mut self, group: &Group, span: Span) -> Result<()> {
        let parents = parents(group, &span).await?;
        for (parent, part) in parents.into_iter().rev() {
            // A pin of our own, in case the pin of the branch is removed during the restore.
            let until = pin_until(&parent.store);
            match parent.pin(&part, until, "restore", None).await {
                Ok(Some(pin)) => self.pins.push((parent.store.clone(), pin)),
                Ok(None) => return Err(parent.lost(&part)),
                Err(error) if error.is_refusal() => {}
                Err(error) => return Err(error),
            }
            self.add_span(&parent.store, part);
        }
        self.add_span(&group.store, span);
        self.stages.reverse();
        Ok(())
    }

    fn add_span(&mut self, store: &Store, span: Span) {
        let (count, chain) = (span.records(), span.chain());
        if let Some(info) = span.snapshot {
            let total = &mut self.progress.snapshot_bytes_total;
            *total = total.saturating_add(info.len);
            self.stages.push(Stage::Open { store: store.clone(), info, cluster: span.cluster });
        }
        if count > 0 {
            let total = &mut self.progress.records_total;
            *total = total.saturating_add(count);
            let records = records(store.clone(), span.cluster, span.from, span.to);
            self.stages.push(Stage::Log { records, chain, to: span.to, to_hash: span.to_hash });
        }
    }

    /// Returns the position that is restored.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Returns the wall clock of the record there, in milliseconds since 1970.
    pub fn wall(&self) -> u64 {
        self.wall
    }

    /// Returns the progress of the restore.
    pub fn progress(&self) -> RestoreProgress {
        self.progress
    }

    /// Returns the next item. `None`: the restore is complete, and has ended with the requested record.
    ///
    /// # Errors
    ///
    /// [`Error::Damaged`], [`Error::Missing`], [`Error::Newer`] and the store's. The items returned before are
    /// correct, but incomplete.
    pub async fn next(&mut self) -> Result<Option<Item>> {
        if self.has_failed {
            return Err(Error::Invalid("this restore has failed".into()));
        }
        let item = self.advance().await;
        self.has_failed = item.is_err();
        item
    }

    /// Takes the next item from the current stage. The stage is kept until the next one is known: if the future is
    /// dropped midway, nothing is lost.
    async fn advance(&mut self) -> Result<Option<Item>> {
        while let Some(stage) = self.stages.last_mut() {
            match stage {
                Stage::Open { store, info, cluster } => {
                    let manifest = Manifest::load(store, info, *cluster).await?;
                    let (position, description) = (info.position, manifest.description.clone());
                    *stage = Stage::Parts(parts(store.clone(), info, manifest));
                    return Ok(Some(Item::Snapshot { position, description }));
                }
                Stage::Parts(parts) => {
                    if let Some(part) = parts.next().await {
                        let part = part?;
                        self.progress.snapshot_bytes += part.len() as u64;
                        return Ok(Some(Item::Part(part)));
                    }
                }
                Stage::Log { records, chain, to, to_hash } => {
                    if let Some(next) = records.next().await {
                        let (record, payload) = next?;
                        chain.follow(&record, &payload)?;
                        self.progress.records += 1;
                        if record.header.kind == Kind::Batch {
                            let (number, wall) = (record.header.number, record.header.wall);
                            let batches = split_batches(number, &payload)?;
                            return Ok(Some(Item::Batches { number, wall, batches }));
                        }
                        continue;
                    }
                    check_last(chain, *to, *to_hash)?;
                }
            }
            self.stages.pop();
        }
        Ok(None)
    }

    /// Returns the state from which a follower continues, once everything was returned.
    pub(crate) fn into_end(self) -> Result<RestoreEnd> {
        if self.has_failed || !self.stages.is_empty() {
            return Err(Error::Invalid(
                "a follower goes on behind a restore that is complete".into(),
            ));
        }
        let Self { store, position, hash, pins, .. } = self;
        Ok(RestoreEnd { store, position, hash, pins })
    }

    /// Removes the pins.
    ///
    /// # Errors
    ///
    /// The store's, or that it takes too long. The pins then expire after a day.
    pub async fn finish(mut self) -> Result<()> {
        remove_pins(&mut self.pins).await
    }
}

/// End of a completed restore.
pub(crate) struct RestoreEnd {
    pub store: Store,
    pub position: u64,
    pub hash: Hash,
    pub pins: Vec<(Store, Pin)>,
}

/// Returns the expiry of a pin for a restore that begins now.
pub(crate) fn pin_until(store: &Store) -> u64 {
    store.env.wall().saturating_add(PIN_MS)
}

pub(crate) fn check_last(chain: &Chain, to: u64, to_hash: Hash) -> Result<()> {
    if chain.number == to && chain.hash == Some(to_hash) {
        return Ok(());
    }
    Err(Error::damaged(log_name(to), "it changed while the log was read"))
}

/// Streams records in order, each decoded and with its payload. Many records are in flight, but the pieces of few,
/// since a payload may be much larger than its record.
pub(crate) fn records(
    store: Store,
    cluster: Id,
    from: u64,
    to: u64,
) -> BoxStream<'static, Result<(Record, Bytes)>> {
    let ahead = store.tuning.read_ahead;
    let loads = stream::iter(from..=to).map(move |number| {
        let store = store.clone();
        async move {
            let name = log_name(number);
            let Some(object) = store.get(&name).await? else {
                return Err(missing(&store, number).await);
            };
            let record = Record::decode(&object, number, Some(cluster))?;
            Ok((store, record))
        }
    });
    let payloads = loads.buffered(ahead).map(|loaded| async move {
        let (store, record) = loaded?;
        let payload = load_payload(&store, &record).await?;
        Ok((record, payload))
    });
    payloads.buffered(PAYLOADS_AT_ONCE).boxed()
}

/// Returns the error for a record that is missing.
async fn missing(store: &Store, number: u64) -> Error {
    let because = match read_floor(store).await {
        Ok(floor) if floor > number => format!(", pruned meanwhile: the log begins at {floor}"),
        _ => String::new(),
    };
    Error::Missing { object: log_name(number), because }
}

/// Streams the parts of a snapshot in order, each checked.
pub(crate) fn parts(
    store: Store,
    info: &SnapshotInfo,
    manifest: Manifest,
) -> BoxStream<'static, Result<Bytes>> {
    let (position, nonce) = (info.position, info.nonce);
    let ahead = store.tuning.read_ahead.min(PARTS_AT_ONCE);
    let loads = stream::iter(manifest.parts.into_iter().enumerate()).map(move |(index, part)| {
        let store = store.clone();
        async move { part.load(&store, part_name(position, nonce, index)).await }
    });
    loads.buffered(ahead).boxed()
}
