//! Kinds of directive values, and their parsers.
//!
//! Parsing is strict: no sign, blank or decimal point where Redis takes none. Errors use the words of Redis 7.2, so
//! that users can search for them. One case is stricter than Redis: a memory value without digits, or whose unit
//! makes it overflow, is refused.

use std::borrow::Cow;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use super::events::Events;
use super::limits::{ClientClass, OutputLimit, OutputLimits};
use super::value::{SavePoint, Value};

/// Kind of values that a directive takes.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// `yes` or `no`.
    Bool,
    /// A whole number between two bounds, both inclusive.
    Int(i64, i64),
    /// Any number from 0 on. It is clamped to this range: a hint rather than a setting.
    Clamped(i64, i64),
    /// File permissions in octal.
    Octal,
    /// A number of bytes between two bounds, both inclusive.
    Memory(u64, u64),
    /// A number of bytes, or a share of `maxmemory` such as `10%`.
    MemoryOrPercent,
    /// One of these words.
    Word(&'static [&'static str]),
    /// Some of these words.
    Words(&'static [&'static str]),
    /// Any text.
    Text,
    /// A path, made absolute when it is read.
    Directory,
    /// List of texts without blanks, with this maximum length.
    List(usize),
    /// `seconds changes` any number of times.
    SavePoints,
    /// `class hard soft seconds` any number of times.
    OutputLimits,
    /// Three numbers from -2000 to 2000.
    OomScores,
    /// Numbers from 0 to 100.
    Percentiles,
    /// Letters of event classes.
    Events,
    /// `host port`, or `no one`.
    Primary,
}

/// Largest `int` of Redis, and upper bound of most of its numbers.
pub(super) const INT_MAX: i64 = i32::MAX as i64;
/// A non-negative `int`.
pub(super) const COUNT_OR_SIZE: Kind = Kind::Int(0, INT_MAX);
/// A non-negative 64-bit number.
pub(super) const LONG: Kind = Kind::Int(0, i64::MAX);
/// Any number of bytes.
pub(super) const BYTES: Kind = Kind::Memory(0, i64::MAX as u64);
/// A TCP port; 0 for none.
pub(super) const PORT: Kind = Kind::Int(0, 65_535);

/// Reason why a value was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Invalid(Cow<'static, str>);

impl Invalid {
    pub(super) const fn new(reason: &'static str) -> Self {
        Self(Cow::Borrowed(reason))
    }

    /// Returns the reason in words for the author of a configuration. Clients get the words of Redis.
    pub(super) fn explained(&self) -> &str {
        match *self == NOT_MEMORY {
            true => "must be a size such as 512mb or 4gb",
            false => &self.0,
        }
    }

    pub(super) fn text(reason: impl Into<String>) -> Self {
        Self(Cow::Owned(reason.into()))
    }
}

const WRONG_COUNT: Invalid = Invalid::new("wrong number of arguments");
const NOT_MEMORY: Invalid = Invalid::new("argument must be a memory value");
const BAD_SAVE: Invalid = Invalid::new("Invalid save parameters");

/// Maximum percentage of `maxmemory` that all clients together may get.
const PERCENT_MAX: u64 = 100;

impl Kind {
    /// Returns true if the value has several words, each an argument of its own in a file.
    pub fn takes_words(self) -> bool {
        matches!(
            self,
            Self::Words(_)
                | Self::List(_)
                | Self::SavePoints
                | Self::OutputLimits
                | Self::OomScores
                | Self::Percentiles
                | Self::Primary
        )
    }

    /// Parses a value from one text, as CONFIG SET and the environment give it.
    ///
    /// `current` supplies the missing parts of a value that sets only some parts.
    ///
    /// # Errors
    /// If the text is not of this kind.
    pub fn parse_text(self, text: &[u8], current: Option<&Value>) -> Result<Value, Invalid> {
        self.parse(&[text], current)
    }

