//! Common arguments of several commands.

use std::ops::Range;

use tierce_keyspace::{CollectionType, Db, KEY_LEN_MAX, Key, ValueType};
use tierce_wire::number;

use crate::error::CommandError;

/// Parses an integer argument.
pub(super) fn integer(arg: &[u8]) -> Result<i64, CommandError> {
    number::parse_i64(arg).ok_or(CommandError::NOT_AN_INTEGER)
}

/// Error for an invalid number of elements to pop.
pub(super) const NOT_POSITIVE: &str = "ERR value is out of range, must be positive";

/// Parses a number of elements; `refusal` is the error if it is invalid or below `min`.
pub(super) fn count_from(
    arg: &[u8],
    min: i64,
    refusal: &'static str,
) -> Result<usize, CommandError> {
    let value = number::parse_i64(arg).filter(|value| *value >= min);
    value.map(|value| value as usize).ok_or(CommandError::new(refusal))
}

/// Checks the length of a key, before a command with several keys changes anything.
pub(super) fn check_len(key: Key<'_>) -> Result<(), CommandError> {
    let len = key.bytes().len();
    if len <= KEY_LEN_MAX {
        return Ok(());
    }
    Err(tierce_keyspace::Error::KeyTooLong { len, max: KEY_LEN_MAX }.into())
}

/// Returns the number of elements that a negative `count` draws from a collection of `len` elements
/// in `bytes`.
///
/// # Errors
///
/// Fails if the reply would exceed the default output limit of clients. It would be created in
/// vain, with the shard locked.
pub(super) fn repetitions(count: i64, len: usize, bytes: usize) -> Result<usize, CommandError> {
    const REPLY_BYTES_MAX: u128 = 1 << 30;
    /// Bytes of an empty element in a reply.
    const ELEMENT_BYTES_MIN: usize = 6;
    let element_bytes = (bytes / len.max(1)).max(ELEMENT_BYTES_MIN);
    let count = count.unsigned_abs() as usize;
    if count as u128 * element_bytes as u128 > REPLY_BYTES_MAX {
        return Err(CommandError::OUT_OF_RANGE);
    }
    Ok(count)
}

/// Parses an integer argument for which Redis has 32 bits.
pub(super) fn small_integer(arg: &[u8]) -> Result<i64, CommandError> {
    const OUT_OF_RANGE: CommandError = CommandError::new(
        "ERR value is out of range, value must between -2147483648 and 2147483647",
    );
    let value = integer(arg)?;
    if i32::try_from(value).is_ok() { Ok(value) } else { Err(OUT_OF_RANGE) }
}

/// Parses an integer argument, except for the minimum, which Redis refuses because it cannot be
/// negated.
pub(super) fn symmetric_integer(arg: &[u8]) -> Result<i64, CommandError> {
    const OUT_OF_RANGE: CommandError = CommandError::new(
        "ERR value is out of range, value must between -9223372036854775807 and \
         9223372036854775807",
    );
    let value = integer(arg)?;
    if value == i64::MIN { Err(OUT_OF_RANGE) } else { Ok(value) }
}

/// Returns the indexes from `start` to `stop` among `len` elements, by the rule of LRANGE and
/// ZRANGE: both are inclusive, and negative ones count from the end. Unlike in GETRANGE, an end
/// before the first element gives an empty range.
pub(super) fn index_range(len: usize, start: i64, stop: i64) -> Range<usize> {
    let signed_len = len as i64;
    let from_end = |index: i64| if index < 0 { index + signed_len } else { index };
    let (start, stop) = (from_end(start).max(0), from_end(stop).min(signed_len - 1));
    if start > stop { 0..0 } else { start as usize..stop as usize + 1 }
}

/// Returns true if a key exists, which must be of this type. This counts as no hit or miss.
pub(super) fn is_of_type<T: CollectionType>(
    db: &mut Db<'_>,
    key: Key<'_>,
) -> Result<bool, CommandError> {
    match db.value_type(key) {
        None => Ok(false),
        Some(ValueType::Collection(kind)) if kind == T::KIND => Ok(true),
        Some(_) => Err(CommandError::WRONG_TYPE),
    }
}

