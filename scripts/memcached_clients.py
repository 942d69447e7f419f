"""Two client libraries of memcached, text and binary, on one server."""

import sys

import bmemcached
from pymemcache.client.base import Client

PORT, SECURED = int(sys.argv[1]), int(sys.argv[2])


def expect(got, wanted, what):
    assert got == wanted, f"{what}: {got!r} instead of {wanted!r}"


def text():
    client = Client(("127.0.0.1", PORT), no_delay=True)
    client.flush_all()
    expect(client.set("k", "value", expire=100, flags=5, noreply=False), True, "set")
    expect(client.get("k"), b"value", "get")
    expect(client.add("k", "other", noreply=False), False, "add")
    expect(client.replace("absent", "x", noreply=False), False, "replace")
    expect(client.append("k", "!", noreply=False), True, "append")
    expect(client.prepend("k", "a ", noreply=False), True, "prepend")
    expect(client.get_many(["k", "absent"]), {"k": b"a value!"}, "get_many")
    value, version = client.gets("k")
    expect(client.cas("k", "new", version, noreply=False), True, "cas")
    expect(client.cas("k", "newer", version, noreply=False), False, "cas with an old version")
    expect(client.cas("absent", "x", version, noreply=False), None, "cas of nothing")
    many = {f"key:{index}": str(index).encode() * 50 for index in range(500)}
    expect(client.set_many(many, noreply=False), [], "set_many")
    expect(client.get_many(list(many)), many, "get_many of 500")
    expect(client.gets_many(["k"]).keys(), {"k"}, "gets_many")
    client.set("n", "10", noreply=False)
    expect(client.incr("n", 5), 15, "incr")
    expect(client.decr("n", 20), 0, "decr")
    expect(client.touch("n", 10, noreply=False), True, "touch")
    expect(client.delete("n", noreply=False), True, "delete")
    expect(client.delete("n", noreply=False), False, "delete again")
    large = b"x" * 900_000
    client.set("large", large, noreply=False)
    expect(client.get("large"), large, "a large value")
    assert b"curr_items" in client.stats(), "stats"
    assert client.version(), "version"
    client.flush_all(noreply=False)
    expect(client.get("k"), None, "get after flush_all")
    client.quit()


def binary(port, user=None, password=None):
    client = bmemcached.Client(f"127.0.0.1:{port}", user, password)
    client.flush_all()
    expect(client.set("k", "value", time=100), True, "set")
    expect(client.get("k"), "value", "get")
    expect(client.add("k", "other"), False, "add")
    expect(client.replace("absent", "x"), False, "replace")
    value, version = client.gets("k")
    expect(value, "value", "gets")
    expect(client.cas("k", "new", version), True, "cas")
    expect(client.cas("k", "newer", version), False, "cas with an old version")
    many = {f"key:{index}": index for index in range(500)}
    client.set_multi(many)
    expect(client.get_multi(list(many)), many, "get_multi")
    expect(client.incr("n", 5, default=10), 10, "incr of nothing")
    expect(client.incr("n", 5), 15, "incr")
    expect(client.decr("n", 20), 0, "decr")
    expect(client.delete("k"), True, "delete")
    expect(client.get("k"), None, "get after delete")
    assert client.stats(), "stats"
    client.disconnect_all()


text()
binary(PORT)
binary(SECURED, "default", "secret")
wrong = bmemcached.Client(f"127.0.0.1:{SECURED}", "default", "wrong")
try:
    assert not wrong.set("k", "v"), "a wrong password was accepted"
except bmemcached.exceptions.MemcachedException:
    pass
