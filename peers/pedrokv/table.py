#!/usr/bin/env python3
"""The table of PedroKV's own benchmark, measured on this machine.

    cargo build --release
    peers/pedrokv/table.py --sync-operations 100000 --plot pedrokv.svg

Records of 16-byte keys are written and read over PedroKV's protocol by 1, 4, 16 and 64 clients: asynchronously,
each connection keeping a window of requests in flight, and synchronously, one request at a time. An asynchronous
write ends when everything is on the device. PedroKV compares itself with redis-benchmark against redis-server,
so the same loads run there, on the same cores, after the first server has ended. As in the original,
asynchronous clients share a few connections.

`tierce bench` generates the load, which costs the least a client can cost;
`cargo run --release -p tierce-client --example load` measures what an application pays.

Uses nothing but the standard library.
"""

import argparse
import glob
import json
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# Flushed memory that is not free after so long is measured as it is.
FREED_SECONDS_MAX = 10
START_SECONDS_MAX = 30
ROWS = [  # name, asynchronous, test
    ("async write", True, "set"),
    ("async read", True, "get"),
    ("sync write", False, "set"),
    ("sync read", False, "get"),
]
REDIS_ROWS = [  # name, test, pipeline
    ("Redis write", "set", 1),
    ("Redis read", "get", 1),
    ("Redis write, pipeline 16", "set", 16),
    ("Redis read, pipeline 16", "get", 16),
]
COLOURS = ["#06c", "#090", "#c60", "#909"]


def arguments():
    program = Path(__file__).resolve().parents[2] / "target/release/tierce"
    redis = "redis-server --port {port} --save '' --appendonly yes --appendfsync everysec"
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tierce", default=str(program), help="the program, server and load generator")
    parser.add_argument("--server", default="", help="further options of the server, such as '--threads 1'")
    parser.add_argument("--redis", default=redis, help="command line of the server to compare with")
    parser.add_argument("--no-redis", action="store_true", help="compare with nothing")
    parser.add_argument("-n", "--records", type=int, default=2_000_000)
    parser.add_argument("--sync-operations", type=int, help="operations of a synchronous cell [default: records]")
    parser.add_argument("-d", "--data-size", type=int, default=100)
    parser.add_argument("-c", "--clients", default="1,4,16,64")
    parser.add_argument("--window", type=int, default=1024)
    parser.add_argument("--connections", type=int, default=8, help="connections that asynchronous clients share")
    parser.add_argument("--threads", type=int, default=1, help="threads of the load generator")
    parser.add_argument("--plot", help="draw the table into this file, as SVG")
    parser.add_argument("--json", action="store_true", help="print the cells as JSON")
    args = parser.parse_args()
    args.clients = [int(number) for number in args.clients.split(",")]
    args.sync_operations = args.sync_operations or args.records
    return args


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """A server in a new directory, which goes with it."""

    def __init__(self, command):
        self.port = free_port()
        self.dir = tempfile.mkdtemp(prefix="pedrokv-table-")
        words = shlex.split(command.replace("{port}", str(self.port)))
        self.process = subprocess.Popen(words, cwd=self.dir, stdout=subprocess.DEVNULL)
        end = time.monotonic() + START_SECONDS_MAX
        while True:
            try:
                self.socket = socket.create_connection(("127.0.0.1", self.port))
                # While it loads its data, a server answers, but refuses this.
                if self.ask("DBSIZE").startswith(":"):
                    return
            except OSError:
                pass
            if time.monotonic() > end or self.process.poll() is not None:
                sys.exit(f"it does not start: {command}")
            time.sleep(0.01)

    def ask(self, line):
        """Sends an inline command, and returns the reply, of bulk strings the text."""
        self.socket.sendall(line.encode() + b"\r\n")
        with self.socket.makefile("rb") as replies:
            head = replies.readline().decode().rstrip()
            return replies.read(int(head[1:]) + 2).decode() if head.startswith("$") else head

    def cpu_seconds(self):
        """CPU time of all threads, from the scheduler's accounting."""
        tasks = glob.glob(f"/proc/{self.process.pid}/task/*/schedstat")
        return sum(int(Path(task).read_text().split()[0]) for task in tasks) / 1e9

    def wait_until_freed(self):
        """A store that is being filled must not pay for the one before it."""
        end = time.monotonic() + FREED_SECONDS_MAX
        while time.monotonic() < end and "lazyfree_pending_bytes:0\r" not in self.ask("INFO memory"):
            time.sleep(0.01)

    def end(self):
        self.process.terminate()
        self.process.wait()
        shutil.rmtree(self.dir)


def measure(server, clients, operations, load):
    """A cell. `load` returns the seconds it took, and what an operation cost the client, if that is known."""
    before = server.cpu_seconds()
    seconds, client_cpu_us = load()
    server_cpu_us = (server.cpu_seconds() - before) * 1e6 / operations
    return {"clients": clients, "operations": operations, "seconds": seconds, "per_second": operations / seconds,
            "server_cpu_us": server_cpu_us, "client_cpu_us": client_cpu_us}


