"""Replication between Tierce and redis-server, called by scripts/replication-interop. Each side is the primary in turn,
links are cut and go on where they were, and all keys are compared with their values, encodings and deadlines, and all
libraries of functions:

* Tierce follows redis-server, and is promoted,
* redis-server and another Tierce follow Tierce, with and without its log, and while it spills,
* chains of both kinds of servers, in which the middle one is promoted and the others go on with it,
* both directions over TLS,
* both directions with Redis 6.2, which gets what it knows, and with a Redis 7.0 that does not know deadlines of fields.
"""

import argparse
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time

from interop import Server, fill
from interop_data import (ROOT, add_arguments, after_commands, compare, contents, edit, fill_functions, fill_strings,
                          find_program, pairs, value)


def following(work, options):
    """Tierce as a replica of redis-server."""
    with Server(work / "primary", options.port, "--repl-diskless-sync-delay", "0") as primary, \
            Server(work / "replica", options.port + 1, program=options.program) as replica:
        fill(primary)
        fill_strings(primary), fill_functions(primary)
        replica.call("SET", "of the replica", "is replaced")
        replica.call("REPLICAOF", "127.0.0.1", options.port)
        wait_for_copy(primary, replica)
        edit(primary, 1)
        wait_for_copy(primary, replica)
        primary.call("CLIENT", "KILL", "TYPE", "replica")
        edit(primary, 2)
        wait_for_copy(primary, replica)
        stats = primary.call("INFO", "stats")
        if b"sync_full:1\r" not in stats or b"sync_partial_ok:1\r" not in stats:
            sys.exit(f"the link was not made anew from its place: {stats}")
        try:
            sys.exit(f"a replica takes writes: {replica.call('SET', 'key', 'value')}")
        except RuntimeError as error:
            assert str(error).startswith("READONLY "), error
        replica.call("REPLICAOF", "NO", "ONE")
        compare("followed redis-server", after_commands(contents(primary)), after_commands(contents(replica)))
        replica.call("SET", "key", "value")


def leading(work, options, *directives):
    """redis-server and Tierce as replicas of Tierce."""
    memcached = options.port + 3
    with Server(work / "primary", options.port, "--repl-diskless-sync-delay", "0", "--memcached-port", str(memcached),
                *directives, program=options.program) as primary, \
            Server(work / "redis", options.port + 1) as redis, \
            Server(work / "tierce", options.port + 2, program=options.program) as tierce:
        fill(primary)
        fill_strings(primary), fill_functions(primary)
        if "spill" in directives:
            fill_memory(primary, 0)
        for replica in (redis, tierce):
            replica.call("SET", "of the replica", "is replaced")
            replica.call("REPLICAOF", "127.0.0.1", options.port)
        # While the copies are under way as well.
        edit(primary, 1), churn(primary, 1)
        for number in (2, 3):
            if primary.call("WAIT", 2, 60000) != 2:
                sys.exit("the replicas do not come up")
            primary.call("CLIENT", "KILL", "TYPE", "replica")
            edit(primary, number), churn(primary, number)
            if "spill" in directives:
                fill_memory(primary, number)
            talk(memcached, b"set by-memcached 5 100000 5\r\nvalue\r\nincr counter 1\r\n")
        if primary.call("WAIT", 2, 60000) != 2:
            sys.exit("the replicas do not come back")
        stats = primary.call("INFO", "stats")
        if b"sync_full:2\r" not in stats or b"sync_partial_ok:4\r" not in stats:
            sys.exit(f"the links were not made anew from their places: {stats}")
        if "spill" in directives and b"spilled_keys:0\r" in primary.call("INFO", "memory"):
            sys.exit("no value was moved to disk")
        for replica in (redis, tierce):
            replica.call("REPLICAOF", "NO", "ONE")
        expected = after_commands(contents(primary))
        of = ", ".join(directives)
        compare(f"redis-server followed Tierce ({of})", expected, after_commands(contents(redis)))
        compare(f"Tierce followed Tierce ({of})", expected, after_commands(contents(tierce)))


