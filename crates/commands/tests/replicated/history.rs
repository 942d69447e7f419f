//! Random commands on keys of all types.

use tierce_commands::command::Flags;
use tierce_harness::Random;

/// Commands. Text in braces is drawn at random. Names of keys tell their usual type.
const COMMANDS: &[&str] = &[
    "SET {t} {v}",
    "SET {t} {v} PX {ttl}",
    "SET {t} {v} KEEPTTL",
    "SETEX {t} 100 {v}",
    "SET {t} {n}",
    "SETNX {t} {v}",
    "PSETEX {t} {ttl} {v}",
    "GETSET {t} {v}",
    "MSET {t} {v} {t} {v}",
    "MSETNX {t} {v} {t} {v}",
    "MSETEX 2 {t} {v} {t} {n} PX {ttl}",
    "MSETEX 2 {t} {v} {t} {v} XX KEEPTTL",
    "SET {t} {v} IFNE {v} GET PX {ttl}",
    "SET {t} {n} IFEQ {n}",
    "APPEND {t} {v}",
    "SETRANGE {t} {n} {v}",
    "SETBIT {t} {n} 1",
    "INCRBY {t} {n}",
    "INCR {t}",
    "DECR {t}",
    "DECRBY {t} {n}",
    "INCRBYFLOAT {t} {f}",
    "INCREX {t} BYINT {n} UBOUND 20 SATURATE PX {ttl} ENX",
    "INCREX {t} BYFLOAT {f} PERSIST",
    "DELEX {t} IFNE {v}",
    "DELIFEQ {t} {n}",
    "GETDEL {t}",
    "GETEX {t} PX {ttl}",
    "GETEX {t} PERSIST",
    "PFADD {p} {v} {v} {v}",
    "PFMERGE {p} {p} {p}",
    "BITOP XOR {t} {t} {t}",
    "BITOP ONE {t} {t} {t}",
    "BITFIELD {t} SET u8 {n} {n}",
    "DEL {k}",
    "UNLINK {k} {k}",
    "RENAME {k} {k}",
    "RENAME {l} {l}",
    "RENAMENX {x} {x}",
    "COPY {k} {k} REPLACE",
    "COPY {x} {x} REPLACE",
    "COPY {h} {h} DB {d} REPLACE",
    "MOVE {k} {d}",
    "EXPIRE {k} 1000",
    "PEXPIRE {k} {ttl}",
    "PERSIST {k}",
    "EXPIREAT {k} 1",
    "PEXPIREAT {k} 7000000000000",
    "GET {t}",
    "SELECT {d}",
    "SWAPDB {d} {d}",
    "SORT {l} ALPHA STORE {l}",
    "LPUSH {l} {v} {v} {v}",
    "RPUSH {l} {v} {v} {v}",
    "LPUSH {l} {v}",
    "RPUSH {l} {v}",
    "RPUSHX {l} {v}",
    "LPUSHX {l} {v}",
    "LPOP {l}",
    "RPOP {l}",
    "LPOP {l} {n}",
    "RPOP {l} {n}",
    "LSET {l} {i} {v}",
    "LINSERT {l} BEFORE {v} {v}",
    "LINSERT {l} AFTER {v} {v}",
    "LREM {l} {i} {v}",
    "LREM {l} 0 {v}",
    "LTRIM {l} {i} {i}",
    "LTRIM {l} 1 -2",
    "LMOVE {l} {l} LEFT RIGHT",
    "LMOVE {l} {l} RIGHT LEFT",
    "RPOPLPUSH {l} {l}",
    "LMOVEM {l} {l} LEFT LEFT COUNT {n} OBO",
    "LMOVEM {l} {l} RIGHT RIGHT COUNT {n} OBO",
    "LMOVEM {l} {l} LEFT RIGHT COUNT {n} BULK",
    "LMOVEM {l} {l} RIGHT LEFT EXACTLY {n} BULK",
    "LMPOP 2 {l} {l} RIGHT COUNT 2",
    "SADD {s} {v} {v} {n}",
    "SADD {s} {n} {n}",
    "SREM {s} {v} {n}",
    "SPOP {s}",
    "SPOP {s} {n}",
    "SMOVE {s} {s} {n}",
    "SUNIONSTORE {s} {s} {s}",
    "SDIFFSTORE {s} {s} {s}",
    "SINTERSTORE {s} {s}",
    "SADDEX {s} PX {ttl} MEMBERS 2 {n} {v}",
    "SADDEX {s} PXAT 7000000000000 MEMBERS 2 {n} {n}",
    "SADDEX {s} KEEPTTL MEMBERS 1 {n}",
    "SADDEX {s} MNX EX 1000 MEMBERS 1 {n}",
    "SADDEX {s} MXX MEMBERS 1 {n}",
    "SADDEX {s} PXAT 1 MEMBERS 1 {n}",
    "SPEXPIRE {s} {ttl} MEMBERS 2 {n} {n}",
    "SPEXPIREAT {s} 7000000000000 MEMBERS 1 {n}",
    "SEXPIREAT {s} 1 MEMBERS 1 {n}",
    "SEXPIRE {s} 1000 MEMBERS 1 {n}",
    "SPERSIST {s} MEMBERS 2 {n} {n}",
    "ZADD {z} {f} {v} {f} {v}",
    "ZADD {z} XX {f} {v}",
    "ZINCRBY {z} {f} {v}",
    "ZREM {z} {v} {v}",
    "ZPOPMIN {z}",
    "ZPOPMAX {z} 2",
    "ZREMRANGEBYRANK {z} 0 1",
    "ZREMRANGEBYSCORE {z} ({f} {f}",
    "ZREMRANGEBYLEX {z} [{v} +",
    "ZMPOP 2 {z} {z} MAX COUNT 2",
    "ZINTERSTORE {z} 2 {z} {z}",
    "ZUNIONSTORE {z} 2 {z} {z}",
    "ZRANGESTORE {z} {z} 0 -2",
    "ZDIFFSTORE {z} 2 {z} {z}",
    "GEOADD {z} 13.4 52.5 {v}",
    "GEOSEARCHSTORE {z} {z} FROMLONLAT 13.4 52.5 BYRADIUS 900 km ASC",
    "GEOSEARCHSTORE {z} {z} BYPOLYGON 3 -180 -85 180 0 0 85",
    "GEORADIUS {z} 13.4 52.5 900 km STORE {z}",
    "GEORADIUSBYMEMBER {z} {v} 900 km STOREDIST {z}",
    "HSET {h} {v} {v} {v} {v}",
    "HSET {h} {n} {v}",
    "HSETNX {h} {v} {v}",
    "HMSET {h} {v} {v} {n} {v}",
    "HDEL {h} {v} {n}",
    "HINCRBY {h} {n} {n}",
    "HINCRBYFLOAT {h} {n} {f}",
    "HPEXPIRE {h} {ttl} FIELDS 2 {n} {n}",
    "HEXPIRE {h} 1000 FIELDS 1 {n}",
    "HPEXPIREAT {h} 7000000000000 FIELDS 1 {n}",
    "HEXPIREAT {h} 1 FIELDS 1 {n}",
    "HPERSIST {h} FIELDS 1 {n}",
    "HSETEX {h} PX {ttl} FIELDS 2 {n} {v} {n} {v}",
    "HSETEX {h} FXX KEEPTTL FIELDS 1 {n} {v}",
    "HSETEX {h} FNX PXAT 1 FIELDS 1 {n} {v}",
    "HSETEX {h} PXAT 7000000000000 FIELDS 2 {n} {v} {n} {v}",
    "HGETEX {h} PX {ttl} FIELDS 2 {n} {n}",
    "HGETEX {h} PERSIST FIELDS 1 {n}",
    "HGETDEL {h} FIELDS 2 {n} {n}",
    "HIMPORT PREPARE two 1 2",
    "HIMPORT SET {h} two {v} {v}",
    "HIMPORT SET {h} two {n} {v}",
    "XADD {x} {next} {v} {v}",
    "XADD {x} {next} {v} {v} {n} {n}",
    "XADD {x} * {v} {v}",
    "XADD {x} {next} {v} {v}",
    "XADD {x} MAXLEN 5 {next} {v} {v}",
    "XADD {x} MINID {id} {next} {v} {v}",
    "XADD {x} NOMKSTREAM {next} {v} {v}",
    "XADD {x} MAXLEN 5 DELREF {next} {v} {v}",
    "XADD {x} MAXLEN 5 ACKED {next} {v} {v}",
    "XADD {x} IDMP {c} {n} * {v} {v}",
    "XADD {x} IDMP {c} {n} MAXLEN 5 * {v} {v}",
    "XADD {x} IDMPAUTO {c} * {n} {n}",
    "XADD {x} IDMPAUTO {c} NOMKSTREAM * a {n}",
    "XCFGSET {x} IDMP-MAXSIZE 3",
    "XCFGSET {x} IDMP-DURATION 4 IDMP-MAXSIZE 100",
    "XIDMPRECORD {x} {c} {n} {id}",
    "XDEL {x} {id} {id}",
    "XDELEX {x} IDS 1 {id}",
    "XDELEX {x} DELREF IDS 2 {id} {id}",
    "XDELEX {x} ACKED IDS 3 {id} {id} {id}",
    "XACKDEL {x} {g} IDS 2 {id} {id}",
    "XACKDEL {x} {g} DELREF IDS 2 {id} {id}",
    "XACKDEL {x} {g} ACKED IDS 2 {id} {id}",
    "XTRIM {x} MAXLEN {n}",
    "XTRIM {x} MINID {id}",
    "XTRIM {x} MAXLEN {n} DELREF",
    "XTRIM {x} MINID {id} ACKED",
    "XSETID {x} {next}",
    "XSETID {x} {next} ENTRIESADDED 1000 MAXDELETEDID {id}",
    "XGROUP CREATE {x} {g} 0 MKSTREAM",
    "XGROUP CREATE {x} {g} $ MKSTREAM",
    "XGROUP CREATE {x} {g} {id} MKSTREAM ENTRIESREAD {n}",
    "XGROUP DESTROY {x} {g}",
    "XGROUP SETID {x} {g} {id}",
    "XGROUP SETID {x} {g} $ ENTRIESREAD {n}",
    "XGROUP CREATECONSUMER {x} {g} {c}",
    "XGROUP DELCONSUMER {x} {g} {c}",
    "XREADGROUP GROUP {g} {c} COUNT 3 STREAMS {x} >",
    "XREADGROUP GROUP {g} {c} STREAMS {x} >",
    "XREADGROUP GROUP {g} {c} COUNT 3 NOACK STREAMS {x} >",
    "XREADGROUP GROUP {g} {c} STREAMS {x} 0",
    "XREADGROUP GROUP {g} {c} COUNT 3 CLAIM 0 STREAMS {x} >",
    "XREADGROUP GROUP {g} {c} CLAIM 1 NOACK STREAMS {x} >",
    "XREADGROUP GROUP {g} {c} MAXCOUNT 2 STREAMS {x} {x} > >",
    "XREADGROUP GROUP {g} {c} MAXSIZE 100 STREAMS {x} >",
    "XNACK {x} {g} SILENT IDS 2 {id} {id}",
    "XNACK {x} {g} FATAL IDS 2 {id} {id} FORCE",
    "XNACK {x} {g} FAIL IDS 1 {id} RETRYCOUNT 3",
    "XACK {x} {g} {id} {id}",
    "XCLAIM {x} {g} {c} 0 {id} {id}",
    "XCLAIM {x} {g} {c} 0 {id} {id} FORCE JUSTID",
    "XCLAIM {x} {g} {c} 0 {id} RETRYCOUNT 7 LASTID {id} FORCE",
    "XAUTOCLAIM {x} {g} {c} 0 0 COUNT 3",
    "EVAL {script} 2 {k} {t}",
    "FUNCTION LOAD REPLACE {library}",
    "FUNCTION DELETE lib{n}",
    "SCRIPT REGISTER {n} {script}",
    "SCRIPT UNREGISTER {n}",
];

