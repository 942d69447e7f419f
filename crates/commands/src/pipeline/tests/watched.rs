//! Changes of watched keys.

use tierce_collections::Hash;
use tierce_keyspace::{DbIndex, Editor, Error, Missing, Watch, watch_key};
use tierce_wire::resp::Proto;

use super::bench::{Bench, NOW_MS, Way};

/// The field had expired before the key was watched.
#[test]
fn hdel_of_a_field_that_is_due_is_no_change() {
    let mut bench = Bench::new(Proto::Resp2);
    let keyspace = bench.kernel.keyspace.clone();
    let key = keyspace.key(b"hash");
    let put = |hash: &mut Editor<'_, Hash>| {
        hash.put(b"due", b"value", Some(NOW_MS));
        hash.put(b"live", b"value", Some(NOW_MS + 1));
        Ok::<_, Error>(())
    };
    let (mut locks, mut watch) = (keyspace.locks(), Watch::new(&keyspace));
    locks.db(DbIndex::ZERO, key.hash(), NOW_MS).edit(key, Missing::Create, put).unwrap();
    watch_key(&mut locks, &mut watch, DbIndex::ZERO, key, NOW_MS);
    drop(locks);
    for (field, reply) in [("due", 0), ("live", 1)] {
        let call = ["HDEL", "hash", field].map(Into::into).into();
        let replies = bench.run(Way::Alone, &[call]);
        assert_eq!(format!("{replies:?}"), format!("[Int({reply})]"));
        assert_eq!(watch.is_dirty(NOW_MS), reply == 1, "{field}");
    }
}

/// Contents before each call.
const CONTENTS: &[&str] = &[
    "FLUSHALL",
    "XADD s 1-0 f v",
    "XADD s 2-0 f v",
    "XADD s 3-0 f v",
    "XGROUP CREATE s g 0",
    "XREADGROUP GROUP g c COUNT 1 STREAMS s >",
    "XGROUP CREATE s g2 0",
    "XGROUP CREATECONSUMER s g old",
    "PFADD p a b",
    "PFADD q a",
    "RPUSH l a b c",
    "SET str abc",
    "SET ttl v EX 1000",
    "HSET h f v",
    "SADD set m",
    "ZADD z 1 m",
];