def chain(work, options, kinds):
    """A replica with a sibling and a replica of its own: the four have the same stream, and go on when it is promoted."""
    def start(number, kind):
        program = options.program if kind == "tierce" else "redis-server"
        return Server(work / f"{number}", options.port + number, "--repl-diskless-sync-delay", "0",
                      "--repl-backlog-size", "64mb", "--repl-ping-replica-period", "3600", program=program)

    what = " - ".join(kinds)
    with start(0, kinds[0]) as first, start(1, kinds[1]) as middle, start(2, kinds[2]) as last, \
            start(3, kinds[2]) as sibling:
        fill(first)
        fill_strings(first), fill_functions(first)
        for replica, primary in ((middle, first), (sibling, first), (last, middle)):
            replica.call("REPLICAOF", "127.0.0.1", primary.port)
        wait_for_copy(first, middle), wait_for_copy(first, sibling), wait_for_copy(first, last)
        for number, above in ((1, first), (3, middle)):
            edit(first, number), churn(first, number)
            above.call("CLIENT", "KILL", "TYPE", "replica")
            edit(first, number + 1), churn(first, number + 1)
            for replica in (middle, sibling, last):
                wait_for_copy(first, replica)
        expected = after_commands(contents(first))
        for replica in (middle, sibling, last):
            compare(f"chain {what}", expected, after_commands(contents(replica, is_replica=True)))
        before = full_copies(middle)
        first.process.kill()
        middle.call("REPLICAOF", "NO", "ONE")
        edit(middle, 5), churn(middle, 5)
        sibling.call("REPLICAOF", "127.0.0.1", middle.port)
        for replica in (sibling, last):
            wait_for_copy(middle, replica)
        edit(middle, 6)
        expected = after_commands(contents(middle))
        for replica in (sibling, last):
            wait_for_copy(middle, replica)
            compare(f"promoted in {what}", expected, after_commands(contents(replica, is_replica=True)))
        if full_copies(middle) != before:
            sys.exit(f"full copies after a promotion in {what}")


def full_copies(server):
    stats = server.call("INFO", "stats").split(b"\r\n")
    return next(int(line.split(b":")[1]) for line in stats if line.startswith(b"sync_full:"))


def fill_memory(server, number):
    """More than there is memory for by the directives of the caller."""
    server.call("SELECT", 1)
    for i in range(150):
        server.call("SET", f"large:{number}:{i}", f"{i} of {number} " * 10_000)
        server.call("APPEND", f"large:0:{i}", "more")


def churn(server, number):
    """What is told to replicas by its effect: chance, expiry, transactions, scripts and functions."""
    server.call("SELECT", 15)
    for i in range(200):
        server.call("SET", f"short:{i}", "v", "PX", 1 + i % 7)
        server.call("SET", f"counter:{i}", i), server.call("INCRBYFLOAT", f"counter:{i}", "0.1")
        server.call("SADD", "lots", *(f"{number} {n}" for n in range(i, i + 20))), server.call("SPOP", "lots", 7)
        server.call("MULTI"), server.call("LPUSH", "queue", i), server.call("HINCRBY", "sums", i % 9, i)
        server.call("EXEC")
        server.call("EVAL", "redis.call('ZADD', KEYS[1], ARGV[1], ARGV[1]) return redis.call('INCR', KEYS[2])",
                    2, "scores", "runs", i)
    while any(server.call("EXISTS", f"short:{i}") for i in range(200)):
        pass
    server.call("RESTORE", "restored", 0, server.call("DUMP", "scores"), "REPLACE")
    server.call("SORT", "queue", "STORE", "sorted"), server.call("LTRIM", "queue", 0, 99)
    server.call("FLUSHDB" if number == 2 else "DBSIZE"), server.call("SWAPDB", 14, 15)


