//! The replication id of a stream, and the decision which replicas may continue in it.
//!
//! A promoted replica can continue the stream of its old primary under a new id. It remembers the old id with the
//! offset up to which it has that stream, so that the other replicas can continue with it without a full copy.
//!
//! Offsets count bytes: at offset `n`, `n` bytes of the stream are known. `PSYNC` names the first byte that is
//! *missing*, which is one more.

use std::fmt;
use std::ops::RangeInclusive;

/// Length of a replication id.
pub const ID_LEN: usize = 40;

/// Replication id of a stream: forty characters. Tierce and Redis use hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ReplicationId([u8; ID_LEN]);

impl ReplicationId {
    /// Placeholder that no stream has as its id; INFO shows it if there is no id.
    pub const NONE: Self = Self([b'0'; ID_LEN]);

    /// Parses an id of forty printable characters.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        let id: [u8; ID_LEN] = text.try_into().ok()?;
        id.iter().all(u8::is_ascii_graphic).then_some(Self(id))
    }

    /// Builds a new id from random bytes.
    #[must_use]
    pub fn from_random(bytes: [u8; ID_LEN / 2]) -> Self {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut id = [0; ID_LEN];
        for (pair, byte) in id.chunks_exact_mut(2).zip(bytes) {
            pair[0] = DIGITS[usize::from(byte >> 4)];
            pair[1] = DIGITS[usize::from(byte & 15)];
        }
        Self(id)
    }

    /// Returns the forty characters.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; ID_LEN] {
        &self.0
    }
}

impl fmt::Display for ReplicationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(std::str::from_utf8(&self.0).unwrap_or_default())
    }
}

impl fmt::Debug for ReplicationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// Present and previous id of a server's stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Id of the stream.
    pub id: ReplicationId,
    /// Id that the stream had up to some offset.
    pub previous: Option<Previous>,
}

/// Previous id of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Previous {
    /// The id.
    pub id: ReplicationId,
    /// Offset up to which the stream had it.
    pub until: u64,
}

/// Request of a replica with `PSYNC`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// `PSYNC ? -1`, or an id that no stream can have.
    FullCopy,
    /// Continue in a stream.
    Rest {
        /// Its id.
        id: ReplicationId,
        /// First missing byte, counted from 1.
        first_missing: i64,
    },
}

impl Wish {
    /// Parses the arguments of `PSYNC`.
    #[must_use]
    pub fn new(id: &[u8], first_missing: i64) -> Self {
        ReplicationId::parse(id).map_or(Self::FullCopy, |id| Self::Rest { id, first_missing })
    }
}

/// Reason why a replica cannot continue, as logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It asks for a full copy.
    #[error("it asks for a full copy")]
    Asked,
    /// Its stream is a different one.
    #[error("it knows another stream")]
    OtherStream,
    /// Its offset is behind the point at which the two streams diverge.
    #[error("it knows more of the previous stream than this server has")]
    Ahead,
    /// The bytes from its offset on are no longer kept, or do not exist yet.
    #[error("the backlog does not have what it misses")]
    NotKept,
}

impl Identity {
    /// Returns the identity of a new stream without a previous id.
    #[must_use]
    pub fn new(id: ReplicationId) -> Self {
        Self { id, previous: None }
    }

    /// Gives the stream a new id at `offset`. The part before `offset` is still valid under the old id.
    #[must_use]
    pub fn renamed(self, id: ReplicationId, offset: u64) -> Self {
        Self { id, previous: Some(Previous { id: self.id, until: offset }) }
    }

