//! Attacks: each opens a connection and leaves it in some state. The abuser decides how it ends.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};

use super::abuser::{ATTENTION, Victim};
use super::bytes::{self, LANGUAGES, Language};
use super::target::{Door, Target};
use crate::{Random, TlsStream, encode};

type Attack = fn(&Target, &mut Random) -> io::Result<Victim>;

/// All attacks. Each is equally frequent.
pub(super) const ATTACKS: &[(&str, Attack)] = &[
    ("requests cut anywhere", requests),
    ("damaged requests", damaged),
    ("damaged requests", damaged),
    ("garbage", garbage),
    ("another protocol", another_protocol),
    ("announcements and nesting", monsters),
    ("a reader that never reads", never_reads),
    ("a byte at a time", slowly),
    ("half a handshake", half_a_handshake),
    ("damaged TLS session", damaged_session),
    ("a second handshake", second_handshake),
    ("wrong passwords", wrong_passwords),
];

fn requests(target: &Target, random: &mut Random) -> io::Result<Victim> {
    let (door, language) = plain_door(target, random);
    let bytes = bytes::pipeline(language, random);
    speak(connect(door)?, &bytes, random)
}

fn damaged(target: &Target, random: &mut Random) -> io::Result<Victim> {
    let (door, language) = plain_door(target, random);
    let bytes = bytes::damage(bytes::pipeline(language, random), random);
    speak(connect(door)?, &bytes, random)
}

fn garbage(target: &Target, random: &mut Random) -> io::Result<Victim> {
    let len = random.below(3000);
    let bytes = random.bytes(len);
    speak(connect(any_door(target, random))?, &bytes, random)
}

/// Text on a port for TLS, a TLS handshake on a plain one, and each protocol on the ports of the others.
fn another_protocol(target: &Target, random: &mut Random) -> io::Result<Victim> {
    let door = any_door(target, random);
    let bytes = match random.below(LANGUAGES.len() + 1) {
        number if number < LANGUAGES.len() => bytes::pipeline(LANGUAGES[number], random),
        _ => client_hello(target),
    };
    speak(connect(door)?, &bytes, random)
}

fn monsters(target: &Target, random: &mut Random) -> io::Result<Victim> {
    let bytes = bytes::monster(random);
    speak(connect(any_door(target, random))?, &bytes, random)
}

/// Asks for much, and reads none of it.
fn never_reads(target: &Target, random: &mut Random) -> io::Result<Victim> {
    let key = bytes::key(random.below(bytes::KEYS));
    let value = vec![b'v'; 100_000];
    let (language, set, get) = match random.below(4) {
        0 => {
            let set =
                [format!("set x:1 0 0 {}\r\n", value.len()).as_bytes(), &value, b"\r\n"].concat();
            (Language::Text, set, b"get x:1\r\n".to_vec())
        }
        1 => {
            let get = bytes::pedrokv_request(1, 7, &key, b"");
            (Language::PedroKv, bytes::pedrokv_request(2, 6, &key, &value[..60_000]), get)
        }
        2 => {
            let monitor = encode(&["MONITOR"]);
            (Language::Resp, monitor, encode(&["ECHO", &"m".repeat(100)]))
        }
        _ => {
            let set = encode(&[b"SET", key.as_slice(), &value]);
            (Language::Resp, set, encode(&[b"GET", key.as_slice()]))
        }
    };
    let bytes = [set, get.repeat(random.below(200))].concat();
    speak(connect(target.door(language, false))?, &bytes, random)
}

/// Begins a request whose rest comes later, or never.
fn slowly(target: &Target, random: &mut Random) -> io::Result<Victim> {
    let (door, language) = plain_door(target, random);
    let bytes = match random.below(4) {
        0 => client_hello(target),
        _ => bytes::pipeline(language, random),
    };
    let door = if random.one_in(4) { any_door(target, random) } else { door };
    let mut victim = Victim { stream: connect(door)?, rest: bytes.into() };
    for byte in victim.rest.drain(..random.below(3).min(victim.rest.len())).collect::<Vec<_>>() {
        victim.stream.write_all(&[byte])?;
    }
    Ok(victim)
}

/// Sends a client hello, complete, truncated or damaged, followed by any bytes.
fn half_a_handshake(target: &Target, random: &mut Random) -> io::Result<Victim> {
    let door = encrypted_door(target, random);
    let mut hello = client_hello(target);
    match random.below(4) {
        0 => hello.truncate(random.below(hello.len())),
        1 => hello = bytes::damage(hello, random),
        2 => hello = hello.repeat(1 + random.below(20)),
        _ => {}
    }
    speak(connect(door)?, &hello, random)
}

