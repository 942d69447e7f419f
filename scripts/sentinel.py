"""Three Sentinels over three servers, and what becomes of writes when primaries fail. Called by scripts/sentinel.

A round ends the primary in one of these ways:

kill     by SIGKILL; it is started again when another server is the primary.
stop     by SIGSTOP, as of a machine that hangs; it goes on when another server is the primary.
switch   by SENTINEL FAILOVER, as for an upgrade.

A round is over when the Sentinels agree on a primary, all others follow it, and all three servers have every confirmed
write. The server that was a replica before and after must have gone on without a full copy, unless it was ahead of the one
that was promoted. The time of a failover is that without a successful write.
"""

import argparse
import collections
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import redis
from redis.sentinel import Sentinel

NAME = "group"
WRITERS = 4
# Between two writes of a writer.
PAUSE = 0.01
# On a machine that is starved of processor time, Sentinels do nothing for 30 s (TILT), and then wait for fresh INFO.
PATIENCE = 150
FLEETS = {
    "redis": ("redis", "redis", "redis"),
    "tierce": ("tierce", "tierce", "tierce"),
    "mixed": ("redis", "tierce", "tierce"),
    "mixed-back": ("tierce", "redis", "redis"),
}


class Failed(Exception):
    pass


def wait_until(what, condition, patience=PATIENCE):
    end = time.monotonic() + patience
    while True:
        try:
            value = condition()
        except (redis.RedisError, OSError):
            value = None
        if value:
            return value
        if time.monotonic() > end:
            raise Failed(f"waited {patience} s in vain: {what}")
        time.sleep(0.02)


class Process:
    """A program with a directory, a configuration file that it may rewrite, and a log."""

    def __init__(self, command, directory, port, lines):
        self.command, self.directory, self.port = command, directory, port
        directory.mkdir(parents=True)
        self.config, self.log = directory / "config", directory / "log"
        self.config.write_text("".join(f"{line}\n" for line in lines))
        self.client = redis.Redis(port=port, socket_timeout=2, decode_responses=True)
        self.process = None

    def start(self):
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*self.command, str(self.config)], stdout=log, stderr=log, cwd=self.directory)
        wait_until(f"{self.directory.name} answers", self.client.ping)

    def signal(self, number):
        self.process.send_signal(number)
        if number == signal.SIGKILL:
            self.process.wait()

    def end(self):
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.signal(signal.SIGKILL)


class Server(Process):
    def __init__(self, options, kind, directory, port, primary):
        lines = [
            f"port {port}",
            "bind 127.0.0.1",
            f"dir {directory}",
            "save ''" if kind == "tierce" else 'save ""',
            "appendonly yes",
            "repl-diskless-sync yes",
            "repl-diskless-sync-delay 0",
            "repl-ping-replica-period 1",
        ]
        if primary:
            lines.append(f"replicaof 127.0.0.1 {primary}")
        command = [options.program] if kind == "tierce" else ["redis-server"]
        super().__init__(command, directory, port, lines)
        self.kind = kind

    def replication(self):
        return self.client.info("replication")

    def full_copies(self):
        """Those that it has got since its first start."""
        text = "Full copy from " if self.kind == "tierce" else "Full resync from master"
        return self.log.read_text(errors="replace").count(text)

    def has_refused_one_ahead(self):
        """Whether it has ever refused a replica of the same stream that knew more."""
        log = self.log.read_text(errors="replace")
        return "it knows more of the previous stream" in log or "Requested offset for second ID" in log

    def follows(self, primary):
        """Whether it has a link to the primary, and its file says so."""
        info = self.replication()
        return (info["role"] == "slave" and info["master_port"] == primary.port
                and info["master_link_status"] == "up"
                and f"replicaof 127.0.0.1 {primary.port}" in self.config.read_text())


