//! Arguments that several commands have in common.

use tierce_keyspace::{KEY_LEN_MAX, Key};
use tierce_wire::number;

use crate::error::CommandError;

/// An integer argument.
pub(super) fn integer(arg: &[u8]) -> Result<i64, CommandError> {
    number::parse_i64(arg).ok_or(CommandError::NOT_AN_INTEGER)
}

/// Refuses a key that cannot be stored, before a command with several keys changes anything.
pub(super) fn check_len(key: Key<'_>) -> Result<(), CommandError> {
    let len = key.bytes().len();
    if len <= KEY_LEN_MAX {
        return Ok(());
    }
    Err(tierce_keyspace::Error::KeyTooLong { len, max: KEY_LEN_MAX }.into())
}

/// An integer argument for which Redis has 32 bits, and says so.
pub(super) fn small_integer(arg: &[u8]) -> Result<i64, CommandError> {
    const OUT_OF_RANGE: CommandError = CommandError::new(
        "ERR value is out of range, value must between -2147483648 and 2147483647",
    );
    let value = integer(arg)?;
    if i32::try_from(value).is_ok() { Ok(value) } else { Err(OUT_OF_RANGE) }
}

/// How an option gives a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct TimeForm {
    pub(super) unit: TimeUnit,
    pub(super) base: TimeBase,
}

/// What a number counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum TimeUnit {
    Seconds,
    Milliseconds,
}

/// From when a number counts.
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

    /// The form that an option word stands for.
    pub(super) fn named(option: &[u8]) -> Option<Self> {
        const FORMS: [(&[u8], TimeForm); 4] = [
            (b"ex", TimeForm::EX),
            (b"px", TimeForm::PX),
            (b"exat", TimeForm::EXAT),
            (b"pxat", TimeForm::PXAT),
        ];
        FORMS.iter().find(|(name, _)| name.eq_ignore_ascii_case(option)).map(|(_, form)| *form)
    }

    /// The Unix milliseconds that `value` means; `None` when that overflows.
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

    /// The Unix milliseconds at which a value that is being set shall expire; it must be given as
    /// a positive number. `command` is named in the error.
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
