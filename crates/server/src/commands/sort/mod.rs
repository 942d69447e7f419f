//! SORT and SORT_RO: the elements of a list, set or sorted set in an order, which other keys may give.
//!
//! Elements are copied, and sorted with their weights beside them. With BY or GET patterns other keys are
//! read, whose names are made of the elements: all shards are locked then, for nobody knows which ones
//! are needed before the elements are known.

mod options;
mod order;
mod pattern;

use tierce_collections::{Collection, List};
use tierce_keyspace::{DbIndex, Key, Lent, Limits, Value};
use tierce_wire::resp::Args;

use crate::command::{Flags, Group, KeyFlags, KeySpec, Scope, Spec};
use crate::commands::options::check_len;
use crate::error::CommandError;
use crate::execute::{Context, Guard};
use crate::reply::Reply;
use options::SortOptions;
use order::sort;
use pattern::Lookup;

const SOURCE: KeySpec = KeySpec::at(1, KeyFlags::READ);
const LOOKED_UP: KeySpec = KeySpec::unknown(KeyFlags::READ)
    .note("keys of BY and GET, whose names are made of the elements");
const DESTINATION: KeySpec =
    KeySpec::option("STORE", &[("BY", 1), ("GET", 1), ("LIMIT", 2)], 2, KeyFlags::OVERWRITE)
        .note("the key of STORE, which may stand anywhere");

const CATEGORIES: &[&str] = &["set", "sortedset", "list", "dangerous"];
const COMPLEXITY: &str = "O(N+M*log(M)) where N is the number of elements and M is the number of \
    elements returned; O(N) where they are not sorted";

pub(super) const COMMANDS: &[&[Spec]] = &[SORTS];

static SORTS: &[Spec] = &[
    Spec::new("sort", -2, Group::Generic, |ctx, args| run(ctx, args, Access::Any))
        .flags(Flags::WRITE.with(Flags::DENYOOM))
        .categories(CATEGORIES)
        .keys(&[SOURCE, LOOKED_UP, DESTINATION])
        .locks(Scope::OfCall(scope))
        .doc(
            "1.0.0",
            COMPLEXITY,
            "key [BY pattern] [LIMIT offset count] [GET pattern [GET pattern ...]] [ASC | DESC] \
             [ALPHA] [STORE destination]",
            "Sorts the elements in a list, a set, or a sorted set, optionally storing the result.",
        ),
    Spec::new("sort_ro", -2, Group::Generic, |ctx, args| run(ctx, args, Access::ReadOnly))
        .flags(Flags::READONLY)
        .categories(CATEGORIES)
        .keys(&[SOURCE, LOOKED_UP])
        .locks(Scope::OfCall(scope))
        .doc(
            "7.0.0",
            COMPLEXITY,
            "key [BY pattern] [LIMIT offset count] [GET pattern [GET pattern ...]] [ASC | DESC] [ALPHA]",
            "Returns the sorted elements of a list, a set, or a sorted set.",
        ),
];

/// All shards if other keys than those named are read.
fn scope(args: Args<'_>) -> Scope {
    match SortOptions::parse(args.from(2), true) {
        Ok(options) if options.looks_up() => Scope::All,
        _ => Scope::Keys,
    }
}

/// What a command may do.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    Any,
    ReadOnly,
}

fn run(ctx: &mut Context<'_, '_>, args: Args<'_>, access: Access) -> Result<(), CommandError> {
    let options = SortOptions::parse(args.from(2), access == Access::Any)?;
    let source = ctx.server.keyspace.key(args.at(1));
    let destination = options.store.map(|key| ctx.server.keyspace.key(key));
    if let Some(destination) = destination {
        check_len(destination)?;
    }
    let limits = ctx.server.keyspace.limits();
    let (db, now_ms) = (ctx.session.db, ctx.now_ms);
    let elements = load(&mut ctx.guard, db, now_ms, source, &options)?;
    let mut lookup = Lookup::new(&mut ctx.guard, db, now_ms);
    let elements = sort(elements, &options, &mut lookup)?;
    match destination {
        None => reply_with(&mut ctx.reply, &elements, &options, &mut lookup)?,
        Some(destination) => {
            let list = list_of(&elements, &options, &mut lookup, &limits)?;
            let len = list.len();
            let mut db = ctx.guard.db(db, destination.hash(), now_ms);
            db.put_collection(destination, Collection::List(list), None)?;
            ctx.reply.count(len);
        }
    }
    Ok(())
}

