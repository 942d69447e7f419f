//! ZUNION, ZINTER, ZDIFF and their relatives: operations on several sets or sorted sets.

use std::ops::ControlFlow;

use tierce_collections::{Collection, Element, IntText, PackedLimits, Set, SortedSet};
use tierce_keyspace::{Event, Value};
use tierce_wire::number::{parse_f64, parse_i64};
use tierce_wire::resp::Rest;

use super::scored::Scores;
use crate::command::{Flags, Group, KeyFlags, KeySpec, Scope, Weight};
use crate::commands::cursor::Options;
use crate::commands::distinct::Distinct;
use crate::commands::options::integer;
use crate::commands::store::store_result;
use crate::error::CommandError;
use crate::pipeline::{Body, Context, Defined, Done, at_least, many};

const fn reader(name: &'static str, body: Body) -> Defined {
    Defined::new(name, Group::SortedSet, body)
        .flags(Flags::READONLY)
        .locks(Scope::InTurns)
        .keys(const { &[KeySpec::counted(1, KeyFlags::READ)] })
}

const fn writer(name: &'static str, body: Body) -> Defined {
    Defined::new(name, Group::SortedSet, body)
        .flags(Flags::WRITE.with(Flags::DENYOOM))
        .locks(Scope::InTurns)
        .keys(const { &[KeySpec::at(1, KeyFlags::OVERWRITE), KeySpec::counted(2, KeyFlags::READ)] })
}

const UNION: &str = "O(N)+O(M*log(M)) with N being the sum of the sizes of the input sorted sets, and M \
                     being the number of elements in the resulting sorted set";
const INTER: &str = "O(N*K)+O(M*log(M)) worst case with N being the smallest input sorted set, K being \
                     the number of input sorted sets and M being the number of elements in the \
                     resulting sorted set";
const DIFF: &str = "O(L + (N-K)log(N)) worst case where L is the total number of elements in all the \
                    sets, N is the size of the first set, and K is the size of the result set";

