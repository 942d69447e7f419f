//! ZUNION, ZINTER, ZDIFF and their relatives: several sets, sorted or not, make one.

use std::ops::ControlFlow;

use tierce_collections::{Collection, Element, IntText, PackedLimits, Set, SortedSet};
use tierce_keyspace::Value;
use tierce_wire::number::{parse_f64, parse_i64};
use tierce_wire::resp::Args;

use super::scored::Scores;
use crate::command::{Flags, Group, Handler, KeyFlags, KeySpec, Spec};
use crate::commands::options::integer;
use crate::error::CommandError;
use crate::execute::{Context, Guard};

const fn reader(name: &'static str, run: Handler) -> Spec {
    Spec::new(name, -3, Group::SortedSet, run)
        .flags(Flags::READONLY)
        .keys(const { &[KeySpec::counted(1, KeyFlags::READ)] })
}

const fn writer(name: &'static str, run: Handler) -> Spec {
    Spec::new(name, -4, Group::SortedSet, run)
        .flags(Flags::WRITE.with(Flags::DENYOOM))
        .keys(const { &[KeySpec::at(1, KeyFlags::OVERWRITE), KeySpec::counted(2, KeyFlags::READ)] })
}

const UNION: &str = "O(N)+O(M*log(M)) with N being the sum of the sizes of the input sorted sets, and M \
                     being the number of elements in the resulting sorted set";
const INTER: &str = "O(N*K)+O(M*log(M)) worst case with N being the smallest input sorted set, K being \
                     the number of input sorted sets and M being the number of elements in the \
                     resulting sorted set";
const DIFF: &str = "O(L + (N-K)log(N)) worst case where L is the total number of elements in all the \
                    sets, N is the size of the first set, and K is the size of the result set";

pub(super) static COMMANDS: &[Spec] = &[
    reader("zunion", zunion).doc(
        "6.2.0",
        UNION,
        "numkeys key [key ...] [WEIGHTS weight [weight ...]] [AGGREGATE <SUM | MIN | MAX>] \
         [WITHSCORES]",
        "Returns the union of multiple sorted sets.",
    ),
    writer("zunionstore", zunionstore).doc(
        "2.0.0",
        UNION,
        "destination numkeys key [key ...] [WEIGHTS weight [weight ...]] [AGGREGATE <SUM | MIN | MAX>]",
        "Stores the union of multiple sorted sets in a key.",
    ),
    reader("zinter", zinter).doc(
        "6.2.0",
        INTER,
        "numkeys key [key ...] [WEIGHTS weight [weight ...]] [AGGREGATE <SUM | MIN | MAX>] \
         [WITHSCORES]",
        "Returns the intersect of multiple sorted sets.",
    ),
    writer("zinterstore", zinterstore).doc(
        "2.0.0",
        INTER,
        "destination numkeys key [key ...] [WEIGHTS weight [weight ...]] [AGGREGATE <SUM | MIN | MAX>]",
        "Stores the intersect of multiple sorted sets in a key.",
    ),
    reader("zintercard", zintercard).doc(
        "7.0.0",
        "O(N*K) worst case with N being the smallest input sorted set, K being the number of input \
         sorted sets",
        "numkeys key [key ...] [LIMIT limit]",
        "Returns the number of members of the intersect of multiple sorted sets.",
    ),
    reader("zdiff", zdiff).doc(
        "6.2.0",
        DIFF,
        "numkeys key [key ...] [WITHSCORES]",
        "Returns the difference between multiple sorted sets.",
    ),
    writer("zdiffstore", zdiffstore).doc(
        "6.2.0",
        DIFF,
        "destination numkeys key [key ...]",
        "Stores the difference of multiple sorted sets in a key.",
    ),
];

type Done = Result<(), CommandError>;

fn zunion(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    reply(ctx, args, Operation::Union)
}

fn zunionstore(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    store(ctx, args, Operation::Union)
}

fn zinter(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    reply(ctx, args, Operation::Intersection)
}

fn zinterstore(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    store(ctx, args, Operation::Intersection)
}

fn zdiff(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    reply(ctx, args, Operation::Difference)
}

