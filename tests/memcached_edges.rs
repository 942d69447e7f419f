//! Edge cases of memcached's protocols: malformed requests, odd numbers, foreign protocols, deadlines in the past.
//! The expected answers are those of memcached 1.6.42, except for the differences in `docs/differences.md`.

use std::io::{Read, Write};
use std::net::Shutdown;

use tierce_harness::{Both, wait_until};

use crate::launch;
use crate::memcached::{answer, check_frames, frame, start, talk, with};

#[track_caller]
fn check_all(both: &Both, cases: &[(&str, &str)]) {
    for (request, expected) in cases {
        both.check(request.as_bytes(), expected.as_bytes());
    }
}

#[test]
fn a_meta_set_tells_the_size_and_makes_what_it_appends_to() {
    let both = start();
    check_all(
        &both,
        &[
            (
                "ms k 3 s\r\nabc\r\nms k 2 MA s k\r\nde\r\nmg k s v\r\n",
                "HD s3\r\nHD s5 kk\r\nVA 5 s5\r\nabcde\r\n",
            ),
            ("ms n 2 MA\r\nab\r\n", "NS\r\n"),
            (
                "ms n 2 MA N100 F7 s\r\nab\r\nms n 1 MP N5\r\nx\r\nmg n v f t\r\n",
                "HD s2\r\nHD\r\nVA 3 f7 t100\r\nxab\r\n",
            ),
            ("ms p 2 MP N0 C77\r\nab\r\nmg p v t\r\n", "HD\r\nVA 2 t-1\r\nab\r\n"),
        ],
    );
}

/// Otherwise a replica would get commands that it does not support. Versions after 1.6.18 know these flags.
#[test]
fn newer_flags_of_meta_commands() {
    let both = start();
    check_all(
        &both,
        &[
            // A reader that has this version does not get the value again.
            (
                "ms k 3 E7 F5\r\nabc\r\nmg k v f C7\r\nmg k v f C8\r\n",
                "HD\r\nHD f5\r\nVA 3 f5\r\nabc\r\n",
            ),
            // The value is removed and the item stays, with its version.
            ("md k x C6\r\nmd k x q\r\nmg k v c f t\r\n", "EX\r\nVA 0 c7 f0 t-1\r\n\r\n"),
            (
                "md k x F9 T100 E12 I\r\nmg k v c f t\r\nmd absent x\r\n",
                "HD\r\nVA 0 c12 f9 t100 X W\r\n\r\nNF\r\n",
            ),
            // Quiet mode also suppresses a new number, and the first letter of a mode is the mode.
            (
                "ma n N0 J5 q v\r\nma n MDECREMENT v\r\nma n M\r\n",
                "VA 1\r\n4\r\nCLIENT_ERROR invalid mode for ma M token\r\n",
            ),
            (
                "md k !\r\nma k !\r\n",
                "CLIENT_ERROR invalid flag\r\nCLIENT_ERROR invalid or duplicate flag\r\n",
            ),
        ],
    );
}

/// The answer to a no-operation follows those to all earlier quiet requests, and no others.
#[test]
fn quiet_requests_are_answered_in_order() {
    let both = start();
    both.check(
        b"ms k 1 q\r\na\r\nmg none q v\r\nmg k q v O1\r\nmn\r\nms k 1 q ME\r\nb\r\nmd none q\r\nmn\r\nmd k q\r\nmn\r\n",
        b"VA 1 O1\r\na\r\nMN\r\nNS\r\nNF\r\nMN\r\nMN\r\n",
    );
    let noop = |opaque: u8| {
        let mut noop = frame(0x0a, b"", b"", b"");
        noop[15] = opaque;
        noop
    };
    let noop_answer = |opaque: u8| {
        let mut answer = answer(0x0a, 0, b"", b"", b"");
        answer[15] = opaque;
        answer
    };
    let requests = [
        frame(0x11, &[0; 8], b"k", b"a"),
        frame(0x09, b"", b"none", b""),
        frame(0x0d, b"", b"k", b""),
        noop(1),
        frame(0x12, &[0; 8], b"k", b"b"),
        frame(0x14, b"", b"none", b""),
        noop(2),
        frame(0x14, b"", b"k", b""),
        noop(3),
    ];
    let expected = [
        answer(0x0d, 0, &[0; 4], b"k", b"a"),
        noop_answer(1),
        answer(0x12, 2, b"", b"", b"Data exists for key."),
        answer(0x14, 1, b"", b"", b"Not found"),
        noop_answer(2),
        noop_answer(3),
    ];
    check_frames(&both, &requests.concat(), &expected.concat());
}

