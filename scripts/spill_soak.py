"""The load of scripts/spill-soak. Uses nothing but the standard library."""

import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time

PROGRAM, SECONDS, LIMIT_MB, PORT = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
VALUE_LEN = 1000
KEYS = LIMIT_MB * 10 * 1_000_000 // VALUE_LEN
BATCH = 100
# What is counted stays within this part below the limit and this part above it.
BELOW, ABOVE = 0.05, 0.01
# The resident set may be larger than the limit by this part: holes in pages of the allocator, buffers and the
# program itself. docs/decisions/0014-spilled-values.md has what was measured.
ALLOWANCE = 0.90
# The same while loading, as fast as can be.
LOAD_ALLOWANCE = 0.60


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Client:
    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.file = self.socket.makefile("rb", buffering=1 << 20)

    def is_served(self):
        """Whether the server has loaded its data: before, it refuses this."""
        self.socket.sendall(b"DBSIZE\r\n")
        return self.file.readline()[:1] == b":"

    def send(self, requests):
        parts = []
        for request in requests:
            parts.append(b"*%d\r\n" % len(request))
            parts.extend(b"$%d\r\n%s\r\n" % (len(arg), arg) for arg in request)
        self.socket.sendall(b"".join(parts))
        return [self.reply() for _ in requests]

    def reply(self):
        line = self.file.readline()
        if line[:1] == b"$":
            length = int(line[1:])
            return None if length < 0 else self.file.read(length + 2)[:-2]
        if line[:1] in b"+:":
            return line[1:-2]
        raise SystemExit(f"an unexpected reply: {line!r}")


def start(directory, port):
    arguments = [
        PROGRAM, "--port", str(port), "--dir", directory, "--appendonly", "yes",
        "--maxmemory", f"{LIMIT_MB}mb", "--maxmemory-policy", "spill", "--loglevel", "warning",
    ]
    process = subprocess.Popen(arguments)
    for _ in range(600):
        try:
            client = Client(port)
            if client.is_served():
                return process, client
        except OSError:
            pass
        time.sleep(0.1)
    raise SystemExit("the server does not start")


def value(key, version):
    head = b"%d:%d:" % (key, version)
    return head + bytes([65 + (key + version) % 26]) * (VALUE_LEN - len(head))


def resident_mb(process):
    with open(f"/proc/{process.pid}/status") as status:
        line = next(line for line in status if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def info(client):
    text = client.send([[b"INFO", b"memory"]])[0].decode()
    return dict(line.split(":", 1) for line in text.splitlines() if ":" in line)


def run(directory, port):
    process, client = start(directory, port)
    versions = [0] * KEYS
    load_peak, peak, done = 0.0, 0.0, {"writes": 0, "reads": 0}

    def write(keys):
        for key in keys:
            versions[key] += 1
        replies = client.send([[b"SET", b"key:%d" % key, value(key, versions[key])] for key in keys])
        assert replies == [b"OK"] * len(keys), replies[:3]
        done["writes"] += len(keys)

    def read(client, keys):
        for key, found in zip(keys, client.send([[b"GET", b"key:%d" % key] for key in keys])):
            assert found == value(key, versions[key]), (key, versions[key], found and found[:30])
        done["reads"] += len(keys)

    for first in range(0, KEYS, BATCH):
        write(range(first, min(first + BATCH, KEYS)))
        if first % (BATCH * 20) == 0:
            load_peak = max(load_peak, resident_mb(process))
    loaded, begun, shown = time.monotonic(), time.monotonic(), 0.0
    print(f"{KEYS} keys loaded, {resident_mb(process):.1f} MB resident, peak {load_peak:.1f}", flush=True)
    dice = random.Random(7)
    while time.monotonic() - begun < SECONDS:
        keys = [dice.randrange(KEYS) for _ in range(BATCH)]
        # Keys of one batch are read before they are written again.
        read(client, keys) if dice.random() < 0.7 else write(sorted(set(keys)))
        if time.monotonic() - shown > 0.2 and time.monotonic() - begun > 1:
            shown, peak = time.monotonic(), max(peak, resident_mb(process))
    took = time.monotonic() - loaded
    figures = info(client)
    counted = int(figures["used_memory"]) - int(figures["mem_not_counted_for_evict"])
    share = counted / (LIMIT_MB << 20)
    assert 1 - BELOW <= share <= 1 + ABOVE, f"{share:.3f} of maxmemory are in use"
    print(
        f"{done['reads'] / took:.0f} reads and {(done['writes'] - KEYS) / took:.0f} writes a second; "
        f"{figures['spilled_keys']} keys and {int(figures['spilled_bytes']) / 1e6:.0f} MB on disk only, "
        f"files {int(figures['spilled_disk_bytes']) / 1e6:.0f} MB, late reads "
        f"{figures['spilled_reads_late']}; resident at most {peak:.1f} MB"
    )
    process.kill()
    process.wait()
    process, client = start(directory, port)
    print(f"started again, {resident_mb(process):.1f} MB resident")
    for _ in range(100):
        read(client, [dice.randrange(KEYS) for _ in range(BATCH)])
    process.kill()
    process.wait()
    for when, most, allowance in [("loading", load_peak, LOAD_ALLOWANCE), ("steady", peak, ALLOWANCE)]:
        # maxmemory's megabytes are those of resident_mb.
        allowed = LIMIT_MB * (1 + allowance)
        if most > allowed:
            raise SystemExit(f"{when}: {most:.1f} MB resident, and {allowed:.1f} are allowed")
    print("spill soak: all values came back, memory stayed within its limit")


directory = tempfile.mkdtemp(prefix="tierce-soak-", dir="/var/tmp")
try:
    run(directory, PORT or free_port())
finally:
    shutil.rmtree(directory, ignore_errors=True)
