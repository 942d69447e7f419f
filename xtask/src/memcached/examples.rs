//! Cases that random streams rarely hit, each on its own connection: malformed lines, commands for operators,
//! statistics, authentication that was not asked for, other protocols. Both servers have to answer equal bytes.
//! Intended differences are left out; see `docs/differences.md`.

use super::stream::frame;

/// Lines of text and meta commands. The key `k` is absent at the start of each.
const LINES: &[&str] = &[
    // Malformed.
    "\r\n",
    "\n",
    " get k\r\n",
    "get  k \r\n",
    "bget k\r\n",
    "GET k\r\n",
    "get\tk\r\n",
    "mn\rmn\r\n",
    "gat x k\r\ngat 99999999999999999999 k\r\n",
    "set k 0 0 -1\r\n",
    "set k 0 0 99999999999999999999\r\n",
    "set k 0 0 1x\r\na\r\n",
    "set k 0 0 2\r\nabc\r\nget k\r\n",
    "set k 0 0 3\r\nabcd\nget k\r\n",
    "set k +1 +0 +1\r\na\r\nget k\r\n",
    "set k 01 00 01\r\na\r\nget k\r\n",
    "set k 4294967297 0 1\r\na\r\nget k\r\n",
    "set k 0 2592001 1\r\na\r\nget k\r\n",
    "cas k 0 0 1 1\r\na\r\n",
    "cas k 0 0 1 0\r\na\r\nget k\r\n",
    "delete k 0\r\ndelete k 1\r\ndelete k x y\r\n",
    "delete k noreply\r\ndelete k 0 noreply\r\ndelete k 1 noreply\r\nmn\r\n",
    "incr k x\r\nincr k -1\r\nincr k +1\r\nincr k 007\r\nincr k 1.5\r\n",
    "incr k 18446744073709551615\r\nincr k 18446744073709551616\r\n",
    "set k 0 0 20\r\n18446744073709551615\r\nincr k 1\r\nincr k 2\r\n",
    "set k 0 0 20\r\n18446744073709551616\r\nincr k 1\r\n",
    "set k 0 0 3\r\n 12\r\nincr k 100\r\nget k\r\n",
    "set k 0 0 3\r\n12 \r\nincr k 100\r\nget k\r\n",
    "set k 0 0 3\r\n+12\r\nincr k 100\r\nget k\r\n",
    "set k 0 0 3\r\n-12\r\nincr k 1\r\n",
    "set k 0 0 3\r\n12x\r\nincr k 1\r\n",
    "set k 0 0 0\r\n\r\nincr k 1\r\n",
    "touch k x\r\ntouch k x noreply\r\nmn\r\n",
    "set k 0 0 1\r\na\r\ntouch k -1\r\nget k\r\ntouch k 0\r\n",
    "set k 0 0 1\r\na\r\ngat -1 k\r\ngat 0 k\r\nget k\r\n",
    "flush_all x\r\nflush_all -1\r\nflush_all +1\r\nflush_all 0 noreply\r\nmn\r\n",
    "verbosity x\r\nverbosity -1\r\nverbosity noreply\r\nmn\r\n",
    "version x\r\nmn x y\r\nmnx\r\nm\r\nquit x\r\nmn\r\n",
    "me\r\nms k\r\nms k x\r\nms k -1\r\nms k S1\r\n",
    "ms k 1 F4294967297\r\na\r\nmg k f\r\nms k 1 Fx\r\na\r\nms k 1 F\r\na\r\n",
    "ms k 1 T\r\na\r\nms k 1 Tx\r\na\r\nms k 1 C\r\na\r\n",
    "ms k 1\r\nab\r\nms k 3\r\nab\r\nmn\r\n",
    "mg k v v v v v v v v v v v v v v v v v v\r\nmg k \x7f\r\nmg k !\r\nmg k v v\r\n",
    "mg Zm9 b\r\nma Zm9 b\r\nmg = b\r\nmg Zm9v b k O1\r\n",
    "ma k Nx\r\nma k Jx\r\nma k D-1\r\nma k MX\r\n",
    "ma k N0 J18446744073709551615 v\r\nma k v\r\nma k q\r\nma k q v\r\nmn\r\n",
    "ma k N0 J18446744073709551616 v\r\n",
    // Commands for operators.
    "cache_memlimit\r\ncache_memlimit x\r\ncache_memlimit 1\r\ncache_memlimit 1000000001\r\n",
    "cache_memlimit 64\r\ncache_memlimit 64 noreply\r\nmn\r\n",
    "slabs\r\nslabs reassign\r\nslabs reassign x y\r\nslabs reassign 99 1\r\nslabs reassign 1 1\r\n",
    "slabs reassign 1 2\r\nslabs automove\r\nslabs automove 0\r\nslabs automove 3\r\nslabs automove x\r\n",
    "slabs automove ratio 0.8\r\nslabs automove 1\r\nslabs automove 1 noreply\r\nmn\r\n",
    "lru\r\nlru mode\r\nlru mode x\r\nlru mode segmented\r\nlru tune\r\nlru tune x y z w\r\n",
    "lru tune 90 90 0.1 2\r\nlru tune 10 25 0 0\r\nlru tune 20 40 0.2 2.0\r\nlru temp_ttl -1\r\n",
    "lru_crawler\r\nlru_crawler sleep\r\nlru_crawler sleep x\r\nlru_crawler sleep 1000001\r\n",
    "lru_crawler sleep 100\r\nlru_crawler tocrawl 0\r\nlru_crawler tocrawl x\r\nlru_crawler x\r\n",
    "lru_crawler crawl 99\r\nlru_crawler metadump\r\n",
    "lru_crawler metadump 99\r\n",
    "lru_crawler metadump x\r\n",
    "lru_crawler metadump all\r\n",
    "misbehave\r\ndebugtime 1\r\nrefresh_certs\r\npid\r\n",
    // Statistics.
    "stats x\r\nstats reset\r\nstats reset x\r\nstats extstore\r\nstats proxy\r\n",
    "stats detail\r\nstats detail x\r\nstats detail on\r\nget p:1\r\nset p:1 0 0 1\r\na\r\nget p:1 p:2 q\r\n\
     delete p:1\r\ndelete p:1\r\nmg p:1 v\r\nincr p:1 1\r\nstats detail dump\r\nstats detail off\r\n\
     stats reset\r\nstats detail dump\r\n",
    "stats cachedump\r\nstats cachedump 1\r\nstats cachedump x y\r\nstats cachedump 64 0\r\n",
    "stats cachedump 40 0\r\n",
    // Other protocols.
    "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: x\r\n\r\nset k 0 0 1\r\nx\r\n",
    "get / HTTP/1.1\r\nHost: x\r\nmn\r\n",
    "*1\r\n$4\r\nPING\r\n",
];