#[test]
fn only_strings_are_invalidated() {
    let both = with(launch());
    let mut redis = both.server.connect();
    redis.check("HSET h a 1", ":1");
    redis.check("RPUSH l a", ":1");
    for key in ["h", "l"] {
        both.check(
            format!("md {key} I T30\r\n").as_bytes(),
            b"SERVER_ERROR the key holds no string\r\n",
        );
        redis.check(&format!("TTL {key}"), ":-1");
    }
    both.check(b"md h\r\n", b"HD\r\n");
}

#[test]
fn a_password_that_nobody_asks_for_does_not_matter() {
    let both = start();
    // Clients with a password in their settings ask for mechanisms or just send it, and continue.
    let requests = [
        frame(0x20, b"", b"", b""),
        frame(0x21, b"", b"PLAIN", b"\0user\0secret"),
        frame(0x22, b"", b"PLAIN", b"\0user\0secret"),
        frame(0x01, &[0; 8], b"k", b"v"),
    ];
    let unknown = |opcode| answer(opcode, 0x81, b"", b"", b"Unknown command");
    let expected = [unknown(0x20), unknown(0x21), unknown(0x22), answer(0x01, 0, b"", b"", b"")];
    check_frames(&both, &requests.concat(), &expected.concat());
    let stats = String::from_utf8(talk(&both, b"stats\r\n")).expect("ASCII");
    assert!(stats.contains("STAT auth_cmds 0\r\n"), "{stats}");
}

#[test]
fn before_the_password_little_is_accepted_and_kept() {
    let both = with(launch().with("requirepass", "secret"));
    let refused = "CLIENT_ERROR unauthenticated\r\n";
    check_all(
        &both,
        &[
            ("\r\n", refused),
            ("quit\r\n", refused),
            ("nonsense\r\n", refused),
            ("set a 0 0\r\n", refused),
            ("set a 0 0 1025\r\n", refused),
            ("stats\r\n", refused),
            ("set a 0 0 3\r\nabc\r\n", "CLIENT_ERROR bad authentication token format\r\n"),
            ("set a 0 0 13\r\ndefault wrong\r\n", "CLIENT_ERROR authentication failure\r\n"),
            ("set a 0 0 14 noreply\r\ndefault secret\r\nmn\r\n", "STORED\r\nMN\r\n"),
        ],
    );
    // A line that reads keys may be long, but not before authentication.
    for line in ["x".repeat(2049), format!("get {}", "k ".repeat(1100))] {
        let mut stream = both.connect();
        stream.write_all(line.as_bytes()).expect("sent");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("closed");
        assert_eq!(answer, b"");
    }
    let frames = [
        frame(0x20, b"", b"", b""),
        frame(0x21, b"", b"PLAIN", b"\0default\0secret"),
        frame(0x01, &[0; 8], b"k", b"v"),
    ];
    let expected = [
        answer(0x20, 0, b"", b"", b"PLAIN"),
        answer(0x21, 0, b"", b"", b"Authenticated"),
        answer(0x01, 0, b"", b"", b""),
    ];
    check_frames(&both, &frames.concat(), &expected.concat());
}

#[test]
fn other_protocols_are_cut_off() {
    let both = start();
    for request in [
        "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 40\r\n\r\nset pwned 0 0 1\r\nx\r\n",
        "PUT /x HTTP/1.0\r\n\r\nset pwned 0 0 1\r\nx\r\n",
        "OPTIONS * HTTP/1.1\r\n\r\nset pwned 0 0 1\r\nx\r\n",
    ] {
        both.check(request.as_bytes(), b"");
    }
    let padded = format!("POST /{} HTTP/1.1\r\n\r\nset pwned 0 0 1\r\nx\r\n", "a".repeat(3000));
    both.check(padded.as_bytes(), b"");
    // A header may arrive without the line before it.
    check_all(&both, &[("Host: x\r\nmn\r\n", "ERROR\r\nMN\r\n"), ("get pwned\r\n", "END\r\n")]);
    // After a frame, only frames are allowed.
    let noop = frame(0x0a, b"", b"", b"");
    let done = answer(0x0a, 0, b"", b"", b"");
    check_frames(&both, &[&noop[..], b"set pwned 0 0 1\r\nx\r\n"].concat(), &done);
    check_frames(&both, &[noop.clone(), done.clone(), noop].concat(), &done);
    both.check(b"get pwned\r\n", b"END\r\n");
}

