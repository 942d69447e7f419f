//! Bytes that abusers send: requests of each protocol, and mutations of them.
//!
//! Abusers use their own keys, and no command that is meant to do harm (`FLUSHALL`, `CLIENT KILL`, `CONFIG`): its
//! effects on witnesses would be correct.

use crate::{Random, encode};

/// Protocol of a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Language {
    Resp,
    Inline,
    Text,
    Meta,
    Binary,
    PedroKv,
    Http,
}

pub(super) const LANGUAGES: &[Language] = &[
    Language::Resp,
    Language::Inline,
    Language::Text,
    Language::Meta,
    Language::Binary,
    Language::PedroKv,
    Language::Http,
];

/// Number of keys of abusers.
pub(super) const KEYS: usize = 32;

/// Returns the key with this number.
pub(super) fn key(number: usize) -> Vec<u8> {
    format!("x:{number}").into_bytes()
}

/// Commands: `K` is a key, `V` a value, `S` a small number, `N` any number, `P` a password.
const COMMANDS: &[&str] = &[
    "GET K",
    "GET K",
    "SET K V",
    "SET K V",
    "SET K V EX 100",
    "MGET K K K",
    "APPEND K V",
    "SETRANGE K S V",
    "GETRANGE K N N",
    "INCRBY K N",
    "SETBIT K S 1",
    "BITCOUNT K",
    "BITFIELD K SET u8 S N",
    "STRLEN K",
    "LCS K K",
    "LPUSH K V V",
    "RPUSH K V",
    "LRANGE K N N",
    "LPOP K",
    "LINSERT K BEFORE V V",
    "BLPOP K K 0.01",
    "BLMOVE K K LEFT LEFT 0.01",
    "SADD K V V",
    "SMEMBERS K",
    "SINTER K K",
    "SRANDMEMBER K S",
    "HSET K V V",
    "HGETALL K",
    "HINCRBY K V N",
    "ZADD K S V",
    "ZRANGE K N N",
    "ZINTER 2 K K",
    "BZPOPMIN K 0.01",
    "XADD K MAXLEN 100 * V V",
    "XREAD BLOCK 10 STREAMS K $",
    "XRANGE K - + COUNT S",
    "GEOADD K S S V",
    "PFADD K V",
    "PFCOUNT K",
    "EXPIRE K S",
    "TTL K",
    "PERSIST K",
    "DEL K",
    "TYPE K",
    "OBJECT ENCODING K",
    "DUMP K",
    "RESTORE K 0 V REPLACE",
    "SORT K",
    "COPY K K",
    "RENAME K K",
    "SCAN N COUNT S",
    "MULTI",
    "EXEC",
    "DISCARD",
    "WATCH K",
    "UNWATCH",
    "SUBSCRIBE K",
    "PSUBSCRIBE x:*",
    "UNSUBSCRIBE",
    "PUBLISH K V",
    "MONITOR",
    "HELLO 2",
    "HELLO 3",
    "HELLO N",
    "RESET",
    "QUIT",
    "PING",
    "PING V",
    "ECHO V",
    "COMMAND DOCS",
    "INFO",
    "CLIENT REPLY SKIP",
    "CLIENT REPLY OFF",
    "CLIENT TRACKING ON BCAST",
    "CLIENT TRACKING ON",
    "CLIENT LIST",
    "CLIENT SETNAME V",
    "CLIENT INFO",
    "CLIENT ID",
    "AUTH ann P",
    "AUTH P",
    "HELLO 3 AUTH ann P",
    "ACL WHOAMI",
    "EVAL return{KEYS[1],ARGV[1]} 1 K V",
    "EVAL return(redis.error_reply(ARGV[1])) 0 V",
    "EVAL return(redis.call('GET',KEYS[1])) 1 K",
    "EVAL return(cjson.decode(ARGV[1])) 0 V",
    "EVAL return(redis.pcall(ARGV[1],KEYS[1])) 1 K V",
    "EVALSHA V 0",
    "FCALL V 0",
    "WAIT 0 0",
    "REPLCONF listening-port N",
    "PSYNC V N",
    "OBJECT FREQ K",
    "NOSUCHCOMMAND V N",
    "SELECT 0",
    "DEBUG V",
    "GET",
    "SET K",
];

