//! A log group as it is found in a store: the floor, the end of the log, and the state in force there.
//!
//! Invariants that the search for the end relies on:
//! - From the floor to the end there is no gap. Below the floor any object may be missing, and of the objects there
//!   only the CLAIMs count.
//! - An object is deleted only when a floor above it exists. So a missing `n + 1` is the end only if the floor, read
//!   **after** the record was found missing, is at most `n + 1`.

use bytes::Bytes;
use futures_util::future::try_join_all;

use crate::body::{BranchInfo, ClaimInfo, ReleaseInfo, SnapshotInfo};
use crate::chain::Chain;
use crate::error::{Error, Result};
use crate::payload::load_payload;
use crate::record::{Hash, Header, Id, Kind, NUMBER_MAX, Record, log_name};
use crate::rules::Rule;
use crate::store::{REMOVED, Store};

/// Number of records requested at once when a log may have grown.
const RECORDS_AT_ONCE: u64 = 16;

/// The end of a log, and the state in force there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct End {
    /// The last record's number. 0: the log is empty.
    pub number: u64,
    /// The hash of the last object.
    pub hash: Hash,
    /// The group's id.
    pub cluster: Id,
    /// The number of CLAIMs so far.
    pub epoch: u64,
    /// The newest CLAIM.
    pub claim: Option<ClaimInfo>,
    /// True if the last record is a RELEASE.
    pub released: bool,
    /// Address of the process that this RELEASE hands the log to, if it names one.
    pub successor: Option<String>,
    /// The newest valid snapshot.
    pub snapshot: Option<SnapshotInfo>,
    /// Newest wall clock in the log, in milliseconds since 1970. An owner's clock starts at this value or later.
    pub wall: u64,
    /// The lowest number that is certainly there. 1: nothing was pruned.
    pub floor: u64,
}

/// A log group in a store, and its end when it was last read.
#[derive(Clone)]
pub struct Group {
    pub(crate) store: Store,
    pub(crate) end: End,
}

impl Group {
    /// Reads the floor, the end of the log, and the CLAIM and SNAPSHOT in force there. The number of requests grows
    /// with the logarithm of the log's length.
    ///
    /// # Errors
    ///
    /// The store's own, and [`Error::Damaged`], [`Error::Missing`] and [`Error::Newer`] for objects at the end.
    pub async fn open(store: &Store) -> Result<Self> {
        let end = find_end(store).await?;
        Ok(Self { store: store.clone(), end })
    }

    /// Returns the end when it was last read.
    pub fn end(&self) -> &End {
        &self.end
    }

    /// Returns the store of the group.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Returns the log that this log continues, if it is a branch that has no snapshot of its own yet.
    ///
    /// # Errors
    ///
    /// The store's, and those of a damaged first record.
    pub async fn branch(&self) -> Result<Option<BranchInfo>> {
        if self.end.number == 0 || self.end.floor > 1 {
            return Ok(None);
        }
        let (record, payload) = self.read(1).await?;
        if record.header.kind != Kind::Branch {
            return Ok(None);
        }
        BranchInfo::decode(&record.header, &payload).map(Some)
    }

    /// Reads the records that were appended since, up to one that is not there. This is much faster than opening the
    /// group again, but does not detect that pruning has overtaken this position.
    pub(crate) async fn catch_up(&mut self) -> Result<()> {
        loop {
            let from = self.end.number + 1;
            let numbers = from..from + RECORDS_AT_ONCE;
            let names: Vec<_> = numbers.clone().map(log_name).collect();
            let objects = try_join_all(names.iter().map(|name| self.store.get(name))).await?;
            for (number, object) in numbers.zip(objects) {
                let Some(object) = object else { return Ok(()) };
                let record = Record::decode(&object, number, Some(self.end.cluster))?;
                self.follow(&record).await?;
            }
        }
    }

    /// Takes the record after the end.
    async fn follow(&mut self, record: &Record) -> Result<()> {
        let end = &self.end;
        let payload = load_body(&self.store, record).await?;
        let mut chain = Chain::after(end.cluster, end.number, Some(end.hash));
        chain.follow(record, &payload)?;
        self.end.take(record, &payload)
    }

    /// Returns the hash of a record that must be there.
    ///
    /// # Errors
    ///
    /// [`Error::Missing`] if it was pruned, [`Error::Damaged`], and the store's.
    pub async fn hash_of(&self, number: u64) -> Result<Hash> {
        Ok(self.read(number).await?.0.hash)
    }

