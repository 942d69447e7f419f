//! A link against simulated primaries, with input split at any byte, and against garbage.

use proptest::prelude::*;
use tierce_harness::effort;

use super::handshake::push_command;
use super::*;

/// State that a driver derives from the events.
#[derive(Debug, Default, PartialEq, Eq)]
struct Replica {
    position: Option<Position>,
    is_copying: bool,
    file: Vec<u8>,
    copies: usize,
    commands: Vec<(Vec<Vec<u8>>, u64)>,
    /// Bytes of the stream.
    stream: Vec<u8>,
}

impl Replica {
    /// Passes bytes to the link, and handles all events.
    fn receive(&mut self, link: &mut Link, bytes: &[u8]) -> Result<(), LinkError> {
        link.receive(bytes);
        while let Some(event) = link.next()? {
            match event {
                Event::Copy(position) => {
                    assert!(!self.is_copying);
                    (self.position, self.is_copying) = (Some(position), true);
                    self.file.clear();
                }
                Event::Payload(bytes) => {
                    assert!(self.is_copying && !bytes.is_empty());
                    self.file.extend_from_slice(bytes);
                }
                Event::CopyEnds => {
                    self.is_copying = false;
                    self.copies += 1;
                }
                Event::Continues(position) => self.position = Some(position),
                Event::Command { args, bytes, offset } => {
                    assert!(!self.is_copying);
                    self.stream.extend_from_slice(bytes);
                    self.position.as_mut().expect("a stream").offset = offset;
                    self.commands.push((args.iter().map(<[u8]>::to_vec).collect(), offset));
                }
                Event::Blank(bytes) => {
                    self.stream.extend_from_slice(bytes);
                    self.position.as_mut().expect("a stream").offset += bytes.len() as u64;
                }
            }
        }
        Ok(())
    }
}

fn id(digit: u8) -> ReplicationId {
    ReplicationId::from_random([digit; 20])
}

fn introduction() -> Introduction {
    let (user, password) = (Some(b"ann".to_vec()), Some(b"secret".to_vec()));
    let address = Some(b"10.0.0.1".to_vec());
    Introduction { user, password, port: 7001, address, hands_over: false }
}

