//! Comparison of the replies to a command.
//!
//! Replies have to be equal byte for byte, unless the command is listed here. Each exception is explained in
//! `docs/differences.md`, or even two runs of one server would differ so: in times, identities and random choices.

use tierce_harness::Reply;

use super::draws;
use super::stream::Call;

/// Maximum difference of the servers' clocks, in milliseconds, when a time to live begins: they do not run the same
/// pipeline at the same moment.
const CLOCK_MS_MAX: i64 = 10_000;

/// Rule by which two replies count as equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comparison {
    /// Equal bytes.
    Exact,
    /// Equal elements in any order.
    AnyOrder,
    /// Equal fields with equal values, in any order.
    Pairs,
    /// A cursor, and if both servers are at the end, equal elements in any order.
    Swept,
    /// Like `Swept`, with members and their scores.
    SweptScores,
    /// Equal types of reply. The contents are random, or the server's own.
    Kind,
    /// Reply of a random command.
    Drawn,
    /// Equal bytes. A set that was not to be sorted only has an equal number of elements.
    Unsorted,
    /// Equal numbers, or times with at most this difference.
    Within(i64),
    /// Pending entries that are equal except for the milliseconds since their delivery.
    Pending,
    /// Facts about a stream.
    StreamFacts,
    /// Equal encodings, or one that 7.0 does not have.
    Encoding,
    /// Any replies: a documented difference.
    Different,
    /// Equal facts about commands, without the hints for clients of a cluster.
    CommandInfo,
    /// Equal except for the spelling of numbers: 7.0 prints 17 digits, 7.2 as many as necessary.
    Spelling,
    /// Equal members in any order. Scores are equal unless one is 0: if an infinity is multiplied by 0, the score
    /// depends on the order of the keys in 7.0.
    Weighted,
    /// Equal except for the values of these fields.
    Except(&'static [&'static str]),
}

impl Comparison {
    pub(super) fn of(call: &Call) -> Self {
        let word = |n: usize| {
            let arg = call.get(n).map(|arg| String::from_utf8_lossy(arg).to_ascii_uppercase());
            arg.unwrap_or_default()
        };
        match (word(0).as_str(), word(1).as_str()) {
            ("KEYS" | "HKEYS" | "HVALS", _) => Self::AnyOrder,
            ("HGETALL", _) => Self::Pairs,
            ("SMEMBERS" | "SINTER" | "SUNION" | "SDIFF" | "SPOP", _) => Self::AnyOrder,
            ("HRANDFIELD" | "SRANDMEMBER" | "ZRANDMEMBER", _) => Self::Drawn,
            // The order of keys and elements, and so the meaning of cursors, is a server's own.
            ("SCAN", cursor) if cursor != "0" => Self::Different,
            ("HSCAN" | "SSCAN" | "ZSCAN", _) if word(2) != "0" => Self::Different,
            ("SCAN" | "HSCAN" | "SSCAN", _) => Self::Swept,
            ("ZSCAN", _) => Self::SweptScores,
            ("RANDOMKEY" | "TIME", _) => Self::Kind,
            ("TTL" | "EXPIRETIME", _) => Self::Within(CLOCK_MS_MAX / 1000),
            ("PTTL" | "PEXPIRETIME", _) => Self::Within(CLOCK_MS_MAX),
            ("ZINTER", _) if may_make_nan(call) => Self::Weighted,
            (name, _) if name.starts_with('Z') || name.starts_with("GEO") => Self::Spelling,
            ("BZPOPMIN" | "BZPOPMAX" | "BZMPOP", _) => Self::Spelling,
            ("SORT" | "SORT_RO", _) => Self::Unsorted,
            ("HELLO", _) => Self::Except(&["version", "id"]),
            ("CLIENT", "ID" | "INFO" | "LIST") => Self::Kind,
            ("OBJECT", "ENCODING") => Self::Encoding,
            // In Redis, small numbers share one idle time, and more accesses count as a use.
            ("OBJECT", "IDLETIME") => Self::Kind,
            // Redis shares small numbers.
            ("OBJECT", "REFCOUNT") => Self::Kind,
            ("XPENDING", _) => Self::Pending,
            ("XINFO", _) => Self::StreamFacts,
            // Redis 7.0 does not create consumers that get nothing.
            ("XGROUP", "CREATECONSUMER") => Self::Kind,
            // If the number of keys is not a number, Redis takes it for another one.
            ("COMMAND", "GETKEYS")
                if counts_keys(&word(2)).is_some_and(|at| !is_cursor(&word(at))) =>
            {
                Self::Different
            }
            // Redis also takes a key that is called STORE for the option.
            ("COMMAND", "GETKEYS")
                if word(2) == "SORT"
                    && (3..)
                        .map(word)
                        .take(call.len())
                        .collect::<Vec<_>>()
                        .windows(2)
                        .any(|pair| pair == ["STORE", "STORE"]) =>
            {
                Self::Different
            }
            (_, "HELP") => Self::Kind,
            ("COMMAND", "COUNT") => Self::Kind,
            // Without names, the reply is about all commands.
            ("COMMAND", "INFO") if call.len() == 2 => Self::Kind,
            ("COMMAND", "INFO") => Self::CommandInfo,
            _ => Self::Exact,
        }
    }