    /// Returns a record that must be there, with its payload.
    pub(crate) async fn read(&self, number: u64) -> Result<(Record, Bytes)> {
        read_record(&self.store, number, self.cluster()).await
    }

    /// Returns a record that must be there, without the pieces of a large payload.
    pub(crate) async fn peek(&self, number: u64) -> Result<Record> {
        peek_record(&self.store, number, self.cluster()).await
    }

    fn cluster(&self) -> Option<Id> {
        (self.end.number > 0).then_some(self.end.cluster)
    }
}

impl End {
    /// Advances the end by a record.
    pub(crate) fn advance(&mut self, header: &Header, hash: Hash) {
        self.number = header.number;
        self.hash = hash;
        self.cluster = header.cluster;
        self.epoch = header.epoch;
        self.wall = header.wall;
        self.released = header.kind == Kind::Release;
        self.successor = None;
    }

    /// Advances the end by a record, and applies its payload.
    pub(crate) fn take(&mut self, record: &Record, payload: &[u8]) -> Result<()> {
        let header = &record.header;
        self.advance(header, record.hash);
        match header.kind {
            Kind::Claim => self.claim = Some(ClaimInfo::decode(header, payload)?),
            Kind::Snapshot => self.snapshot = Some(SnapshotInfo::decode(header, payload)?),
            Kind::Release => self.successor = ReleaseInfo::decode(header, payload)?.successor,
            _ => {}
        }
        Ok(())
    }
}

/// Reads a record that must be there, with its payload.
async fn read_record(store: &Store, number: u64, cluster: Option<Id>) -> Result<(Record, Bytes)> {
    let record = peek_record(store, number, cluster).await?;
    let payload = load_payload(store, &record).await?;
    Ok((record, payload))
}

/// Reads a record that must be there, without its payload.
async fn peek_record(store: &Store, number: u64, cluster: Option<Id>) -> Result<Record> {
    let name = log_name(number);
    let object = store.get(&name).await?.ok_or_else(|| Error::missing(&name))?;
    Record::decode(&object, number, cluster)
}

/// Returns the highest floor, or 1.
pub(crate) async fn read_floor(store: &Store) -> Result<u64> {
    let floors = store.list_own("floor").await?;
    let Some(highest) = floors.last() else { return Ok(1) };
    number_in(&highest.name)
        .filter(|number| *number > 0 && floor_name(*number) == highest.name)
        .ok_or_else(|| Error::damaged(&highest.name, "its name is no floor's: 20 digits"))
}

/// `floor/<20 digits>`.
pub(crate) fn floor_name(number: u64) -> String {
    format!("floor/{number:020}")
}

/// Returns the number in the 20 digits after the folder of a name.
pub(crate) fn number_in(name: &str) -> Option<u64> {
    let digits = name.split_once('/')?.1.get(..20)?;
    let number = digits.parse().ok().filter(|number| *number <= NUMBER_MAX)?;
    // The parser would accept a sign, too.
    digits.bytes().all(|byte| byte.is_ascii_digit()).then_some(number)
}

async fn find_end(store: &Store) -> Result<End> {
    let mut floor = read_floor(store).await?;
    loop {
        let number = last_existing(store, floor).await?;
        // Only now: a floor that was read before could not distinguish a pruned object from one that never existed.
        let after = match store.keeps(Rule::FloorAfterAbsence) {
            true => read_floor(store).await?,
            false => floor.min(number),
        };
        if after <= number || (number == 0 && after <= 1) {
            let gap = find_gap(store, number, after).await?;
            if let (None, Some(end)) = (gap, describe(store, number, after).await?) {
                return Ok(end);
            }
            floor = read_floor(store).await?;
        } else if after == floor {
            return Err(Error::Missing {
                object: log_name(floor),
                because: format!(", although {} says that the log begins there", floor_name(floor)),
            });
        } else {
            floor = after;
        }
    }
}

/// Returns the last number, from the floor on, before a missing one; 0 if the first is missing.
async fn last_existing(store: &Store, floor: u64) -> Result<u64> {
    if !store.exists(&log_name(floor)).await? {
        return Ok(0);
    }
    let (mut there, mut step) = (floor, 1);
    let mut absent = loop {
        let next = there + step;
        if next > NUMBER_MAX || !store.exists(&log_name(next)).await? {
            break next;
        }
        there = next;
        step *= 2;
    };
    while absent - there > 1 {
        let middle = there + (absent - there) / 2;
        if store.exists(&log_name(middle)).await? { there = middle } else { absent = middle }
    }
    Ok(there)
}

