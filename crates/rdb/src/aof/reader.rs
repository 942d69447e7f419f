//! Reads one append-only file.

use std::io::Read;

use crate::error::{Error, Result};
use crate::format::MAGIC;
use crate::input::{Input, Summing};
use crate::reader::{self, Event};
use crate::value::ValuePart;

/// Longest line: a length, or an annotation. Redis' limit is 128 bytes.
const LINE_LEN_MAX: usize = 1024;

/// Next item in an append-only file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Item {
    /// An event of the RDB preamble.
    Rdb(Event),
    /// A command with its arguments, at least one.
    Command(Vec<Vec<u8>>),
    /// Time at which the following commands were executed, in seconds since 1970.
    Timestamp(u64),
}

/// Reads an append-only file, with or without an RDB preamble.
///
/// A file that ends inside a command or a transaction gives [`Error::Truncated`]. That is no damage: a crash causes
/// it. [`complete_up_to`](Self::complete_up_to) then returns the length of the complete part. A caller that applies
/// commands should buffer those after `MULTI` until the `EXEC` has come.
#[derive(Debug)]
pub struct Reader<R> {
    stage: Stage<R>,
    /// Offset up to which the file is complete.
    complete_up_to: u64,
    transaction: Transaction,
}

#[derive(Debug)]
enum Stage<R> {
    Rdb(Box<reader::Reader<R>>),
    Commands(Input<R>),
    /// Placeholder while `Rdb` becomes `Commands`.
    Between,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transaction {
    Open,
    None,
}

impl<R: Read> Reader<R> {
    /// Detects an RDB preamble. The reader need not be buffered.
    ///
    /// # Errors
    /// Fails if the preamble has an unknown version, or if nothing can be read.
    pub fn new(reader: R) -> Result<Self> {
        let mut input = Input::new(reader, Summing::On);
        let stage = if input.peek(MAGIC.len())?.starts_with(MAGIC) {
            Stage::Rdb(Box::new(reader::Reader::on(input)?))
        } else {
            input.stop_summing();
            Stage::Commands(input)
        };
        Ok(Reader { stage, complete_up_to: 0, transaction: Transaction::None })
    }

    /// Returns the number of bytes read so far, for a progress bar.
    pub fn offset(&self) -> u64 {
        match &self.stage {
            Stage::Rdb(rdb) => rdb.offset(),
            Stage::Commands(input) => input.offset(),
            Stage::Between => self.complete_up_to,
        }
    }

    /// Returns the length to which a file can be truncated without losing a complete command.
    pub fn complete_up_to(&self) -> u64 {
        self.complete_up_to
    }

    /// Returns the next item; `None` at the end.
    ///
    /// # Errors
    /// Fails if the file is damaged or truncated, or cannot be read. Nothing can be read after that.
    pub fn next_item(&mut self) -> Result<Option<Item>> {
        if let Stage::Rdb(rdb) = &mut self.stage {
            match rdb.next_event()? {
                Some(event) => return Ok(Some(Item::Rdb(event))),
                None => self.leave_rdb(),
            }
        }
        let Stage::Commands(input) = &mut self.stage else { return Ok(None) };
        loop {
            match input.peek(1)?.first() {
                None if self.transaction == Transaction::Open => {
                    return Err(input.truncated("the end of a transaction"));
                }
                None => return Ok(None),
                Some(b'#') => {
                    let timestamp = annotation(input)?;
                    if self.transaction == Transaction::None {
                        self.complete_up_to = input.offset();
                    }
                    if let Some(seconds) = timestamp {
                        return Ok(Some(Item::Timestamp(seconds)));
                    }
                }
                Some(_) => break,
            }
        }
        let args = command(input)?;
        self.transaction = match args[0].to_ascii_lowercase().as_slice() {
            b"multi" => Transaction::Open,
            b"exec" | b"discard" => Transaction::None,
            _ => self.transaction,
        };
        if self.transaction == Transaction::None {
            self.complete_up_to = input.offset();
        }
        Ok(Some(Item::Command(args)))
    }

    fn leave_rdb(&mut self) {
        if let Stage::Rdb(rdb) = std::mem::replace(&mut self.stage, Stage::Between) {
            let mut input = rdb.into_input();
            input.stop_summing();
            self.complete_up_to = input.offset();
            self.stage = Stage::Commands(input);
        }
    }

