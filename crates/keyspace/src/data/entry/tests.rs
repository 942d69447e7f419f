//! Tests entries against a simple model. This folder has the crate's unsafe code: run these under
//! Miri too.

use std::sync::Arc;

use super::*;
use crate::data::value::BLOB_LEN_MIN;
use proptest::prelude::*;
use tierce_harness::effort;
use tierce_storage::ColdLocation;

#[derive(Debug, Clone)]
enum Step {
    StoreText(usize, u8),
    StoreInt(i64),
    StoreBlob(u8),
    Deadline(Option<i64>),
    Extend(usize, u8),
    PushToBlob(u8),
    Rekey(usize),
    Duplicate,
    Attributes(Attributes),
    Renew(u64),
    Touch(u16),
    Use(u16, u8),
    Spill(u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let lens = prop_oneof![4 => 0usize..40, 2 => 240usize..270, 1 => 65_520usize..65_560];
    let step = prop_oneof![
        4 => (lens, any::<u8>()).prop_map(|(len, fill)| Step::StoreText(len, fill)),
        3 => (any::<i64>(), 0u32..64).prop_map(|(value, shift)| Step::StoreInt(value >> shift)),
        2 => any::<u8>().prop_map(Step::StoreBlob),
        3 => any::<Option<i64>>().prop_map(Step::Deadline),
        3 => (0usize..300, any::<u8>()).prop_map(|(more, fill)| Step::Extend(more, fill)),
        2 => any::<u8>().prop_map(Step::PushToBlob),
        1 => prop_oneof![0usize..40, 250usize..260].prop_map(Step::Rekey),
        1 => Just(Step::Duplicate),
        3 => attributes().prop_map(Step::Attributes),
        1 => (1..=u64::MAX).prop_map(Step::Renew),
        1 => any::<u16>().prop_map(Step::Touch),
        1 => (any::<u16>(), 0..=USES_MAX).prop_map(|(stamp, uses)| Step::Use(stamp, uses)),
        1 => any::<u8>().prop_map(Step::Spill),
    ];
    prop::collection::vec(step, 1..if cfg!(miri) { 12 } else { 40 })
}

fn attributes() -> impl Strategy<Value = Attributes> {
    let flags = (any::<u32>(), 0u32..40).prop_map(|(flags, shift)| flags.checked_shr(shift));
    let marks = any::<[bool; 3]>();
    let location = any::<Option<[u8; 12]>>();
    (flags, any::<Option<u64>>(), marks, location).prop_map(|(flags, version, marks, location)| {
        let [stale, won, fetched] = marks;
        let location = location.map(|bytes| ColdLocation::decode(&bytes));
        let marks = Marks { stale, won, fetched };
        let version = version.and_then(NonZeroU64::new);
        Attributes { flags: flags.unwrap_or(0), version, marks, location }
    })
}

/// Expected state of an entry.
#[derive(Debug, Clone)]
struct Model {
    key: Vec<u8>,
    value: Vec<u8>,
    kind: Kind,
    deadline_ms: Option<i64>,
    attributes: Attributes,
    access: Access,
}

impl Model {
    fn check(&self, entry: &Entry) {
        assert_eq!(entry.key(), self.key);
        assert!(entry.is_key(&self.key));
        match entry.spilled() {
            Some(spilled) => {
                assert_eq!(spilled.encode(), *self.value);
                assert_eq!(entry.string().unwrap_err(), Error::Unreadable);
                assert_eq!(entry.location(), Some(spilled.location));
            }
            None => {
                assert_eq!(entry.string().unwrap().to_vec(), self.value);
                assert_eq!(entry.string().unwrap().len(), self.value.len());
                assert_eq!(entry.location(), self.attributes.location);
            }
        }
        assert_eq!(entry.kind(), self.kind);
        assert_eq!(entry.deadline_ms(), self.deadline_ms);
        assert_eq!(entry.attributes(), self.attributes);
        assert_eq!(entry.flags(), self.attributes.flags);
        assert!(entry.carries(&self.attributes));
        assert_eq!(entry.access(), self.access);
        assert_eq!(entry.is_volatile(), self.deadline_ms.is_some());
        let parts = self.key.len() + entry.shape().payload_len + self.attributes.tail_len();
        assert!(entry.allocated_bytes() >= parts);
    }

