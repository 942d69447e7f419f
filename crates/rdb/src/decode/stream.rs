//! Streams: entries in listpacks, then metadata, then groups.
//!
//! A listpack begins with a master entry. Its ID is stored outside the listpack. Entries with the same field names
//! refer to its fields. Entry IDs are stored as differences from the master's ID.
//!
//! Redundant data must agree: counts of entries and elements, the last ID, names of groups and consumers, and
//! pending entries.

use std::collections::{HashMap, HashSet};
use std::io::Read;
use std::sync::Arc;

use crate::decode::time_ms;
use crate::error::{Error, Result};
use crate::format::Encoding;
use crate::input::Input;
use crate::packed::{Items, Malformed, Packing};
use crate::value::{Consumer, Group, Pending, StreamEntry, StreamId, StreamState, ValuePart};

/// Flags of an entry in a listpack.
const DELETED: i64 = 1;
const SAME_FIELDS: i64 = 2;

pub(super) fn stream<R: Read, E: From<Error>>(
    input: &mut Input<R>,
    encoding: Encoding,
    visit: &mut impl FnMut(ValuePart<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let mut pack = Vec::new();
    let (mut previous, mut len) = (None, 0);
    for _ in 0..input.length("the number of listpacks of a stream")? {
        input.string(&mut pack, "the identity of a listpack of a stream")?;
        let expected = "an identity of 16 bytes";
        let id = pack.as_slice().try_into().map_err(|_| input.corrupt(expected))?;
        let master = id_from_bytes(id);
        input.string(&mut pack, "a listpack of a stream")?;
        let end = input.offset();
        entries(&pack, master, end, &mut |entry| {
            if previous.replace(entry.id).is_some_and(|previous| previous >= entry.id) {
                let expected = "stream entries in ascending order before it";
                return Err(Error::Corrupt { offset: end, expected }.into());
            }
            len += 1;
            visit(ValuePart::StreamEntry(entry))
        })?;
    }
    let (state, announced) = state(input, encoding)?;
    if announced != len {
        return Err(input.corrupt("the number of entries that a stream has").into());
    }
    if previous.is_some_and(|last| last > state.last_id) {
        return Err(input.corrupt("a last identity not below that of an entry").into());
    }
    visit(ValuePart::StreamState(&state))?;
    let mut names = HashSet::new();
    for _ in 0..input.length("the number of groups of a stream")? {
        let group = group(input, encoding)?;
        visit(ValuePart::Group(&group))?;
        if !names.insert(group.name) {
            return Err(input.corrupt("a group of a name of its own").into());
        }
    }
    Ok(())
}

/// Decodes an ID as stored in keys and in lists of pending entries.
fn id_from_bytes(bytes: [u8; 16]) -> StreamId {
    let number = u128::from_be_bytes(bytes);
    StreamId { ms: (number >> 64) as u64, seq: number as u64 }
}

/// Visits the entries of a listpack that are not deleted.
fn entries<E: From<Error>>(
    pack: &[u8],
    master: StreamId,
    end: u64,
    visit: &mut impl FnMut(&StreamEntry) -> Result<(), E>,
) -> Result<(), E> {
    let expected = "a well-formed listpack of stream entries before it";
    let blame = |Malformed| Error::Corrupt { offset: end, expected };
    let mut items = Items::new(Packing::Listpack, pack).map_err(blame)?;
    let Master { mut valid, mut deleted, names } = master_entry(&mut items).map_err(blame)?;
    let mut entry = StreamEntry::default();
    while let Some(flags) = items.next() {
        let flags = flags.and_then(|flags| flags.integer().ok_or(Malformed)).map_err(blame)?;
        read_entry(&mut items, flags, master, &names, &mut entry).map_err(blame)?;
        if flags & DELETED == 0 {
            valid = valid.checked_sub(1).ok_or(Malformed).map_err(blame)?;
            visit(&entry)?;
        } else {
            deleted = deleted.checked_sub(1).ok_or(Malformed).map_err(blame)?;
        }
    }
    if valid == 0 && deleted == 0 { Ok(()) } else { Err(blame(Malformed).into()) }
}

/// Master entry of a listpack.
struct Master {
    valid: u64,
    deleted: u64,
    /// Field names, which entries may share.
    names: Vec<Arc<[u8]>>,
}

/// Reads the master entry: numbers of valid and of deleted entries, number of fields, their names, 0.
fn master_entry(items: &mut Items<'_>) -> Result<Master, Malformed> {
    let (valid, deleted) = (number(items)?, number(items)?);
    let mut names = Vec::new();
    for _ in 0..number(items)? {
        names.push(string(items)?.into());
    }
    if integer(items)? == 0 { Ok(Master { valid, deleted, names }) } else { Err(Malformed) }
}

/// Reads an entry: the ID's differences, the fields, and the number of elements of the entry.
fn read_entry(
    items: &mut Items<'_>,
    flags: i64,
    master: StreamId,
    names: &[Arc<[u8]>],
    entry: &mut StreamEntry,
) -> Result<(), Malformed> {
    // Differences wrap around, as they do in Redis.
    entry.id.ms = master.ms.wrapping_add(integer(items)? as u64);
    entry.id.seq = master.seq.wrapping_add(integer(items)? as u64);
    entry.fields.clear();
    // Flags, the two differences and the fields; then the number of these elements.
    let elements = if flags & SAME_FIELDS != 0 {
        for name in names {
            entry.fields.push((Arc::clone(name), string(items)?));
        }
        3 + entry.fields.len()
    } else {
        for _ in 0..number(items)? {
            entry.fields.push((string(items)?.into(), string(items)?));
        }
        4 + 2 * entry.fields.len()
    };
    if number(items)? == elements as u64 { Ok(()) } else { Err(Malformed) }
}

fn integer(items: &mut Items<'_>) -> Result<i64, Malformed> {
    items.expect()?.integer().ok_or(Malformed)
}

/// Reads an integer that is a count.
fn number(items: &mut Items<'_>) -> Result<u64, Malformed> {
    u64::try_from(integer(items)?).map_err(|_| Malformed)
}

fn string(items: &mut Items<'_>) -> Result<Vec<u8>, Malformed> {
    Ok(items.expect()?.bytes(&mut itoa::Buffer::new()).to_vec())
}

fn id<R: Read>(input: &mut Input<R>, expected: &'static str) -> Result<StreamId> {
    Ok(StreamId { ms: input.length(expected)?, seq: input.length(expected)? })
}

/// Reads the metadata of a stream, and the expected number of entries.
fn state<R: Read>(input: &mut Input<R>, encoding: Encoding) -> Result<(StreamState, u64)> {
    let len = input.length("the length of a stream")?;
    let last_id = id(input, "the last identity of a stream")?;
    if encoding == Encoding::Stream {
        return Ok((StreamState { last_id, entries_added: len, ..StreamState::default() }, len));
    }
    // The first ID is the ID of the first entry, so it is not needed.
    id(input, "the first identity of a stream")?;
    let max_deleted_id = id(input, "the highest deleted identity of a stream")?;
    let entries_added = input.length("how many entries were added to a stream")?;
    Ok((StreamState { last_id, max_deleted_id, entries_added }, len))
}

fn group<R: Read>(input: &mut Input<R>, encoding: Encoding) -> Result<Group> {
    let name = input.owned_string("the name of a group")?;
    let last_delivered = id(input, "the last identity that a group got")?;
    let entries_read = match encoding {
        Encoding::Stream => None,
        // All bits set mean that the number is unknown.
        _ => Some(input.length("how much a group has read")?).filter(|&read| read != u64::MAX),
    };
    let mut pending = pending(input)?;
    let (mut consumers, mut names) = (Vec::new(), HashSet::new());
    for _ in 0..input.length("the number of consumers")? {
        let consumer = consumer(input, encoding, &mut pending)?;
        if !names.insert(consumer.name.clone()) {
            return Err(input.corrupt("a consumer of a name of its own"));
        }
        consumers.push(consumer);
    }
    if !pending.is_empty() {
        return Err(input.corrupt("a consumer for each pending entry before it"));
    }
    let lacks_entries_read = encoding == Encoding::Stream;
    Ok(Group { name, last_delivered, entries_read, lacks_entries_read, consumers })
}

/// Reads the pending entries of a group. Its consumers then refer to them.
fn pending<R: Read>(input: &mut Input<R>) -> Result<HashMap<StreamId, Pending>> {
    let mut pending = HashMap::new();
    for _ in 0..input.length("the number of pending entries")? {
        let id = id_from_bytes(input.array("the identity of a pending entry")?);
        let delivered_ms = time_ms(input, "the time of a delivery")?;
        let deliveries = input.length("the number of deliveries")?;
        if pending.insert(id, Pending { id, delivered_ms, deliveries }).is_some() {
            return Err(input.corrupt("an entry that was not pending before"));
        }
    }
    Ok(pending)
}

fn consumer<R: Read>(
    input: &mut Input<R>,
    encoding: Encoding,
    unclaimed: &mut HashMap<StreamId, Pending>,
) -> Result<Consumer> {
    let name = input.owned_string("the name of a consumer")?;
    let seen_ms = time_ms(input, "when a consumer was seen")?;
    let active_ms = match encoding {
        Encoding::Stream3 => {
            let ms = i64::from_le_bytes(input.array("when a consumer was active")?);
            u64::try_from(ms).ok()
        }
        // The best estimate, and Redis' own.
        _ => Some(seen_ms),
    };
    let mut pending = Vec::new();
    for _ in 0..input.length("the number of a consumer's pending entries")? {
        let id = id_from_bytes(input.array("the identity of a pending entry")?);
        let expected = "an entry pending in the group and with no other consumer";
        pending.push(unclaimed.remove(&id).ok_or_else(|| input.corrupt(expected))?);
    }
    Ok(Consumer { name, seen_ms, active_ms, pending })
}
