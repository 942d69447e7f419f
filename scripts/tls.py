"""Clients in Python over encrypted connections: redis-py, and the protocols of memcached over ssl. Called by scripts/tls."""

import os
import random
import socket
import ssl
import sys
import threading

import redis

port, certificates = int(sys.argv[1]), sys.argv[2]


def file(name):
    return os.path.join(certificates, name)


def client(**options):
    return redis.Redis(
        port=port + 1,
        ssl=True,
        ssl_ca_certs=file("ca.crt"),
        ssl_certfile=file("client.crt"),
        ssl_keyfile=file("client.key"),
        socket_timeout=20,
        **options,
    )


def values():
    r = client(protocol=3)
    for size in (0, 1, 16_383, 16_384, 16_385, 70_000, 5_000_000, 64 << 20):
        value = random.randbytes(size)
        assert r.set("value", value) and r.get("value") == value, size
    pipeline = r.pipeline(transaction=True)
    for number in range(10_000):
        pipeline.set(f"k{number}", number)
    assert all(pipeline.execute())
    assert r.mget([f"k{number}" for number in range(10_000)]) == [b"%d" % n for n in range(10_000)]


def messages():
    r, subscriber = client(), client().pubsub()
    subscriber.subscribe("channel")
    assert subscriber.get_message(timeout=20)["type"] == "subscribe"
    for number in range(1000):
        r.publish("channel", f"{number:>1000}")
    for number in range(1000):
        assert int(subscriber.get_message(timeout=20)["data"]) == number
    blocked = []
    thread = threading.Thread(target=lambda: blocked.append(client().blpop("list", 20)))
    thread.start()
    while client().info("clients")["blocked_clients"] == 0:
        pass
    r.rpush("list", "element")
    thread.join()
    assert blocked == [(b"list", b"element")], blocked


def strangers():
    for options in (
        {"ssl_certfile": file("stranger.crt"), "ssl_keyfile": file("stranger.key")},
        {},
    ):
        r = redis.Redis(port=port + 1, ssl=True, ssl_ca_certs=file("ca.crt"), socket_timeout=20, **options)
        try:
            r.ping()
        except redis.exceptions.ConnectionError:
            continue
        raise AssertionError(f"served with {options}")


def memcached():
    context = ssl.create_default_context(cafile=file("ca.crt"))
    context.load_cert_chain(file("client.crt"), file("client.key"))
    with socket.create_connection(("127.0.0.1", port + 2), timeout=20) as plain:
        with context.wrap_socket(plain, server_hostname="localhost") as s:
            value = random.randbytes(500_000)
            s.sendall(b"set large 0 0 500000\r\n" + value + b"\r\nget large\r\nmn\r\n")
            expected = b"STORED\r\nVALUE large 0 500000\r\n" + value + b"\r\nEND\r\nMN\r\n"
            received = b""
            while len(received) < len(expected):
                received += s.recv(65_536)
            assert received == expected


def broken_off():
    """Connections that are reset anywhere in the handshake or in a request."""
    context = ssl.create_default_context(cafile=file("ca.crt"))
    context.load_cert_chain(file("client.crt"), file("client.key"))
    for _ in range(200):
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        session = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
        s = socket.create_connection(("127.0.0.1", port + 1), timeout=20)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        try:
            session.do_handshake()
        except ssl.SSLWantReadError:
            pass
        s.sendall(outgoing.read())
        incoming.write(s.recv(65_536))
        try:
            session.do_handshake()
            session.write(b"SET broken off\r\n" * random.randrange(1, 3))
        except ssl.SSLWantReadError:
            pass
        rest = outgoing.read()
        s.sendall(rest[: random.randrange(len(rest))])
        s.close()
    assert client().ping()


for check in (values, messages, strangers, memcached, broken_off):
    check()
    print(f"{check.__name__}: ok")
