//! Notes large requests and replies in their logs.
//!
//! Workers compare the bytes of a whole batch with the limits, and look at its requests only if one of them may be
//! large. The lengths of its replies are then found in the output. On other threads each call is compared.

use tierce_output::Piece;
use tierce_wire::resp::{Args, ReplyScanner};

use crate::clients::Client;
use crate::command::Command;
use crate::command_log::{self, LogKind};
use crate::hot_keys;
use crate::kernel::Kernel;
use crate::pipeline::meter::Accounted;

/// Maximum number of bytes around an argument of a request, and in front of the first one.
const FRAME_BYTES_MAX: usize = 25;

/// The limits of the logs, and the logs.
#[derive(Clone, Copy)]
pub struct Sizes<'k>(pub &'k Kernel);

impl Sizes<'_> {
    /// Returns true if one of some requests may be large, or one of their replies. The numbers are those of all their
    /// bytes.
    #[inline]
    pub fn may_be_large(self, request_bytes: usize, reply_bytes: usize) -> bool {
        let live = self.0.config.live();
        is_large(request_bytes, live.large_request_bytes_min())
            || is_large(reply_bytes, live.large_reply_bytes_min())
    }

    /// Notes a call that has run, if it is large: its arguments, or its reply of so many bytes.
    pub fn note(self, call: (&Command, Args<'_>), client: &Client, reply_bytes: usize) {
        let (_, args) = call;
        let framing_max = FRAME_BYTES_MAX * (args.len() + 1);
        if self.may_be_large(args.bytes_len() + framing_max, 0) {
            self.note_request(call, client, hot_keys::request_bytes(args));
        }
        self.note_reply(call, client, reply_bytes);
    }

    /// Notes the request of a call that has run, if it is large.
    pub fn note_request(self, call: (&Command, Args<'_>), client: &Client, bytes: usize) {
        if is_large(bytes, self.0.config.live().large_request_bytes_min()) {
            self.note_large(LogKind::LargeRequest, call, client, bytes);
        }
    }

    /// Notes the reply of a call, if it is large.
    #[inline]
    pub fn note_reply(self, call: (&Command, Args<'_>), client: &Client, bytes: usize) {
        if is_large(bytes, self.0.config.live().large_reply_bytes_min()) {
            self.note_large(LogKind::LargeReply, call, client, bytes);
        }
    }

    #[cold]
    fn note_large(
        self,
        kind: LogKind,
        (command, args): (&Command, Args<'_>),
        client: &Client,
        bytes: usize,
    ) {
        if command.is_logged() {
            let Self(kernel) = self;
            let words = command_log::shorten(&kernel.commands, args);
            let entry = client.log_entry(bytes as u64, words);
            kernel.command_logs.of(kind).lock().push(entry, kernel.log_max_len(kind));
        }
    }
}

/// Returns true if so many bytes reach the limit. A negative limit is none.
#[inline]
fn is_large(bytes: usize, limit: i64) -> bool {
    // As an unsigned number it is higher than any size.
    bytes as u64 >= limit as u64
}

/// Returns the lengths of the replies in some output, without the messages between them. Empty if it is no sequence of
/// replies.
pub fn lengths_of_replies<'a>(pieces: impl Iterator<Item = Piece<'a>>) -> Vec<usize> {
    let mut scanner = ReplyScanner::new();
    let (mut lengths, mut length) = (Vec::new(), 0);
    for piece in pieces {
        let mut rest = piece.bytes();
        while !rest.is_empty() {
            let Ok(scanned) = scanner.scan_one(rest) else { return Vec::new() };
            if scanned.consumed == 0 {
                return Vec::new();
            }
            rest = &rest[scanned.consumed..];
            length += scanned.consumed;
            if scanned.replies > 0 {
                lengths.push(length);
            }
            if scanned.replies + scanned.pushes > 0 {
                length = 0;
            }
        }
    }
    lengths
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tierce_output::Output;

    use super::*;

    #[test]
    fn a_negative_limit_is_none() {
        assert!(is_large(0, 0) && is_large(5, 5) && !is_large(4, 5));
        assert!(!is_large(usize::MAX >> 1, -1));
    }

    #[test]
    fn replies_are_measured_across_pieces_and_without_messages() {
        let mut output = Output::new();
        let large = vec![b'x'; 100_000];
        output.buffer().extend_from_slice(b"+OK\r\n>2\r\n$1\r\na\r\n$1\r\nb\r\n*2\r\n$100000\r\n");
        output.attach(Arc::new(large));
        output.buffer().extend_from_slice(b"\r\n:1\r\n-ERR no\r\n");
        let lengths = lengths_of_replies(output.pieces(output.part()));
        assert_eq!(lengths, [5, 4 + 9 + 100_000 + 2 + 4, 9]);
        output.buffer().extend_from_slice(b"?");
        assert!(lengths_of_replies(output.pieces(output.part())).is_empty());
    }
}
