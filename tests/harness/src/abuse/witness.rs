//! Well-behaved clients. Each writes and reads its own keys in one protocol, and knows every reply in advance.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Scope, ScopedJoinHandle};

use super::Abuse;
use super::bytes::{Language, frame, pedrokv_request};
use super::memory::remove_keys;
use super::target::Target;
use crate::{Connection, PATIENCE, Random, Reply, tls_stream};

/// Number of keys of each witness.
const KEYS: usize = 40;

/// Maximum length of a value: more than a turn of the event loop receives at once, and within PedroKV's limit.
const VALUE_LEN_MAX: usize = 60_000;

/// Minimum number of replies that each verifies, even if the abuse is short.
const STEPS_MIN: usize = 200;

/// Number of steps after which a witness of Redis' protocol removes the keys of abusers, so that they do not
/// accumulate.
const STEPS_BETWEEN_REMOVALS: usize = 500;

/// A client of some protocol.
trait Client {
    fn set(&mut self, key: &str, value: &[u8]);
    fn get(&mut self, key: &str) -> Option<Vec<u8>>;
    /// Returns true if the key existed.
    fn delete(&mut self, key: &str) -> bool;
    fn remove_keys_of_abusers(&mut self) {}
}

/// Final state of a witness.
pub(super) struct Witnessed {
    values: BTreeMap<String, Vec<u8>>,
    verified: usize,
}

impl Witnessed {
    /// Compares all values with those that another client reads. Returns the number of verified replies.
    pub(super) fn audit(self, target: &Target) -> usize {
        let mut connection = target.server.connect();
        for (key, value) in &self.values {
            let reply = connection.call(&["GET", key]);
            assert!(reply.bytes() == value, "{key} has {} bytes", reply.bytes().len());
        }
        self.verified + self.values.len()
    }
}

type Starting<'s> = (&'static str, ScopedJoinHandle<'s, Witnessed>);

/// Starts a witness for each protocol and kind of listener, until `done`.
pub(super) fn start_all<'s, 'e>(
    scope: &'s Scope<'s, 'e>,
    target: &'e Target,
    abuse: Abuse,
    done: &'e AtomicBool,
) -> Vec<Starting<'s>> {
    let mut clients: Vec<(&'static str, Box<dyn Client + Send>)> = vec![
        ("RESP2", Box::new(Resp(target.server.connect()))),
        ("RESP3", Box::new(Resp(target.server.connect_resp3()))),
        (
            "RESP over TLS",
            Box::new(Resp(Connection::tls(target.door(Language::Resp, true).address, &target.tls))),
        ),
        ("memcached text", Box::new(Text(plain(target, Language::Text)))),
        ("memcached meta", Box::new(Meta(plain(target, Language::Meta)))),
        ("memcached binary", Box::new(Binary(plain(target, Language::Binary)))),
        ("memcached over TLS", Box::new(Text(encrypted(target, Language::Text)))),
        ("PedroKV", Box::new(PedroKv(plain(target, Language::PedroKv)))),
        ("PedroKV over TLS", Box::new(PedroKv(encrypted(target, Language::PedroKv)))),
        ("HTTP", Box::new(Http(plain(target, Language::Http)))),
    ];
    // All are connected, and have completed handshakes, before any attack.
    for (name, client) in &mut clients {
        assert_eq!(client.get("w"), None, "{name}");
    }
    let start = |(number, (name, client)): (u64, (&'static str, Box<dyn Client + Send>))| {
        let random = Random::new(abuse.seed ^ (number + 1));
        let witness = move || {
            abuse.extent.allow_time();
            verify(client, number, random, done)
        };
        (name, scope.spawn(witness))
    };
    (0..).zip(clients).map(start).collect()
}

fn verify(
    mut client: Box<dyn Client + Send>,
    number: u64,
    mut random: Random,
    done: &AtomicBool,
) -> Witnessed {
    let mut values = BTreeMap::new();
    let mut verified = 0;
    while verified < STEPS_MIN || !done.load(Ordering::Relaxed) {
        let key = format!("w{number}:{}", random.below(KEYS));
        match random.below(10) {
            0..4 => {
                let len =
                    if random.one_in(20) { random.below(VALUE_LEN_MAX) } else { random.below(300) };
                let value = random.bytes(len);
                client.set(&key, &value);
                values.insert(key, value);
            }
            4 => assert_eq!(client.delete(&key), values.remove(&key).is_some(), "{key}"),
            _ => {
                let there = client.get(&key);
                assert!(
                    there.as_ref() == values.get(&key),
                    "{key} has {:?} bytes",
                    there.map(|value| value.len())
                );
            }
        }
        verified += 1;
        if verified % STEPS_BETWEEN_REMOVALS == 0 {
            client.remove_keys_of_abusers();
        }
    }
    Witnessed { values, verified }
}

