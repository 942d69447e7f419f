use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;
use tierce_harness::effort;

use super::*;

/// Members with their scores, as a plain map.
type Model = BTreeMap<Vec<u8>, f64>;

#[derive(Debug, Clone)]
enum Edit {
    Insert(Vec<u8>, f64),
    Add(Vec<u8>, f64),
    Remove(Vec<u8>),
    RemoveRange(usize, usize),
    /// Members with numbers from here on, with ascending or descending scores.
    Run(u16, u8, bool),
}

fn member() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        6 => (0..300u16).prop_map(|number| number.to_string().into_bytes()),
        3 => vec(b'a'..b'd', 0..4),
        1 => (0..400usize).prop_map(|len| vec![b'x'; len]),
    ]
}

fn score() -> impl Strategy<Value = f64> {
    const SPECIAL: [f64; 7] = [0.0, -0.0, 1.0, f64::INFINITY, f64::NEG_INFINITY, 1e-300, 1e17];
    prop_oneof![
        3 => prop::sample::select(&SPECIAL[..]),
        3 => (-9..9i32).prop_map(f64::from),
        2 => any::<f64>().prop_filter("a score", |score| !score.is_nan()),
    ]
}

fn edit() -> impl Strategy<Value = Edit> {
    prop_oneof![
        8 => (member(), score()).prop_map(|(member, score)| Edit::Insert(member, score)),
        4 => (member(), -3..3i32).prop_map(|(member, by)| Edit::Add(member, f64::from(by) / 4.0)),
        6 => member().prop_map(Edit::Remove),
        1 => (0..400usize, 0..40usize).prop_map(|(from, len)| Edit::RemoveRange(from, len)),
        1 => (0..300u16, 0..60u8, any::<bool>())
            .prop_map(|(from, len, up)| Edit::Run(from, len, up)),
    ]
}

fn in_order(model: &Model) -> Vec<(Vec<u8>, f64)> {
    let mut entries: Vec<_> =
        model.iter().map(|(member, score)| (member.clone(), *score)).collect();
    entries.sort_by(|left, right| {
        left.1.partial_cmp(&right.1).expect("no NaN").then_with(|| left.0.cmp(&right.0))
    });
    entries
}

fn insert(
    set: &mut SortedSet,
    model: &mut Model,
    member: &[u8],
    score: f64,
    limits: &PackedLimits,
) {
    let old = set.insert(member, score, limits);
    assert_eq!(old, model.get(member).copied());
    if old != Some(score) {
        model.insert(member.to_vec(), score);
    }
}

fn apply(set: &mut SortedSet, model: &mut Model, edit: Edit, limits: &PackedLimits) {
    match edit {
        Edit::Insert(member, score) => insert(set, model, &member, score, limits),
        Edit::Add(member, by) => {
            let score = model.get(&member).copied().unwrap_or(0.0) + by;
            set.update(&member, limits, |old| Some(old.unwrap_or(0.0) + by).filter(|_| by != 0.0));
            if by != 0.0 && model.get(&member) != Some(&score) {
                model.insert(member, score);
            }
        }
        Edit::Remove(member) => assert_eq!(set.remove(&member), model.remove(&member)),
        Edit::RemoveRange(from, len) => {
            let mut removed = Vec::new();
            set.remove_range(from..from + len, |member, score| {
                removed.push((member.to_vec(), score));
            });
            let entries = in_order(model);
            let from = from.min(entries.len());
            assert_eq!(removed, entries[from..entries.len().min(from + len)]);
            removed.iter().for_each(|(member, _)| _ = model.remove(member));
        }
        Edit::Run(from, len, up) => {
            for number in from..from + u16::from(len) {
                let score = if up { f64::from(number) } else { -f64::from(number) };
                insert(set, model, number.to_string().as_bytes(), score, limits);
            }
        }
    }
}

fn pairs<'a>(entries: impl Iterator<Item = (Element<'a>, f64)>) -> Vec<(Vec<u8>, f64)> {
    entries.map(|(member, score)| (member.to_vec(), score)).collect()
}