#[test]
fn lines_without_end() {
    let both = start();
    for (line, closed) in [
        ("x".repeat(2048), false),
        ("x".repeat(2049), true),
        (" ".repeat(2049), true),
        (format!("mg k O{}", "x".repeat(2048)), true),
        (format!("get {}", "k ".repeat(50_000)), false),
        (format!("gets {}", "k ".repeat(50_000)), false),
        (format!("get {}", "k ".repeat(530_000)), true),
    ] {
        let mut stream = both.connect();
        stream.write_all(line.as_bytes()).expect("sent");
        if !closed {
            // The end of the line arrives late, followed by another command.
            stream.write_all(b"\r\nmn\r\n").expect("sent");
            stream.shutdown(Shutdown::Write).expect("a socket");
        }
        let mut answer = Vec::new();
        // The server may close before it has read everything.
        let _ = stream.read_to_end(&mut answer);
        let head = &line[..line.len().min(20)];
        assert_eq!(answer.ends_with(b"MN\r\n"), !closed, "{head}");
        assert_eq!(answer.is_empty(), closed, "{head}");
    }
    // A line with an end is a command, however long it is.
    let long = format!("{}\r\nmn\r\n", "x".repeat(3000));
    both.check(long.as_bytes(), b"ERROR\r\nMN\r\n");
}

#[test]
fn malformed_lines() {
    let usage = "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]\r\n";
    let bad = "CLIENT_ERROR bad command line format\r\n";
    check_all(
        &start(),
        &[
            ("\r\n\n \r\n", "ERROR\r\nERROR\r\nERROR\r\n"),
            (" get k\r\nget  k \r\nget \r\n", &["END\r\nEND\r\n", bad].concat()),
            ("gat\r\ngat 5\r\nset k 0 0\r\nincr k\r\ntouch k\r\n", &bad.repeat(5)),
            ("bget k\r\nGET k\r\nget\tk\r\n", "END\r\nERROR\r\nERROR\r\n"),
            ("cas k\r\ncas k 0 0 1\r\nx\r\n", &bad.repeat(2)),
            // Unknown extra words are ignored.
            ("cas k 0 0 1 1 noreply x\r\nx\r\n", "NOT_FOUND\r\n"),
            ("incr k 1 2 3\r\ntouch k 0 0 0\r\n", "NOT_FOUND\r\nNOT_FOUND\r\n"),
            ("cas k 0 0 1 1\r\nx\r\n", "NOT_FOUND\r\n"),
            ("cas k 0 0 1 x\r\nx\r\nmn\r\n", "CLIENT_ERROR bad command line format\r\nMN\r\n"),
            ("cas k 0 0 1 99999999999999999999\r\nx\r\nmn\r\n", &[bad, "MN\r\n"].concat()),
            ("cas k 0 0 1 noreply\r\nx\r\nmn\r\n", "MN\r\n"),
            ("cas k 0 0 1 5 noreply\r\nx\r\nmn\r\n", "MN\r\n"),
            ("delete\r\ndelete k 0\r\n", &[bad, "NOT_FOUND\r\n"].concat()),
            ("delete k 1\r\ndelete k x y\r\ndelete a b c d e\r\n", &usage.repeat(3)),
            ("delete k 1 noreply\r\nmn\r\n", "MN\r\n"),
            ("set k 0 0 1 x noreply\r\na\r\nmn\r\n", "MN\r\n"),
            ("verbosity\r\nverbosity x\r\nverbosity -1\r\n", &bad.repeat(3)),
            ("verbosity 1 2 3\r\nflush_all 0 0 0\r\n", "OK\r\nOK\r\n"),
            ("verbosity noreply\r\nverbosity 1 noreply\r\nmn\r\n", "MN\r\n"),
            ("quit x\r\nmn\r\n", ""),
            ("mn x y\r\nmnx\r\nm\r\n", "MN\r\nERROR\r\nERROR\r\n"),
            ("me\r\nmg\r\nmd\r\nma\r\nms\r\nms k\r\n", &bad.repeat(6)),
        ],
    );
}

