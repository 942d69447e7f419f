//! Directives in the environment: `TIERCE_MAXMEMORY=1gb`. Underscores stand for dashes.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use super::origin::{Assignment, Origin, VARIABLE_PREFIX};

/// Returns the variables that name directives, sorted by name.
///
/// A value is one argument, even with blanks or quotes in it, as with CONFIG SET.
pub(super) fn read(variables: impl IntoIterator<Item = (OsString, OsString)>) -> Vec<Assignment> {
    let mut assignments: Vec<Assignment> = variables
        .into_iter()
        .filter_map(|(name, value)| {
            let name = name.as_bytes().strip_prefix(VARIABLE_PREFIX.as_bytes())?;
            let dashed = |&byte: &u8| if byte == b'_' { b'-' } else { byte.to_ascii_lowercase() };
            Some(Assignment {
                name: name.iter().map(dashed).collect(),
                args: vec![value.into_vec()],
                origin: Origin::Environment,
            })
        })
        .collect();
    assignments.sort_by(|left, right| left.name.cmp(&right.name));
    assignments
}

#[cfg(test)]
mod tests {
    use super::read;

    #[test]
    fn names_lose_the_prefix_and_are_sorted() {
        let variables = [
            ("TIERCE_TCP_KEEPALIVE", "60"),
            ("PATH", "/bin"),
            ("TIERCE_SAVE", "60 1 \"x"),
            ("tierce_port", "1"),
        ];
        let assignments = read(variables.map(|(name, value)| (name.into(), value.into())));
        let names: Vec<&[u8]> = assignments.iter().map(|found| found.name.as_slice()).collect();
        assert_eq!(names, [&b"save"[..], b"tcp-keepalive"]);
        assert_eq!(assignments[0].args, [b"60 1 \"x"]);
        assert_eq!(assignments[1].to_string(), "TIERCE_TCP_KEEPALIVE");
    }
}
