"""Uses a server as applications do, through their libraries, and says of each what works.

A case that cannot work yet names the command that it needs, and has to fail for want of just that: when it
begins to work, its mark has to go. Usage: clients_of_redis.py PORT EXPORTER, where EXPORTER is
redis_exporter's port."""

import logging
import subprocess
import sys
import urllib.request

import celery
import django
import django.conf
import kombu
import redis
import redlock
import rq

PORT = int(sys.argv[1])
EXPORTER = sys.argv[2]
URL = f"redis://127.0.0.1:{PORT}"
WAIT = 10
CASES = []


def case(name, needs=None):
    """A function that uses the server; `needs` is the command that the server lacks for it."""

    def add(function):
        CASES.append((name, needs, function))
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
    refused("DUMP here and RESTORE there", lambda: r.migrate("127.0.0.1", PORT, "k", 0, 1000))
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


@case("redis-py: a transaction", needs="MULTI")
def redis_py_transaction():
    with client().pipeline() as pipe:
        check(pipe.set("a", 1).incr("a").execute(), [True, 2])


@case("redis-py: a lock", needs="EVALSHA")
def redis_py_lock():
    with client().lock("lock", timeout=WAIT, blocking_timeout=WAIT):
        pass


@case("redis-py: a script", needs="EVALSHA")
def redis_py_script():
    check(client().register_script("return 1")(), 1)


@case("redis-py: messages", needs="SUBSCRIBE")
def redis_py_messages():
    messages = client().pubsub()
    messages.subscribe("news")
    check(messages.get_message(timeout=WAIT)["type"], "subscribe")


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


@case("Django: many values at once, with a timeout", needs="MULTI")
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


@case("redlock-py: giving it back", needs="EVAL")
def redlock_unlock():
    manager = Redlock([{"port": PORT}])
    manager.unlock(manager.lock("resource", 10_000))
    check(client().exists("resource"), 0)


@case("rq: a job and its result", needs="MULTI")
def rq_job():
    connection = client()
    queue = rq.Queue(connection=connection)
    job = queue.enqueue(abs, -6)
    rq.SimpleWorker([queue], connection=connection).work(burst=True)
    check(job.return_value(), 6)


@case("Celery: sending a task", needs="MULTI")
def celery_send():
    app = celery.Celery(broker=URL)
    app.send_task("tasks.product", (6, 7))
    check(client().llen("celery"), 1)


@case("Celery: receiving it", needs="MULTI")
def celery_receive():
    with kombu.Connection(URL) as connection, connection.SimpleQueue("orders") as queue:
        queue.put({"number": 1})
        message = queue.get(timeout=WAIT)
        check(message.payload, {"number": 1})
        message.ack()


@case("Celery: its result", needs="MULTI")
def celery_result():
    app = celery.Celery(backend=URL)
    app.backend.result_consumer.start("identity")
    app.backend.store_result("identity", 42, "SUCCESS")
    check(app.AsyncResult("identity").get(timeout=WAIT), 42)


def run(*command):
    """Runs a program that uses the server; what it says on stderr is the error."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=6 * WAIT)
    if done.returncode != 0:
        raise RuntimeError(done.stderr)


@case("Sidekiq: a job, sent and taken")
def sidekiq_job():
    run("ruby", "scripts/clients_of_redis.rb", str(PORT), "job")


@case("Sidekiq: a job of which the time has come", needs="SCRIPT")
def sidekiq_scheduled():
    run("ruby", "scripts/clients_of_redis.rb", str(PORT), "scheduled")


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


def outcome(needs, function):
    """What became of a case, and whether that is as expected."""
    client().flushall()
    try:
        function()
    except Exception as error:
        wanted = f"unknown command '{needs}'"
        if needs and wanted.lower() in text_of(error).lower():
            return f"not yet: needs {needs}", True
        return f"FAILED: {text_of(error)}", False
    if needs:
        return f"works, though it is marked to need {needs}: remove the mark", False
    return "works", True


def main():
    results = [(name, *outcome(needs, function)) for name, needs, function in CASES]
    for name, what, _ in results:
        print(f"{name:66} {what}")
    sys.exit(0 if all(good for _, _, good in results) else 1)


main()
