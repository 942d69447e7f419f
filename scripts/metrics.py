"""metrics.py PORT: what scripts/metrics checks. At PORT is a server, behind it its port for HTTP, a replica, redis-server,
redis_exporter of the server, a server with a bucket, its port for HTTP, its replica, and that one's port for HTTP."""

import json
import pathlib
import re
import socket
import sys
import time
import urllib.request

from prometheus_client.parser import text_string_to_metric_families

PORT = int(sys.argv[1])
ROOT = pathlib.Path(__file__).parent.parent
FIELDS = ROOT / "tests" / "redis-7.2-info.txt"
PACKAGING = ROOT / "packaging"

# About the exporter itself, its process, and the connection that it makes.
OF_THE_EXPORTER = re.compile(r"redis_exporter_|redis_target_|redis_last_key_groups_|go_|process_|promhttp_")

# They move between two scrapes, or the exporter's own requests move them. The later scrape is ours: counters have grown
# since, and other figures are about the same.
MOVING = re.compile(
    r"redis_(commands_|net_|cpu_|total_(reads|writes)_processed|io_threaded_|latency_|connect|client_recent|mem|allocator"
    r"|uptime|start_time|aof_pending_bio|aof_current_size|expired|db_avg_ttl|errors_total|slowlog|last_slow)"
)

# What is a hash of the build in one server, and a number in the other.
IDENTITIES = {"redis_build_id", "redis_git_sha1"}

failures = []


def check(is_right, text):
    if not is_right:
        failures.append(text)


def commands(port, *lines):
    """Sends inline commands and returns all that is replied until the server closes."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as stream:
        stream.sendall("".join(f"{line}\r\n" for line in (*lines, "QUIT")).encode())
        received = b""
        while more := stream.recv(65536):
            received += more
    return received.decode()


def info(port):
    lines = commands(port, "INFO everything").splitlines()
    return dict(line.split(":", 1) for line in lines if re.match(r"[a-z]\w*:", line))


def scrape(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as page:
        families = list(text_string_to_metric_families(page.read().decode()))
    samples = {(s.name, tuple(sorted(s.labels.items()))): s.value for f in families for s in f.samples}
    return {f.name: f.type for f in families}, samples


def form(value):
    """How a value is written: a number with so many decimals, a percentage, a size, or words."""
    number = re.fullmatch(r"-?\d+(?:\.(\d+))?([BKMGT%]?)", value)
    if not number:
        return "words"
    return f"number{number[2] and ('%' if number[2] == '%' else 'size')}" + (
        f" with {len(number[1])} decimals" if number[1] and number[2] in ("", "%") else ""
    )


def beside_the_exporter():
    commands(PORT, *(f"SET k{n} {n}" for n in range(50)), "SET e 1 EX 1000", "GET k1", "GET absent", "NOSUCH", "INCR")
    commands(PORT, "SELECT 3", "SADD s a b c")
    their_types, theirs = scrape(PORT + 4)
    types, ours = scrape(PORT + 1)
    compared = 0
    for (name, labels), value in sorted(theirs.items()):
        if OF_THE_EXPORTER.match(name):
            continue
        # The exporter also tells of databases without keys.
        if name.startswith("redis_db_keys") and value == 0:
            continue
        if name == "redis_instance_info":
            labels = next((there for n, there in ours if n == name and set(labels) <= set(there)), labels)
        here = ours.get((name, labels))
        check(here is not None, f"{name}{dict(labels)} is missing")
        if here is None:
            continue
        kind = their_types.get(name) or their_types.get(name.removesuffix("_total"))
        check(kind == (types.get(name) or types.get(name.removesuffix("_total"))), f"{name} is no {kind}")
        if not MOVING.match(name):
            is_right = here == value
        elif kind == "gauge":
            slack = 65536 if "mem" in name or "bytes" in name else 2
            is_right = abs(here - value) <= max(slack, 0.25 * abs(value))
        else:
            # Of a summary only count and sum grow.
            is_right = here >= value or any(label == "quantile" for label, _ in labels)
        check(is_right, f"{name}{dict(labels)} is {here}, and {value} by the exporter")
        compared += 1
    print(f"{len(theirs)} samples of redis_exporter, {compared} compared; {len(types)} families, {len(ours)} samples here")
    check(compared > 150, "hardly anything is compared")
    for prefix in ("tierce_memory_bytes", "tierce_lock_waits", "tierce_log_", "tierce_compaction", "tierce_spilled_"):
        check(any(name.startswith(prefix) for name, _ in ours), f"there is no {prefix}...")
    check(ours[("tierce_keys", ())] == 52, "tierce_keys")
    sizes = sum(value for (name, _), value in ours.items() if name == "tierce_memory_bytes")
    check(sizes > 0.5 * ours[("redis_memory_used_bytes", ())], "memory by kind is not the memory used")


def beside_redis():
    ours, replica, redis = info(PORT), info(PORT + 2), info(PORT + 3)
    there = {**replica, **ours}
    lines = [line.split(" ", 2) for line in FIELDS.read_text().splitlines() if line[:1] != "#"]
    for section, field, *reason in lines:
        check((field in there) != bool(reason), f"INFO {section}: {field} is there, or there is a reason; not both")
        if field in ours and field in redis and field not in IDENTITIES:
            is_like, wanted = form(ours[field]), form(redis[field])
            check(is_like == wanted or "" in (ours[field], redis[field]), f"{field}: {is_like}, by Redis {wanted}")
    unknown = [field for field in redis if field not in {line[1] for line in lines}]
    unknown = [field for field in unknown if not re.match(r"cmdstat_|errorstat_|latency_|db\d", field)]
    check(not unknown, f"the list of Redis' fields lacks {unknown}")
    reasons = sum(len(line) == 3 for line in lines)
    print(f"{len(lines)} fields of Redis 7.2, {reasons} of them absent with a reason")


def dashboard_and_alerts():
    """Each metric that they name has a sample on one of the servers. The replica needs a moment to connect."""
    json.loads((PACKAGING / "grafana-dashboard.json").read_text())
    texts = [(PACKAGING / name).read_text() for name in ("grafana-dashboard.json", "alerts.yml")]
    used = set(re.findall(r"\b(?:redis|tierce)_[a-z0-9_]+", " ".join(texts)))
    titles = re.findall(r"^##+ (.*)", (ROOT / "docs" / "runbooks.md").read_text(), re.MULTILINE)
    sections = {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}
    for section in re.findall(r"docs/runbooks\.md#([\w-]+)", texts[1]):
        check(section in sections, f"docs/runbooks.md has no section #{section}")
    deadline = time.monotonic() + 20
    missing = used
    while missing and time.monotonic() < deadline:
        missing = used - {name for port in (PORT + 1, PORT + 6, PORT + 8) for name, _ in scrape(port)[1]}
        time.sleep(0.1)
    for name in sorted(missing):
        check(False, f"packaging/ names {name}, which no server has")
    check(len(used) > 40, "hardly any metric is named in packaging/")
    print(f"{len(used)} metrics in the dashboard and the alert rules, {len(missing)} of them missing")


beside_the_exporter()
beside_redis()
dashboard_and_alerts()
for failure in failures:
    print(f"scripts/metrics: {failure}")
sys.exit(bool(failures))
