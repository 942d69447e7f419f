//! What HSCAN, SSCAN and ZSCAN have in common.

use tierce_wire::glob::{self, Case};
use tierce_wire::number;

use crate::commands::cursor::Options;
use crate::commands::options::integer;
use crate::error::CommandError;

/// What such a command is to look for, and how long.
pub(super) struct SweepOptions<'a> {
    pattern: Option<&'a [u8]>,
    /// How many elements are looked at.
    pub(super) count: usize,
    /// Whether NOVALUES was given, which only HSCAN knows.
    pub(super) only_names: bool,
}

impl<'a> SweepOptions<'a> {
    const COUNT_DEFAULT: usize = 10;

    pub(super) fn parse(mut options: Options<'a>) -> Result<Self, CommandError> {
        let mut parsed = Self { pattern: None, count: Self::COUNT_DEFAULT, only_names: false };
        while let Some(word) = options.next_word() {
            match &*word {
                b"match" => parsed.pattern = pattern(options.value()?),
                b"count" => parsed.count = count(options.value()?)?,
                b"novalues" => parsed.only_names = true,
                _ => return Err(CommandError::SYNTAX),
            }
        }
        Ok(parsed)
    }

    /// Whether a name or member is one of those that are looked for.
    pub(super) fn matches(&self, name: &[u8]) -> bool {
        self.pattern.is_none_or(|pattern| glob::matches(pattern, name, Case::Sensitive))
    }

    /// Calls `step`, which gets a cursor and returns the next one and how many elements it met, until
    /// as many as wanted were met or the end is reached; returns the cursor for the next call.
    pub(super) fn run(&self, mut cursor: u64, mut step: impl FnMut(u64) -> (u64, usize)) -> u64 {
        let mut met = 0;
        loop {
            let (next, some) = step(cursor);
            met += some;
            if next == 0 || met >= self.count {
                return next;
            }
            cursor = next;
        }
    }
}

/// What names are compared with; nothing if all match.
pub(super) fn pattern(arg: &[u8]) -> Option<&[u8]> {
    (arg != b"*").then_some(arg)
}

/// How many elements are looked at, which has to be positive.
pub(super) fn count(arg: &[u8]) -> Result<usize, CommandError> {
    let count = usize::try_from(integer(arg)?).ok();
    count.filter(|count| *count > 0).ok_or(CommandError::SYNTAX)
}

/// The argument that is a cursor.
pub(super) fn cursor(arg: &[u8]) -> Result<u64, CommandError> {
    number::parse_u64(arg).ok_or(CommandError::new("ERR invalid cursor"))
}