    /// Returns true if two replies to `call` are equal. `next` is the following call in its pipeline, with the tested
    /// server's reply to that.
    pub(super) fn accepts_before(
        self,
        call: &Call,
        tested: &[u8],
        reference: &[u8],
        next: Option<(&Call, &[u8])>,
    ) -> bool {
        let have_same_len = || {
            let len = |bytes| Reply::decode(bytes).map(|(reply, _)| reply.items().len());
            let are_arrays = tested.first() == Some(&b'*') && reference.first() == Some(&b'*');
            are_arrays && len(tested) == len(reference)
        };
        match (self, next) {
            // Without STORE, Redis compares texts up to a zero byte, and the order of equal texts is undefined.
            (Self::Unsorted, _) if sorts_texts(call) && tested.contains(&0) => have_same_len(),
            (Self::Drawn, Some((next, all))) => {
                self.accepts(call, tested, reference) && draws::is_from(call, tested, next, all)
            }
            (Self::Unsorted, Some((next, b"+set\r\n"))) if probe(call).as_ref() == Some(next) => {
                have_same_len() || self.accepts(call, tested, reference)
            }
            _ => self.accepts(call, tested, reference),
        }
    }

    /// Returns true if two replies to `call` are equal, as far as these replies alone show.
    pub(super) fn accepts(self, call: &Call, tested: &[u8], reference: &[u8]) -> bool {
        if tested == reference || self == Self::Different {
            return true;
        }
        // Redis does not delay clients that try passwords.
        if tested.starts_with(b"-ERR too many wrong passwords") {
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
            // In a transaction nothing shows if it was a set, which has no order.
            Self::Unsorted => is_by_nosort(call) && sorted(&tested) == sorted(&reference),
            Self::AnyOrder => sorted(&tested) == sorted(&reference),
            Self::Pairs => sorted_pairs(&tested) == sorted_pairs(&reference),
            Self::Swept => is_same_sweep(&tested, &reference, |a, b| sorted(a) == sorted(b)),
            Self::SweptScores => is_same_sweep(&tested, &reference, |a, b| scores(a) == scores(b)),
            Self::Kind => std::mem::discriminant(&tested) == std::mem::discriminant(&reference),
            Self::Drawn => draws::is_alike(call, &tested, &reference),
            Self::Within(distance) => {
                let (a, b) = (tested.int(), reference.int());
                a >= 0 && b >= 0 && (a - b).abs() <= distance
            }
            Self::Spelling => is_spelled_alike(&tested, &reference),
            Self::Weighted => is_weighted_alike(call, &tested, &reference),
            Self::Pending => is_pending_alike(&tested, &reference),
            Self::StreamFacts => {
                let is_whole = call.get(2).is_some_and(|key| key == WHOLE_STREAM);
                let facts = |reply| stream_facts(reply, is_whole);
                is_near(&facts(&tested), &facts(&reference))
            }
            Self::Encoding => is_same_encoding(tested.bytes(), reference.bytes()),
            Self::CommandInfo => without_hints(&tested) == without_hints(&reference),
            Self::Except(names) => without(&tested, names) == without(&reference, names),
        }
    }
}

