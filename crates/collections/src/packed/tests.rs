use proptest::collection::vec;
use proptest::prelude::*;
use tierce_harness::effort;

use super::*;
use crate::size_class;

/// An edit of a sequence; indices are taken modulo the length.
#[derive(Debug, Clone)]
enum Edit {
    Insert(usize, Vec<u8>),
    PushFront(Vec<u8>),
    PushBack(Vec<u8>),
    Replace(usize, Vec<u8>),
    Remove(usize, usize),
    InsertAll(usize, Vec<Vec<u8>>),
    SplitOff(usize),
    Shrink,
}

fn text() -> impl Strategy<Value = Vec<u8>> {
    let long: usize = if cfg!(miri) { 200 } else { 9000 };
    prop_oneof![
        4 => (any::<i64>(), 0u32..64).prop_map(|(value, shift)| (value >> shift).to_string().into()),
        4 => vec(any::<u8>(), 0..8),
        2 => vec(b'a'..b'c', 0..4),
        1 => (0..=long, any::<u8>()).prop_map(|(len, byte)| vec![byte; len]),
    ]
}

fn edit() -> impl Strategy<Value = Edit> {
    let at = any::<usize>;
    prop_oneof![
        3 => (at(), text()).prop_map(|(at, text)| Edit::Insert(at, text)),
        2 => text().prop_map(Edit::PushFront),
        2 => text().prop_map(Edit::PushBack),
        2 => (at(), text()).prop_map(|(at, text)| Edit::Replace(at, text)),
        2 => (at(), 0usize..5).prop_map(|(at, count)| Edit::Remove(at, count)),
        1 => (at(), vec(text(), 0..5)).prop_map(|(at, texts)| Edit::InsertAll(at, texts)),
        1 => at().prop_map(Edit::SplitOff),
        1 => Just(Edit::Shrink),
    ]
}

fn packed_of(texts: &[Vec<u8>]) -> Packed {
    let mut packed = Packed::new();
    texts.iter().for_each(|text| packed.push_back(text));
    packed
}

fn texts_of<'a>(elements: impl Iterator<Item = Element<'a>>) -> Vec<Vec<u8>> {
    elements.map(|element| element.to_vec()).collect()
}

fn apply(packed: &mut Packed, model: &mut Vec<Vec<u8>>, edit: Edit) {
    let len = model.len();
    match edit {
        Edit::Insert(at, text) => {
            let at = at % (len + 1);
            packed.insert(packed.seek(at), &text);
            model.insert(at, text);
        }
        Edit::PushFront(text) => {
            packed.push_front(&text);
            model.insert(0, text);
        }
        Edit::PushBack(text) => {
            packed.push_back(&text);
            model.push(text);
        }
        Edit::Replace(at, text) if len > 0 => {
            packed.replace(packed.seek(at % len), &text);
            model[at % len] = text;
        }
        Edit::Replace(..) => {}
        Edit::Remove(at, count) => {
            let at = at % (len + 1);
            packed.remove(packed.seek(at), count);
            model.drain(at..len.min(at + count));
        }
        Edit::InsertAll(at, texts) => {
            let at = at % (len + 1);
            packed.insert_all(packed.seek(at), &packed_of(&texts));
            model.splice(at..at, texts);
        }
        Edit::SplitOff(at) => {
            let at = at % (len + 1);
            let cut = packed.split_off(packed.seek(at));
            assert_eq!(texts_of(cut.iter()), model.split_off(at));
        }
        Edit::Shrink => {
            packed.shrink_to_fit();
            let bytes = if packed.is_empty() { 0 } else { size_class(8 + packed.bytes_len()) };
            assert_eq!(packed.allocated_bytes(), bytes);
        }
    }
}

