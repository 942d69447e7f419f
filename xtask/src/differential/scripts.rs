//! Scripts that call commands on all types.

/// Templates with their weights, as in `stream`.
pub(super) const TEMPLATES: &[(usize, &str)] = &[
    (16, "EVAL {script} 2 {key} {key} {value} {int}"),
    (4, "EVAL {script} 2 {hash} {set} {value} {int}"),
    (4, "EVAL {script} 2 {list} {zset} {value} {int}"),
    (4, "EVAL {script} {small} {key} {value}"),
    (6, "EVAL_RO {script} 2 {key} {key} {value} {int}"),
    (4, "EVALSHA {sha} 1 {key} {value}"),
    (2, "EVALSHA_RO {sha} 1 {key}"),
    (3, "SCRIPT LOAD {script}"),
    (2, "SCRIPT EXISTS {sha} {sha}"),
    (1, "SCRIPT FLUSH [(SYNC | ASYNC | {value})]"),
    (1, "SCRIPT KILL"),
    (1, "SCRIPT {value}"),
    (1, "COMMAND GETKEYS EVAL return 2 {key} {key} {value}"),
];

/// Scripts to run. No reply depends on the clock, chance or an undefined order, or has scores, which 7.0 prints with
/// 17 digits.
pub(super) const SCRIPTS: [&str; 24] = [
    "return redis.call('get', KEYS[1])",
    "return redis.pcall('get', KEYS[1])",
    "redis.call('set', KEYS[1], ARGV[1]) return redis.call('get', KEYS[1])",
    "return redis.call('incrby', KEYS[1], ARGV[2])",
    "return redis.pcall('incrby', KEYS[1], ARGV[2])",
    "redis.call('append', KEYS[1], ARGV[1]) return redis.call('strlen', KEYS[2])",
    "redis.call('set', KEYS[1], 'x') redis.call('lpush', KEYS[1], 'y') return 1",
    "redis.call('rpush', KEYS[1], ARGV[1], ARGV[2]) return redis.call('lrange', KEYS[1], 0, -1)",
    "redis.call('sadd', KEYS[2], ARGV[1]) return redis.call('scard', KEYS[2])",
    "redis.call('hset', KEYS[1], 'f', ARGV[1]) return redis.call('hget', KEYS[1], 'f')",
    "redis.setresp(3) redis.call('hset', KEYS[1], 'f', 1) return redis.call('hmget', KEYS[1], 'f', 'g')",
    "redis.setresp(3) return redis.pcall('smismember', KEYS[2], ARGV[1])",
    "redis.call('zadd', KEYS[2], 1, ARGV[1]) return redis.call('zrange', KEYS[2], 0, 0)",
    "return {1, 2.9, -3.1, 'x', false, 4, nil, 5}",
    "return {KEYS, ARGV, {{}}, redis.status_reply('FINE')}",
    "return redis.error_reply('MINE is this')",
    "return redis.pcall('nosuch', KEYS[1])",
    "return redis.call('get')",
    "return redis.pcall('multi')",
    "return redis.call(ARGV[1], KEYS[1])",
    "redis.call('select', 1) return redis.call('set', KEYS[1], ARGV[1])",
    "redis.call('del', KEYS[1])\nerror('of a script')",
    "#!lua flags=no-writes\nreturn redis.pcall('set', KEYS[1], ARGV[1])",
    "return +",
];

/// SHA-1 of some of them, and of an unknown script.
pub(super) const SHAS: [&str; 3] = [
    "4e6d8fc8bb01276962cce5371fa795a7763657ae",
    "aac72bd8699ae9c333eff85158365d7bc61a7177",
    "ffffffffffffffffffffffffffffffffffffffff",
];