/// Returns the call that has to follow this one in its pipeline, so that its replies can be compared.
pub(super) fn probe(call: &Call) -> Option<Call> {
    let is_sort = call[0].eq_ignore_ascii_case(b"sort") || call[0].eq_ignore_ascii_case(b"sort_ro");
    // The type determines if there is an order that was not asked for.
    let is_unsorted =
        call.windows(2).any(|pair| pair[0].eq_ignore_ascii_case(b"by") && !pair[1].contains(&b'*'));
    if is_sort && is_unsorted {
        return Some(vec![b"TYPE".to_vec(), call.get(1)?.clone()]);
    }
    draws::full_read(call)
}

/// Returns true if the reply is that of a SORT of texts.
fn sorts_texts(call: &Call) -> bool {
    let has = |word: &str| call.iter().any(|arg| arg.eq_ignore_ascii_case(word.as_bytes()));
    has("alpha") && !has("store")
}

/// Errors have to be equal for any command. If Redis quotes raw bytes of the client, the quotation is cleaned.
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

/// Returns true if two replies are equal except for the spelling of numbers. The sign of a computed zero depends on
/// the encodings that it went through.
fn is_spelled_alike(tested: &Reply, reference: &Reply) -> bool {
    match (tested, reference) {
        (Reply::Array(ours), Reply::Array(theirs)) => {
            ours.len() == theirs.len()
                && ours.iter().zip(theirs).all(|(ours, theirs)| is_spelled_alike(ours, theirs))
        }
        (Reply::Bulk(ours), Reply::Bulk(theirs)) | (Reply::Double(ours), Reply::Double(theirs)) => {
            ours == theirs || number(ours).is_some_and(|ours| Some(ours) == number(theirs))
        }
        _ => tested == reference,
    }
}

fn number(text: &[u8]) -> Option<f64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Returns true if a weight may produce a NaN, from 0 or an infinity.
fn may_make_nan(call: &Call) -> bool {
    let weights = call.iter().skip_while(|word| !word.eq_ignore_ascii_case(b"weights")).skip(1);
    let mut weights = weights.map_while(|word| number(word));
    weights.any(|weight| weight == 0.0 || weight.is_infinite())
}

fn is_weighted_alike(call: &Call, tested: &Reply, reference: &Reply) -> bool {
    let size = 1 + usize::from(call.iter().any(|word| word.eq_ignore_ascii_case(b"withscores")));
    let sorted = |reply| {
        let mut members = draws::in_groups(reply, size);
        members.sort();
        members
    };
    let is_zero = |score: &Reply| match score {
        Reply::Bulk(text) | Reply::Double(text) => number(text) == Some(0.0),
        _ => false,
    };
    let (ours, theirs) = (sorted(tested), sorted(reference));
    let is_alike = |(ours, theirs): (&Vec<Reply>, &Vec<Reply>)| match (&ours[..], &theirs[..]) {
        ([member, ours], [other, theirs]) => {
            let may_differ = is_zero(ours) || is_zero(theirs);
            member == other && (may_differ || is_spelled_alike(ours, theirs))
        }
        _ => ours == theirs,
    };
    ours.len() == theirs.len() && ours.iter().zip(&theirs).all(is_alike)
}

/// Returns true if a call of SORT leaves the elements as they are.
fn is_by_nosort(call: &Call) -> bool {
    call.iter().any(|word| word.eq_ignore_ascii_case(b"nosort"))
}

/// Returns the index of the number of keys in a call of COMMAND GETKEYS.
fn counts_keys(command: &str) -> Option<usize> {
    match command {
        "LMPOP" | "SINTERCARD" | "ZDIFF" | "ZINTER" | "ZINTERCARD" | "ZMPOP" | "ZUNION" => Some(3),
        "BLMPOP" | "BZMPOP" | "ZDIFFSTORE" | "ZINTERSTORE" | "ZUNIONSTORE" => Some(4),
        "EVAL" | "EVAL_RO" | "EVALSHA" | "EVALSHA_RO" | "FCALL" | "FCALL_RO" => Some(4),
        _ => None,
    }
}

/// Returns true if a server may have returned this cursor.
fn is_cursor(text: &str) -> bool {
    text.parse::<u64>().is_ok_and(|cursor| cursor.to_string() == text)
}

