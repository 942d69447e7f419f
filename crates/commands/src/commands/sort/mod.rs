//! SORT and SORT_RO: sort the elements of a list, set or sorted set, optionally by the values of other
//! keys.
//!
//! Elements are copied, and sorted together with their weights. BY and GET patterns read other keys, whose names are
//! built from the elements. A short command locks all shards then, because the elements decide which ones are needed;
//! a long one reads these keys in turns (`Lookup`).

mod options;
mod order;
mod pattern;

use tierce_collections::{Collection, List};
use tierce_keyspace::{BorrowGuard, Event, Key, Limits, Value};
use tierce_wire::resp::Rest;

use crate::command::{Flags, Group, KeyFlags, KeySpec, Scope, Weight};
use crate::commands::cursor::Options;
use crate::commands::options::check_len;
use crate::commands::store::store_result;
use crate::error::CommandError;
use crate::pipeline::{Context, Defined, Done, Guard, Then, at_least};
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

pub(super) const COMMANDS: &[&[Defined]] = &[SORTS];

static SORTS: &[Defined] = &[
    Defined::new(
        "sort",
        Group::Generic,
        at_least!(|ctx, [key], options| run(ctx, key, options, Access::Any)),
    )
    .weighs(Weight::All)
    .flags(Flags::WRITE.with(Flags::DENYOOM))
    .categories(CATEGORIES)
    .keys(&[SOURCE, LOOKED_UP, DESTINATION])
    .locks(Scope::OfCall(scope))
    .since("1.0.0", COMPLEXITY)
    .doc(
        "key [BY pattern] [LIMIT offset count] [GET pattern [GET pattern ...]] [ASC | \
                 DESC] [ALPHA] [STORE destination]",
        "Sorts the elements in a list, a set, or a sorted set, optionally storing the \
                 result.",
    )
    .example(
        r#"
            > RPUSH sizes 10 9 100
            (integer) 3
            > SORT sizes
            1) "9"
            2) "10"
            3) "100"
            > SORT sizes DESC LIMIT 0 2
            1) "100"
            2) "10"
            > MSET price:10 3.5 price:9 8 price:100 1
            OK
            > SORT sizes BY price:* GET # GET price:* STORE cheapest
            (integer) 6
            > LRANGE cheapest 0 1
            1) "100"
            2) "1"
            > SORT names
            (empty array)
            > SADD names Grace Ada
            (integer) 2
            > SORT names ALPHA
            1) "Ada"
            2) "Grace"
            "#,
    ),
    Defined::new(
        "sort_ro",
        Group::Generic,
        at_least!(|ctx, [key], options| run(ctx, key, options, Access::ReadOnly)),
    )
    .weighs(Weight::All)
    .flags(Flags::READONLY)
    .categories(CATEGORIES)
    .keys(&[SOURCE, LOOKED_UP])
    .locks(Scope::OfCall(scope))
    .since("7.0.0", COMPLEXITY)
    .doc(
        "key [BY pattern] [LIMIT offset count] [GET pattern [GET pattern ...]] [ASC | \
                 DESC] [ALPHA]",
        "Returns the sorted elements of a list, a set, or a sorted set.",
    )
    .example(
        r#"
            > RPUSH sizes 10 9 100
            (integer) 3
            > SORT_RO sizes DESC
            1) "100"
            2) "10"
            3) "9"
            > SORT_RO sizes BY nosort GET #
            1) "10"
            2) "9"
            3) "100"
            "#,
    ),
];

/// Returns all shards if other keys than those named are read.
fn scope(arguments: Rest<'_>) -> Scope {
    match SortOptions::parse(Options::of(arguments.from(1)), true) {
        Ok(options) if options.looks_up() => Scope::AllInTurns,
        _ => Scope::InTurns,
    }
}

/// Access of a command.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    Any,
    ReadOnly,
}