/// Returns the bits of the scores, except for the sign of zero, which small sets do not keep.
fn bits(entries: &[(Vec<u8>, f64)]) -> Vec<(&[u8], u64)> {
    entries.iter().map(|(member, score)| (&member[..], (score + 0.0).to_bits())).collect()
}

fn check(set: &SortedSet, model: &Model) {
    let entries = in_order(model);
    assert_eq!(set.len(), entries.len());
    assert_eq!(bits(&pairs(set.iter())), bits(&entries));
    let mut reversed = pairs(set.iter().rev());
    reversed.reverse();
    assert_eq!(bits(&reversed), bits(&entries));
    if let Repr::Large(large) = &set.repr {
        large.check();
    }
}

/// Checks all searches.
fn check_searches(set: &SortedSet, model: &Model) {
    let entries = in_order(model);
    for (rank, (member, score)) in entries.iter().enumerate() {
        assert_eq!(set.rank(member), Some((rank, *score)));
        let to = (rank + 7).min(entries.len());
        assert_eq!(pairs(set.range(rank..rank + 7)), entries[rank..to]);
        for end in [ScoreBound::Included(*score), ScoreBound::Excluded(*score)] {
            let in_range = |other: f64, is_min: bool| match end {
                ScoreBound::Included(_) if is_min => other >= *score,
                ScoreBound::Included(_) => other <= *score,
                ScoreBound::Excluded(_) if is_min => other > *score,
                ScoreBound::Excluded(_) => other < *score,
            };
            let all = ScoreBound::Included(f64::INFINITY);
            let ranks = set.ranks_of_scores(end, all);
            assert_eq!(ranks.len(), entries.iter().filter(|entry| in_range(entry.1, true)).count());
            let none = ScoreBound::Included(f64::NEG_INFINITY);
            let ranks = set.ranks_of_scores(none, end);
            assert_eq!(
                ranks.len(),
                entries.iter().filter(|entry| in_range(entry.1, false)).count()
            );
        }
    }
    assert_eq!((set.rank(b"absent"), set.score(b"absent")), (None, None));
    let mut scanned = Model::new();
    let mut cursor = 0;
    loop {
        cursor = set.scan(cursor, |member, score| _ = scanned.insert(member.to_vec(), score));
        if cursor == 0 {
            break;
        }
    }
    assert_eq!(scanned, *model);
    let mut random = Random::new(1);
    for _ in 0..20 {
        let sample = set.sample(&mut random);
        assert_eq!(sample.is_some(), !model.is_empty());
        assert!(sample.is_none_or(|(member, score)| model.get(&member.to_vec()) == Some(&score)));
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(if cfg!(miri) { 4 } else { effort(80) })
    })]

    #[test]
    fn behaves_like_a_sorted_map(
        edits in vec(edit(), 1..if cfg!(miri) { 25 } else { 200 }),
        entries_max in prop::sample::select(&[0usize, 12, 1000][..]),
    ) {
        let limits = PackedLimits { entries_max, value_len_max: 300 };
        let (mut set, mut model) = (SortedSet::new(), Model::new());
        for edit in edits {
            apply(&mut set, &mut model, edit, &limits);
            check(&set, &model);
        }
        check_searches(&set, &model);
        check(&set.duplicate(), &model);
        let (form, pointer) = set.into_raw();
        // SAFETY: both come from `into_raw`.
        check(&unsafe { SortedSet::from_raw(form, pointer) }, &model);
    }

    #[test]
    fn finds_members_in_the_order_of_bytes(
        members in prop::collection::btree_set(vec(b'a'..b'd', 0..5), 0..if cfg!(miri) { 20 } else { 60 }),
        ends in (vec(b'a'..b'd', 0..5), vec(b'a'..b'd', 0..5)),
        entries_max in prop::sample::select(&[0usize, 1000][..]),
    ) {
        let limits = PackedLimits { entries_max, value_len_max: 64 };
        let mut set = SortedSet::new();
        members.iter().for_each(|member| _ = set.insert(member, 2.0, &limits));
        let (min, max) = (&ends.0[..], &ends.1[..]);
        let mins = [MemberBound::Lowest, MemberBound::Included(min), MemberBound::Excluded(min), MemberBound::Highest];
        let maxs = [MemberBound::Lowest, MemberBound::Included(max), MemberBound::Excluded(max), MemberBound::Highest];
        for from in mins {
            for to in maxs {
                let expected: Vec<_> = members.iter().filter(|member| {
                    let member = &member[..];
                    let above = match from {
                        MemberBound::Lowest => true,
                        MemberBound::Included(min) => member >= min,
                        MemberBound::Excluded(min) => member > min,
                        MemberBound::Highest => false,
                    };
                    above && match to {
                        MemberBound::Lowest => false,
                        MemberBound::Included(max) => member <= max,
                        MemberBound::Excluded(max) => member < max,
                        MemberBound::Highest => true,
                    }
                }).cloned().collect();
                let found = pairs(set.range(set.ranks_of_members(from, to)));
                let found: Vec<_> = found.into_iter().map(|(member, _)| member).collect();
                prop_assert_eq!(found, expected);
            }
        }
    }
}

