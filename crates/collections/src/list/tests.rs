use proptest::collection::vec;
use proptest::prelude::*;
use tierce_harness::effort;

use super::*;

/// An edit of a list; indices are taken modulo the length.
#[derive(Debug, Clone)]
enum Edit {
    PushFront(Vec<u8>, usize),
    PushBack(Vec<u8>, usize),
    Insert(usize, Vec<u8>),
    Set(usize, Vec<u8>),
    Remove(usize, usize),
    PopFront(usize),
    PopBack(usize),
}

fn text() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => any::<i16>().prop_map(|value| value.to_string().into()),
        4 => vec(any::<u8>(), 0..8),
        1 => (0usize..=90, any::<u8>()).prop_map(|(len, byte)| vec![byte; len]),
    ]
}

fn edit() -> impl Strategy<Value = Edit> {
    let at = any::<usize>;
    let times = if cfg!(miri) { 1usize..20 } else { 1..400 };
    prop_oneof![
        2 => (text(), times.clone()).prop_map(|(text, times)| Edit::PushFront(text, times)),
        2 => (text(), times.clone()).prop_map(|(text, times)| Edit::PushBack(text, times)),
        6 => (at(), text()).prop_map(|(at, text)| Edit::Insert(at, text)),
        4 => (at(), text()).prop_map(|(at, text)| Edit::Set(at, text)),
        3 => (at(), times.clone()).prop_map(|(at, count)| Edit::Remove(at, count)),
        1 => times.clone().prop_map(Edit::PopFront),
        1 => times.prop_map(Edit::PopBack),
    ]
}

fn apply(list: &mut List, model: &mut Vec<Vec<u8>>, edit: Edit, limits: ListLimits) {
    let len = model.len();
    match edit {
        Edit::PushFront(text, times) => {
            for _ in 0..times {
                list.push_front(&text, limits);
            }
            model.splice(0..0, std::iter::repeat_n(text, times));
        }
        Edit::PushBack(text, times) => {
            for _ in 0..times {
                list.push_back(&text, limits);
            }
            model.extend(std::iter::repeat_n(text, times));
        }
        Edit::Insert(at, text) => {
            let at = at % (len + 1);
            list.insert(at, &text, limits);
            model.insert(at, text);
        }
        Edit::Set(at, text) => {
            assert!(!list.set(len, &text, limits));
            if len > 0 {
                assert!(list.set(at % len, &text, limits));
                model[at % len] = text;
            }
        }
        Edit::Remove(at, count) => {
            let at = at % (len + 1);
            let removed = model.drain(at..len.min(at + count)).count();
            assert_eq!(list.remove(at, count, limits), removed);
        }
        Edit::PopFront(times) => {
            for _ in 0..times.min(len) {
                assert_eq!(list.remove(0, 1, limits), 1);
                model.remove(0);
            }
        }
        Edit::PopBack(times) => {
            for _ in 0..times.min(len) {
                assert_eq!(list.remove(list.len() - 1, 1, limits), 1);
                model.pop();
            }
        }
    }
}

fn check(list: &List, model: &[Vec<u8>], limits: ListLimits) {
    assert_eq!(list.len(), model.len());
    assert!(list.iter().eq_by_bytes(model.iter()));
    assert!(list.rev_iter_from(model.len()).eq_by_bytes(model.iter().rev()));
    for index in [0, 1, model.len() / 3, model.len() / 2, model.len()] {
        let element = list.get(index).map(|element| element.to_vec());
        assert_eq!(element.as_ref(), model.get(index));
        let index = index.min(model.len());
        assert!(list.iter_from(index).eq_by_bytes(model[index..].iter()));
        assert!(list.rev_iter_from(index).eq_by_bytes(model[..index].iter().rev()));
    }
    if let Repr::Nodes(nodes) = &list.repr {
        nodes.check();
    } else {
        // The overhead of the last element is not counted in advance, as in Redis.
        let bytes = model.iter().map(Packed::bytes_of).sum::<usize>();
        assert!(LISTPACK_FRAME + bytes <= limits.bytes_max + 3);
        assert!(model.len() <= limits.entries_max);
    }
}

trait EqByBytes<'a>: Iterator<Item = Element<'a>> + Sized {
    fn eq_by_bytes<'b>(self, others: impl Iterator<Item = &'b Vec<u8>>) -> bool {
        self.map(|element| element.to_vec()).eq(others.cloned())
    }
}

impl<'a, I: Iterator<Item = Element<'a>>> EqByBytes<'a> for I {}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(if cfg!(miri) { 6 } else { effort(150) })
    })]

    #[test]
    fn behaves_like_a_vec(
        edits in vec(edit(), 1..30),
        entries_max in prop_oneof![Just(usize::MAX), 1usize..9],
        bytes_max in prop_oneof![20usize..200, 2020usize..3000],
    ) {
        let limits = ListLimits { entries_max, bytes_max };
        let (mut list, mut model) = (List::new(), Vec::new());
        for edit in edits {
            apply(&mut list, &mut model, edit, limits);
            check(&list, &model, limits);
        }
        check(&list.duplicate(), &model, limits);
        let (form, pointer) = list.into_raw();
        // SAFETY: both come from `into_raw`.
        check(&unsafe { List::from_raw(form, pointer) }, &model, limits);
    }
}