/// Elements to sort, or those to reply with.
struct Elements {
    all: Vec<Vec<u8>>,
    /// Whether they are in their final order, and only those that LIMIT leaves.
    is_final: bool,
}

/// Copies the elements of the source.
fn load(
    guard: &mut Guard<'_, '_>,
    db: DbIndex,
    now_ms: i64,
    source: Key<'_>,
    options: &SortOptions<'_>,
) -> Result<Elements, CommandError> {
    let mut db = guard.db(db, source.hash(), now_ms);
    match db.get(source)? {
        None => Ok(Elements { all: Vec::new(), is_final: true }),
        Some(Value::Collection(collection)) => elements_of(&collection, options),
        Some(_) => Err(CommandError::WRONG_TYPE),
    }
}

fn elements_of(
    collection: &Lent<'_, Collection>,
    options: &SortOptions<'_>,
) -> Result<Elements, CommandError> {
    let is_final = options.keeps_order;
    let all = match &**collection {
        Collection::List(list) if is_final => {
            let range = options.range(list.len());
            if options.is_descending {
                let from = list.len() - range.start;
                list.rev_iter_from(from).take(range.len()).map(|item| item.to_vec()).collect()
            } else {
                list.iter_from(range.start).take(range.len()).map(|item| item.to_vec()).collect()
            }
        }
        Collection::SortedSet(set) if is_final => {
            let range = options.range(set.len());
            if options.is_descending {
                let ranks = set.len() - range.end..set.len() - range.start;
                set.range(ranks).rev().map(|(member, _)| member.to_vec()).collect()
            } else {
                set.range(range).map(|(member, _)| member.to_vec()).collect()
            }
        }
        Collection::Set(set) if is_final && options.store.is_none() => {
            let range = options.range(set.len());
            set.iter().skip(range.start).take(range.len()).map(|item| item.to_vec()).collect()
        }
        Collection::List(list) => list.iter().map(|item| item.to_vec()).collect(),
        Collection::Set(set) => {
            let all = set.iter().map(|item| item.to_vec()).collect();
            return Ok(Elements { all, is_final: false });
        }
        Collection::SortedSet(set) => set.iter().map(|(member, _)| member.to_vec()).collect(),
        Collection::Hash(_) | Collection::Stream(_) => return Err(CommandError::WRONG_TYPE),
    };
    Ok(Elements { all, is_final })
}

fn reply_with(
    reply: &mut Reply<'_>,
    elements: &[Vec<u8>],
    options: &SortOptions<'_>,
    lookup: &mut Lookup<'_, '_, '_>,
) -> Result<(), CommandError> {
    if options.get.is_empty() {
        reply.bulks(elements);
        return Ok(());
    }
    // All of them first: one that cannot be read is an error instead of the reply.
    let mut values = Vec::with_capacity(elements.len() * options.get.len());
    for element in elements {
        for pattern in &options.get {
            values.push(lookup.find(pattern, element)?);
        }
    }
    reply.array(values.len());
    for value in values {
        match value {
            Some(value) => reply.bulk(&value),
            None => reply.null(),
        }
    }
    Ok(())
}

/// The list that STORE makes; what GET does not find is an empty string there.
fn list_of(
    elements: &[Vec<u8>],
    options: &SortOptions<'_>,
    lookup: &mut Lookup<'_, '_, '_>,
    limits: &Limits,
) -> Result<List, CommandError> {
    let mut list = List::new();
    for element in elements {
        if options.get.is_empty() {
            list.push_back(element, limits.list);
        }
        for pattern in &options.get {
            let value = lookup.find(pattern, element)?.unwrap_or_default();
            list.push_back(&value, limits.list);
        }
    }
    Ok(list)
}
