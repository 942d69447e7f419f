//! A checked value of a directive, and its text for CONFIG GET and for a file.

use tierce_wire::words::quote;

use super::events::Events;
use super::limits::{OutputLimits, memory_with_unit};

/// Value of a directive. The directive's kind determines the variant.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// `yes` or `no`.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// File permissions, written in octal.
    Octal(u32),
    /// A number of bytes.
    Memory(u64),
    /// A share of `maxmemory`, in percent.
    Percent(u32),
    /// One word of a fixed choice.
    Word(&'static str),
    /// Several words of a fixed choice.
    Words(Vec<&'static str>),
    /// Any bytes: a name, a path, a password.
    Text(Vec<u8>),
    /// Several texts without blanks.
    List(Vec<Vec<u8>>),
    /// Save points; none means no snapshots.
    SavePoints(Vec<SavePoint>),
    /// Limits of output buffers, by class of client.
    OutputLimits(OutputLimits),
    /// The kernel's out-of-memory scores for the server, a replica, and background work.
    OomScores([i32; 3]),
    /// Percentiles that INFO shows, each between 0 and 100.
    Percentiles(Vec<f64>),
    /// Events that are published.
    Events(Events),
    /// Host and port of the primary to replicate from.
    Primary(Option<(Vec<u8>, u16)>),
}

/// A snapshot is due after `seconds` if there were `changes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SavePoint {
    /// Age of the last snapshot, at least 1.
    pub seconds: u64,
    /// Number of changes since then.
    pub changes: u32,
}

impl Value {
    /// Returns the text that CONFIG GET shows.
    pub fn text(&self) -> Vec<u8> {
        match self {
            Self::Bool(yes) => yes_or_no(*yes).into(),
            Self::Int(number) => number.to_string().into(),
            Self::Octal(bits) => format!("{bits:o}").into(),
            Self::Memory(bytes) => bytes.to_string().into(),
            Self::Percent(percent) => format!("{percent}%").into(),
            Self::Word(word) => (*word).into(),
            Self::Words(words) => words.join(" ").into(),
            Self::Text(text) => text.clone(),
            Self::List(texts) => texts.join(&b' '),
            Self::SavePoints(points) => {
                let points: Vec<String> = points.iter().map(SavePoint::to_string).collect();
                points.join(" ").into()
            }
            Self::OutputLimits(limits) => limits.to_string().into(),
            Self::OomScores([server, replica, child]) => {
                format!("{server} {replica} {child}").into()
            }
            Self::Percentiles(percentiles) => {
                let texts: Vec<String> = percentiles.iter().copied().map(percentile_text).collect();
                texts.join(" ").into()
            }
            Self::Events(events) => events.to_string().into(),
            Self::Primary(None) => Vec::new(),
            Self::Primary(Some((host, port))) => {
                [host.as_slice(), b" ", port.to_string().as_bytes()].concat()
            }
        }
    }

    /// Returns the arguments after the directive's name in a configuration file. Each element is
    /// one line; there is at least one.
    pub fn file_lines(&self) -> Vec<Vec<u8>> {
        match self {
            Self::Memory(bytes) => vec![memory_with_unit(*bytes).into()],
            Self::Primary(None) => vec![b"no one".into()],
            Self::Text(text) => vec![quote(text)],
            Self::List(texts) if texts.is_empty() => vec![quote(b"")],
            Self::List(texts) => vec![join_quoted(texts.iter())],
            Self::Primary(Some((host, port))) => {
                vec![join_quoted([host, &port.to_string().into_bytes()].into_iter())]
            }
            Self::Percentiles(percentiles) if percentiles.is_empty() => vec![quote(b"")],
            Self::SavePoints(points) if points.is_empty() => vec![quote(b"")],
            Self::SavePoints(points) => {
                points.iter().map(|point| point.to_string().into()).collect()
            }
            Self::OutputLimits(limits) => limits.file_lines(),
            Self::Events(events) => vec![quote(events.to_string().as_bytes())],
            other => vec![other.text()],
        }
    }

    /// Merges two lines of one source: save points accumulate, all other values are replaced.
    pub(super) fn followed_by(&self, next: Self) -> Self {
        match (self, next) {
            (Self::SavePoints(points), Self::SavePoints(more)) if !more.is_empty() => {
                Self::SavePoints([points.as_slice(), &more].concat())
            }
            (_, next) => next,
        }
    }
}

impl std::fmt::Display for SavePoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.seconds, self.changes)
    }
}

/// Joins words, quoted where necessary.
fn join_quoted<'a>(words: impl Iterator<Item = &'a Vec<u8>>) -> Vec<u8> {
    let plain = |byte: &u8| byte.is_ascii_graphic() && !b"\"'\\".contains(byte);
    let quoted = |word: &Vec<u8>| match !word.is_empty() && word.iter().all(plain) {
        true => word.clone(),
        false => quote(word),
    };
    words.map(quoted).collect::<Vec<_>>().join(&b' ')
}

fn yes_or_no(yes: bool) -> &'static str {
    if yes { "yes" } else { "no" }
}

/// Formats with at most six decimals, like C's `%f`, without trailing zeros.
fn percentile_text(percentile: f64) -> String {
    let text = format!("{percentile:.6}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::{SavePoint, Value, memory_with_unit, percentile_text};

    #[test]
    fn memory_takes_the_largest_unit_that_divides_it() {
        assert_eq!(memory_with_unit(0), "0");
        assert_eq!(memory_with_unit(1 << 30), "1gb");
        assert_eq!(memory_with_unit(1536 << 10), "1536kb");
        assert_eq!(memory_with_unit(1_000_000), "1000000");
    }

    #[test]
    fn percentiles_lose_their_trailing_zeros() {
        assert_eq!(percentile_text(50.0), "50");
        assert_eq!(percentile_text(99.999), "99.999");
        assert_eq!(percentile_text(100.0), "100");
        assert_eq!(percentile_text(0.0), "0");
    }

    #[test]
    fn no_save_point_is_written_as_an_empty_argument() {
        assert_eq!(Value::SavePoints(vec![]).file_lines(), [b"\"\""]);
        assert_eq!(Value::SavePoints(vec![]).text(), b"");
        let points = [60, 300].map(|seconds| SavePoint { seconds, changes: 1 });
        assert_eq!(Value::SavePoints(points.to_vec()).file_lines().len(), 2);
        assert_eq!(Value::SavePoints(points.to_vec()).text(), b"60 1 300 1");
    }
}
