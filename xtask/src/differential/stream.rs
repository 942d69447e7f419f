//! The random commands.

use std::collections::VecDeque;

use tierce_harness::Random;

use super::grammar::expand;
use super::{bits, comparison, geo, lists, scripts, sorted_sets, streams, waits};

/// A command with its arguments.
pub(super) type Call = Vec<Vec<u8>>;

/// Number of databases that the stream uses. Few, so that commands meet each other's keys.
pub(super) const DATABASES: usize = 3;
/// Number of key names; few for the same reason.
const KEYS: usize = 12;
/// Number of key names for each type of collection.
const TYPED_KEYS: usize = 5;
/// Number of names of fields and of members.
const FIELDS: usize = 20;

/// Commands with all their options, and the weight of each.
///
/// These are left out because they end the connection or the run: QUIT, SHUTDOWN, MONITOR, DEBUG, CLIENT PAUSE,
/// CLIENT REPLY OFF. These are left out because the reply is the server's own: INFO, CONFIG, MEMORY, SLOWLOG,
/// LATENCY, LOLWUT, COMMAND DOCS. These are left out because Redis 7.0 does not have them: CLIENT SETINFO, CLIENT
/// NO-TOUCH.
const TEMPLATES: &[(usize, &str)] = &[
    (40, "SET {key} {value} [(NX | XX)] [GET] [({expire} | KEEPTTL)]"),
    (10, "SET {key} {value} [{expire}] [(NX | XX)] [KEEPTTL] [GET] [{expire}]"),
    (30, "GET {key}"),
    (8, "GETEX {key} [({expire} | PERSIST)]"),
    (6, "GETDEL {key}"),
    (6, "GETSET {key} {value}"),
    (6, "SETNX {key} {value}"),
    (5, "SETEX {key} {seconds} {value}"),
    (5, "PSETEX {key} {milliseconds} {value}"),
    (8, "MSET {key} {value} [{key} {value}] [{key} {value}]"),
    (8, "MSETNX {key} {value} [{key} {value}] [{key} {value}]"),
    (10, "MGET {key}+"),
    (10, "APPEND {key} {value}"),
    (8, "STRLEN {key}"),
    (8, "INCR {key}"),
    (8, "DECR {key}"),
    (10, "INCRBY {key} {int}"),
    (10, "DECRBY {key} {int}"),
    (12, "INCRBYFLOAT {key} {float}"),
    (10, "GETRANGE {key} {index} {index}"),
    (4, "SUBSTR {key} {index} {index}"),
    (10, "SETRANGE {key} {offset} {value}"),
    (10, "LCS {key} {key} [LEN] [IDX] [MINMATCHLEN {index}] [WITHMATCHLEN]"),
    (8, "DEL {key}+"),
    (5, "UNLINK {key}+"),
    (6, "EXISTS {key}+"),
    (3, "TOUCH {key}+"),
    (4, "TYPE {key}"),
    (10, "RENAME {key} {key}"),
    (8, "RENAMENX {key} {key}"),
    (12, "COPY {key} {key} [DB {db}] [REPLACE]"),
    (8, "MOVE {key} {db}"),
    (3, "SWAPDB {db} {db}"),
    (12, "SELECT {db}"),
    (4, "KEYS {pattern}"),
    (3, "RANDOMKEY"),
    (3, "SCAN 0 [MATCH {pattern}] [COUNT {int}] [TYPE (string | list | {value})]"),
    (2, "SCAN {int} [COUNT {int}]"),
    (4, "DBSIZE"),
    (1, "FLUSHDB [(SYNC | ASYNC)]"),
    (1, "FLUSHALL [(SYNC | ASYNC | {value})]"),
    (10, "EXPIRE {key} {seconds} [{condition}] [{condition}]"),
    (8, "PEXPIRE {key} {milliseconds} [{condition}]"),
    (10, "EXPIREAT {key} {at-seconds} [{condition}] [{condition}]"),
    (8, "PEXPIREAT {key} {at-milliseconds} [{condition}]"),
    (5, "TTL {key}"),
    (5, "PTTL {key}"),
    (6, "EXPIRETIME {key}"),
    (6, "PEXPIRETIME {key}"),
    (6, "PERSIST {key}"),
    (30, "HSET {hash} {field} {value} [{field} {value}] [{field} {value}]"),
    (4, "HMSET {hash} {field} {value} [{field} {value}]"),
    (6, "HSETNX {hash} {field} {value}"),
    (12, "HGET {hash} {field}"),
    (8, "HMGET {hash} {field}+"),
    (6, "HGETALL {hash}"),
    (4, "HKEYS {hash}"),
    (4, "HVALS {hash}"),
    (5, "HLEN {hash}"),
    (8, "HDEL {hash} {field}+"),
    (5, "HEXISTS {hash} {field}"),
    (5, "HSTRLEN {hash} {field}"),
    (10, "HINCRBY {hash} {field} {int}"),
    (10, "HINCRBYFLOAT {hash} {field} {float}"),
    (6, "HRANDFIELD {hash} [{int}]"),
    (4, "HRANDFIELD {hash} {index} WITHVALUES"),
    (4, "HSCAN {hash} 0 [MATCH {pattern}] [COUNT {int}]"),
    (30, "SADD {set} {set-member}+"),
    (10, "SREM {set} {set-member}+"),
    (6, "SISMEMBER {set} {set-member}"),
    (6, "SMISMEMBER {set} {set-member}+"),
    (6, "SMEMBERS {set}"),
    (6, "SCARD {set}"),
    (8, "SMOVE {set} {set} {set-member}"),
    (3, "SPOP {set} (0 | 10000 | {int})"),
    (6, "SRANDMEMBER {set} [{int}]"),
    (8, "SINTER {set}+"),
    (8, "SUNION {set}+"),
    (8, "SDIFF {set}+"),
    (8, "SINTERCARD {small} {set} [{set}] [LIMIT {small}]"),
    (4, "SINTERCARD 2 {set} {set} [LIMIT {index}]"),
    (8, "SINTERSTORE {set} {set}+"),
    (8, "SUNIONSTORE {set} {set}+"),
    (8, "SDIFFSTORE {set} {set}+"),
    (4, "SSCAN {set} 0 [MATCH {pattern}] [COUNT {int}]"),
    (8, "OBJECT ENCODING {key}"),
    (4, "OBJECT ENCODING ({hash} | {set} | {list} | {zset} | {counter})"),
    (
        1,
        "CONFIG SET (hash-max-listpack-entries | zset-max-listpack-entries) (0 | 3 | 8 | 128 | 512)",
    ),
    (1, "CONFIG SET (hash-max-listpack-value | zset-max-listpack-value) (0 | 1 | 12 | 64)"),
    (
        1,
        "CONFIG SET (set-max-intset-entries | stream-node-max-entries) (0 | 1 | 3 | 10 | 100 | 512)",
    ),
    (1, "CONFIG SET list-max-listpack-size (-5 | -2 | -1 | 1 | 2 | 5 | 128)"),
    (1, "CONFIG SET (list-compress-depth | hll-sparse-max-bytes) (0 | 1 | 3 | 100 | 3000)"),
    (2, "OBJECT (REFCOUNT | IDLETIME | FREQ) {key}"),
    (1, "OBJECT {value} {key}"),
    (3, "PING [{value}] [{value}]"),
    (3, "ECHO {value}"),
    (2, "HELLO [({int} | 2 | 3) [(AUTH default {value} | SETNAME {value})]]"),
    (3, "HELLO (2 | 3)"),
    (1, "RESET"),
    (2, "AUTH [default] {value}"),
    (2, "CLIENT (ID | GETNAME | GETREDIR | TRACKINGINFO | INFO | {value})"),
    (2, "CLIENT SETNAME {value}"),
    (1, "CLIENT NO-EVICT (on | off | {value})"),
    (1, "CLIENT UNBLOCK {int} [(TIMEOUT | ERROR | {value})]"),
    (1, "CLIENT LIST [TYPE (pubsub | {value})] [ID {int}]"),
    (
        1,
        "CLIENT KILL (ID 0 | ID 123456789 | TYPE (master | {value}) | ADDR {value} | 1.2.3.4:5 | USER {value})",
    ),
    (2, "CLIENT REPLY SKIP"),
    (1, "CLIENT REPLY {value}"),
    (2, "WAIT 0 {small}"),
    (2, "COMMAND GETKEYS (GET {key} | MSET {key} 1 {key} | DEL {key}+ | LCS {key} {key} LEN)"),
    (1, "COMMAND GETKEYSANDFLAGS (SET {key} 1 | RENAME {key} {key} | COPY {key} {key})"),
    (1, "COMMAND INFO (incr | strlen | expire | nosuch) [(append | setrange | rename)]"),
    (1, "COMMAND COUNT {value}"),
    (1, "ROLE"),
    (1, "{unknown} {value}"),
];

