//! The random commands.

use tierce_harness::Random;

use super::grammar::expand;

/// A command with its arguments.
pub(super) type Call = Vec<Vec<u8>>;

/// Databases that the stream works in. Few, so that commands meet each other's keys.
pub(super) const DATABASES: usize = 3;
/// Names of keys, for the same reason.
const KEYS: usize = 12;

/// Commands with all their options, and how often each comes.
///
/// Left out, because they end the connection or the run: QUIT, SHUTDOWN, MONITOR, DEBUG, CLIENT
/// PAUSE, CLIENT REPLY OFF. Left out, because the answer is the server's own: INFO, CONFIG, MEMORY,
/// SLOWLOG, LATENCY, LOLWUT, COMMAND DOCS. Left out, because Redis 7.0 does not have them: CLIENT
/// SETINFO, CLIENT NO-TOUCH.
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
    (8, "OBJECT ENCODING {key}"),
    (2, "OBJECT (REFCOUNT | IDLETIME | FREQ) {key}"),
    (1, "OBJECT {value} {key}"),
    (3, "PING [{value}] [{value}]"),
    (3, "ECHO {value}"),
    (2, "HELLO [({int} | 2 | 3) [(AUTH {value} {value} | SETNAME {value})]]"),
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
        "CLIENT KILL (ID 0 | ID 123456789 | TYPE (pubsub | {value}) | ADDR {value} | 1.2.3.4:5 | USER {value})",
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

/// Makes calls from a seed.
pub(super) struct Stream {
    random: Random,
    weights: usize,
    /// How many relative times were made; see [`Values::time`].
    times: i64,
}

impl Stream {
    pub(super) fn new(seed: u64) -> Self {
        let weights = TEMPLATES.iter().map(|(weight, _)| weight).sum();
        Self { random: Random::new(seed), weights, times: 0 }
    }

    pub(super) fn next_call(&mut self) -> Call {
        loop {
            let call = self.any_call();
            if !depends_on_the_clock(&call) && !changed_after_7_0(&call) {
                return call;
            }
        }
    }

    fn any_call(&mut self) -> Call {
        let template = self.template();
        let mut call = Vec::new();
        let times = &mut self.times;
        let mut value = |name: &str, random: &mut Random| Values { random, times }.of(name);
        expand(template, &mut self.random, &mut value, &mut call);
        // Some kinds of values are two words.
        call = call.into_iter().flat_map(split_option).collect();
        self.misuse(&mut call);
        self.change_case(&mut call);
        call
    }

    fn template(&mut self) -> &'static str {
        let mut point = self.random.below(self.weights);
        for (weight, template) in TEMPLATES {
            if point < *weight {
                return template;
            }
            point -= weight;
        }
        unreachable!("the point is below the sum of all weights");
    }

    /// Now and then makes a mistake.
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

    /// Names and options are found in any case.
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

/// An option and its value that were made together, as `EX\n100`.
fn split_option(word: Vec<u8>) -> Vec<Vec<u8>> {
    match word.split_first() {
        Some((b'\n', option)) => option.split(|byte| *byte == b' ').map(<[u8]>::to_vec).collect(),
        _ => vec![word],
    }
}

/// Numbers that are none, and those at the limits.
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
    "5e-324",
    ".5",
    "1.",
    "-0.0",
    "1000000000000000000000",
];

const PATTERNS: [&str; 12] = [
    "*", "k:*", "k:1*", "k:?", "k:[0-3]", "k:[^0-3]", "*[0-9]", "k:\\1", "", "K:*", "k:[a-", "?:?",
];

/// Makes the values of templates.
struct Values<'a> {
    random: &'a mut Random,
    times: &'a mut i64,
}

impl Values<'_> {
    fn of(&mut self, name: &str) -> Vec<u8> {
        let random = &mut *self.random;
        match name {
            "key" => format!("k:{}", random.below(KEYS)).into_bytes(),
            "value" => self.value(),
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
            "unknown" => random.pick(&["NOSUCH", "GETT", "FOO-BAR", "X"]).into(),
            "seconds" => self.time(1),
            "milliseconds" => self.time(1000),
            "at-seconds" => self.deadline(1),
            "at-milliseconds" => self.deadline(1000),
            "expire" => self.expire(),
            _ => panic!("no such value: {name}"),
        }
    }

    fn value(&mut self) -> Vec<u8> {
        let random = &mut *self.random;
        match random.below(12) {
            0..3 => random.pick(&INTS).into(),
            3 => random.pick(&FLOATS).into(),
            4 => random.pick(&EDGES).into(),
            5 => random.next_u64().to_string().into_bytes(),
            6 => {
                let len = random.below(70);
                random.bytes(len)
            }
            7 => {
                // Around the length from which Redis stores a string apart.
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

    /// A time to live that is over, or lasts for days. No two of the latter are within a thousand
    /// seconds, so that GT and LT decide alike although the clocks of the servers are not the same.
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

    /// A point in time, in the past or in the far future.
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

/// Whether the outcome depends on when the call is executed. A mistake may have made a short time
/// to live of a value; and a time in the past, which SET accepts, leaves a key that Redis counts
/// until it comes across it.
fn depends_on_the_clock(call: &Call) -> bool {
    /// Seconds that no run takes, and those of a point in time that none reaches.
    const FAR: i64 = 50_000;
    const FAR_FUTURE: i64 = 20_000_000_000;
    let is_between = |n: usize, end: i64| {
        let text = call.get(n).and_then(|arg| std::str::from_utf8(arg).ok());
        let number = text.and_then(|text| text.parse::<i64>().ok());
        number.is_some_and(|number| (1..end).contains(&number))
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

/// Whether Redis 7.2, which Tierce follows, answers otherwise than 7.0, which Debian has.
fn changed_after_7_0(call: &Call) -> bool {
    let is = |n: usize, word: &str| {
        call.get(n).is_some_and(|arg| arg.eq_ignore_ascii_case(word.as_bytes()))
    };
    // 7.0 does one option after the other, until it finds fault with one; 7.2 does all or nothing.
    let one_option = (is(2, "setname") && call.len() == 4) || (is(2, "auth") && call.len() == 5);
    let options = (2..call.len()).any(|n| is(n, "setname") || is(n, "auth"));
    // 7.2 accepts calls without arguments, as far as the command itself does.
    let keys = is(1, "getkeys") || is(1, "getkeysandflags");
    (is(0, "hello") && options && !one_option) || (is(0, "command") && keys && call.len() < 4)
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
        for (_, template) in TEMPLATES {
            let name = template.split(' ').next().expect("a name");
            assert!(name.starts_with('{') || names.contains(name.as_bytes()), "{name}");
        }
    }
}