fn zdiffstore(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    store(ctx, args, Operation::Difference)
}

/// What is made of the sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operation {
    Union,
    Intersection,
    Difference,
}

/// What becomes of the scores of a member that is in several sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Aggregate {
    Sum,
    Min,
    Max,
}

impl Aggregate {
    /// `right` may be no number, if it is an infinity times 0.
    fn of(self, left: f64, right: f64) -> f64 {
        match self {
            // Infinities of either sign cancel out, and what is no number makes all zero.
            Self::Sum => number_or_zero(left + right),
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

/// Which options a command has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OptionsOf {
    Reply(Operation),
    Store(Operation),
    Cardinality,
}

/// What stands behind the keys.
#[derive(Debug)]
struct Options {
    /// A factor for the scores of each set.
    weights: Vec<f64>,
    aggregate: Aggregate,
    with_scores: bool,
    /// Count no further; 0 for no limit.
    limit: usize,
}

impl Options {
    fn parse(options: Args<'_>, keys: usize, of: OptionsOf) -> Result<Self, CommandError> {
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
        let mut at = 0;
        while let Some(option) = options.get(at) {
            let left = options.len() - at - 1;
            let is = |word: &str| option.eq_ignore_ascii_case(word.as_bytes());
            if is_weighted && is("weights") && left >= keys {
                for weight in &mut parsed.weights {
                    at += 1;
                    *weight = parse_f64(&options[at])
                        .ok_or(CommandError::new("ERR weight value is not a float"))?;
                }
            } else if is_weighted && is("aggregate") && left >= 1 {
                at += 1;
                parsed.aggregate = match options[at].to_ascii_lowercase().as_slice() {
                    b"sum" => Aggregate::Sum,
                    b"min" => Aggregate::Min,
                    b"max" => Aggregate::Max,
                    _ => return Err(CommandError::SYNTAX),
                };
            } else if replies && is("withscores") {
                parsed.with_scores = true;
            } else if of == OptionsOf::Cardinality && is("limit") && left >= 1 {
                at += 1;
                parsed.limit = parse_i64(&options[at])
                    .and_then(|limit| usize::try_from(limit).ok())
                    .ok_or(CommandError::new("ERR LIMIT can't be negative"))?;
            } else {
                return Err(CommandError::SYNTAX);
            }
            at += 1;
        }
        Ok(parsed)
    }
}

/// One of the sets.
#[derive(Clone, Copy)]
enum Source<'a> {
    /// There is no such key.
    Nothing,
    /// Members of a plain set have a score of 1.
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
            Self::Plain(set) => set.len(),
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

    /// Shows all members until `visit` has enough.
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

/// Sets with their weights.
type Sources<'a> = Vec<(Source<'a>, f64)>;

/// Smaller ones first: the order in which scores are added up, and the smallest one bounds an
/// intersection.
fn by_len(mut sources: Sources<'_>) -> Sources<'_> {
    sources.sort_by_key(|(source, _)| source.len());
    sources
}

fn union(sources: Sources<'_>, aggregate: Aggregate, limits: &PackedLimits) -> SortedSet {
    let mut made = SortedSet::new();
    for (source, weight) in by_len(sources) {
        source.each(|member, score| {
            let score = number_or_zero(weight * score);
            made.update(member, limits, |old| {
                Some(old.map_or(score, |old| aggregate.of(old, score)))
            });
            ControlFlow::Continue(())
        });
    }
    made
}

/// Shows the members that are in all sets, with their scores.
fn intersect(
    sources: Sources<'_>,
    aggregate: Aggregate,
    mut visit: impl FnMut(&[u8], f64) -> ControlFlow<()>,
) {
    let sources = by_len(sources);
    let Some(((smallest, weight), others)) = sources.split_first() else { return };
    smallest.each(|member, score| {
        let mut total = number_or_zero(weight * score);
        for (other, weight) in others {
            let Some(score) = other.score(member) else { return ControlFlow::Continue(()) };
            total = aggregate.of(total, weight * score);
        }
        visit(member, total)
    });
}

fn difference(sources: &Sources<'_>, limits: &PackedLimits) -> SortedSet {
    let mut made = SortedSet::new();
    let Some(((first, _), others)) = sources.split_first() else { return made };
    first.each(|member, score| {
        if others.iter().all(|(other, _)| other.score(member).is_none()) {
            made.insert(member, score, limits);
        }
        ControlFlow::Continue(())
    });
    made
}

impl Operation {
    fn run(self, sources: Sources<'_>, options: &Options, limits: &PackedLimits) -> SortedSet {
        match self {
            Self::Union => union(sources, options.aggregate, limits),
            Self::Intersection => {
                let mut made = SortedSet::new();
                intersect(sources, options.aggregate, |member, score| {
                    made.insert(member, score, limits);
                    ControlFlow::Continue(())
                });
                made
            }
            Self::Difference => difference(&sources, limits),
        }
    }
}

/// How many keys there are, from the argument that says so on.
fn count_keys(args: Args<'_>, name: &str) -> Result<usize, CommandError> {
    let count = integer(&args[0])?;
    if count < 1 {
        return Err(CommandError::text(format!(
            "ERR at least 1 input key is needed for '{name}' command"
        )));
    }
    usize::try_from(count).ok().filter(|count| *count < args.len()).ok_or(CommandError::SYNTAX)
}

/// Reads the keys that `args` begins with the number of, gives the sets and the options to `make`, and
/// what comes out to `finish`.
fn with_sources<'a, M, R>(
    ctx: &mut Context<'_, '_>,
    args: Args<'a>,
    of: OptionsOf,
    make: impl FnOnce(Sources<'_>, &Options, &PackedLimits) -> M,
    finish: impl FnOnce(&mut Guard<'_, '_>, M) -> Result<R, CommandError>,
) -> Result<R, CommandError> {
    let count = count_keys(args, ctx.name())?;
    let keys = ctx.keys(args.iter().skip(1).take(count));
    let limits = ctx.server.keyspace.limits().sorted_set;
    let made = {
        let values = ctx.guard.values(ctx.session.db, &keys, ctx.now_ms)?;
        let sources = values.iter().map(Source::of).collect::<Result<Vec<_>, _>>()?;
        // A wrong type is reported rather than a wrong option.
        let options = Options::parse(args.from(1 + count), count, of)?;
        let sources = sources.into_iter().zip(options.weights.iter().copied()).collect();
        make(sources, &options, &limits)
    };
    finish(&mut ctx.guard, made)
}

fn reply(ctx: &mut Context<'_, '_>, args: Args<'_>, operation: Operation) -> Done {
    let of = OptionsOf::Reply(operation);
    let make = |sources: Sources<'_>, options: &Options, limits: &PackedLimits| {
        (operation.run(sources, options, limits), options.with_scores)
    };
    let (set, with_scores) = with_sources(ctx, args.from(1), of, make, |_, made| Ok(made))?;
    Scores::wanted(with_scores, &ctx.reply).all(&mut ctx.reply, set.iter());
    Ok(())
}

fn store(ctx: &mut Context<'_, '_>, args: Args<'_>, operation: Operation) -> Done {
    let to = ctx.server.keyspace.key(args.at(1));
    let (db, now_ms) = (ctx.session.db, ctx.now_ms);
    let of = OptionsOf::Store(operation);
    let make = |sources: Sources<'_>, options: &Options, limits: &PackedLimits| {
        operation.run(sources, options, limits)
    };
    let len = with_sources(ctx, args.from(2), of, make, |guard, set| {
        let len = set.len();
        let mut db = guard.db(db, to.hash(), now_ms);
        db.put_collection(to, Collection::SortedSet(set), None)?;
        Ok(len)
    })?;
    ctx.reply.count(len);
    Ok(())
}

fn zintercard(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let make = |sources: Sources<'_>, options: &Options, _: &PackedLimits| {
        let mut count = 0;
        intersect(sources, options.aggregate, |_, _| {
            count += 1;
            if count == options.limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        count
    };
    let of = OptionsOf::Cardinality;
    let count = with_sources(ctx, args.from(1), of, make, |_, count| Ok(count))?;
    ctx.reply.count(count);
    Ok(())
}