/// Sends requests over TLS, and then bytes that are no records.
fn damaged_session(target: &Target, random: &mut Random) -> io::Result<Victim> {
    let door = encrypted_door(target, random);
    let language = door.languages[random.below(door.languages.len())];
    let mut session = session(target, door)?;
    let requests = bytes::pipeline(language, random);
    let requests = if random.one_in(2) { bytes::damage(requests, random) } else { requests };
    session.write_all(&requests)?;
    if random.one_in(2) {
        let _ = session.read(&mut [0; 4096]);
    }
    let garbage = match random.below(3) {
        0 => Vec::new(),
        1 => random.bytes(100),
        // A TLS record of the greatest length, with random bytes instead of ciphertext.
        _ => [b"\x17\x03\x03\x40\x00".to_vec(), random.bytes(0x4000)].concat(),
    };
    speak(session.sock, &garbage, random)
}

/// Sends handshakes within a session, which were renegotiation up to TLS 1.2, and endless warnings.
fn second_handshake(target: &Target, random: &mut Random) -> io::Result<Victim> {
    let mut session = session(target, encrypted_door(target, random))?;
    if random.one_in(2) {
        let _ = session.write_all(b"PING\r\n");
    }
    let again = match random.below(3) {
        0 => client_hello(target),
        1 => b"\x16\x03\x03\x00\x04\x00\x00\x00\x00".repeat(1 + random.below(50)),
        _ => b"\x15\x03\x03\x00\x02\x01\x64".repeat(1 + random.below(50)),
    };
    speak(session.sock, &again, random)
}

fn wrong_passwords(target: &Target, random: &mut Random) -> io::Result<Victim> {
    let (language, request) = match random.below(4) {
        0 => (Language::Resp, encode(&["AUTH", "ann", "wrong"])),
        1 => (Language::Resp, encode(&["HELLO", "3", "AUTH", "ann", "wrong", "SETNAME", "x"])),
        2 => (Language::Binary, bytes::frame(0x21, b"", b"PLAIN", b"\0ann\0wrong")),
        _ => {
            let request = b"GET /ping HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic YW5uOndyb25n\r\n\r\n";
            (Language::Http, request.to_vec())
        }
    };
    let requests = request.repeat(1 + random.below(20));
    speak(connect(target.door(language, false))?, &requests, random)
}

fn any_door(target: &Target, random: &mut Random) -> Door {
    target.doors[random.below(target.doors.len())]
}

fn plain_door(target: &Target, random: &mut Random) -> (Door, Language) {
    let language = LANGUAGES[random.below(LANGUAGES.len())];
    (target.door(language, false), language)
}

fn encrypted_door(target: &Target, random: &mut Random) -> Door {
    let encrypted: Vec<_> = target.doors.iter().filter(|door| door.is_encrypted).collect();
    *encrypted[random.below(encrypted.len())]
}

fn connect(door: Door) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(door.address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(ATTENTION))?;
    stream.set_write_timeout(Some(ATTENTION))?;
    Ok(stream)
}

/// Sends bytes in a few pieces, or some of them, and perhaps reads in between.
fn speak(mut stream: TcpStream, bytes: &[u8], random: &mut Random) -> io::Result<Victim> {
    let end = if random.one_in(4) { random.below(bytes.len() + 1) } else { bytes.len() };
    let mut at = 0;
    for _ in 0..random.below(4) {
        let cut = at + random.below(end - at + 1);
        stream.write_all(&bytes[at..cut])?;
        at = cut;
        if random.one_in(3) {
            let _ = stream.read(&mut [0; 512]);
        }
    }
    stream.write_all(&bytes[at..end])?;
    Ok(Victim { stream, rest: bytes[end..].iter().copied().collect::<VecDeque<_>>() })
}

fn client(target: &Target) -> ClientConnection {
    let name = ServerName::try_from("localhost").expect("a name");
    ClientConnection::new(Arc::clone(&target.tls), name).expect("a client")
}

/// Returns the first message of a TLS client.
fn client_hello(target: &Target) -> Vec<u8> {
    let mut hello = Vec::new();
    client(target).write_tls(&mut hello).expect("a vector takes everything");
    hello
}

/// Opens a session and completes its handshake.
fn session(target: &Target, door: Door) -> io::Result<TlsStream> {
    let stream = connect(door)?;
    stream.set_read_timeout(Some(ATTENTION * 100))?;
    let mut session = StreamOwned::new(client(target), stream);
    session.conn.complete_io(&mut session.sock)?;
    session.sock.set_read_timeout(Some(ATTENTION))?;
    Ok(session)
}