/// More commands that make values large, or concern whole values, with deadlines.
const DENSE: &[&str] = &[
    "SET {t} {large}",
    "APPEND {t} {large}",
    "SETRANGE {t} 17000 {v}",
    "SETRANGE {t} 90 {large}",
    "RPUSH {l} {v} {v} {n} {v} {n}",
    "LPUSH {l} {v} {v} {n} {v} {n}",
    "SADD {s} {v} {v} {n} {v} {v}",
    "ZADD {z} {f} {v} {f} {v} {f} {n} {f} {v}",
    "HSET {h} {v} {v} {n} {v} {n} {v}",
    "PEXPIRE {k} {ttl}",
    "EXPIRE {k} 1000",
    "HPEXPIRE {h} {ttl} FIELDS 2 {n} {n}",
    "HEXPIRE {h} 1000 FIELDS 3 {n} {n} {n}",
    "RENAME {k} {k}",
    "MOVE {k} {d}",
    "COPY {l} {l} REPLACE",
    "COPY {s} {s} REPLACE",
    "COPY {z} {z} REPLACE",
    "COPY {h} {h} REPLACE",
    "COPY {x} {x} REPLACE",
];

/// Drawn seldom, because they leave little data.
const SWEEPING: &[&str] = &["FLUSHDB", "FLUSHALL", "FUNCTION FLUSH", "SWAPDB {d} {d}"];

