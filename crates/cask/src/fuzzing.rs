//! Checks behind the fuzz targets. The targets in `fuzz/` pass a fuzzer's input, the test `fuzz_smoke` passes seeded
//! random bytes, so everyone runs the same checks.
//!
//! Checksums guard every format, and random bytes never get past them. So the first byte of an input decides whether
//! the checksums are fixed up, to give the decoders hostile fields behind valid checksums.
//!
//! Each function panics if a guarantee of this crate is broken. Not part of the crate's interface.

use crate::check::check_on;
use crate::hint::entry::{Entry as HintEntry, HintOrder, RANGES};
use crate::hint::reader::HintReader;
use crate::hint::writer::{BLOCK_HEADER_LEN, FIELDS_LEN, HINT_HEADER_LEN, MAGIC, VERSION};
use crate::options::{Options, SyncPolicy};
use crate::{Compression, Db, KEY_LEN_MAX, VALUE_LEN_MAX};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tierce_storage::Error;
use tierce_storage::WAL_RECORD_LEN_MAX;
use tierce_storage::checksum::{Salt, crc32c, crc32c_append, crc32c_of_location};
use tierce_storage::compression::decompress;
use tierce_storage::disk::{Disk, OpenMode, SimDisk};
use tierce_storage::hash::HashKey;
use tierce_storage::location::{ALIGNMENT, SegmentId};
use tierce_storage::manifest::{Entry, IndexKind, Manifest, Purpose, SegmentState};
use tierce_storage::names;
use tierce_storage::repair_on;
use tierce_storage::segment::header::{Origin, SEGMENT_HEADER_LEN, SegmentHeader};
use tierce_storage::segment::record::{Fields, HEADER_LEN, Record, encode, stamp};
use tierce_storage::segment::scan::{Scanner, Step};

const SALT: Salt = Salt(0x5eed_5eed);
const STORE: u128 = 7;
const SEGMENT: SegmentId = SegmentId(1);
const HASH_KEY: HashKey = HashKey([1, 2]);

/// Parameters taken from the first byte of an input.
#[derive(Clone, Copy)]
struct Parameters(u8);

impl Parameters {
    fn split(data: &[u8]) -> (Self, &[u8]) {
        data.split_first().map_or((Parameters(0), data), |(&first, rest)| (Parameters(first), rest))
    }

    fn fits_checksums(self) -> bool {
        self.0 & 1 == 0
    }

    fn index(self) -> IndexKind {
        if self.0 & 2 == 0 { IndexKind::Hash } else { IndexKind::Ordered }
    }

    fn origin(self) -> Origin {
        if self.0 & 4 == 0 { Origin::Log } else { Origin::Compaction }
    }

    fn is_sealed(self) -> bool {
        self.0 & 8 != 0
    }
}

fn order(index: IndexKind) -> HintOrder {
    HintOrder { index, hash_key: HASH_KEY }
}

/// Checks that a decoded record equals the encoding of its fields, and that its compressed data does not exceed the
/// maximum length of a value.
pub fn record(data: &[u8]) {
    let (parameters, input) = Parameters::split(data);
    let mut bytes = input.to_vec();
    if parameters.fits_checksums() {
        fit_record(&mut bytes, SEGMENT_HEADER_LEN);
    }
    let Ok(record) = Record::decode(&bytes, SALT, SEGMENT_HEADER_LEN) else { return };
    let header = record.header;
    assert!(record.key.len() <= KEY_LEN_MAX && record.value.len() <= WAL_RECORD_LEN_MAX);
    assert!(header.record_len() <= bytes.len() as u64);
    let fields = Fields {
        kind: header.kind,
        membership: header.membership,
        compression: header.compression,
        expiry: header.expiry,
        version: header.version,
        key: record.key,
        value: record.value,
    };
    let mut again = Vec::new();
    encode(&mut again, &fields);
    stamp(&mut again, header.seq, header.synced, SALT, SEGMENT_HEADER_LEN);
    let copy = Record::decode(&again, SALT, SEGMENT_HEADER_LEN).expect("just encoded");
    assert_eq!((copy.key, copy.value), (record.key, record.value));
    assert_eq!((copy.header.seq, copy.header.kind), (header.seq, header.kind));
    if header.compression != 0
        && let Ok(value) = decompress(header.compression, record.value)
    {
        assert!(value.len() <= VALUE_LEN_MAX);
    }
}

