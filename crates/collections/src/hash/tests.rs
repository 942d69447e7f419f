use std::collections::BTreeMap;

use proptest::prelude::*;
use tierce_harness::effort;

use super::*;
use crate::size_class;

const LIMITS: PackedLimits = PackedLimits { entries_max: 10, value_len_max: 12 };

/// Values and deadlines by name.
type Model = BTreeMap<Vec<u8>, (Vec<u8>, Option<i64>)>;

fn name() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        6 => "[a-d]{1,2}".prop_map(String::into_bytes),
        2 => (0..20i64).prop_map(|value| value.to_string().into_bytes()),
        1 => "[x-z]{10,14}".prop_map(String::into_bytes),
    ]
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => "[a-z]{0,11}".prop_map(String::into_bytes),
        2 => any::<i32>().prop_map(|value| value.to_string().into_bytes()),
        1 => "[a-z]{250,260}".prop_map(String::into_bytes),
    ]
}

fn deadline() -> impl Strategy<Value = Option<i64>> {
    prop_oneof![3 => Just(None), 1 => (1..60i64).prop_map(Some)]
}

fn contents(hash: &Hash) -> Model {
    let model: Model = hash
        .iter()
        .map(|field| (field.name.to_vec(), (field.value.to_vec(), field.deadline_ms)))
        .collect();
    assert_eq!((model.len(), hash.iter().len()), (hash.len(), hash.len()));
    model
}

fn former(model: &Model, name: &[u8]) -> Former {
    model.get(name).map_or(Former::Absent, |(_, deadline_ms)| Former::Field(*deadline_ms))
}

/// Returns the bytes of a hash, except those of a table and its deadlines, counted one by one.
fn recount(hash: &Hash) -> usize {
    let Repr::Table(table) = &hash.repr else { return hash.allocated_bytes() };
    let fields = hash.iter().map(|field| {
        let (name, value) = (field.name.len(), field.value.len());
        let width = if value > 255 { 2 } else { 1 };
        size_class(width + name + value + if field.deadline_ms.is_some() { 8 } else { 0 })
    });
    table.empty_bytes() + fields.sum::<usize>()
}

#[derive(Debug, Clone)]
enum Step {
    Put(Vec<u8>, Vec<u8>, Option<i64>),
    Deadline(Vec<u8>, Option<i64>),
    Remove(Vec<u8>),
    /// Time advances, and expired fields are removed.
    Reap(i64, usize),
    /// Asks for the deadline after this time.
    Next(i64),
}

