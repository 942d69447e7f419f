//! Bytes that this process has read from devices, by the kernel's account: proof that a cold phase was cold and a
//! warm one warm.

use std::fs;

/// Returns the number of bytes read from devices so far. It is 0 if the kernel was built without this account.
pub(super) fn device_bytes_read() -> u64 {
    parse(&fs::read_to_string("/proc/self/io").unwrap_or_default())
}

fn parse(io: &str) -> u64 {
    let value = io.lines().find_map(|line| line.strip_prefix("read_bytes:"));
    value.and_then(|value| value.trim().parse().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_account_is_read() {
        assert_eq!(parse("rchar: 5\nread_bytes: 4096\nwrite_bytes: 1\n"), 4096);
        assert_eq!(parse(""), 0);
    }
}