/// A test of a member.
type Test<'a> = &'a dyn Fn(&[u8]) -> bool;

/// Returns the members that a walk in score order meets, given a test for each bound.
fn walked(
    members: &[Vec<u8>],
    (above, below): (impl Fn(&[u8]) -> bool, impl Fn(&[u8]) -> bool),
    walk: Walk,
    offset: usize,
    count: usize,
) -> Vec<Vec<u8>> {
    let reaches =
        |member: Option<&Vec<u8>>, test: Test<'_>| member.is_some_and(|member| test(member));
    if !reaches(members.last(), &above) || !reaches(members.first(), &below) {
        return Vec::new();
    }
    let mut entries: Vec<_> = members.to_vec();
    let (mut enters, mut stays): (Test<'_>, Test<'_>) = (&above, &below);
    if walk == Walk::Downwards {
        entries.reverse();
        (enters, stays) = (stays, enters);
    }
    let met: Vec<_> = entries.into_iter().skip_while(|member| !enters(member)).collect();
    if !reaches(met.first(), stays) {
        return Vec::new();
    }
    let mut page: Vec<_> =
        met.into_iter().skip(offset).take(count).take_while(|member| stays(member)).collect();
    if walk == Walk::Downwards {
        page.reverse();
    }
    page
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(effort(256)))]

    /// Members with different scores: a small set returns the members that a walk meets, and so does a large one if
    /// only one position is the first member of the range.
    #[test]
    fn ranges_of_members_with_different_scores_are_walks(
        entries in prop::collection::btree_map(vec(b'a'..b'd', 0..3), 0..4_u8, 2..30),
        bounds in (vec(b'a'..b'd', 0..3), any::<bool>(), vec(b'a'..b'd', 0..3), any::<bool>()),
        is_downwards in any::<bool>(),
        offset in 0..4_usize,
        count in prop_oneof![Just(usize::MAX), 0..6_usize],
        is_large in any::<bool>(),
    ) {
        let limits = PackedLimits { entries_max: if is_large { 0 } else { 100 }, value_len_max: 64 };
        let mut set = SortedSet::new();
        for (member, score) in &entries {
            set.insert(member, f64::from(*score), &limits);
        }
        let (min, takes_min, max, takes_max) = &bounds;
        let low = if *takes_min { MemberBound::Included(min) } else { MemberBound::Excluded(min) };
        let high = if *takes_max { MemberBound::Included(max) } else { MemberBound::Excluded(max) };
        let above = |member: &[u8]| member > &min[..] || *takes_min && member == &min[..];
        let below = |member: &[u8]| member < &max[..] || *takes_max && member == &max[..];
        let members: Vec<_> = pairs(set.iter()).into_iter().map(|(member, _)| member).collect();
        let walk = if is_downwards { Walk::Downwards } else { Walk::Upwards };
        let page = set.page_of_members(low, high, walk, offset, count);
        let found: Vec<_> = members[page].to_vec();
        let is_empty = min > max || min == max && !(*takes_min && *takes_max);
        let enters: Vec<_> = members.iter().map(|member| above(member)).collect();
        let leaves: Vec<_> = members.iter().map(|member| !below(member)).collect();
        let is_sorted = enters.is_sorted() && leaves.is_sorted();
        if is_empty {
            prop_assert!(found.is_empty());
        } else if !is_large || is_sorted || (!is_downwards && enters.is_sorted()) {
            prop_assert_eq!(found, walked(&members, (above, below), walk, offset, count));
        } else if !is_downwards {
            prop_assert!(found.iter().all(|member| below(member)));
        } else {
            prop_assert!(found.iter().all(|member| above(member)));
        }
    }
}