const NUMBERS: &[&str] = &[
    "0",
    "1",
    "-1",
    "2",
    "100",
    "65536",
    "2147483647",
    "2147483648",
    "-2147483648",
    "4294967295",
    "9223372036854775807",
    "-9223372036854775808",
    "18446744073709551615",
    "1e308",
    "nan",
    "inf",
    "0x10",
    "",
    "007",
];

/// Declared lengths without their bytes, and other pieces that are significant to a parser.
const SPLINTERS: &[&[u8]] = &[
    b"\r\n",
    b"\n",
    b"\r",
    b"\0",
    b"*2147483647\r\n",
    b"*1000000\r\n",
    b"*-1\r\n",
    b"*0\r\n",
    b"$536870912\r\n",
    b"$-1\r\n",
    b"$9223372036854775807\r\n",
    b"$0\r\n\r\n",
    b"*99999999999999999999\r\n",
    b"\"",
    b"'\\x",
    b"\x80",
    b"\x81\xff\xff",
    b"\xff\xff\xff\xff",
    b"set x:1 0 0 4294967295\r\n",
    b"ms x:1 2147483647\r\n",
    b"get ",
    b"noreply\r\n",
    b"mn\r\n",
    b"\xff\xff\x05\x02",
    b"\x80\x01\xff\xff\x08\0\0\0\xff\xff\xff\xff\0\0\0\0\0\0\0\0\0\0\0\0",
    b"Content-Length: 18446744073709551615\r\n",
    b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
    b"GET / HTTP/1.1\r\n",
    b"\x16\x03\x01\xff\xff",
    b"\x15\x03\x03\0\x02\x02\x28",
];

/// Returns a value: mostly short, sometimes of many kilobytes.
fn value(random: &mut Random) -> Vec<u8> {
    let len = match random.below(60) {
        0 => random.below(200_000),
        1..4 => random.below(20_000),
        _ => random.below(60),
    };
    match random.below(3) {
        0 => random.bytes(len),
        1 => vec![b'v'; len],
        _ => random.pick(SPLINTERS).repeat(len / 8),
    }
}

fn any_key(random: &mut Random) -> Vec<u8> {
    key(random.below(KEYS))
}

fn number(random: &mut Random) -> String {
    (*random.pick(NUMBERS)).to_owned()
}

/// Returns the arguments of a command.
fn command(random: &mut Random) -> Vec<Vec<u8>> {
    let template = random.pick(COMMANDS);
    let arg = |word| match word {
        "K" => any_key(random),
        "V" => value(random),
        "S" => random.below(1000).to_string().into_bytes(),
        "N" => number(random).into_bytes(),
        "P" => random.pick(&["wrong", "secret", "", "password"]).as_bytes().to_vec(),
        word => word.as_bytes().to_vec(),
    };
    template.split(' ').map(arg).collect()
}

/// Returns requests that a server of the protocol mostly understands.
pub(super) fn pipeline(language: Language, random: &mut Random) -> Vec<u8> {
    let count_max = if random.one_in(8) { 300 } else { 6 };
    let count = 1 + random.below(count_max);
    (0..count).flat_map(|_| request(language, random)).collect()
}

fn request(language: Language, random: &mut Random) -> Vec<u8> {
    match language {
        Language::Resp => encode(&command(random)),
        Language::Inline => inline(random),
        Language::Text => text(random),
        Language::Meta => meta(random),
        Language::Binary => binary(random),
        Language::PedroKv => pedrokv(random),
        Language::Http => http(random),
    }
}

fn inline(random: &mut Random) -> Vec<u8> {
    let words = command(random).into_iter().map(|word| {
        let text: String = word.iter().map(|byte| format!("\\x{byte:02x}")).collect();
        format!("\"{text}\"")
    });
    format!("{}\r\n", words.collect::<Vec<_>>().join(" ")).into_bytes()
}

