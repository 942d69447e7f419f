"""Values, libraries and changes of each kind for the scripts that compare Tierce with redis-server, and what they compare."""

import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
DATABASES = (0, 1, 5, 9, 15)
# The database in which libraries are, for a comparison.
LIBRARIES = -1
# Facts about streams that depend on who packs them, or that Redis 7.0 does not keep.
OWN_FACTS = (b"radix-tree-keys", b"radix-tree-nodes", b"active-time")
# Redis 7.2 has small lists and small sets of words, 7.0 has not.
SAME_ENCODINGS = {(b"list", b"listpack"): b"quicklist", (b"set", b"listpack"): b"hashtable"}


def fill_strings(server):
    """Strings of all encodings and lengths in several databases, some with deadlines."""
    for db in DATABASES:
        server.call("SELECT", db)
        for i in range(400):
            kinds = [i ** 3 - 10 ** 6, f"text {i}", "ab1" * (i % 300), "x" * i, bytes(range(256)) * (i % 5),
                     2 ** 63 - 1 - i, f"{i:020}"]
            value = "y" * 200_000 + str(i) if i % 200 == 3 else kinds[i % len(kinds)]
            server.call("SET", f"key:{i}", value)
            if i % 3 == 0:
                server.call("PEXPIREAT", f"key:{i}", 32503680000000 + i * 12345)


def library(name, body=""):
    return f"""#!lua name={name}
{body}
redis.register_function('{name}_echo', function(keys, args) return {{keys, args, '{name}'}} end)
redis.register_function{{function_name='{name}_get', description='Of {name}.', flags={{'no-writes', 'allow-oom'}},
  callback=function(keys) return redis.call('GET', keys[1]) end}}"""


def fill_functions(server):
    """Libraries, short and long, and one that compresses well."""
    for name, body in (("plain", ""), ("long", "-- all work and no play\n" * 5000), ("binary", "-- \x01\x7f é"),
                       ("gone", "")):
        server.call("FUNCTION", "LOAD", library(name, body))
    server.call("FUNCTION", "DELETE", "gone")


def edit(server, number, has_functions=True):
    """A command of each kind on top of what is there: the increment of an append-only directory."""
    def put(*args):
        server.call(*args)

    server.call("SELECT", 0)
    put("SET", "counter", 41), put("INCR", "counter"), put("INCRBYFLOAT", "counter", "0.5"), put("APPEND", "text", "abc")
    put("SETRANGE", "text", 1, "X"), put("SETEX", "mortal", 100000, "v"), put("GETEX", "key:0", "PERSIST")
    put("MSET", "m1", 1, "m2", 2), put("RENAME", "m1", "m3"), put("COPY", "m2", "m4", "DB", 3)
    put("DEL", "key:2"), put("GETDEL", "key:4"), put("SETBIT", "bits", 77, 1), put("PFADD", "hll", "a", "b")
    put("BITFIELD", "bits", "SET", "u8", 3, 200), put("MOVE", "m2", 14), put("SWAPDB", 5, 6)
    put("LPUSH", "list:small", "front"), put("RPOP", "list:small"), put("LSET", "list:small", 1, "set")
    put("LINSERT", "list:small", "BEFORE", "set", "in"), put("LREM", "list:small", 1, 7)
    put("LTRIM", "list:quicklist", 5, -5), put("LMOVE", "list:quicklist", "list:new", "LEFT", "RIGHT")
    put("SADD", "set:intset16", "word"), put("SREM", "set:words", "a"), put("SPOP", "set:many", 5)
    put("SMOVE", "set:many", "set:intset32", "member 500"), put("SINTERSTORE", "set:new", "set:many", "set:many")
    put("ZADD", "zset:small", 4, "four"), put("ZINCRBY", "zset:many", 2.5, "member 7")
    put("ZREM", "zset:small", "one"), put("ZPOPMIN", "zset:many", 3)
    put("ZREMRANGEBYRANK", "zset:many", 10, 20), put("ZRANGESTORE", "zset:new", "zset:many", 0, 30)
    put("HSET", "hash:small", "more", "v"), put("HINCRBY", "hash:small", "number", 5)
    put("HDEL", "hash:many", "field 3"), put("GEOADD", "places", 13.361389, 38.115556, "Palermo")
    server.call("SELECT", 9)
    put("XADD", "stream:many", f"9999999-{number}", "f", "v"), put("XTRIM", "stream:many", "MAXLEN", 180)
    put("XREADGROUP", "GROUP", "second", "eve", "COUNT", 4, "STREAMS", "stream:many", ">")
    put("XACK", "stream:many", "first", "1020-60"), put("XGROUP", "DESTROY", "stream:empty", "group")
    put("XSETID", "stream:emptied", "8-8")
    if has_functions:
        put("FUNCTION", "LOAD", "REPLACE", library("plain", f"-- {number}")), put("FUNCTION", "DELETE", "binary")
        put("FUNCTION", "LOAD", library("binary")), put("FCALL", "plain_echo", 0)
    if server.program == "redis-server":
        put("MULTI"), put("SET", "t1", 1), put("RPUSH", "t2", 2), put("EXEC")


