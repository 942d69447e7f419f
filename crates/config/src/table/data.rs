//! Encodings of collections. OBJECT ENCODING shows the effect of the thresholds.

use super::super::directive::{Directive, row};
use super::super::kind::{BYTES, INT_MAX, Kind, LONG};

#[rustfmt::skip]
pub(super) const ROWS: &[Directive] = &[
    row("hash-max-listpack-entries", LONG, "512",
        "Fields of a hash that is stored in one block.")
        .alias("hash-max-ziplist-entries"),
    row("hash-max-listpack-value", BYTES, "64",
        "Bytes of a field or value of a hash that is stored in one block.")
        .alias("hash-max-ziplist-value"),
    row("list-max-listpack-size", Kind::Int(i32::MIN as i64, INT_MAX), "-2",
        "Elements of a block of a list; -1 to -5 mean blocks of 4, 8, 16, 32 or 64 KiB.")
        .alias("list-max-ziplist-size"),
    row("set-max-intset-entries", LONG, "512",
        "Elements of a set of integers that is stored in one block."),
    row("set-max-listpack-entries", LONG, "128",
        "Elements of a set that is stored in one block."),
    row("set-max-listpack-value", BYTES, "64",
        "Bytes of an element of a set that is stored in one block."),
    row("zset-max-listpack-entries", LONG, "128",
        "Elements of a sorted set that is stored in one block.")
        .alias("zset-max-ziplist-entries"),
    row("zset-max-listpack-value", BYTES, "64",
        "Bytes of an element of a sorted set that is stored in one block.")
        .alias("zset-max-ziplist-value"),
    row("hll-sparse-max-bytes", BYTES, "3000",
        "Maximum bytes of a HyperLogLog in sparse form."),
    row("stream-node-max-bytes", BYTES, "4096",
        "Bytes of a block of a stream. 0: no limit."),
    row("stream-node-max-entries", LONG, "100",
        "Entries of a block of a stream. 0: no limit."),
    row("stream-idmp-duration", Kind::Int(1, 86_400), "100",
        "Seconds for which a stream knows the messages of XADD IDMP, unless XCFGSET has set another time. Streams keep \
         the value at their first such message."),
    row("stream-idmp-maxsize", Kind::Int(1, 10_000), "100",
        "Messages of XADD IDMP that a stream knows of each producer, unless XCFGSET has set another number. Streams \
         keep the value at their first such message."),
];
