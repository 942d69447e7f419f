"""Uses a server as applications do, through their libraries, and says of each what works.

Usage: clients_of_redis.py PORT EXPORTER [REDISSON], where EXPORTER is
redis_exporter's port and REDISSON the jar of redisson-all; without it the cases of redisson do not run."""

import asyncio
import logging
import subprocess
import sys
import urllib.request

import bullmq
import celery
import django
import django.conf
import kombu
import redis
import redlock
import rq

PORT = int(sys.argv[1])
EXPORTER = sys.argv[2]
REDISSON = sys.argv[3] if len(sys.argv) > 3 else None
URL = f"redis://127.0.0.1:{PORT}"
WAIT = 10
CASES = []


def case(name):
    """A function that uses the server."""

    def add(function):
        CASES.append((name, function))
        return function

    return add


def client(**options):
    return redis.Redis(port=PORT, socket_timeout=WAIT, **options)


def check(got, expected):
    assert got == expected, f"expected {expected!r}, got {got!r}"


def refused(text, call):
    try:
        call()
    except redis.ResponseError as error:
        assert text in str(error), error
        return
    raise AssertionError(f"no error with {text!r}")


@case("redis-py: what the server says of its commands, in both protocols")
def redis_py_commands():
    for protocol in (2, 3):
        r = client(protocol=protocol, decode_responses=True)
        known, listed = r.command(), r.command_list()
        check(r.command_count(), len(known))
        check({name for name in listed if "|" not in name}, set(known))
        assert {"config|get", "client|no-evict", "xinfo|groups"} <= set(listed), listed
        check(r.command_getkeys("SORT", "l", "BY", "STORE", "x"), ["l"])
        check(r.command_getkeysandflags("SET", "k", "v"), [["k", ["OW", "update"]]])


@case("redis-py: questions about clusters, replicas and modules")
def redis_py_topology():
    r = client(decode_responses=True)
    check(r.module_list(), [])
    check(r.role()[0], "master")
    for call in (r.readonly, r.readwrite, lambda: r.execute_command("CLUSTER INFO")):
        refused("cluster support disabled", call)
    refused("FAILOVER requires connected replicas", lambda: r.execute_command("FAILOVER"))
    check(r.migrate("127.0.0.1", PORT, "no such key", 0, 1000), "NOKEY")
    assert "Redis ver." in r.lolwut()


@case("redis-py: a pipeline that is no transaction")
def redis_py_pipeline():
    with client().pipeline(transaction=False) as pipe:
        check(pipe.set("a", 1).incr("a").hset("h", mapping={"f": "v"}).execute(), [True, 2, 1])


@case("redis-py: a stream with a group")
def redis_py_stream():
    r = client(decode_responses=True)
    identity = r.xadd("events", {"kind": "order"})
    r.xgroup_create("events", "billing", id="0")
    check(r.xreadgroup("billing", "me", {"events": ">"})[0][1], [(identity, {"kind": "order"})])
    check(r.xack("events", "billing", identity), 1)
    group = r.xinfo_groups("events")[0]
    check((group["entries-read"], group["lag"], group["pending"]), (1, 0, 0))


@case("redis-py: a transaction")
def redis_py_transaction():
    with client().pipeline() as pipe:
        check(pipe.set("a", 1).incr("a").execute(), [True, 2])


@case("redis-py: a lock, extended, and refused to others")
def redis_py_lock():
    r = client()
    with r.lock("lock", timeout=WAIT, blocking_timeout=WAIT) as lock:
        other = r.lock("lock", timeout=WAIT)
        check(other.acquire(blocking=False), False)
        lock.extend(3 * WAIT)
        assert r.ttl("lock") > 2 * WAIT, r.ttl("lock")
        lock.reacquire()
        assert r.ttl("lock") <= WAIT, r.ttl("lock")
    check(r.lock("lock", timeout=WAIT).acquire(blocking=False), True)


@case("redis-py: a script, alone, piped, and forgotten meanwhile")
def redis_py_script():
    r = client(decode_responses=True)
    limiter = r.register_script(
        """
        local count = redis.call('INCR', KEYS[1])
        if count == 1 then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
        return {count <= tonumber(ARGV[1]), count}
        """
    )
    check([limiter(keys=["calls"], args=[2, 60000]) for _ in range(3)], [[1, 1], [1, 2], [None, 3]])
    r.script_flush()
    with r.pipeline() as pipe:
        limiter(keys=["others"], args=[1, 60000], client=pipe)
        pipe.pttl("others")
        reply, ttl_ms = pipe.execute()
    check(reply, [1, 1])
    assert 0 < ttl_ms <= 60000, ttl_ms
    refused("my own words", lambda: r.eval("return redis.error_reply('my own words')", 0))
    refused("user_script:1: gone", lambda: r.eval("error('gone')", 0))


