"""A server of the protocol, and values of every type and encoding to put into it: what the scripts that
carry data between Tierce and redis-server have in common."""

import random
import socket
import struct
import subprocess
import sys
import time

POLYNOMIAL = 0x95ac9329ac4bc9b5
VERSION = struct.pack("<H", 10)


def table():
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (POLYNOMIAL if byte & 1 else 0)
        yield byte


TABLE = list(table())


def crc64(data):
    sum = 0
    for byte in data:
        sum = TABLE[(sum ^ byte) & 0xff] ^ sum >> 8
    return sum


def payload(value):
    """What DUMP replies to of an encoded value, and FUNCTION DUMP of libraries."""
    summed = value + VERSION
    return summed + struct.pack("<Q", crc64(summed))


class Client:
    """A connection to a server on the loopback."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.file = self.socket.makefile("rwb")

    def send(self, *args):
        self.file.write(b"*%d\r\n" % len(args))
        for arg in args:
            arg = arg if isinstance(arg, bytes) else str(arg).encode()
            self.file.write(b"$%d\r\n%s\r\n" % (len(arg), arg))

    def reply(self):
        line = self.file.readline()
        kind, rest = line[:1], line[1:-2]
        if kind == b"-":
            return self.error(rest.decode(errors="replace"))
        if kind == b"+":
            return rest
        if kind == b":":
            return int(rest)
        if kind == b"$":
            if int(rest) < 0:
                return None
            return self.file.read(int(rest) + 2)[:-2]
        if kind == b"*":
            return [self.reply() for _ in range(int(rest))]
        raise RuntimeError(f"odd reply {line}")

    def error(self, text):
        """What becomes of an error reply."""
        raise RuntimeError(text)

    def call(self, *args):
        self.send(*args)
        self.file.flush()
        return self.reply()


class Server(Client):
    """A server in a directory of its own, killed with the block."""

    # What lets DEBUG work, since Redis 7.0.
    debug = ("--enable-debug-command", "yes")

    def __init__(self, directory, port, *options, program="redis-server"):
        self.directory = directory
        self.port = port
        self.options = options
        self.program = program

    def __enter__(self):
        self.directory.mkdir(parents=True, exist_ok=True)
        self.log = self.directory / "log"
        command = [self.program, "--port", str(self.port), "--bind", "127.0.0.1", "--save", "",
                   "--dir", str(self.directory), "--logfile", str(self.log),
                   *self.debug, *self.options]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 30
        while True:
            try:
                super().__init__(self.port)
                if isinstance(self.call("DBSIZE"), int):
                    return self
            except (OSError, RuntimeError):
                pass
            if self.process.poll() is not None or time.monotonic() > deadline:
                sys.exit(f"{self.program} did not start:\n{self.log.read_text()}")
            time.sleep(0.02)

    def __exit__(self, *_):
        self.socket.close()
        self.process.kill()
        self.process.wait()

    def state(self):
        """Everything that is compared."""
        state = {"digest": self.call("DEBUG", "DIGEST")}
        for db in (0, 9):
            self.call("SELECT", db)
            for key in sorted(self.call("KEYS", "*")):
                state[db, key] = self.call("PEXPIRETIME", key)
                if self.call("TYPE", key) == b"stream":
                    state[db, key, "stream"] = self.stream(key)
        state["functions"] = self.call("FUNCTION", "LIST", "WITHCODE")
        return state

    def stream(self, key):
        reply = self.call("XINFO", "STREAM", key, "FULL", "COUNT", 0)
        facts = dict(zip(reply[::2], reply[1::2]))
        # How many nodes there are depends on the server.
        del facts[b"radix-tree-keys"], facts[b"radix-tree-nodes"]
        return facts


def fill(server):
    """Values of every type and encoding."""
    rand = random.Random(4)
    put = server.call

    def word(length):
        return bytes(rand.randrange(256) for _ in range(length))

    put("SET", "string:empty", "")
    put("SET", "string:text", "a good year")
    for number in (0, -1, 127, -128, 128, 32767, -32769, 2147483647, -2147483648, 2147483648,
                   -9223372036854775808, "007", "-0", "+1"):
        put("SET", f"string:number:{number}", number)
    put("SET", "string:lzf", "all work and no play makes Jack a dull boy. " * 20)
    put("SET", "string:lzf:run", b"x" * 100)
    put("SET", "string:random", word(300))
    put("SET", "string:long", b"0123456789" * 20000 + word(3000))
    put("SET", b"string:\x00\xff\r\n", b"\x00\xff\r\n")
    put("SET", "expires", "later", "PXAT", 4102444800123)
    put("RPUSH", "list:small", *range(-5, 20), "text", "", 1 << 40, -(1 << 62))
    for start in range(0, 3000, 100):
        put("RPUSH", "list:quicklist", *(f"element {n} " + "y" * (n % 50) for n in
                                        range(start, start + 100)))
    put("RPUSH", "list:plain", "before", b"z" * 20000, word(9000), "after")
    put("SADD", "set:intset16", *range(-10, 10))
    put("SADD", "set:intset32", 1, 100000, -100000)
    put("SADD", "set:intset64", 1, 1 << 40, -(1 << 40))
    put("SADD", "set:words", "a", "b", "1", "", "long " * 30)
    put("SADD", "set:many", *(f"member {n}" for n in range(1000)))
    put("ZADD", "zset:small", 1, "one", 1.5, "one and a half", "-inf", "least", "+inf", "most",
        -0.0, "zero", 1e-300, "tiny", 3e200, "huge", 0.1, "tenth", 7, 12345, 9007199254740993, "odd")
    put("ZADD", "zset:many", *(x for n in range(500) for x in (n / 7, f"member {n}")))
    put("HSET", "hash:small", "name", "value", 1, -1, "empty", "", "big", 1 << 50)
    put("HSET", "hash:many", *(x for n in range(600) for x in (f"field {n}", n)))
    put("HSET", "hash:long", "field", b"w" * 5000, b"\x00", word(100))
    put("PEXPIREAT", "hash:small", 4102444800456)
    put("SELECT", 9)
    fill_streams(put)
    put("SET", "in:nine", "9")


def fill_streams(put):
    for n in range(250):
        put("XADD", "stream:many", f"{1000 + n // 3}-{n}", "name", f"value {n}", "n", n)
    for n in range(0, 250, 7):
        put("XDEL", "stream:many", f"{1000 + n // 3}-{n}")
    put("XADD", "stream:mixed", "5-1", "a", 1)
    put("XADD", "stream:mixed", "5-2", "b", 2, "c", b"\xff" * 5000)
    put("XADD", "stream:mixed", "18446744073709551615-3", "a", 3)
    put("XGROUP", "CREATE", "stream:empty", "group", "$", "MKSTREAM")
    put("XADD", "stream:emptied", "7-7", "a", 1)
    put("XDEL", "stream:emptied", "7-7")
    put("XGROUP", "CREATE", "stream:many", "first", 0)
    put("XGROUP", "CREATE", "stream:many", "second", "1010-30")
    put("XREADGROUP", "GROUP", "first", "ann", "COUNT", 20, "STREAMS", "stream:many", ">")
    put("XREADGROUP", "GROUP", "first", "bob", "COUNT", 90, "STREAMS", "stream:many", ">")
    put("XREADGROUP", "GROUP", "second", "ann", "COUNT", 3, "STREAMS", "stream:many", ">")
    put("XGROUP", "CREATECONSUMER", "stream:many", "second", "idle")
    put("XACK", "stream:many", "first", "1000-1", "1001-4")
    put("XCLAIM", "stream:many", "first", "bob", 0, "1000-2", "RETRYCOUNT", 300, "TIME", 1600000000000)
    put("XDEL", "stream:many", "1001-3")