/// A group of templates with their weights.
type Chapter = &'static [(usize, &'static str)];

/// Templates of this file and of the files for data types.
const CHAPTERS: &[Chapter] = &[
    TEMPLATES,
    lists::TEMPLATES,
    sorted_sets::TEMPLATES,
    geo::TEMPLATES,
    streams::TEMPLATES,
    bits::TEMPLATES,
    scripts::TEMPLATES,
    waits::TEMPLATES,
];

/// Makes calls from a seed.
pub(super) struct Stream {
    random: Random,
    /// Calls that have to come next.
    next: VecDeque<Call>,
    /// Number of relative times made so far; see [`Values::time`].
    times: i64,
    /// Number of identities of entries made so far; see [`Values::new_id`].
    entries: u64,
}

impl Stream {
    pub(super) fn new(seed: u64) -> Self {
        Self { random: Random::new(seed), next: VecDeque::new(), times: 0, entries: 0 }
    }

    pub(super) fn next_call(&mut self) -> Call {
        if let Some(call) = self.next.pop_front() {
            return call;
        }
        let call = self.call_of(CHAPTERS);
        let probe = comparison::probe(&call);
        self.next.extend(with_a_clean_start(call).chain(probe));
        self.next.pop_front().expect("at least one was made")
    }

    /// Returns a blocking call for a client that waits until it is served.
    pub(super) fn waiting_call(&mut self) -> Call {
        let mut call = Vec::new();
        let template = self.template(&[waits::WAITING]);
        self.expand(template, &mut call);
        call
    }