@case("redis-py: a library of functions")
def redis_py_functions():
    r = client(decode_responses=True)
    code = """#!lua name=stock
        redis.register_function('take', function(keys, args)
            local left = redis.call('HINCRBY', keys[1], args[1], -args[2])
            if left < 0 then
                redis.call('HINCRBY', keys[1], args[1], args[2])
                return redis.error_reply('too few')
            end
            return left
        end)
        redis.register_function{
            function_name = 'left', flags = {'no-writes'},
            callback = function(keys, args) return redis.call('HGET', keys[1], args[1]) end
        }
    """
    check(r.function_load(code, replace=True), "stock")
    r.hset("store", "apples", 5)
    check(r.fcall("take", 1, "store", "apples", 3), 2)
    refused("too few", lambda: r.fcall("take", 1, "store", "apples", 3))
    check(r.fcall_ro("left", 1, "store", "apples"), "2")
    refused("Can not execute a script with write flag", lambda: r.fcall_ro("take", 1, "store", "apples", 1))
    dump = client().function_dump()
    check(r.function_flush(), True)
    check(client().function_restore(dump), True)
    check(r.fcall("left", 1, "store", "apples"), "2")
    check(r.function_delete("stock"), True)


@case("redis-py: messages, in both protocols")
def redis_py_messages():
    for protocol in (2, 3):
        messages, got = client(protocol=protocol, decode_responses=True).pubsub(), []
        messages.subscribe("news", **{"sport": got.append})
        messages.psubscribe("n*")
        kinds = [messages.get_message(timeout=WAIT)["type"] for _ in range(3)]
        check(sorted(kinds), ["psubscribe", "subscribe", "subscribe"])
        r = client(decode_responses=True)
        check(r.publish("news", "first"), 2)
        check(r.publish("sport", "second"), 1)
        received = [messages.get_message(timeout=WAIT) for _ in range(3)]
        texts = [(m["type"], m["channel"], m["data"]) for m in received if m]
        check(texts, [("message", "news", "first"), ("pmessage", "news", "first")])
        check([message["data"] for message in got], ["second"])
        check(r.pubsub_numsub("news", "none"), [("news", 1), ("none", 0)])
        messages.ping()
        messages.close()


def django_cache():
    if not django.conf.settings.configured:
        backend = "django.core.cache.backends.redis.RedisCache"
        django.conf.settings.configure(
            CACHES={"default": {"BACKEND": backend, "LOCATION": URL}},
            SESSION_ENGINE="django.contrib.sessions.backends.cache",
        )
        django.setup()
    from django.core.cache import cache

    return cache


@case("Django: the cache")
def django_values():
    cache = django_cache()
    cache.set("page", {"title": "home"}, timeout=100)
    check(cache.get("page"), {"title": "home"})
    check(cache.add("page", 1), False)
    check(cache.get_or_set("visits", 41, timeout=None), 41)
    check((cache.incr("visits"), cache.decr("visits", 2)), (42, 40))
    check((cache.touch("page", 200), cache.has_key("page")), (True, True))
    check(cache.get_many(["page", "visits", "nothing"]), {"page": {"title": "home"}, "visits": 40})
    check(cache.delete("page"), True)
    cache.set("gone", 1, timeout=0)
    check(cache.get("gone", "default"), "default")
    cache.delete_many(["visits", "nothing"])
    cache.clear()
    check(client().dbsize(), 0)


@case("Django: sessions in the cache")
def django_sessions():
    django_cache()
    from django.contrib.sessions.backends.cache import SessionStore

    session = SessionStore()
    session["user"] = 7
    session.save()
    check(SessionStore(session.session_key)["user"], 7)
    session.flush()


@case("Django: many values at once, with a timeout")
def django_many():
    check(django_cache().set_many({"a": 1, "b": 2}, timeout=100), [])


class Redlock(redlock.Redlock):
    """As it is, but that an unlock that fails is told, and not only logged."""

    def unlock_instance(self, server, resource, val):
        server.eval(self.unlock_script, 1, resource, val)


@case("redlock-py: taking a lock, once")
def redlock_lock():
    manager = redlock.Redlock([{"port": PORT}], retry_count=1)
    logging.disable(logging.ERROR)
    assert manager.lock("resource", 10_000)
    check(manager.lock("resource", 10_000), False)
    logging.disable(logging.NOTSET)


@case("redlock-py: giving it back")
def redlock_unlock():
    manager = Redlock([{"port": PORT}])
    manager.unlock(manager.lock("resource", 10_000))
    check(client().exists("resource"), 0)


@case("rq: a job and its result")
def rq_job():
    connection = client()
    queue = rq.Queue(connection=connection)
    job = queue.enqueue(abs, -6)
    rq.SimpleWorker([queue], connection=connection).work(burst=True)
    check(job.return_value(), 6)


@case("Celery: sending a task")
def celery_send():
    app = celery.Celery(broker=URL)
    app.send_task("tasks.product", (6, 7))
    check(client().llen("celery"), 1)


@case("Celery: receiving it")
def celery_receive():
    with kombu.Connection(URL) as connection, connection.SimpleQueue("orders") as queue:
        queue.put({"number": 1})
        message = queue.get(timeout=WAIT)
        check(message.payload, {"number": 1})
        message.ack()