    /// Parses a value from the arguments of a directive in a file or on the command line.
    ///
    /// # Errors
    /// If the words are not of this kind.
    pub fn parse(self, args: &[&[u8]], current: Option<&Value>) -> Result<Value, Invalid> {
        match (self.takes_words(), args) {
            (true, [b""]) => self.parse_words(&[], current),
            (true, [text]) => {
                let words: Vec<&[u8]> = text.split(|&byte| byte == b' ').collect();
                self.parse_words(&words, current)
            }
            (true, words) => self.parse_words(words, current),
            (false, [text]) => self.parse_single(text),
            (false, _) => Err(WRONG_COUNT),
        }
    }

    fn parse_single(self, text: &[u8]) -> Result<Value, Invalid> {
        match self {
            Self::Bool => parse_bool(text).map(Value::Bool),
            Self::Int(min, max) => in_range(parse_int(text)?, min, max).map(Value::Int),
            Self::Clamped(min, max) => in_range(parse_int(text)?, 0, i32::MAX.into())
                .map(|number| Value::Int(number.clamp(min, max))),
            Self::Octal => parse_octal(text).map(Value::Octal),
            Self::Memory(min, max) => in_range(parse_memory(text)?, min, max).map(Value::Memory),
            Self::MemoryOrPercent => parse_memory_or_percent(text),
            Self::Word(choice) => pick_word(text, choice).map(Value::Word),
            Self::Text => Ok(Value::Text(text.to_vec())),
            Self::Directory => parse_directory(text).map(Value::Text),
            Self::Events => Events::parse(text)
                .map(Value::Events)
                .ok_or(Invalid::new("Invalid event class character. Use 'Ag$lshzxeKEtmdn'.")),
            _ => unreachable!("kinds of several words are read by parse_words"),
        }
    }

    fn parse_words(self, words: &[&[u8]], current: Option<&Value>) -> Result<Value, Invalid> {
        match self {
            Self::Words(choice) => parse_choices(words, choice).map(Value::Words),
            Self::List(max) if words.len() > max => {
                Err(Invalid::new("Too many bind addresses specified."))
            }
            Self::List(_) => Ok(Value::List(words.iter().map(|word| word.to_vec()).collect())),
            Self::SavePoints => parse_save_points(words).map(Value::SavePoints),
            Self::OutputLimits => {
                let base = match current {
                    Some(Value::OutputLimits(limits)) => *limits,
                    _ => OutputLimits::default(),
                };
                parse_output_limits(words, base).map(Value::OutputLimits)
            }
            Self::OomScores => parse_oom_scores(words).map(Value::OomScores),
            Self::Percentiles => words
                .iter()
                .map(|word| parse_percentile(word))
                .collect::<Result<_, _>>()
                .map(Value::Percentiles),
            Self::Primary => parse_primary(words).map(Value::Primary),
            _ => unreachable!("kinds of one word are read by parse_single"),
        }
    }

    /// Describes the values, for help and documentation.
    pub fn describe(self) -> String {
        match self {
            Self::Bool => "yes, no".into(),
            Self::Int(min, max) => range_text(min, max, i64::from(i32::MAX)),
            Self::Clamped(min, max) => format!("{min} to {max}, others are moved into it"),
            Self::Octal => "octal permissions".into(),
            Self::Memory(min, max) if max >= i64::MAX as u64 => match min {
                0 => "bytes".into(),
                _ => format!("bytes, at least {}", super::limits::memory_with_unit(min)),
            },
            Self::Memory(min, max) => format!("bytes, {min} to {max}"),
            Self::MemoryOrPercent => "bytes, or a percentage of maxmemory".into(),
            Self::Word(choice) => choice.join(", "),
            Self::Words(choice) => format!("any of {}", choice.join(", ")),
            Self::Text => "text".into(),
            Self::Directory => "directory".into(),
            Self::List(max) => format!("up to {max} addresses"),
            Self::SavePoints => "pairs of seconds and changes".into(),
            Self::OutputLimits => "class, hard limit, soft limit, seconds".into(),
            Self::OomScores => "three numbers, -2000 to 2000".into(),
            Self::Percentiles => "numbers from 0 to 100".into(),
            Self::Events => "letters of Ag$lshzxeKEtmdn".into(),
            Self::Primary => "host and port, or no one".into(),
        }
    }
}

