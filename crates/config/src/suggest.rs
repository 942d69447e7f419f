//! Suggestions for unknown names.

/// Returns the most similar name. About a third of `wrong` may be different.
pub(super) fn suggest<'a>(wrong: &[u8], names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    /// Longest name to compare. Longer ones are not typing errors, and the comparison takes quadratic time.
    const LEN_MAX: usize = 64;
    if wrong.len() > LEN_MAX {
        return None;
    }
    let wrong = String::from_utf8_lossy(wrong).to_ascii_lowercase();
    let allowed = (wrong.len() / 3).clamp(1, 4);
    names
        .map(|name| (strsim::osa_distance(&wrong, name), name))
        .filter(|&(distance, _)| distance <= allowed)
        .min_by_key(|&(distance, _)| distance)
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::suggest;

    #[test]
    fn the_nearest_name_is_suggested_if_it_is_near() {
        let names = ["port", "timeout", "maxmemory", "maxclients"];
        let check = |wrong: &str| suggest(wrong.as_bytes(), names.into_iter());
        assert_eq!(check("PROT"), Some("port"));
        assert_eq!(check("por\u{ff}"), Some("port"));
        assert_eq!(check("max-memory"), Some("maxmemory"));
        assert_eq!(check("time-out"), Some("timeout"));
        assert_eq!(check("x"), None);
        assert_eq!(check("completely-different"), None);
        assert_eq!(check(&"port".repeat(100)), None);
    }
}