fn step(with_deadlines: bool) -> impl Strategy<Value = Step> {
    let weight = u32::from(with_deadlines);
    let deadline = move || deadline().prop_map(move |at| at.filter(|_| with_deadlines));
    prop_oneof![
        8 => (name(), value(), deadline()).prop_map(|(name, value, at)| Step::Put(name, value, at)),
        3 * weight => (name(), deadline()).prop_map(|(name, at)| Step::Deadline(name, at)),
        3 => name().prop_map(Step::Remove),
        2 * weight => (0..5i64, 1..5usize).prop_map(|(passed, steps)| Step::Reap(passed, steps)),
        2 * weight => (0..60i64).prop_map(Step::Next),
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let len = if cfg!(miri) { 25 } else { 200 };
    let steps = move |with_deadlines| proptest::collection::vec(step(with_deadlines), 1..len);
    prop_oneof![1 => steps(false), 3 => steps(true)]
}

/// Checks that expired fields are gone after enough reaping, and that the next deadline is correct.
fn check_reap(hash: &mut Hash, model: &mut Model, now_ms: i64, steps: usize) {
    let due: Vec<Vec<u8>> = model
        .iter()
        .filter(|(_, (_, at))| at.is_some_and(|at| at <= now_ms))
        .map(|(name, _)| name.clone())
        .collect();
    assert_eq!(hash.live_len(now_ms), model.len() - due.len());
    let mut gone = Vec::new();
    hash.reap(now_ms, steps, |field| gone.push(field.name.to_vec()));
    while hash.next_deadline_ms().is_some_and(|at| at <= now_ms) {
        hash.reap(now_ms, steps, |field| gone.push(field.name.to_vec()));
    }
    gone.sort();
    assert_eq!(gone, due);
    due.iter().for_each(|name| _ = model.remove(name));
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 3 } else { effort(80) },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn behaves_like_a_map(steps in steps(), seed: u64) {
        let (mut hash, mut model, mut now_ms) = (Hash::new(), Model::new(), 0);
        let mut random = Random::new(seed);
        for step in steps {
            match step {
                Step::Put(name, value, at) => {
                    prop_assert_eq!(hash.put(&name, &value, at, LIMITS), former(&model, &name));
                    model.insert(name, (value, at));
                }
                Step::Deadline(name, at) => {
                    prop_assert_eq!(hash.set_deadline(&name, at), former(&model, &name));
                    if let Some((_, deadline_ms)) = model.get_mut(&name) {
                        *deadline_ms = at;
                    }
                }
                Step::Remove(name) => {
                    prop_assert_eq!(hash.remove(&name), former(&model, &name));
                    model.remove(&name);
                }
                Step::Reap(passed, steps) => {
                    now_ms += passed;
                    check_reap(&mut hash, &mut model, now_ms, steps);
                }
                Step::Next(passed) => {
                    let at_ms = now_ms + passed;
                    let later = model.values().filter_map(|(_, at)| *at).filter(|at| *at > at_ms);
                    prop_assert_eq!(hash.deadline_after(at_ms), later.min());
                }
            }
            prop_assert_eq!(hash.len(), model.len());
            prop_assert_eq!(hash.allocated_bytes(), recount(&hash));
            let earliest = model.values().filter_map(|(_, at)| *at).min();
            prop_assert!(earliest.is_none_or(|at| hash.next_deadline_ms().is_some_and(|next| next <= at)));
            let seen = hash.sample(&mut random, now_ms).map(|field| field.name.to_vec());
            let is_seen = |at: Option<i64>| at.is_none_or(|at| at > now_ms);
            prop_assert_eq!(seen.is_some(), model.values().any(|(_, at)| is_seen(*at)));
            for (name, (value, at)) in model.iter().take(3) {
                let found = hash.get(name, now_ms);
                prop_assert_eq!(found.is_some(), is_seen(*at));
                prop_assert!(found.is_none_or(|field| field.value == **value && field.deadline_ms == *at));
            }
        }
        prop_assert_eq!(&contents(&hash), &model);
        let (form, pointer) = hash.into_raw();
        // SAFETY: both come from `into_raw`.
        let hash = unsafe { Hash::from_raw(form, pointer) };
        let copy = hash.duplicate();
        prop_assert_eq!(&contents(&copy), &model);
        prop_assert_eq!(copy.encoding(), hash.encoding());
        let live = hash.live_len(now_ms);
        let count = random.below(live + 2);
        let drawn = hash.sample_distinct(count, &mut random, now_ms);
        let distinct: BTreeMap<_, _> =
            drawn.iter().map(|field| (field.name.to_vec(), field.value)).collect();
        prop_assert_eq!((drawn.len(), distinct.len()), (count.min(live), count.min(live)));
    }

    #[test]
    fn a_scan_misses_nothing_that_stays(
        stay in proptest::collection::btree_set(name(), 0..if cfg!(miri) { 12 } else { 30 }),
        others in proptest::collection::vec((name(), any::<bool>()), 0..if cfg!(miri) { 20 } else { 100 }),
    ) {
        let mut hash = Hash::new();
        stay.iter().for_each(|name| _ = hash.put(name, b"v", None, LIMITS));
        let (mut visited, mut cursor, mut others) = (Vec::new(), 0, others.into_iter());
        loop {
            cursor = hash.scan(cursor, |field| visited.push(field.name.to_vec()));
            if cursor == 0 {
                break;
            }
            for (name, add) in others.by_ref().take(5) {
                if add {
                    hash.put(&name, b"w", None, LIMITS);
                } else if !stay.contains(&name) {
                    hash.remove(&name);
                }
            }
        }
        prop_assert!(stay.iter().all(|name| visited.contains(name)));
    }
}

#[test]
fn forms_follow_the_limits_as_in_redis() {
    let mut hash = Hash::new();
    for index in 0..10 {
        hash.put(format!("f{index}").as_bytes(), b"value", None, LIMITS);
    }
    assert_eq!(hash.encoding(), "listpack");
    let mut copy = hash.duplicate();
    copy.put(b"more", b"", None, LIMITS);
    assert_eq!(copy.encoding(), "hashtable", "too many fields");
    let mut copy = hash.duplicate();
    copy.put(b"f1", b"thirteen byte", None, LIMITS);
    assert_eq!(copy.encoding(), "hashtable", "too long a value");
    hash.set_deadline(b"absent", Some(1));
    hash.set_deadline(b"f1", None);
    assert_eq!(hash.encoding(), "listpack", "nothing has a deadline");
    hash.set_deadline(b"f1", Some(7));
    assert_eq!((hash.encoding(), hash.next_deadline_ms()), ("listpackex", Some(7)));
    assert_eq!((hash.get(b"f1", 7), hash.get(b"f1", 6).is_some()), (None, true));
    hash.put(b"more", b"", Some(9), LIMITS);
    assert_eq!((hash.encoding(), hash.next_deadline_ms()), ("hashtable", Some(7)));
}