    /// Reads the value of the latest key, as [`crate::Reader::visit_value`] does.
    ///
    /// # Errors
    /// Those of that method.
    pub fn visit_value<E: From<Error>>(
        &mut self,
        visit: impl FnMut(ValuePart<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        match &mut self.stage {
            Stage::Rdb(rdb) => rdb.visit_value(visit),
            _ => Err(Error::NoValue.into()),
        }
    }
}

/// Reads a line with `#`. Returns the timestamp, if it is one.
fn annotation<R: Read>(input: &mut Input<R>) -> Result<Option<u64>> {
    let line = line(input, "the end of an annotation")?;
    let text = line.strip_prefix(b"#TS:").and_then(|text| std::str::from_utf8(text).ok());
    Ok(text.and_then(|text| text.parse().ok()))
}

fn command<R: Read>(input: &mut Input<R>) -> Result<Vec<Vec<u8>>> {
    let count = prefixed_length(input, b'*', "the number of arguments of a command")?;
    if count == 0 {
        return Err(input.corrupt("a command with a name before it"));
    }
    let mut args = Vec::new();
    for _ in 0..count {
        let len = prefixed_length(input, b'$', "the length of an argument")?;
        let mut arg = Vec::new();
        input.read_into(&mut arg, len, "an argument")?;
        if input.array("the end of an argument")? != *b"\r\n" {
            return Err(input.corrupt("the end of an argument before it"));
        }
        args.push(arg);
    }
    Ok(args)
}

fn prefixed_length<R: Read>(
    input: &mut Input<R>,
    prefix: u8,
    expected: &'static str,
) -> Result<u64> {
    let offset = input.offset();
    let line = line(input, expected)?;
    let digits =
        line.strip_prefix(&[prefix]).filter(|digits| digits.iter().all(u8::is_ascii_digit));
    let number = digits.and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
    number.ok_or(Error::Corrupt { offset, expected })
}

/// Reads the bytes up to the line end, which is consumed and not returned.
fn line<R: Read>(input: &mut Input<R>, expected: &'static str) -> Result<Vec<u8>> {
    let mut line = Vec::new();
    while line.len() < LINE_LEN_MAX {
        match input.byte(expected)? {
            b'\n' if line.last() == Some(&b'\r') => {
                line.pop();
                return Ok(line);
            }
            byte => line.push(byte),
        }
    }
    Err(input.corrupt("the end of a line"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::encode_command;
    use crate::{Attributes, Checksum, Writer, WriterOptions};

    fn file(commands: &[&[&str]]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for command in commands {
            encode_command(command, &mut bytes);
        }
        bytes
    }

    /// Reads all items up to the end or the error. Returns them, the complete length, and the error.
    fn read(bytes: &[u8]) -> (Vec<Item>, u64, Option<Error>) {
        let mut reader = Reader::new(bytes).unwrap();
        let mut items = Vec::new();
        loop {
            match reader.next_item() {
                Ok(Some(item)) => items.push(item),
                Ok(None) => return (items, reader.complete_up_to(), None),
                Err(error) => return (items, reader.complete_up_to(), Some(error)),
            }
        }
    }

    #[test]
    fn commands_and_timestamps_are_read() {
        let bytes = [b"#TS:1700000000\r\n".to_vec(), file(&[&["SET", "k", ""]])].concat();
        let (items, whole, error) = read(&bytes);
        let set = ["SET", "k", ""].map(|arg| arg.as_bytes().to_vec());
        assert_eq!(items, [Item::Timestamp(1_700_000_000), Item::Command(set.to_vec())]);
        assert_eq!((whole, error.is_none()), (bytes.len() as u64, true));
    }

    #[test]
    fn commands_follow_an_rdb_file() {
        let mut writer = Writer::new(Vec::new(), WriterOptions::default()).unwrap();
        writer.entry(b"k", &Attributes::default()).string(b"v").unwrap();
        let rdb = writer.finish().unwrap();
        let (items, whole, error) = read(&[rdb.clone(), file(&[&["PING"]])].concat());
        assert!(error.is_none());
        assert_eq!(items[1], Item::Rdb(Event::End { checksum: Checksum::Right }));
        assert_eq!(items[2], Item::Command(vec![b"PING".to_vec()]));
        assert_eq!(whole, rdb.len() as u64 + 14);
    }

    #[test]
    fn every_cut_is_a_truncation_behind_what_is_whole() {
        let first = file(&[&["SET", "a", "1"]]);
        let transaction = file(&[&["MULTI"], &["SET", "b", "2"], &["EXEC"]]);
        let bytes = [first.clone(), transaction].concat();
        for cut in 1..bytes.len() {
            let (_, whole, error) = read(&bytes[..cut]);
            if cut == first.len() {
                assert!(error.is_none());
            } else {
                assert!(matches!(error, Some(Error::Truncated { .. })), "cut at {cut}: {error:?}");
            }
            assert_eq!(whole, if cut < first.len() { 0 } else { first.len() as u64 });
        }
    }

    #[test]
    fn damage_is_no_truncation() {
        for bytes in ["*1\r\n$3\r\nabcd\r\n", "*x\r\n", "hello\r\n", "*0\r\n", "*-1\r\n"] {
            let (items, _, error) = read(bytes.as_bytes());
            assert!(items.is_empty());
            assert!(matches!(error, Some(Error::Corrupt { .. })), "{bytes}: {error:?}");
        }
    }
}