#[test]
fn it_grows_out_of_its_block_where_redis_does() {
    let limits = PackedLimits { entries_max: 2, value_len_max: 3 };
    let mut set = SortedSet::new();
    set.insert(b"abc", 1.0, &limits);
    set.insert(b"b", 0.5, &limits);
    set.insert(b"b", 0.25, &limits);
    assert_eq!(set.encoding(), "listpack");
    let mut longer = set.duplicate();
    set.insert(b"c", 0.0, &limits);
    assert_eq!(set.encoding(), "skiplist");
    longer.remove(b"b");
    longer.insert(b"long", 0.0, &limits);
    assert_eq!(longer.encoding(), "skiplist");
    assert_eq!(pairs(longer.iter()), [(b"long".to_vec(), 0.0), (b"abc".to_vec(), 1.0)]);
}

#[test]
fn one_without_members_owns_next_to_nothing() {
    let limits = PackedLimits { entries_max: 0, value_len_max: 3 };
    let mut set = SortedSet::new();
    assert_eq!(set.allocated_bytes(), 0);
    (0..500).for_each(|number: i32| {
        set.insert(number.to_string().as_bytes(), f64::from(number), &limits);
    });
    set.remove_range(0..1000, |_, _| {});
    assert_eq!((set.len(), set.sample(&mut Random::new(7)).is_none()), (0, true));
    assert_eq!(set.allocated_bytes(), crate::raw_box::allocated_bytes_of::<Large>());
}

#[test]
fn a_score_that_is_no_number_is_zero() {
    let limits = PackedLimits { entries_max: 8, value_len_max: 8 };
    let mut set = SortedSet::new();
    set.insert(b"a", f64::NAN, &limits);
    assert_eq!(set.score(b"a"), Some(0.0));
}

#[test]
fn repeated_draws_find_all_members_of_any_sorted_set() {
    let limits = PackedLimits { entries_max: 8, value_len_max: 8 };
    for members in [1, 8, 100] {
        let mut set = SortedSet::new();
        (0..members).for_each(|number: i32| {
            set.insert(number.to_string().as_bytes(), f64::from(number), &limits);
        });
        let mut drawn = std::collections::BTreeSet::new();
        let mut times = 0;
        set.sample_repeatedly(4_000, &mut Random::new(3), |(member, score)| {
            assert_eq!(member.to_vec(), score.to_string().into_bytes());
            drawn.insert(member.to_vec());
            times += 1;
        });
        assert_eq!((times, drawn.len()), (4_000, members as usize));
    }
}

/// Configured limits that no block could hold.
#[test]
fn limits_beyond_what_a_block_holds_are_not_followed() {
    let limits = PackedLimits { entries_max: usize::MAX, value_len_max: usize::MAX };
    let mut long = SortedSet::new();
    for number in 0..10_u8 {
        long.insert(&vec![number; 10_000], f64::from(number), &limits);
    }
    assert_eq!((long.len(), long.encoding()), (10, "skiplist"));
    let mut many = SortedSet::new();
    for number in 0..2000_u16 {
        many.insert(&number.to_be_bytes(), 1.0, &limits);
    }
    assert_eq!((many.len(), many.encoding()), (2000, "skiplist"));
}