/// Calls, with the keys that have changed for a watching client (`+`) and those that have not (`-`), as in
/// redis-server 7.0. LTRIM and the groups of streams are as in Valkey 9.1. 7.0 lacks some commands on strings.
const TOUCHED: &[&str] = &[
    "XREADGROUP GROUP g c STREAMS s > | s+",
    "XREADGROUP GROUP g c STREAMS s 0 | s+",
    "XREADGROUP GROUP g new STREAMS s > | s+",
    "XREADGROUP GROUP g c NOACK STREAMS s > | s+",
    "XACK s g 1-0 | s+",
    "XACK s g 9-0 | s-",
    "XGROUP CREATE s g3 0 | s+",
    "XGROUP CREATE n g3 0 MKSTREAM | n+",
    "XGROUP SETID s g 0 | s+",
    "XGROUP DESTROY s g2 | s+",
    "XGROUP DESTROY s none | s-",
    "XGROUP CREATECONSUMER s g x | s+",
    "XGROUP DELCONSUMER s g c | s+",
    "XGROUP DELCONSUMER s g none | s-",
    "XCLAIM s g d 0 1-0 | s+",
    "XCLAIM s g d 0 1-0 JUSTID | s+",
    "XCLAIM s g d 0 3-0 FORCE | s+",
    "XCLAIM s g d 0 7-0 FORCE | s+",
    "XAUTOCLAIM s g d 0 0 | s+",
    "XAUTOCLAIM s g d 0 9 | s+",
    "XSETID s 9-0 | s+",
    "XDEL s 1-0 | s+",
    "XDEL s 9-9 | s-",
    "XTRIM s MAXLEN 1 | s+",
    "XTRIM s MAXLEN 10 | s-",
    "XTRIM s MAXLEN ~ 1 | s-",
    "XDELEX s DELREF IDS 1 1-0 | s+",
    "XDELEX s ACKED IDS 1 1-0 | s-",
    "XACKDEL s g ACKED IDS 1 1-0 | s+",
    "XACKDEL s g IDS 1 9-9 | s-",
    "XTRIM s MAXLEN 0 ACKED | s-",
    "XTRIM s MAXLEN 0 DELREF | s+",
    "XNACK s g FAIL IDS 1 1-0 | s+",
    "XNACK s g FAIL IDS 1 9-9 | s-",
    "XREADGROUP GROUP g d CLAIM 0 COUNT 1 STREAMS s > | s+",
    "XADD s IDMP p m * a 1 | s+",
    "XADD n IDMPAUTO p * a 1 | n+",
    "XCFGSET s IDMP-MAXSIZE 7 | s+",
    "XIDMPRECORD s p m 1-0 | s+",
    "PFMERGE p p | p+",
    "PFMERGE p q | p+ q-",
    "PFMERGE p none | p+",
    "PFMERGE p | p+",
    "PFMERGE n none | n+",
    "PFADD p a | p-",
    "PFCOUNT p | p+",
    "PFCOUNT p q | p- q-",
    "LTRIM l 0 -1 | l-",
    "LTRIM l 0 100 | l-",
    "LTRIM n 0 1 | n-",
    "LTRIM l 0 0 | l+",
    "LREM l 0 zz | l-",
    "SETRANGE str 0 '' | str-",
    "SETRANGE n 0 '' | n-",
    "SETRANGE str 1 b | str+",
    "EXPIRE str -1 | str+",
    "EXPIRE n -1 | n-",
    "EXPIRE ttl 1000 NX | ttl-",
    "EXPIRE ttl 100 | ttl+",
    "PERSIST str | str-",
    "PERSIST ttl | ttl+",
    "PERSIST n | n-",
    "GETEX str | str-",
    "GETEX ttl PERSIST | ttl+",
    "GETEX str PERSIST | str-",
    "GETEX str EX 100 | str+",
    "APPEND str '' | str+",
    "APPEND n '' | n+",
    "SETBIT str 0 0 | str-",
    "BITFIELD str GET u8 0 | str-",
    "BITFIELD str SET u8 0 97 | str-",
    "BITFIELD str INCRBY u8 0 0 | str-",
    "HSET h f v | h+",
    "HSETNX h f w | h-",
    "HINCRBY h n 0 | h+",
    "SADDEX set MNX MEMBERS 1 m | set-",
    "HSETEX h FXX FIELDS 1 f v | h+",
    "HSETEX h FNX FIELDS 2 none v f v | h-",
    "HSETEX n FXX FIELDS 1 f v | n-",
    "HGETEX h FIELDS 1 f | h-",
    "HGETEX h PERSIST FIELDS 1 f | h-",
    "HGETEX h EX 100 FIELDS 1 f | h+",
    "HGETDEL h FIELDS 1 none | h-",
    "SADD set m | set-",
    "SREM set x | set-",
    "ZADD z 1 m | z-",
    "ZADD z XX 1 m | z-",
    "ZINCRBY z 0 m | z-",
    "ZREM z x | z-",
    "LSET l 0 a | l+",
    "LINSERT l BEFORE zz y | l-",
    "INCRBY cnt 0 | cnt+",
    "GETSET str abc | str+",
    "SETNX str x | str-",
    "SET str abc | str+",
    "COPY str n | str- n+",
    "COPY none str | str-",
    "RENAME str str | str-",
    "MOVE str 0 | str-",
    "SORT l BY nosort STORE n | l- n+",
    "SORT none STORE l | l+",
    "SUNIONSTORE n none | n-",
    "SUNIONSTORE set none | set+",
    "ZUNIONSTORE z 1 none | z+",
    "ZRANGESTORE n none 0 1 | n-",
    "GEOSEARCHSTORE n none FROMLONLAT 0 0 BYRADIUS 1 m | n-",
    "SMOVE set set m | set-",
    "SMOVE set n m | set+ n+",
    "SMOVE set n x | set- n-",
    "LMOVE l l LEFT LEFT | l+",
    "RPOPLPUSH l l | l+",
    "LMOVEM l l LEFT LEFT COUNT 2 BULK | l+",
    "LMOVEM l n LEFT LEFT EXACTLY 99 BULK | l- n-",
    "BITOP AND n none | n-",
    "BITOP AND str none | str+",
    "TOUCH str | str-",
    "XADD s NOMKSTREAM MAXLEN 100 9-0 a b | s+",
    "XADD n NOMKSTREAM 9-0 a b | n-",
    "LPOP l 0 | l-",
    "LPUSHX n a | n-",
    "ZPOPMIN z 0 | z-",
    "ZADD n XX 1 m | n-",
    "HDEL h none | h-",
    "SETEX str 10 abc | str+",
    "MSETNX str a n b | str- n-",
    "MSETEX 2 str a n b | str+ n+",
    "MSETEX 2 str a n b XX | str- n-",
    "SET str x IFEQ abc | str+",
    "SET str x IFNE abc GET | str-",
    "SET n x IFEQ abc | n-",
    "DELEX str IFNE x | str+",
    "DELEX str IFEQ x | str-",
    "DELEX l | l+",
    "DELIFEQ str abc | str+",
    "DELIFEQ n abc | n-",
    "DIGEST str | str-",
    "INCREX cnt UBOUND 0 | cnt-",
    "INCREX cnt UBOUND 0 SATURATE | cnt+",
    "INCREX cnt EXAT 1 | cnt-",
    "LMPOP 1 n LEFT | n-",
    "ZREMRANGEBYSCORE z 9 10 | z-",
];

fn words(line: &str) -> Vec<Vec<u8>> {
    let word = |word: &str| if word == "''" { Vec::new() } else { word.as_bytes().to_vec() };
    line.split(' ').map(word).collect()
}

#[test]
fn calls_change_what_is_watched_as_in_redis() {
    let mut bench = Bench::new(Proto::Resp2);
    let keyspace = bench.kernel.keyspace.clone();
    for (call, key) in TOUCHED.iter().flat_map(|line| {
        let (call, keys) = line.split_once(" | ").expect("a call and its keys");
        keys.split(' ').map(move |key| (call, key))
    }) {
        bench.run(Way::Alone, &CONTENTS.iter().map(|line| words(line)).collect::<Vec<_>>());
        let (name, is_changed) = (&key[..key.len() - 1], key.ends_with('+'));
        let mut watch = Watch::new(&keyspace);
        watch_key(
            &mut keyspace.locks(),
            &mut watch,
            DbIndex::ZERO,
            keyspace.key(name.as_bytes()),
            NOW_MS,
        );
        bench.run(Way::Alone, &[words(call)]);
        assert_eq!(watch.is_dirty(NOW_MS), is_changed, "{call}: {name}");
    }
}
