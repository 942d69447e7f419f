//! Deadlines of members of sets in RDB files: auxiliary fields after the set.
//!
//! Redis' format has no public form for such sets. Redis and older versions of Tierce skip the fields, and load plain
//! sets.
//!
//! A field has the database (4 bytes), the length of the key (4 bytes), the key, and for each member its deadline as
//! Unix time in milliseconds (8 bytes), its length (4 bytes) and the member. Numbers are little-endian.

use tierce_collections::Set;
use tierce_keyspace::log::MemberDeadline;
use tierce_keyspace::{Db, DbIndex, Error, Key, Missing};

/// Name of the auxiliary field.
pub(super) const DEADLINES_REMARK: &[u8] = b"tierce-set-deadlines";

/// Length from which a field is followed by another one.
const FIELD_LEN: usize = 64 << 10;

/// The fields of one set, as they are collected.
#[derive(Debug)]
pub struct DeadlineFields<'a> {
    db: DbIndex,
    key: &'a [u8],
    pub(super) fields: Vec<Vec<u8>>,
}

impl<'a> DeadlineFields<'a> {
    pub(super) fn new(db: DbIndex, key: &'a [u8]) -> Self {
        Self { db, key, fields: Vec::new() }
    }

    /// Adds the deadline of a member.
    pub(super) fn add(&mut self, member: &[u8], at_ms: i64) {
        if self.fields.last().is_none_or(|field| field.len() >= FIELD_LEN) {
            let mut head = (self.db.get() as u32).to_le_bytes().to_vec();
            push(&mut head, self.key);
            self.fields.push(head);
        }
        let field = self.fields.last_mut().expect("one was added");
        field.extend_from_slice(&at_ms.to_le_bytes());
        push(field, member);
    }
}

fn push(field: &mut Vec<u8>, bytes: &[u8]) {
    field.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    field.extend_from_slice(bytes);
}

/// A field that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberDeadlines<'a> {
    /// Number of the database.
    pub db: u64,
    /// Key of the set.
    pub key: &'a [u8],
    /// Deadlines and members, for [`MemberDeadlines::store`].
    pub pairs: &'a [u8],
}

impl<'a> MemberDeadlines<'a> {
    pub(super) fn read(field: &'a [u8]) -> Option<Self> {
        let (db, rest) = field.split_first_chunk()?;
        let (key, pairs) = bytes_of(rest)?;
        let mut rest = pairs;
        while !rest.is_empty() {
            let ((_, at_ms), next) = pair_of(rest)?;
            rest = next;
            if !MemberDeadline::is_valid(at_ms) {
                return None;
            }
        }
        Some(Self { db: u32::from_le_bytes(*db).into(), key, pairs })
    }

    /// Sets these deadlines, if the key is a set that has the members.
    ///
    /// # Errors
    /// If the key is of another type.
    pub fn store(pairs: &[u8], db: &mut Db<'_>, key: Key<'_>) -> Result<(), Error> {
        db.edit::<Set, _, Error>(key, Missing::Skip, |set| {
            let mut rest = pairs;
            while let Some(((member, at_ms), next)) = pair_of(rest) {
                set.set_deadline(member, Some(at_ms));
                rest = next;
            }
            Ok(())
        })?;
        Ok(())
    }
}

type Pair<'a> = (&'a [u8], i64);

fn bytes_of(field: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = field.split_first_chunk()?;
    rest.split_at_checked(u32::from_le_bytes(*len) as usize)
}

/// Returns the first member with its deadline, and the rest.
fn pair_of(field: &[u8]) -> Option<(Pair<'_>, &[u8])> {
    let (at_ms, rest) = field.split_first_chunk()?;
    let (member, rest) = bytes_of(rest)?;
    Some(((member, i64::from_le_bytes(*at_ms)), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_out_of_range_is_refused() {
        let is_read = |at_ms| {
            let mut fields = DeadlineFields::new(DbIndex::ZERO, b"key");
            fields.add(b"first", 7);
            fields.add(b"second", at_ms);
            MemberDeadlines::read(&fields.fields[0]).is_some()
        };
        assert!([1, (1 << 46) - 1].into_iter().all(is_read));
        assert!(![i64::MIN, -1, 0, 1 << 46, i64::MAX].into_iter().any(is_read));
    }

    #[test]
    fn a_field_is_read_as_it_was_written_and_a_part_of_it_is_refused() {
        let mut fields = DeadlineFields::new(DbIndex::ZERO, b"key");
        fields.add(b"member", 7);
        let field = &fields.fields[0];
        let read = MemberDeadlines::read(field).expect("it is whole");
        assert_eq!((read.db, read.key), (0, &b"key"[..]));
        assert_eq!(pair_of(read.pairs), Some(((&b"member"[..], 7), &b""[..])));
        for len in 0..field.len() {
            let is_without_pairs = len == field.len() - 18;
            assert_eq!(MemberDeadlines::read(&field[..len]).is_some(), is_without_pairs);
        }
    }
}
