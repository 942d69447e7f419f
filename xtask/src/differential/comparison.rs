//! How the replies to a command are compared.
//!
//! Byte for byte, unless the command is listed here. Each exception is explained in
//! `docs/differences.md`, or is of a kind that two runs of the same server would show, too: times,
//! identities and random choices.

use tierce_harness::Reply;

use super::stream::Call;

/// Milliseconds that the clocks of two servers may be apart when a time to live begins: they run
/// the same pipeline one after the other.
const CLOCK_MS_MAX: i64 = 10_000;

/// When two replies count as equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comparison {
    /// The same bytes.
    Exact,
    /// The same elements in any order.
    AnyOrder,
    /// The same kind of reply; what is in it is random, or the servers' own.
    Kind,
    /// The same number, or times that are at most this far apart.
    Within(i64),
    /// Whatever it is: a documented difference.
    Different,
    /// The same facts about commands, without the hints for clients of a cluster.
    CommandInfo,
    /// The same but for the values of these fields.
    Except(&'static [&'static str]),
}

impl Comparison {
    pub(super) fn of(call: &Call) -> Self {
        let word = |n: usize| {
            let arg = call.get(n).map(|arg| String::from_utf8_lossy(arg).to_ascii_uppercase());
            arg.unwrap_or_default()
        };
        match (word(0).as_str(), word(1).as_str()) {
            ("KEYS", _) => Self::AnyOrder,
            ("RANDOMKEY" | "TIME", _) => Self::Kind,
            // The order of keys, and so the meaning of cursors, is a server's own.
            ("SCAN", cursor) if !is_cursor(cursor) => Self::Different,
            ("SCAN", _) => Self::Kind,
            ("TTL" | "EXPIRETIME", _) => Self::Within(CLOCK_MS_MAX / 1000),
            ("PTTL" | "PEXPIRETIME", _) => Self::Within(CLOCK_MS_MAX),
            ("HELLO", _) => Self::Except(&["version", "id"]),
            ("CLIENT", "ID" | "INFO" | "LIST") => Self::Kind,
            ("OBJECT", "ENCODING" | "IDLETIME" | "REFCOUNT") => Self::Kind,
            (_, "HELP") => Self::Kind,
            ("COMMAND", "COUNT") => Self::Kind,
            // Without names, of all commands.
            ("COMMAND", "INFO") if call.len() == 2 => Self::Kind,
            ("COMMAND", "INFO") => Self::CommandInfo,
            _ => Self::Exact,
        }
    }

    pub(super) fn accepts(self, call: &Call, tested: &[u8], reference: &[u8]) -> bool {
        if tested == reference || self == Self::Different {
            return true;
        }
        if let (Some(b'-'), Some(b'-')) = (tested.first(), reference.first()) {
            return is_same_error(call, tested, reference);
        }
        if self == Self::Exact || tested.first() != reference.first() {
            return false;
        }
        let decode = |bytes| Reply::decode(bytes).map(|(reply, _)| reply);
        let (Some(tested), Some(reference)) = (decode(tested), decode(reference)) else {
            return false;
        };
        match self {
            Self::Exact | Self::Different => false,
            Self::AnyOrder => sorted(&tested) == sorted(&reference),
            Self::Kind => std::mem::discriminant(&tested) == std::mem::discriminant(&reference),
            Self::Within(distance) => {
                let (a, b) = (tested.int(), reference.int());
                a >= 0 && b >= 0 && (a - b).abs() <= distance
            }
            Self::CommandInfo => without_hints(&tested) == without_hints(&reference),
            Self::Except(names) => without(&tested, names) == without(&reference, names),
        }
    }
}

/// Mistakes are answered alike, whatever the command would have returned; but where Redis quotes
/// raw bytes of the client, the quotation is cleaned.
fn is_same_error(call: &Call, tested: &[u8], reference: &[u8]) -> bool {
    let is_raw = |byte: &u8| !byte.is_ascii() || byte.is_ascii_control();
    if !call.iter().flatten().any(is_raw) {
        return tested == reference;
    }
    let before_quotation = |line: &[u8]| -> Vec<u8> {
        line.iter().copied().take_while(|byte| *byte != b'\'').collect()
    };
    before_quotation(tested) == before_quotation(reference)
}

/// Whether a server may have handed it out.
fn is_cursor(text: &str) -> bool {
    text.parse::<u64>().is_ok_and(|cursor| cursor.to_string() == text)
}

fn sorted(reply: &Reply) -> Vec<&Reply> {
    let mut items: Vec<_> = reply.items().iter().collect();
    items.sort();
    items
}

fn without_hints(reply: &Reply) -> Vec<Vec<Reply>> {
    const HINTS: usize = 7;
    let without = |command: &Reply| match command {
        Reply::Array(facts) => [&facts[..HINTS], &facts[HINTS + 1..]].concat(),
        absent => vec![absent.clone()],
    };
    reply.items().iter().map(without).collect()
}

/// The names and values of a map, or of an array of names and values, some values left out.
fn without(reply: &Reply, names: &[&str]) -> Vec<(Reply, Option<Reply>)> {
    let pairs: Vec<(Reply, Reply)> = match reply {
        Reply::Map(pairs) => pairs.clone(),
        other => other.items().chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect(),
    };
    let is_left_out = |name: &Reply| names.iter().any(|left_out| name.text() == *left_out);
    pairs
        .into_iter()
        .map(|(name, value)| {
            let value = (!is_left_out(&name)).then_some(value);
            (name, value)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(command: &str, tested: &str, reference: &str, expected: bool) {
        let call = command.split(' ').map(|word| word.as_bytes().to_vec()).collect();
        let accepts = Comparison::of(&call).accepts(&call, tested.as_bytes(), reference.as_bytes());
        assert_eq!(accepts, expected, "{command}: {tested:?} {reference:?}");
    }

    #[test]
    fn most_replies_are_compared_byte_for_byte() {
        check("GET a", "$1\r\nx\r\n", "$1\r\nx\r\n", true);
        check("GET a", "$1\r\nx\r\n", "$1\r\ny\r\n", false);
        check("GET a", "$-1\r\n", "_\r\n", false);
        check("KEYS *", "-ERR a\r\n", "-ERR b\r\n", false);
    }

    #[test]
    fn exceptions() {
        check("KEYS *", "*2\r\n+a\r\n+b\r\n", "*2\r\n+b\r\n+a\r\n", true);
        check("KEYS *", "*2\r\n+a\r\n+b\r\n", "*2\r\n+b\r\n+b\r\n", false);
        check("RANDOMKEY", "$1\r\na\r\n", "$1\r\nb\r\n", true);
        check("RANDOMKEY", "$-1\r\n", "$1\r\nb\r\n", false);
        check("PTTL a", ":100000\r\n", ":100500\r\n", true);
        check("PTTL a", ":-1\r\n", ":100\r\n", false);
        check("hello 2", "*2\r\n+id\r\n:1\r\n", "*2\r\n+id\r\n:2\r\n", true);
        check("hello 2", "*2\r\n+proto\r\n:2\r\n", "*2\r\n+proto\r\n:3\r\n", false);
    }
}
