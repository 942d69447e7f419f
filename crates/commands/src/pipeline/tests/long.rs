//! Every long command leaves the worker before it has changed or replied anything.

use tierce_output::Output;
use tierce_wire::resp::Proto;

use super::bench::Bench;
use super::calls::Call;
use crate::command::Access;
use crate::commands;
use crate::error::Interrupt;
use crate::pipeline::WEIGHT_MAX;
use crate::pubsub::Kind;
use crate::replica_level::ReplicaLevel;
use crate::waiting::ConnAddress;

/// Elements of each collection here.
const MANY: usize = WEIGHT_MAX + 1;

/// Calls on collections of [`MANY`] elements.
const LONG: &[&str] = &[
    "FUNCTION LOAD code",
    "FUNCTION RESTORE payload",
    "DUMP hash",
    "COPY hash to",
    "KEYS *",
    "SCAN 0 COUNT 20000",
    "SORT list",
    "SORT list STORE to",
    "SORT list BY weight_* GET value_*",
    "SORT_RO list",
    "LCS string string",
    "DIGEST string",
    "SET string x IFDEQ 0123456789abcdef",
    "SET string x EX 10 IFDNE 0123456789abcdef",
    "DELEX string IFDEQ 0123456789abcdef",
    "LPOP list 20000",
    "RPOP list 20000",
    "LMPOP 2 nosuchkey list LEFT COUNT 20000",
    "BLMPOP 0 2 nosuchkey list LEFT COUNT 20000",
    "LMOVEM list to LEFT RIGHT COUNT 20000 BULK",
    "BLMOVEM list list LEFT LEFT 0 EXACTLY 10001 OBO",
    "NBKEYS * 0",
    "NBLMPOP 0 2 nosuchkey list LEFT COUNT 20000 0",
    "NBXREAD STREAMS stream 0 0",
    "LRANGE list 0 -1",
    "LPOS list x",
    "LINSERT list BEFORE 10000 x",
    "LREM list 0 x",
    "SMEMBERS set",
    "SSCAN set 0 COUNT 20000",
    "SPOP set 20000",
    "SPOP set 10001",
    "SRANDMEMBER set 20000",
    "SRANDMEMBER set -20000",
    "SINTER set set",
    "SINTERCARD 2 set set",
    "SINTERSTORE to set set",
    "SUNION set nosuchkey",
    "SUNIONCARD 2 set nosuchkey",
    "SUNIONSTORE to set nosuchkey",
    "SDIFF set nosuchkey",
    "SDIFFCARD 2 set nosuchkey",
    "SDIFFSTORE to set nosuchkey",
    "ZRANGE scores 0 -1",
    "ZREVRANGE scores 0 -1",
    "ZRANGEBYSCORE scores -inf +inf",
    "ZREVRANGEBYSCORE scores +inf -inf",
    "ZRANGEBYLEX scores - +",
    "ZREVRANGEBYLEX scores + -",
    "ZRANGESTORE to scores 0 -1",
    "ZREMRANGEBYRANK scores 0 -1",
    "ZREMRANGEBYSCORE scores -inf +inf",
    "ZREMRANGEBYLEX scores - +",
    "ZPOPMIN scores 20000",
    "ZPOPMAX scores 20000",
    "ZMPOP 2 nosuchkey scores MIN COUNT 20000",
    "BZMPOP 0 2 nosuchkey scores MIN COUNT 20000",
    "ZUNION 2 scores set",
    "ZUNIONSTORE to 2 scores set",
    "ZINTER 2 scores set",
    "ZINTERSTORE to 2 scores set",
    "ZINTERCARD 2 scores set",
    "ZDIFF 2 scores set",
    "ZDIFFSTORE to 2 scores set",
    "ZRANDMEMBER scores 20000",
    "ZRANDMEMBER scores -20000",
    "ZSCAN scores 0 COUNT 20000",
    "HGETALL hash",
    "HKEYS hash",
    "HVALS hash",
    "HRANDFIELD hash 20000",
    "HRANDFIELD hash -20000",
    "HSCAN hash 0 COUNT 20000",
    "XADD stream MAXLEN 0 * n 1",
    "XTRIM stream MAXLEN 0",
    "XTRIM stream MINID 9999999",
    "XTRIM stream MAXLEN ~ 0 LIMIT 0",
    "XTRIM stream MAXLEN 0 DELREF",
    "XTRIM acknowledged MAXLEN 0 ACKED",
    "XRANGE stream - +",
    "XREVRANGE stream + -",
    "XREAD STREAMS stream 0",
    "XREADGROUP GROUP new c STREAMS stream >",
    "XREADGROUP GROUP old c STREAMS stream 0",
    "XREADGROUP GROUP old other CLAIM 0 STREAMS stream >",
    "XREADGROUP GROUP old other CLAIM 0 STREAMS ordered >",
    "XREAD MAXSIZE 10000000 STREAMS stream 0",
    "XPENDING stream old - + 20000",
    "XPENDING stream old - + 1 nosuchconsumer",
    "XAUTOCLAIM stream old other 0 0 COUNT 20000",
    "XINFO STREAM stream FULL COUNT 0",
    "BITCOUNT string",
    "BITPOS string 1",
    "BITOP NOT to string",
    "GEOSEARCH places FROMLONLAT 0 0 BYRADIUS 20000 km",
    "GEOSEARCH places BYPOLYGON 4 -180 -85 180 -85 180 85 -180 85",
    "GEOSEARCHSTORE to places FROMLONLAT 0 0 BYRADIUS 20000 km",
    "GEORADIUS places 0 0 20000 km",
    "GEORADIUS_RO places 0 0 20000 km",
    "GEORADIUSBYMEMBER places 1 20000 km",
    "GEORADIUSBYMEMBER_RO places 1 20000 km",
    "FLUSHDB SYNC",
    "FLUSHALL SYNC",
];