#[test]
#[cfg_attr(miri, ignore = "many fields, and prefetches")]
fn announcing_names_changes_nothing() {
    let mut hash = Hash::new();
    let name = |index: usize| format!("field:{index}").into_bytes();
    for (index, announced) in [(0, 10), (1000, 10), (40_000, 100)] {
        (hash.len()..index).for_each(|index| _ = hash.put(&name(index), b"value", None, LIMITS));
        let names: Vec<_> = (0..announced).map(|at| name(at * 500)).collect();
        hash.prefetch(names.iter().map(Vec::as_slice));
        assert_eq!(hash.len(), index);
        for (at, wanted) in names.iter().enumerate() {
            assert_eq!(hash.get(wanted, 0).is_some(), at * 500 < index);
        }
    }
}

/// A deadline that moves again and again leaves no heap of stale items behind.
#[test]
fn memory_of_deadlines_follows_their_number() {
    let mut hash = Hash::new();
    for index in 0..20 {
        hash.put(format!("f{index}").as_bytes(), b"value", None, LIMITS);
    }
    let before = hash.allocated_bytes();
    for at in (1..if cfg!(miri) { 200 } else { 10_000 }).rev() {
        hash.set_deadline(b"f1", Some(at));
    }
    assert!(hash.allocated_bytes() < before + 1000);
    assert_eq!(hash.next_deadline_ms(), Some(1));
}

/// Returns how often each field was drawn.
fn drawn(hash: &Hash, count: usize, now_ms: i64) -> BTreeMap<Vec<u8>, usize> {
    let mut drawn = BTreeMap::new();
    hash.sample_repeatedly(count, &mut Random::new(3), now_ms, |field| {
        *drawn.entry(field.name.to_vec()).or_default() += 1;
    });
    drawn
}

#[test]
fn the_few_fields_that_are_seen_are_drawn_alike() {
    let fields = if cfg!(miri) { 200 } else { 20_000 };
    let mut hash = Hash::new();
    for field in 0..fields {
        let deadline_ms = (field % (fields / 4) != 7).then_some(10);
        hash.put(field.to_string().as_bytes(), b"", deadline_ms, LIMITS);
    }
    // Fewer draws than fields, and more.
    for count in [fields / 2, fields * 2] {
        let drawn = drawn(&hash, count, 10);
        assert_eq!(drawn.len(), 4);
        assert!(drawn.values().all(|times| (count / 8..count / 2).contains(times)), "{drawn:?}");
        assert_eq!(drawn.values().sum::<usize>(), count);
    }
}

#[test]
fn repeated_draws_find_all_fields_of_any_hash() {
    for fields in [1, 5, 40] {
        let mut hash = Hash::new();
        (0..fields).for_each(|field: u32| {
            hash.put(field.to_string().as_bytes(), b"", None, LIMITS);
        });
        assert_eq!(drawn(&hash, 2_000, 0).len(), fields as usize);
        assert_eq!(drawn(&hash, 1, 0).len(), 1);
    }
    assert_eq!(drawn(&Hash::new(), 5, 0).len(), 0);
}

#[test]
fn a_field_without_a_deadline_keeps_a_large_hash() {
    let mut hash = Hash::new();
    for index in 0..1000 {
        hash.put(format!("field {index}").as_bytes(), b"value", Some(1 + index), LIMITS);
    }
    assert!(!hash.is_all_due(999));
    assert!(hash.is_all_due(1000));
    hash.put(b"lasting", b"value", None, LIMITS);
    assert!(!hash.is_all_due(1000));
    // Its deadline moves, and the hints of the earlier ones stay.
    (0..10).for_each(|at| _ = hash.set_deadline(b"lasting", Some(5000 + at)));
    assert!(!hash.is_all_due(5008));
    assert!(hash.is_all_due(5009));
    hash.set_deadline(b"lasting", None);
    assert!(!hash.is_all_due(6000));
    hash.remove(b"lasting");
    assert!(hash.is_all_due(6000));
}

/// More hints are outdated, and more fields expired, than are examined one by one.
#[test]
fn the_next_deadline_is_exact_when_most_fields_have_another_or_are_due() {
    let mut hash = Hash::new();
    let name = |index: i64| format!("field {index}").into_bytes();
    for index in 0..1000 {
        hash.put(&name(index), b"value", Some(1 + index), LIMITS);
    }
    for index in 0..400 {
        hash.set_deadline(&name(index), Some(5000 + index));
    }
    (400..600).for_each(|index| _ = hash.remove(&name(index)));
    assert_eq!(hash.deadline_after(800), Some(801));
    assert_eq!(hash.next_deadline_ms(), Some(601), "what is due has its hint");
    assert_eq!(hash.deadline_after(4000), Some(5000));
    let mut gone = 0;
    hash.reap(4000, 1000, |_| gone += 1);
    assert_eq!((gone, hash.next_deadline_ms()), (400, Some(5000)));
    assert_eq!(hash.deadline_after(5399), None);
}