#[test]
fn numbers_in_lines_and_values() {
    let not_numeric = "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n";
    let bad = "CLIENT_ERROR bad command line format\r\n";
    let delta = "CLIENT_ERROR invalid numeric delta argument\r\n";
    check_all(
        &start(),
        &[
            ("set k +01 00 01\r\nx\r\nget k\r\n", "STORED\r\nVALUE k 1 1\r\nx\r\nEND\r\n"),
            // Flags are truncated to 32 bits.
            ("set k 4294967297 0 1\r\nx\r\nget k\r\n", "STORED\r\nVALUE k 1 1\r\nx\r\nEND\r\n"),
            ("ms k 1 F4294967298\r\nx\r\nmg k f\r\n", "HD\r\nHD f2\r\n"),
            ("ms k 1 F-1\r\nx\r\nms k 1 Fx\r\nx\r\n", &bad.repeat(2)),
            ("set k -1 0 1\r\nx\r\nset k 0 1.5 1\r\nx\r\n", &bad.repeat(2)),
            ("set k 0 0 99999999999999999999\r\n", bad),
            ("incr k 18446744073709551616\r\nincr k -1\r\n", &delta.repeat(2)),
            ("set n 0 0 1\r\n7\r\nincr n +1\r\nincr n 007\r\n", "STORED\r\n8\r\n15\r\n"),
            (
                "set n 0 0 20\r\n18446744073709551615\r\nincr n 2\r\ndecr n 5\r\n",
                "STORED\r\n1\r\n0\r\n",
            ),
            (
                "set n 0 0 20\r\n18446744073709551616\r\nincr n 1\r\n",
                &["STORED\r\n", not_numeric].concat(),
            ),
            // Memcached itself leaves blanks after a number that has become shorter.
            ("set n 0 0 3\r\n9  \r\nincr n 1\r\n", "STORED\r\n10\r\n"),
            ("set n 0 0 3\r\n 12\r\nincr n 1\r\n", "STORED\r\n13\r\n"),
            ("set n 0 0 3\r\n-12\r\nincr n 1\r\n", &["STORED\r\n", not_numeric].concat()),
            ("set n 0 0 3\r\n12x\r\nincr n 1\r\n", &["STORED\r\n", not_numeric].concat()),
            ("set n 0 0 0\r\n\r\nincr n 1\r\n", &["STORED\r\n", not_numeric].concat()),
        ],
    );
}

#[test]
fn times_that_are_over() {
    let both = start();
    check_all(
        &both,
        &[
            ("set k 0 -1 1\r\nx\r\nget k\r\n", "STORED\r\nEND\r\n"),
            ("set k 0 2592000 1\r\nx\r\nmg k t\r\n", "STORED\r\nHD t2592000\r\n"),
            // More than thirty days is a time in 1970.
            ("set k 0 2592001 1\r\nx\r\nget k\r\n", "STORED\r\nEND\r\n"),
            (
                "set k 0 0 1\r\nx\r\ntouch k -1\r\nget k\r\ntouch k 0\r\n",
                "STORED\r\nTOUCHED\r\nEND\r\nNOT_FOUND\r\n",
            ),
            (
                "set k 0 0 1\r\nx\r\ngat -1 k\r\ngat 0 k\r\n",
                "STORED\r\nVALUE k 0 1\r\nx\r\nEND\r\nEND\r\n",
            ),
            ("set k 0 0 1\r\nx\r\nmg k T-1\r\nmg k\r\n", "STORED\r\nHD\r\nEN\r\n"),
            ("touch k 99999999999999999999\r\n", "CLIENT_ERROR invalid exptime argument\r\n"),
        ],
    );
    // Frames have no negative times.
    let store = frame(0x01, &[0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff], b"k", b"x");
    let expected = [answer(0x01, 0, b"", b"", b""), answer(0x00, 0, &[0; 4], b"", b"x")];
    check_frames(&both, &[store, frame(0x00, b"", b"k", b"")].concat(), &expected.concat());
}