const BY_ARGUMENTS: &str = "its arguments bound it, and more than WEIGHT_MAX are weighed";
const BY_CLIENTS: &str = "goes through connections, channels or results, some 100 ns for each";
const BY_TABLES: &str = "goes through commands or directives, whose numbers are fixed";

/// Commands whose time grows with the data, with the reason why they stay on the worker.
const SHORT: &[(&str, &[&str])] = &[
    (
        BY_ARGUMENTS,
        &[
            "del",
            "unlink",
            "exists",
            "touch",
            "mget",
            "mset",
            "msetnx",
            "msetex",
            "setrange",
            "append",
            "lpush",
            "rpush",
            "lpushx",
            "rpushx",
            "blpop",
            "brpop",
            "nblpop",
            "nbrpop",
            "sadd",
            "srem",
            "smismember",
            "zadd",
            "zmscore",
            "zrem",
            "hmget",
            "hset",
            "hmset",
            "hdel",
            "hexpire",
            "hpexpire",
            "hexpireat",
            "hpexpireat",
            "httl",
            "hpttl",
            "hexpiretime",
            "hpexpiretime",
            "hpersist",
            "hgetex",
            "hsetex",
            "hgetdel",
            "saddex",
            "sexpire",
            "spexpire",
            "sexpireat",
            "spexpireat",
            "sttl",
            "spttl",
            "sexpiretime",
            "spexpiretime",
            "spersist",
            "himport|prepare",
            "himport|set",
            "himport|discard",
            "himport|discardall",
            "xdel",
            "xdelex",
            "xack",
            "xackdel",
            "xnack",
            "xclaim",
            "bitfield",
            "bitfield_ro",
            "pfadd",
            "pfcount",
            "pfmerge",
            "geoadd",
            "geopos",
            "geohash",
            "subscribe",
            "unsubscribe",
            "psubscribe",
            "punsubscribe",
            "pubsub|numsub",
            "watch",
            "discard",
            "ssubscribe",
            "sunsubscribe",
            "pubsub|shardnumsub",
        ],
    ),
    (
        "a program that takes longer than a millisecond runs elsewhere, and so does a call of it that weighs much",
        &["eval", "evalsha", "eval_ro", "evalsha_ro", "evalname", "fcall", "fcall_ro"],
    ),
    (
        "goes through libraries, which are few, and weighs what it replies",
        &["function|flush", "function|dump", "function|list"],
    ),
    (
        "goes through its argument, or names of scripts",
        &["script|load", "script|exists", "script|flush", "script|register", "script|names"],
    ),
    (
        "takes a number of steps that hardly grows with the elements",
        &[
            "lindex",
            "lset",
            "zincrby",
            "zcount",
            "zlexcount",
            "bzpopmin",
            "bzpopmax",
            "nbzpopmin",
            "nbzpopmax",
            "ltrim",
        ],
    ),
    (
        BY_CLIENTS,
        &[
            "client|acceptnb",
            "nbcancel",
            "nblist",
            "client|kill",
            "client|list",
            "client|tracking",
            "client|unblock",
            "client|unpause",
            "publish",
            "spublish",
            "pubsub|channels",
            "pubsub|shardchannels",
        ],
    ),
    (
        BY_TABLES,
        &[
            "auth",
            "command",
            "command|docs",
            "command|getkeys",
            "command|getkeysandflags",
            "command|info",
            "command|list",
            "config|get",
            "config|set",
            "latency|histogram",
            "slowlog|get",
            "hotkeys|get",
            "slowlog|reset",
            "commandlog|get",
            "commandlog|reset",
        ],
    ),
    (
        "what is long of it is handed to other threads",
        &["save", "backup", "shutdown", "swapdb", "xgroup|destroy"],
    ),
    (
        "has as many users as operators make",
        &[
            "acl|cat",
            "acl|deluser",
            "acl|dryrun",
            "acl|getuser",
            "acl|list",
            "acl|load",
            "acl|log",
            "acl|save",
            "acl|setuser",
            "acl|users",
        ],
    ),
    ("asks the allocator", &["memory|malloc-stats", "memory|purge"]),
    ("knows the size of any value", &["memory|usage"]),
    ("copies at most as much as a reply has room for", &["getrange", "substr"]),
    ("weighs its payload", &["restore"]),
    ("runs on a thread for it alone", &["migrate"]),
    ("weighs what it is asked to do", &["debug", "exec"]),
    ("has one HyperLogLog", &["pfdebug", "pfselftest"]),
];

