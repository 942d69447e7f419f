//! Names in a data directory that belong to the server.

/// Whether a file or directory of this name in a data directory is the server's, or may become so: logs and
/// what stands beside them, spilled values, snapshots that are being written. Without regard to case, as
/// some file systems compare names.
pub fn is_own_name(name: &[u8]) -> bool {
    let name = name.to_ascii_lowercase();
    let begins = |with: &[u8]| {
        name.strip_prefix(with).is_some_and(|rest| matches!(rest.first(), None | Some(b'-' | b'.')))
    };
    name == b"bucket.state"
        || begins(b"wal")
        || begins(b"cold")
        || name.starts_with(b"temp-") && name.ends_with(b".rdb")
}

#[cfg(test)]
mod tests {
    use super::is_own_name;

    #[test]
    fn names_of_the_server_itself() {
        for name in [
            "wal",
            "wal-2",
            "WAL-9.complete",
            "wal.importing",
            "cold",
            "cold-unlogged",
            "bucket.state",
            "temp-7.rdb",
        ] {
            assert!(is_own_name(name.as_bytes()), "{name}");
        }
        for name in ["dump.rdb", "wallet.rdb", "colder.rdb", "template.rdb", "temp-7"] {
            assert!(!is_own_name(name.as_bytes()), "{name}");
        }
    }
}
