//! The meaning of memcached's expiry times.

use tierce_keyspace::{Db, DeadlineSet, Event, Expiry, Key};

/// Maximum of a relative time; longer times are Unix times.
const RELATIVE_SECONDS_MAX: i64 = 30 * 24 * 60 * 60;

/// Converts an expiry time: zero is never, a negative time is at once, up to 30 days are relative, and more is a Unix
/// time in seconds.
#[inline]
pub fn expiry(exptime: i64, now_ms: i64) -> Expiry {
    match exptime {
        0 => Expiry::Never,
        ..0 => Expiry::At(now_ms),
        1..=RELATIVE_SECONDS_MAX => Expiry::At(now_ms + exptime * 1000),
        _ => Expiry::At(exptime.saturating_mul(1000)),
    }
}

/// Converts a time of the binary protocol, which has no negative ones.
#[inline]
pub fn from_frame(expiry: u32) -> i64 {
    i64::from(expiry)
}

/// Changes the time to live of a key. Returns false if there is no such key.
pub fn touch(db: &mut Db<'_>, key: Key<'_>, exptime: i64) -> bool {
    match expiry(exptime, db.now_ms()) {
        Expiry::At(deadline_ms) => {
            let set = db.set_deadline(key, deadline_ms);
            db.event_of_deadline(key, set);
            set != DeadlineSet::Absent
        }
        Expiry::Never | Expiry::Keep => {
            let exists = db.peek(key).is_some();
            if exists && db.clear_deadline(key) {
                db.event(Event::Persist, key);
            }
            exists
        }
    }
}

/// Returns the seconds left, rounded up; -1 for a key that never expires.
pub fn seconds_left(deadline_ms: Option<i64>, now_ms: i64) -> i64 {
    deadline_ms.map_or(-1, |deadline_ms| (deadline_ms - now_ms + 999).div_euclid(1000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_relative_up_to_thirty_days() {
        let now_ms = 1_700_000_000_500;
        for (exptime, expected) in [
            (0, Expiry::Never),
            (-1, Expiry::At(now_ms)),
            (i64::MIN, Expiry::At(now_ms)),
            (1, Expiry::At(now_ms + 1000)),
            (2_592_000, Expiry::At(now_ms + 2_592_000_000)),
            (2_592_001, Expiry::At(2_592_001_000)),
            (1_800_000_000, Expiry::At(1_800_000_000_000)),
            (i64::MAX, Expiry::At(i64::MAX)),
        ] {
            assert_eq!(expiry(exptime, now_ms), expected, "{exptime}");
        }
        assert_eq!(from_frame(u32::MAX), 4_294_967_295);
        assert_eq!(seconds_left(None, 0), -1);
        assert_eq!([1, 1000, 1001].map(|ms| seconds_left(Some(ms), 0)), [1, 1, 2]);
    }
}