    /// Returns calls that may serve the blocked clients of this database, mixed with other calls.
    pub(super) fn calls_for_waiting_clients(&mut self, db: usize, waiting: &[Call]) -> Vec<Call> {
        const CALLS: usize = 12;
        /// Commands that can create a stream without entries but with a higher identity than before. 7.0 then serves
        /// clients that are blocked by XREAD with nothing; 7.2 does not serve them.
        const EMPTY_STREAMS: [&str; 7] =
            ["rename", "renamenx", "move", "copy", "xsetid", "xgroup", "xdel"];
        let calls = (0..CALLS).map(|_| match self.random.below(3) {
            0 => self.call_of(CHAPTERS),
            _ => self.call_of(&[waits::FEEDING]),
        });
        let is = |arg: &Vec<u8>, word: &str| arg.eq_ignore_ascii_case(word.as_bytes());
        let trims = |call: &Call| call.iter().any(|arg| is(arg, "maxlen") || is(arg, "minid"));
        // Redis serves no client with a value that a command stores over one of another type.
        let stores = |call: &Call| {
            let is_store = |arg: &Vec<u8>| arg.to_ascii_uppercase().ends_with(b"STORE");
            call.iter().any(|arg| is_store(arg) || is(arg, "storedist"))
        };
        let reads = waiting.iter().any(|call| is(&call[0], "xread"));
        let is_left_out = |call: &Call| {
            let name = &call[0];
            // A command about clients might end other waits than the scenario intends. SWAPDB brings several keys at
            // once, of which 7.0 takes another one than 7.2. And 7.2 serves no client with an entry that is trimmed
            // at once.
            is(name, "client")
                || is(name, "swapdb")
                || is(name, "xadd") && trims(call)
                || stores(call)
                || reads && EMPTY_STREAMS.iter().any(|word| is(name, word))
        };
        let calls = calls.filter(|call| !is_left_out(call)).flat_map(with_a_clean_start);
        let calls = calls.collect::<Vec<_>>();
        let select = vec![b"SELECT".to_vec(), db.to_string().into_bytes()];
        std::iter::once(select).chain(calls).collect()
    }

    fn call_of(&mut self, chapters: &[Chapter]) -> Call {
        loop {
            let call = self.any_call(chapters);
            let is_left_out = self.sets_id_back(&call)
                || depends_on_the_clock(&call)
                || waits_for_long(&call)
                || changes_by_chance(&call)
                || trims_about(&call)
                || configures_nothing(&call)
                || hides_a_star(&call)
                || may_sort_scores(&call)
                || changed_after_7_0(&call)
                || mixes_scores(&call)
                || asks_for_too_much(&call);
            if !is_left_out {
                return call;
            }
        }
    }

    /// Returns true if XSETID names an identity that an entry may have had. Since 7.2 it must not be below that of
    /// the highest deleted entry.
    fn sets_id_back(&self, call: &Call) -> bool {
        let ms = |id: &[u8]| {
            let ms = id.split(|byte| *byte == b'-').next()?;
            std::str::from_utf8(ms).ok()?.parse::<u64>().ok()
        };
        call[0].eq_ignore_ascii_case(b"xsetid")
            && call.get(2).and_then(|id| ms(id)).is_some_and(|ms| ms <= self.entries / 4)
    }

    fn any_call(&mut self, chapters: &[Chapter]) -> Call {
        let mut call = Vec::new();
        let template = self.template(chapters);
        self.expand(template, &mut call);
        self.misuse(&mut call);
        self.change_case(&mut call);
        call
    }

    fn expand(&mut self, template: &str, call: &mut Call) {
        let (times, entries) = (&mut self.times, &mut self.entries);
        let mut value =
            |name: &str, random: &mut Random| Values { random, times, entries }.of(name);
        expand(template, &mut self.random, &mut value, call);
        // Some kinds of values are two words.
        *call = std::mem::take(call).into_iter().flat_map(split_option).collect();
    }