/// A connection with a buffer for received bytes.
type Stream = BufReader<Box<dyn Duplex>>;

trait Duplex: Read + Write + Send {}
impl<T: Read + Write + Send> Duplex for T {}

fn plain(target: &Target, language: Language) -> Stream {
    let stream = TcpStream::connect(target.door(language, false).address).expect("a listener");
    stream.set_nodelay(true).expect("a socket option");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket option");
    BufReader::new(Box::new(stream))
}

fn encrypted(target: &Target, language: Language) -> Stream {
    BufReader::new(Box::new(tls_stream(target.door(language, true).address, &target.tls)))
}

fn send(stream: &mut Stream, bytes: &[u8]) {
    stream.get_mut().write_all(bytes).expect("sent");
}

fn line(stream: &mut Stream) -> String {
    let mut line = String::new();
    stream.read_line(&mut line).expect("a line");
    line
}

fn exactly(stream: &mut Stream, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    stream.read_exact(&mut bytes).expect("all of it");
    bytes
}

struct Resp(Connection);

impl Client for Resp {
    fn set(&mut self, key: &str, value: &[u8]) {
        assert_eq!(self.0.call(&[b"SET", key.as_bytes(), value]).text(), "OK");
    }

    fn get(&mut self, key: &str) -> Option<Vec<u8>> {
        match self.0.call(&["GET", key]) {
            Reply::Bulk(value) => Some(value),
            reply => {
                assert!(matches!(reply.to_string().as_str(), "nil" | "null"), "{reply}");
                None
            }
        }
    }

    fn delete(&mut self, key: &str) -> bool {
        self.0.call(&["DEL", key]).int() == 1
    }

    fn remove_keys_of_abusers(&mut self) {
        remove_keys(&mut self.0);
    }
}

struct Text(Stream);

impl Client for Text {
    fn set(&mut self, key: &str, value: &[u8]) {
        let head = format!("set {key} 0 0 {}\r\n", value.len());
        send(&mut self.0, &[head.as_bytes(), value, b"\r\n"].concat());
        assert_eq!(line(&mut self.0), "STORED\r\n");
    }

    fn get(&mut self, key: &str) -> Option<Vec<u8>> {
        send(&mut self.0, format!("get {key}\r\n").as_bytes());
        let head = line(&mut self.0);
        if head == "END\r\n" {
            return None;
        }
        let len = head.strip_prefix(&format!("VALUE {key} 0 ")).expect(&head).trim();
        let mut value = exactly(&mut self.0, len.parse::<usize>().expect(&head) + 2);
        assert!(value.ends_with(b"\r\n"));
        value.truncate(value.len() - 2);
        assert_eq!(line(&mut self.0), "END\r\n");
        Some(value)
    }

    fn delete(&mut self, key: &str) -> bool {
        send(&mut self.0, format!("delete {key}\r\n").as_bytes());
        let reply = line(&mut self.0);
        assert!(["DELETED\r\n", "NOT_FOUND\r\n"].contains(&reply.as_str()), "{reply}");
        reply == "DELETED\r\n"
    }
}

struct Meta(Stream);

impl Client for Meta {
    fn set(&mut self, key: &str, value: &[u8]) {
        let head = format!("ms {key} {} O1\r\n", value.len());
        send(&mut self.0, &[head.as_bytes(), value, b"\r\n"].concat());
        assert_eq!(line(&mut self.0), "HD O1\r\n");
    }

    fn get(&mut self, key: &str) -> Option<Vec<u8>> {
        send(&mut self.0, format!("mg {key} v k\r\n").as_bytes());
        let head = line(&mut self.0);
        if head == format!("EN k{key}\r\n") {
            return None;
        }
        let words: Vec<&str> = head.split_whitespace().collect();
        let ["VA", len, returned] = words[..] else { panic!("{head}") };
        assert_eq!(returned, format!("k{key}"));
        let mut value = exactly(&mut self.0, len.parse::<usize>().expect(&head) + 2);
        value.truncate(value.len() - 2);
        Some(value)
    }

    fn delete(&mut self, key: &str) -> bool {
        send(&mut self.0, format!("md {key}\r\n").as_bytes());
        let reply = line(&mut self.0);
        assert!(["HD\r\n", "NF\r\n"].contains(&reply.as_str()), "{reply}");
        reply == "HD\r\n"
    }
}