class Fleet:
    def __init__(self, options, kinds, directory):
        self.options = options
        self.processes = []
        first = options.port
        self.servers = [
            Server(options, kind, directory / f"{kind}-{n}", first + n, n and first)
            for n, kind in enumerate(kinds)
        ]
        self.sentinels = [
            Process(["redis-sentinel"], directory / f"sentinel-{n}", first + 10 + n, [
                f"port {first + 10 + n}",
                "bind 127.0.0.1",
                f"sentinel monitor {NAME} 127.0.0.1 {first} 2",
                f"sentinel down-after-milliseconds {NAME} {options.down_after}",
                f"sentinel failover-timeout {NAME} 10000",
            ]) for n in range(3)
        ]

    def __enter__(self):
        for process in self.servers:
            process.start()
        primary = self.servers[0]
        for server in self.servers[1:]:
            wait_until("the first links", lambda: server.replication()["master_link_status"] == "up")
        for process in self.sentinels:
            process.start()
        wait_until("the sentinels know each other and all servers", self.is_known)
        return self

    def __exit__(self, *_):
        for process in self.sentinels + self.servers:
            process.end()

    def is_known(self):
        states = [sentinel.client.sentinel_master(NAME) for sentinel in self.sentinels]
        return all(state["num-other-sentinels"] == 2 and state["num-slaves"] == 2 for state in states)

    def primary(self):
        """The server that all Sentinels name, if they do."""
        named = {sentinel.client.sentinel_get_master_addr_by_name(NAME) for sentinel in self.sentinels}
        ports = {address[1] for address in named}
        if len(ports) != 1:
            return None
        return next(server for server in self.servers if server.port in ports)

    def replaced(self, old):
        primary = self.primary()
        if primary is old or primary is None:
            return None
        return primary if primary.replication()["role"] == "master" else None

    def settled(self, primary):
        others = [server for server in self.servers if server is not primary]
        return ("replicaof" not in primary.config.read_text()
                and all(server.follows(primary) for server in others)
                and self.primary() is primary
                and all(self.is_calm(sentinel, primary) for sentinel in self.sentinels))

    @staticmethod
    def is_calm(sentinel, primary):
        state = sentinel.client.sentinel_master(NAME)
        replicas = sentinel.client.sentinel_slaves(NAME)
        return (state["flags"] == "master" and len(replicas) == 2
                and all(replica["flags"] == "slave" and int(replica["master-port"]) == primary.port
                        for replica in replicas))


class Writers:
    """Threads that write through Sentinel, and remember what was confirmed."""

    def __init__(self, fleet):
        self.fleet = fleet
        self.needed = 1
        self.confirmed = collections.deque()
        self.counters = [0] * WRITERS
        # When the last successful write began, of all threads.
        self.begun = 0.0
        self.first_after = None
        self.ends = threading.Event()
        self.threads = [threading.Thread(target=self.write, args=(n,)) for n in range(WRITERS)]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.ends.set()
        for thread in self.threads:
            thread.join()

    def write(self, writer):
        addresses = [("127.0.0.1", sentinel.port) for sentinel in self.fleet.sentinels]
        client = Sentinel(addresses, socket_timeout=0.5).master_for(NAME, socket_timeout=1.0)
        number = 0
        while not self.ends.wait(PAUSE):
            number += 1
            key = f"{writer}:{number}"
            begun, needed = time.monotonic(), self.needed
            pipeline = client.pipeline(transaction=False)
            pipeline.set(key, number).incr(f"counter:{writer}").execute_command("WAIT", needed, 300)
            try:
                _, count, confirmations = pipeline.execute()
            except (redis.RedisError, OSError):
                continue
            # Appended last: who waits for it sees all.
            self.begun = max(self.begun, begun)
            if confirmations >= needed:
                self.counters[writer] = max(self.counters[writer], count)
                self.confirmed.append((key, str(number)))

    def wait_for_write(self):
        """Waits for a write that begins from now on. When it has succeeded."""
        now = time.monotonic()
        wait_until("a write succeeds", lambda: self.begun > now)
        return time.monotonic()

    def check(self, servers, primary):
        """Whether each of the servers has what was confirmed, which is deleted then."""
        count = len(self.confirmed)
        confirmed = [self.confirmed.popleft() for _ in range(count)]
        counters = list(self.counters)
        for server in servers:
            wait_until(f"{server.directory.name} has all confirmed writes",
                       lambda: not self.missing(server, confirmed, counters))
        keys = [key for key, _ in confirmed]
        for begin in range(0, count, 1000):
            primary.client.unlink(*keys[begin:begin + 1000])
        return count

    @staticmethod
    def missing(server, confirmed, counters):
        missing = []
        for begin in range(0, len(confirmed), 1000):
            part = confirmed[begin:begin + 1000]
            values = server.client.mget([key for key, _ in part])
            missing += [key for (key, value), found in zip(part, values) if found != value]
        for writer, least in enumerate(counters):
            if int(server.client.get(f"counter:{writer}") or 0) < least:
                missing.append(f"counter:{writer}")
        return missing


