//! Numbers of things in messages.

/// Returns the number with its noun, such as `1 key` or `2 keys`.
#[must_use]
pub fn count(number: impl TryInto<u64>, noun: &str) -> String {
    // No larger number of things exists.
    let number = number.try_into().unwrap_or(u64::MAX);
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

#[cfg(test)]
mod tests {
    use super::count;

    #[test]
    fn one_has_no_plural() {
        assert_eq!(
            [count(0, "key"), count(1u64, "key"), count(2, "key")],
            ["0 keys", "1 key", "2 keys"]
        );
    }
}
