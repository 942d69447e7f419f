//! Bodies of the fuzz targets. The targets in `fuzz/` pass a fuzzer's input, the test `fuzz_smoke` passes seeded
//! random bytes, so both run the same checks.
//!
//! Each function panics when a guarantee of this crate is violated. Not part of the crate's interface.

use std::collections::HashSet;
use std::io::Read;

use crate::aof::{self, Item, Manifest};
use crate::testing::Value;
use crate::{
    Attributes, Entry, Error, Event, Reader, Result, VERSION_REDIS_7_4, Writer, WriterOptions,
    crc64, dump, functions,
};

/// Options that preserve every value completely.
const OPTIONS: WriterOptions = WriterOptions {
    version: VERSION_REDIS_7_4,
    compression: true,
    checksum: true,
    leave_out_unknown: false,
};

/// A reader that returns a few bytes at a time.
struct ChunkReader<'a>(&'a [u8], usize);

impl Read for ChunkReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let len = self.1.min(buffer.len());
        self.0.read(&mut buffer[..len])
    }
}

/// Sorts unordered parts, so that values can be compared.
pub fn canonical(mut value: Value) -> Value {
    match &mut value {
        Value::Set(members) => members.sort(),
        Value::Hash(fields) => fields.sort_by(|a, b| (&a.name, &a.value).cmp(&(&b.name, &b.value))),
        Value::SortedSet(members) => {
            members.sort_by(|(a, x), (b, y)| a.cmp(b).then(x.total_cmp(y)));
        }
        // The written encoding always has this field, so it is present when read again.
        Value::Stream(stream) => {
            stream.groups.iter_mut().for_each(|group| group.lacks_entries_read = false);
        }
        Value::String(_) | Value::List(_) => {}
    }
    value
}

/// Reads all keys up to the end or an error, which may be a wrong checksum.
fn entries(reader: impl Read) -> (Vec<(Entry, Value)>, Option<String>) {
    let mut entries = Vec::new();
    let error = read(reader, &mut entries).err().map(|error| error.to_string());
    (entries, error)
}

