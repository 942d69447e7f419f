//! Which name was meant by one that does not exist.

/// The name most like `wrong`, if any is like it at all: about a third of it may be different.
#[must_use]
pub(super) fn suggest<'a>(wrong: &[u8], names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    /// Nobody mistypes names as long as that, and the comparison takes quadratic time.
    const LEN_MAX: usize = 64;
    if wrong.len() > LEN_MAX {
        return None;
    }
    let wrong = wrong.to_ascii_lowercase();
    let allowed = (wrong.len() / 3).clamp(1, 4);
    names
        .map(|name| (edit_distance(&wrong, name.as_bytes()), name))
        .filter(|&(distance, _)| distance <= allowed)
        .min_by_key(|&(distance, _)| distance)
        .map(|(_, name)| name)
}

/// How many bytes have to be inserted, deleted, replaced, or swapped with their neighbour.
fn edit_distance(left: &[u8], right: &[u8]) -> usize {
    // Row `i` holds the distances of the first `i` bytes of `left` to all beginnings of `right`.
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=right.len()).collect();
    for (i, &byte) in left.iter().enumerate() {
        let mut row = Vec::with_capacity(right.len() + 1);
        row.push(i + 1);
        for (j, &other) in right.iter().enumerate() {
            let replaced = last[j] + usize::from(byte != other);
            let mut best = replaced.min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && byte == right[j - 1] && left[i - 1] == other {
                best = best.min(before_last[j - 1] + 1);
            }
            row.push(best);
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[right.len()]
}

#[cfg(test)]
mod tests {
    use super::{edit_distance, suggest};

    #[test]
    fn distances() {
        for (left, right, distance) in [
            ("", "", 0),
            ("", "abc", 3),
            ("port", "port", 0),
            ("prot", "port", 1),
            ("pot", "port", 1),
            ("max-memory", "maxmemory", 1),
            ("kitten", "sitting", 3),
        ] {
            assert_eq!(edit_distance(left.as_bytes(), right.as_bytes()), distance);
            assert_eq!(edit_distance(right.as_bytes(), left.as_bytes()), distance);
        }
    }

    #[test]
    fn the_nearest_name_is_suggested_if_it_is_near() {
        let names = ["port", "timeout", "maxmemory", "maxclients"];
        let check = |wrong: &str| suggest(wrong.as_bytes(), names.into_iter());
        assert_eq!(check("PROT"), Some("port"));
        assert_eq!(check("max-memory"), Some("maxmemory"));
        assert_eq!(check("time-out"), Some("timeout"));
        assert_eq!(check("x"), None);
        assert_eq!(check("completely-different"), None);
        assert_eq!(check(&"port".repeat(100)), None);
    }
}
