"""Uses every data type through redis-py, as an application would: queues, leaderboards, sessions,
event streams, in both protocol versions. Usage: redis_py_types.py PORT"""

import random
import sys
import threading
import time

import redis

port = int(sys.argv[1])


def client(protocol):
    return redis.Redis(port=port, protocol=protocol, decode_responses=True, socket_timeout=30)


def raises(kind, call):
    try:
        call()
    except redis.ResponseError as error:
        assert str(error).startswith(kind), error
        return
    raise AssertionError(f"no error of kind {kind}")


def lists(r):
    assert r.rpush("l", *range(1000)) == 1000
    assert r.lrange("l", 0, 2) == ["0", "1", "2"] and r.lrange("l", -2, -1) == ["998", "999"]
    assert r.lindex("l", 500) == "500" and r.llen("l") == 1000
    assert r.linsert("l", "BEFORE", "10", "x") == 1001 and r.lpos("l", "x") == 10
    assert r.lrem("l", 0, "x") == 1 and r.lset("l", 0, "zero")
    assert r.lpop("l", 2) == ["zero", "1"] and r.rpop("l") == "999"
    assert r.ltrim("l", 0, 9) and r.llen("l") == 10
    assert r.lmove("l", "m", "LEFT", "RIGHT") == "2" and r.lrange("m", 0, -1) == ["2"]
    assert r.lmpop(2, "none", "l", direction="LEFT", count=3) == ["l", ["3", "4", "5"]]
    assert r.sort("l", desc=True, alpha=False)[0] == "11"
    raises("WRONGTYPE", lambda: r.get("l"))
    raises("WRONGTYPE", lambda: r.hset("l", "a", 1))


def hashes(r):
    assert r.hset("h", mapping={f"f{i}": i for i in range(600)}) == 600
    assert r.hget("h", "f7") == "7" and r.hmget("h", "f1", "nope") == ["1", None]
    assert r.hincrby("h", "f1", 41) == 42 and r.hincrbyfloat("h", "f2", 0.5) == 2.5
    assert len(r.hgetall("h")) == 600 == r.hlen("h")
    assert dict(r.hscan_iter("h", count=50))["f3"] == "3"
    assert r.hdel("h", *[f"f{i}" for i in range(599)]) == 599 and r.hkeys("h") == ["f599"]
    assert r.hdel("h", "f599") == 1 and not r.exists("h")


def sets(r):
    assert r.sadd("a", *range(600)) == 600 and r.sadd("b", *range(300, 900)) == 600
    assert r.sinter("a", "b") == {str(i) for i in range(300, 600)}
    assert len(r.sunion("a", "b")) == 900 and len(r.sdiff("a", "b")) == 300
    assert r.sinterstore("c", "a", "b") == 300 == r.scard("c") and r.sintercard(2, ["a", "b"], limit=9) == 9
    assert r.smismember("a", [5, 1000]) == [1, 0]
    assert len({m for m in r.sscan_iter("a")}) == 600
    popped = r.spop("c", 300)
    assert len(set(popped)) == 300 and not r.exists("c")
    assert r.sadd("words", "one", "two") == 2 and r.smove("words", "other", "one")
    assert len(r.srandmember("a", 10)) == 10


def sorted_sets(r):
    scores = {f"player{i}": random.Random(i).randrange(10**6) for i in range(1000)}
    assert r.zadd("z", scores) == 1000
    ranked = sorted(scores, key=lambda name: (scores[name], name))
    assert r.zrange("z", 0, -1) == ranked and r.zrevrange("z", 0, 4) == ranked[:-6:-1]
    assert r.zrank("z", ranked[123]) == 123 and r.zscore("z", ranked[0]) == float(scores[ranked[0]])
    assert r.zincrby("z", 10**7, ranked[0]) == scores[ranked[0]] + 10**7
    assert r.zrevrank("z", ranked[0]) == 0
    assert r.zcount("z", "-inf", "(500000") == sum(1 for n in ranked[1:] if scores[n] < 500000)
    assert r.zrangebyscore("z", 0, "+inf", start=5, num=3) == ranked[6:9]
    assert r.zpopmin("z", 2) and r.zunionstore("u", {"z": 1, "z2": 2}) == 998
    assert r.zadd("lex", {"b": 0, "a": 0, "c": 0}) == 3 and r.zrangebylex("lex", "[b", "+") == ["b", "c"]
    assert r.geoadd("Sicily", (13.361389, 38.115556, "Palermo", 15.087269, 37.502669, "Catania")) == 2
    assert abs(r.geodist("Sicily", "Palermo", "Catania", "km") - 166.2742) < 0.001
    assert r.geosearch("Sicily", longitude=15, latitude=37, radius=200, unit="km", sort="ASC") == ["Catania", "Palermo"]