fn words(line: &str) -> Call {
    line.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}

/// Creates collections of `MANY` elements, and as many keys.
fn bench_with_much_data() -> Bench {
    let mut bench = Bench::new(Proto::Resp2);
    let number = |number: usize| number.to_string();
    let mut add = |name: &str, element: &dyn Fn(usize) -> Vec<String>| {
        for from in (0..MANY).step_by(1000) {
            let mut line = name.to_owned();
            for word in (from..MANY.min(from + 1000)).flat_map(element) {
                line.push(' ');
                line.push_str(&word);
            }
            bench.succeed(&words(&line));
        }
    };
    add("MSET", &|n| vec![format!("key:{n}"), "x".into()]);
    add("RPUSH list", &|n| vec![number(n)]);
    add("SADD set", &|n| vec![number(n)]);
    add("ZADD scores", &|n| vec!["0".into(), number(n)]);
    add("HSET hash", &|n| vec![number(n), "x".into()]);
    add("GEOADD places", &|n| vec![(n as f64 / 100.0).to_string(), "1".into(), number(n)]);
    for n in 1..=MANY {
        bench.succeed(&words(&format!("XADD stream {n}-1 n 1")));
    }
    for line in [
        "COPY stream acknowledged",
        "XGROUP CREATE stream new 0",
        "XGROUP CREATE stream old 0",
        "XREADGROUP GROUP old c STREAMS stream >",
        // Pending entries of both copies are ordered by time. In one copy, they were deleted.
        "COPY stream ordered",
        "XREADGROUP GROUP old c CLAIM 60000 STREAMS ordered >",
        "COPY stream deleted",
        "XREADGROUP GROUP old c CLAIM 60000 STREAMS deleted >",
        "XTRIM deleted MAXLEN 0",
        &format!("SETRANGE string {} x", MANY * 64),
    ] {
        bench.succeed(&words(line));
    }
    bench
}

