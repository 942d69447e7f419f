//! SINTER, SUNION, SDIFF and their relatives: operations on several sets.

use tierce_collections::hyperloglog::{self, REGISTERS};
use tierce_collections::set::{difference, intersection, union};
use tierce_collections::{Collection, Element, IntText, Set, SetLimits};
use tierce_keyspace::{CollectionType, Event, Value};
use tierce_wire::number::parse_i64;
use tierce_wire::resp::Rest;

use crate::command::{Flags, Group, KeyFlags, KeySpec, Scope, Weight};
use crate::commands::cursor::Options;
use crate::commands::distinct::Distinct;
use crate::commands::store::store_result;
use crate::error::CommandError;
use crate::pipeline::{Body, Context, Defined, Done, at_least, many};

const fn reader(name: &'static str, body: Body) -> Defined {
    Defined::new(name, Group::Set, body)
        .flags(Flags::READONLY)
        .locks(Scope::InTurns)
        .keys(const { &[KeySpec::all(1, KeyFlags::READ)] })
        .tips(&["nondeterministic_output_order"])
}

const fn writer(name: &'static str, body: Body) -> Defined {
    const SOURCES: KeySpec = KeySpec { first: 2, ..KeySpec::all(1, KeyFlags::READ) };
    Defined::new(name, Group::Set, body)
        .flags(Flags::WRITE.with(Flags::DENYOOM))
        .locks(Scope::InTurns)
        .keys(const { &[KeySpec::at(1, KeyFlags::OVERWRITE), SOURCES] })
}

const fn counter(name: &'static str, body: Body) -> Defined {
    Defined::new(name, Group::Set, body)
        .flags(Flags::READONLY)
        .locks(Scope::InTurns)
        .keys(const { &[KeySpec::counted(1, KeyFlags::READ)] })
}

const INTERSECTION: &str =
    "O(N*M) worst case where N is the size of the smallest set and M is the number of sets";
const OTHERS: &str = "O(N) where N is the total number of members in all sets";

pub(super) static COMMANDS: &[Defined] = &[
    reader("sinter", many!(|ctx, keys| show(ctx, keys, Operation::Intersection)))
        .weighs(Weight::Smallest)
        .since("1.0.0", INTERSECTION)
        .doc("key [key ...]", "Returns the intersect of multiple sets.")
        .example(
            r#"
            > SADD monday Ada Grace Hedy
            (integer) 3
            > SADD tuesday Grace Hedy Mary
            (integer) 3
            > SINTER monday tuesday
            1) "Grace"
            2) "Hedy"
            "#,
        ),
    counter("sintercard", at_least!(|ctx, [n], keys| count(ctx, n, keys, Operation::Intersection)))
        .weighs(Weight::Smallest)
        .since("7.0.0", INTERSECTION)
        .doc(
            "numkeys key [key ...] [LIMIT limit]",
            "Returns the number of members of the intersect of multiple sets.",
        )
        .example(
            r#"
            > SADD monday Ada Grace Hedy
            (integer) 3
            > SADD tuesday Grace Hedy Mary
            (integer) 3
            > SINTERCARD 2 monday tuesday
            (integer) 2
            > SINTERCARD 2 monday tuesday LIMIT 1
            (integer) 1
            "#,
        ),
    writer(
        "sinterstore",
        at_least!(|ctx, [to], keys| store(ctx, to, keys, Operation::Intersection)),
    )
    .weighs(Weight::Smallest)
    .since("1.0.0", INTERSECTION)
    .doc("destination key [key ...]", "Stores the intersect of multiple sets in a key.")
    .example(
        r#"
            > SADD monday Ada Grace Hedy
            (integer) 3
            > SADD tuesday Grace Hedy Mary
            (integer) 3
            > SINTERSTORE both monday tuesday
            (integer) 2
            > SMEMBERS both
            1) "Grace"
            2) "Hedy"
            "#,
    ),
    reader("sunion", many!(|ctx, keys| show(ctx, keys, Operation::Union)))
        .weighs(Weight::All)
        .since("1.0.0", OTHERS)
        .doc("key [key ...]", "Returns the union of multiple sets.")
        .example(
            r#"
            > SADD monday Ada Grace
            (integer) 2
            > SADD tuesday Grace Mary
            (integer) 2
            > SUNION monday tuesday
            1) "Ada"
            2) "Grace"
            3) "Mary"
            "#,
        ),
    counter("sunioncard", at_least!(|ctx, [n], keys| count(ctx, n, keys, Operation::Union)))
        .weighs(Weight::All)
        .since("8.10.0", OTHERS)
        .doc(
            "numkeys key [key ...] [APPROX] [LIMIT limit]",
            "Returns the number of members of the union of multiple sets, or an estimate.",
        )
        .example(
            r#"
            > SADD monday Ada Grace
            (integer) 2
            > SADD tuesday Grace Mary
            (integer) 2
            > SUNIONCARD 2 monday tuesday
            (integer) 3
            > SUNIONCARD 2 monday tuesday LIMIT 2
            (integer) 2
            > SUNIONCARD 2 monday tuesday APPROX
            (integer) 3
            "#,
        ),
    writer("sunionstore", at_least!(|ctx, [to], keys| store(ctx, to, keys, Operation::Union)))
        .weighs(Weight::All)
        .since("1.0.0", OTHERS)
        .doc("destination key [key ...]", "Stores the union of multiple sets in a key.")
        .example(
            r#"
            > SADD monday Ada Grace
            (integer) 2
            > SADD tuesday Grace Mary
            (integer) 2
            > SUNIONSTORE all monday tuesday
            (integer) 3
            > SMEMBERS all
            1) "Ada"
            2) "Grace"
            3) "Mary"
            "#,
        ),
    reader("sdiff", many!(|ctx, keys| show(ctx, keys, Operation::Difference)))
        .weighs(Weight::All)
        .since("1.0.0", OTHERS)
        .doc("key [key ...]", "Returns the difference of multiple sets.")
        .example(
            r#"
            > SADD monday Ada Grace Hedy
            (integer) 3
            > SADD tuesday Grace Mary
            (integer) 2
            > SDIFF monday tuesday
            1) "Ada"
            2) "Hedy"
            "#,
        ),
    counter("sdiffcard", at_least!(|ctx, [n], keys| count(ctx, n, keys, Operation::Difference)))
        .weighs(Weight::All)
        .since("8.10.0", OTHERS)
        .doc(
            "numkeys key [key ...] [LIMIT limit]",
            "Returns the number of members of the difference of multiple sets.",
        )
        .example(
            r#"
            > SADD monday Ada Grace Hedy
            (integer) 3
            > SADD tuesday Grace Mary
            (integer) 2
            > SDIFFCARD 2 monday tuesday
            (integer) 2
            > SDIFFCARD 2 monday tuesday LIMIT 1
            (integer) 1
            "#,
        ),
    writer("sdiffstore", at_least!(|ctx, [to], keys| store(ctx, to, keys, Operation::Difference)))
        .weighs(Weight::All)
        .since("1.0.0", OTHERS)
        .doc("destination key [key ...]", "Stores the difference of multiple sets in a key.")
        .example(
            r#"
            > SADD monday Ada Grace Hedy
            (integer) 3
            > SADD tuesday Grace Mary
            (integer) 2
            > SDIFFSTORE only-monday monday tuesday
            (integer) 2
            > SMEMBERS only-monday
            1) "Ada"
            2) "Hedy"
            "#,
        ),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Operation {
    Intersection,
    Union,
    Difference,
}