pub(super) static COMMANDS: &[Defined] = &[
    reader("zunion", many!(|ctx, arguments| reply(ctx, arguments, Operation::Union)))
        .weighs(Weight::All)
        .since("6.2.0", UNION)
        .doc(
            "numkeys key [key ...] [WEIGHTS weight [weight ...]] [AGGREGATE <SUM | MIN | MAX | COUNT>] \
                 [WITHSCORES]",
            "Returns the union of multiple sorted sets.",
        )
        .example(
            r#"
            > ZADD monday 1 Ada 2 Grace
            (integer) 2
            > ZADD tuesday 10 Grace 20 Hedy
            (integer) 2
            > ZUNION 2 monday tuesday
            1) "Ada"
            2) "Grace"
            3) "Hedy"
            > ZUNION 2 monday tuesday WEIGHTS 10 1 WITHSCORES
            1) "Ada"
            2) "10"
            3) "Hedy"
            4) "20"
            5) "Grace"
            6) "30"
            RESP3:
            1) 1) "Ada"
               2) (double) 10
            2) 1) "Hedy"
               2) (double) 20
            3) 1) "Grace"
               2) (double) 30
            > ZUNIONSTORE days 2 monday tuesday AGGREGATE COUNT
            (integer) 3
            > ZSCORE days Grace
            "2"
            "#,
        ),
    writer(
        "zunionstore",
        at_least!(|ctx, [to], arguments| store(ctx, to, arguments, Operation::Union)),
    )
    .weighs(Weight::All)
    .since("2.0.0", UNION)
    .doc(
        "destination numkeys key [key ...] [WEIGHTS weight [weight ...]] [AGGREGATE <SUM | \
                 MIN | MAX | COUNT>]",
        "Stores the union of multiple sorted sets in a key.",
    )
    .example(
        r#"
            > ZADD monday 1 Ada 2 Grace
            (integer) 2
            > ZADD tuesday 10 Grace 20 Hedy
            (integer) 2
            > ZUNIONSTORE total 2 monday tuesday
            (integer) 3
            > ZRANGE total 0 -1
            1) "Ada"
            2) "Grace"
            3) "Hedy"
            > ZSCORE total Grace
            "12"
            "#,
    ),
    reader("zinter", many!(|ctx, arguments| reply(ctx, arguments, Operation::Intersection)))
        .weighs(Weight::Smallest)
        .since("6.2.0", INTER)
        .doc(
            "numkeys key [key ...] [WEIGHTS weight [weight ...]] [AGGREGATE <SUM | MIN | MAX | COUNT>] \
                 [WITHSCORES]",
            "Returns the intersect of multiple sorted sets.",
        )
        .example(
            r#"
            > ZADD monday 1 Ada 2 Grace
            (integer) 2
            > ZADD tuesday 10 Grace 20 Hedy
            (integer) 2
            > ZINTER 2 monday tuesday WITHSCORES
            1) "Grace"
            2) "12"
            RESP3:
            1) 1) "Grace"
               2) (double) 12
            > ZINTER 2 monday tuesday AGGREGATE MAX WITHSCORES
            1) "Grace"
            2) "10"
            RESP3:
            1) 1) "Grace"
               2) (double) 10
            "#,
        ),
    writer(
        "zinterstore",
        at_least!(|ctx, [to], arguments| store(ctx, to, arguments, Operation::Intersection)),
    )
    .weighs(Weight::Smallest)
    .since("2.0.0", INTER)
    .doc(
        "destination numkeys key [key ...] [WEIGHTS weight [weight ...]] [AGGREGATE <SUM | \
                 MIN | MAX | COUNT>]",
        "Stores the intersect of multiple sorted sets in a key.",
    )
    .example(
        r#"
            > ZADD monday 1 Ada 2 Grace
            (integer) 2
            > ZADD tuesday 10 Grace 20 Hedy
            (integer) 2
            > ZINTERSTORE both 2 monday tuesday AGGREGATE MIN
            (integer) 1
            > ZSCORE both Grace
            "2"
            "#,
    ),
    reader("zintercard", many!(zintercard))
        .weighs(Weight::Smallest)
        .since(
            "7.0.0",
            "O(N*K) worst case with N being the smallest input sorted set, K being the number \
                 of input sorted sets",
        )
        .doc(
            "numkeys key [key ...] [LIMIT limit]",
            "Returns the number of members of the intersect of multiple sorted sets.",
        )
        .example(
            r#"
            > ZADD monday 1 Ada 2 Grace
            (integer) 2
            > ZADD tuesday 10 Grace 20 Hedy
            (integer) 2
            > ZINTERCARD 2 monday tuesday
            (integer) 1
            "#,
        ),
    reader("zdiff", many!(|ctx, arguments| reply(ctx, arguments, Operation::Difference)))
        .weighs(Weight::All)
        .since("6.2.0", DIFF)
        .doc(
            "numkeys key [key ...] [WITHSCORES]",
            "Returns the difference between multiple sorted sets.",
        )
        .example(
            r#"
            > ZADD monday 1 Ada 2 Grace
            (integer) 2
            > ZADD tuesday 10 Grace 20 Hedy
            (integer) 2
            > ZDIFF 2 monday tuesday WITHSCORES
            1) "Ada"
            2) "1"
            RESP3:
            1) 1) "Ada"
               2) (double) 1
            "#,
        ),
    writer(
        "zdiffstore",
        at_least!(|ctx, [to], arguments| store(ctx, to, arguments, Operation::Difference)),
    )
    .weighs(Weight::All)
    .since("6.2.0", DIFF)
    .doc(
        "destination numkeys key [key ...]",
        "Stores the difference of multiple sorted sets in a key.",
    )
    .example(
        r#"
            > ZADD monday 1 Ada 2 Grace
            (integer) 2
            > ZADD tuesday 10 Grace 20 Hedy
            (integer) 2
            > ZDIFFSTORE only-monday 2 monday tuesday
            (integer) 1
            > ZRANGE only-monday 0 -1
            1) "Ada"
            "#,
    ),
];

/// Operation on the sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operation {
    Union,
    Intersection,
    Difference,
}

