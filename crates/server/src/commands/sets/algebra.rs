//! SINTER, SUNION, SDIFF and their relatives: what several sets make.

use tierce_collections::set::{difference, intersection, union};
use tierce_collections::{Collection, Element, Set};
use tierce_keyspace::{CollectionType, Key, Lent, Value};
use tierce_wire::number::parse_i64;
use tierce_wire::resp::Args;

use crate::command::{Flags, Group, KeyFlags, KeySpec, Spec};
use crate::error::CommandError;
use crate::execute::Context;

const ALL: &[KeySpec] = &[KeySpec::all(1, KeyFlags::READ)];
const STORE: &[KeySpec] =
    &[KeySpec::at(1, KeyFlags::OVERWRITE), KeySpec { first: 2, ..KeySpec::all(1, KeyFlags::READ) }];
const STORE_FLAGS: Flags = Flags::WRITE.with(Flags::DENYOOM);
const TIPS: &[&str] = &["nondeterministic_output_order"];

pub(super) static COMMANDS: &[Spec] = &[
    Spec::new("sinter", -2, Group::Set, |ctx, args| show(ctx, args, Operation::Intersection))
        .flags(Flags::READONLY)
        .keys(ALL)
        .tips(TIPS)
        .doc(
            "1.0.0",
            "O(N*M) worst case where N is the size of the smallest set and M is the number of sets",
            "key [key ...]",
            "Returns the intersect of multiple sets.",
        ),
    Spec::new("sintercard", -3, Group::Set, sintercard)
        .flags(Flags::READONLY)
        .keys(&[KeySpec::counted(1, KeyFlags::READ)])
        .doc(
            "7.0.0",
            "O(N*M) worst case where N is the size of the smallest set and M is the number of sets",
            "numkeys key [key ...] [LIMIT limit]",
            "Returns the number of members of the intersect of multiple sets.",
        ),
    Spec::new("sinterstore", -3, Group::Set, |ctx, args| store(ctx, args, Operation::Intersection))
        .flags(STORE_FLAGS)
        .keys(STORE)
        .doc(
            "1.0.0",
            "O(N*M) worst case where N is the size of the smallest set and M is the number of sets",
            "destination key [key ...]",
            "Stores the intersect of multiple sets in a key.",
        ),
    Spec::new("sunion", -2, Group::Set, |ctx, args| show(ctx, args, Operation::Union))
        .flags(Flags::READONLY)
        .keys(ALL)
        .tips(TIPS)
        .doc(
            "1.0.0",
            "O(N) where N is the total number of members in all sets",
            "key [key ...]",
            "Returns the union of multiple sets.",
        ),
    Spec::new("sunionstore", -3, Group::Set, |ctx, args| store(ctx, args, Operation::Union))
        .flags(STORE_FLAGS)
        .keys(STORE)
        .doc(
            "1.0.0",
            "O(N) where N is the total number of members in all sets",
            "destination key [key ...]",
            "Stores the union of multiple sets in a key.",
        ),
    Spec::new("sdiff", -2, Group::Set, |ctx, args| show(ctx, args, Operation::Difference))
        .flags(Flags::READONLY)
        .keys(ALL)
        .tips(TIPS)
        .doc(
            "1.0.0",
            "O(N) where N is the total number of members in all sets",
            "key [key ...]",
            "Returns the difference of multiple sets.",
        ),
    Spec::new("sdiffstore", -3, Group::Set, |ctx, args| store(ctx, args, Operation::Difference))
        .flags(STORE_FLAGS)
        .keys(STORE)
        .doc(
            "1.0.0",
            "O(N) where N is the total number of members in all sets",
            "destination key [key ...]",
            "Stores the difference of multiple sets in a key.",
        ),
];

type Done = Result<(), CommandError>;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Operation {
    Intersection,
    Union,
    Difference,
}

/// The sets of several keys while their shards are locked; `None` for a key that is not there.
struct Operands<'a> {
    values: Vec<Option<Lent<'a, Collection>>>,
}