fn text(random: &mut Random) -> Vec<u8> {
    let (key, value) = (any_key(random), value(random));
    let key = key.escape_ascii();
    let n = number(random);
    let line = match random.below(12) {
        0 => format!("get {key} {key} x:1\r\n"),
        1 => format!("gats {n} {key}\r\n"),
        2 => format!("incr {key} {n}\r\n"),
        3 => format!("delete {key}\r\n"),
        4 => format!("touch {key} {n}\r\n"),
        5 => "stats\r\n".to_owned(),
        6 => "version\r\n".to_owned(),
        7 => format!("get {}\r\n", "k".repeat(random.below(400))),
        8 => format!("cas {key} 0 0 {} {n}\r\n", value.len()),
        _ => {
            let verb = random.pick(&["set", "add", "replace", "append", "prepend"]);
            let noreply = random.pick(&["", "", " noreply"]);
            let head = format!("{verb} {key} {n} 0 {}{noreply}\r\n", value.len());
            return [head.as_bytes(), &value, b"\r\n"].concat();
        }
    };
    line.into_bytes()
}

fn meta(random: &mut Random) -> Vec<u8> {
    let (key, value) = (any_key(random), value(random));
    let key = key.escape_ascii();
    let flags = random.pick(&["", " v t f c k", " q k Oabc", " T30 N5 R9", " MA I C1", " b v"]);
    match random.below(6) {
        0..2 => format!("mg {key}{flags}\r\n").into_bytes(),
        2 => format!("md {key}{flags}\r\n").into_bytes(),
        3 => format!("ma {key} D{} {flags}\r\nmn\r\n", number(random)).into_bytes(),
        4 => format!("me {key}\r\n").into_bytes(),
        _ => [format!("ms {key} {}{flags}\r\n", value.len()).as_bytes(), &value, b"\r\n"].concat(),
    }
}

/// Returns a frame of memcached's binary protocol.
pub(super) fn frame(opcode: u8, extras: &[u8], key: &[u8], value: &[u8]) -> Vec<u8> {
    let len = (extras.len() + key.len() + value.len()) as u32;
    let mut frame = vec![0x80, opcode];
    frame.extend((key.len() as u16).to_be_bytes());
    frame.extend([extras.len() as u8, 0, 0, 0]);
    frame.extend(len.to_be_bytes());
    frame.extend([0; 12]);
    [&frame, extras, key, value].concat()
}

fn binary(random: &mut Random) -> Vec<u8> {
    let (key, value) = (any_key(random), value(random));
    match random.below(8) {
        0 => frame(0x00, b"", &key, b""),
        1 => frame(0x0d, b"", &key, b""),
        2 => frame(0x01, &[0; 8], &key, &value),
        3 => frame(0x05, &[0; 20], &key, b""),
        4 => frame(0x0e, b"", &key, &value),
        // SASL with a wrong password.
        5 => frame(0x21, b"", b"PLAIN", b"\0ann\0wrong"),
        6 => frame(0x0a, b"", b"", b""),
        // Any operation except flush, which is meant to empty the database.
        _ => match random.next_u64() as u8 {
            0x08 | 0x18 => frame(0x0b, b"", b"", b""),
            opcode => frame(opcode, &random.bytes(4), &key, &value),
        },
    }
}

/// Returns a request of PedroKV.
pub(super) fn pedrokv_request(kind: u8, id: u32, key: &[u8], value: &[u8]) -> Vec<u8> {
    let mut frame = ((8 + key.len() + value.len()) as u16).to_be_bytes().to_vec();
    frame.extend([key.len() as u8, kind]);
    frame.extend(id.to_be_bytes());
    [&frame, key, value].concat()
}

fn pedrokv(random: &mut Random) -> Vec<u8> {
    let mut value = value(random);
    value.truncate(60_000);
    let kind = random.pick(&[&[1_u8], &[2], &[2], &[3], &[0], &[255]])[0];
    let value = if kind == 2 { value } else { Vec::new() };
    pedrokv_request(kind, random.next_u64() as u32, &any_key(random), &value)
}

