//! The value of a figure, with its type and unit. INFO prints it as Redis does; metrics get a number in base units.

use std::fmt;

#[derive(Clone, PartialEq, Debug)]
pub(in crate::commands::server) enum Value {
    Int(i64),
    /// A number that INFO prints with this many decimals.
    Real(f64, usize),
    /// A percentage, printed with a percent sign.
    Percent(f64),
    /// A duration that INFO prints in microseconds.
    Micros(u64),
    /// A duration that INFO prints in milliseconds.
    Millis(i64),
    /// Name and number of a state.
    State(&'static str, u8),
    Text(String),
}

impl Value {
    /// Parses a text; it becomes a number if it is one.
    pub(in crate::commands::server) fn parse(text: &str) -> Self {
        let decimals = || text.split('.').nth(1).map_or(0, str::len);
        let integer = text.parse().map(Self::Int);
        let real = || text.parse().map(|value| Self::Real(value, decimals()));
        integer.or_else(|_| real()).unwrap_or_else(|_| text.into())
    }

    /// Returns the number in base units (seconds, bytes), if it is one.
    pub(in crate::commands::server) fn number(&self) -> Option<f64> {
        match *self {
            Self::Int(value) => Some(value as f64),
            Self::Real(value, _) | Self::Percent(value) => Some(value),
            Self::Micros(value) => Some(value as f64 / 1e6),
            Self::Millis(value) => Some(value as f64 / 1e3),
            Self::State(_, number) => Some(f64::from(number)),
            Self::Text(_) => None,
        }
    }

    /// Creates a state that is good or bad.
    pub(in crate::commands::server) const fn ok(is_ok: bool) -> Self {
        if is_ok { Self::State("ok", 1) } else { Self::State("err", 0) }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int(value) => write!(f, "{value}"),
            Self::Real(value, decimals) => write!(f, "{value:.decimals$}"),
            Self::Percent(value) => write!(f, "{value:.2}%"),
            Self::Micros(value) => write!(f, "{value}"),
            Self::Millis(value) => write!(f, "{value}"),
            Self::State(word, _) => f.write_str(word),
            Self::Text(text) => f.write_str(text),
        }
    }
}

macro_rules! from_integers {
    ($($integer:ty)*) => {$(
        impl From<$integer> for Value {
            fn from(value: $integer) -> Self {
                // None of these counts reaches 2^63.
                Self::Int(value as i64)
            }
        }
    )*};
}
from_integers!(u8 u16 u32 u64 usize i64);

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Int(value.into())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_printed_as_by_redis_and_measured_in_base_units() {
        for (value, text, number) in [
            (7_u64.into(), "7", Some(7.0)),
            (true.into(), "1", Some(1.0)),
            (Value::Real(1.5, 2), "1.50", Some(1.5)),
            (Value::Percent(12.5), "12.50%", Some(12.5)),
            (Value::Micros(2_500_000), "2500000", Some(2.5)),
            (Value::Millis(1500), "1500", Some(1.5)),
            (Value::ok(false), "err", Some(0.0)),
            ("words".into(), "words", None),
            (Value::parse("12"), "12", Some(12.0)),
            (Value::parse("1.00"), "1.00", Some(1.0)),
            (Value::parse("c11-builtin"), "c11-builtin", None),
        ] {
            assert_eq!((value.to_string().as_str(), value.number()), (text, number));
        }
    }
}