impl Operation {
    fn event_of_store(self) -> Event {
        match self {
            Self::Intersection => Event::SInterStore,
            Self::Union => Event::SUnionStore,
            Self::Difference => Event::SDiffStore,
        }
    }
}

/// Sets of several keys, without duplicates; `None` for an absent key.
struct Operands<'a> {
    sets: Vec<Option<&'a Set>>,
    /// True if the first key is repeated. This matters only to a difference.
    takes_itself_away: bool,
}

impl<'a> Operands<'a> {
    /// Fails if a key holds another type than a set.
    fn of(values: &'a [Option<Value<'_>>], keys: &Distinct<'_>) -> Result<Self, CommandError> {
        let as_set = |value: &'a Option<Value<'_>>| match value {
            None => Ok(None),
            Some(Value::Collection(collection)) => match Set::of(collection) {
                None => Err(CommandError::WRONG_TYPE),
                set => Ok(set),
            },
            Some(_) => Err(CommandError::WRONG_TYPE),
        };
        let sets = values.iter().map(as_set).collect::<Result<_, _>>()?;
        Ok(Self { sets, takes_itself_away: keys.places.iter().skip(1).any(|place| *place == 0) })
    }

    fn sets(&self) -> impl Iterator<Item = Option<&'a Set>> {
        self.sets.iter().copied()
    }

    /// Visits the members of the result. Ends when `visit` returns `false`.
    fn each(&self, operation: Operation, visit: impl FnMut(Element<'a>) -> bool) {
        match operation {
            Operation::Intersection => {
                let sets: Option<Vec<&Set>> = self.sets().collect();
                intersection(&sets.unwrap_or_default(), visit);
            }
            Operation::Union => {
                let sets: Vec<&Set> = self.sets().flatten().collect();
                union(&sets, visit);
            }
            Operation::Difference if self.takes_itself_away => {}
            Operation::Difference => {
                let mut sets = self.sets();
                if let Some(first) = sets.next().flatten() {
                    let others: Vec<&Set> = sets.flatten().collect();
                    difference(first, &others, visit);
                }
            }
        }
    }

    /// Returns the members of the result.
    fn members(&self, operation: Operation) -> Vec<Element<'a>> {
        let mut members = Vec::new();
        self.each(operation, |member| {
            members.push(member);
            true
        });
        members
    }

    /// Returns the number of members of the result, at most `limit` unless that is 0.
    fn count(&self, operation: Operation, limit: u64) -> u64 {
        let mut found = 0;
        self.each(operation, |_| {
            found += 1;
            found != limit
        });
        found
    }

    /// Returns the approximate number of members of the union, at most `limit` unless that is 0.
    fn estimate(&self, limit: u64) -> u64 {
        /// Least members between two estimates, each of which takes as long as about as many.
        const STEP_MIN: u64 = 1000;
        let mut registers = Box::new([0; REGISTERS]);
        let mut text = IntText::new();
        let (mut seen, mut next) = (0, limit);
        for member in self.sets().flatten().flat_map(Set::iter) {
            hyperloglog::raise(&mut registers, member.bytes(&mut text));
            seen += 1;
            if seen == next {
                let found = hyperloglog::count(&registers);
                if found >= limit {
                    return limit;
                }
                next = seen + (limit - found).max(STEP_MIN);
            }
        }
        let found = hyperloglog::count(&registers);
        if limit == 0 { found } else { found.min(limit) }
    }
}