/// Describes a range. Omits a maximum that is only the limit of a machine word.
fn range_text(min: i64, max: i64, unlimited: i64) -> String {
    match (min, max) {
        (min, max) if max < unlimited => format!("{min} to {max}"),
        (min, _) if min < -unlimited => "any number".into(),
        (min, _) => format!("{min} or more"),
    }
}

fn in_range<T: PartialOrd + std::fmt::Display>(number: T, min: T, max: T) -> Result<T, Invalid> {
    if number < min || number > max {
        return Err(Invalid::text(format!("argument must be between {min} and {max} inclusive")));
    }
    Ok(number)
}

fn parse_bool(text: &[u8]) -> Result<bool, Invalid> {
    match text.to_ascii_lowercase().as_slice() {
        b"yes" => Ok(true),
        b"no" => Ok(false),
        _ => Err(Invalid::new("argument must be 'yes' or 'no'")),
    }
}

/// Parses a number without leading zeros, plus sign or blanks.
fn parse_int(text: &[u8]) -> Result<i64, Invalid> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let canonical = match digits {
        [b'0'] => digits.len() == text.len(),
        [first, ..] => (b'1'..=b'9').contains(first),
        [] => false,
    };
    let number = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    number.filter(|_| canonical).ok_or(Invalid::new("argument couldn't be parsed into an integer"))
}

fn parse_octal(text: &[u8]) -> Result<u32, Invalid> {
    const PERMISSIONS_MAX: u32 = 0o777;
    let digits = std::str::from_utf8(text).ok().filter(|text| !text.starts_with(['+', '-']));
    let bits = digits
        .and_then(|digits| u32::from_str_radix(digits, 8).ok())
        .ok_or(Invalid::new("argument couldn't be parsed as an octal number"))?;
    if bits > PERMISSIONS_MAX {
        let reason = format!("argument must be between 0 and {PERMISSIONS_MAX:o} inclusive");
        return Err(Invalid::text(reason));
    }
    Ok(bits)
}

/// Parses digits and a unit: `k m g` are powers of 1000, `kb mb gb` powers of 1024, in either case. As in Redis, a
/// number of more than 64 bits becomes the largest one, so that the error names the range.
fn parse_memory(text: &[u8]) -> Result<u64, Invalid> {
    let digits_len = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (digits, unit) = text.split_at(digits_len);
    let size: u64 = match unit.to_ascii_lowercase().as_slice() {
        b"" | b"b" => 1,
        b"k" => 1000,
        b"kb" => 1 << 10,
        b"m" => 1000 * 1000,
        b"mb" => 1 << 20,
        b"g" => 1000 * 1000 * 1000,
        b"gb" => 1 << 30,
        _ => return Err(NOT_MEMORY),
    };
    if digits.is_empty() {
        return Err(NOT_MEMORY);
    }
    let digits = std::str::from_utf8(digits).expect("digits are ASCII");
    digits.parse().unwrap_or(u64::MAX).checked_mul(size).ok_or(NOT_MEMORY)
}

fn parse_memory_or_percent(text: &[u8]) -> Result<Value, Invalid> {
    let refused = Invalid::new("argument must be a memory or percent value");
    let Some(digits) = text.strip_suffix(b"%") else {
        return parse_memory(text).map(Value::Memory).map_err(|_| refused);
    };
    match parse_int(digits).ok().and_then(|percent| u64::try_from(percent).ok()) {
        Some(percent @ 0..=PERCENT_MAX) => Ok(Value::Percent(percent as u32)),
        Some(_) => Err(Invalid::text(format!(
            "percentage argument must be less or equal to {PERCENT_MAX}"
        ))),
        None => Err(refused),
    }
}