impl<'a> Operands<'a> {
    /// Fails if one of the keys holds something else than a set.
    fn of(values: Vec<Option<Value<'a>>>) -> Result<Self, CommandError> {
        let as_set = |value| match value {
            None => Ok(None),
            Some(Value::Collection(collection)) if Set::of(&collection).is_some() => {
                Ok(Some(collection))
            }
            Some(_) => Err(CommandError::WRONG_TYPE),
        };
        let values = values.into_iter().map(as_set).collect::<Result<_, _>>()?;
        Ok(Self { values })
    }

    fn sets(&self) -> impl Iterator<Item = Option<&Set>> {
        self.values.iter().map(|value| value.as_ref().and_then(|value| Set::of(value)))
    }

    /// The members that the operation makes of the sets.
    fn members(&self, operation: Operation) -> Vec<Element<'_>> {
        let mut members = Vec::new();
        match operation {
            Operation::Intersection => {
                let sets: Option<Vec<&Set>> = self.sets().collect();
                intersection(&sets.unwrap_or_default(), |member| {
                    members.push(member);
                    true
                });
            }
            Operation::Union => {
                let sets: Vec<&Set> = self.sets().flatten().collect();
                union(&sets, |member| members.push(member));
            }
            Operation::Difference => {
                let mut sets = self.sets();
                if let Some(first) = sets.next().flatten() {
                    let others: Vec<&Set> = sets.flatten().collect();
                    difference(first, &others, |member| members.push(member));
                }
            }
        }
        members
    }
}

fn show(ctx: &mut Context<'_, '_>, args: Args<'_>, operation: Operation) -> Done {
    let keys = ctx.keys(args.iter().skip(1));
    let operands = Operands::of(ctx.guard.values(ctx.session.db, &keys, ctx.now_ms)?)?;
    let members = operands.members(operation);
    ctx.reply.set(members.len());
    members.into_iter().for_each(|member| ctx.reply.element(member));
    Ok(())
}

fn store(ctx: &mut Context<'_, '_>, args: Args<'_>, operation: Operation) -> Done {
    let keys = ctx.keys(args.iter().skip(1));
    let (db, now_ms) = (ctx.session.db, ctx.now_ms);
    let limits = ctx.server.keyspace.limits().set;
    let (target, sources): (Key<'_>, _) = (keys[0], &keys[1..]);
    let operands = Operands::of(ctx.guard.values(db, sources, now_ms)?)?;
    let members = operands.members(operation);
    let len = members.len();
    let mut set = Set::new();
    if let Some(first) = members.first() {
        set.expect(*first, len, limits);
    }
    for member in members {
        set.add(member, limits);
    }
    drop(operands);
    ctx.guard.db(db, target.hash(), now_ms).put_collection(target, Collection::Set(set), None)?;
    ctx.reply.count(len);
    Ok(())
}

fn sintercard(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let count = parse_i64(&args[1]).filter(|count| *count > 0);
    let count = count.ok_or(CommandError::new("ERR numkeys should be greater than 0"))? as usize;
    if count > args.len() - 2 {
        return Err(CommandError::new("ERR Number of keys can't be greater than number of args"));
    }
    let limit = limit(args.from(2 + count))?;
    let keys = ctx.keys(args.iter().skip(2).take(count));
    let operands = Operands::of(ctx.guard.values(ctx.session.db, &keys, ctx.now_ms)?)?;
    let sets: Option<Vec<&Set>> = operands.sets().collect();
    let mut found = 0;
    intersection(&sets.unwrap_or_default(), |_| {
        found += 1;
        found != limit
    });
    ctx.reply.count(found);
    Ok(())
}

/// How many members SINTERCARD counts at most; 0 for all.
fn limit(options: Args<'_>) -> Result<usize, CommandError> {
    let mut limit = 0;
    for at in (0..options.len()).step_by(2) {
        if !options[at].eq_ignore_ascii_case(b"limit") || at + 1 == options.len() {
            return Err(CommandError::SYNTAX);
        }
        let value = parse_i64(&options[at + 1]).filter(|value| *value >= 0);
        limit = value.ok_or(CommandError::new("ERR LIMIT can't be negative"))? as usize;
    }
    Ok(limit)
}