    fn set(&mut self, kind: Kind, value: Vec<u8>) {
        (self.kind, self.value) = (kind, value);
    }
}

fn bytes_of(value: OutOfLine) -> Vec<u8> {
    let OutOfLine::Blob(blob) = value else { panic!("{value:?} is no blob") };
    blob.to_vec()
}

fn apply(step: Step, entry: &mut Entry, model: &mut Model) {
    let deadline_ms = model.deadline_ms;
    match step {
        Step::StoreText(len, fill) => {
            let text = vec![fill; len];
            entry.store(Content::Embedded(&text), deadline_ms);
            model.set(Kind::Embedded, text);
        }
        Step::StoreInt(value) => {
            entry.store(Content::Int(value), deadline_ms);
            model.set(Kind::Int, value.to_string().into_bytes());
        }
        Step::StoreBlob(fill) => {
            let bytes = vec![fill; 100];
            let held = model.kind == Kind::Blob;
            let displaced = entry.store(Content::Blob(Arc::new(bytes.clone())), deadline_ms);
            assert_eq!(displaced.map(bytes_of), held.then(|| model.value.clone()));
            model.set(Kind::Blob, bytes);
        }
        Step::Deadline(deadline_ms) => {
            entry.set_deadline(deadline_ms);
            model.deadline_ms = deadline_ms;
        }
        Step::Extend(more, fill) if !matches!(model.kind, Kind::Blob | Kind::Spilled) => {
            let old = model.value.len();
            let bytes = entry.extend_raw(old + more);
            assert!(bytes[old..].iter().all(|byte| *byte == 0));
            bytes[old..].fill(fill);
            model.value.resize(old + more, fill);
            model.kind = Kind::Raw;
        }
        Step::PushToBlob(byte) if model.kind == Kind::Blob => {
            entry.change_blob(|blob| Arc::make_mut(blob).push(byte));
            model.value.push(byte);
        }
        Step::Extend(..) | Step::PushToBlob(_) => {}
        Step::Rekey(len) => {
            model.key = vec![b'r'; len];
            let old =
                std::mem::replace(entry, Entry::new(b"", Content::Int(0), None, Access::default()));
            *entry = old.with_key(&model.key);
            model.attributes.version = None;
        }
        Step::Spill(fill) => {
            let mut location = [fill; Spilled::ENCODED_LEN];
            location[0] = fill % 2;
            let spilled = Spilled::decode(&location).expect("a string on disk");
            entry.store(Content::Spilled(spilled), deadline_ms);
            model.set(Kind::Spilled, location.to_vec());
        }
        Step::Duplicate if model.kind == Kind::Spilled => {}
        Step::Duplicate => {
            let copy = entry.duplicate(b"copy", model.access);
            let attributes = Attributes { version: None, location: None, ..model.attributes };
            Model { key: b"copy".to_vec(), attributes, ..model.clone() }.check(&copy);
        }
        Step::Attributes(attributes) => {
            entry.set_attributes(attributes);
            model.attributes = attributes;
        }
        Step::Renew(version) => {
            let version = NonZeroU64::new(version);
            entry.renew_version(version.expect("not zero"));
            model.attributes.version = model.attributes.version.and(version);
        }
        Step::Touch(clock) => {
            model.access.stamp = Stamp::from_bits(clock);
            entry.touch(model.access.stamp);
        }
        Step::Use(stamp, uses) => {
            model.access = Access { stamp: Stamp::from_bits(stamp), uses };
            entry.set_access(model.access);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 24 } else { effort(512) },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn an_entry_keeps_what_it_was_given(key_len in prop_oneof![0usize..32, 250usize..260], steps in steps()) {
        let key = vec![b'k'; key_len];
        let access = Access { stamp: Stamp::from_bits(3), uses: 2 };
        let mut entry = Entry::new(&key, Content::Embedded(b""), None, access);
        let mut model =
            Model {
                key,
                value: Vec::new(),
                kind: Kind::Embedded,
                deadline_ms: None,
                attributes: Attributes::NONE,
                access,
            };
        for step in steps {
            apply(step, &mut entry, &mut model);
            model.check(&entry);
        }
    }
}

#[test]
fn integers_take_the_fewest_bytes() {
    for (value, width) in [
        (0, 1),
        (-128, 1),
        (127, 1),
        (128, 2),
        (-129, 2),
        (i64::from(i16::MIN), 2),
        (i64::from(i16::MAX) + 1, 4),
        (i64::from(i32::MIN), 4),
        (i64::from(i32::MAX) + 1, 8),
        (i64::MIN, 8),
        (i64::MAX, 8),
    ] {
        assert_eq!(int_width(value), width, "of {value}");
        let entry = Entry::new(b"k", Content::Int(value), None, Access::default());
        assert!(matches!(entry.string().unwrap(), StrView::Int(back) if back == value));
    }
}

#[test]
fn a_value_of_the_same_class_is_overwritten_in_place() {
    let mut entry =
        Entry::new(b"0123456789abcdef", Content::Embedded(&[1; 10]), None, Access::default());
    let home = entry.address();
    entry.store(Content::Embedded(&[2; 13]), None);
    assert_eq!(entry.address(), home, "13 bytes still fit into the class of 32");
    entry.store(Content::Int(7), Some(1));
    assert_eq!(entry.address(), home, "so do an integer and a deadline");
    entry.store(Content::Embedded(&[2; 14]), None);
    assert_eq!(entry.allocated_bytes(), 48);
}

#[test]
fn a_blob_is_shared_and_then_left_alone() {
    let bytes = vec![7u8; BLOB_LEN_MIN];
    let mut entry = Entry::new(b"k", Content::of_string(&bytes), None, Access::default());
    let StrView::Shared(blob) = entry.string().unwrap() else {
        panic!("a string of this size is a blob")
    };
    let reply = blob.to_arc();
    entry.change_blob(|blob| Arc::make_mut(blob).push(8));
    assert_eq!(reply.len(), BLOB_LEN_MIN);
    assert_eq!(entry.string().unwrap().len(), BLOB_LEN_MIN + 1);
    drop(entry);
    assert_eq!(Arc::strong_count(&reply), 1);
}

#[test]
fn a_panic_while_a_blob_is_changed_loses_nothing() {
    let mut entry = Entry::new(b"k", Content::Blob(Arc::new(vec![1; 10])), None, Access::default());
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        entry.change_blob(|blob| {
            *blob = Arc::new(vec![2; 20]);
            panic!("halfway");
        })
    }));
    assert!(outcome.is_err());
    assert_eq!(entry.string().unwrap().to_vec(), vec![2; 20]);
}