    fn template(&mut self, chapters: &[Chapter]) -> &'static str {
        let templates = || chapters.iter().copied().flatten();
        let mut point = self.random.below(templates().map(|(weight, _)| weight).sum());
        for (weight, template) in templates() {
            if point < *weight {
                return template;
            }
            point -= weight;
        }
        unreachable!("the point is below the sum of all weights");
    }

    /// Adds a random mistake now and then.
    fn misuse(&mut self, call: &mut Call) {
        let random = &mut self.random;
        let edge = |random: &mut Random| random.pick(&EDGES).as_bytes().to_vec();
        let at = 1 + random.below(call.len());
        match random.below(150) {
            0 if call.len() > 1 => {
                call.pop();
            }
            1 => call.push(edge(random)),
            2 if at < call.len() => call.push(call[at].clone()),
            3..7 if at < call.len() => call[at] = edge(random),
            7 if at + 1 < call.len() => call.swap(at, at + 1),
            _ => {}
        }
    }

    /// Changes the case of names and options, which are not case-sensitive.
    fn change_case(&mut self, call: &mut Call) {
        if self.random.one_in(10) {
            call[0].make_ascii_lowercase();
        }
        let options = call.iter_mut().skip(2).filter(|arg| arg.iter().all(u8::is_ascii_uppercase));
        for option in options {
            if self.random.one_in(10) {
                option.make_ascii_lowercase();
            }
        }
    }
}

/// Splits an option and its value that were made together, as `EX\n100`.
fn split_option(word: Vec<u8>) -> Vec<Vec<u8>> {
    match word.split_first() {
        Some((b'\n', option)) => option.split(|byte| *byte == b' ').map(<[u8]>::to_vec).collect(),
        _ => vec![word],
    }
}

/// Invalid numbers, and numbers at the limits.
const EDGES: [&str; 26] = [
    "",
    " ",
    "0",
    "-0",
    "00",
    "+1",
    "-1",
    "1.5",
    "x",
    "1x",
    " 1",
    "1 ",
    "0x10",
    "1e3",
    "nan",
    "inf",
    "-inf",
    "2147483647",
    "2147483648",
    "-2147483649",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "-9223372036854775809",
    "18446744073709551616",
    "NX",
];

const INTS: [&str; 14] = [
    "0",
    "1",
    "-1",
    "2",
    "7",
    "10",
    "100",
    "-100",
    "9999",
    "10000",
    "123456789",
    "4611686018427387904",
    "9223372036854775807",
    "-9223372036854775808",
];

const FLOATS: [&str; 20] = [
    "5e-324",
    "0",
    "1",
    "-1",
    "0.1",
    "0.2",
    "-0.3",
    "3.14159",
    "1e3",
    "1.5e-5",
    "-2.5e10",
    "1e17",
    "1e18",
    "123456.789",
    "0.00000000000000001",
    "99999999999999.99",
    ".5",
    "1.",
    "-0.0",
    "1000000000000000000000",
];

const SCORES: [&str; 16] = [
    "0", "0", "1", "1", "2", "-1", "-0", "0.5", "3.25", "1e3", "-2.5", "inf", "-inf", "100", "0.1",
    "12345678",
];

const DEGREES: [&str; 10] = [
    "0",
    "13.361389",
    "38.115556",
    "15.087269",
    "37.502669",
    "-180",
    "180",
    "85.05112878",
    "86",
    "-0",
];

const PATTERNS: [&str; 12] = [
    "*", "k:*", "k:1*", "k:?", "k:[0-3]", "k:[^0-3]", "*[0-9]", "k:\\1", "", "K:*", "k:[a-", "?:?",
];

/// Makes the values of templates.
struct Values<'a> {
    random: &'a mut Random,
    times: &'a mut i64,
    entries: &'a mut u64,
}