    /// Decides if a replica may continue, and returns its offset. The backlog can continue from the offsets `kept`.
    ///
    /// # Errors
    /// Returns the reason why it needs a full copy.
    pub fn decide(&self, wish: Wish, kept: Option<RangeInclusive<u64>>) -> Result<u64, Refusal> {
        let Wish::Rest { id, first_missing } = wish else { return Err(Refusal::Asked) };
        // A replica without data misses the first byte. Zero and negative numbers are invalid.
        let known = u64::try_from(first_missing).ok().and_then(|first| first.checked_sub(1));
        let known = known.ok_or(Refusal::NotKept)?;
        if id != self.id {
            match self.previous {
                Some(previous) if previous.id == id && known <= previous.until => {}
                Some(previous) if previous.id == id => return Err(Refusal::Ahead),
                _ => return Err(Refusal::OtherStream),
            }
        }
        let is_kept = kept.is_some_and(|kept| kept.contains(&known));
        is_kept.then_some(known).ok_or(Refusal::NotKept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(digit: u8) -> ReplicationId {
        ReplicationId::from_random([digit; ID_LEN / 2])
    }

    #[test]
    fn a_name_is_forty_printable_characters() {
        let made = ReplicationId::from_random(std::array::from_fn(|at| at as u8 * 13));
        assert_eq!(ReplicationId::parse(made.as_bytes()), Some(made));
        assert_eq!(made.to_string().len(), ID_LEN);
        assert!(made.to_string().bytes().all(|byte| byte.is_ascii_hexdigit()));
        for wrong in [&b"?"[..], &[b'a'; 39], &[b'a'; 41], &[0; 40], &[b' '; 40]] {
            assert_eq!(ReplicationId::parse(wrong), None);
            assert_eq!(Wish::new(wrong, 1), Wish::FullCopy);
        }
    }

    #[test]
    fn who_may_go_on() {
        let (now, before, other) = (id(1), id(2), id(3));
        let promoted = Identity::new(before).renamed(now, 150);
        let plain = Identity::new(now);
        let kept = Some(100..=200);
        let rest = |id: ReplicationId, first| Wish::Rest { id, first_missing: first };
        #[rustfmt::skip]
        let cases = [
            (plain, Wish::FullCopy, kept.clone(), Err(Refusal::Asked)),
            // The limits of the kept range: no byte missing, all of them missing, one more.
            (plain, rest(now, 201), kept.clone(), Ok(200)),
            (plain, rest(now, 101), kept.clone(), Ok(100)),
            (plain, rest(now, 100), kept.clone(), Err(Refusal::NotKept)),
            (plain, rest(now, 202), kept.clone(), Err(Refusal::NotKept)),
            (plain, rest(now, 101), None, Err(Refusal::NotKept)),
            (plain, rest(other, 150), kept.clone(), Err(Refusal::OtherStream)),
            (plain, rest(before, 150), kept.clone(), Err(Refusal::OtherStream)),
            // After a promotion at 150: a replica that is not ahead in the old stream may continue.
            (promoted, rest(before, 151), kept.clone(), Ok(150)),
            (promoted, rest(before, 152), kept.clone(), Err(Refusal::Ahead)),
            (promoted, rest(before, 101), kept.clone(), Ok(100)),
            (promoted, rest(before, 50), kept.clone(), Err(Refusal::NotKept)),
            (promoted, rest(now, 180), kept.clone(), Ok(179)),
            (promoted, rest(other, 120), kept, Err(Refusal::OtherStream)),
            // Numbers that no replica sends.
            (plain, rest(now, 0), Some(0..=10), Err(Refusal::NotKept)),
            (plain, rest(now, 1), Some(0..=10), Ok(0)),
            (plain, rest(now, -5), Some(0..=10), Err(Refusal::NotKept)),
            (plain, rest(now, i64::MIN), Some(0..=10), Err(Refusal::NotKept)),
            (plain, rest(now, i64::MAX), Some(0..=10), Err(Refusal::NotKept)),
        ];
        for (identity, wish, kept, expected) in cases {
            assert_eq!(identity.decide(wish, kept.clone()), expected, "{wish:?} of {kept:?}");
        }
    }

    #[test]
    fn a_second_promotion_forgets_the_first_name() {
        let twice = Identity::new(id(1)).renamed(id(2), 10).renamed(id(3), 20);
        let wish = |id| Wish::Rest { id, first_missing: 6 };
        assert_eq!(twice.decide(wish(id(2)), Some(0..=30)), Ok(5));
        assert_eq!(twice.decide(wish(id(1)), Some(0..=30)), Err(Refusal::OtherStream));
    }
}