@case("Celery: its result")
def celery_result():
    app = celery.Celery(backend=URL)
    app.backend.result_consumer.start("identity")
    app.backend.store_result("identity", 42, "SUCCESS")
    check(app.AsyncResult("identity").get(timeout=WAIT), 42)


def run(*command):
    """Runs a program that uses the server; what it says on stderr is the error."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=4 * WAIT)
    if done.returncode != 0:
        raise RuntimeError(done.stderr)


@case("Sidekiq: a job, sent and taken")
def sidekiq_job():
    run("ruby", "scripts/clients_of_redis.rb", str(PORT), "job")


@case("Sidekiq: a job of which the time has come")
def sidekiq_scheduled():
    run("ruby", "scripts/clients_of_redis.rb", str(PORT), "scheduled")


async def send_and_take():
    """Jobs of several priorities, one delayed and one that fails at first, and what became of each."""
    queue, loop = bullmq.Queue("mails", {"connection": URL}), asyncio.get_running_loop()
    done, failed = loop.create_future(), []
    results = {}

    async def process(job, _token):
        if job.data["to"] == "shaky" and not failed:
            failed.append(job.id)
            raise RuntimeError("not yet")
        return job.data["to"]

    def complete(job, result):
        results[job.name] = result
        if len(results) == 4:
            done.set_result(None)

    try:
        await queue.add("plain", {"to": "a"})
        await queue.add("first", {"to": "b"}, {"priority": 1})
        await queue.add("later", {"to": "c"}, {"delay": 50})
        await queue.add("again", {"to": "shaky"}, {"attempts": 2})
        worker = bullmq.Worker("mails", process, {"connection": URL})
        worker.on("completed", complete)
        try:
            await done
        finally:
            await worker.close(force=True)
        check(results, {"plain": "a", "first": "b", "later": "c", "again": "shaky"})
        check(len(failed), 1)
        counts = await queue.getJobCounts("completed", "failed", "waiting", "delayed")
        check(counts, {"completed": 4, "failed": 0, "waiting": 0, "delayed": 0})
    finally:
        await queue.close()


@case("BullMQ: jobs with priorities, delays and a second attempt")
def bullmq_job():
    asyncio.run(asyncio.wait_for(send_and_take(), 3 * WAIT))


def redisson(cases):
    """Runs cases of redisson in a process of their own, which can be ended: without scripts some ask for ever."""
    try:
        run(sys.executable, "scripts/clients_of_redis_java.py", REDISSON, URL, cases)
    except subprocess.TimeoutExpired:
        client().eval("return 1", 0)
        raise


if REDISSON:

    @case("redisson: a value, a counter and a list")
    def redisson_values():
        redisson("values")

    @case("redisson: a message")
    def redisson_message():
        redisson("message")

    @case("redisson: a map and a lock")
    def redisson_map_and_lock():
        redisson("map_and_lock")


@case("redis_exporter: the figures of INFO")
def exporter():
    r = client()
    r.mset({f"k{n}": n for n in range(50)})
    r.set("expiring", 1, ex=100)
    page = urllib.request.urlopen(f"http://127.0.0.1:{EXPORTER}/metrics", timeout=WAIT).read()
    lines = [line.rsplit(" ", 1) for line in page.decode().splitlines() if line[:1] not in ("#", "")]
    figures = {name: float(value) for name, value in lines}
    for name, value in {
        "redis_up": 1,
        "redis_exporter_last_scrape_error{err=\"\"}": 0,
        "redis_db_keys{db=\"db0\"}": 51,
        "redis_db_keys_expiring{db=\"db0\"}": 1,
        "redis_blocked_clients": 0,
        "redis_loading_dump_file": 0,
    }.items():
        check((name, figures.get(name)), (name, value))
    for name in (
        "redis_uptime_in_seconds",
        "redis_connected_clients",
        "redis_memory_used_bytes",
        "redis_commands_processed_total",
        "redis_commands_total{cmd=\"mset\"}",
        "redis_keyspace_misses_total",
        "redis_cpu_user_seconds_total",
        "redis_aof_enabled",
    ):
        assert name in figures, f"{name} is missing"


def text_of(error):
    """What an error says, with those that led to it."""
    text = []
    while error:
        text.append(f"{type(error).__name__}: {error}")
        error = error.__cause__ or error.__context__
    return " / ".join(text)


def outcome(function):
    """What became of a case, and whether that is good."""
    client().flushall()
    try:
        function()
    except Exception as error:
        return f"FAILED: {text_of(error)}", False
    return "works", True


def main():
    results = [(name, *outcome(function)) for name, function in CASES]
    for name, what, _ in results:
        print(f"{name:66} {what}")
    if not REDISSON:
        print(f"{'redisson':66} not run: its jar comes from Maven's registry (--with-maven)")
    sys.exit(0 if all(good for _, _, good in results) else 1)


main()
