"""Two client libraries of memcached, text and binary, on one server."""

import socket
import sys

import bmemcached
from pymemcache.client.base import Client

PORT, SECURED = int(sys.argv[1]), int(sys.argv[2])


def expect(got, wanted, what):
    assert got == wanted, f"{what}: {got!r} instead of {wanted!r}"


def ask(line):
    """The whole reply to a line."""
    with socket.create_connection(("127.0.0.1", PORT)) as connection:
        connection.sendall(line.encode() + b"\r\nquit\r\n")
        return connection.makefile("rb").read().decode()


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
    for what in ["settings", "items", "slabs", "sizes", "conns"]:
        assert client.stats(what), f"stats {what}"
    expect(client.cache_memlimit(512), True, "cache_memlimit")
    expect(ask("lru_crawler metadump all").count("key="), 502, "metadump")
    expect(ask("stats cachedump 1 0").count("ITEM "), 502, "cachedump")
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


# What the Prometheus memcached_exporter reads as numbers.
EXPORTED = {
    "": "uptime time curr_connections total_connections rejected_connections max_connections conn_yields "
    "listen_disabled_num accepting_conns bytes_read bytes_written limit_maxbytes bytes curr_items total_items "
    "evictions reclaimed lru_crawler_starts crawler_items_checked crawler_reclaimed moves_to_cold moves_to_warm "
    "moves_within_lru direct_reclaims malloc_fails rusage_user rusage_system threads hash_bytes "
    "hash_power_level hash_is_expanding slab_global_page_pool slabs_moved cmd_get cmd_set cmd_flush cmd_touch "
    "get_hits get_misses get_expired get_flushed delete_hits delete_misses incr_hits incr_misses decr_hits "
    "decr_misses cas_hits cas_misses cas_badval touch_hits touch_misses store_too_large store_no_memory "
    "auth_cmds auth_errors",
    "settings": "maxbytes maxconns verbosity num_threads item_size_max lru_crawler_sleep lru_crawler_tocrawl "
    "hot_lru_pct warm_lru_pct hot_max_factor warm_max_factor",
    "items": "number number_hot number_warm number_cold age_hot age_warm age mem_requested evicted "
    "evicted_nonzero evicted_time outofmemory tailrepairs reclaimed expired_unfetched evicted_unfetched "
    "evicted_active crawler_reclaimed crawler_items_checked lrutail_reflocked moves_to_cold moves_to_warm "
    "moves_within_lru direct_reclaims hits_to_hot hits_to_warm hits_to_cold hits_to_temp",
    "slabs": "chunk_size chunks_per_page total_pages total_chunks used_chunks free_chunks free_chunks_end "
    "mem_requested get_hits cmd_set delete_hits incr_hits decr_hits cas_hits cas_badval touch_hits",
}


def exporter():
    Client(("127.0.0.1", PORT), no_delay=True).set("k", "value", noreply=False)
    prefixes = {"items": "items:1:", "slabs": "1:"}
    for what, names in EXPORTED.items():
        lines = ask(f"stats {what}").splitlines()
        figures = dict(line.split(" ", 2)[1:] for line in lines if line.startswith("STAT "))
        for name in names.split():
            float(figures[prefixes.get(what, "") + name])


text()
exporter()
binary(PORT)
# Credentials that were not asked for do not matter, as with memcached without -S.
binary(PORT, "user", "password")
binary(SECURED, "default", "secret")
wrong = bmemcached.Client(f"127.0.0.1:{SECURED}", "default", "wrong")
try:
    assert not wrong.set("k", "v"), "a wrong password was accepted"
except bmemcached.exceptions.MemcachedException:
    pass
