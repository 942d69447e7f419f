//! Templates of commands, and their expansion to random calls.
//!
//! The notation: a word stands for itself, `{name}` for a random value of that kind, `[...]` is
//! present every other time, `(a | b)` is one of these, and `{name}+` is one or more.

use tierce_harness::Random;

/// Writes the words of a random call to `out`. `value` makes the values.
pub(super) fn expand(
    template: &str,
    random: &mut Random,
    value: &mut dyn FnMut(&str, &mut Random) -> Vec<u8>,
    out: &mut Vec<Vec<u8>>,
) {
    let mut rest = template.trim();
    while !rest.is_empty() {
        let end = match rest.as_bytes()[0] {
            b'[' | b'(' => end_of_group(rest),
            _ => rest.find([' ', '[', '(']).unwrap_or(rest.len()),
        };
        let (part, after) = rest.split_at(end);
        rest = after.trim_start();
        match part.as_bytes()[0] {
            b'[' if random.one_in(2) => expand(&part[1..end - 1], random, value, out),
            b'[' => {}
            b'(' => {
                let choices = choices(&part[1..end - 1]);
                let choice = random.pick(&choices);
                expand(choice, random, value, out);
            }
            b'{' => {
                let name = part.trim_end_matches('+').trim_matches(['{', '}']);
                out.push(value(name, random));
                while part.ends_with('+') && !random.one_in(3) {
                    out.push(value(name, random));
                }
            }
            _ => out.push(part.as_bytes().to_vec()),
        }
    }
}

/// Returns the end of the group that begins `text`.
fn end_of_group(text: &str) -> usize {
    let mut depth = 0;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'[' | b'(' => depth += 1,
            b']' | b')' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    panic!("not closed: {text}");
}

/// Returns the alternatives, separated by bars outside of any brackets.
fn choices(text: &str) -> Vec<&str> {
    let (mut depth, mut start, mut choices) = (0, 0, Vec::new());
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'[' | b'(' => depth += 1,
            b']' | b')' => depth -= 1,
            b'|' if depth == 0 => {
                choices.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    choices.push(&text[start..]);
    choices
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn all(template: &str) -> BTreeSet<String> {
        let one = |seed| {
            let mut out = Vec::new();
            let mut value = |name: &str, _: &mut Random| name.as_bytes().to_vec();
            expand(template, &mut Random::new(seed), &mut value, &mut out);
            String::from_utf8(out.join(&b' ')).expect("UTF-8")
        };
        (0..500).map(one).collect()
    }

    #[test]
    fn templates_expand() {
        assert_eq!(all("GET {key}"), ["GET key".to_owned()].into());
        assert_eq!(all("A [B]"), ["A".to_owned(), "A B".to_owned()].into());
        let options = all("SET [(NX | XX)] [(EX {n} | KEEPTTL)]");
        assert_eq!(options.len(), 9);
        assert!(options.contains("SET XX EX n") && options.contains("SET KEEPTTL"));
        let many = all("DEL {key}+");
        assert!(many.contains("DEL key") && many.contains("DEL key key key"));
    }
}
