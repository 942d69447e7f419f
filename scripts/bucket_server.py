"""Clients of scripts/bucket-server: counters at the level `bucket`, and what was acknowledged of them.

    bucket_server.py write PORT FILE    increments until the server is gone, and notes what was acknowledged
    bucket_server.py check PORT FILE    whether the server has at least that, and not more than one beyond it
    bucket_server.py same PORT PORT     whether two servers have the same keys and values
    bucket_server.py succeeds PORT WHY  waits until the server takes over, and serves writes
    bucket_server.py follows PORT PORT  waits until the second server has what the first has, whose log it follows
    bucket_server.py moments PORT FILE TIERCE URL
                                        restores ten random moments, serves each on PORT, and compares it with what was
                                        sent and acknowledged when
"""

import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import threading
import time
from datetime import datetime, timezone

CLIENTS = 20
MOMENTS = 10


class Client:
    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.file = self.socket.makefile("rb")

    def ask(self, *args):
        parts = [f"*{len(args)}\r\n".encode()]
        for arg in args:
            arg = str(arg).encode()
            parts.append(b"$%d\r\n%s\r\n" % (len(arg), arg))
        self.socket.sendall(b"".join(parts))
        return self.reply()

    def reply(self):
        line = self.file.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError
        kind, rest = line[:1], line[1:-2]
        if kind == b"-":
            raise RuntimeError(rest.decode())
        if kind == b":":
            return int(rest)
        if kind == b"$":
            return None if rest == b"-1" else self.file.read(int(rest) + 2)[:-2].decode(errors="surrogateescape")
        if kind == b"*":
            return [self.reply() for _ in range(int(rest))]
        return rest.decode()


def now_ms():
    return time.time_ns() // 1_000_000


def write(port, acknowledged, moments, number):
    try:
        client = Client(port)
        client.ask("CLIENT", "DURABILITY", "bucket")
        key = f"n:{number}"
        while True:
            # When the value was sent, and when it was acknowledged, if it was.
            moment = [acknowledged.get(key, 0) + 1, now_ms(), None]
            moments[key].append(moment)
            if number % 2:
                value = client.ask("INCR", key)
            else:
                # A transaction of two keys, which are the same at any time.
                client.ask("MULTI")
                client.ask("INCR", key)
                client.ask("RPUSH", f"list:{number}", "x" * (number * 500))
                value = client.ask("EXEC")[0]
            moment[2] = now_ms()
            acknowledged[key] = value
    except (OSError, RuntimeError) as error:
        if isinstance(error, RuntimeError):
            print(f"client {number}: {error}", file=sys.stderr)


def keys_of(client):
    keys, cursor = [], "0"
    while True:
        cursor, some = client.ask("SCAN", cursor, "COUNT", "1000")
        keys += some
        if cursor == "0":
            return sorted(set(keys))


def same(first, second):
    first, second = Client(first), Client(second)
    keys = keys_of(first)
    if keys != keys_of(second) or not keys:
        sys.exit("the servers do not have the same keys, or none")
    for key in keys:
        if first.ask("DUMP", key) != second.ask("DUMP", key):
            sys.exit(f"{key}: not the same value")
        if first.ask("PEXPIRETIME", key) != second.ask("PEXPIRETIME", key):
            sys.exit(f"{key}: not the same deadline")
    print(f"{len(keys)} keys are the same in both servers")


def succeeds(port, why):
    began = time.monotonic()
    client = Client(port)
    while client.ask("ROLE")[0] != "master":
        if time.monotonic() > began + 60:
            sys.exit("nobody has taken over")
        time.sleep(0.01)
    client.ask("INCR", "takeovers")
    print(f"after {why}: writes are served again {time.monotonic() - began:.2f} s later")


def last_object(client):
    info = client.ask("INFO", "bucket")
    return int(next(line for line in info.split() if line.startswith("bucket_last_object:")).split(":")[1])


