use std::collections::BTreeSet;

use proptest::prelude::*;
use tierce_harness::effort;

use super::*;
use crate::size_class;

const LIMITS: SetLimits =
    SetLimits { integers_max: 20, packed: PackedLimits { entries_max: 12, value_len_max: 16 } };

type Model = BTreeSet<Vec<u8>>;

fn member() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        6 => (0..40i64).prop_map(|value| value.to_string().into_bytes()),
        1 => any::<i64>().prop_map(|value| value.to_string().into_bytes()),
        2 => "[a-c]{0,3}".prop_map(String::into_bytes),
        1 => "[x-z]{8,20}".prop_map(String::into_bytes),
    ]
}

fn contents(set: &Set) -> Model {
    let members: Vec<_> = set.iter().map(|element| element.to_vec()).collect();
    let model: Model = members.iter().cloned().collect();
    assert_eq!(model.len(), members.len(), "a member came twice");
    model
}

fn of(members: &Model) -> Set {
    let mut set = Set::new();
    members.iter().for_each(|member| assert!(set.add(member, LIMITS)));
    set
}

/// Returns the bytes of a set, except those of a table, counted one by one.
fn recount(set: &Set) -> usize {
    match &set.repr {
        Repr::Integers(integers) => integers.allocated_bytes(),
        Repr::Packed(block) => block.allocated_bytes(),
        Repr::Table(table) => {
            let long = |element: Element<'_>| match element {
                Element::Int(value) => usize::from(value << 2 >> 2 != value) * 16,
                Element::Bytes(bytes) if bytes.len() <= 7 => 0,
                Element::Bytes(bytes) => size_class(bytes.len()),
            };
            table.empty_bytes() + set.iter().map(long).sum::<usize>()
        }
        Repr::Timed(timed, _) => timed.allocated_bytes(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 3 } else { effort(80) },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn behaves_like_a_set(
        steps in proptest::collection::vec((member(), 0..5u8), 1..if cfg!(miri) { 40 } else { 200 }),
        seed: u64,
    ) {
        let (mut set, mut model) = (Set::new(), Model::new());
        let mut random = Random::new(seed);
        for (member, kind) in steps {
            match kind {
                0..3 => prop_assert_eq!(set.add(&member, LIMITS), model.insert(member.clone())),
                3 => prop_assert_eq!(set.remove(&member), model.remove(&member)),
                _ => {
                    let sampled = set.sample(&mut random).map(|element| element.to_vec());
                    prop_assert_eq!(sampled.is_some_and(|it| model.contains(&it)), !model.is_empty());
                    let mut popped = None;
                    let is_popped = set.pop(&mut random, |element, _| popped = Some(element.to_vec()));
                    prop_assert_eq!(is_popped, !model.is_empty());
                    prop_assert!(popped.is_none_or(|popped| model.remove(&popped)));
                }
            }
            prop_assert_eq!(set.len(), model.len());
            prop_assert_eq!(set.contains(&member), model.contains(&member));
            prop_assert_eq!(set.allocated_bytes(), recount(&set));
        }
        prop_assert_eq!(&contents(&set), &model);
        let (form, pointer) = set.into_raw();
        // SAFETY: both come from `into_raw`.
        let set = unsafe { Set::from_raw(form, pointer) };
        prop_assert_eq!(&contents(&set.duplicate()), &model);
        let count = random.below(model.len() + 2);
        let drawn: Vec<_> =
            set.sample_distinct(count, &mut random).iter().map(Element::to_vec).collect();
        prop_assert_eq!(drawn.len(), count.min(model.len()));
        let distinct: Model = drawn.into_iter().collect();
        prop_assert_eq!(distinct.len(), count.min(model.len()));
        prop_assert!(distinct.is_subset(&model));
    }

    #[test]
    fn algebra_is_that_of_sets(
        models in proptest::collection::vec(proptest::collection::btree_set(member(), 0..60), 1..5),
    ) {
        let sets: Vec<Set> = models.iter().map(of).collect();
        let sets: Vec<&Set> = sets.iter().collect();
        let (first, others) = models.split_first().expect("there is one");
        let check = |found: Vec<Vec<u8>>, expected: Model| {
            prop_assert_eq!(found.len(), expected.len());
            prop_assert_eq!(found.into_iter().collect::<Model>(), expected);
            Ok(())
        };
        let mut found = Vec::new();
        intersection(&sets, |element| { found.push(element.to_vec()); true });
        let common = first.iter().filter(|member| others.iter().all(|other| other.contains(*member)));
        check(found, common.cloned().collect())?;
        let mut found = Vec::new();
        union(&sets, |element| { found.push(element.to_vec()); true });
        check(found, models.iter().flatten().cloned().collect())?;
        let mut found = Vec::new();
        difference(sets[0], &sets[1..], |element| { found.push(element.to_vec()); true });
        let left = first.iter().filter(|member| !others.iter().any(|other| other.contains(*member)));
        check(found.clone(), left.cloned().collect())?;
        // Each can be ended, which tells nothing about the rest.
        let all: Model = models.iter().flatten().cloned().collect();
        for most in 1..4 {
            let visits = |run: &dyn Fn(&mut dyn FnMut() -> bool)| {
                let mut visits = 0;
                run(&mut || { visits += 1; visits < most });
                visits
            };
            prop_assert_eq!(visits(&|visit| union(&sets, |_| visit())), most.min(all.len()));
            let left = visits(&|visit| difference(sets[0], &sets[1..], |_| visit()));
            prop_assert_eq!(left, most.min(found.len()));
        }
    }

    /// Despite all changes during a scan, a member that stays is visited.
    #[test]
    fn a_scan_misses_nothing_that_stays(
        stay in proptest::collection::btree_set(member(), 0..if cfg!(miri) { 10 } else { 100 }),
        others in proptest::collection::vec((member(), any::<bool>()), 0..if cfg!(miri) { 30 } else { 300 }),
    ) {
        let mut set = of(&stay);
        let (mut visited, mut cursor, mut others) = (Model::new(), 0, others.into_iter());
        loop {
            cursor = set.scan(cursor, |element| _ = visited.insert(element.to_vec()));
            if cursor == 0 {
                break;
            }
            for (member, add) in others.by_ref().take(5) {
                if add {
                    set.add(&member, LIMITS);
                } else if !stay.contains(&member) {
                    set.remove(&member);
                }
            }
        }
        prop_assert!(visited.is_superset(&stay));
    }
}

