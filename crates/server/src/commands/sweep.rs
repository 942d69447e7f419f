//! HSCAN, SSCAN, ZSCAN: what going through one collection bit by bit has in common.

use tierce_wire::glob::{self, Case};
use tierce_wire::number;
use tierce_wire::resp::Args;

use crate::commands::options::integer;
use crate::error::CommandError;

/// What such a command is to look for, and how long.
pub(super) struct SweepOptions<'a> {
    pattern: Option<&'a [u8]>,
    count: usize,
    /// Whether NOVALUES was given, which only HSCAN knows.
    pub(super) only_names: bool,
}

impl<'a> SweepOptions<'a> {
    const COUNT_DEFAULT: usize = 10;

    pub(super) fn parse(options: Args<'a>) -> Result<Self, CommandError> {
        let mut parsed = Self { pattern: None, count: Self::COUNT_DEFAULT, only_names: false };
        let mut at = 0;
        while at < options.len() {
            let value = options.get(at + 1).map(|_| options.at(at + 1));
            match (options[at].to_ascii_lowercase().as_slice(), value) {
                (b"match", Some(value)) => parsed.pattern = (value != b"*").then_some(value),
                (b"count", Some(value)) => {
                    let count = integer(value)?;
                    if count < 1 {
                        return Err(CommandError::SYNTAX);
                    }
                    parsed.count = count as usize;
                }
                (b"novalues", _) => {
                    parsed.only_names = true;
                    at += 1;
                    continue;
                }
                _ => return Err(CommandError::SYNTAX),
            }
            at += 2;
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

/// The argument that is a cursor.
pub(super) fn cursor(arg: &[u8]) -> Result<u64, CommandError> {
    number::parse_u64(arg).ok_or(CommandError::new("ERR invalid cursor"))
}