/// Returns the commands as the bytes of a stream.
fn stream(commands: &[Vec<Vec<u8>>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for command in commands {
        push_command(&mut bytes, &command.iter().map(Vec::as_slice).collect::<Vec<_>>());
    }
    bytes
}

/// Returns all bytes that a primary sends for a full copy.
fn full_copy(file: &[u8], has_mark: bool, commands: &[Vec<Vec<u8>>]) -> Vec<u8> {
    let mut said = b"+PONG\r\n+OK\r\n+OK\r\n\n-ERR unknown option\r\n+OK\r\n\n\n".to_vec();
    said.extend_from_slice(format!("+FULLRESYNC {} 1000\r\n\n\n", id(1)).as_bytes());
    if has_mark {
        said.extend_from_slice(format!("$EOF:{}\r\n", "m".repeat(40)).as_bytes());
        said.extend_from_slice(file);
        said.extend_from_slice(&[b'm'; 40]);
    } else {
        said.extend_from_slice(format!("${}\r\n", file.len()).as_bytes());
        said.extend_from_slice(file);
    }
    said.extend(stream(commands));
    said
}

fn words(line: &str) -> Vec<Vec<u8>> {
    line.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}

#[test]
fn a_handshake_asks_one_thing_after_the_other() {
    let position = Position { id: id(7), offset: 41 };
    let mut link = Link::new(&introduction(), Some(position));
    let mut replica = Replica::default();
    let psync = format!("PSYNC {} 42", id(7));
    let steps = [
        ("PING", "-NOAUTH Authentication required.\r\n"),
        ("AUTH ann secret", "+OK\r\n"),
        ("REPLCONF listening-port 7001", "+OK\r\n"),
        ("REPLCONF ip-address 10.0.0.1", "-ERR Unrecognized REPLCONF option\r\n"),
        ("REPLCONF capa eof capa psync2", "+OK\r\n"),
        (psync.as_str(), "+CONTINUE\r\n"),
    ];
    for (asked, reply) in steps {
        assert_eq!(link.take_output(), stream(&[words(asked)]), "{asked}");
        assert!(!link.is_streaming());
        replica.receive(&mut link, reply.as_bytes()).unwrap();
    }
    assert!(link.is_streaming());
    assert_eq!(replica.position, Some(position));
    link.acknowledge(41, None);
    link.acknowledge(50, Some(45));
    let acks = stream(&[words("REPLCONF ACK 41"), words("REPLCONF ACK 50 FACK 45")]);
    assert_eq!(link.take_output(), acks);
}

#[test]
fn without_a_password_and_a_place_less_is_said() {
    let mut link = Link::new(&Introduction { port: 1, ..Introduction::default() }, None);
    let mut replica = Replica::default();
    let steps =
        ["PING", "REPLCONF listening-port 1", "REPLCONF capa eof capa psync2", "PSYNC ? -1"];
    for asked in steps {
        assert_eq!(link.take_output(), stream(&[words(asked)]));
        if asked != "PSYNC ? -1" {
            replica.receive(&mut link, b"+OK\r\n").unwrap();
        }
    }
    // The replica has no position to continue from.
    let error = replica.receive(&mut link, b"+CONTINUE\r\n").unwrap_err();
    assert!(matches!(error, LinkError::NoReply { step: "PSYNC", .. }), "{error}");
    assert!(replica.receive(&mut link, b"+FULLRESYNC").is_ok(), "after an error nothing follows");
}

#[test]
fn the_stream_may_get_another_name() {
    let mut link = Link::new(&Introduction::default(), Some(Position { id: id(1), offset: 10 }));
    let mut replica = Replica::default();
    let said = format!("+PONG\r\n+OK\r\n+OK\r\n+CONTINUE {}\r\n*1\r\n$4\r\nPING\r\n", id(2));
    replica.receive(&mut link, said.as_bytes()).unwrap();
    assert_eq!(replica.position, Some(Position { id: id(2), offset: 24 }));
}

/// The link passes them on with the stream, and counts them.
#[test]
fn empty_lines_are_a_part_of_the_stream() {
    let said = full_copy(b"", false, &[]);
    let lines: [&[u8]; 5] =
        [b"\n", b"\r\n*1\r\n$4\r\nPING\r\n", b"\n\n*1\r\n", b"$4\r\nPING\r\n\r", b"\n\n"];
    for cut in [1, 2, 3, 100] {
        let (mut link, mut replica) = (Link::new(&introduction(), None), Replica::default());
        replica.receive(&mut link, &said).unwrap();
        for piece in lines.concat().chunks(cut) {
            replica.receive(&mut link, piece).unwrap();
        }
        assert_eq!(replica.commands.len(), 2);
        assert_eq!(replica.stream, lines.concat());
        assert_eq!(replica.position.unwrap().offset, 1000 + replica.stream.len() as u64);
    }
}

#[test]
fn refusals_and_nonsense_have_their_errors() {
    let port = "REPLCONF listening-port";
    let long = "x".repeat(LINE_LEN_MAX);
    let forty = "0".repeat(40);
    #[rustfmt::skip]
    let cases = [
        ("-ERR go away\r\n".to_owned(), "the primary refuses PING: ERR go away".to_owned()),
        ("-ERR go away \r\r\n".to_owned(), "the primary refuses PING: ERR go away".to_owned()),
        ("-LOADING wait\r\n".into(), "the primary cannot serve replicas now: LOADING wait".into()),
        ("HTTP/1.1 400\r\n".into(), "instead of a reply to PING came: HTTP/1.1 400".into()),
        ("+PONG\r\n-WRONGPASS no\r\n".into(), "the primary refuses AUTH: WRONGPASS no".into()),
        ("+PONG\r\n+OK\r\n:1\r\n".into(), format!("instead of a reply to {port} came: :1")),
        ("+PONG\r\n+OK\r\n+OK\r\n+OK\r\n+OK\r\n-ERR unknown command\r\n".into(),
            "the primary refuses PSYNC: ERR unknown command".into()),
        ("+PONG\r\n+OK\r\n+OK\r\n+OK\r\n+OK\r\n-NOMASTERLINK wait\r\n".into(),
            "the primary cannot serve replicas now: NOMASTERLINK wait".into()),
        ("+PONG\r\n+OK\r\n+OK\r\n+OK\r\n+OK\r\n+FULLRESYNC short 1\r\n".into(),
            "instead of a reply to PSYNC came: +FULLRESYNC short 1".into()),
        (format!("+PONG\r\n+OK\r\n+OK\r\n+OK\r\n+OK\r\n+FULLRESYNC {forty} -1\r\n"),
            format!("instead of a reply to PSYNC came: +FULLRESYNC {forty} -1")),
        (format!("+PONG\r\n+OK\r\n+OK\r\n+OK\r\n+OK\r\n+FULLRESYNC {forty} 9223372036854775807\r\n"),
            format!("instead of a reply to PSYNC came: +FULLRESYNC {forty} 9223372036854775807")),
        (format!("+PONG\r\n+OK\r\n+OK\r\n+OK\r\n+OK\r\n+FULLRESYNC {forty} 1\r\n$-5\r\n"),
            "instead of a reply to full copy came: $-5".into()),
        (format!("+PONG\r\n+OK\r\n+OK\r\n+OK\r\n+OK\r\n+FULLRESYNC {forty} 1\r\n-ERR disk\r\n"),
            "the primary cannot serve replicas now: ERR disk".into()),
        (format!("+PONG\r\n+OK\r\n+OK\r\n+OK\r\n+OK\r\n+FULLRESYNC {forty} 1\r\n$0\r\n*1\r\nx\r\n"),
            "at offset 1 of the stream there is no command: Protocol error: expected '$', got 'x'".into()),
        (long, format!("a line of more than {LINE_LEN_MAX} bytes came in reply to PING")),
    ];
    for (said, expected) in cases {
        let mut link = Link::new(&introduction(), None);
        let error = Replica::default().receive(&mut link, said.as_bytes()).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn a_declared_length_takes_no_memory() {
    for head in ["$9223372036854775807\r\n", "$0\r\n*1\r\n$4000000000\r\n", "$0\r\n*2147483647\r\n"]
    {
        let mut link = Link::new(&introduction(), None);
        let said = full_copy(b"", false, &[]);
        let said = said.strip_suffix(b"$0\r\n").unwrap();
        let mut replica = Replica::default();
        replica.receive(&mut link, &[said, head.as_bytes(), &[b'x'; 100]].concat()).ok();
        let spans = link.stream.parser.memory_bytes() + link.stream.batch.memory_bytes();
        assert!(link.input.capacity() + spans < 1 << 20);
    }
}

#[test]
fn of_a_file_little_is_kept() {
    for has_mark in [false, true] {
        let mut link = Link::new(&introduction(), None);
        let mut replica = Replica::default();
        let file = vec![b'f'; 4 << 20];
        for piece in full_copy(&file, has_mark, &[]).chunks(16 << 10) {
            replica.receive(&mut link, piece).unwrap();
            assert!(link.input.capacity() <= 256 << 10, "{}", link.input.capacity());
        }
        assert!(replica.file == file && !replica.is_copying);
    }
}

/// A connection that breaks at any byte gives the same data, with the remaining bytes on the next link.
#[test]
fn cut_at_every_byte_it_goes_on_where_it_was() {
    let commands = ["SELECT 3", "SET k v", "PING", "RPUSH l a b c", "REPLCONF GETACK *"].map(words);
    for has_mark in [false, true] {
        let said = full_copy(b"REDIS0010 the file, mmmm.", has_mark, &commands);
        let mut whole = Replica::default();
        whole.receive(&mut Link::new(&introduction(), None), &said).unwrap();
        assert_eq!(whole.commands.len(), commands.len());
        let base = 1000;
        let all = stream(&commands);
        assert_eq!(whole.position, Some(Position { id: id(1), offset: base + all.len() as u64 }));
        for cut in 0..said.len() {
            let mut replica = Replica::default();
            replica.receive(&mut Link::new(&introduction(), None), &said[..cut]).unwrap();
            if replica.copies == 0 {
                // An incomplete copy is discarded.
                let mut again = Replica::default();
                again.receive(&mut Link::new(&introduction(), None), &said).unwrap();
                assert_eq!(again, whole);
                continue;
            }
            let position = replica.position.unwrap();
            let mut link = Link::new(&introduction(), Some(position));
            let mut rest = b"+PONG\r\n+OK\r\n+OK\r\n+OK\r\n+OK\r\n+CONTINUE\r\n".to_vec();
            rest.extend_from_slice(&all[(position.offset - base) as usize..]);
            replica.receive(&mut link, &rest).unwrap();
            assert_eq!(replica, whole, "cut at {cut}");
        }
    }
}

fn command() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let word = prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..40),
        // Longer than one read.
        (any::<u8>(), 0..5000_usize).prop_map(|(byte, len)| vec![byte; len]),
    ];
    proptest::collection::vec(word, 1..6)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(effort(128)))]

    #[test]
    fn how_bytes_arrive_makes_no_difference(
        file in proptest::collection::vec(prop_oneof![Just(b'm'), any::<u8>()], 0..3000),
        has_mark in any::<bool>(),
        commands in proptest::collection::vec(command(), 0..200),
        cuts in proptest::collection::vec(1..2000_usize, 1..50),
    ) {
        // A real mark is random, and occurs in no file.
        let has_mark = has_mark && !file.windows(40).any(|bytes| bytes == [b'm'; 40])
            && file.last() != Some(&b'm');
        let said = full_copy(&file, has_mark, &commands);
        let mut replica = Replica::default();
        let mut link = Link::new(&introduction(), None);
        let (mut rest, mut cuts) = (&said[..], cuts.into_iter().cycle());
        while !rest.is_empty() {
            let (piece, behind) = rest.split_at(cuts.next().unwrap().min(rest.len()));
            replica.receive(&mut link, piece).unwrap();
            rest = behind;
        }
        prop_assert!(replica.file == file);
        let got: Vec<_> = replica.commands.iter().map(|(command, _)| command.clone()).collect();
        prop_assert!(got == commands);
        prop_assert!(replica.stream == stream(&commands));
        let mut offset = 1000;
        for (command, end) in &replica.commands {
            offset += stream(std::slice::from_ref(command)).len() as u64;
            prop_assert_eq!(*end, offset);
        }
    }

    #[test]
    fn any_bytes_are_events_or_an_error(
        prefix in 0..400_usize,
        garbage in proptest::collection::vec(prop_oneof![
            any::<u8>(), Just(b'\n'), Just(b'$'), Just(b'*'), Just(b'+'), Just(b'-'), b'0'..=b'9',
        ], 0..600),
        cut in 1..100_usize,
    ) {
        let said = full_copy(b"a file", true, &[words("SET k v"), words("GET k")]);
        let bytes = [&said[..prefix.min(said.len())], &garbage].concat();
        let mut link = Link::new(&introduction(), None);
        let mut replica = Replica::default();
        let mut error = None;
        for piece in bytes.chunks(cut) {
            error = error.or(replica.receive(&mut link, piece).err());
        }
        if let Some(error) = error {
            let text = error.to_string();
            prop_assert!(!text.is_empty() && text.bytes().all(|byte| byte != b'\n'), "{}", text);
            prop_assert_eq!(link.step(), "nothing");
        }
    }
}