def follows(first, second):
    first, second = Client(first), Client(second)
    first.ask("CLIENT", "DURABILITY", "bucket")
    first.ask("INCR", "takeovers")
    until = time.monotonic() + 60
    while last_object(second) < last_object(first):
        if time.monotonic() > until:
            sys.exit("it does not follow")
        time.sleep(0.01)
    try:
        second.ask("SET", "x", "y")
        sys.exit("a follower takes writes")
    except RuntimeError as error:
        if not str(error).startswith("READONLY"):
            raise


def check_moment(client, at, moments):
    """Everything that was acknowledged before must be there, and nothing that was sent later."""
    for key, values in moments.items():
        found = int(client.ask("GET", key) or 0)
        acknowledged = max((value for value, _, done in values if done is not None and done <= at), default=0)
        sent = max((value for value, begun, _ in values if begun <= at), default=0)
        if not acknowledged <= found <= sent:
            sys.exit(f"{key} at {at}: {found}, where {acknowledged} was acknowledged and {sent} was sent")
        number = int(key.split(":")[1])
        if number % 2 == 0 and client.ask("LLEN", f"list:{number}") != found:
            sys.exit(f"{key} at {at}: half of a transaction")
    return client.ask("DBSIZE")


def restore_moment(port, tierce, url, at, moments):
    time_of = datetime.fromtimestamp(at / 1000, timezone.utc).isoformat(timespec="milliseconds")
    with tempfile.TemporaryDirectory() as work:
        directory = os.path.join(work, "restored")
        time_of = time_of.replace("+00:00", "Z")
        tool = [tierce, "bucket", "restore", "--quiet", "--bucket", url, "--at", time_of, "--dir", directory]
        subprocess.run(tool, check=True, stdout=subprocess.DEVNULL)
        command = [tierce, "--port", str(port), "--dir", directory]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as server:
            try:
                lines = []
                while not any("Ready to accept" in line for line in lines):
                    lines.append(server.stdout.readline())
                    if not lines[-1]:
                        sys.exit("the restored server did not start:\n" + "".join(lines))
                return check_moment(Client(port), at, moments)
            finally:
                server.kill()


def restore_moments(port, tierce, url, moments):
    done = [done for values in moments.values() for _, _, done in values if done is not None]
    if not done:
        sys.exit("nothing was acknowledged")
    at_random = sorted(random.randint(min(done), max(done)) for _ in range(MOMENTS))
    keys = [restore_moment(port, tierce, url, at, moments) for at in at_random]
    print(f"{MOMENTS} random moments of {len(done)} increments are what the clients know of them, with {keys} keys")


def load(path):
    if not os.path.exists(path):
        return {}, {f"n:{number}": [] for number in range(CLIENTS)}
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def main():
    what, port, path = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    if what in ("same", "follows"):
        {"same": same, "follows": follows}[what](port, int(path))
        return
    if what == "succeeds":
        succeeds(port, path)
        return
    acknowledged, moments = load(path)
    if what == "moments":
        restore_moments(port, sys.argv[4], sys.argv[5], moments)
        return
    if what == "write":
        clients = range(CLIENTS)
        threads = [threading.Thread(target=write, args=(port, acknowledged, moments, number)) for number in clients]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    else:
        client = Client(port)
        for key, value in acknowledged.items():
            found = int(client.ask("GET", key) or 0)
            if not value <= found <= value + 1:
                sys.exit(f"{key}: {found}, and {value} was acknowledged")
            number = int(key.split(":")[1])
            if number % 2 == 0 and client.ask("LLEN", f"list:{number}") != found:
                sys.exit(f"{key}: half of a transaction")
            acknowledged[key] = found
        print(f"{len(acknowledged)} counters, {sum(acknowledged.values())} increments")
    with open(path, "w", encoding="utf-8") as file:
        json.dump((acknowledged, moments), file)


main()
