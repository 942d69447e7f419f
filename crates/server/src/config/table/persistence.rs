//! What is kept on disk.

use super::super::directive::{Directive, row};
use super::super::kind::{Invalid, Kind};
use super::super::value::Value;
use super::{BYTES, COUNT_OR_SIZE};
use crate::persistence::is_own_name;

#[rustfmt::skip]
pub(super) const ROWS: &[Directive] = &[
    row("dir", Kind::Directory, "tierce-data",
        "Directory of the data. A relative path starts where the server is started.")
        .redis(".").protected(),
    row("save", Kind::SavePoints, "",
        "Take a snapshot after so many seconds with so many changes. Empty: never.")
        .redis("3600 1 300 100 60 10000"),
    row("dbfilename", Kind::Text, "dump.rdb",
        "Name of the snapshot in `dir`.")
        .protected().checked(snapshot_name),
    row("appendonly", Kind::Bool, "yes",
        "Log every write, so that it survives a crash. Without, data is in memory only.")
        .redis("no"),
    row("appendfsync", Kind::Word(&["everysec", "always", "no"]), "everysec",
        "When the log reaches the disk: once a second, before each reply, or when the kernel likes. \
         Whatever is said here, what was replied to survives the death of the process."),
    row("appendfilename", Kind::Text, "appendonly.aof",
        "First part of the names of the log's files in Redis.")
        .before_start().later().checked(log_name),
    row("appenddirname", Kind::Text, "appendonlydir",
        "Directory of the log's files in Redis, inside `dir`.")
        .before_start().later().checked(log_directory),
    row("no-appendfsync-on-rewrite", Kind::Bool, "no",
        "Do not sync the log while it is rewritten.")
        .later(),
    row("auto-aof-rewrite-percentage", COUNT_OR_SIZE, "100",
        "Growth of the log, in percent of its size after the last compaction, or of what the data take \
         in memory if that is more, that starts the next one. 0: never by itself."),
    row("auto-aof-rewrite-min-size", BYTES, "64mb",
        "Size of the log below which it is not compacted by itself."),
    row("compaction-bytes-per-second", BYTES, "32mb",
        "What compaction of the log may write in a second. 0: no limit."),
    row("aof-load-truncated", Kind::Bool, "yes",
        "Start with a log whose end is torn, after cutting it off.")
        .later(),
    row("aof-use-rdb-preamble", Kind::Bool, "yes",
        "Start a rewritten log with a snapshot.")
        .later(),
    row("aof-timestamp-enabled", Kind::Bool, "no",
        "Note the time in the log, to be able to restore a moment.")
        .later(),
    row("aof-rewrite-incremental-fsync", Kind::Bool, "yes",
        "Sync a rewritten log piece by piece.")
        .later(),
    row("aof-disable-auto-gc", Kind::Bool, "no",
        "Keep files of the log that a rewrite has made useless.")
        .later(),
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
        .later(),
    row("sanitize-dump-payload", Kind::Word(&["no", "yes", "clients"]), "no",
        "Check payloads of RESTORE and snapshots deeply: never, always, or if clients send them.")
        .later(),
    row("loading-process-events-interval-bytes", Kind::Int(1024, i32::MAX as i64), "2097152",
        "Bytes to load before clients are looked after.")
        .hidden().later(),
    row("key-load-delay", Kind::Int(i32::MIN as i64, i32::MAX as i64), "0",
        "Microseconds to wait after loading a key.")
        .hidden().later(),
    row("rdb-key-save-delay", Kind::Int(i32::MIN as i64, i32::MAX as i64), "0",
        "Microseconds to wait after saving a key.")
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
