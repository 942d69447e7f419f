//! Replies as redis-cli prints them, and their comparison with an example.
//!
//! - `...` inside a line stands for any text, and a line `...` for any number of lines.
//! - A reply of RESP3 may be shown in RESP2 form: a set as an array, a map as an array of keys and values or of
//!   pairs, a double or a big number as a string, true and false as 1 and 0.

use tierce_harness::Reply;

/// Placeholder for variable text.
const ANY: &str = "...";

/// Form in which redis-cli, or the command, prints a reply.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Manner {
    /// Printed with its types.
    Typed,
    /// Printed with its types, in an undefined order.
    Unordered,
    /// A text for people, printed as it is.
    Text,
}

/// Form of a map as an array.
#[derive(Clone, Copy)]
enum MapForm {
    /// Keys and values in turn.
    Flat,
    /// Pairs of a key and its value.
    Pairs,
}

/// Returns true if a reply is the one shown.
pub(super) fn is_shown(shown: &[String], reply: &Reply, manner: Manner) -> bool {
    let printed_in = |form| printed(&as_resp2(reply, form), manner);
    let lines = [printed(reply, manner), printed_in(MapForm::Flat), printed_in(MapForm::Pairs)];
    // Examples with variable lines are compared in order.
    let is_any_order = manner == Manner::Unordered && !shown.iter().any(|line| line.contains(ANY));
    lines.iter().any(|lines| {
        if is_any_order {
            without_order(shown) == without_order(lines)
        } else {
            matches(shown, lines)
        }
    })
}

/// Returns the lines without their numbers, sorted.
fn without_order(lines: &[String]) -> Vec<String> {
    let text = |line: &String| {
        let number_end = line.find(") ").filter(|end| line[..*end].trim().parse::<usize>().is_ok());
        line[number_end.map_or(0, |end| end + 2)..].to_owned()
    };
    let mut lines: Vec<_> = lines.iter().map(text).collect();
    lines.sort();
    lines
}

/// Backtracks to the last line `...` at a difference, so that the effort is at most the product of both lengths.
fn matches(shown: &[String], lines: &[String]) -> bool {
    let is_any = |line: &String| line.trim() == ANY;
    let (mut at_shown, mut at_line) = (0, 0);
    let mut resume = None;
    while let Some(line) = lines.get(at_line) {
        match (shown.get(at_shown), resume) {
            (Some(any), _) if is_any(any) => {
                at_shown += 1;
                resume = Some((at_shown, at_line));
            }
            (Some(shown), _) if line_matches(shown, line) => {
                at_shown += 1;
                at_line += 1;
            }
            (_, Some((shown_from, line_from))) => {
                (at_shown, at_line) = (shown_from, line_from + 1);
                resume = Some((at_shown, at_line));
            }
            (_, None) => return false,
        }
    }
    shown[at_shown..].iter().all(is_any)
}

fn line_matches(shown: &str, line: &str) -> bool {
    let Some((start, end)) = shown.split_once(ANY) else { return shown == line };
    let Some(rest) = line.strip_prefix(start) else { return false };
    let starts = rest.char_indices().map(|(at, _)| at).chain([rest.len()]);
    starts.into_iter().any(|at| line_matches(end, &rest[at..]))
}

/// Converts the reply to the types of RESP2.
fn as_resp2(reply: &Reply, form: MapForm) -> Reply {
    let inner = |reply| as_resp2(reply, MapForm::Flat);
    match reply {
        Reply::Double(text) | Reply::BigNumber(text) => Reply::Bulk(text.clone()),
        Reply::Bool(value) => Reply::Int((*value).into()),
        Reply::Verbatim(_) => Reply::Bulk(reply.bytes().to_vec()),
        Reply::Array(items) | Reply::Set(items) | Reply::Push(items) => {
            Reply::Array(items.iter().map(inner).collect())
        }
        Reply::Map(pairs) => {
            let pairs = pairs.iter().map(|(key, value)| [inner(key), inner(value)]);
            Reply::Array(match form {
                MapForm::Flat => pairs.flatten().collect(),
                MapForm::Pairs => pairs.map(|pair| Reply::Array(pair.to_vec())).collect(),
            })
        }
        other => other.clone(),
    }
}

/// Returns the lines that redis-cli prints.
pub(super) fn printed(reply: &Reply, manner: Manner) -> Vec<String> {
    match reply {
        Reply::Bulk(text) if manner == Manner::Text => text_lines(text),
        _ => typed(reply),
    }
}

fn typed(reply: &Reply) -> Vec<String> {
    match reply {
        Reply::Simple(text) => vec![lossy(text)],
        Reply::Error(text) => vec![format!("(error) {}", lossy(text))],
        Reply::Int(number) => vec![format!("(integer) {number}")],
        Reply::Double(text) => vec![format!("(double) {}", lossy(text))],
        Reply::BigNumber(text) => vec![lossy(text)],
        Reply::Bool(value) => vec![format!("({value})")],
        Reply::Nil | Reply::NilArray | Reply::Null => vec!["(nil)".to_owned()],
        Reply::Bulk(text) => vec![quoted(text)],
        Reply::Verbatim(_) => text_lines(reply.bytes()),
        Reply::Array(items) | Reply::Push(items) => numbered(items, ")", "(empty array)"),
        Reply::Set(items) => numbered(items, "~", "(empty set)"),
        Reply::Map(pairs) | Reply::Attribute(pairs) => printed_map(pairs),
    }
}