const SCRIPTS: &[&str] = &[
    "redis.call('DEL', KEYS[1]) redis.call('RPUSH', KEYS[1], 1, 2) redis.call('SET', KEYS[2], 'script')",
    "redis.call('INCRBYFLOAT', KEYS[2], '0.25') return redis.call('TYPE', KEYS[1])",
    "redis.call('DEL', KEYS[1]) redis.call('XADD', KEYS[1], '7000000000000-1', 'a', 'b') \
     redis.call('XGROUP', 'CREATE', KEYS[1], 'g0', '0') \
     redis.call('XREADGROUP', 'GROUP', 'g0', 'c0', 'STREAMS', KEYS[1], '>') \
     redis.call('XDEL', KEYS[1], '7000000000000-1') redis.call('XADD', KEYS[1], '*', 'c', 'd')",
];

const FLOATS: &[&str] = &[
    "0",
    "-0.0",
    "1",
    "-2.5",
    "3.14159",
    "1e300",
    "inf",
    "-inf",
    "0.1",
    "5e-324",
    "1.7976931348623157e308",
    "1e17",
];

/// Draws commands.
pub struct History {
    pub random: Random,
    entries: u64,
    is_dense: bool,
}

impl History {
    pub fn new(seed: u64) -> Self {
        Self { random: Random::new(seed), entries: 0, is_dense: false }
    }