/// Returns true if pending entries are equal except for the time since their delivery.
fn is_pending_alike(tested: &Reply, reference: &Reply) -> bool {
    let is_alike = |(a, b): (&Reply, &Reply)| match (a, b) {
        (Reply::Array(a), Reply::Array(b)) => match (a.as_slice(), b.as_slice()) {
            ([id, consumer, Reply::Int(idle), count], [theirs @ .., Reply::Int(their_idle), _])
                if theirs.len() == 2 =>
            {
                [id, consumer] == [&theirs[0], &theirs[1]]
                    && count == &b[3]
                    && idle.abs_diff(*their_idle) <= CLOCK_MS_MAX.unsigned_abs()
            }
            _ => a == b,
        },
        _ => a == b,
    };
    let (ours, theirs) = (tested.items(), reference.items());
    ours.len() == theirs.len() && ours.iter().zip(theirs).all(is_alike)
}

/// A stream that keeps its entries. In other streams, entries are deleted and trimmed, or their number is set.
const WHOLE_STREAM: &[u8] = b"w:0";

/// Returns the facts of XINFO without some: those that depend on how a server packs entries; those that 7.0 does not
/// know or gets wrong (the lag of groups, unless a stream `is_whole`); and consumers with nothing pending, which 7.0
/// does not always create.
fn stream_facts(reply: &Reply, is_whole: bool) -> Reply {
    const LEFT_OUT: [&str; 8] = [
        "entries-read",
        "lag",
        "radix-tree-keys",
        "radix-tree-nodes",
        "active-time",
        "inactive",
        "idle",
        "seen-time",
    ];
    let left_out = if is_whole { &LEFT_OUT[2..] } else { &LEFT_OUT };
    let is_name =
        |name: &Reply| matches!(name, Reply::Bulk(name) if name == b"length" || name == b"name");
    let flat = match reply {
        Reply::Map(pairs) => pairs.iter().flat_map(|(a, b)| [a.clone(), b.clone()]).collect(),
        Reply::Array(items) if items.first().is_some_and(is_name) => items.clone(),
        Reply::Array(items) => {
            let is_busy = |item: &&Reply| match item {
                Reply::Map(_) => true,
                item => item.items().first().is_some_and(is_name),
            };
            let (facts, others): (Vec<&Reply>, Vec<&Reply>) = items
                .iter()
                .partition(|item| matches!(item, Reply::Array(_) | Reply::Map(_)) && is_busy(item));
            if facts.is_empty() {
                return Reply::Array(others.into_iter().cloned().collect());
            }
            let facts = facts.into_iter().filter(has_pending);
            return Reply::Array(facts.map(|fact| stream_facts(fact, is_whole)).collect());
        }
        other => return other.clone(),
    };
    let kept = flat.chunks(2).filter(|pair| {
        let is_left_out = left_out.iter().any(|name| pair[0].bytes() == name.as_bytes());
        let is_number_of_consumers =
            pair[0].bytes() == b"consumers" && matches!(pair[1], Reply::Int(_));
        !is_left_out && !is_number_of_consumers
    });
    Reply::Array(
        kept.flat_map(|pair| [pair[0].clone(), stream_facts(&pair[1], is_whole)]).collect(),
    )
}

/// Returns false for the facts of a consumer with nothing pending.
fn has_pending(facts: &&Reply) -> bool {
    let pairs: Vec<(&Reply, &Reply)> = match facts {
        Reply::Map(pairs) => pairs.iter().map(|(name, value)| (name, value)).collect(),
        facts => facts.items().chunks(2).map(|pair| (&pair[0], &pair[1])).collect(),
    };
    let has = |name: &str| pairs.iter().any(|(other, _)| other.bytes() == name.as_bytes());
    let is_consumer = has("seen-time") || has("idle");
    let is_none = |name: &Reply, value: &Reply| {
        (name.bytes() == b"pel-count" || name.bytes() == b"pending") && *value == Reply::Int(0)
    };
    !is_consumer || !pairs.iter().any(|(name, value)| is_none(name, value))
}

/// Returns true if two replies are equal except for times, which may differ a little.
fn is_near(a: &Reply, b: &Reply) -> bool {
    /// Lower bound of times in milliseconds. No other number is as large.
    const TIMES_FROM: i64 = 100_000_000_000;
    match (a, b) {
        (Reply::Int(a), Reply::Int(b)) => {
            a == b || *a.min(b) >= TIMES_FROM && a.abs_diff(*b) <= CLOCK_MS_MAX.unsigned_abs()
        }
        (Reply::Array(a), Reply::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_near(a, b))
        }
        _ => a == b,
    }
}