impl Values<'_> {
    fn of(&mut self, name: &str) -> Vec<u8> {
        let random = &mut *self.random;
        match name {
            // Each type has its own key names. Otherwise most commands would meet the wrong type.
            "key" if random.one_in(12) => self.of("list"),
            "list" if random.one_in(20) => b"k:1".to_vec(),
            "list" => format!("l:{}", random.below(KEYS / 2)).into_bytes(),
            "element" => self.element(),
            "key" if random.one_in(12) => self.of("zset"),
            "zset" if random.one_in(20) => b"k:1".to_vec(),
            "zset" => format!("z:{}", random.below(KEYS / 2)).into_bytes(),
            // A range of members is only meaningful if all scores are equal.
            "lex" => format!("x:{}", random.below(3)).into_bytes(),
            "member" => self.member(),
            "geo" if random.one_in(20) => b"k:1".to_vec(),
            "geo" => format!("g:{}", random.below(3)).into_bytes(),
            "place" => format!("p{}", random.below(12)).into_bytes(),
            // No two positions are equally far from a third one: the order of equal distances is undefined.
            "position" if random.one_in(40) => random.pick(&["86", "-181", "x"]).into(),
            "position" => format!("{:.9}", random.below(1 << 40) as f64 / 1e10 - 50.0).into_bytes(),
            "degrees" if random.one_in(3) => random.pick(&DEGREES).into(),
            "degrees" => format!("{:.4}", random.below(1_600_000) as f64 / 1e4 - 80.0).into_bytes(),
            "length" => {
                random.pick(&["0", "1", "100", "1500.5", "3000", "20000", "1e7", "-1"]).into()
            }
            "unit" => random.pick(&["m", "km", "km", "km", "ft", "mi", "KM", "yd"]).into(),
            "score" if random.one_in(12) => random.pick(&EDGES).into(),
            "score" => random.pick(&SCORES).into(),
            "score-end" => self.end(&["", "", "("], "score"),
            "member-end" if random.one_in(4) => random.pick(&["-", "+", "", "a"]).into(),
            "member-end" => self.end(&["[", "("], "member"),
            "count" => random.pick(&["0", "1", "2", "3", "5", "-1", "20"]).into(),
            "stream" | "bitmap" | "counter" if random.one_in(20) => b"k:1".to_vec(),
            "stream" => format!("s:{}", random.below(3)).into_bytes(),
            "bitmap" => format!("b:{}", random.below(KEYS / 2)).into_bytes(),
            "counter" => format!("h:{}", random.below(3)).into_bytes(),
            "group" => random.pick(&["g", "g", "g", "h"]).into(),
            "consumer" => random.pick(&["ann", "bob", "eve"]).into(),
            "entry-field" => random.pick(&["f", "f", "g", "7", ""]).into(),
            "few" => random.pick(&["1", "2", "3", "10"]).into(),
            "new-id" => self.new_id(),
            "entry-id" => self.entry_id(),
            "high-id" => format!("{}-{}", *self.entries / 4 + 1, random.below(3)).into_bytes(),
            "interval" if random.one_in(4) => random.pick(&["-", "+"]).into(),
            "interval" if random.one_in(5) => [b"(", &*self.entry_id()].concat(),
            "interval" => self.entry_id(),
            "bit" if random.one_in(20) => random.pick(&EDGES).into(),
            "bit" if random.one_in(6) => format!("#{}", random.below(6)).into_bytes(),
            "bit" => random.below(200).to_string().into_bytes(),
            "width" => {
                let sign = random.pick(&["i", "u"]);
                format!("{sign}{}", 1 + random.below(64)).into_bytes()
            }
            "key" => format!("k:{}", random.below(KEYS)).into_bytes(),
            "value" => self.value(),
            // Mostly of one type, so that commands meet their own type.
            "hash" | "set" if random.one_in(25) => self.of("key"),
            "hash" => format!("h:{}", random.below(TYPED_KEYS)).into_bytes(),
            "set" => format!("s:{}", random.below(TYPED_KEYS)).into_bytes(),
            "field" => format!("f{}", random.below(FIELDS)).into_bytes(),
            "set-member" => match random.below(4) {
                0..3 => (random.below(FIELDS * 2) as i64 - 5).to_string().into_bytes(),
                _ => format!("k:{}", random.below(FIELDS)).into_bytes(),
            },
            "int" => random.pick(&INTS).into(),
            "small" => random.pick(&["0", "1", "5", "x", "-1"]).into(),
            "float" => random.pick(&FLOATS).into(),
            "index" => (random.below(30) as i64 - 15).to_string().into_bytes(),
            "offset" if random.one_in(20) => random.pick(&EDGES).into(),
            "offset" => random.below(60).to_string().into_bytes(),
            "db" if random.one_in(15) => {
                random.pick(&["16", "-1", "x", "2147483648", "15x"]).into()
            }
            "db" => random.below(DATABASES).to_string().into_bytes(),
            "pattern" => random.pick(&PATTERNS).into(),
            "condition" => random.pick(&["NX", "XX", "GT", "LT", "GT", "LT", "NOSUCH"]).into(),
            "script" => random.pick(&scripts::SCRIPTS).into(),
            "sha" => random.pick(&scripts::SHAS).into(),
            "unknown" => random.pick(&["NOSUCH", "GETT", "FOO-BAR", "X"]).into(),
            "seconds" => self.time(1),
            "milliseconds" => self.time(1000),
            "at-seconds" => self.deadline(1),
            "at-milliseconds" => self.deadline(1000),
            "expire" => self.expire(),
            "timeout" if random.one_in(15) => random.pick(&["-1", "x", "nan", ""]).into(),
            "timeout" => random.pick(&["0.001", "0.002", "1e-3"]).into(),
            "block" if random.one_in(15) => random.pick(&["-1", "x", "1.5", ""]).into(),
            "block" => random.pick(&["1", "2"]).into(),
            _ => panic!("no such value: {name}"),
        }
    }

    fn value(&mut self) -> Vec<u8> {
        let random = &mut *self.random;
        match random.below(12) {
            0..3 => random.pick(&INTS).into(),
            // Not the smallest number, which SORT refuses, and sometimes a number that it checks afterwards.
            3 => random.pick(&FLOATS[1..]).into(),
            4 => random.pick(&EDGES).into(),
            5 => random.next_u64().to_string().into_bytes(),
            6 => {
                let len = random.below(70);
                random.bytes(len)
            }
            7 => {
                // Around the length from which Redis stores a string in a separate allocation.
                let len = 40 + random.below(10);
                vec![b'a' + random.below(3) as u8; len]
            }
            8 => {
                let len = random.below(2_000);
                random.bytes(len)
            }
            _ => {
                let len = random.below(12);
                (0..len).map(|_| b'a' + random.below(4) as u8).collect()
            }
        }
    }

    /// Returns one of a few elements, so that searches find it, or any value.
    fn element(&mut self) -> Vec<u8> {
        match self.random.below(12) {
            0..8 => self.random.pick(&["a", "b", "c", "0", "1", "-1", "10", "300"]).into(),
            8 => self.random.pick(&["70000", "-70000", "16777217", "4294967296", "01"]).into(),
            _ => self.value(),
        }
    }

    /// Returns one of a few members that meet each other, few enough for sets of both encodings, or any value.
    fn member(&mut self) -> Vec<u8> {
        match self.random.below(20) {
            0 => self.value(),
            1..8 => self.random.pick(&["a", "b", "c", "ab", "abc", "b1", "7", "-3", "07"]).into(),
            _ => format!("m{}", self.random.below(200)).into_bytes(),
        }
    }

    /// Returns an end of a range: a prefix and a value.
    fn end(&mut self, begins: &[&str], name: &str) -> Vec<u8> {
        let begin = self.random.pick(begins).as_bytes().to_vec();
        [begin, self.of(name)].concat()
    }

    /// Returns an identity above most of the earlier ones.
    fn new_id(&mut self) -> Vec<u8> {
        *self.entries += 1;
        let ms = *self.entries / 4;
        match self.random.below(8) {
            0 => self.entry_id(),
            1..3 => format!("{ms}-*").into_bytes(),
            _ => format!("{ms}-{}", *self.entries % 4).into_bytes(),
        }
    }

    /// Returns an identity that an entry may have.
    fn entry_id(&mut self) -> Vec<u8> {
        let random = &mut *self.random;
        if random.one_in(20) {
            return random.pick(&EDGES).into();
        }
        let ms = (*self.entries / 4 + 2).saturating_sub(random.below(25) as u64);
        if random.one_in(4) {
            return ms.to_string().into_bytes();
        }
        format!("{ms}-{}", random.below(4)).into_bytes()
    }

    /// Returns a time to live that has passed, or lasts for days. No two of the latter are within a thousand seconds,
    /// so that GT and LT have equal results although the servers' clocks differ.
    fn time(&mut self, per_second: i64) -> Vec<u8> {
        if self.random.one_in(8) {
            let edges =
                ["0", "-1", "-1000", "x", "1.5", "", "9223372036854775807", "-9223372036854775808"];
            return self.random.pick(&edges).into();
        }
        *self.times += 1;
        // In a random order, but each at most once: the step is prime to the number of steps.
        let step = (*self.times * 7_919) % 1_000_003;
        ((100_000 + step * 1_000) * per_second).to_string().into_bytes()
    }

    /// Returns a point in time, in the past or in the far future.
    fn deadline(&mut self, per_second: i64) -> Vec<u8> {
        match self.random.below(8) {
            0 => self
                .random
                .pick(&["0", "-1", "1", "1000", "x", "9223372036854775807", "-9223372036854775808"])
                .into(),
            _ => {
                let seconds = 20_000_000_000 + self.random.below(50) as i64;
                (seconds * per_second).to_string().into_bytes()
            }
        }
    }

    fn expire(&mut self) -> Vec<u8> {
        let (option, value) = match self.random.below(4) {
            0 => ("EX", self.time(1)),
            1 => ("PX", self.time(1000)),
            2 => ("EXAT", self.deadline(1)),
            _ => ("PXAT", self.deadline(1000)),
        };
        [b"\n", option.as_bytes(), b" ", &value].concat()
    }
}