const LIMITS: ListLimits = ListLimits::of_directive(-2);

#[test]
fn grows_into_blocks_and_shrinks_into_one() {
    let mut list = List::new();
    let text = [b'x'; 100];
    for _ in 0..79 {
        list.push_back(&text, LIMITS);
    }
    // 79 elements of 103 bytes and the frame are 8144 bytes.
    assert_eq!(list.encoding(), "listpack");
    list.push_back(&text, LIMITS);
    assert_eq!(list.encoding(), "quicklist");
    list.remove(0, 41, LIMITS);
    assert_eq!((list.len(), list.encoding()), (39, "listpack"));
}

#[test]
fn a_queue_that_runs_empty_at_either_end_becomes_small() {
    let text = [b'x'; 100];
    for from_the_front in [true, false] {
        let mut list = List::new();
        (0..500).for_each(|_| list.push_back(&text, LIMITS));
        for left in (0..500).rev() {
            let index = if from_the_front { 0 } else { left };
            assert_eq!(list.remove(index, 1, LIMITS), 1);
            let Repr::Nodes(nodes) = &list.repr else { continue };
            nodes.check();
            assert!(left > 39, "{left} elements fit half a block");
        }
        assert_eq!((list.len(), list.encoding()), (0, "listpack"));
    }
}

/// Each push and pop at the beginning moves a small block, and no large block stays half empty.
#[test]
#[cfg_attr(miri, ignore = "many elements; smaller ones are above")]
fn the_head_of_a_stack_is_small_and_what_is_behind_it_dense() {
    let mut list = List::new();
    (0..5000i64).for_each(|number| list.push_front(format!("{number:05}").as_bytes(), LIMITS));
    let Repr::Nodes(nodes) = &list.repr else { panic!("a small list") };
    nodes.check();
    let first = nodes.position(0).expect("there is a first element");
    assert!(nodes.block(first).allocated_bytes() <= 512);
    // 5000 elements of 7 bytes are 4.3 blocks. The growing one has a step of its size class unused.
    let bytes = list.allocated_bytes();
    assert!(bytes < 5000 * 7 + 3000, "{bytes}");
    let mut left = 5000;
    while let Some(element) = list.get(0) {
        left -= 1;
        assert_eq!(element, format!("{left:05}").as_bytes()[..]);
        list.remove(0, 1, LIMITS);
        if let Repr::Nodes(nodes) = &list.repr {
            nodes.check();
        }
    }
    assert_eq!(left, 0);
}

#[test]
fn several_elements_are_counted_together() {
    let mut list = List::new();
    list.make_room(3, 12, ListLimits { entries_max: 2, bytes_max: 8192 });
    assert_eq!(list.encoding(), "quicklist");
    assert_eq!(list.remove(0, 1, LIMITS), 0);
    list.push_back(b"abcd", LIMITS);
    list.push_back(b"x", LIMITS);
    list.remove(0, 1, LIMITS);
    assert_eq!(list.encoding(), "listpack");
}

#[test]
fn a_mark_moves_with_the_elements_before_it() {
    let limits = ListLimits { entries_max: 4, bytes_max: 100 };
    let mut list = List::new();
    assert!(!list.set_visited_prefix(7, 0));
    (0..20i64).for_each(|number| list.push_back(number, limits));
    assert!(list.set_visited_prefix(7, 10));
    assert_eq!((list.visited_prefix(7), list.visited_prefix(8)), (Some(10), None));
    list.push_front(b"before", limits);
    list.insert(11, b"at it", limits);
    list.push_back(b"behind", limits);
    assert_eq!(list.visited_prefix(7), Some(11));
    list.remove(9, 5, limits);
    assert_eq!(list.visited_prefix(7), Some(9));
    let long = [b'x'; 200];
    list.set(8, &long, limits);
    list.set(9, &long, limits);
    assert_eq!(list.visited_prefix(7), Some(9));
    assert_eq!(list.duplicate().visited_prefix(7), None);
}

#[test]
fn a_large_element_has_a_node_of_its_own() {
    let mut list = List::new();
    for number in 0..10i64 {
        list.push_back(number, LIMITS);
    }
    let large = vec![b'x'; 10_000];
    list.insert(5, &large, LIMITS);
    let Repr::Nodes(nodes) = &list.repr else { panic!("a small list") };
    assert_eq!(nodes.block(nodes.position(5).unwrap()).len(), 1);
    list.set(5, b"small", LIMITS);
    assert_eq!(list.encoding(), "listpack");
}

#[test]
#[cfg_attr(miri, ignore = "many elements; smaller ones are above")]
fn memory_of_a_million_elements() {
    let mut list = List::new();
    for number in 0..1_000_000i64 {
        list.push_back(&format!("{number:08x}").into_bytes(), LIMITS);
    }
    // At most ten bytes per element, and the unused last step of a size class.
    assert!(list.allocated_bytes() < 10_100_000, "{}", list.allocated_bytes());
    let Repr::Nodes(nodes) = &list.repr else { panic!("a small list") };
    nodes.check();
    assert_eq!(list.remove(10, 999_980, LIMITS), 999_980);
    assert_eq!((list.len(), list.encoding()), (20, "listpack"));
}
