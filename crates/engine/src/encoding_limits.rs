//! Configured size limits of the compact encodings of collections.

use tierce_collections::{ListLimits, PackedLimits, SetLimits, StreamLimits};
use tierce_keyspace::Limits;

use tierce_config::{DirectiveId, Settings};

const HASH: [DirectiveId; 2] = pair("hash-max-listpack-entries", "hash-max-listpack-value");
const LIST: DirectiveId = DirectiveId::of("list-max-listpack-size");
const INTEGERS: DirectiveId = DirectiveId::of("set-max-intset-entries");
const SET: [DirectiveId; 2] = pair("set-max-listpack-entries", "set-max-listpack-value");
const SORTED_SET: [DirectiveId; 2] = pair("zset-max-listpack-entries", "zset-max-listpack-value");
const STREAM_BYTES: DirectiveId = DirectiveId::of("stream-node-max-bytes");
const STREAM_ENTRIES: DirectiveId = DirectiveId::of("stream-node-max-entries");

/// Directives that [`configured`] reads.
pub const DIRECTIVES: [DirectiveId; 10] = [
    HASH[0],
    HASH[1],
    LIST,
    INTEGERS,
    SET[0],
    SET[1],
    SORTED_SET[0],
    SORTED_SET[1],
    STREAM_BYTES,
    STREAM_ENTRIES,
];

const fn pair(entries: &str, value: &str) -> [DirectiveId; 2] {
    [DirectiveId::of(entries), DirectiveId::of(value)]
}

/// Returns the configured limits.
pub fn configured(settings: &Settings) -> Limits {
    let packed = |[entries, value]: [DirectiveId; 2]| PackedLimits {
        entries_max: settings.count(entries) as usize,
        value_len_max: settings.bytes(value) as usize,
    };
    Limits {
        list: ListLimits::of_directive(settings.number(LIST)),
        set: SetLimits { integers_max: settings.count(INTEGERS) as usize, packed: packed(SET) },
        sorted_set: packed(SORTED_SET),
        hash: packed(HASH),
        stream: StreamLimits {
            node_bytes_max: settings.bytes(STREAM_BYTES) as usize,
            node_entries_max: settings.count(STREAM_ENTRIES) as usize,
        },
    }
}