fn lossy(text: &[u8]) -> String {
    String::from_utf8_lossy(text).into_owned()
}

fn text_lines(text: &[u8]) -> Vec<String> {
    lossy(text).trim_end().lines().map(|line| line.trim_end().to_owned()).collect()
}

fn quoted(text: &[u8]) -> String {
    let escaped = text.iter().map(|&byte| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | b' '..=b'~' => {
            byte.escape_ascii().to_string().replace("\\'", "'")
        }
        _ => format!("\\x{byte:02x}"),
    });
    format!("\"{}\"", escaped.collect::<String>())
}

fn numbered(items: &[Reply], mark: &str, empty: &str) -> Vec<String> {
    if items.is_empty() {
        return vec![empty.to_owned()];
    }
    let width = items.len().to_string().len();
    let lines = items.iter().zip(1..).flat_map(|(item, number)| {
        let lead = format!("{number:width$}{mark} ");
        let first_and_others = move |(at, line): (usize, String)| match at {
            0 => format!("{lead}{line}"),
            _ => format!("{}{line}", " ".repeat(lead.len())),
        };
        typed(item).into_iter().enumerate().map(first_and_others)
    });
    lines.collect()
}

fn printed_map(pairs: &[(Reply, Reply)]) -> Vec<String> {
    if pairs.is_empty() {
        return vec!["(empty hash)".to_owned()];
    }
    let width = pairs.len().to_string().len();
    let mut lines = Vec::new();
    for ((key, value), number) in pairs.iter().zip(1..) {
        let (key, mut value) = (typed(key).concat(), typed(value));
        let on_this_line = if value.len() == 1 { value.remove(0) } else { String::new() };
        lines.push(format!("{number:width$}# {key} => {on_this_line}").trim_end().to_owned());
        lines.extend(value.into_iter().map(|line| format!("{}{line}", " ".repeat(width + 2))));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(bytes: &str) -> Reply {
        Reply::decode(bytes.as_bytes()).expect("a whole reply").0
    }

    fn shows(shown: &str, bytes: &str) -> bool {
        is_shown(
            &shown.lines().map(str::to_owned).collect::<Vec<_>>(),
            &reply(bytes),
            Manner::Typed,
        )
    }

    #[test]
    fn replies_are_printed_as_by_redis_cli() {
        let check =
            |bytes, lines: &[&str]| assert_eq!(printed(&reply(bytes), Manner::Typed), lines);
        check("+OK\r\n", &["OK"]);
        check("-ERR no\r\n", &["(error) ERR no"]);
        check("$4\r\na\"\x01'\r\n", &["\"a\\\"\\x01'\""]);
        check(
            "*2\r\n:1\r\n*2\r\n$1\r\na\r\n$-1\r\n",
            &["1) (integer) 1", "2) 1) \"a\"", "   2) (nil)"],
        );
        check(
            "%2\r\n+a\r\n,1.5\r\n+b\r\n~2\r\n#t\r\n_\r\n",
            &["1# a => (double) 1.5", "2# b =>", "   1~ (true)", "   2~ (nil)"],
        );
        check("*0\r\n", &["(empty array)"]);
    }

    #[test]
    fn what_is_shown_in_resp2_may_come_in_resp3() {
        assert!(shows("1) \"a\"\n2) \"1.5\"", "%1\r\n$1\r\na\r\n,1.5\r\n"));
        assert!(shows("1) 1) \"a\"\n   2) \"1.5\"", "%1\r\n$1\r\na\r\n,1.5\r\n"));
        assert!(shows("1) \"a\"", "~1\r\n$1\r\na\r\n"));
        assert!(!shows("1) \"a\"\n2) \"1.5\"", "*1\r\n*2\r\n$1\r\na\r\n,1.5\r\n"));
    }

    #[test]
    fn texts_and_replies_without_order() {
        let shown = ["a", "b"].map(str::to_owned);
        assert!(is_shown(&shown, &reply("$6\r\na\r\nb\r\n\r\n"), Manner::Text));
        let shown = ["1) \"a\"", "2) \"b\""].map(str::to_owned);
        let other_order = reply("*2\r\n$1\r\nb\r\n$1\r\na\r\n");
        assert!(is_shown(&shown, &other_order, Manner::Unordered));
        assert!(!is_shown(&shown, &other_order, Manner::Typed));
    }

    #[test]
    fn dots_stand_for_what_varies() {
        assert!(shows("(integer) 3...", ":3600\r\n"));
        assert!(!shows("(integer) 3...", ":2999\r\n"));
        assert!(shows("1) \"a...c\"\n...\n", "*3\r\n$3\r\nabc\r\n:1\r\n:2\r\n"));
        assert!(!shows("1) (integer) 1\n...\n3) (integer) 4", "*3\r\n:1\r\n:2\r\n:3\r\n"));
        assert!(!shows("1) (integer) 1", "*2\r\n:1\r\n:2\r\n"));
        assert!(shows("...\n2) (integer) 2\n...", "*2\r\n:1\r\n:2\r\n"));
        assert!(shows("...\n2) (integer) ...\n3) (integer) 2", "*3\r\n:1\r\n:2\r\n:2\r\n"));
    }
}