def streams(r):
    ids = [r.xadd("s", {"n": i}) for i in range(300)]
    assert r.xlen("s") == 300 and [i for i, _ in r.xrange("s", count=3)] == ids[:3]
    assert r.xrevrange("s", count=1)[0] == (ids[-1], {"n": "299"})
    assert r.xgroup_create("s", "workers", id="0")
    seen = []
    for consumer in ("one", "two"):
        answer = r.xreadgroup("workers", consumer, {"s": ">"}, count=100)
        entries = answer["s"][0] if isinstance(answer, dict) else answer[0][1]
        seen += [entry_id for entry_id, _ in entries]
    assert seen == ids[:200]
    assert r.xack("s", "workers", *seen[:150]) == 150
    assert r.xpending("s", "workers")["pending"] == 50
    assert len(r.xautoclaim("s", "workers", "three", 0, "0-0", count=10)[1]) == 10
    assert r.xtrim("s", maxlen=50, approximate=False) == 250
    assert r.xinfo_stream("s")["length"] == 50 and r.xinfo_groups("s")[0]["name"] == "workers"


def strings_with_structure(r):
    assert r.setbit("bits", 1000, 1) == 0 and r.bitcount("bits") == 1 and r.bitpos("bits", 1) == 1000
    assert r.pfadd("hll", *range(10000)) == 1 and abs(r.pfcount("hll") - 10000) < 200


def blocking(r):
    """Workers that wait for jobs get each of them once, in the order in which they were pushed."""
    jobs, got, lock = 300, [], threading.Lock()

    def work():
        own = client(3)
        while True:
            job = own.blpop(["urgent", "jobs"], timeout=20)
            if job[1] == "stop":
                return
            with lock:
                got.append(job[1])

    workers = [threading.Thread(target=work) for _ in range(8)]
    for worker in workers:
        worker.start()
    for job in range(jobs):
        r.rpush("urgent" if job % 7 == 0 else "jobs", job)
    for _ in workers:
        r.rpush("jobs", "stop")
    for worker in workers:
        worker.join()
    assert sorted(map(int, got)) == list(range(jobs)), sorted(got)
    begun = time.monotonic()
    assert r.blpop("nothing", timeout=0.2) is None and time.monotonic() - begun >= 0.2
    waiter = client(3)
    waiting = waiter.client_id()
    answers = []
    thread = threading.Thread(target=lambda: raises("UNBLOCKED", lambda: waiter.brpop("nothing")))
    thread.start()
    while not r.client_unblock(waiting, error=True):
        pass
    thread.join()
    # What a transfer moves is there, for any waiter.
    thread = threading.Thread(target=lambda: answers.append(client(2).blmove("from", "to", 10)))
    thread.start()
    while r.info("clients")["blocked_clients"] != 1:
        pass
    r.rpush("from", "element")
    thread.join()
    assert answers == ["element"] and r.lrange("to", 0, -1) == ["element"]
    thread = threading.Thread(target=lambda: answers.append(client(2).bzpopmin("board", 10)))
    thread.start()
    while r.info("clients")["blocked_clients"] != 1:
        pass
    r.zadd("board", {"b": 2, "a": 1})
    thread.join()
    assert list(answers[1]) == ["board", "a", 1.0], answers[1]
    thread = threading.Thread(target=lambda: answers.append(client(2).xread({"feed": "$"}, block=10000)))
    thread.start()
    while r.info("clients")["blocked_clients"] != 1:
        pass
    entry = r.xadd("feed", {"k": "v"})
    thread.join()
    assert answers[2] == [["feed", [(entry, {"k": "v"})]]], answers[2]


for protocol in (2, 3):
    r = client(protocol)
    for scene in (lists, hashes, sets, sorted_sets, streams, strings_with_structure, blocking):
        r.flushall()
        scene(r)
    r.flushall()
print("redis-py, all types: all passed")