/// Checks that a segment is read to its end or to the first bad record, and that a search in it ends.
pub fn segment(data: &[u8]) {
    let (parameters, input) = Parameters::split(data);
    let disk = SimDisk::new(0);
    let path = put_segment(&disk, parameters, input);
    let len = SEGMENT_HEADER_LEN + input.len() as u64;
    let file = disk.open(&path, OpenMode::ReadOnly).expect("it was put there");
    let mut scanner = Scanner::new(file.clone(), &path, SALT, parameters.origin(), len);
    let mut last = 0;
    loop {
        match scanner.step().expect("this disk does not fail") {
            Step::Record(offset, record) => {
                assert!(offset > last && offset.is_multiple_of(ALIGNMENT));
                assert!(offset + record.header.record_len() <= len);
                last = offset;
            }
            Step::End => break,
            Step::Damaged(offset, _) => {
                assert!(offset >= last && offset <= len);
                scanner.trusts_beyond(offset).expect("this disk does not fail");
                break;
            }
        }
    }
    // As a repair searches for records.
    let mut scanner = Scanner::new(file, &path, SALT, Origin::Compaction, len);
    let mut from = SEGMENT_HEADER_LEN;
    while let Some((at, header)) = scanner.find_record(from).expect("this disk does not fail") {
        assert!(at >= from && at + header.record_len() <= len);
        if let Ok(end) = scanner.batch_end(at).expect("this disk does not fail") {
            assert!(end <= len);
        }
        from = at + header.record_len();
    }
}

/// Checks that a hint file is invalid, or that its entries ascend and stay within the segment.
pub fn hint(data: &[u8]) {
    const SEGMENT_LEN: u64 = 1 << 20;
    let (parameters, input) = Parameters::split(data);
    let order = order(parameters.index());
    let disk = SimDisk::new(0);
    let mut bytes = input.to_vec();
    if parameters.fits_checksums() {
        fit_hint(&mut bytes, parameters.index(), SEGMENT_LEN);
    }
    disk.set_content(&names::hint(dir(), SEGMENT), bytes);
    let Ok(reader) = HintReader::open(&disk, dir(), STORE, SEGMENT, SEGMENT_LEN, order) else {
        return;
    };
    if let Ok(filter) = reader.filter() {
        filter.may_contain(u64::MAX);
    }
    let is_valid = reader.verify().is_ok();
    let mut cursor = reader.cursor(0..RANGES);
    let (mut entry, mut last) = (HintEntry::default(), None::<HintEntry>);
    while cursor.next(&mut entry) == Ok(true) {
        assert!(entry.key.len() <= KEY_LEN_MAX);
        if !is_valid {
            continue;
        }
        assert!(entry.meta.offset + entry.meta.len <= SEGMENT_LEN);
        if let Some(last) = last {
            let compared = order.compare((last.hash, &last.key), (entry.hash, &entry.key));
            assert!(compared.is_lt(), "keys ascend");
        }
        last = Some(entry.clone());
    }
}

/// Checks that a decoded manifest equals its encoding.
pub fn manifest(data: &[u8]) {
    let (parameters, input) = Parameters::split(data);
    let mut bytes = input.to_vec();
    if parameters.fits_checksums() {
        fit_manifest(&mut bytes);
    }
    let Ok(manifest) = Manifest::decode(&bytes) else { return };
    assert_eq!(Manifest::decode(&manifest.encode()), Ok(manifest));
}

/// Checks that a store with such a segment is refused with the file's name, or works. In either case it can be checked
/// and repaired, and the repaired store opens.
pub fn store(data: &[u8]) {
    let (parameters, input) = Parameters::split(data);
    let disk = SimDisk::new(0);
    put_segment(&disk, parameters, input);
    let len = SEGMENT_HEADER_LEN + input.len() as u64;
    let state =
        if parameters.is_sealed() { SegmentState::Sealed { len } } else { SegmentState::Open };
    let entry = Entry { state, origin: parameters.origin(), seq_min: 0 };
    let manifest = Manifest {
        store_id: STORE,
        hash_key: HASH_KEY,
        purpose: Purpose::Database,
        index: parameters.index(),
        shards: 2,
        next_segment: SEGMENT.0 + 1,
        next_seq: 1,
        first_seq: 1,
        segments: BTreeMap::from([(SEGMENT, entry)]),
        tails: BTreeSet::new(),
    };
    disk.set_content(&names::manifest(dir()), manifest.encode());
    check_and_repair(&disk, parameters.index());
    match open(&disk, dir(), parameters.index()) {
        Ok(db) => use_store(&disk, db, parameters.index()),
        Err(Error::Corrupt { path, .. }) => assert!(path.starts_with(dir())),
        Err(error) => panic!("{error}"),
    }
}