#[test]
fn what_may_take_long_leaves_the_worker() {
    let mut bench = bench_with_much_data();
    bench.kernel.offload.open();
    let changes = bench.changes();
    // The last one is as long because of what is no longer in its stream, which no transaction weighs.
    for line in LONG.iter().chain(&["XREADGROUP GROUP old other CLAIM 0 COUNT 1 STREAMS deleted >"])
    {
        let (interrupt, replied) = bench.on_worker(&words(line));
        assert_eq!(interrupt, Some(Interrupt::Long), "{line}");
        assert_eq!((replied, bench.changes()), (0, changes), "{line}");
    }
    let many = format!("MGET{}", " key".repeat(MANY));
    assert_eq!(bench.on_worker(&words(&many)).0, Some(Interrupt::Long), "as all of its length");
    for line in [
        "SPOP nosuchkey 20000",
        "SPOP set 1",
        "XREAD COUNT 1 STREAMS stream 0",
        "SET string x IFEQ y",
        "DELEX string IFEQ y",
        "XREAD MAXSIZE 65536 STREAMS stream 0",
        "XREADGROUP GROUP new c MAXSIZE 65536 STREAMS stream >",
        "XREADGROUP GROUP old c MAXSIZE 65536 STREAMS stream 0",
        "XREADGROUP GROUP old other CLAIM 60000 STREAMS ordered >",
        "XREADGROUP GROUP old other CLAIM 60000 STREAMS deleted >",
        "XREADGROUP GROUP old other CLAIM 0 COUNT 1 STREAMS ordered >",
        "XREADGROUP GROUP old other CLAIM 0 MAXSIZE 65536 STREAMS ordered >",
        "HSCAN hash 0",
    ] {
        assert_eq!(bench.on_worker(&words(line)).0, None, "{line}");
    }
}

#[test]
fn a_transaction_of_what_may_take_long_leaves_the_worker() {
    let mut bench = bench_with_much_data();
    for line in ["SET short1 abc", "SET short2 bcd", "SADD few a b", "SETRANGE text1 3999 x"] {
        bench.succeed(&words(line));
    }
    bench.kernel.offload.open();
    let changes = bench.changes();
    let long =
        ["SRANDMEMBER few -20000", "LCS text1 text1", "DEBUG SLEEP 1", "DEBUG POPULATE 20000"];
    let trims = [
        "XADD stream NOMKSTREAM maxlen = 0 * n 1",
        "XADD stream LIMIT 0 MAXLEN ~ 0 * n 1",
        "XADD stream MINID ~ 9999999 99999999 n 1",
        "XADD stream DELREF MAXLEN 0 * n 1",
        "XADD stream MAXLEN 9000 ACKED 20000-1 n 1",
    ];
    let moves = ["RENAMENX set nosuchkey", "MOVE set 1", "SWAPDB 0 1"];
    let mut stay = Vec::new();
    for line in LONG.iter().chain(&long).chain(&trims).chain(&moves) {
        if bench.transaction_on_worker(&[words("SET k v"), words(line)]) != Some(Interrupt::Long) {
            stay.push(*line);
        }
    }
    assert_eq!((stay, bench.changes()), (vec![], changes));
    for line in [
        "SRANDMEMBER few -2",
        "LCS short1 short2",
        "DBSIZE",
        "PUBLISH c m",
        "DEBUG JMAP",
        "COMMAND DOCS",
        "INFO",
        "XADD stream MAXLEN 9000 20000-1 n 1",
        "XADD stream MAXLEN ~ 9000 20001-1 maxlen 0",
        "XADD stream MAXLEN 9000 KEEPREF 20002-1 acked 0",
        "XTRIM stream MAXLEN 8000",
        "SET string x IFEQ y",
        "DELEX string IFEQ y",
    ] {
        assert_eq!(bench.transaction_on_worker(&[words(line)]), None, "{line}");
    }
    let newcomer = bench.kernel.pubsub.newcomer(ConnAddress::default());
    let mut subscriptions = newcomer;
    for number in 0..2000 {
        let pattern = format!("a*a*{number}");
        let mut output = Output::new();
        let pubsub = &bench.kernel.pubsub;
        pubsub.subscribe(
            &mut subscriptions,
            Kind::Pattern,
            pattern.as_bytes(),
            &mut output,
            Proto::Resp2,
        );
    }
    let publish = words(&format!("PUBLISH {} m", "a".repeat(200)));
    assert_eq!(bench.on_worker(&publish).0, Some(Interrupt::Long));
    assert_eq!(bench.transaction_on_worker(&[publish]), Some(Interrupt::Long));
}

