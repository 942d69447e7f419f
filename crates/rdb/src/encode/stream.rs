//! Streams, in the layout that `crate::decode` describes.

use std::io::Write;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::format::Encoding;
use crate::output::Output;
use crate::packed::listpack::Builder;
use crate::value::{Consumer, Group, Pending, Stream, StreamEntry, StreamId};

/// Limits of a listpack, by Redis' defaults: `stream-node-max-entries`, `stream-node-max-bytes`.
const NODE_ENTRIES_MAX: usize = 100;
const NODE_LEN_MAX: usize = 4096;

const SAME_FIELDS: i64 = 2;

pub(super) fn write<W: Write>(
    output: &mut Output<W>,
    encoding: Encoding,
    stream: &Stream,
) -> Result<()> {
    output.length(Nodes(&stream.entries).count() as u64)?;
    for node in Nodes(&stream.entries) {
        output.string(&id_bytes(node[0].id))?;
        output.string(&pack(node)?)?;
    }
    output.length(stream.entries.len() as u64)?;
    put_id(output, stream.state.last_id)?;
    if encoding != Encoding::Stream {
        put_id(output, stream.entries.first().map_or(StreamId::default(), |entry| entry.id))?;
        put_id(output, stream.state.max_deleted_id)?;
        output.length(stream.state.entries_added)?;
    }
    output.length(stream.groups.len() as u64)?;
    stream.groups.iter().try_for_each(|group| put_group(output, encoding, group))
}

/// Splits entries into nodes. The sizes are estimates, and each node has at least one entry.
struct Nodes<'a>(&'a [StreamEntry]);

impl<'a> Iterator for Nodes<'a> {
    type Item = &'a [StreamEntry];

    fn next(&mut self) -> Option<&'a [StreamEntry]> {
        let mut len = 0;
        let mut fits = |entry: &StreamEntry| {
            let fields = entry.fields.iter();
            len += fields.map(|(name, value)| name.len() + value.len()).sum::<usize>();
            len <= NODE_LEN_MAX
        };
        let most = self.0.len().min(NODE_ENTRIES_MAX);
        let fitting = self.0[..most].iter().take_while(|entry| fits(entry)).count();
        let (node, rest) = self.0.split_at(fitting.max(1).min(most));
        self.0 = rest;
        (!node.is_empty()).then_some(node)
    }
}

/// Returns the listpack of some entries. The first entry provides the field names.
fn pack(entries: &[StreamEntry]) -> Result<Vec<u8>> {
    let mut builder = Builder::new();
    let master = &entries[0];
    builder.push_integer(entries.len() as i64);
    builder.push_integer(0);
    builder.push_integer(master.fields.len() as i64);
    master.fields.iter().for_each(|(name, _)| builder.push(name));
    builder.push_integer(0);
    for entry in entries {
        pack_entry(&mut builder, master, entry);
        let (len, max) = (builder.len() as u64, u32::MAX.into());
        if len >= max {
            return Err(Error::TooLarge { what: "an entry of a stream", len, max });
        }
    }
    Ok(builder.finish())
}

fn pack_entry(builder: &mut Builder, master: &StreamEntry, entry: &StreamEntry) {
    fn names(entry: &StreamEntry) -> impl Iterator<Item = &Arc<[u8]>> {
        entry.fields.iter().map(|(name, _)| name)
    }
    let same = names(master).eq(names(entry));
    let fields = entry.fields.len() as i64;
    builder.push_integer(if same { SAME_FIELDS } else { 0 });
    builder.push_integer(entry.id.ms.wrapping_sub(master.id.ms) as i64);
    builder.push_integer(entry.id.seq.wrapping_sub(master.id.seq) as i64);
    if !same {
        builder.push_integer(fields);
    }
    for (name, value) in &entry.fields {
        if !same {
            builder.push(name);
        }
        builder.push(value);
    }
    // Number of elements to go back to the flags.
    builder.push_integer(if same { fields + 3 } else { 2 * fields + 4 });
}

fn id_bytes(id: StreamId) -> [u8; 16] {
    (u128::from(id.ms) << 64 | u128::from(id.seq)).to_be_bytes()
}

fn put_id<W: Write>(output: &mut Output<W>, id: StreamId) -> Result<()> {
    output.length(id.ms)?;
    output.length(id.seq)
}

fn put_group<W: Write>(output: &mut Output<W>, encoding: Encoding, group: &Group) -> Result<()> {
    output.string(&group.name)?;
    put_id(output, group.last_delivered)?;
    if encoding != Encoding::Stream {
        output.length(group.entries_read.unwrap_or(u64::MAX))?;
    }
    let consumers = group.consumers.iter();
    let mut pending: Vec<&Pending> = consumers.flat_map(|consumer| &consumer.pending).collect();
    pending.sort_unstable_by_key(|pending| pending.id);
    output.length(pending.len() as u64)?;
    for pending in pending {
        output.put(&id_bytes(pending.id))?;
        output.put(&pending.delivered_ms.to_le_bytes())?;
        output.length(pending.deliveries)?;
    }
    output.length(group.consumers.len() as u64)?;
    group.consumers.iter().try_for_each(|consumer| put_consumer(output, encoding, consumer))
}

fn put_consumer<W: Write>(
    output: &mut Output<W>,
    encoding: Encoding,
    consumer: &Consumer,
) -> Result<()> {
    output.string(&consumer.name)?;
    output.put(&consumer.seen_ms.to_le_bytes())?;
    if encoding == Encoding::Stream3 {
        // `u64::MAX`, which is -1 as a signed number, means "never".
        output.put(&consumer.active_ms.unwrap_or(u64::MAX).to_le_bytes())?;
    }
    output.length(consumer.pending.len() as u64)?;
    consumer.pending.iter().try_for_each(|pending| output.put(&id_bytes(pending.id)))
}