fn check_and_repair(disk: &SimDisk, index: IndexKind) {
    let copy = disk.now().after_kill(0);
    let checked = check_on(Arc::new(copy.clone()), dir(), |progress| {
        assert!(progress.done <= progress.total);
    });
    let sound = checked.expect("a check reports what it finds").problems.is_empty();
    let saved = Path::new("/saved");
    let repaired = repair_on(Arc::new(copy.clone()), dir(), saved, |_| {});
    let repaired = repaired.expect("a repair takes what it finds");
    let db = open(&copy, saved, index).expect("what was repaired opens");
    assert!(contents(&db).len() as u64 <= repaired.records);
    if sound {
        open(disk, dir(), index).expect("what checks out opens").close().expect("and closes");
    }
}

/// Reads everything, writes, and checks for the same content after reopening.
fn use_store(disk: &SimDisk, db: Db, index: IndexKind) {
    let mut before = contents(&db);
    db.put(b"fuzz", b"value").expect("an open store takes writes");
    before.insert(b"fuzz".to_vec(), Some(b"value".to_vec()));
    db.compact().expect("there is nothing in the way");
    assert_eq!(contents(&db), before);
    db.close().expect("closing works");
    let db = open(disk, dir(), index).expect("what was closed opens");
    assert_eq!(contents(&db), before);
}

