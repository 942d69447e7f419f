//! Patterns of `KEYS`, `SCAN`, `PSUBSCRIBE` and others.
//!
//! | pattern | matches |
//! |---|---|
//! | `?` | any one byte |
//! | `*` | any bytes, also none |
//! | `[abc]`, `[a-z]`, `[^a]` | one byte of the class, or none of it; `\` takes its next byte literally |
//! | `\x` | the byte `x`, special or not |
//! | anything else | itself |
//!
//! Malformed patterns have the meaning that Redis gives them: a class without its closing bracket ends with the
//! pattern, and a backslash at the end stands for itself.
//!
//! Matching takes at most as many steps as the product of the lengths of pattern and text: only the latest star is
//! ever retried, as an earlier one could not do better.
//!
//! Differences from Redis 7.2: `*` matches the empty text, which Redis allows only where it special-cases a lone
//! `*`; there is no limit of 1000 stars; bytes above 127 compare greater than ASCII in ranges, as in Redis on ARM
//! (on x86-64 they are negative).

/// Treatment of upper and lower case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Case {
    /// Letters match in the same case only.
    Sensitive,
    /// ASCII letters match in either case, except those behind a backslash in a class.
    Ignored,
}

/// Returns true if `text` contains wildcards. Otherwise it matches only itself, apart from escapes.
pub fn is_pattern(text: &[u8]) -> bool {
    text.iter().any(|byte| b"*?[".contains(byte))
}

/// Returns true if `pattern` matches the whole of `text`.
///
/// ```
/// use tierce_wire::glob::{Case, matches};
/// assert!(matches(b"user:[0-9]*", b"user:42", Case::Sensitive));
/// assert!(!matches(b"USER:*", b"user:42", Case::Sensitive));
/// ```
pub fn matches(pattern: &[u8], text: &[u8], case: Case) -> bool {
    let (mut pattern, mut text) = (pattern, text);
    // The pattern behind the latest star, and the text at which it was tried.
    let mut retry: Option<(&[u8], &[u8])> = None;
    loop {
        if let [b'*', rest @ ..] = pattern {
            if rest.is_empty() {
                return true;
            }
            retry = Some((rest, text));
            pattern = rest;
            continue;
        }
        let Some((&byte, following)) = text.split_first() else {
            return pattern.is_empty();
        };
        if let Some(rest) = match_byte(pattern, byte, case) {
            (pattern, text) = (rest, following);
            continue;
        }
        // Let the star take one byte more.
        let Some((rest, [_, shorter @ ..])) = retry else {
            return false;
        };
        retry = Some((rest, shorter));
        (pattern, text) = (rest, shorter);
    }
}

/// Matches one byte with the front of `pattern`, which is not a star. Returns the rest of the pattern.
#[inline]
fn match_byte(pattern: &[u8], byte: u8, case: Case) -> Option<&[u8]> {
    match pattern {
        [] => None,
        [b'?', rest @ ..] => Some(rest),
        [b'[', rest @ ..] => match_class(rest, byte, case),
        [b'\\', literal, rest @ ..] | [literal, rest @ ..] => {
            equal(*literal, byte, case).then_some(rest)
        }
    }
}

