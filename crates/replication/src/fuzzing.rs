//! Body of the fuzz target for links; see `tierce_wire::fuzzing`.
//!
//! It panics when a guarantee is violated. Not part of the crate's interface.

use std::fmt::Write as _;

use crate::identity::ReplicationId;
use crate::link::{Event, Introduction, Link, LinkError, Position};

/// Checks that events and requests of a replica do not depend on how the primary's bytes were split.
pub fn replication_link(data: &[u8]) {
    let Some((&parameters, input)) = data.split_first() else { return };
    let has_position = parameters % 2 == 1;
    let piece = 1 + usize::from(parameters / 2);
    assert_eq!(heard(input, has_position, piece), heard(input, has_position, input.len().max(1)));
}

/// Returns the events, the output, and the result of a link that receives an input in pieces.
fn heard(
    input: &[u8],
    has_position: bool,
    piece: usize,
) -> (String, Vec<u8>, Result<(), LinkError>) {
    let introduction =
        Introduction { password: Some(b"secret".to_vec()), ..Introduction::default() };
    let id = ReplicationId::from_random([7; 20]);
    let mut link = Link::new(&introduction, has_position.then_some(Position { id, offset: 41 }));
    let mut events = String::new();
    let mut file = Vec::new();
    let ended = input.chunks(piece).try_for_each(|bytes| {
        link.receive(bytes);
        while let Some(event) = link.next()? {
            match event {
                // Pieces of a file and the grouping of empty lines may depend on the split.
                Event::Payload(bytes) | Event::Blank(bytes) => file.extend_from_slice(bytes),
                Event::Command { args, bytes, offset } => {
                    file.extend_from_slice(bytes);
                    writeln!(events, "{args:?} {offset}").expect("a string");
                }
                other => writeln!(events, "{} {other:?}", file.len()).expect("a string"),
            }
        }
        Ok(())
    });
    assert!(file.len() <= input.len());
    (events, [file, link.take_output()].concat(), ended)
}

#[cfg(test)]
#[test]
fn fuzz_smoke() {
    const ID: &str = "0707070707070707070707070707070707070707";
    let copy = |head: &str| {
        format!("\x02+PONG\r\n+OK\r\n+OK\r\n\n+OK\r\n+FULLRESYNC {ID} 1000\r\n\n{head}")
    };
    let mark = "m".repeat(40);
    let (counted, marked) = (copy("$4\r\nfile"), copy(&format!("$EOF:{mark}\r\nfile{mark}")));
    let command = "\n*1\r\n$4\r\nPING\r\n*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$0\r\n\r\n";
    let continues = format!("\x03+PONG\r\n+OK\r\n+OK\r\n+OK\r\n+CONTINUE {ID}\r\n{command}");
    tierce_harness::fuzz_smoke(
        replication_link,
        b"+-$*\r\n0123456789m EOFCNTIU\0",
        &[
            [counted.as_bytes(), command.as_bytes()].concat().as_slice(),
            [marked.as_bytes(), command.as_bytes()].concat().as_slice(),
            continues.as_bytes(),
            b"\x05-NOAUTH no\r\n-WRONGPASS no\r\n",
            b"\x01-LOADING wait\r\n",
        ],
    );
}