fn run(ctx: &mut Context<'_, '_>, key: &[u8], options: Rest<'_>, access: Access) -> Done {
    let options = SortOptions::parse(Options::of(options), access == Access::Any)?;
    check_rights(ctx, &options)?;
    let source = ctx.kernel.keyspace.key(key);
    let destination = options.store.map(|key| ctx.kernel.keyspace.key(key));
    if let Some(destination) = destination {
        check_len(destination)?;
    }
    if options.looks_up() {
        return run_with_lookups(ctx, source, destination, &options);
    }
    let limits = ctx.kernel.keyspace.limits();
    let sorted = |values: &[Option<Value<'_>>]| {
        let elements = load(values.first().and_then(Option::as_ref), &options)?;
        Sorted::make(elements, &options, &mut Lookup::of_nothing())
    };
    let Some(destination) = destination else {
        return ctx.read(&[source], |values, reply| {
            sorted(values)?.reply(reply);
            Ok(())
        });
    };
    let make = |values: &[Option<Value<'_>>]| Ok(sorted(values)?.list(&limits));
    ctx.compute(&[source], make, |ctx, list| store(ctx, destination, list))
}

/// Checks that only users who may read all keys use patterns that name keys.
fn check_rights(ctx: &Context<'_, '_>, options: &SortOptions<'_>) -> Done {
    let Some(option) = options.names_keys else { return Ok(()) };
    if ctx.caller.rights().allow_all_keys(ctx.command, ctx.call.args(), KeyFlags::READ) {
        return Ok(());
    }
    let text = format!("ERR {option} option of SORT denied due to insufficient ACL permissions.");
    Err(CommandError::text(text))
}

/// Runs a call with BY or GET patterns that name keys.
fn run_with_lookups(
    ctx: &mut Context<'_, '_>,
    source: Key<'_>,
    destination: Option<Key<'_>>,
    options: &SortOptions<'_>,
) -> Done {
    let limits = ctx.kernel.keyspace.limits();
    let (db, now_ms) = (ctx.caller.db, ctx.now_ms);
    let load = |value: Option<&Value<'_>>| load(value, options);
    let sorted = |elements, guard: &mut Guard<'_, '_>| {
        Sorted::make(elements, options, &mut Lookup::new(guard, db, now_ms))
    };
    let Some(destination) = destination else {
        return ctx.compute_with_lookups(source, Then::Reply, load, sorted, |ctx, sorted| {
            sorted.reply(&mut ctx.reply);
            Ok(())
        });
    };
    let make = |elements, guard: &mut Guard<'_, '_>| Ok(sorted(elements, guard)?.list(&limits));
    ctx.compute_with_lookups(source, Then::Store, load, make, |ctx, list| {
        store(ctx, destination, list)
    })
}

fn store(ctx: &mut Context<'_, '_>, destination: Key<'_>, list: List) -> Done {
    let len = list.len();
    let mut db = ctx.guard.db(ctx.caller.db, destination.hash(), ctx.now_ms);
    store_result(&mut db, destination, Collection::List(list), Event::SortStore)?;
    ctx.reply.count(len);
    Ok(())
}

/// Elements to sort, or those to reply with.
struct Elements {
    all: Vec<Vec<u8>>,
    /// True if they are in their final order and LIMIT is applied.
    is_final: bool,
}

/// Copies the elements of the source.
fn load(source: Option<&Value<'_>>, options: &SortOptions<'_>) -> Result<Elements, CommandError> {
    match source {
        None => Ok(Elements { all: Vec::new(), is_final: true }),
        Some(Value::Collection(collection)) => elements_of(collection, options),
        Some(_) => Err(CommandError::WRONG_TYPE),
    }
}

fn elements_of(
    collection: &BorrowGuard<'_, Collection>,
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
            let range = options.range(set.live_len());
            set.iter().skip(range.start).take(range.len()).map(|item| item.to_vec()).collect()
        }
        Collection::List(list) => list.iter().map(|item| item.to_vec()).collect(),
        Collection::Set(set) => {
            let all = set.iter().map(|item| item.to_vec()).collect();
            return Ok(Elements { all, is_final: false });
        }
        Collection::SortedSet(set) => set.iter().map(|(member, _)| member.to_vec()).collect(),
        _ => return Err(CommandError::WRONG_TYPE),
    };
    Ok(Elements { all, is_final })
}

/// Result of SORT.
struct Sorted {
    elements: Vec<Vec<u8>>,
    /// With GET, the values that its patterns have found, instead of the elements. Those for the first element come
    /// first.
    found: Option<Vec<Option<Vec<u8>>>>,
}

impl Sorted {
    fn make(
        elements: Elements,
        options: &SortOptions<'_>,
        lookup: &mut Lookup<'_, '_, '_>,
    ) -> Result<Self, CommandError> {
        let elements = sort(elements, options, lookup)?;
        let found = match options.get.is_empty() {
            true => None,
            false => Some(lookup.find_all(&options.get, &elements)?),
        };
        Ok(Self { elements, found })
    }

    fn reply(&self, reply: &mut Reply<'_>) {
        let Some(found) = &self.found else { return reply.bulks(&self.elements) };
        reply.array(found.len());
        for value in found {
            match value {
                Some(value) => reply.bulk(value),
                None => reply.null(),
            }
        }
    }

    /// Creates the list for STORE. A value that GET does not find is an empty string there.
    fn list(&self, limits: &Limits) -> List {
        let mut list = List::new();
        match &self.found {
            None => self.elements.iter().for_each(|element| list.push_back(element, limits.list)),
            Some(found) => {
                let values = found.iter().map(|value| value.as_deref().unwrap_or_default());
                values.for_each(|value| list.push_back(value, limits.list));
            }
        }
        list
    }
}