    /// A history with few keys and more changes to each: some strings are large, and more is removed.
    pub fn dense(seed: u64) -> Self {
        Self { is_dense: true, ..Self::new(seed) }
    }

    /// Returns a key that usually has a string.
    pub fn string_key(&mut self) -> Vec<u8> {
        self.value("t")
    }

    /// Returns commands that are executed in order: usually one, sometimes a transaction.
    pub fn next(&mut self) -> Vec<Vec<Vec<u8>>> {
        if !self.random.one_in(8) {
            return vec![self.command()];
        }
        let many = 1 + self.random.below(6);
        let transaction = (0..many).map(|_| self.command());
        let mut all: Vec<_> = transaction.collect();
        all.insert(0, vec![b"MULTI".to_vec()]);
        all.push(vec![b"EXEC".to_vec()]);
        all
    }

    fn command(&mut self) -> Vec<Vec<u8>> {
        let templates = match self.is_dense {
            true if self.random.one_in(4) => DENSE,
            true if self.random.one_in(40) => SWEEPING,
            false if self.random.one_in(150) => SWEEPING,
            _ => COMMANDS,
        };
        let template = self.random.pick(templates);
        template.split(' ').map(|word| self.word(word)).collect()
    }

    fn word(&mut self, word: &str) -> Vec<u8> {
        let Some((before, rest)) = word.split_once('{') else { return word.into() };
        let (name, _) = rest.split_once('}').expect("a brace is closed");
        let mut bytes = before.as_bytes().to_vec();
        bytes.extend(self.value(name));
        bytes
    }