fn check(packed: &Packed, model: &[Vec<u8>]) {
    assert_eq!(packed.len(), model.len());
    assert_eq!(texts_of(packed.iter()), model);
    let reversed: Vec<_> = model.iter().rev().cloned().collect();
    assert_eq!(texts_of(packed.iter().rev()), reversed);
    assert!(packed.allocated_bytes() <= 2 * size_class(8 + packed.bytes_len()));
    assert_eq!(packed.bytes_len(), model.iter().map(Packed::bytes_of).sum::<usize>());
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(if cfg!(miri) { 8 } else { effort(300) })
    })]

    #[test]
    fn behaves_like_a_vec(edits in vec(edit(), 1..40)) {
        let (mut packed, mut model) = (Packed::new(), Vec::new());
        for edit in edits {
            apply(&mut packed, &mut model, edit);
            check(&packed, &model);
        }
        check(&packed.duplicate(), &model);
        // SAFETY: the pointer comes from `into_raw`.
        check(&unsafe { Packed::from_raw(packed.into_raw()) }, &model);
    }

    #[test]
    fn finds_the_first_of_its_stride(
        texts in vec(text(), 0..12),
        wanted in any::<prop::sample::Index>(),
        from in 0usize..4,
        stride in 1usize..4,
    ) {
        let packed = packed_of(&texts);
        let absent = b"nowhere".to_vec();
        let wanted = if texts.is_empty() { &absent } else { wanted.get(&texts) };
        let expected = (from..texts.len()).step_by(stride).find(|&at| texts[at] == *wanted);
        let found = packed.find(packed.seek(from), wanted, stride);
        prop_assert_eq!(found, expected.map(|at| packed.seek(at)));
        prop_assert_eq!(packed.find(packed.start(), &absent, stride), None);
    }

    #[test]
    fn positions_agree_from_both_ends(texts in vec(text(), 0..12)) {
        let packed = packed_of(&texts);
        let mut at = packed.start();
        for (index, text) in texts.iter().enumerate() {
            prop_assert_eq!(packed.seek(index), at);
            prop_assert_eq!(packed.skip(packed.start(), index), at);
            prop_assert!(packed.get(at) == text[..]);
            prop_assert_eq!(texts_of(packed.iter_from(at)), &texts[index..]);
            prop_assert_eq!(texts_of(packed.iter_until(at)), &texts[..index]);
            let next = packed.next(at);
            prop_assert_eq!(packed.prev(next), Some(at));
            at = next;
        }
        prop_assert_eq!((at, packed.seek(texts.len() + 3)), (packed.end(), packed.end()));
        prop_assert_eq!(packed.skip(packed.start(), texts.len() + 3), packed.end());
    }
}

#[test]
fn one_word_and_no_memory_when_empty() {
    assert_eq!(size_of::<Packed>(), size_of::<usize>());
    let packed = Packed::new();
    assert_eq!((packed.allocated_bytes(), packed.first(), packed.last()), (0, None, None));
    assert_eq!(packed.find(packed.start(), b"x", 1), None);
    assert!(Packed::with_capacity(100).allocated_bytes() >= 108);
}

#[test]
fn memory_is_that_of_a_listpack_or_less() {
    // MEMORY USAGE is not compared here: a listpack takes seven bytes in addition to its elements,
    // which have the same encoding, and is allocated in the same classes.
    let packed = packed_of(&["hello".into(), "1234567".into(), "-7".into()]);
    assert_eq!(packed.as_bytes(), b"\x85hello\x06\xf2\x87\xd6\x12\x04\xdf\xf9\x02");
    assert_eq!(packed.allocated_bytes(), 32);
}

#[test]
fn a_queue_at_the_border_of_classes_is_not_moved_each_time() {
    let mut packed = Packed::new();
    (0..1000).for_each(|number: i64| packed.push_back(number));
    let bytes = packed.allocated_bytes();
    for number in 0..500i64 {
        packed.push_back(number);
        packed.remove(packed.start(), 1);
    }
    assert!(packed.allocated_bytes() <= bytes * 5 / 4);
    packed.clear();
    assert_eq!(packed.allocated_bytes(), 0);
}