/// Aggregation of the scores of a member that is in several sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Aggregate {
    Sum,
    Min,
    Max,
    /// Sums the weights; scores do not count.
    Count,
}

impl Aggregate {
    fn parse(arg: &[u8]) -> Result<Self, CommandError> {
        match arg.to_ascii_lowercase().as_slice() {
            b"sum" => Ok(Self::Sum),
            b"min" => Ok(Self::Min),
            b"max" => Ok(Self::Max),
            b"count" => Ok(Self::Count),
            _ => Err(CommandError::SYNTAX),
        }
    }

    fn of(self, left: f64, right: f64) -> f64 {
        match self {
            // The sum of opposite infinities is 0.
            Self::Sum | Self::Count => number_or_zero(left + right),
            Self::Min => {
                if right < left {
                    right
                } else {
                    left
                }
            }
            Self::Max => {
                if right > left {
                    right
                } else {
                    left
                }
            }
        }
    }
}

fn number_or_zero(score: f64) -> f64 {
    if score.is_nan() { 0.0 } else { score }
}

/// Form of a command, which determines its options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OptionsOf {
    Reply(Operation),
    Store(Operation),
    Cardinality,
}

/// Arguments after the keys.
#[derive(Debug)]
struct Combination {
    /// Factor for the scores of each set.
    weights: Vec<f64>,
    aggregate: Aggregate,
    with_scores: bool,
    /// Upper bound of the count; 0 for no limit.
    limit: usize,
}

impl Combination {
    fn parse(mut options: Options<'_>, keys: usize, of: OptionsOf) -> Result<Self, CommandError> {
        let mut parsed = Self {
            weights: vec![1.0; keys],
            aggregate: Aggregate::Sum,
            with_scores: false,
            limit: 0,
        };
        let (is_weighted, replies) = match of {
            OptionsOf::Reply(operation) => (operation != Operation::Difference, true),
            OptionsOf::Store(operation) => (operation != Operation::Difference, false),
            OptionsOf::Cardinality => (false, false),
        };
        while let Some(word) = options.next_word() {
            match &*word {
                b"weights" if is_weighted => {
                    let weights = options.many_values(keys)?;
                    parsed.weights = weights.iter().map(weight).collect::<Result<_, _>>()?;
                }
                b"aggregate" if is_weighted => {
                    parsed.aggregate = Aggregate::parse(options.value()?)?;
                }
                b"withscores" if replies => parsed.with_scores = true,
                b"limit" if of == OptionsOf::Cardinality => {
                    parsed.limit = parse_i64(options.value()?)
                        .and_then(|limit| usize::try_from(limit).ok())
                        .ok_or(CommandError::new("ERR LIMIT can't be negative"))?;
                }
                _ => return Err(CommandError::SYNTAX),
            }
        }
        Ok(parsed)
    }
}

fn weight(arg: &[u8]) -> Result<f64, CommandError> {
    parse_f64(arg).ok_or(CommandError::new("ERR weight value is not a float"))
}

/// One of the sets.
#[derive(Clone, Copy)]
enum Source<'a> {
    /// The key does not exist.
    Nothing,
    /// A plain set, whose members have a score of 1.
    Plain(&'a Set),
    Scored(&'a SortedSet),
}

impl<'a> Source<'a> {
    fn of(value: &'a Option<Value<'_>>) -> Result<Self, CommandError> {
        match value {
            None => Ok(Self::Nothing),
            Some(Value::Collection(collection)) => match &**collection {
                Collection::Set(set) => Ok(Self::Plain(set)),
                Collection::SortedSet(set) => Ok(Self::Scored(set)),
                _ => Err(CommandError::WRONG_TYPE),
            },
            Some(Value::Str(_)) => Err(CommandError::WRONG_TYPE),
        }
    }

    fn len(self) -> usize {
        match self {
            Self::Nothing => 0,
            Self::Plain(set) => set.live_len(),
            Self::Scored(set) => set.len(),
        }
    }

    fn score(self, member: &[u8]) -> Option<f64> {
        match self {
            Self::Nothing => None,
            Self::Plain(set) => set.contains(member).then_some(1.0),
            Self::Scored(set) => set.score(member),
        }
    }

    /// Calls `visit` with each member until it breaks.
    fn each(self, mut visit: impl FnMut(&[u8], f64) -> ControlFlow<()>) {
        let mut text = IntText::new();
        let mut show = |member: Element<'_>, score| visit(member.bytes(&mut text), score);
        let _ = match self {
            Self::Nothing => ControlFlow::Continue(()),
            Self::Plain(set) => set.iter().try_for_each(|member| show(member, 1.0)),
            Self::Scored(set) => set.iter().try_for_each(|(member, score)| show(member, score)),
        };
    }
}

/// A set with its weight.
#[derive(Clone, Copy)]
struct Operand<'a> {
    source: Source<'a>,
    weight: f64,
    /// Number that operands of one key share.
    place: usize,
}