/// Returns all keys with their values; `None` for one whose value does not decompress.
fn contents(db: &Db) -> BTreeMap<Vec<u8>, Option<Vec<u8>>> {
    let mut contents = BTreeMap::new();
    for item in db.iter() {
        match item {
            Ok((key, entry)) => {
                assert!(contents.insert(key, Some(entry.value.into_vec())).is_none());
            }
            // The record's checksum is valid, but its content was never the output of a compressor.
            Err(Error::Corrupt { .. } | Error::UnsupportedCompression { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
    contents
}

fn open(disk: &SimDisk, dir: &Path, index: IndexKind) -> crate::Result<Db> {
    let options = Options {
        index,
        segment_size_bytes: 4096,
        compression: Compression::None,
        sync: SyncPolicy::None,
        read_cache_bytes: 0,
        background_threads: false,
        open_threads: 1,
        ..Options::default()
    };
    Db::open_on(Arc::new(disk.clone()), dir, options)
}

fn dir() -> &'static Path {
    Path::new("/store")
}

/// Writes a segment with these bytes after a valid header to the disk.
fn put_segment(disk: &SimDisk, parameters: Parameters, body: &[u8]) -> PathBuf {
    let origin = parameters.origin();
    let header = SegmentHeader { salt: SALT, store_id: STORE, id: SEGMENT, origin };
    let mut bytes = header.encode().to_vec();
    bytes.extend_from_slice(body);
    if parameters.fits_checksums() {
        let mut at = SEGMENT_HEADER_LEN as usize;
        while at < bytes.len() {
            at += fit_record(&mut bytes[at..], at as u64);
        }
    }
    let path = names::segment(dir(), SEGMENT);
    disk.set_content(&path, bytes);
    path
}

/// Gives the record at the start of `bytes` matching checksums; returns the distance to a possible next record.
fn fit_record(bytes: &mut [u8], offset: u64) -> usize {
    let Some(header) = bytes.first_chunk::<HEADER_LEN>() else { return bytes.len().max(1) };
    let len_at =
        |at: usize| header[at..at + 4].iter().rev().fold(0, |n, &b| n << 8 | usize::from(b));
    let flags = header[26];
    let header_len = HEADER_LEN + 8 * (flags & 3).count_ones() as usize;
    let body_len = (len_at(16) + len_at(20)).min(1 << 30);
    let len = (header_len + body_len).next_multiple_of(ALIGNMENT as usize);
    if let Some(body) = bytes.get(header_len..len) {
        let crc = crc32c(body);
        bytes[4..8].copy_from_slice(&crc.to_le_bytes());
    }
    if let Some(header) = bytes.get(4..header_len) {
        let crc = crc32c_append(crc32c_of_location(SALT, offset), header);
        bytes[..4].copy_from_slice(&crc.to_le_bytes());
    }
    if len <= bytes.len() { len } else { ALIGNMENT as usize }
}

/// Makes a hint file of bytes: its identifying fields are overwritten, checksums match, and the first range is
/// everything up to the filter.
fn fit_hint(bytes: &mut Vec<u8>, index: IndexKind, segment_len: u64) {
    if bytes.len() < HINT_HEADER_LEN {
        // Too short for a header: all of it is one block, behind a generated header.
        let mut header = vec![0; HINT_HEADER_LEN];
        header[48] = bytes.first().copied().unwrap_or(0);
        header[64..72].fill(0xff);
        let body_len = bytes.len() as u32;
        let mut block = body_len.to_le_bytes().to_vec();
        block.extend_from_slice(&[0; 4]);
        block.append(bytes);
        block.extend_from_slice(&[0xff; 8]);
        header[80] = 8;
        header.append(&mut block);
        *bytes = header;
    }
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    bytes[12..16].copy_from_slice(&SEGMENT.0.to_le_bytes());
    bytes[16..32].copy_from_slice(&STORE.to_le_bytes());
    bytes[32..36].copy_from_slice(&(index as u32).to_le_bytes());
    bytes[40..48].copy_from_slice(&segment_len.to_le_bytes());
    let filter_len = usize::from(bytes[80]).clamp(1, 64).min(bytes.len() - HINT_HEADER_LEN);
    bytes[80..88].copy_from_slice(&(filter_len as u64).to_le_bytes());
    let end = bytes.len() - filter_len;
    let filter_crc = crc32c(&bytes[end..]);
    bytes[36..40].copy_from_slice(&filter_crc.to_le_bytes());
    let table = &mut bytes[FIELDS_LEN..FIELDS_LEN + 8 * (RANGES + 1)];
    for (at, offset) in table.chunks_exact_mut(8).enumerate() {
        let value = if at == 0 { HINT_HEADER_LEN } else { end };
        offset.copy_from_slice(&(value as u64).to_le_bytes());
    }
    fit_blocks(&mut bytes[HINT_HEADER_LEN..end]);
    let crc_at = HINT_HEADER_LEN - 4;
    let crc = crc32c(&bytes[..crc_at]);
    bytes[crc_at..HINT_HEADER_LEN].copy_from_slice(&crc.to_le_bytes());
}

fn fit_blocks(mut bytes: &mut [u8]) {
    while bytes.len() > BLOCK_HEADER_LEN {
        let (header, rest) = bytes.split_at_mut(BLOCK_HEADER_LEN);
        let wanted = usize::from(header[0]) | usize::from(header[1]) << 8;
        let len = wanted.clamp(1, rest.len());
        let (block, rest) = rest.split_at_mut(len);
        header[..4].copy_from_slice(&(len as u32).to_le_bytes());
        header[4..8].copy_from_slice(&crc32c(block).to_le_bytes());
        bytes = rest;
    }
}

fn fit_manifest(bytes: &mut Vec<u8>) {
    let good = Manifest {
        store_id: STORE,
        hash_key: HASH_KEY,
        purpose: Purpose::Database,
        index: IndexKind::Hash,
        shards: 1,
        next_segment: 2,
        next_seq: 1,
        first_seq: 1,
        segments: BTreeMap::new(),
        tails: BTreeSet::new(),
    };
    let head = good.encode();
    // Sometimes of the first version.
    let is_old = bytes.get(8).is_some_and(|version| *version == 1);
    for (byte, good) in bytes.iter_mut().zip(&head[..12]) {
        *byte = *good;
    }
    if is_old {
        bytes[8] = 1;
    }
    let crc = crc32c(bytes);
    bytes.extend_from_slice(&crc.to_le_bytes());
}
