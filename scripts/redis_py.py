"""Uses a running server through redis-py, the most used client library, in both protocols."""

import sys
import threading
import time

import redis


def check(got, expected):
    assert got == expected, f"expected {expected!r}, got {got!r}"


def strings(r):
    r.flushall()
    for value in [b"", b"12ab", b"007", b"+5", b"-0", bytes(range(256)), b"x" * 1_000_000]:
        check(r.set("k", value), True)
        check(r.get("k"), value)
    check(r.set("k", "1", nx=True), None)
    check(r.set("k", "1", xx=True, get=True), b"x" * 1_000_000)
    check(r.incrby("k", 41), 42)
    check(r.incrbyfloat("f", 0.1) + r.incrbyfloat("f", 0.2), 0.1 + 0.3)
    check(r.append("a", "abc"), 3)
    check(r.getrange("a", -2, -1), b"bc")
    check(r.setrange("a", 5, "x"), 6)
    check(r.get("a"), b"abc\0\0x")
    check(r.mset({"x": 1, "y": 2}), True)
    check(r.mget("x", "nothing", "y"), [b"1", None, b"2"])
    check(r.getdel("x"), b"1")
    check(r.getex("y", px=100_000), b"2")
    assert 0 < r.pttl("y") <= 100_000
    check(r.lcs("x", "y", len=True), 0)


def keys(r):
    r.flushall()
    for n in range(1000):
        r.set(f"key:{n}", n)
    check(len(set(r.scan_iter(match="key:*", count=7))), 1000)
    check(len(r.keys("key:1?")), 10)
    check(r.rename("key:1", "renamed"), True)
    check(r.exists("key:1", "renamed", "renamed"), 2)
    check(r.copy("renamed", "key:1"), True)
    check(r.type("renamed"), b"string")
    check(r.expire("renamed", 100), True)
    check(r.ttl("renamed"), 100)
    check(r.persist("renamed"), True)
    check(r.object("encoding", "renamed"), b"int")
    check(r.delete("renamed", "key:1"), 2)
    assert r.randomkey().startswith(b"key:")
    check(r.dbsize(), 999)
    r.set("short", 1, px=1)
    while r.exists("short"):
        time.sleep(0.001)


def operations(r):
    assert r.info()["redis_version"].startswith("7.")
    assert r.info("everything")["connected_clients"] >= 1
    check(r.config_get("maxmemory")["maxmemory"], "0")
    check(r.config_set("slowlog-max-len", 64), True)
    assert r.client_id() > 0
    check(r.client_setname("suite"), True)
    check(r.client_getname() in ("suite", b"suite"), True)
    assert any(client["name"] == "suite" for client in r.client_list())
    check(r.command_count() > 50, True)
    check(len(r.command_getkeys("mset", "a", 1, "b", 2)), 2)
    assert r.memory_usage("nothing") is None
    assert isinstance(r.slowlog_get(), list)
    assert len(r.time()) == 2
    try:
        r.execute_command("nonsense")
        raise AssertionError("an unknown command was accepted")
    except redis.ResponseError as error:
        assert "unknown command" in str(error)


def pipelines_and_threads(r):
    r.flushall()
    with r.pipeline(transaction=False) as pipe:
        for n in range(5000):
            pipe.set(f"p{n}", n)
        check(pipe.execute(), [True] * 5000)
    workers = [threading.Thread(target=lambda: [r.incr("n") for _ in range(500)]) for _ in range(8)]
    [worker.start() for worker in workers]
    [worker.join() for worker in workers]
    check(r.get("n"), b"4000")


def main():
    port = int(sys.argv[1])
    passed = 0
    for protocol in (2, 3):
        with redis.Redis(port=port, protocol=protocol) as r:
            for suite in (strings, keys, operations, pipelines_and_threads):
                suite(r)
                passed += 1
    print(f"redis-py {redis.__version__}: {passed} suites passed")


main()