#[test]
fn flushes() {
    let both = start();
    check_all(
        &both,
        &[
            ("flush_all x\r\n", "CLIENT_ERROR invalid exptime argument\r\n"),
            ("flush_all 1000 2 3\r\n", "OK\r\n"),
            ("flush_all 0 noreply\r\nflush_all noreply\r\nmn\r\n", "MN\r\n"),
            // The second flush replaces the first.
            ("set k 0 0 1\r\nx\r\nflush_all +1\r\nflush_all 100000\r\n", "STORED\r\nOK\r\nOK\r\n"),
        ],
    );
    let mut redis = both.server.connect();
    redis.check("SET probe x PX 1500", "+OK");
    wait_until("longer than the first flush", || redis.ask("EXISTS probe").int() == 0);
    both.check(b"get k\r\n", b"VALUE k 0 1\r\nx\r\nEND\r\n");
    both.check(b"flush_all -1\r\nget k\r\n", b"OK\r\nEND\r\n");
    let both = with(launch().with("memcached-flush-all", "no"));
    check_all(
        &both,
        &[
            (
                "set k 0 0 1\r\nx\r\nflush_all\r\n",
                "STORED\r\nCLIENT_ERROR flush_all not allowed\r\n",
            ),
            ("flush_all noreply\r\nget k\r\n", "VALUE k 0 1\r\nx\r\nEND\r\n"),
        ],
    );
    let refused = answer(0x08, 0x20, b"", b"", b"Auth failure.");
    check_frames(&both, &frame(0x08, b"", b"", b""), &refused);
    both.server.connect().check("CONFIG SET memcached-flush-all yes", "+OK");
    both.check(b"flush_all\r\nget k\r\n", b"OK\r\nEND\r\n");
}

#[test]
fn values_do_not_outgrow_their_limit() {
    let both = with(launch().with("item-size-max", "1kb"));
    let half = "x".repeat(512);
    let set = format!("set k 0 0 512\r\n{half}\r\nappend k 0 0 512\r\n{half}\r\n");
    both.check(set.as_bytes(), b"STORED\r\nSTORED\r\n");
    check_all(
        &both,
        &[
            ("append k 0 0 1\r\nx\r\nprepend k 0 0 1\r\nx\r\n", "NOT_STORED\r\nNOT_STORED\r\n"),
            ("ms k 1 MA\r\nx\r\nmg k s\r\n", "NS\r\nHD s1024\r\n"),
        ],
    );
    let refused = answer(0x0e, 0x05, b"", b"", b"Not stored.");
    check_frames(&both, &frame(0x0e, b"", b"k", b"x"), &refused);
    // An append that is too long alone leaves the value unchanged; a store does not.
    let long = "x".repeat(1025);
    let too_large = "SERVER_ERROR object too large for cache\r\n";
    let append = format!("append k 0 0 1025\r\n{long}\r\nmg k s\r\n");
    both.check(append.as_bytes(), format!("{too_large}HD s1024\r\n").as_bytes());
    let set = format!("ms k 1025\r\n{long}\r\nmg k s\r\n");
    both.check(set.as_bytes(), format!("{too_large}EN\r\n").as_bytes());
    both.server.connect().check(
        "CONFIG SET item-size-max 1023",
        "-ERR CONFIG SET failed (possibly related to argument 'item-size-max') - argument must be between 1024 and 1073741824 inclusive",
    );
}

#[test]
fn frames_with_parts_of_the_wrong_lengths_end_the_connection() {
    let both = start();
    let noop = frame(0x0a, b"", b"", b"");
    for request in [
        frame(0x00, b"", b"", b""),
        frame(0x00, b"", b"k", b"v"),
        frame(0x00, b"", &[b'k'; 251], b""),
        frame(0x01, &[0; 4], b"k", b"v"),
        frame(0x05, &[0; 19], b"k", b""),
        frame(0x0a, b"", b"k", b""),
    ] {
        let expected = answer(request[1], 4, b"", b"", b"Invalid arguments");
        check_frames(&both, &[request, noop.clone()].concat(), &expected);
    }
    // Unknown opcodes are skipped.
    let unknown = frame(0x1b, b"", b"", b"");
    let expected =
        [answer(0x1b, 0x81, b"", b"", b"Unknown command"), answer(0x0a, 0, b"", b"", b"")];
    check_frames(&both, &[unknown, noop].concat(), &expected.concat());
    // An add with a version is a store by version.
    let mut add = frame(0x02, &[0; 8], b"k", b"v");
    add[23] = 9;
    check_frames(&both, &add, &answer(0x02, 1, b"", b"", b"Not found"));
}

