//! Bounds of ranges as arguments.

use tierce_collections::{MemberBound, ScoreBound};
use tierce_wire::number::parse_f64;

use crate::error::CommandError;

const NO_SCORE: CommandError = CommandError::new("ERR min or max is not a float");
const NO_MEMBER: CommandError = CommandError::new("ERR min or max not valid string range item");

/// Parses a bound of scores: a number, which is inclusive unless it follows `(`.
pub(super) fn score(arg: &[u8]) -> Result<ScoreBound, CommandError> {
    match arg {
        [b'(', number @ ..] => Ok(ScoreBound::Excluded(lenient(number)?)),
        number => Ok(ScoreBound::Included(lenient(number)?)),
    }
}

/// Parses a number like `strtod`, which skips leading blanks and reads nothing as 0.
fn lenient(number: &[u8]) -> Result<f64, CommandError> {
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t'..=b'\r');
    let blanks = number.iter().take_while(|byte| is_blank(byte)).count();
    match &number[blanks..] {
        // This holds only without blanks: `strtod` finds no number after them.
        [] if blanks == 0 => Ok(0.0),
        number => parse_f64(number).ok_or(NO_SCORE),
    }
}

/// Parses a bound of members: `[` (inclusive) or `(` (exclusive) and a member, or `-` or `+` for
/// the lowest and highest.
pub(super) fn member(arg: &[u8]) -> Result<MemberBound<'_>, CommandError> {
    match arg {
        b"-" => Ok(MemberBound::Lowest),
        b"+" => Ok(MemberBound::Highest),
        [b'[', member @ ..] => Ok(MemberBound::Included(member)),
        [b'(', member @ ..] => Ok(MemberBound::Excluded(member)),
        _ => Err(NO_MEMBER),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores() {
        assert_eq!(score(b"(1.5"), Ok(ScoreBound::Excluded(1.5)));
        assert_eq!(score(b"-inf"), Ok(ScoreBound::Included(f64::NEG_INFINITY)));
        assert_eq!(score(b" \t3"), Ok(ScoreBound::Included(3.0)));
        assert_eq!(score(b""), Ok(ScoreBound::Included(0.0)));
        assert_eq!(score(b"("), Ok(ScoreBound::Excluded(0.0)));
        for wrong in [&b"x"[..], b"3 ", b"nan", b"((1", b"[1", b" "] {
            assert_eq!(score(wrong), Err(NO_SCORE), "{wrong:?}");
        }
    }

    #[test]
    fn members() {
        assert_eq!(member(b"[a"), Ok(MemberBound::Included(b"a")));
        assert_eq!(member(b"("), Ok(MemberBound::Excluded(b"")));
        assert_eq!(member(b"-"), Ok(MemberBound::Lowest));
        for wrong in [&b""[..], b"a", b"-a", b"++"] {
            assert_eq!(member(wrong), Err(NO_MEMBER), "{wrong:?}");
        }
    }
}
