"""Uses a running server through redis-py with its client-side cache: what other clients change is read anew."""

import sys
import time

import redis
from redis.cache import CacheConfig


def check(got, expected):
    assert got == expected, f"expected {expected!r}, got {got!r}"


def becomes(read, expected):
    """An invalidation may be on its way still."""
    for _ in range(10_000):
        if read() == expected:
            return
        time.sleep(0.001)
    raise AssertionError(f"{read()!r} instead of {expected!r}")


def calls(other, command):
    return other.info("commandstats").get(f"cmdstat_{command}", {"calls": 0})["calls"]


def values_are_cached_until_they_change(r, other):
    other.set("k", 1)
    check(r.get("k"), b"1")
    before = calls(other, "get")
    for _ in range(100):
        check(r.get("k"), b"1")
    check(calls(other, "get"), before)
    other.set("k", 2)
    becomes(lambda: r.get("k"), b"2")
    r.set("k", 3)
    becomes(lambda: r.get("k"), b"3")
    other.hset("h", mapping={"a": 1, "b": 2})
    check(r.hgetall("h"), {b"a": b"1", b"b": b"2"})
    other.hdel("h", "a")
    becomes(lambda: r.hgetall("h"), {b"b": b"2"})
    check(r.mget("k", "none"), [b"3", None])
    other.set("none", "there")
    becomes(lambda: r.mget("k", "none"), [b"3", b"there"])


def expiry_and_flushes_are_seen(r, other):
    other.set("short", 1, px=200)
    check(r.get("short"), b"1")
    becomes(lambda: r.get("short"), None)
    other.set("k", 4)
    becomes(lambda: r.get("k"), b"4")
    other.flushall()
    becomes(lambda: r.get("k"), None)


def main():
    port = int(sys.argv[1])
    other = redis.Redis(port=port)
    other.flushall()
    r = redis.Redis(port=port, protocol=3, cache_config=CacheConfig())
    values_are_cached_until_they_change(r, other)
    expiry_and_flushes_are_seen(r, other)
    assert int(other.info()["tracking_clients"]) >= 1
    print("redis-py with a cache: passed")


main()