/// Returns true if the outcome depends on the time of execution. A mistake may have turned a value into a short time
/// to live. SET also accepts a time in the past, and then leaves a key that Redis counts until it accesses it.
fn depends_on_the_clock(call: &Call) -> bool {
    /// Seconds longer than any run, and a point in time that no run reaches.
    const FAR: i64 = 50_000;
    const FAR_FUTURE: i64 = 20_000_000_000;
    let is_between = |n: usize, end: i64| {
        let text = call.get(n).and_then(|arg| std::str::from_utf8(arg).ok());
        let number = text.and_then(|text| text.parse::<i64>().ok());
        number.is_some_and(|number| (1..=end).contains(&number))
    };
    let option = |n: usize| match call[n].to_ascii_uppercase().as_slice() {
        b"EX" => is_between(n + 1, FAR),
        b"PX" => is_between(n + 1, FAR * 1000),
        b"EXAT" => is_between(n + 1, FAR_FUTURE),
        b"PXAT" => is_between(n + 1, FAR_FUTURE * 1000),
        _ => false,
    };
    match call[0].to_ascii_uppercase().as_slice() {
        b"EXPIRE" | b"SETEX" => is_between(2, FAR),
        b"PEXPIRE" | b"PSETEX" => is_between(2, FAR * 1000),
        b"SET" | b"GETEX" => (1..call.len()).any(option),
        // There are no replicas to wait for.
        b"WAIT" => is_between(1, i64::MAX),
        _ => false,
    }
}