fn http(random: &mut Random) -> Vec<u8> {
    let args = |random: &mut Random| {
        let words = command(random)
            .into_iter()
            .map(|word| format!("{:?}", word.escape_ascii().to_string()));
        format!("[{}]", words.collect::<Vec<_>>().join(","))
    };
    let (line, body) = match random.below(8) {
        0 => (format!("GET /get/{}", any_key(random).escape_ascii()), String::new()),
        1 => ("POST /pipeline".to_owned(), format!("[{},{}]", args(random), args(random))),
        2 => ("POST /multi-exec".to_owned(), format!("[{}]", args(random))),
        3 => ("GET /readyz".to_owned(), String::new()),
        4 => ("POST /".to_owned(), "[".repeat(random.below(100_000))),
        5 => (
            format!("{} /{}", random.pick(&["PUT", "OPTIONS", "CONNECT", "X"]), "a/".repeat(50)),
            String::new(),
        ),
        _ => ("POST /".to_owned(), args(random)),
    };
    let head = random.pick(&[
        "",
        "",
        "",
        "Connection: close\r\n",
        "Authorization: Bearer wrong\r\n",
        "Authorization: Basic YW5uOndyb25n\r\n",
        "Expect: 100-continue\r\n",
        "Upgrade: h2c\r\n",
        "Origin: http://evil\r\n",
        "Transfer-Encoding: chunked\r\n",
    ]);
    format!(
        "{line} HTTP/1.1\r\nHost: localhost\r\n{head}Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// Damages bytes: changes, removes or doubles some, or inserts splinters.
pub(super) fn damage(mut bytes: Vec<u8>, random: &mut Random) -> Vec<u8> {
    for _ in 0..1 + random.below(4) {
        let at = random.below(bytes.len() + 1);
        match random.below(5) {
            0 if at < bytes.len() => bytes[at] = random.next_u64() as u8,
            1 => bytes.truncate(at),
            2 => {
                let end = (at + random.below(100)).min(bytes.len());
                bytes.extend_from_within(at..end);
            }
            3 if at < bytes.len() => drop(bytes.remove(at)),
            _ => drop(bytes.splice(at..at, random.pick(SPLINTERS).iter().copied())),
        }
    }
    bytes
}

/// Returns requests that declare data that never come, or nest deeper and deeper.
pub(super) fn monster(random: &mut Random) -> Vec<u8> {
    let depth = random.below(200_000);
    match random.below(10) {
        0 => b"*1\r\n".repeat(depth),
        1 => b"*1000000\r\n$1\r\na\r\n".to_vec(),
        2 => [b"*2\r\n$4\r\nECHO\r\n$4194304\r\n".to_vec(), vec![b'x'; depth]].concat(),
        3 => encode(&["EVAL", "return cjson.decode(ARGV[1])", "0", &"[".repeat(depth)]),
        4 => encode(&["EVAL", "return cmsgpack.unpack(ARGV[1])", "0", &"\u{1}".repeat(depth)]),
        5 => vec![b'a'; depth],
        6 => [b"get".to_vec(), b" x:1".repeat(depth / 4), b"\r\n".to_vec()].concat(),
        7 => encode(&vec!["MULTI"; 1 + depth / 100]),
        8 => format!("POST / HTTP/1.1\r\nHost: localhost\r\n{}", "X: y\r\n".repeat(depth / 6))
            .into_bytes(),
        _ => random.pick(SPLINTERS).repeat(1 + depth / 20),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::effort;

    /// Harm that witnesses could not distinguish from a fault of the server.
    #[test]
    fn the_same_seed_makes_the_same_bytes_without_harm() {
        for language in LANGUAGES {
            let (mut one, mut other) = (Random::new(7), Random::new(7));
            for _ in 0..effort(80) {
                let bytes = pipeline(*language, &mut one);
                assert_eq!(bytes, pipeline(*language, &mut other));
                let text = String::from_utf8_lossy(&bytes).to_ascii_lowercase();
                for harm in ["flushall", "flushdb", "flush_all", "shutdown", "kill"] {
                    assert!(!text.contains(harm), "{harm}");
                }
            }
        }
    }
}