/// Returns all lines, and some that are too long to be written out.
pub(super) fn lines() -> Vec<String> {
    let mut lines: Vec<String> = LINES.iter().map(|line| (*line).to_owned()).collect();
    lines.extend([
        "x".repeat(2049),
        " ".repeat(3000),
        format!("mg k O{}", "x".repeat(3000)),
        format!("get {}\r\nmn\r\n", "k ".repeat(9000)),
        format!("{}\r\nmn\r\n", "x".repeat(3000)),
        format!("get {}\r\nmn\r\n", "k".repeat(251)),
        format!("mg {} v k\r\n", "k".repeat(250)),
        format!("mg {} v\r\n", "k".repeat(251)),
        format!("mg k O{}\r\nmg k O{}\r\n", "x".repeat(31), "x".repeat(32)),
    ]);
    lines
}

/// Returns frames, each followed by a no-operation, which is answered if the connection goes on.
pub(super) fn frames() -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    let mut add = |request: Vec<u8>| all.push([request, frame(0x0a, 7, b"", b"", b"")].concat());
    // Authentication, which is an unknown command here.
    add(frame(0x20, 1, b"", b"", b""));
    add(frame(0x21, 1, b"", b"PLAIN", b"\0user\0password"));
    add(frame(0x22, 1, b"", b"PLAIN", b"\0user\0password"));
    // Parts whose lengths do not fit the command.
    for opcode in (0x00..=0x1a).chain(0x1c..=0x1e).filter(|opcode| *opcode != 0x10) {
        for extras_len in [0, 4, 8, 20] {
            for (key, value) in [(&b""[..], &b""[..]), (b"", b"v"), (b"k", b""), (b"k", b"1")] {
                // Memcached loses its position after a touch with a value.
                if opcode < 0x1c || value.is_empty() {
                    add(frame(opcode, 1, &vec![0; extras_len], key, value));
                }
            }
        }
        add(frame(opcode, 1, b"", &[b'k'; 251], b""));
        let mut crossed = frame(opcode, 1, b"", b"kkkk", b"");
        crossed[11] = 2;
        add(crossed);
    }
    add(frame(0x1b, 1, b"", b"", b""));
    for what in ["reset", "x", "detail", "detail on", "detail dump", "detail off", "cachedump 1 0"]
    {
        add(frame(0x10, 1, b"", what.as_bytes(), b""));
    }
    // Times without a sign, and versions of absent keys.
    let store = |opcode, expiry: [u8; 4]| frame(opcode, 1, &[[0; 4], expiry].concat(), b"k", b"1");
    add([store(0x01, [0xff; 4]), frame(0x00, 2, b"", b"k", b"")].concat());
    let mut with_version = store(0x02, [0; 4]);
    with_version[23] = 9;
    add(with_version);
    add(b"get k\r\n".to_vec());
    let mut reply = frame(0x0a, 1, b"", b"", b"");
    reply[0] = 0x81;
    add([frame(0x0a, 1, b"", b"", b""), reply].concat());
    all
}