/// Together they are too long, although each alone is short enough for a worker.
#[test]
fn a_transaction_of_many_reports_leaves_the_worker() {
    let mut bench = Bench::new(Proto::Resp2);
    bench.kernel.offload.open();
    for (line, many) in
        [("COMMAND", 2), ("COMMAND DOCS", 2), ("INFO", 10), ("CLIENT LIST", 10), ("PING", 5000)]
    {
        let calls = vec![words(line); many];
        assert_eq!(bench.transaction_on_worker(&calls), Some(Interrupt::Long), "{line}");
        assert_eq!(bench.transaction_on_worker(&calls[..1]), None, "{line}");
    }
}

#[test]
fn of_each_command_it_is_known_whether_it_may_take_long() {
    let table = commands::table();
    let is_long = |name: &str| {
        let starts = |line: &&str| {
            let line = line.to_lowercase().replacen(' ', "|", 1);
            line == name
                || line.starts_with(&format!("{name}|"))
                || line.starts_with(&format!("{name} "))
        };
        LONG.iter().any(starts)
    };
    let short: Vec<&str> = SHORT.iter().flat_map(|(_, names)| names.iter().copied()).collect();
    let mut unknown = Vec::new();
    for command in table.all().filter(|command| command.subcommands.is_empty()) {
        let name = command.full_name.as_str();
        let is_constant = matches!(command.spec.complexity, "O(1)" | "O(log(N))");
        if !is_constant && !is_long(name) && !short.contains(&name) {
            unknown.push(name.to_owned());
        }
    }
    assert_eq!(unknown, [""; 0], "neither in LONG nor in SHORT");
    let is_there = |name: &&str| table.all().any(|command| command.full_name == *name);
    let gone: Vec<_> = short.iter().filter(|name| !is_there(name)).collect();
    assert!(gone.is_empty(), "{gone:?}");
}

#[test]
fn what_changes_the_role_does_not_wait_for_it_on_a_worker() {
    let mut bench = Bench::new(Proto::Resp2);
    // The role stays frozen.
    std::mem::forget(bench.kernel.role.hold_still());
    for line in ["REPLICAOF NO ONE", "SLAVEOF a 1", "FAILOVER ABORT"] {
        assert_eq!(bench.on_worker(&words(line)), (Some(Interrupt::Role), 0), "{line}");
        let calls = [words("SET k v"), words(line)];
        let changes = bench.changes();
        assert_eq!(bench.transaction_on_worker(&calls), Some(Interrupt::Role), "{line}");
        assert_eq!(bench.changes(), changes, "{line}");
    }
}

/// Replicas may have left since a late command was admitted.
#[test]
fn what_is_asked_before_a_late_change_is_that_of_the_gates() {
    let Bench { kernel, .. } = &Bench::new(Proto::Resp2);
    let level = Some(ReplicaLevel { replicas: 1, is_logged: false });
    assert!(!kernel.has_closed(Access::CHANGE, None));
    assert!(kernel.has_closed(Access::CHANGE, level), "there is no stream that could confirm it");
}