    fn value(&mut self, name: &str) -> Vec<u8> {
        let (keys, dbs) = if self.is_dense { (2, 2) } else { (4, 3) };
        let random = &mut self.random;
        let number = |random: &mut Random| random.below(12).to_string().into_bytes();
        match name {
            "k" => {
                let kind = random.pick(KINDS);
                key(kind, keys, random)
            }
            "v" => value(random),
            "large" => vec![b'a' + random.below(26) as u8; 16_500 + random.below(500)],
            "n" | "i" if name == "n" || random.one_in(2) => number(random),
            "i" => format!("-{}", 1 + random.below(12)).into_bytes(),
            "f" => random.pick(FLOATS).into(),
            "d" => random.below(dbs).to_string().into_bytes(),
            "g" => format!("g{}", random.below(3)).into_bytes(),
            "c" => format!("c{}", random.below(3)).into_bytes(),
            // Expires at once, soon, or at the end.
            "ttl" => random.pick(&["1", "3000", "86400000"]).into(),
            "next" => {
                self.entries += 1;
                format!("{}-{}", self.entries / 3 + 1, self.entries % 3).into_bytes()
            }
            "id" => {
                let entry = self.entries.saturating_sub(self.random.u64_below(20));
                format!("{}-{}", entry / 3 + 1, entry % 3).into_bytes()
            }
            "script" => random.pick(SCRIPTS).into(),
            "library" => {
                let number = random.below(12);
                let text = format!(
                    "#!lua name=lib{number}\nredis.register_function('f{number}', function() return {} end)",
                    random.below(100)
                );
                text.into_bytes()
            }
            kind => key(kind, keys, random),
        }
    }
}

/// The types in the names of keys.
const KINDS: &[&str] = &["t", "p", "l", "s", "z", "h", "x"];

/// One of the first keys of a kind.
fn key(kind: &str, keys: usize, random: &mut Random) -> Vec<u8> {
    key_of(kind, random.below(keys))
}

/// Returns a key. The first one of each kind is not text.
fn key_of(kind: &str, number: usize) -> Vec<u8> {
    let suffix: &[u8] = if number == 0 { b"\0\r\n\xff" } else { &[b'0' + number as u8] };
    [kind.as_bytes(), suffix].concat()
}

fn value(random: &mut Random) -> Vec<u8> {
    match random.below(8) {
        0 => random.bytes(20),
        1 => vec![b'x'; 100 + random.below(200)],
        2 => b"\r\n*1".to_vec(),
        3 => b"-9223372036854775808".to_vec(),
        4 => Vec::new(),
        _ => format!("value {}", random.below(10)).into_bytes(),
    }
}

/// Commands that change keys but are not drawn. Blocking commands make the changes of others, and the rest needs
/// payloads.
const NOT_DRAWN: &[&str] = &[
    "restore",
    "migrate",
    "blpop",
    "brpop",
    "blmpop",
    "blmove",
    "brpoplpush",
    "blmovem",
    "bzpopmin",
    "bzpopmax",
    "bzmpop",
    "nblpop",
    "nbrpop",
    "nblmpop",
    "nblmove",
    "nbzpopmin",
    "nbzpopmax",
    "pfdebug",
    "function|restore",
];

#[test]
fn every_command_that_changes_keys_is_drawn() {
    let table = tierce_commands::table();
    let drawn = |name: &str| {
        let name = name.to_uppercase().replace('|', " ");
        let mut templates = COMMANDS.iter().chain(DENSE).chain(SWEEPING);
        templates.any(|template| {
            template
                .strip_prefix(&*name)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
        })
    };
    let changes = table.all().filter(|command| command.spec.flags.contains(Flags::WRITE));
    let names =
        changes.filter(|command| command.subcommands.is_empty()).map(|command| &*command.full_name);
    let missing: Vec<_> = names.filter(|name| !drawn(name)).collect();
    assert_eq!(missing, NOT_DRAWN);
}