def fail_over(fleet, writers, way):
    """Replaces the primary. Seconds without writes."""
    old = fleet.primary()
    # WAIT 1 says nothing about a switch: the replica that confirms need not be the one that is promoted.
    writers.needed = 2 if way == "switch" else 1
    writers.wait_for_write()
    copies = {server: server.full_copies() for server in fleet.servers}
    begun = time.monotonic()
    if way == "switch":
        fleet.sentinels[0].client.sentinel_failover(NAME)
    else:
        old.signal(signal.SIGKILL if way == "kill" else signal.SIGSTOP)
    if way == "switch":
        new = wait_until("another primary", lambda: fleet.replaced(old))
    else:
        written = writers.wait_for_write()
        new = wait_until("another primary", lambda: fleet.replaced(old))
    if way == "kill":
        old.start()
    elif way == "stop":
        old.signal(signal.SIGCONT)
    wait_until("all follow the new primary", lambda: fleet.settled(new))
    for server in fleet.servers:
        if server not in (old, new) and server.full_copies() > copies[server] and not new.has_refused_one_ahead():
            raise Failed(f"{server.directory.name} got a full copy from {new.directory.name}")
    if way == "switch":
        written = writers.wait_for_write()
        return new, None
    return new, written - begun


def run(options, name, directory):
    ways = options.ways.split(",")
    times = collections.defaultdict(list)
    confirmed = 0
    with Fleet(options, FLEETS[name], directory) as fleet, Writers(fleet) as writers:
        for n in range(options.rounds):
            way = ways[n % len(ways)]
            new, seconds = fail_over(fleet, writers, way)
            confirmed += writers.check(fleet.servers, new)
            if seconds is not None:
                times[way].append(seconds)
            shown = "" if seconds is None else f", writes again after {seconds:.1f} s"
            print(f"{name} {n + 1}: {way}, now {new.directory.name}{shown}", flush=True)
    medians = {way: statistics.median(seconds) for way, seconds in times.items()}
    shown = ", ".join(f"{way}: median {median:.2f} s" for way, median in medians.items())
    print(f"== {name}: {options.rounds} failovers, {confirmed} confirmed writes, none lost; {shown}", flush=True)
    return medians


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="target/release/tierce", help="the Tierce")
    parser.add_argument("--rounds", type=int, default=2, help="failovers of each fleet")
    parser.add_argument("--ways", default="kill,stop", help="how primaries end, in turn: kill, stop, switch")
    parser.add_argument("--fleets", default=",".join(FLEETS), help="which fleets, in this order")
    parser.add_argument("--down-after", type=int, default=2000, help="milliseconds")
    parser.add_argument("--port", type=int, default=21300, help="the first of thirteen ports")
    parser.add_argument("--slower-by", type=float, default=None,
                        help="fail if a median of Tierces is more seconds above that of redis-servers")
    options = parser.parse_args()
    options.program = os.path.realpath(options.program)
    directory = pathlib.Path(tempfile.mkdtemp(prefix="sentinel-"))
    try:
        medians = {name: run(options, name, directory / name) for name in options.fleets.split(",")}
    except (Failed, redis.RedisError) as error:
        for log in sorted(directory.glob("*/*/log")):
            print(f"--- {log}\n" + "".join(log.read_text(errors="replace").splitlines(True)[-25:]))
        sys.exit(f"scripts/sentinel: {error}\nThe logs are in {directory}")
    shutil.rmtree(directory)
    if options.slower_by is not None:
        for way, median in medians["tierce"].items():
            bound = medians["redis"][way] + options.slower_by
            if median > bound:
                sys.exit(f"scripts/sentinel: {way}: {median:.2f} s are more than {bound:.2f} s")


main()