def tierce_cell(args, server, pedrokv_port, row, clients):
    _, is_async, test = row
    operations = args.records if is_async else args.sync_operations
    connections = min(clients, args.connections) if is_async else clients
    command = [args.tierce, "bench", "--json", "--protocol", "pedrokv", "-p", pedrokv_port, "-c", connections,
               "--threads", args.threads, "-r", args.records, "-n", operations, "-d", args.data_size, "-t", test,
               "--distribution", "sequential" if test == "set" else "uniform"]
    command += ["--window", args.window] if is_async else []
    is_fill = is_async and test == "set"
    if is_fill:
        # As in the original, whose store is empty at first. The other rows use what this leaves.
        server.ask("FLUSHALL")
        server.wait_until_freed()

    def load():
        output = subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True)
        result = json.loads(output.stdout)[0]
        if result["errors"]:
            sys.exit(f"{row[0]}: {result['first_error']}")
        begun = time.monotonic()
        if is_fill:
            server.ask("WAITAOF 1 0 0")
        return result["seconds"] + time.monotonic() - begun, result["generator_cpu_us"]

    return measure(server, clients, operations, load)


def redis_benchmark(args, server, test, operations, clients, pipeline):
    words = ["redis-benchmark", "--csv", "-p", server.port, "-t", test, "-n", operations, "-c", clients, "-P", pipeline,
             "-r", args.records, "-d", args.data_size]
    output = subprocess.run([str(word) for word in words], check=True, capture_output=True, text=True).stdout
    lines = [line for line in output.splitlines() if "," in line and not line.startswith('"test"')]
    return operations / float(lines[0].split(",")[1].strip('"')), None


def tierce_rows(args):
    server = Server(f"'{args.tierce}' --port {{port}} --dir . {args.server}")
    pedrokv_port = free_port()
    server.ask(f"CONFIG SET pedrokv-port {pedrokv_port}")
    for row in ROWS:
        yield row[0], [tierce_cell(args, server, pedrokv_port, row, clients) for clients in args.clients]
    server.end()


def redis_rows(args):
    server = Server(args.redis)
    redis_benchmark(args, server, "set", args.records, 50, 100)  # so that there is something to read
    operations = args.sync_operations
    for name, test, pipeline in REDIS_ROWS:
        load = lambda clients: lambda: redis_benchmark(args, server, test, operations, clients, pipeline)
        yield name, [measure(server, clients, operations, load(clients)) for clients in args.clients]
    server.end()


def table(title, rows, figure):
    print(f"\n| {title} |", *(f"{cell['clients']} |" for cell in rows[0][1]))
    print("|---|" + "--:|" * len(rows[0][1]))
    for name, cells in rows:
        print(f"| {name} |", *(f"{figure(cell)} |" for cell in cells))


def cpu(cell):
    own = "" if cell["client_cpu_us"] is None else f" ({cell['client_cpu_us']:.2f})"
    return f"{cell['server_cpu_us']:.2f}{own}"


def svg(rows):
    """A line for each row over the numbers of clients; dashes are Redis'."""
    width, height, left = 760, 420, 80
    highest = max(cell["per_second"] for _, cells in rows for cell in cells)
    step = (width - left) / len(rows[0][1])
    lines = [f'<text x="{left}" y="14">operations a second, up to {highest:.0f}, over the number of clients</text>']
    for column, cell in enumerate(rows[0][1]):
        lines.append(f'<text x="{left + step * (column + 0.5):.1f}" y="{height - 4}">{cell["clients"]}</text>')
    for index, (name, cells) in enumerate(rows):
        style = f'stroke="{COLOURS[index % 4]}"' + (' stroke-dasharray="6 4"' if index >= len(COLOURS) else "")
        points = " ".join(f"{left + step * (at + 0.5):.1f},{20 + (height - 40) * (1 - cell['per_second'] / highest):.1f}"
                          for at, cell in enumerate(cells))
        y = height + 16 * (index + 1)
        lines.append(f'<polyline fill="none" {style} points="{points}"/>')
        lines.append(f'<polyline {style} points="{left},{y} {left + 40},{y}"/>')
        lines.append(f'<text x="{left + 50}" y="{y + 4}">{name}</text>')
    size = f'width="{width}" height="{height + 16 * (len(rows) + 2)}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-size="12">\n' + "\n".join(lines) + "\n</svg>\n"


def main():
    args = arguments()
    rows = list(tierce_rows(args))
    if not args.no_redis:
        rows += redis_rows(args)
    if args.json:
        print(json.dumps([{"name": name, "cells": cells} for name, cells in rows], indent=2))
    else:
        print(f"{args.records} records of 16 and {args.data_size} bytes; asynchronous: window {args.window}, at most "
              f"{args.connections} connections")
        table("operations a second, clients:", rows, lambda cell: f"{cell['per_second']:.0f}")
        table("CPU µs an operation, server (and client):", rows, cpu)
    if args.plot:
        Path(args.plot).write_text(svg(rows))


main()
