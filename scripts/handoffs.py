"""Failovers that clients of redis-py do not notice. Called by scripts/handoffs.

redis-py takes the host from MOVING, and keeps its port. So the two servers have the same port on two addresses of this
machine.
"""

import asyncio
import pathlib
import subprocess
import sys
import tempfile
import threading
import time

import redis
import redis.asyncio

HOSTS = ("127.0.0.1", "127.0.0.2")
# Calls of each worker before and after each failover.
CALLS = 200
ROUNDS = 3
PATIENCE = 60
INCREMENT = "return redis.call('INCR', KEYS[1])"


def wait_until(what, condition):
    end = time.monotonic() + PATIENCE
    while True:
        try:
            if condition():
                return
        except (redis.RedisError, OSError):
            pass
        if time.monotonic() > end:
            sys.exit(f"waited {PATIENCE} s in vain: {what}")
        time.sleep(0.01)


class Server:
    def __init__(self, program, host, port, directory):
        self.host, self.port = host, port
        directory.mkdir()
        options = {
            "bind": host, "port": port, "dir": directory, "save": "", "replica-announce-ip": host,
            "repl-diskless-sync-delay": 0,
        }
        words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        self.log = (directory / "log").open("wb")
        self.process = subprocess.Popen([program, *words], stdout=self.log, stderr=self.log)
        # This connection is not told of failovers, and may be at a replica.
        self.admin = redis.Redis(host, port, protocol=2, decode_responses=True)
        wait_until(f"{host} answers", self.admin.ping)

    def fail_over_to(self, other):
        self.admin.execute_command("FAILOVER", "TO", other.host, other.port)
        wait_until("it has handed over", lambda: self.admin.info("replication")["role"] == "slave")
        wait_until("it follows", lambda: self.admin.info("replication")["master_link_status"] == "up")

    def told(self):
        return sum("m" in client["flags"] for client in self.admin.client_list())


class Worker(threading.Thread):
    """Increments its counter by one kind of call. Each failure is one of the application."""

    def __init__(self, name, call):
        super().__init__(daemon=True)
        self.key, self.call = f"counter:{name}", call
        self.done, self.failure, self.ends = 0, None, threading.Event()

    def run(self):
        try:
            while not self.ends.is_set():
                self.call(self.key)
                self.done += 1
        except Exception as failure:
            self.failure = failure


def transaction(client):
    def call(key):
        with client.pipeline() as pipe:
            pipe.incr(key).get(key).execute()
    return call


def blocking(client):
    """Another client pushes, because each waits for the other."""
    address = client.connection_pool.connection_kwargs
    pusher = redis.Redis(address["host"], address["port"])

    def call(key):
        pusher.rpush(f"list:{key}", 1)
        assert client.blpop(f"list:{key}", 30)
        client.incr(key)
    return call


def asynchronous(runner, host, port):
    client = redis.asyncio.Redis(host=host, port=port)
    return lambda key: runner.run(client.incr(key))


def workers(runner, host, port):
    shared, single = redis.Redis(host, port), redis.Redis(host, port, single_connection_client=True)
    script = shared.register_script(INCREMENT)
    kinds = {
        **{f"shared:{number}": shared.incr for number in range(8)},
        "single": single.incr,
        "transaction": transaction(shared),
        "script": lambda key: script([key]),
        "blocking": blocking(redis.Redis(host, port)),
        "async": asynchronous(runner, host, port),
    }
    return [Worker(name, call) for name, call in kinds.items()]


def check(workers):
    for worker in workers:
        if worker.failure:
            raise SystemExit(f"{worker.key} failed: {worker.failure!r}") from worker.failure


def work_on(workers):
    """All get further by some calls."""
    goals = [(worker, worker.done + CALLS) for worker in workers]
    wait_until("all work", lambda: check(workers) or all(worker.done >= goal for worker, goal in goals))


def fail_over(workers, servers):
    for number in range(ROUNDS):
        work_on(workers)
        servers[0].fail_over_to(servers[1])
        servers.reverse()
        work_on(workers)
        calls = sum(worker.done for worker in workers)
        print(f"failover {number + 1}: {calls} calls, {servers[0].told()} connections told")
        assert servers[0].told() > 0, "redis-py asks for notifications by default"


def main(program, port):
    with tempfile.TemporaryDirectory() as directory, asyncio.Runner() as runner:
        servers = []
        try:
            for host in HOSTS:
                servers.append(Server(program, host, int(port), pathlib.Path(directory, host)))
            servers[1].admin.execute_command("REPLICAOF", *HOSTS[:1], port)
            wait_until("it follows", lambda: servers[1].admin.info("replication")["master_link_status"] == "up")
            wait_until("it is online", lambda: "online" in str(servers[0].admin.info("replication").get("slave0")))
            running = workers(runner, HOSTS[0], int(port))
            for worker in running:
                worker.start()
            fail_over(running, servers)
            for worker in running:
                worker.ends.set()
            for worker in running:
                worker.join(PATIENCE)
            check(running)
            for worker in running:
                count = int(servers[0].admin.get(worker.key))
                assert count == worker.done, f"{worker.key}: {worker.done} calls, {count} done"
            # A client that knows only the server that has handed over.
            assert redis.Redis(servers[1].host, int(port)).incr("later") == 1
        finally:
            for server in servers:
                server.process.kill()
                server.process.wait()
    print("no call failed, and each was done once")


if __name__ == "__main__":
    main(*sys.argv[1:])
