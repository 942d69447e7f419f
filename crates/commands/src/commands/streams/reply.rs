//! Entries and IDs in replies.

use tierce_collections::stream::{Entry, StreamId, deliveries_in_redis};
use tierce_keyspace::IntText;

use crate::reply::Reply;

/// Writes an ID.
pub(super) fn id(reply: &mut Reply<'_>, id: StreamId) {
    /// Two numbers of twenty digits and a dash.
    const LEN_MAX: usize = 41;
    let (mut ms, mut seq) = (itoa::Buffer::new(), itoa::Buffer::new());
    let (ms, seq) = (ms.format(id.ms).as_bytes(), seq.format(id.seq).as_bytes());
    let mut text = [b'-'; LEN_MAX];
    let len = ms.len() + 1 + seq.len();
    text[..ms.len()].copy_from_slice(ms);
    text[ms.len() + 1..len].copy_from_slice(seq);
    reply.bulk(&text[..len]);
}

/// Writes a number of deliveries.
pub(super) fn deliveries(reply: &mut Reply<'_>, deliveries: u32) {
    reply.int(deliveries_in_redis(deliveries) as i64);
}

/// Writes an entry: its ID, and alternating names and values.
pub(super) fn entry(reply: &mut Reply<'_>, entry: &Entry<'_>) {
    reply.array(2);
    parts(reply, entry);
}

/// Writes an entry with its idle time and its number of deliveries.
pub(super) fn delivered(reply: &mut Reply<'_>, entry: &Entry<'_>, idle_ms: u64, count: u32) {
    reply.array(4);
    parts(reply, entry);
    reply.int(idle_ms as i64);
    deliveries(reply, count);
}

fn parts(reply: &mut Reply<'_>, entry: &Entry<'_>) {
    let fields = entry.fields();
    id(reply, entry.id);
    reply.array(2 * fields.len());
    let mut text = IntText::new();
    for (name, value) in fields {
        reply.bulk(name.bytes(&mut text));
        reply.bulk(value.bytes(&mut text));
    }
}

/// Writes an array of entries. It visits them twice, since a reply begins with their number.
pub(super) fn entries<'s>(reply: &mut Reply<'_>, entries: impl Iterator<Item = Entry<'s>> + Clone) {
    reply.array(entries.clone().count());
    entries.for_each(|each| entry(reply, &each));
}

/// Returns the bytes that [`entry`] writes.
pub(super) fn entry_bytes(entry: &Entry<'_>) -> usize {
    let digits = |len: usize| len.checked_ilog10().unwrap_or(0) as usize + 1;
    // A sign, the length and the end of the line. A text has another end of line.
    let array = |len: usize| 3 + digits(len);
    let bulk = |len: usize| array(len) + len + 2;
    let (fields, mut text) = (entry.fields(), IntText::new());
    let heads = array(2) + bulk(entry.id.to_string().len()) + array(2 * fields.len());
    let texts = fields.flat_map(|(name, value)| [name, value]);
    heads + texts.map(|it| bulk(it.bytes(&mut text).len())).sum::<usize>()
}