/// Flags that may be combined, by command.
const FLAGS: [(&str, &[&str]); 4] = [
    ("mg", &["v", "k", "s", "t", "f", "q", "u", "Oab", "N100000", "R200000", "T100000", "c"]),
    ("ms", &["k", "c", "q", "Oab", "F7", "T100000", "I", "ME", "MA", "MR", "C9000000000000000000"]),
    ("md", &["q", "k", "Oab", "I", "T100000", "C9000000000000000000"]),
    ("ma", &["N0", "J6000000000", "D7", "MD", "t", "c", "v", "k", "Oab", "T100000"]),
];

/// Returns every meta command with every one, two and three of its flags, on an absent key, an existing one and a
/// stale one; one pipeline for each command.
pub(super) fn combinations() -> Vec<String> {
    FLAGS.iter().map(|(verb, flags)| pipeline(verb, flags)).collect()
}

fn pipeline(verb: &str, flags: &[&str]) -> String {
    let mut chosen = Vec::new();
    for (at, one) in flags.iter().enumerate() {
        chosen.push((*one).to_owned());
        for (after, two) in flags.iter().enumerate().skip(at + 1) {
            // The output depends on the order of the flags.
            chosen.extend([format!("{one} {two}"), format!("{two} {one}")]);
            chosen.extend(flags[after + 1..].iter().map(|three| format!("{one} {two} {three}")));
        }
    }
    let mut lines = String::new();
    for (number, flags) in chosen.iter().enumerate() {
        // A number must not be marked; see the random stream.
        let states = if verb == "ma" { 2 } else { 3 };
        for state in 0..states {
            let key = format!("{verb}{state}-{number}");
            if state > 0 {
                lines.push_str(&format!("ms {key} 10 F5 T1000000\r\n5000000000\r\n"));
            }
            if state > 1 {
                lines.push_str(&format!("md {key} I\r\n"));
            }
            match verb {
                "ms" => lines.push_str(&format!("ms {key} 3 {flags}\r\nabc\r\n")),
                _ => lines.push_str(&format!("{verb} {key} {flags}\r\n")),
            }
            lines.push_str(&format!("mg {key} s t f v\r\nmg {key} v\r\n"));
        }
    }
    lines
}