fn pick_word(text: &[u8], choice: &[&'static str]) -> Result<&'static str, Invalid> {
    let picked = choice.iter().find(|word| word.as_bytes().eq_ignore_ascii_case(text));
    picked.copied().ok_or_else(|| {
        let all = choice.join(", ");
        Invalid::text(format!("argument(s) must be one of the following: {all}"))
    })
}

/// Parses some of the allowed words. The result has no duplicates and keeps the order of `choice`.
fn parse_choices(words: &[&[u8]], choice: &[&'static str]) -> Result<Vec<&'static str>, Invalid> {
    let words = if words.is_empty() { &[&b""[..]] } else { words };
    let picked: Vec<&str> =
        words.iter().map(|word| pick_word(word, choice)).collect::<Result<_, _>>()?;
    Ok(choice.iter().copied().filter(|word| picked.contains(word)).collect())
}

fn parse_directory(text: &[u8]) -> Result<Vec<u8>, Invalid> {
    let path = Path::new(std::ffi::OsStr::from_bytes(text));
    let absolute = std::path::absolute(path).map_err(|error| Invalid::text(error.to_string()))?;
    Ok(absolute.into_os_string().into_vec())
}

fn parse_save_points(words: &[&[u8]]) -> Result<Vec<SavePoint>, Invalid> {
    let (pairs, rest) = words.as_chunks::<2>();
    if !rest.is_empty() {
        return Err(BAD_SAVE);
    }
    pairs.iter().map(|[seconds, changes]| parse_save_point(seconds, changes)).collect()
}

fn parse_save_point(seconds: &[u8], changes: &[u8]) -> Result<SavePoint, Invalid> {
    let number = |text| parse_int(text).map_err(|_| BAD_SAVE);
    let seconds = u64::try_from(number(seconds)?).ok().filter(|&seconds| seconds > 0);
    let changes = u32::try_from(number(changes)?).ok();
    match (seconds, changes) {
        (Some(seconds), Some(changes)) => Ok(SavePoint { seconds, changes }),
        _ => Err(BAD_SAVE),
    }
}

/// Changes the limits of the named classes.
fn parse_output_limits(words: &[&[u8]], mut limits: OutputLimits) -> Result<OutputLimits, Invalid> {
    let (groups, rest) = words.as_chunks::<4>();
    if !rest.is_empty() {
        return Err(Invalid::new("Wrong number of arguments in buffer limit configuration."));
    }
    for [class, hard, soft, seconds] in groups {
        let class = ClientClass::parse(class)
            .ok_or(Invalid::new("Invalid client class specified in buffer limit configuration."))?;
        limits.set(class, parse_output_limit(hard, soft, seconds)?);
    }
    Ok(limits)
}

fn parse_output_limit(hard: &[u8], soft: &[u8], seconds: &[u8]) -> Result<OutputLimit, Invalid> {
    let seconds = parse_int(seconds).ok().and_then(|seconds| u32::try_from(seconds).ok());
    match (parse_memory(hard), parse_memory(soft), seconds) {
        (Ok(hard_bytes), Ok(soft_bytes), Some(soft_seconds)) => {
            Ok(OutputLimit { hard_bytes, soft_bytes, soft_seconds })
        }
        _ => Err(Invalid::new(
            "Error in hard, soft or soft_seconds setting in buffer limit configuration.",
        )),
    }
}

fn parse_oom_scores(words: &[&[u8]]) -> Result<[i32; 3], Invalid> {
    let words: &[&[u8]; 3] = words.try_into().map_err(|_| WRONG_COUNT)?;
    let mut scores = [0; 3];
    for (score, word) in scores.iter_mut().zip(words) {
        let number = parse_int(word).ok().filter(|number| (-2000..=2000).contains(number));
        *score = number.ok_or(Invalid::new(
            "Invalid oom-score-adj-values, elements must be between -2000 and 2000.",
        ))? as i32;
    }
    Ok(scores)
}

fn parse_percentile(word: &[u8]) -> Result<f64, Invalid> {
    let number: Option<f64> = std::str::from_utf8(word).ok().and_then(|text| text.parse().ok());
    match number {
        Some(percentile) if (0.0..=100.0).contains(&percentile) => Ok(percentile),
        Some(_) => Err(Invalid::new(
            "latency-tracking-info-percentiles parameters should sit between [0.0,100.0]",
        )),
        None => Err(Invalid::new("Invalid latency-tracking-info-percentiles parameters")),
    }
}

fn parse_primary(words: &[&[u8]]) -> Result<Option<(Vec<u8>, u16)>, Invalid> {
    match words {
        [] => Ok(None),
        [no, one] if no.eq_ignore_ascii_case(b"no") && one.eq_ignore_ascii_case(b"one") => Ok(None),
        [host, port] => match parse_int(port).ok().and_then(|port| u16::try_from(port).ok()) {
            Some(port) => Ok(Some((host.to_vec(), port))),
            None => Err(Invalid::new("Invalid master port")),
        },
        _ => Err(WRONG_COUNT),
    }
}

#[cfg(test)]
mod tests {
    use super::Kind;
    use proptest::prelude::*;
    use tierce_harness::effort;

    const MODES: &[&str] = &["default", "save", "nosave", "now", "force"];

    fn check(kind: Kind, given: &str, expected: &str) {
        let text = match kind.parse_text(given.as_bytes(), None) {
            Ok(value) => String::from_utf8(value.text()).expect("valid text"),
            Err(reason) => reason.to_string(),
        };
        assert_eq!(text, expected, "{kind:?} {given:?}");
    }

    #[test]
    fn numbers() {
        let kind = Kind::Int(-1, 100);
        check(kind, "-1", "-1");
        check(kind, "100", "100");
        check(kind, "101", "argument must be between -1 and 100 inclusive");
        for bad in ["", "+1", " 1", "1 ", "01", "-0", "0x1", "1.0", "99999999999999999999"] {
            check(kind, bad, "argument couldn't be parsed into an integer");
        }
        check(Kind::Clamped(1, 500), "0", "1");
        check(Kind::Clamped(1, 500), "1000", "500");
    }

    #[test]
    fn permissions() {
        check(Kind::Octal, "700", "700");
        check(Kind::Octal, "0755", "755");
        check(Kind::Octal, "1000", "argument must be between 0 and 777 inclusive");
        for bad in ["", "8", "-1", "rwx", "+7"] {
            check(Kind::Octal, bad, "argument couldn't be parsed as an octal number");
        }
    }

    #[test]
    fn memory_units_of_both_sorts() {
        let kind = Kind::Memory(0, u64::MAX);
        for (given, bytes) in [
            ("0", "0"),
            ("17", "17"),
            ("1b", "1"),
            ("100k", "100000"),
            ("100KB", "102400"),
            ("3m", "3000000"),
            ("3Mb", "3145728"),
            ("2g", "2000000000"),
            ("2gb", "2147483648"),
            ("18446744073709551615", "18446744073709551615"),
            ("18446744073709551616", "18446744073709551615"),
        ] {
            check(kind, given, bytes);
        }
        for bad in ["", "mb", "-1", "+1", " 1", "1 mb", "1.5gb", "1zb", "1bb", "18446744073gb"] {
            check(kind, bad, "argument must be a memory value");
        }
        let reason = "argument must be between 1048576 and 9223372036854775807 inclusive";
        check(Kind::Memory(1 << 20, i64::MAX as u64), "100", reason);
        check(Kind::Memory(1 << 20, i64::MAX as u64), "18446744073709551616", reason);
    }

    #[test]
    fn memory_or_a_share_of_it() {
        let kind = Kind::MemoryOrPercent;
        check(kind, "10%", "10%");
        check(kind, "1kb", "1024");
        check(kind, "101%", "percentage argument must be less or equal to 100");
        for bad in ["%", "-5%", "-5", "5x", ""] {
            check(kind, bad, "argument must be a memory or percent value");
        }
    }

    #[test]
    fn words_of_a_choice() {
        check(Kind::Bool, "YES", "yes");
        check(Kind::Bool, "true", "argument must be 'yes' or 'no'");
        let always = "argument(s) must be one of the following: a, b";
        check(Kind::Word(&["a", "b"]), "B", "b");
        check(Kind::Word(&["a", "b"]), "c", always);
        check(Kind::Words(MODES), "force SAVE", "save force");
        let modes = "argument(s) must be one of the following: default, save, nosave, now, force";
        check(Kind::Words(MODES), "save twice", modes);
        check(Kind::Words(MODES), "", modes);
    }

    #[test]
    fn save_points() {
        let kind = Kind::SavePoints;
        check(kind, "", "");
        check(kind, "3600 1 60 10000", "3600 1 60 10000");
        for bad in ["60", "60 1 3", "0 1", "x 1", "60 -1", "60 1  300 10"] {
            check(kind, bad, "Invalid save parameters");
        }
    }

    #[test]
    fn output_limits_change_the_named_classes() {
        let kind = Kind::OutputLimits;
        let all = "normal 0 0 0 slave 0 0 0 pubsub 1048576 1000 3";
        check(kind, "pubsub 1mb 1k 3", all);
        let both = "replica 1kb 1 2 NORMAL 3 4 5";
        check(kind, both, "normal 3 4 5 slave 1024 1 2 pubsub 0 0 0");
        let current = kind.parse_text(b"slave 1 2 3", None).expect("valid");
        let next = kind.parse_text(b"normal 7 7 7", Some(&current)).expect("valid");
        assert_eq!(next.text(), b"normal 7 7 7 slave 1 2 3 pubsub 0 0 0");
        let count = "Wrong number of arguments in buffer limit configuration.";
        check(kind, "normal 1 2", count);
        let class = "Invalid client class specified in buffer limit configuration.";
        check(kind, "master 1 2 3", class);
        let number = "Error in hard, soft or soft_seconds setting in buffer limit configuration.";
        check(kind, "normal 1mb x 3", number);
        check(kind, "normal 1mb 1 -3", number);
    }

    #[test]
    fn lists_of_numbers() {
        check(Kind::OomScores, "0 200 -800", "0 200 -800");
        check(Kind::OomScores, "1 2", "wrong number of arguments");
        let bounds = "Invalid oom-score-adj-values, elements must be between -2000 and 2000.";
        check(Kind::OomScores, "1 2 3000", bounds);
        check(Kind::Percentiles, "50 99.9990 100", "50 99.999 100");
        check(Kind::Percentiles, "", "");
        check(Kind::Percentiles, "x", "Invalid latency-tracking-info-percentiles parameters");
        let sit = "latency-tracking-info-percentiles parameters should sit between [0.0,100.0]";
        check(Kind::Percentiles, "50 101", sit);
        check(Kind::Percentiles, "NaN", sit);
    }

    #[test]
    fn a_primary_is_a_host_and_a_port() {
        check(Kind::Primary, "db.example 6379", "db.example 6379");
        check(Kind::Primary, "NO one", "");
        check(Kind::Primary, "db.example 99999", "Invalid master port");
        check(Kind::Primary, "db.example", "wrong number of arguments");
    }

    #[test]
    fn addresses_have_a_limit() {
        check(Kind::List(2), "127.0.0.1 -::1", "127.0.0.1 -::1");
        check(Kind::List(2), "", "");
        check(Kind::List(2), "a b c", "Too many bind addresses specified.");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(effort(256)))]

        #[test]
        fn no_text_panics_and_what_is_shown_can_be_read_again(text: Vec<u8>, small in "[ 0-9a-zKE%]{0,12}") {
            let kinds = [
                Kind::Bool, Kind::Int(-5, 5000), Kind::Clamped(1, 500), Kind::Octal,
                Kind::Memory(0, u64::MAX), Kind::MemoryOrPercent, Kind::Word(MODES),
                Kind::Words(MODES), Kind::Text, Kind::List(16), Kind::SavePoints,
                Kind::OutputLimits, Kind::OomScores, Kind::Percentiles, Kind::Events,
                Kind::Primary,
            ];
            for kind in kinds {
                for text in [&text[..], small.as_bytes()] {
                    let Ok(value) = kind.parse_text(text, None) else { continue };
                    prop_assert_eq!(kind.parse_text(&value.text(), None), Ok(value));
                }
            }
        }
    }
}