#[test]
fn a_client_gives_the_version() {
    let both = start();
    check_all(
        &both,
        &[
            (
                "ms k 1 E123 c\r\na\r\nmg k c\r\ngets k\r\n",
                "HD c123\r\nHD c123\r\nVALUE k 0 1 123\r\na\r\nEND\r\n",
            ),
            ("cas k 0 0 1 122\r\nb\r\ncas k 0 0 1 123\r\nb\r\n", "EXISTS\r\nSTORED\r\n"),
            ("cas k 0 0 1 123\r\nc\r\n", "EXISTS\r\n"),
            (
                "ms k 1 E500\r\n1\r\nms k 1 C500 E600 c\r\n2\r\nmg k c v\r\n",
                "HD\r\nHD c600\r\nVA 1 c600\r\n2\r\n",
            ),
            (
                "ms k 1 MA E601 c\r\n3\r\nma k E700 c v\r\nmg k c\r\n",
                "HD c601\r\nVA 2 c700\r\n24\r\nHD c700\r\n",
            ),
            ("ma n N0 J5 E77 c\r\nmg n c\r\n", "HD c77\r\nHD c77\r\n"),
            ("md k I E800\r\nmg k c\r\n", "HD\r\nHD c800 X W\r\n"),
            // A refused store leaves the version unchanged.
            ("ms k 1 ME E9\r\nx\r\nms k 1 C1 E9\r\nx\r\nmg n c\r\n", "NS\r\nEX\r\nHD c77\r\n"),
            ("mg k E5 c\r\nmg new N30 E5 c\r\n", "HD c800 Z X\r\nHD c5 W\r\n"),
            ("ms k 1 E0\r\nx\r\n", "CLIENT_ERROR bad token in command line format\r\n"),
        ],
    );
}

#[test]
fn flags_of_meta_commands() {
    let both = start();
    let too_many = format!("mg k {}\r\n", "v ".repeat(18));
    check_all(
        &both,
        &[
            (&too_many, "CLIENT_ERROR options flags are too long\r\n"),
            ("mg k \x7f\r\n", "CLIENT_ERROR duplicate flag\r\n"),
            ("mg k O\r\nmd k O1 k q\r\n", "EN O\r\nNF O1 kk\r\n"),
            (
                "mg Zm9v k O1 b\r\nmd Zm9v b k\r\nma Zm9v b k\r\n",
                "EN kZm9v b O1\r\nNF kZm9v b\r\nNF kZm9v b\r\n",
            ),
            (
                "mg Zm9 b\r\nmd Zm9 b\r\n",
                "CLIENT_ERROR error decoding key\r\nCLIENT_ERROR error decoding key\r\n",
            ),
            // With u it counts as unread.
            (
                "ms k 1 T100\r\nx\r\nmg k u h\r\nmg k h\r\nmg k h t l\r\n",
                "HD\r\nHD h0\r\nHD h0\r\nHD h1 t100 l0\r\n",
            ),
            (
                "ms k 1 I\r\ny\r\nmg k v\r\nms k 1 I C1\r\nz\r\nmg k v\r\nmg k v\r\n",
                "HD\r\nVA 1\r\ny\r\nHD\r\nVA 1 X W\r\nz\r\nVA 1 Z X\r\nz\r\n",
            ),
            (
                "ms k 1 q\r\na\r\nms k 1 q ME\r\nb\r\nmd k q\r\nmd k q\r\nmn\r\n",
                "NS\r\nNF\r\nMN\r\n",
            ),
            ("ms k 1\r\nab\r\nmn\r\n", "CLIENT_ERROR bad data chunk\r\nERROR\r\nMN\r\n"),
        ],
    );
}

/// As memcached 1.6.18: for an empty value the number is checked before the version, for another text after it.
#[test]
fn a_text_that_is_no_number_with_another_version() {
    let both = start();
    const NUMBER: u8 = 6;
    const VERSION: u8 = 2;
    for (value, status) in [("abc", VERSION), ("5", VERSION), ("", NUMBER)] {
        let set = format!("set k 0 0 {}\r\n{value}\r\n", value.len());
        both.check(set.as_bytes(), b"STORED\r\n");
        let text = match status {
            NUMBER => "Non-numeric server-side value for incr or decr",
            _ => "Data exists for key.",
        };
        for opcode in [0x05, 0x06] {
            let extras = [&1_u64.to_be_bytes()[..], &[0; 12]].concat();
            let mut request = frame(opcode, &extras, b"k", b"");
            request[16..24].copy_from_slice(&u64::MAX.to_be_bytes());
            check_frames(&both, &request, &answer(opcode, status, b"", b"", text.as_bytes()));
        }
        let of_meta = match status {
            NUMBER => "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n",
            _ => "EX\r\n",
        };
        both.check(b"ma k C999999999\r\n", of_meta.as_bytes());
    }
}
