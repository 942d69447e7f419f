//! Entries and IDs in replies.

use tierce_collections::stream::{Entry, StreamId};
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

/// Writes an entry: its ID, and alternating names and values.
pub(super) fn entry(reply: &mut Reply<'_>, entry: &Entry<'_>) {
    let fields = entry.fields();
    reply.array(2);
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
