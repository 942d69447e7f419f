"""Uses a server through redisson, a client library in Java. Usage: clients_of_redis_java.py JAR URL CASE.

It ends without waiting for the threads of redisson, which may be asking again for ever."""

import os
import sys
import traceback

import jpype

JAR, URL, CASE = sys.argv[1:]
WAIT_MS = 5_000


def check(got, expected):
    assert got == expected, f"expected {expected!r}, got {got!r}"


def connect():
    jpype.startJVM(classpath=[JAR], convertStrings=True)
    config = jpype.JClass("org.redisson.config.Config")()
    server = config.useSingleServer().setAddress(URL).setRetryAttempts(0)
    server.setTimeout(WAIT_MS).setConnectTimeout(WAIT_MS)
    return jpype.JClass("org.redisson.Redisson").create(config)


def values(r):
    r.getBucket("value").set("v")
    check(r.getBucket("value").get(), "v")
    check(r.getAtomicLong("counter").incrementAndGet(), 1)
    r.getList("list").add("a")
    check(list(r.getList("list").readAll()), ["a"])


def message(r):
    check(r.getTopic("news").publish("x"), 0)


def map_and_lock(r):
    r.getMap("map").put("field", "v")
    check(r.getMap("map").get("field"), "v")
    lock = r.getLock("lock")
    check(lock.tryLock(), True)
    lock.unlock()


try:
    {"values": values, "message": message, "map_and_lock": map_and_lock}[CASE](connect())
    status = 0
except BaseException:
    traceback.print_exc()
    status = 1
sys.stderr.flush()
os._exit(status)
