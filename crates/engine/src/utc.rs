//! Moments in a readable form: the calendar in UTC.

use std::fmt::{self, Display};
use std::str::FromStr;

const DAYS_OF_400_YEARS: i64 = 146_097;

/// Number of days from 1 March of the year 0 to 1970.
const DAYS_BEFORE_1970: i64 = 719_468;

/// A moment in Unix milliseconds, formatted as `20 Nov 2026 21:01:04.123`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Utc(pub i64);

impl Utc {
    /// Returns the day (from 1), month (from 0), year, and milliseconds of the day.
    fn parts(&self) -> (i64, usize, i64, i64) {
        const DAY_MS: i64 = 86_400_000;
        let (day, month, year) = civil(self.0.div_euclid(DAY_MS));
        (day, month, year, self.0.rem_euclid(DAY_MS))
    }

    /// Formats the moment as `2026-11-20T21:01:04.123Z`.
    #[must_use]
    pub fn rfc3339(&self) -> String {
        let (day, month, year, ms) = self.parts();
        format!("{year:04}-{:02}-{day:02}T{}Z", month + 1, TimeOfDay(ms))
    }
}

impl FromStr for Utc {
    type Err = String;

    /// Parses `2026-11-20T21:01:04.123Z`. The fraction is optional, and a space may replace the `T`.
    fn from_str(text: &str) -> Result<Self, String> {
        parse(text).ok_or_else(|| {
            format!("{text}: not a moment in UTC; expected one such as 2026-11-20T21:01:04.123Z")
        })
    }
}

fn parse(text: &str) -> Option<Utc> {
    let (date, time) = text.strip_suffix('Z')?.split_once(['T', ' '])?;
    let mut date = date.split('-').map(digits);
    let (year, month, day) = (date.next()??, date.next()?? - 1, date.next()??);
    let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let mut time = time.split(':').map(digits);
    let (hour, minute, second) = (time.next()??, time.next()??, time.next()??);
    let is_time = hour < 24 && minute < 60 && second < 60 && (1..=3).contains(&fraction.len());
    if date.next().is_some() || time.next().is_some() || !is_time || !(0..12).contains(&month) {
        return None;
    }
    let ms = digits(&format!("{fraction:0<3}"))?;
    let days = days(day, month, year);
    // A day that its month does not have converts to a different day.
    let is_day = civil(days) == (day, usize::try_from(month).ok()?, year);
    is_day.then(|| Utc((((days * 24 + hour) * 60 + minute) * 60 + second) * 1000 + ms))
}

/// Parses a number of up to four digits, without other characters.
fn digits(text: &str) -> Option<i64> {
    let is_number = (1..=4).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_number)
}

impl Display for Utc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MONTHS: [&str; 12] =
            ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
        let (day, month, year, ms) = self.parts();
        write!(f, "{day:02} {} {year} {}", MONTHS[month], TimeOfDay(ms))
    }
}

/// Milliseconds of a day, formatted as `21:01:04.123`.
struct TimeOfDay(i64);

impl Display for TimeOfDay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = self.0;
        let (hour, minute, second) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1000 % 60);
        write!(f, "{hour:02}:{minute:02}:{second:02}.{:03}", ms % 1000)
    }
}

/// Returns the day (from 1), month (from 0) and year of a day counted from 1 January 1970.
///
/// Counts in years that begin in March. Then the leap day is the last of its year, and the months before have
/// a regular pattern of 153 days for five.
fn civil(days: i64) -> (i64, usize, i64) {
    let days = days + DAYS_BEFORE_1970;
    let day_of_400_years = days.rem_euclid(DAYS_OF_400_YEARS);
    let year_of_400 = (day_of_400_years - day_of_400_years / 1460 + day_of_400_years / 36_524
        - day_of_400_years / (DAYS_OF_400_YEARS - 1))
        / 365;
    let day_of_year = day_of_400_years - (365 * year_of_400 + year_of_400 / 4 - year_of_400 / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = (march_month + 2) % 12;
    let year = days.div_euclid(DAYS_OF_400_YEARS) * 400 + year_of_400 + i64::from(month < 2);
    (day, month as usize, year)
}

/// Does the reverse of [`civil`].
fn days(day: i64, month: i64, year: i64) -> i64 {
    let year = year - i64::from(month < 2);
    let day_of_year = (153 * ((month + 10) % 12) + 2) / 5 + day - 1;
    let year_of_400 = year.rem_euclid(400);
    let day_of_400_years = year_of_400 * 365 + year_of_400 / 4 - year_of_400 / 100 + day_of_year;
    year.div_euclid(400) * DAYS_OF_400_YEARS + day_of_400_years - DAYS_BEFORE_1970
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        for day in -800_000..800_000 {
            let (of_month, month, year) = civil(day);
            assert_eq!(days(of_month, month as i64, year), day);
        }
        for ms in [0, 1, 951_782_399_999, 951_782_400_000, 1_795_467_664_123, 4_102_444_800_000] {
            assert_eq!(Utc(ms).rfc3339().parse(), Ok(Utc(ms)));
        }
        assert_eq!("2026-11-23 19:00:00.5Z".parse(), Ok(Utc(1_795_460_400_500)));
    }

    #[test]
    fn what_is_no_moment_is_refused() {
        for text in [
            "",
            "Z",
            "2026-11-23",
            "2026-11-23T19:00:00",
            "2026-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-00-01T00:00:00Z",
            "2026-11-00T00:00:00Z",
            "2026-11-23T24:00:00Z",
            "2026-11-23T19:60:00Z",
            "2026-11-23T19:00:60Z",
            "2026-11-23T19:00:00.1234Z",
            "2026-11-23T+9:00:00Z",
            "2026-11-23T19:00:00.Z",
            "2026-1-1-1T00:00:00Z",
            "20261-01-01T00:00:00Z",
            "2026-11-23T19:00:00:00Z",
        ] {
            assert!(text.parse::<Utc>().is_err(), "{text}");
        }
    }
}