/// Since 7.2 there are small lists and small sets of words. The arguments of SADD determine the expected size of a
/// set, equal ones included. A result of INCRBYFLOAT is a text in Redis until it is loaded again, and a value that
/// BITFIELD or PFADD could have changed counts as changed.
fn is_same_encoding(tested: &[u8], reference: &[u8]) -> bool {
    let is = |ours: &str, theirs: &str| tested == ours.as_bytes() && reference == theirs.as_bytes();
    is("listpack", "quicklist")
        || is("listpack", "hashtable")
        || is("hashtable", "intset")
        || is("int", "embstr")
        || is("embstr", "raw")
        || is("int", "raw")
}

fn sorted(reply: &Reply) -> Vec<&Reply> {
    let mut items: Vec<_> = match reply {
        Reply::Map(pairs) => pairs.iter().flat_map(|(name, value)| [name, value]).collect(),
        Reply::Array(items) | Reply::Set(items) => items.iter().collect(),
        other => vec![other],
    };
    items.sort();
    items
}

fn sorted_pairs(reply: &Reply) -> Vec<(Reply, Reply)> {
    let mut pairs: Vec<_> = match reply {
        Reply::Map(pairs) => pairs.clone(),
        other => other.items().chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect(),
    };
    pairs.sort();
    pairs
}

/// Returns members, with the texts of their scores normalised.
fn scores(reply: &Reply) -> Vec<(Reply, String)> {
    let number = |score: Reply| {
        score.text().parse::<f64>().map_or_else(|e| e.to_string(), |n| (n + 0.0).to_string())
    };
    sorted_pairs(reply).into_iter().map(|(member, score)| (member, number(score))).collect()
}

fn is_same_sweep(a: &Reply, b: &Reply, is_same: impl Fn(&Reply, &Reply) -> bool) -> bool {
    let ([a, found], [b, expected]) = (a.items(), b.items()) else { return false };
    let is_end = |cursor: &Reply| cursor.text() == "0";
    !is_end(a) || !is_end(b) || is_same(found, expected)
}

fn without_hints(reply: &Reply) -> Vec<Vec<Reply>> {
    const HINTS: usize = 7;
    let without = |command: &Reply| match command {
        Reply::Array(facts) => [&facts[..HINTS], &facts[HINTS + 1..]].concat(),
        absent => vec![absent.clone()],
    };
    reply.items().iter().map(without).collect()
}

/// Returns names and values of a map, or of an array of names and values. Leaves out some values.
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
        check("ZSCORE a b", "$3\r\n0.1\r\n", "$19\r\n0.10000000000000001\r\n", true);
        check("ZSCORE a b", "$3\r\n0.1\r\n", "$3\r\n0.2\r\n", false);
        check("ZINTER 2 a b WEIGHTS 0 1", "*2\r\n+m\r\n+n\r\n", "*2\r\n+n\r\n+m\r\n", true);
        check("ZINTER 2 a b WEIGHTS 2 1", "*2\r\n+m\r\n+n\r\n", "*2\r\n+n\r\n+m\r\n", false);
        let scores = "ZINTER 2 a b WEIGHTS 0 -2.5 WITHSCORES";
        check(scores, "*2\r\n$1\r\nm\r\n$3\r\ninf\r\n", "*2\r\n$1\r\nm\r\n$1\r\n0\r\n", true);
        check(scores, "*2\r\n$1\r\nm\r\n$3\r\ninf\r\n", "*2\r\n$1\r\nm\r\n$1\r\n5\r\n", false);
        let facts = |lag| format!("*1\r\n*4\r\n$4\r\nname\r\n$1\r\ng\r\n$3\r\nlag\r\n:{lag}\r\n");
        check("XINFO GROUPS s:0", &facts(1), &facts(2), true);
        check("XINFO GROUPS w:0", &facts(1), &facts(2), false);
        check("hello 2", "*2\r\n+id\r\n:1\r\n", "*2\r\n+id\r\n:2\r\n", true);
        check("hello 2", "*2\r\n+proto\r\n:2\r\n", "*2\r\n+proto\r\n:3\r\n", false);
    }
}
