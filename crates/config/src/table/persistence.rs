//! Persistence.

use super::super::directive::{Directive, row};
use super::super::kind::{BYTES, COUNT_OR_SIZE, Invalid, Kind};
use super::super::own_names::is_own_name;
use super::super::value::Value;

#[rustfmt::skip]
pub(super) const ROWS: &[Directive] = &[
    row("dir", Kind::Directory, "tierce-data",
        "Directory of the data. A relative path starts where the server is started.")
        .redis(".").protected(),
    row("save", Kind::SavePoints, "",
        "Take a snapshot after this many seconds with this many changes, and when the server ends. Empty: never. A \
         file with `appendonly no` and no `save` line has Redis' save points.")
        .redis("3600 1 300 100 60 10000"),
    row("dbfilename", Kind::Text, "dump.rdb",
        "Name of the snapshot in `dir`.")
        .protected().checked(snapshot_name),
    row("appendonly", Kind::Bool, "yes",
        "Log every write, so that it survives a crash. `no`: data is in memory only.")
        .redis("no"),
    row("appendfsync", Kind::Word(&["everysec", "always", "no", "bucket"]), "everysec",
        "When the log is synced to disk: once a second, before each reply, or when the kernel decides. `bucket`: replies \
         wait for the log in the `bucket`. With any value, acknowledged writes survive the death of the process."),
    row("appendfilename", Kind::Text, "appendonly.aof",
        "First part of the names of Redis' append-only files, which an empty log imports at the start.")
        .before_start().checked(log_name),
    row("appenddirname", Kind::Text, "appendonlydir",
        "Directory of those files of Redis, inside `dir`.")
        .before_start().checked(log_directory),
    row("auto-aof-rewrite-percentage", COUNT_OR_SIZE, "100",
        "Growth of the log that starts a compaction, in percent of its size after the last one, or of the data's size \
         in memory if that is more. 0: no automatic compaction."),
    row("auto-aof-rewrite-min-size", BYTES, "64mb",
        "Size of the log below which it is not compacted automatically."),
    row("compaction-bytes-per-second", BYTES, "32mb",
        "Bytes that compaction of the log may write in a second. 0: no limit.")
        .own("0.1.0"),
    row("aof-load-truncated", Kind::Bool, "yes",
        "Import an append-only file of Redis with a torn end, without the torn command. A torn end of Tierce's own \
         log is always truncated."),
    row("skip-unsupported", Kind::Bool, "no",
        "Skip what this version does not support in files of Redis (module values and data, function libraries for another \
         engine than Lua), and log it. `no`: such a file ends the start.")
        .own("0.1.0")
        .before_start(),
    row("aof-timestamp-enabled", Kind::Bool, "no",
        "Write timestamps into the log, for restoring the data of a moment.")
        .refused(&[],
            "the log holds no times to go back to; BACKUP keeps the state of a moment"),
    row("aof-disable-auto-gc", Kind::Bool, "no",
        "Keep files of the log that a rewrite has made obsolete.")
        .refused(&[],
            "compaction removes old parts of the log; BACKUP keeps the state of a moment"),
    row("stop-writes-on-bgsave-error", Kind::Bool, "yes",
        "Refuse writes after a snapshot has failed."),
    row("rdbcompression", Kind::Bool, "yes",
        "Compress texts in snapshots."),
    row("rdbchecksum", Kind::Bool, "yes",
        "End a snapshot with a checksum and verify it on loading.")
        .before_start(),
    row("rdb-save-incremental-fsync", Kind::Bool, "yes",
        "Sync a snapshot piece by piece."),
    row("rdb-del-sync-files", Kind::Bool, "no",
        "Delete snapshots that were only made for replication.")
        .accepted("No snapshots are made for replication."),
    row("rdb-key-save-delay", Kind::Int(i32::MIN as i64, i32::MAX as i64), "0",
        "Microseconds to wait after saving a key.")
        .hidden(),
    row("key-load-delay", Kind::Int(i32::MIN as i64, i32::MAX as i64), "0",
        "Microseconds to wait after loading a key, or a record of the log, at the start.")
        .hidden(),
];

fn snapshot_name(value: &Value) -> Result<(), Invalid> {
    const REASON: &str = "dbfilename can't be a path, just a filename";
    not_a_path(value, REASON)?;
    match value {
        Value::Text(name) if matches!(&name[..], b"" | b"." | b"..") => Err(Invalid::new(REASON)),
        Value::Text(name) if is_own_name(name) => {
            Err(Invalid::new("dbfilename can't be a name of the server's own files"))
        }
        _ => Ok(()),
    }
}

fn log_name(value: &Value) -> Result<(), Invalid> {
    not_empty(value, "appendfilename can't be empty")?;
    not_a_path(value, "appendfilename can't be a path, just a filename")
}

fn log_directory(value: &Value) -> Result<(), Invalid> {
    not_empty(value, "appenddirname can't be empty")?;
    not_a_path(value, "appenddirname can't be a path, just a dirname")
}

fn not_empty(value: &Value, reason: &'static str) -> Result<(), Invalid> {
    match value {
        Value::Text(text) if text.is_empty() => Err(Invalid::new(reason)),
        _ => Ok(()),
    }
}

fn not_a_path(value: &Value, reason: &'static str) -> Result<(), Invalid> {
    match value {
        Value::Text(text) if text.contains(&b'/') => Err(Invalid::new(reason)),
        _ => Ok(()),
    }
}