fn show(ctx: &mut Context<'_, '_>, keys: Rest<'_, 1>, operation: Operation) -> Done {
    let keys = Distinct::of(&ctx.keys(keys.iter()));
    ctx.read(&keys.keys, |values, reply| {
        let operands = Operands::of(values, &keys)?;
        let members = operands.members(operation);
        reply.set(members.len());
        members.into_iter().for_each(|member| reply.element(member));
        Ok(())
    })?;
    keys.count_repeated(ctx)
}

fn store(
    ctx: &mut Context<'_, '_>,
    destination: &[u8],
    keys: Rest<'_, 1>,
    operation: Operation,
) -> Done {
    let keys = ctx.keys(std::iter::once(destination).chain(keys.iter()));
    let [target, sources @ ..] = &keys[..] else { return Err(CommandError::SYNTAX) };
    let sources = Distinct::of(sources);
    let limits = ctx.kernel.keyspace.limits().set;
    let make = |values: &[Option<Value<'_>>]| {
        let operands = Operands::of(values, &sources)?;
        Ok(set_of(operands.members(operation), limits))
    };
    ctx.compute(&sources.keys, make, |ctx, set| {
        sources.count_repeated(ctx)?;
        let len = set.len();
        let mut db = ctx.guard.db(ctx.caller.db, target.hash(), ctx.now_ms);
        store_result(&mut db, *target, Collection::Set(set), operation.event_of_store())?;
        ctx.reply.count(len);
        Ok(())
    })
}

fn set_of(members: Vec<Element<'_>>, limits: SetLimits) -> Set {
    let mut set = Set::new();
    if let Some(first) = members.first() {
        set.expect(*first, members.len(), limits);
    }
    for member in members {
        set.add(member, limits);
    }
    set
}

/// Replies with the number of members of the result.
fn count(
    ctx: &mut Context<'_, '_>,
    numkeys: &[u8],
    keys: Rest<'_, 1>,
    operation: Operation,
) -> Done {
    let count = parse_i64(numkeys).filter(|count| *count > 0);
    let count = count.ok_or(CommandError::new("ERR numkeys should be greater than 0"))? as usize;
    let Some((keys, options)) = keys.split_at(count) else {
        return Err(CommandError::new("ERR Number of keys can't be greater than number of args"));
    };
    let (limit, is_exact) = options_of_count(Options::of(options), operation)?;
    let keys = Distinct::of(&ctx.keys(keys.iter()));
    ctx.read(&keys.keys, |values, reply| {
        let operands = Operands::of(values, &keys)?;
        let found =
            if is_exact { operands.count(operation, limit) } else { operands.estimate(limit) };
        reply.int(found as i64);
        Ok(())
    })?;
    keys.count_repeated(ctx)
}

/// Parses the maximum number of members that are counted, 0 for all, and whether the count is exact.
fn options_of_count(
    mut options: Options<'_>,
    operation: Operation,
) -> Result<(u64, bool), CommandError> {
    let (mut limit, mut is_exact) = (0, true);
    loop {
        if options.take("limit") {
            let value = parse_i64(options.value()?).filter(|value| *value >= 0);
            limit = value.ok_or(CommandError::new("ERR LIMIT can't be negative"))? as u64;
        } else if operation == Operation::Union && options.take("approx") {
            is_exact = false;
        } else {
            options.end()?;
            return Ok((limit, is_exact));
        }
    }
}
