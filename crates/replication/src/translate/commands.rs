//! Appends commands as RESP.

use tierce_collections::stream::StreamId;
use tierce_wire::number::format_f64;
use tierce_wire::resp::{Encoder, Proto};

use super::Dialect;

/// Upper bound of a collection's elements in one command; the command also ends behind the element that brings it
/// to [`CHUNK_BYTES`]. This bounds the work that a replica does in one step, and the size of a Lua table or an
/// argument vector.
const CHUNK_ELEMENTS: usize = 256;

/// See [`CHUNK_ELEMENTS`].
const CHUNK_BYTES: usize = 64 << 10;

/// An argument.
#[derive(Debug, Clone, Copy)]
pub(super) enum Arg<'a> {
    Bytes(&'a [u8]),
    Signed(i64),
    Unsigned(u64),
    /// A score, printed so that it reads back as the same number.
    Score(f64),
    Id(StreamId),
}

/// Declares the types that convert to an argument.
macro_rules! become_arguments {
    ($($value:ident: $type:ty => $arg:expr,)*) => {
        $(impl<'a> From<$type> for Arg<'a> {
            fn from($value: $type) -> Self {
                $arg
            }
        })*
    };
}

become_arguments! {
    bytes: &'a [u8] => Self::Bytes(bytes),
    text: &'a str => Self::Bytes(text.as_bytes()),
    number: i64 => Self::Signed(number),
    number: u64 => Self::Unsigned(number),
    number: u32 => Self::Unsigned(number.into()),
    number: usize => Self::Unsigned(number as u64),
    score: f64 => Self::Score(score),
    id: StreamId => Self::Id(id),
}

impl Arg<'_> {
    /// Returns the number of bytes, exact for types that may be long.
    fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            _ => size_of::<u64>(),
        }
    }

    fn write(self, encoder: &mut Encoder<'_>) {
        let mut digits = itoa::Buffer::new();
        match self {
            Self::Bytes(bytes) => encoder.bulk(bytes),
            Self::Signed(number) => encoder.bulk(digits.format(number).as_bytes()),
            Self::Unsigned(number) => encoder.bulk(digits.format(number).as_bytes()),
            Self::Score(score) => encoder.bulk(&format_f64(score)),
            Self::Id(id) => encoder.bulk(id.to_string().as_bytes()),
        }
    }
}

/// Appends a command with these arguments, each of which converts to an [`Arg`].
macro_rules! push {
    ($commands:expr, $($arg:expr),+ $(,)?) => {
        $commands.push(&[$($crate::translate::commands::Arg::from($arg)),+])
    };
}
pub(super) use push;

/// Appends a command that not all readers may know ([`Commands::push_newer`]).
macro_rules! push_newer {
    ($commands:expr, $($arg:expr),+ $(,)?) => {
        $commands.push_newer(&[$($crate::translate::commands::Arg::from($arg)),+])
    };
}
pub(super) use push_newer;

/// Appends commands. Several commands in a row that all readers know become a transaction.
#[derive(Debug)]
pub(super) struct Commands<'a> {
    out: &'a mut Vec<u8>,
    /// Database of the last `SELECT`; stored in the translator.
    db: &'a mut Option<u64>,
    /// Number of commands in the transaction so far, without `SELECT`.
    count: usize,
    /// Offset of the first one.
    first: usize,
    dialect: Dialect,
}

impl<'a> Commands<'a> {
    pub(super) fn new(out: &'a mut Vec<u8>, db: &'a mut Option<u64>, dialect: Dialect) -> Self {
        Self { out, db, count: 0, first: 0, dialect }
    }

    /// Selects the database of the following commands.
    #[inline]
    pub(super) fn select(&mut self, db: u64) {
        if *self.db != Some(db) {
            self.select_another(db);
        }
    }

    #[cold]
    fn select_another(&mut self, db: u64) {
        *self.db = Some(db);
        write(self.out, &[Arg::from("SELECT"), Arg::from(db)]);
    }

    /// Appends a command.
    pub(super) fn push(&mut self, args: &[Arg<'_>]) {
        match self.count {
            0 => self.first = self.out.len(),
            1 => {
                let mut multi = Vec::new();
                write(&mut multi, &[Arg::from("MULTI")]);
                self.out.splice(self.first..self.first, multi);
            }
            _ => {}
        }
        self.count += 1;
        write(self.out, args);
    }

    /// Appends the only command of a record that puts a string.
    pub(super) fn set(self, key: &[u8], value: &[u8]) {
        // One reservation suffices, except for the longest.
        self.out.reserve(key.len() + value.len() + 64);
        self.out.extend_from_slice(b"*3\r\n$3\r\nSET\r\n");
        let mut encoder = Encoder::new(self.out, Proto::Resp2);
        encoder.bulk(key);
        encoder.bulk(value);
    }

    /// Appends a command that only newer servers know, or with arguments that only these know. A reader that does
    /// not know it would refuse the whole transaction around it. So unless the configuration states what all
    /// readers know, this command is placed between two transactions: the order stays, and only it can fail.
    pub(super) fn push_newer(&mut self, args: &[Arg<'_>]) {
        if self.dialect == Dialect::Tierce {
            self.end_transaction();
            write(self.out, args);
        } else {
            self.push(args);
        }
    }

    /// Ends the transaction, if there is one.
    pub(super) fn finish(mut self) {
        self.end_transaction();
    }

    fn end_transaction(&mut self) {
        if self.count > 1 {
            write(self.out, &[Arg::from("EXEC")]);
        }
        self.count = 0;
    }

    /// Appends commands that start with `head` and have some of the items each, until all items are written.
    pub(super) fn push_chunks<'i, const LEN: usize>(
        &mut self,
        head: &[Arg<'i>],
        items: impl Iterator<Item = [Arg<'i>; LEN]>,
        tail: &[Arg<'i>],
    ) {
        let mut args = head.to_vec();
        let mut bytes = 0;
        for item in items {
            bytes += item.iter().map(Arg::len).sum::<usize>();
            args.extend(item);
            if (args.len() - head.len()) / LEN >= CHUNK_ELEMENTS || bytes >= CHUNK_BYTES {
                args.extend(tail);
                self.push(&args);
                args.truncate(head.len());
                bytes = 0;
            }
        }
        if args.len() > head.len() {
            args.extend(tail);
            self.push(&args);
        }
    }
}

/// Appends a command.
fn write(out: &mut Vec<u8>, args: &[Arg<'_>]) {
    let mut encoder = Encoder::new(out, Proto::Resp2);
    encoder.array(args.len());
    args.iter().for_each(|arg| arg.write(&mut encoder));
}