def value(server, kind, key):
    """The value of a key, in an order of its own."""
    if kind == b"string":
        return server.call("GET", key)
    if kind == b"list":
        return server.call("LRANGE", key, 0, -1)
    if kind == b"set":
        return sorted(server.call("SMEMBERS", key))
    if kind == b"hash":
        return sorted(pairs(server.call("HGETALL", key)))
    if kind == b"zset":
        # Scores are spelled in 17 digits by 7.0, and in as many as it takes by 7.2.
        return [(member, float(score)) for member, score in pairs(server.call("ZRANGE", key, 0, -1, "WITHSCORES"))]
    if kind == b"stream":
        return facts(server.call("XINFO", "STREAM", key, "FULL", "COUNT", 0))
    sys.exit(f"a key of type {kind}")


def pairs(items):
    return list(zip(items[::2], items[1::2]))


def facts(reply):
    """What XINFO tells of a stream, its groups and consumers."""
    if isinstance(reply, list) and reply and reply[0] in (b"length", b"name"):
        return {name: facts(fact) for name, fact in pairs(reply) if name not in OWN_FACTS}
    return [facts(item) for item in reply] if isinstance(reply, list) else reply


def libraries(server, is_replica):
    """Every library with its functions and its code, as if they were keys of a database. A replica does not run them."""
    found = {}
    for reply in server.call("FUNCTION", "LIST", "WITHCODE"):
        facts = dict(pairs(reply))
        functions = [dict(pairs(function)) for function in facts[b"functions"]]
        functions = sorted([each[b"name"], each[b"description"] or b"", sorted(each[b"flags"])] for each in functions)
        found[LIBRARIES, facts[b"library_name"]] = (b"library", facts[b"engine"], functions, facts[b"library_code"])
        echo = facts[b"library_name"] + b"_echo"
        if is_replica:
            continue
        if server.call("FCALL", echo, 1, "key", "arg") != [[b"key"], [b"arg"], facts[b"library_name"]]:
            sys.exit(f"{echo} does not work")
    return found


def contents(server, is_replica=False):
    """Every key with its type, encoding, deadline and value, and every library."""
    everything = libraries(server, is_replica)
    for db in range(16):
        server.call("SELECT", db)
        for key in server.call("KEYS", "*"):
            kind, encoding = server.call("TYPE", key), server.call("OBJECT", "ENCODING", key)
            encoding = SAME_ENCODINGS.get((kind, encoding), encoding)
            deadline = server.call("PEXPIRETIME", key)
            everything[db, key] = (kind, encoding, deadline, value(server, kind, key))
    return everything


def after_commands(contents):
    """Without what is not the same when commands are executed once more: whether a string was written in
    part since it was loaded, and when consumers were seen."""
    def settled(fact):
        if isinstance(fact, dict):
            return {name: settled(value) for name, value in fact.items() if name != b"seen-time"}
        return [settled(item) for item in fact] if isinstance(fact, list) else fact

    return {key: (kind, b"embstr" if encoding == b"raw" else encoding, deadline, settled(value))
            for key, (kind, encoding, deadline, value) in contents.items()}


def compare(what, expected, found):
    for key in sorted(expected.keys() | found.keys()):
        if expected.get(key) != found.get(key):
            print(f"{key}:\n  {expected.get(key)!s:.2000}\n  {found.get(key)!s:.2000}")
    if expected != found:
        sys.exit(f"different: {what}")
    forms = {(kind, encoding) for kind, encoding, *_ in found.values() if kind != b"library"}
    if len(found) < 2000 or len(forms) < 10:
        sys.exit(f"{what}: only {len(found)} keys of {forms}")
    print(f"ok: {what}: {len(found)} keys, {len(forms)} types and encodings")


def name(program):
    return pathlib.Path(program).name


def add_arguments(parser, ports):
    parser.add_argument("--port", type=int, default=7380, help=f"the first of {ports} free ports on the loopback")
    parser.add_argument("--program", help="instead of the release build")


def find_program(options):
    """The Tierce to test, which is built unless one is named."""
    if not options.program:
        subprocess.run(["cargo", "build", "--release", "--locked"], cwd=ROOT, check=True)
        target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
        options.program = str(target / "release" / "tierce")