struct Binary(Stream);

impl Binary {
    /// Returns status and value of the response.
    fn exchange(&mut self, opcode: u8, extras: &[u8], key: &str, value: &[u8]) -> (u8, Vec<u8>) {
        send(&mut self.0, &frame(opcode, extras, key.as_bytes(), value));
        let header = exactly(&mut self.0, 24);
        assert_eq!(header[..2], [0x81, opcode]);
        let len = u32::from_be_bytes([header[8], header[9], header[10], header[11]]);
        let body = exactly(&mut self.0, len as usize);
        (header[7], body[usize::from(header[4])..].to_vec())
    }
}

const KEY_NOT_FOUND: u8 = 1;

impl Client for Binary {
    fn set(&mut self, key: &str, value: &[u8]) {
        assert_eq!(self.exchange(0x01, &[0; 8], key, value), (0, Vec::new()));
    }

    fn get(&mut self, key: &str) -> Option<Vec<u8>> {
        let (status, value) = self.exchange(0x00, b"", key, b"");
        assert!([0, KEY_NOT_FOUND].contains(&status), "{status}");
        (status == 0).then_some(value)
    }

    fn delete(&mut self, key: &str) -> bool {
        let (status, _) = self.exchange(0x04, b"", key, b"");
        assert!([0, KEY_NOT_FOUND].contains(&status), "{status}");
        status == 0
    }
}

struct PedroKv(Stream);

impl PedroKv {
    /// Returns the value of the response, if there is one.
    fn exchange(&mut self, kind: u8, key: &str, value: &[u8]) -> Option<Vec<u8>> {
        const ID: u32 = 0xfeed;
        send(&mut self.0, &pedrokv_request(kind, ID, key.as_bytes(), value));
        let head = exactly(&mut self.0, 7);
        assert_eq!(head[3..], ID.to_be_bytes());
        let value = exactly(&mut self.0, usize::from(u16::from_be_bytes([head[0], head[1]])) - 7);
        if head[2] != 0 {
            assert_eq!(value, b"err: not found");
            return None;
        }
        Some(value)
    }
}

impl Client for PedroKv {
    fn set(&mut self, key: &str, value: &[u8]) {
        assert_eq!(self.exchange(2, key, value), Some(Vec::new()));
    }

    fn get(&mut self, key: &str) -> Option<Vec<u8>> {
        self.exchange(1, key, b"")
    }

    fn delete(&mut self, key: &str) -> bool {
        self.exchange(3, key, b"").is_some()
    }
}

/// Sends bytes as bodies, and gets them in base64.
struct Http(Stream);

impl Http {
    /// Returns the result in JSON.
    fn exchange(&mut self, path: &str, body: &[u8]) -> String {
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nUpstash-Encoding: base64\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        send(&mut self.0, &[head.as_bytes(), body].concat());
        assert_eq!(line(&mut self.0), "HTTP/1.1 200 OK\r\n");
        let mut len = 0;
        loop {
            let header = line(&mut self.0).to_ascii_lowercase();
            if header == "\r\n" {
                break;
            }
            if let Some(text) = header.strip_prefix("content-length:") {
                len = text.trim().parse().expect(&header);
            }
        }
        let body = String::from_utf8(exactly(&mut self.0, len)).expect("JSON");
        let result = body.strip_prefix("{\"result\":").and_then(|rest| rest.strip_suffix('}'));
        result.expect(&body).to_owned()
    }
}

impl Client for Http {
    fn set(&mut self, key: &str, value: &[u8]) {
        // An empty body would be no argument. An empty part of a path is one.
        let end = if value.is_empty() { "/" } else { "" };
        assert_eq!(self.exchange(&format!("/set/{key}{end}"), value), "\"OK\"");
    }

    fn get(&mut self, key: &str) -> Option<Vec<u8>> {
        let result = self.exchange(&format!("/get/{key}"), b"");
        (result != "null").then(|| decode(result.trim_matches('"')))
    }

    fn delete(&mut self, key: &str) -> bool {
        self.exchange(&format!("/del/{key}"), b"") == "1"
    }
}

/// Decodes a text in base64.
fn decode(text: &str) -> Vec<u8> {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut bytes, mut bits, mut count) = (Vec::new(), 0_u32, 0);
    for byte in text.bytes().filter(|byte| *byte != b'=') {
        let digit = ALPHABET.iter().position(|letter| *letter == byte).expect("base64");
        (bits, count) = ((bits << 6) | digit as u32, count + 6);
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    bytes
}