/// Format of a time in an option.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct TimeForm {
    pub(super) unit: TimeUnit,
    pub(super) base: TimeBase,
}

/// Unit of a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum TimeUnit {
    Seconds,
    Milliseconds,
}

/// Start of a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum TimeBase {
    Now,
    Epoch,
}

impl TimeForm {
    pub(super) const EX: Self = Self { unit: TimeUnit::Seconds, base: TimeBase::Now };
    pub(super) const PX: Self = Self { unit: TimeUnit::Milliseconds, base: TimeBase::Now };
    pub(super) const EXAT: Self = Self { unit: TimeUnit::Seconds, base: TimeBase::Epoch };
    pub(super) const PXAT: Self = Self { unit: TimeUnit::Milliseconds, base: TimeBase::Epoch };

    /// Returns the format that an option word selects.
    pub(super) fn named(option: &[u8]) -> Option<Self> {
        const FORMS: [(&[u8], TimeForm); 4] = [
            (b"ex", TimeForm::EX),
            (b"px", TimeForm::PX),
            (b"exat", TimeForm::EXAT),
            (b"pxat", TimeForm::PXAT),
        ];
        FORMS.iter().find(|(name, _)| name.eq_ignore_ascii_case(option)).map(|(_, form)| *form)
    }

    /// Converts `value` to Unix milliseconds; `None` on overflow.
    pub(super) fn to_unix_ms(self, value: i64, now_ms: i64) -> Option<i64> {
        let ms = match self.unit {
            TimeUnit::Seconds => value.checked_mul(1000)?,
            TimeUnit::Milliseconds => value,
        };
        match self.base {
            TimeBase::Now => ms.checked_add(now_ms),
            TimeBase::Epoch => Some(ms),
        }
    }

    /// Parses the deadline of a value that is being set, as Unix milliseconds. It must be a
    /// positive number. `command` is named in the error.
    pub(super) fn expiry(
        self,
        arg: &[u8],
        now_ms: i64,
        command: &str,
    ) -> Result<i64, CommandError> {
        let value = integer(arg)?;
        self.to_unix_ms(value, now_ms)
            .filter(|at_ms| value > 0 && *at_ms > 0)
            .ok_or_else(|| CommandError::invalid_expire(command))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn index_ranges() {
        assert_eq!(index_range(5, 1, 3), 1..4);
        assert_eq!(index_range(5, -2, -1), 3..5);
        assert_eq!(index_range(5, i64::MIN, i64::MAX), 0..5);
        for (len, start, stop) in [(5, 3, 2), (5, 5, 9), (5, 0, -6), (0, 0, -1), (3, -9, -8)] {
            assert!(index_range(len, start, stop).is_empty());
        }
    }

    #[test]
    fn times() {
        let now = 1_000;
        assert_eq!(TimeForm::EX.expiry(b"2", now, "set"), Ok(3_000));
        assert_eq!(TimeForm::PX.expiry(b"2", now, "set"), Ok(1_002));
        assert_eq!(TimeForm::EXAT.expiry(b"2", now, "set"), Ok(2_000));
        assert_eq!(TimeForm::PXAT.expiry(b"2", now, "set"), Ok(2));
        let invalid = Err(CommandError::invalid_expire("set"));
        for text in [&b"0"[..], b"-1", b"9223372036854775807", b"9223372036854775"] {
            assert_eq!(TimeForm::EX.expiry(text, i64::MAX / 2, "set"), invalid);
        }
        assert_eq!(TimeForm::EX.expiry(b"1x", now, "set"), Err(CommandError::NOT_AN_INTEGER));
        assert_eq!(TimeForm::named(b"PxAt"), Some(TimeForm::PXAT));
        assert_eq!(TimeForm::named(b"keepttl"), None);
    }
}
