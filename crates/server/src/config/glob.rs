//! Patterns with `*`, `?`, `[a-z]`, `[^a-z]` and `\` as Redis and the shell know them.
//!
//! The time is at most the product of the two lengths: only the last `*` is ever retried, for
//! whatever an earlier one could match, the later one can match as well.

/// Whether upper and lower case are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Case {
    /// They differ.
    Exact,
    /// They are the same, in ASCII.
    Ignored,
}

/// Whether a text has to be matched as a pattern at all.
#[must_use]
pub(super) fn is_pattern(text: &[u8]) -> bool {
    text.iter().any(|byte| b"*?[".contains(byte))
}

/// Whether the whole text matches the pattern.
#[must_use]
pub(super) fn matches(mut pattern: &[u8], mut text: &[u8], case: Case) -> bool {
    // The pattern behind the last star, and the text from where that star has to take one more.
    let mut retry: Option<(&[u8], &[u8])> = None;
    loop {
        if let [b'*', behind @ ..] = pattern {
            retry = Some((behind, text));
            pattern = behind;
            continue;
        }
        if pattern.is_empty() && text.is_empty() {
            return true;
        }
        if let Some((rest, tail)) = match_one(pattern, text, case) {
            (pattern, text) = (rest, tail);
            continue;
        }
        match retry {
            Some((behind, [_, tail @ ..])) => {
                retry = Some((behind, tail));
                (pattern, text) = (behind, tail);
            }
            _ => return false,
        }
    }
}

/// Matches the first element of the pattern, no star, against the first byte of the text.
fn match_one<'p, 't>(
    pattern: &'p [u8],
    text: &'t [u8],
    case: Case,
) -> Option<(&'p [u8], &'t [u8])> {
    let (&byte, tail) = text.split_first()?;
    let (matched, rest) = match pattern {
        [] => return None,
        [b'?', rest @ ..] => (true, rest),
        [b'[', rest @ ..] => match_class(rest, byte, case),
        [b'\\', literal, rest @ ..] => (same(*literal, byte, case), rest),
        [literal, rest @ ..] => (same(*literal, byte, case), rest),
    };
    matched.then_some((rest, tail))
}

/// Matches a byte with a class behind its bracket; a class that is not closed reaches to the end.
fn match_class(mut class: &[u8], byte: u8, case: Case) -> (bool, &[u8]) {
    let negated = class.first() == Some(&b'^');
    if negated {
        class = &class[1..];
    }
    let mut found = false;
    loop {
        class = match class {
            [] | [b']', ..] => break,
            [b'\\', literal, rest @ ..] => {
                found |= same(*literal, byte, case);
                rest
            }
            [first, b'-', last, rest @ ..] => {
                found |= in_span(*first, *last, byte, case);
                rest
            }
            [literal, rest @ ..] => {
                found |= same(*literal, byte, case);
                rest
            }
        };
    }
    (found != negated, class.get(1..).unwrap_or_default())
}

fn same(left: u8, right: u8, case: Case) -> bool {
    left == right || case == Case::Ignored && left.eq_ignore_ascii_case(&right)
}

fn in_span(first: u8, last: u8, byte: u8, case: Case) -> bool {
    let fold = |byte: u8| match case {
        Case::Exact => byte,
        Case::Ignored => byte.to_ascii_lowercase(),
    };
    let (first, last, byte) = (fold(first), fold(last), fold(byte));
    (first.min(last)..=first.max(last)).contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::{Case, matches};

    fn check(pattern: &str, text: &str, expected: bool) {
        let matched = matches(pattern.as_bytes(), text.as_bytes(), Case::Exact);
        assert_eq!(matched, expected, "{pattern} on {text}");
    }

    #[test]
    fn stars_and_question_marks() {
        check("", "", true);
        check("", "a", false);
        check("*", "", true);
        check("**", "abc", true);
        check("max*", "maxmemory", true);
        check("*mem*y", "maxmemory", true);
        check("*mem*x", "maxmemory", false);
        check("?ort", "port", true);
        check("?ort", "ort", false);
        check("port", "ports", false);
        check("ports", "port", false);
    }

    #[test]
    fn classes_and_escapes() {
        check("[pq]ort", "port", true);
        check("[^pq]ort", "port", false);
        check("[o-r]ort", "port", true);
        check("[r-o]ort", "port", true);
        check("[", "a", false);
        check("[a", "a", true);
        check(r"[\]]", "]", true);
        check(r"\*", "*", true);
        check(r"\*", "a", false);
        check(r"a\", r"a\", true);
    }

    #[test]
    fn case_matters_if_asked() {
        assert!(matches(b"MAX*[A-Z]", b"maxmemory", Case::Ignored));
        assert!(!matches(b"MAX*", b"maxmemory", Case::Exact));
    }

    #[test]
    fn many_stars_do_not_take_forever() {
        let pattern = b"*a".repeat(200);
        let text = b"a".repeat(199);
        assert!(!matches(&pattern, &text, Case::Exact));
    }
}