/// Returns true if the client might wait longer than a moment.
fn waits_for_long(call: &Call) -> bool {
    const MOMENT_S: f64 = 0.01;
    let name = call[0].to_ascii_uppercase();
    let timeout_ms = |arg: &[u8]| std::str::from_utf8(arg).ok()?.trim().parse::<f64>().ok();
    let is_long = |timeout: Option<f64>, unit: f64| {
        timeout.is_some_and(|timeout| timeout == 0.0 || timeout > MOMENT_S * unit)
    };
    match name.as_slice() {
        b"BLPOP" | b"BRPOP" | b"BLMOVE" | b"BRPOPLPUSH" | b"BZPOPMIN" | b"BZPOPMAX" => {
            is_long(call.last().and_then(|arg| timeout_ms(arg)), 1.0)
        }
        b"BLMPOP" | b"BZMPOP" => is_long(call.get(1).and_then(|arg| timeout_ms(arg)), 1.0),
        b"XREAD" | b"XREADGROUP" => call.windows(2).any(|pair| {
            pair[0].eq_ignore_ascii_case(b"block") && is_long(timeout_ms(&pair[1]), 1000.0)
        }),
        _ => false,
    }
}

/// Returns true if a mistake gives a set of equal scores a different score. For such a set the result of Redis itself
/// for this range of members depends on the random levels of its skip list.
fn mixes_scores(call: &Call) -> bool {
    let names_lex = call.iter().skip(1).any(|arg| arg.starts_with(b"x:"));
    let is = |name: &str| call[0].eq_ignore_ascii_case(name.as_bytes());
    let is_score = |arg: &Vec<u8>| {
        let is_number = |text: &str| text.parse::<f64>().is_ok() || text.starts_with("0x");
        std::str::from_utf8(arg).is_ok_and(|text| is_number(text) && text != "0")
    };
    // A mistake may also have swapped source and destination.
    let is_stored = call.get(1).is_some_and(|arg| arg.starts_with(b"x:")) && is("zrangestore");
    is_stored || names_lex && is("zadd") && call.iter().skip(2).step_by(2).any(is_score)
}

/// Returns a call, and before a SORT a call that changes nothing. Redis checks `errno` after each number that SORT
/// reads, but does not clear it. So a number out of range in an earlier command makes it fail.
fn with_a_clean_start(call: Call) -> impl Iterator<Item = Call> {
    let is_sort = [&b"sort"[..], b"sort_ro"].iter().any(|it| call[0].eq_ignore_ascii_case(it));
    let clearing = || ["ZADD", "x:none", "XX", "1", "m"].map(|word| word.into()).to_vec();
    is_sort.then(clearing).into_iter().chain([call])
}

/// Returns true for a SORT of a possible sorted set, or one that makes the list of a later SORT such a key. Redis
/// changes the encoding of sorted sets that it has sorted; a scenario sorts copies of them.
fn may_sort_scores(call: &Call) -> bool {
    let is_list = |n: usize| call.get(n).is_some_and(|key| key.starts_with(b"l:"));
    match call[0].to_ascii_uppercase().as_slice() {
        b"SORT" | b"SORT_RO" => !is_list(1),
        b"RENAME" | b"RENAMENX" | b"COPY" => !is_list(1) && is_list(2),
        _ => false,
    }
}

/// Returns true if the servers would differ afterwards: SPOP that leaves some members.
fn changes_by_chance(call: &Call) -> bool {
    let count = call.get(2).and_then(|arg| std::str::from_utf8(arg).ok()?.parse::<i64>().ok());
    let is_some_count = |count: i64| (1..1000).contains(&count);
    call[0].eq_ignore_ascii_case(b"spop") && (call.len() == 2 || count.is_some_and(is_some_count))
}

/// Returns true if the trimming of a stream depends on the blocks in which it is stored.
fn trims_about(call: &Call) -> bool {
    let name = call[0].to_ascii_uppercase();
    matches!(&*name, b"XADD" | b"XTRIM") && call.iter().any(|arg| arg == b"~")
}

/// Returns true if a size in bytes is set to an empty text, which is 0 in Redis.
fn configures_nothing(call: &Call) -> bool {
    call[0].eq_ignore_ascii_case(b"config") && call.iter().any(Vec::is_empty)
}