#[test]
fn forms_follow_the_limits_as_in_redis() {
    let mut set = Set::new();
    for value in 0..20i64 {
        set.add(value, LIMITS);
    }
    assert_eq!(set.encoding(), "intset");
    let mut copy = set.duplicate();
    copy.add(20i64, LIMITS);
    assert_eq!(copy.encoding(), "hashtable", "too many integers");
    set.add(b"text", LIMITS);
    assert_eq!(set.encoding(), "hashtable", "too many for a block");

    let mut set = Set::new();
    (0..5i64).for_each(|value| _ = set.add(value, LIMITS));
    set.add(b"text", LIMITS);
    assert_eq!(set.encoding(), "listpack");
    (5..11i64).for_each(|value| _ = set.add(value, LIMITS));
    assert_eq!((set.len(), set.encoding()), (12, "listpack"));
    set.add(b"text", LIMITS);
    assert_eq!(set.encoding(), "listpack", "what is there needs no room");
    let mut copy = set.duplicate();
    copy.add(b"more", LIMITS);
    assert_eq!(copy.encoding(), "hashtable", "too many members");
    set.remove(b"text");
    set.add(b"seventeen bytes..", LIMITS);
    assert_eq!(set.encoding(), "hashtable", "too long a member");

    let mut set = Set::new();
    set.expect(b"text", 3, LIMITS);
    assert_eq!(set.encoding(), "listpack");
    set.expect(b"text", 13, LIMITS);
    assert_eq!(set.encoding(), "hashtable");
    let mut set = Set::new();
    set.expect(b"7", 13, LIMITS);
    assert_eq!(set.encoding(), "intset");
    set.expect(b"7", 21, LIMITS);
    assert_eq!(set.encoding(), "hashtable");
}

