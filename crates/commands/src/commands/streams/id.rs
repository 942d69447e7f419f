//! Entry IDs as arguments.

use tierce_collections::stream::StreamId;
use tierce_wire::resp::Rest;

use crate::commands::cursor::Options;
use crate::commands::options::integer;
use crate::error::CommandError;

const INVALID: CommandError =
    CommandError::new("ERR Invalid stream ID specified as stream command argument");

/// Maximum length of an ID.
const TEXT_LEN_MAX: usize = 127;

/// Parses an ID; `seq` is the default sequence number.
pub(super) fn strict(arg: &[u8], seq: u64) -> Result<StreamId, CommandError> {
    parse(arg, seq).ok_or(INVALID)
}

/// Parses an ID, or `-` and `+` for the least and the greatest one.
pub(super) fn lenient(arg: &[u8], seq: u64) -> Result<StreamId, CommandError> {
    match arg {
        b"-" => Ok(StreamId::MIN),
        b"+" => Ok(StreamId::MAX),
        arg => strict(arg, seq),
    }
}

fn parse(arg: &[u8], seq: u64) -> Option<StreamId> {
    if arg.len() > TEXT_LEN_MAX {
        return None;
    }
    match arg.iter().position(|byte| *byte == b'-') {
        None => Some(StreamId::new(number(arg)?, seq)),
        Some(at) => Some(StreamId::new(number(&arg[..at])?, number(&arg[at + 1..])?)),
    }
}

/// Parses a number like C: leading blanks, a sign and zeros are allowed.
fn number(text: &[u8]) -> Option<u64> {
    let space = |byte: &u8| matches!(byte, b' ' | b'\t'..=b'\r');
    let text = &text[text.iter().take_while(|byte| space(byte)).count()..];
    let digits = text.strip_prefix(b"+").unwrap_or(text);
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |value, byte| {
        let digit = byte.checked_sub(b'0').filter(|digit| *digit <= 9)?;
        value.checked_mul(10)?.checked_add(digit.into())
    })
}

/// ID of a new entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NewId {
    /// ID of the current time.
    Now,
    /// Next ID in this millisecond.
    In(u64),
    /// This ID.
    Given(StreamId),
}

impl NewId {
    pub(super) fn parse(arg: &[u8]) -> Result<Self, CommandError> {
        match arg {
            b"*" => Ok(Self::Now),
            [ms @ .., b'-', b'*'] if arg.len() <= TEXT_LEN_MAX => {
                number(ms).map(Self::In).ok_or(INVALID)
            }
            arg => strict(arg, 0).map(Self::Given),
        }
    }

    /// Returns the ID after `last`; `None` if it would not be greater.
    pub(super) fn after(self, last: StreamId, now_ms: u64) -> Option<StreamId> {
        let id = match self {
            Self::Now if now_ms > last.ms => StreamId::new(now_ms, 0),
            Self::Now => last.next()?,
            Self::In(ms) if ms == last.ms => StreamId::new(ms, last.seq.checked_add(1)?),
            Self::In(ms) => StreamId::new(ms, 0),
            Self::Given(id) => id,
        };
        (id > last).then_some(id)
    }
}

/// Parses the start of an interval: `(` makes it exclusive.
pub(super) fn first(arg: &[u8]) -> Result<StreamId, CommandError> {
    const INVALID: CommandError = CommandError::new("ERR invalid start ID for the interval");
    match exclusive(arg) {
        Some(id) => strict(id, 0)?.next().ok_or(INVALID),
        None => lenient(arg, 0),
    }
}

/// Parses the end of an interval: `(` makes it exclusive.
pub(super) fn last(arg: &[u8]) -> Result<StreamId, CommandError> {
    const INVALID: CommandError = CommandError::new("ERR invalid end ID for the interval");
    match exclusive(arg) {
        Some(id) => strict(id, u64::MAX)?.previous().ok_or(INVALID),
        None => lenient(arg, u64::MAX),
    }
}

fn exclusive(arg: &[u8]) -> Option<&[u8]> {
    arg.strip_prefix(b"(").filter(|id| !id.is_empty())
}

/// Parses arguments that must all be IDs.
pub(super) fn all<const MIN: usize>(args: Rest<'_, MIN>) -> Result<Vec<StreamId>, CommandError> {
    args.iter().map(|arg| strict(arg, 0)).collect()
}

/// Takes arguments behind their number, with error texts for a wrong number and for too few arguments.
pub(super) fn counted<'a>(
    options: &mut Options<'a>,
    not_positive: &'static str,
    too_few: &'static str,
) -> Result<Rest<'a>, CommandError> {
    let count = integer(options.value()?).ok().and_then(|count| usize::try_from(count).ok());
    let count = count.filter(|count| *count > 0).ok_or(CommandError::new(not_positive))?;
    options.many_values(count).map_err(|_| CommandError::new(too_few))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identities() {
        let id = |text: &str| strict(text.as_bytes(), 9).ok().map(|id| id.to_string());
        assert_eq!(id("5-6").as_deref(), Some("5-6"));
        assert_eq!(id("5").as_deref(), Some("5-9"));
        assert_eq!(id("007-+1").as_deref(), Some("7-1"));
        let max = "18446744073709551615-18446744073709551615";
        assert_eq!(id(max).as_deref(), Some(max));
        for wrong in ["", "-", "+", "1-", "-1", "1-2-3", "x", "1-x", "18446744073709551616", "1 "] {
            assert_eq!(id(wrong), None, "{wrong}");
        }
        assert_eq!(lenient(b"-", 0), Ok(StreamId::MIN));
        assert_eq!(lenient(b"+", 0), Ok(StreamId::MAX));
    }

    #[test]
    fn intervals() {
        assert_eq!(first(b"(5"), Ok(StreamId::new(5, 1)));
        assert_eq!(last(b"(5"), Ok(StreamId::new(5, u64::MAX - 1)));
        assert_eq!(last(b"5"), Ok(StreamId::new(5, u64::MAX)));
        assert_eq!(last(b"(5-0"), Ok(StreamId::new(4, u64::MAX)));
        assert!(last(b"(0-0").is_err() && first(b"(").is_err() && first(b"(-").is_err());
        assert!(first(b"(18446744073709551615-18446744073709551615").is_err());
    }

    #[test]
    fn new_identities_ascend() {
        let last = StreamId::new(5, 6);
        assert_eq!(NewId::Now.after(last, 9), Some(StreamId::new(9, 0)));
        assert_eq!(NewId::Now.after(last, 3), Some(StreamId::new(5, 7)));
        assert_eq!(NewId::In(5).after(last, 9), Some(StreamId::new(5, 7)));
        assert_eq!(NewId::In(6).after(last, 9), Some(StreamId::new(6, 0)));
        assert_eq!(NewId::In(4).after(last, 9), None);
        assert_eq!(NewId::In(5).after(StreamId::new(5, u64::MAX), 9), None);
        assert_eq!(NewId::parse(b"7-*"), Ok(NewId::In(7)));
        assert!(NewId::parse(b"-*").is_err());
    }
}