impl Operand<'_> {
    /// Multiplies a score by the weight. An infinity times 0 is 0, so that the order of operands does not matter.
    fn weighted(&self, score: f64, aggregate: Aggregate) -> f64 {
        match aggregate {
            Aggregate::Count => self.weight,
            _ => number_or_zero(self.weight * score),
        }
    }
}

/// All operands, in the order of the arguments.
type Operands<'a> = Vec<Operand<'a>>;

/// Sorts by size, smallest first. Scores are added in this order, and the smallest set bounds an intersection.
fn by_len(mut operands: Operands<'_>) -> Operands<'_> {
    operands.sort_by_key(|operand| operand.source.len());
    operands
}

fn union(operands: Operands<'_>, aggregate: Aggregate, limits: &PackedLimits) -> SortedSet {
    let mut made = SortedSet::new();
    for operand in by_len(operands) {
        operand.source.each(|member, score| {
            let score = operand.weighted(score, aggregate);
            made.update(member, limits, |old| {
                Some(old.map_or(score, |old| aggregate.of(old, score)))
            });
            ControlFlow::Continue(())
        });
    }
    made
}

/// Calls `visit` with the members that are in all sets, and their scores. Each set is searched once for a member,
/// even if it is named several times.
fn intersect(
    operands: Operands<'_>,
    aggregate: Aggregate,
    mut visit: impl FnMut(&[u8], f64) -> ControlFlow<()>,
) {
    let operands = by_len(operands);
    let Some((smallest, others)) = operands.split_first() else { return };
    // Indexed by place: the score of the current member, and the number of that member.
    let mut scores = vec![(0.0, 0_usize); operands.len()];
    let mut number = 0;
    smallest.source.each(|member, score| {
        number += 1;
        scores[smallest.place] = (score, number);
        let mut total = smallest.weighted(score, aggregate);
        for other in others {
            let (score, of) = &mut scores[other.place];
            if *of != number {
                let Some(found) = other.source.score(member) else {
                    return ControlFlow::Continue(());
                };
                (*score, *of) = (found, number);
            }
            total = aggregate.of(total, other.weighted(*score, aggregate));
        }
        visit(member, total)
    });
}

fn difference(mut operands: Operands<'_>, limits: &PackedLimits) -> SortedSet {
    let mut made = SortedSet::new();
    // Places are numbered from the first argument on.
    operands.sort_by_key(|operand| operand.place);
    let takes_itself_away =
        operands.get(1).is_some_and(|operand| operand.place == operands[0].place);
    operands.dedup_by_key(|operand| operand.place);
    let Some((first, others)) = operands.split_first().filter(|_| !takes_itself_away) else {
        return made;
    };
    first.source.each(|member, score| {
        if others.iter().all(|other| other.source.score(member).is_none()) {
            made.insert(member, score, limits);
        }
        ControlFlow::Continue(())
    });
    made
}

impl Operation {
    fn event_of_store(self) -> Event {
        match self {
            Self::Union => Event::ZUnionStore,
            Self::Intersection => Event::ZInterStore,
            Self::Difference => Event::ZDiffStore,
        }
    }

    fn run(
        self,
        operands: Operands<'_>,
        options: &Combination,
        limits: &PackedLimits,
    ) -> SortedSet {
        match self {
            Self::Union => union(operands, options.aggregate, limits),
            Self::Intersection => {
                let mut made = SortedSet::new();
                intersect(operands, options.aggregate, |member, score| {
                    made.insert(member, score, limits);
                    ControlFlow::Continue(())
                });
                made
            }
            Self::Difference => difference(operands, limits),
        }
    }
}

/// Takes the keys, whose number is the argument before them.
fn take_keys<'a>(arguments: &mut Options<'a>, name: &str) -> Result<Rest<'a>, CommandError> {
    let count = integer(arguments.value()?)?;
    if count < 1 {
        return Err(CommandError::text(format!(
            "ERR at least 1 input key is needed for '{name}' command"
        )));
    }
    arguments.many_values(usize::try_from(count).map_err(|_| CommandError::SYNTAX)?)
}

