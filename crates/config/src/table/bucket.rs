//! The log in a bucket of object storage.

use super::super::directive::{Directive, row};
use super::super::kind::Kind;

/// Size of the changes that the bucket does not have yet. With a lower limit, every write would wait for a put; with
/// 0, forever.
const LOG_MAX: Kind = Kind::Memory(64 << 10, i64::MAX as u64);

#[rustfmt::skip]
pub(super) const ROWS: &[Directive] = &[
    row("bucket", Kind::Text, "",
        "Location of a copy of the log in object storage: `s3://name/prefix`, `gs://`, `az://` or `file:///directory`. \
         An empty `dir` is restored from it. Empty: none. See docs/bucket.md.")
        .own("0.1.0").before_start(),
    row("bucket-claim", Kind::Word(&["orderly", "force"]), "orderly",
        "Condition for writing to the bucket: after an orderly end of the last owner or on its directory; or in any \
         case (`force`), if that owner is dead for good. `force` is for one start, not for a file.")
        .own("0.1.0").for_one_start(),
    row("bucket-takeover", Kind::Bool, "no",
        "With `yes`, another server with the same `bucket` takes over when this one is dead, stopped or cut off. Then nothing \
         is answered while the lease is over, as when the bucket is away for so long. The log keeps the value of its claim.")
        .own("0.1.0").before_start(),
    row("bucket-lease", Kind::Int(1, 3_600), "10",
        "Seconds for which an object of the log keeps others from taking over. Without writes, one is put each third of \
         this time with `bucket-takeover yes`.")
        .own("0.1.0").before_start(),
    row("bucket-interval", Kind::Int(10, 3_600_000), "1000",
        "Milliseconds between two objects of the log in the bucket: what the loss of the machine can cost.")
        .own("0.1.0"),
    row("bucket-log-max", LOG_MAX, "256mb",
        "Bytes of changes that may wait for the bucket while it does not answer. Beyond them, writes wait.")
        .own("0.1.0"),
    row("bucket-snapshot-interval", Kind::Int(1, 31_536_000), "86400",
        "Seconds after which the bucket gets a new snapshot, if anything has changed.")
        .own("0.1.0"),
    row("bucket-snapshot-percentage", Kind::Int(1, 100_000), "100",
        "Growth of the log in the bucket since its last snapshot, in percent of that, that brings a new one.")
        .own("0.1.0"),
    row("bucket-retention", Kind::Int(0, 36_500), "7",
        "Days that a restore can go back. Older objects are deleted from the bucket.")
        .own("0.1.0"),
];
