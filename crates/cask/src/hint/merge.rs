//! Merges hint files: finds the newest record of every key.

use super::entry::{Entry, HintOrder};
use super::reader::{HintCursor, Invalid};
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use tierce_storage::location::SegmentId;

/// Role of a record for the value of its key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Standing {
    Newest,
    Superseded,
}

/// Calls `visit` for every entry, keys in order, the newest of each key first.
pub(crate) fn merge(
    cursors: Vec<HintCursor>,
    order: HintOrder,
    mut visit: impl FnMut(&Entry, SegmentId, Standing),
) -> Result<(), (SegmentId, Invalid)> {
    let mut heads = BinaryHeap::with_capacity(cursors.len());
    for mut cursor in cursors {
        let mut entry = Entry::default();
        if cursor.next(&mut entry).map_err(|invalid| (cursor.segment, invalid))? {
            heads.push(Head { entry, cursor, order });
        }
    }
    let mut last: Option<Vec<u8>> = None;
    while let Some(mut head) = heads.peek_mut() {
        let segment = head.cursor.segment;
        if last.as_deref() == Some(&head.entry.key) {
            visit(&head.entry, segment, Standing::Superseded);
        } else {
            visit(&head.entry, segment, Standing::Newest);
            let last = last.get_or_insert_default();
            last.clear();
            last.extend_from_slice(&head.entry.key);
        }
        let Head { entry, cursor, .. } = &mut *head;
        if !cursor.next(entry).map_err(|invalid| (segment, invalid))? {
            PeekMut::pop(head);
        }
    }
    Ok(())
}

/// Next entry of one file; the greatest in the heap is taken next.
struct Head {
    entry: Entry,
    cursor: HintCursor,
    order: HintOrder,
}

impl Ord for Head {
    fn cmp(&self, other: &Self) -> Ordering {
        let (a, b) = (&self.entry, &other.entry);
        // A copy made by compaction has its original's number; it does not matter which of them
        // wins.
        self.order
            .compare((b.hash, &b.key), (a.hash, &a.key))
            .then_with(|| a.meta.seq.cmp(&b.meta.seq))
            .then_with(|| self.cursor.segment.cmp(&other.cursor.segment))
    }
}

impl PartialOrd for Head {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Head {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Head {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hint::entry::RANGES;
    use crate::hint::reader::HintReader;
    use crate::hint::writer::HintBuilder;
    use std::collections::BTreeMap;
    use std::path::Path;
    use tierce_storage::disk::SimDisk;
    use tierce_storage::hash::HashKey;
    use tierce_storage::manifest::IndexKind;
    use tierce_storage::names;
    use tierce_storage::segment::contents::RecordMeta;

    const STORE: u128 = 5;
    const LEN: u64 = 1 << 20;

    fn order(index: IndexKind) -> HintOrder {
        HintOrder { index, hash_key: HashKey([3, 4]) }
    }

    fn dir() -> &'static Path {
        Path::new("/d")
    }

    fn write(disk: &SimDisk, index: IndexKind, id: u32, entries: &[(Vec<u8>, u64, bool)]) {
        let mut builder = HintBuilder::new(order(index));
        for (key, seq, is_tombstone) in entries {
            let meta =
                RecordMeta { seq: *seq, offset: seq * 64, len: 64, is_tombstone: *is_tombstone };
            builder.add(key, meta);
        }
        builder.write(disk, dir(), STORE, SegmentId(id), LEN).unwrap();
    }

    fn open(disk: &SimDisk, index: IndexKind, id: u32) -> Result<HintReader, Invalid> {
        HintReader::open(disk, dir(), STORE, SegmentId(id), LEN, order(index))
    }

    #[test]
    fn newest_of_every_key_wins_whatever_the_segment() {
        for index in [IndexKind::Hash, IndexKind::Ordered] {
            let disk = SimDisk::new(1);
            let mut model = BTreeMap::new();
            for id in 1..=5u32 {
                let mut entries = Vec::new();
                for i in 0..2000u64 {
                    let key = (i * 7 % 3001).to_string().into_bytes();
                    // A later segment has some newer and some older records.
                    let seq = 1 + i * 5 + u64::from((id + i as u32) % 5);
                    let dead = seq % 3 == 0;
                    entries.push((key.clone(), seq, dead));
                    let newest = model.entry(key).or_insert((0, 0, false));
                    *newest = (*newest).max((seq, id, dead));
                }
                write(&disk, index, id, &entries);
            }
            let mut found = BTreeMap::new();
            let mut total = 0;
            for ranges in [0..20, 20..RANGES] {
                let mut last: Option<(u64, Vec<u8>)> = None;
                let cursors = (1..=5)
                    .map(|id| open(&disk, index, id).unwrap().cursor(ranges.clone()))
                    .collect();
                merge(cursors, order(index), |entry, segment, standing| {
                    total += 1;
                    if standing == Standing::Newest {
                        let here = (entry.hash, entry.key.clone());
                        if let Some(last) = &last {
                            let ascending =
                                order(index).compare((last.0, &last.1), (here.0, &here.1));
                            assert_eq!(ascending, Ordering::Less);
                        }
                        last = Some(here);
                        let meta = (entry.meta.seq, segment.0, entry.meta.is_tombstone);
                        assert_eq!(found.insert(entry.key.clone(), meta), None);
                    }
                })
                .unwrap();
            }
            assert_eq!(found, model);
            assert_eq!(total, 5 * 2000);
        }
    }

    #[test]
    fn every_flipped_bit_and_every_cut_makes_a_hint_invalid() {
        let disk = SimDisk::new(1);
        let entries: Vec<_> = (0..20u64).map(|i| (vec![i as u8; 3], i + 1, i % 4 == 0)).collect();
        write(&disk, IndexKind::Hash, 1, &entries);
        let path = names::hint(dir(), SegmentId(1));
        let check = |disk: &SimDisk| {
            let reader = open(disk, IndexKind::Hash, 1)?;
            reader.verify()?;
            reader.filter().map(|_| ())
        };
        assert_eq!(check(&disk), Ok(()));
        let good = disk.content(&path).unwrap();
        for bit in 0..good.len() as u64 * 8 {
            disk.set_content(&path, good.clone());
            disk.flip_bit(&path, bit);
            assert_eq!(check(&disk), Err(Invalid), "bit {bit}");
        }
        for cut in 0..good.len() {
            disk.set_content(&path, good[..cut].to_vec());
            assert_eq!(check(&disk), Err(Invalid), "cut at {cut}");
        }
    }

    #[test]
    fn hint_of_another_segment_or_order_is_invalid() {
        let disk = SimDisk::new(1);
        write(&disk, IndexKind::Hash, 1, &[(b"k".to_vec(), 1, false)]);
        assert!(open(&disk, IndexKind::Hash, 1).is_ok());
        assert!(open(&disk, IndexKind::Ordered, 1).is_err());
        assert!(open(&disk, IndexKind::Hash, 2).is_err());
        let longer =
            HintReader::open(&disk, dir(), STORE, SegmentId(1), LEN + 8, order(IndexKind::Hash));
        assert!(longer.is_err());
    }
}