/// Splits `arguments`, which begin with the number of keys, into keys and options.
fn split<'a, 'k>(
    ctx: &Context<'_, 'k>,
    arguments: Rest<'a, 2>,
) -> Result<(Distinct<'a>, Options<'a>), CommandError> {
    let mut options = Options::of(arguments);
    let keys = take_keys(&mut options, ctx.name())?;
    Ok((Distinct::of(&ctx.keys(keys.iter())), options))
}

/// Calls `make` with the sets and the options.
fn combine<M>(
    keys: &Distinct<'_>,
    values: &[Option<Value<'_>>],
    options: Options<'_>,
    of: OptionsOf,
    make: impl FnOnce(Operands<'_>, &Combination) -> M,
) -> Result<M, CommandError> {
    let sources = values.iter().map(Source::of).collect::<Result<Vec<_>, _>>()?;
    // A wrong type is reported before a wrong option.
    let options = Combination::parse(options, keys.places.len(), of)?;
    let operands = keys.places.iter().zip(&options.weights);
    let operands =
        operands.map(|(&place, &weight)| Operand { source: sources[place], weight, place });
    Ok(make(operands.collect(), &options))
}

fn reply(ctx: &mut Context<'_, '_>, arguments: Rest<'_, 2>, operation: Operation) -> Done {
    let limits = ctx.kernel.keyspace.limits().sorted_set;
    let (keys, options) = split(ctx, arguments)?;
    ctx.read(&keys.keys, |values, reply| {
        let of = OptionsOf::Reply(operation);
        let (set, with_scores) = combine(&keys, values, options, of, |operands, options| {
            (operation.run(operands, options, &limits), options.with_scores)
        })?;
        Scores::wanted(with_scores, reply).all(reply, set.iter());
        Ok(())
    })?;
    keys.count_repeated(ctx)
}

fn store(
    ctx: &mut Context<'_, '_>,
    destination: &[u8],
    arguments: Rest<'_, 2>,
    operation: Operation,
) -> Done {
    let limits = ctx.kernel.keyspace.limits().sorted_set;
    let to = ctx.kernel.keyspace.key(destination);
    let (keys, options) = split(ctx, arguments)?;
    let make = |values: &[Option<Value<'_>>]| {
        let of = OptionsOf::Store(operation);
        combine(&keys, values, options, of, |operands, options| {
            operation.run(operands, options, &limits)
        })
    };
    ctx.compute(&keys.keys, make, |ctx, set| {
        keys.count_repeated(ctx)?;
        let len = set.len();
        let mut db = ctx.guard.db(ctx.caller.db, to.hash(), ctx.now_ms);
        store_result(&mut db, to, Collection::SortedSet(set), operation.event_of_store())?;
        ctx.reply.count(len);
        Ok(())
    })
}

fn zintercard(ctx: &mut Context<'_, '_>, arguments: Rest<'_, 2>) -> Done {
    let (keys, options) = split(ctx, arguments)?;
    ctx.read(&keys.keys, |values, reply| {
        let of = OptionsOf::Cardinality;
        let count = combine(&keys, values, options, of, |operands, options| {
            let mut count = 0;
            intersect(operands, options.aggregate, |_, _| {
                count += 1;
                if count == options.limit {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            });
            count
        })?;
        reply.count(count);
        Ok(())
    })?;
    keys.count_repeated(ctx)
}