/// Returns true if a SORT pattern has its star after a zero byte, where Redis does not look for it.
fn hides_a_star(call: &Call) -> bool {
    let hides = |arg: &Vec<u8>| {
        let zero = arg.iter().position(|byte| *byte == 0);
        zero.is_some_and(|at| arg[at..].contains(&b'*'))
    };
    let name = call[0].to_ascii_uppercase();
    matches!(&*name, b"SORT" | b"SORT_RO") && call.iter().any(hides)
}

/// Returns true if the client's number would make the reply or the value too large.
fn asks_for_too_much(call: &Call) -> bool {
    const DRAWS_MAX: i64 = 200;
    const BITS: std::ops::Range<u64> = 1 << 20..1 << 32;
    let name = call[0].to_ascii_uppercase();
    let number = |arg: &[u8]| std::str::from_utf8(arg).ok()?.parse::<i64>().ok();
    let is_far = |arg: &Vec<u8>| {
        number(arg.strip_prefix(b"#").unwrap_or(arg))
            .is_some_and(|bit| BITS.contains(&(bit as u64)))
    };
    match name.as_slice() {
        b"SRANDMEMBER" | b"HRANDFIELD" | b"ZRANDMEMBER" => call
            .get(2)
            .and_then(|arg| number(arg))
            .is_some_and(|count| (-i64::MAX + 1..-DRAWS_MAX).contains(&count)),
        b"SETBIT" | b"BITFIELD" => call.iter().skip(2).any(is_far),
        _ => false,
    }
}

/// Returns true if Redis 7.2, which Tierce follows, replies differently than 7.0, which Debian has.
fn changed_after_7_0(call: &Call) -> bool {
    let is = |n: usize, word: &str| {
        call.get(n).is_some_and(|arg| arg.eq_ignore_ascii_case(word.as_bytes()))
    };
    // 7.0 executes one option after the other until one is invalid; 7.2 executes all or none.
    let one_option = (is(2, "setname") && call.len() == 4) || (is(2, "auth") && call.len() == 5);
    let options = (2..call.len()).any(|n| is(n, "setname") || is(n, "auth"));
    // 7.2 has an additional option here.
    let ranks = (is(0, "zrank") || is(0, "zrevrank")) && call.len() > 3;
    // 7.2 accepts calls without arguments if the command itself does.
    let keys = is(1, "getkeys") || is(1, "getkeysandflags");
    // 7.2 refuses the smallest number here, because it cannot be negated.
    let smallest = (2..call.len()).any(|n| is(n, "-9223372036854775808"));
    let is_refused = smallest && (is(0, "lrem") || is(0, "lpos"));
    // Error text for missing identities, and the order of checking the key and the arguments.
    let streams = (1..call.len()).find(|n| is(*n, "streams")).map_or(0, |n| call.len() - n - 1);
    let is_unbalanced = (is(0, "xread") || is(0, "xreadgroup")) && streams % 2 == 1;
    let bits = is(0, "bitcount") || is(0, "bitpos");
    let is_misused = (is(0, "bitcount") && call.len() == 3)
        || bits && !is_good_range(&call[if is(0, "bitpos") { 3 } else { 2 }.min(call.len())..]);
    // Redis takes a value far below a field's range for one above it, because of an internal overflow.
    let is_too_low = is(0, "bitfield") && (2..call.len()).any(|n| is(n, "-9223372036854775808"));
    is_refused
        || ranks
        || is_too_low
        || is_unbalanced
        || is_misused
        || (is(0, "hello") && options && !one_option)
        || (is(0, "command") && keys && call.len() < 4)
}

/// Returns true if these are positions of a range of bytes or bits.
fn is_good_range(positions: &[Vec<u8>]) -> bool {
    let is_number = |arg: &Vec<u8>| {
        std::str::from_utf8(arg)
            .is_ok_and(|text| text.parse::<i64>().is_ok_and(|number| number.to_string() == text))
    };
    let is_unit =
        |arg: &Vec<u8>| arg.eq_ignore_ascii_case(b"byte") || arg.eq_ignore_ascii_case(b"bit");
    let (numbers, units) = positions.split_at(positions.len().min(2));
    numbers.iter().all(is_number) && units.len() <= 1 && units.iter().all(is_unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_makes_the_same_calls() {
        let calls = |seed| {
            let mut stream = Stream::new(seed);
            (0..2_000).map(|_| stream.next_call()).collect::<Vec<_>>()
        };
        assert_eq!(calls(1), calls(1));
        assert_ne!(calls(1), calls(2));
    }

    #[test]
    fn every_template_comes() {
        let mut stream = Stream::new(1);
        let names: std::collections::BTreeSet<_> =
            (0..20_000).map(|_| stream.next_call()[0].to_ascii_uppercase()).collect();
        for (_, template) in CHAPTERS.iter().copied().flatten() {
            let name = template.split(' ').next().expect("a name");
            assert!(name.starts_with('{') || names.contains(name.as_bytes()), "{name}");
        }
    }
}
