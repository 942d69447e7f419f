//! Blocking commands.

/// For pipelines: keys with elements, or a timeout that ends at once. Templates with their weights, as in `stream`.
/// Since 7.2 scripts may call these commands, so COMMAND INFO is left out.
pub(super) const TEMPLATES: &[(usize, &str)] = &[
    (3, "BLPOP {list} [{list}] {timeout}"),
    (3, "BRPOP {list} [{list}] {timeout}"),
    (3, "BLMOVE {list} {list} (LEFT | RIGHT) (LEFT | RIGHT) {timeout}"),
    (2, "BRPOPLPUSH {list} {list} {timeout}"),
    (3, "BLMPOP {timeout} 2 {list} {list} (LEFT | RIGHT) [COUNT {count}]"),
    (3, "BZPOPMIN {zset} [{zset}] {timeout}"),
    (3, "BZPOPMAX {zset} [{zset}] {timeout}"),
    (3, "BZMPOP {timeout} 2 {zset} {zset} (MIN | MAX) [COUNT {count}]"),
    (3, "XREAD [COUNT {few}] BLOCK {block} STREAMS {stream} ({entry-id} | 0 | $)"),
    (
        3,
        "XREADGROUP GROUP {group} {consumer} [COUNT {few}] BLOCK {block} [NOACK] STREAMS {stream} (> | > | 0)",
    ),
    (
        1,
        "COMMAND GETKEYS (BLPOP {list} {list} 0 | BLMOVE {list} {list} LEFT LEFT 0 | BZMPOP 0 1 {zset} MIN)",
    ),
];

/// For clients that wait until they are served or unblocked. Moved elements go to a list that no client waits for: a
/// client that waits for several keys is served with the changed one in 7.0, and since 7.2 with the first that has an
/// element.
pub(super) const WAITING: &[(usize, &str)] = &[
    (4, "BLPOP {list} [{list}] [{list}] 0"),
    (4, "BRPOP {list} [{list}] [{list}] 0"),
    (6, "BLMOVE {list} l:9 (LEFT | RIGHT) (LEFT | RIGHT) 0"),
    (3, "BRPOPLPUSH {list} l:9 1000"),
    (4, "BLMPOP 0 2 {list} {list} (LEFT | RIGHT) [COUNT {few}]"),
    (4, "BZPOPMIN {zset} [{zset}] 0"),
    (4, "BZPOPMAX {zset} [{zset}] 1000.5"),
    (4, "BZMPOP 0 2 {zset} {zset} (MIN | MAX) [COUNT {few}]"),
    (4, "XREAD [COUNT {few}] BLOCK 0 STREAMS {stream} $"),
    (2, "XREAD [COUNT {few}] BLOCK 0 STREAMS s:0 s:1 $ $"),
    (6, "XREADGROUP GROUP {group} {consumer} [COUNT {few}] BLOCK 0 [NOACK] STREAMS {stream} >"),
];

/// For the other clients meanwhile.
pub(super) const FEEDING: &[(usize, &str)] = &[
    (4, "DEL {list}"),
    (4, "DEL {zset}"),
    (4, "RPUSH {list} {element}+"),
    (4, "LPUSH {list} {element}+"),
    (2, "LPUSHX {list} {element}"),
    (2, "LMOVE {list} {list} LEFT RIGHT"),
    (2, "RENAME {list} {list}"),
    (2, "COPY {list} {list} REPLACE"),
    (2, "SET {list} {value}"),
    (4, "ZADD {zset} {score} {member} [{score} {member}]"),
    (2, "ZINCRBY {zset} {score} {member}"),
    (2, "RENAME {zset} {zset}"),
    (2, "GEOADD {zset} {position} {position} {place}"),
    (6, "XADD {stream} {new-id} {entry-field} {value}"),
    (1, "RENAME {stream} {stream}"),
    (1, "MOVE {list} {db}"),
];
