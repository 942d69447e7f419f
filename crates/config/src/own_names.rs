//! Names in a data directory that belong to the server.

/// Returns true if a file or directory with this name in a data directory belongs to the server, or may later: logs
/// and their side files, spilled values, unfinished snapshots. Ignores case, since some file systems do.
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