/// Searches for objects after the supposed end: if there are any, a record was lost, and an append would fork the log.
/// `Some`: pruning has overtaken the search, which has to start again.
pub(crate) async fn find_gap(store: &Store, number: u64, floor: u64) -> Result<Option<u64>> {
    if !store.keeps(Rule::FloorAfterAbsence) {
        return Ok(None);
    }
    let Some(next) = store.first_after("log", &log_name(number)).await? else { return Ok(None) };
    // It was appended meanwhile. A directory listing may lack an object that was put before one that it shows.
    if next == log_name(number + 1) || store.exists(&log_name(number + 1)).await? {
        return Ok(None);
    }
    let now = read_floor(store).await?;
    if now > floor {
        return Ok(Some(now));
    }
    let why = match store.is_directory() {
        true => REMOVED,
        false => ": no lifecycle rule may delete from this bucket",
    };
    let because = format!(
        ", although {next} is there{why}. A server whose data directory has everything starts without --bucket"
    );
    Err(Error::Missing { object: log_name(number + 1), because })
}

/// Returns the payload of a record that changes the state in force, and nothing for other records.
async fn load_body(store: &Store, record: &Record) -> Result<Bytes> {
    match record.header.kind {
        Kind::Claim | Kind::Release | Kind::Snapshot => load_payload(store, record).await,
        _ => Ok(Bytes::new()),
    }
}

/// Returns the state in force at the record `number`. `None`: it was pruned meanwhile.
pub(crate) async fn describe(store: &Store, number: u64, floor: u64) -> Result<Option<End>> {
    if number == 0 {
        return Ok(Some(End { floor, ..End::default() }));
    }
    let read = async {
        let record = peek_record(store, number, None).await?;
        let header = &record.header;
        let payload = load_body(store, &record).await?;
        let claim = match header.kind {
            Kind::Claim => Some(ClaimInfo::decode(header, &payload)?),
            _ => read_claim(store, header).await?,
        };
        let snapshot = match header.kind {
            Kind::Snapshot => Some(SnapshotInfo::decode(header, &payload)?),
            _ => read_snapshot(store, header).await?,
        };
        Ok(End {
            number,
            hash: record.hash,
            cluster: header.cluster,
            epoch: header.epoch,
            claim,
            released: header.kind == Kind::Release,
            successor: match header.kind {
                Kind::Release => ReleaseInfo::decode(header, &payload)?.successor,
                _ => None,
            },
            snapshot,
            wall: header.wall,
            floor,
        })
    };
    match read.await {
        Ok(end) => Ok(Some(end)),
        Err(Error::Missing { .. }) if read_floor(store).await? > floor => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads the CLAIM in force before a record.
pub(crate) async fn read_claim(store: &Store, header: &Header) -> Result<Option<ClaimInfo>> {
    let Some((claim, payload)) = read_earlier(store, header, header.claim, Kind::Claim).await?
    else {
        return Ok(None);
    };
    ClaimInfo::decode(&claim.header, &payload).map(Some)
}

/// Reads the newest snapshot that was valid before a record.
pub(crate) async fn read_snapshot(store: &Store, header: &Header) -> Result<Option<SnapshotInfo>> {
    let Some((snapshot, payload)) =
        read_earlier(store, header, header.snapshot, Kind::Snapshot).await?
    else {
        return Ok(None);
    };
    SnapshotInfo::decode(&snapshot.header, &payload).map(Some)
}

/// Reads the record `number` that a header refers to. 0: none.
async fn read_earlier(
    store: &Store,
    header: &Header,
    number: u64,
    kind: Kind,
) -> Result<Option<(Record, Bytes)>> {
    if number == 0 {
        return Ok(None);
    }
    if number >= header.number {
        let reason = format!("it refers to {number}, which is not before it");
        return Err(Error::damaged(log_name(header.number), reason));
    }
    let (record, payload) = read_record(store, number, Some(header.cluster)).await?;
    if record.header.kind != kind {
        let reason = format!("{} says it is a {kind:?}", log_name(header.number));
        return Err(Error::damaged(log_name(number), reason));
    }
    Ok(Some((record, payload)))
}