def encrypted(work, options):
    """Both directions over TLS. Clients of this script connect without."""
    subprocess.run([ROOT / "scripts/make-test-certificates", work / "certificates"], check=True)
    part = {option: f"{work}/certificates/{file}" for option, file in
            (("ca-cert-file", "ca.crt"), ("cert-file", "server.crt"), ("key-file", "server.key"))}
    tls = [word for option, file in part.items() for word in (f"--tls-{option}", file)]
    tls += ["--tls-replication", "yes"]
    for number, (leader, follower) in enumerate((("redis-server", options.program), (options.program, "redis-server"))):
        with Server(work / f"primary-{number}", options.port, "--tls-port", str(options.port + 1),
                    "--repl-diskless-sync-delay", "0", *tls, program=leader) as primary, \
                Server(work / f"replica-{number}", options.port + 2, *tls, program=follower) as replica:
            fill(primary)
            fill_strings(primary), fill_functions(primary)
            replica.call("REPLICAOF", "127.0.0.1", options.port + 1)
            wait_for_copy(primary, replica)
            primary.call("CLIENT", "KILL", "TYPE", "replica")
            edit(primary, 1)
            wait_for_copy(primary, replica)
            replica.call("REPLICAOF", "NO", "ONE")
            compare(f"followed {pathlib.Path(leader).name} over TLS",
                    after_commands(contents(primary)), after_commands(contents(replica)))


class Older(Server):
    """A redis-server before 7.0."""
    debug = ()


def older(work, options):
    """One before 7.0 has other encodings, and no command that tells deadlines."""
    with Older(work / "redis", options.port, "--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0",
                program=options.older) as redis, \
            Server(work / "tierce", options.port + 1, "--replica-dialect", "redis-6.2",
                   "--repl-diskless-sync-delay", "0", program=options.program) as tierce:
        version = redis.call("INFO", "server").split(b"redis_version:")[1].split(b"\r")[0].decode()
        fill(redis)
        fill_strings(redis)
        tierce.call("REPLICAOF", "127.0.0.1", options.port)
        wait_for_copy(redis, tierce)
        redis.call("CLIENT", "KILL", "TYPE", "replica")
        edit(redis, 1, has_functions=False)
        wait_for_copy(redis, tierce)
        compare_values(f"followed Redis {version}", redis, tierce)

        tierce.call("REPLICAOF", "NO", "ONE")
        fill_functions(tierce)
        tierce.call("SCRIPT", "REGISTER", "by name", "return 1")
        tierce.call("HSET", "timed", "field", "value", "other", "value")
        tierce.call("HPEXPIRE", "timed", 3_600_000, "FIELDS", 1, "field")
        redis.call("REPLICAOF", "127.0.0.1", options.port + 1)
        wait_for_copy(tierce, redis)
        tierce.call("CLIENT", "KILL", "TYPE", "replica")
        edit(tierce, 2), churn(tierce, 1)
        tierce.call("HPEXPIRE", "timed", 3_600_000, "FIELDS", 1, "other")
        wait_for_copy(tierce, redis)
        redis.call("SELECT", 14), tierce.call("SELECT", 14)
        if redis.call("HLEN", "timed") not in (0, 2) or b"Unknown" in redis.log.read_bytes():
            sys.exit(f"Redis {version} was sent what it does not know:\n{redis.log.read_text()[-2000:]}")
        compare_values(f"Redis {version} followed Tierce", tierce, redis)


def leaving_out(work, options):
    """A redis-server 7.0 gets hashes without the deadlines of their fields, and the fields go when their time has come."""
    with Server(work / "tierce", options.port, "--replica-dialect", "redis-7.0", "--repl-diskless-sync-delay", "0",
                program=options.program) as tierce, Server(work / "redis", options.port + 1) as redis:
        for key in ("before", "after"):
            if key == "after":
                redis.call("REPLICAOF", "127.0.0.1", options.port)
                wait_for_copy(tierce, redis)
            tierce.call("HSET", key, "stays", 1, "goes", 2)
            tierce.call("HPEXPIRE", key, 3_600_000, "FIELDS", 1, "goes")
        wait_for_copy(tierce, redis)
        for key in ("before", "after"):
            if redis.call("HGETALL", key) != [b"stays", b"1", b"goes", b"2"]:
                sys.exit(f"{key}: {redis.call('HGETALL', key)}")
            tierce.call("HPEXPIRE", key, 1, "FIELDS", 1, "goes")
        while any(redis.call("HLEN", key) != 1 for key in ("before", "after")):
            tierce.call("HLEN", "before"), tierce.call("HLEN", "after")
    print("ok: redis-server 7.0 followed Tierce without deadlines of fields")