/// Matches one byte with a class, whose opening bracket was consumed.
fn match_class(class: &[u8], byte: u8, case: Case) -> Option<&[u8]> {
    let (negated, mut class) = match class {
        [b'^', rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    let mut found = false;
    let rest = loop {
        class = match class {
            [] => break class,
            [b'\\', literal, rest @ ..] => {
                found |= *literal == byte;
                rest
            }
            [b']', rest @ ..] => break rest,
            [first, b'-', last, rest @ ..] => {
                found |= in_range(*first, *last, byte, case);
                rest
            }
            [literal, rest @ ..] => {
                found |= equal(*literal, byte, case);
                rest
            }
        };
    };
    (found != negated).then_some(rest)
}

/// Returns true if `byte` is in the range. The ends come in any order; like Redis, they are sorted before case
/// folding.
fn in_range(first: u8, last: u8, byte: u8, case: Case) -> bool {
    let (low, high) = (first.min(last), first.max(last));
    match case {
        Case::Sensitive => (low..=high).contains(&byte),
        Case::Ignored => (low.to_ascii_lowercase()..=high.to_ascii_lowercase())
            .contains(&byte.to_ascii_lowercase()),
    }
}

#[inline]
fn equal(a: u8, b: u8, case: Case) -> bool {
    match case {
        Case::Sensitive => a == b,
        Case::Ignored => a.eq_ignore_ascii_case(&b),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tierce_harness::effort;

    #[track_caller]
    fn check(pattern: &str, matching: &[&str], others: &[&str]) {
        for text in matching {
            assert!(matches(pattern.as_bytes(), text.as_bytes(), Case::Sensitive), "{text:?}");
        }
        for text in others {
            assert!(!matches(pattern.as_bytes(), text.as_bytes(), Case::Sensitive), "{text:?}");
        }
    }

    #[test]
    fn plain_bytes_match_themselves() {
        check("", &[""], &["a"]);
        check("abc", &["abc"], &["", "ab", "abcd", "aBc"]);
        check(r"a\*c\\", &[r"a*c\"], &["abc", r"a\*c\\"]);
        check(r"a\", &[r"a\"], &["a"]);
    }

    #[test]
    fn wildcards_match_any_bytes() {
        check("*", &["", "a", "abc"], &[]);
        check("**", &["", "a"], &[]);
        check("?", &["a", "*"], &["", "ab"]);
        check("a*", &["a", "ab"], &["", "ba"]);
        check("*b*c", &["bc", "abbcc", "bxc"], &["b", "cb", "bcd"]);
        check("a*?c", &["abc", "abbc", "acc"], &["ac"]);
    }

    #[test]
    fn classes_match_one_byte() {
        check("[abc]", &["a", "c"], &["", "d", "ab", "]"]);
        check("[^abc]", &["d", "^"], &["a", ""]);
        check("[a-cx]y", &["by", "xy"], &["dy", "-y"]);
        check("[c-a]", &["b"], &["-"]);
        check(r"[\]a\-z]", &["]", "a", "-", "z"], &["b", "\\"]);
        check("x[a-]]y", &["xay", "x]y", "x_y"], &["x-y", "xa]y", "xby"]);
        check("[]", &[], &["", "]", "[]"]);
        check("[^]", &["a", "]"], &[""]);
    }

    #[test]
    fn open_classes_end_with_the_pattern() {
        check("[ab", &["a", "b"], &["[ab", "c"]);
        check("[", &[], &["[", ""]);
        check("[^", &["a", "["], &[""]);
        check(r"[\", &[r"\"], &["["]);
        check("[a-", &["a", "-"], &["b"]);
        check("[a-]", &["a", "]", "_"], &["-", "b"]);
    }

    #[test]
    fn case_can_be_ignored() {
        let ignoring =
            |pattern: &str, text: &str| matches(pattern.as_bytes(), text.as_bytes(), Case::Ignored);
        assert!(ignoring("aBc*", "AbCd"));
        assert!(ignoring("[A-C]", "b"));
        assert!(ignoring("[abc]", "B"));
        assert!(!ignoring(r"[\a]", "A"));
        assert!(ignoring(r"\a", "A"));
        assert!(!ignoring("[a-c]", "D"));
    }

    #[test]
    fn many_stars_take_no_exponential_time() {
        let (pattern, text) = ("a*".repeat(500) + "b", "a".repeat(5000));
        check(&pattern, &[], &[&text]);
        let pattern = "*?".repeat(2000);
        check(&pattern, &[&text], &["a"]);
    }

    /// Matches a pattern by its definition, in exponential time.
    fn reference(pattern: &[u8], text: &[u8], case: Case) -> bool {
        match (pattern, text) {
            ([], []) => true,
            ([b'*', rest @ ..], _) => {
                (0..=text.len()).any(|taken| reference(rest, &text[taken..], case))
            }
            (_, []) | ([], _) => false,
            (_, [byte, text @ ..]) => {
                match_byte(pattern, *byte, case).is_some_and(|rest| reference(rest, text, case))
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(effort(4000)))]
        #[test]
        fn stars_are_as_greedy_as_needed(
            pattern in r"[ab?*\[\]\\^A-]{0,12}",
            text in r"[ab\]A]{0,12}",
            case in prop_oneof![Just(Case::Sensitive), Just(Case::Ignored)],
        ) {
            let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
            prop_assert_eq!(matches(pattern, text, case), reference(pattern, text, case));
        }

        #[test]
        fn no_pattern_panics(pattern: Vec<u8>, text: Vec<u8>) {
            matches(&pattern, &text, Case::Ignored);
        }
    }
}