fn read(reader: impl Read, entries: &mut Vec<(Entry, Value)>) -> Result<()> {
    let mut reader = Reader::new(reader)?;
    while let Some(event) = reader.next_event()? {
        if let Event::Entry(entry) = event {
            match Value::read(entry.kind(), |add| reader.visit_value(add)) {
                Ok(value) => entries.push((entry, value)),
                Err(Error::Module { .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

/// Returns true if a key can have this value: a collection that has elements, none of them twice. The decoder does
/// not check that, as it keeps no elements; the keyspace does.
fn is_whole(value: &Value) -> bool {
    fn differ<'a>(mut names: impl Iterator<Item = &'a [u8]>) -> bool {
        let mut seen = HashSet::new();
        names.all(|name| seen.insert(name)) && !seen.is_empty()
    }
    match value {
        Value::Set(members) => differ(members.iter().map(Vec::as_slice)),
        Value::Hash(fields) => differ(fields.iter().map(|field| &*field.name)),
        Value::SortedSet(members) => differ(members.iter().map(|(member, _)| &**member)),
        Value::List(elements) => !elements.is_empty(),
        Value::String(_) | Value::Stream(_) => true,
    }
}

/// Checks that keys and errors do not depend on how the input arrives, and that accepted values stay the same when
/// they are written and read again.
pub fn rdb_file(data: &[u8]) {
    let (mut found, error) = entries(data);
    let piece = 1 + data.len() % 7;
    let pieces = entries(ChunkReader(data, piece));
    assert_eq!(format!("{pieces:?}"), format!("{:?}", (&found, error)));

    found.retain(|(_, value)| is_whole(value));
    let mut writer = Writer::new(Vec::new(), OPTIONS).expect("a vector takes everything");
    for (entry, value) in &found {
        let written = value.write(writer.entry(&entry.key, &entry.attributes));
        written.expect("a vector takes everything");
    }
    let file = writer.finish().expect("a vector takes everything");
    let (again, error) = entries(&file[..]);
    assert_eq!((again.len(), error), (found.len(), None));
    for ((entry, value), (entry_again, value_again)) in found.into_iter().zip(again) {
        assert_eq!((entry.key, entry.attributes), (entry_again.key, entry_again.attributes));
        assert_eq!(canonical(value), canonical(value_again));
    }
}

/// Checks that payloads are read or refused, with their own checksum and with a valid one, and that values survive
/// a round trip.
pub fn dump_payload(data: &[u8]) {
    let raw = dump::Payload::parse(data).is_ok();
    let summed = [data, &10_u16.to_le_bytes()].concat();
    let payload = [&summed[..], &crc64(0, &summed).to_le_bytes()].concat();
    let payload = dump::Payload::parse(&payload).ok();
    let value = payload.and_then(|payload| Value::of_payload(&payload).ok());
    if let Some(value) = value.filter(is_whole) {
        let written = dump::encode(OPTIONS, |writer| value.write(writer));
        let written = written.expect("a vector takes everything");
        let again = dump::Payload::parse(&written).expect("its own payload");
        let again = Value::of_payload(&again).expect("its own payload");
        assert_eq!(canonical(again), canonical(value));
    }
    if !raw {
        let string = dump::encode(OPTIONS, |writer| writer.string(data));
        let string = string.expect("a vector takes everything");
        let again = dump::Payload::parse(&string).expect("its own payload").string();
        assert_eq!(again.expect("its own payload"), Some(data.to_vec()));
    }
}

/// Checks that libraries are read or refused, within their limit, and survive a round trip.
pub fn functions_payload(data: &[u8]) {
    const BYTES_MAX: usize = 1 << 16;
    let decode = |payload: &[u8]| -> Option<Vec<Vec<u8>>> {
        functions::decode(payload, BYTES_MAX).ok()?.collect::<Result<_, _>>().ok()
    };
    let _ = decode(data);
    let summed = [data, &10_u16.to_le_bytes()].concat();
    let payload = [&summed[..], &crc64(0, &summed).to_le_bytes()].concat();
    let Some(libraries) = decode(&payload) else { return };
    assert!(libraries.iter().map(Vec::len).sum::<usize>() <= BYTES_MAX);
    let again = functions::encode(OPTIONS, libraries.iter().map(Vec::as_slice));
    let again = again.expect("a vector takes everything");
    assert_eq!(decode(&again), Some(libraries));
}

/// Checks that the complete part of a truncated file can be read without an error and gives the same items, and
/// that a manifest survives a round trip.
pub fn aof_file(data: &[u8]) {
    let (items, whole, truncated) = items(data);
    assert!(whole <= data.len() as u64);
    if truncated && whole > 0 {
        let (kept, whole_again, truncated) = self::items(&data[..whole as usize]);
        assert_eq!((whole_again, truncated), (whole, false));
        assert_eq!(kept, items[..kept.len()]);
    }
    if let Ok(manifest) = Manifest::parse(data) {
        assert_eq!(Manifest::parse(manifest.to_text().as_bytes()), Ok(manifest));
    }
}

fn items(data: &[u8]) -> (Vec<Item>, u64, bool) {
    let mut items = Vec::new();
    let Ok(mut reader) = aof::Reader::new(data) else { return (items, 0, false) };
    loop {
        match reader.next_item() {
            Ok(Some(item)) => items.push(item),
            Ok(None) => return (items, reader.complete_up_to(), false),
            Err(Error::Truncated { .. }) => return (items, reader.complete_up_to(), true),
            Err(_) => return (items, reader.complete_up_to(), false),
        }
    }
}

/// Returns a file with a value of each kind, as a seed for mutations.
pub fn sample(values: &[Value]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), OPTIONS).expect("a vector takes everything");
    for (n, value) in values.iter().enumerate() {
        let attributes = Attributes { expiry_ms: Some(n as u64), ..Attributes::default() };
        let written = value.write(writer.entry(&[n as u8], &attributes));
        written.expect("a vector takes everything");
    }
    writer.finish().expect("a vector takes everything")
}