def compare_values(what, one, other):
    """Without encodings and libraries, and with deadlines as PTTL tells them."""
    found, others = dict(values(one)), dict(values(other))
    different = [key for key in found.keys() | others.keys() if not is_same(found.get(key), others.get(key))]
    for key in different:
        print(f"{key}:\n  {found.get(key)!s:.500}\n  {others.get(key)!s:.500}")
    if different or len(found) < 2000:
        sys.exit(f"different: {what}, {len(different)} of {len(found)} keys")
    print(f"ok: {what}: {len(found)} keys")


def is_same(one, other):
    """The two are read one after the other, so that deadlines are not the same to the millisecond."""
    return one and other and one[:-1] == other[:-1] and abs(one[-1] - other[-1]) < 5


def values(server):
    for db in range(16):
        server.call("SELECT", db)
        for key in server.call("KEYS", "*"):
            kind, left_ms = server.call("TYPE", key), server.call("PTTL", key)
            found = value(server, kind, key) if kind != b"stream" else stream(server, key)
            yield (db, key), (kind, found, left_ms if left_ms < 0 else time.time() + left_ms / 1000)


def stream(server, key):
    """What a stream holds, as far as Redis 6.2 tells."""
    groups = [dict(pairs(group)) for group in server.call("XINFO", "GROUPS", key)]
    facts = dict(pairs(server.call("XINFO", "STREAM", key)))
    pending = [server.call("XPENDING", key, group[b"name"], "-", "+", 10_000) for group in groups]
    return (server.call("XRANGE", key, "-", "+"), facts[b"last-generated-id"],
            [(group[b"name"], group[b"last-delivered-id"], group[b"consumers"]) for group in groups],
            [[(id, consumer, count) for id, consumer, _, count in entries] for entries in pending])


def wait_for_copy(primary, replica):
    """Until the replica has everything that the primary has sent."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        # The offset of a Tierce does not count changes that its stream does not have yet. WAIT does.
        if b"role:master" in primary.call("INFO", "replication"):
            primary.call("WAIT", 1, 100)
        link = replica.call("INFO", "replication")
        sent = next(line for line in primary.call("INFO", "replication").split(b"\r\n")
                    if line.startswith(b"master_repl_offset:"))
        place = b"slave_repl_offset:" + sent.split(b":")[1] + b"\r"
        if b"master_link_status:up" in link and place in link:
            return
        time.sleep(0.02)
    sys.exit(f"the replica does not come up to {sent}: {link}")


def talk(port, request):
    with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
        client.sendall(request)
        client.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: client.recv(65536), b""))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    add_arguments(parser, "four")
    parser.add_argument("--older", required=True, help="a redis-server before 7.0")
    options = parser.parse_args()
    find_program(options)
    for program in ("redis-server", "openssl", options.older):
        shutil.which(program) or sys.exit(f"{program} is missing")
    with tempfile.TemporaryDirectory(prefix="tierce-interop-") as work:
        work = pathlib.Path(work)
        following(work / "following", options)
        leading(work / "leading", options, "--appendonly", "no")
        leading(work / "leading-with-log", options, "--appendonly", "yes")
        leading(work / "leading-and-spilling", options, "--appendonly", "yes", "--maxmemory", "24mb",
                "--maxmemory-policy", "spill", "--repl-backlog-size", "64mb")
        for kinds in (("tierce", "tierce", "tierce"), ("redis", "tierce", "redis"), ("redis", "tierce", "tierce"),
                      ("tierce", "redis", "tierce")):
            chain(work / "-".join(kinds), options, kinds)
        encrypted(work / "encrypted", options)
        older(work / "older", options)
        leaving_out(work / "leaving-out", options)


main()