#[test]
fn samples_are_even() {
    for len in [10, 300] {
        let mut set = Set::new();
        (0..len).for_each(|value| _ = set.add(value, LIMITS));
        let rounds = if cfg!(miri) { 2 } else { 200 };
        let mut random = Random::new(7);
        let mut times = vec![0; len as usize];
        for _ in 0..rounds * len / 10 {
            for element in set.sample_distinct(10, &mut random) {
                times[element.to_int().expect("all are integers") as usize] += 1;
            }
        }
        if !cfg!(miri) {
            assert!(times.iter().all(|times| (100..320).contains(times)), "{times:?}");
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "many members, and prefetches")]
fn announcing_members_changes_nothing() {
    let mut set = Set::new();
    for (len, announced) in [(0, 10), (1000, 10), (40_000, 100)] {
        (set.len() as i64..len).for_each(|value| _ = set.add(value, LIMITS));
        let members: Vec<_> = (0..announced).map(|at| (at * 500).to_string()).collect();
        set.prefetch(members.iter().map(String::as_bytes));
        assert_eq!(set.len() as i64, len);
        for (at, member) in members.iter().enumerate() {
            assert_eq!(set.contains(member.as_bytes()), (at as i64) * 500 < len);
        }
    }
}

#[test]
fn repeated_draws_find_all_members_of_any_set() {
    for (prefix, members) in [("", 1), ("", 15), ("x", 10), ("x", 200)] {
        let mut set = Set::new();
        (0..members).for_each(|number: u32| {
            set.add(format!("{prefix}{number}").as_bytes(), LIMITS);
        });
        for count in [members as usize - 1, 4_000] {
            let mut drawn = Model::new();
            let mut times = 0;
            set.sample_repeatedly(count, &mut Random::new(3), |member| {
                drawn.insert(member.to_vec());
                times += 1;
            });
            assert_eq!(times, count);
            assert!(drawn.is_subset(&contents(&set)));
            assert!(count < 4_000 || drawn.len() == members as usize);
        }
    }
}

/// Returns a set of `0..len`, of which those below `due` have expired at 100, and as many others have outdated hints.
fn set_with_due(len: i64, due: i64) -> Set {
    let mut set = Set::new();
    (0..len).for_each(|value| _ = set.add(value, LIMITS));
    for (value, deadlines) in
        (0..due).flat_map(|value| [(value, [9, 50, 7]), (len - 1 - value, [5, 200, 150])])
    {
        deadlines.iter().for_each(|at| _ = set.set_deadline(value, Some(*at)));
    }
    set
}

#[test]
fn expired_members_are_neither_counted_nor_drawn_however_many_there_are() {
    for (len, due) in [(10, 4), (300, 1), (300, 100), (300, 150), (3000, 1500)] {
        let mut set = set_with_due(len, due);
        assert_eq!(set.live_len(), len as usize);
        set.as_of(100);
        let live = (len - due) as usize;
        assert_eq!((set.live_len(), set.iter().count()), (live, live));
        let mut random = Random::new(len as u64);
        for count in [0, 1, live / 4, live / 2, live - 1, live, live + 5] {
            let drawn = set.sample_distinct(count, &mut random);
            let distinct: BTreeSet<_> = drawn.iter().filter_map(Element::to_int).collect();
            assert_eq!((drawn.len(), distinct.len()), (count.min(live), count.min(live)));
            assert!(distinct.first().is_none_or(|least| *least >= due));
        }
        // Few are live now: draws by chance find some of them again and again, or none.
        (due..len).skip(3).for_each(|value| _ = set.set_deadline(value, Some(60)));
        assert_eq!(set.live_len(), 3);
        for count in [1, 2, 3, 50] {
            assert_eq!(set.sample_distinct(count, &mut random).len(), count.min(3));
        }
    }
}

#[test]
fn live_members_are_drawn_alike_beside_expired_ones() {
    let mut set = set_with_due(300, 60);
    set.as_of(100);
    let mut times = vec![0; 300];
    let mut random = Random::new(5);
    for _ in 0..if cfg!(miri) { 10 } else { 4800 } {
        for member in set.sample_distinct(10, &mut random) {
            times[member.to_int().expect("all are integers") as usize] += 1;
        }
    }
    assert!(times[..60].iter().all(|times| *times == 0));
    assert!(cfg!(miri) || times[60..].iter().all(|times| (130..270).contains(times)), "{times:?}");
}
