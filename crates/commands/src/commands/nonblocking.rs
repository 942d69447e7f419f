//! NBLPOP and its relatives: the commands without the NB, or with B instead. Replies may come later while the
//! connection goes on. See `docs/nonblocking.md` and [`blocking`].

use tierce_wire::number;
use tierce_wire::resp::{OwnedArgs, Rest};

use crate::command::{Flags, Group, KeyFlags, KeySpec, Scope};
use crate::error::CommandError;
use crate::pipeline::blocking;
use crate::pipeline::{Context, Defined, Done, Mode, exactly, many, no_arguments};

/// Commands with the commands that they run.
const BASES: [(&str, &str); 8] = [
    ("nbkeys", "keys"),
    ("nblpop", "blpop"),
    ("nbrpop", "brpop"),
    ("nblmpop", "blmpop"),
    ("nblmove", "blmove"),
    ("nbzpopmin", "bzpopmin"),
    ("nbzpopmax", "bzpopmax"),
    ("nbxread", "xread"),
];

const POPPING: Flags = Flags::WRITE.with(Flags::NONBLOCKING);
const POP_KEYS: &[KeySpec] = &[KeySpec::all(1, KeyFlags::READ_REMOVE).but_last().but_last()];
const SINCE: &str = "Tierce 0.1.0";

pub(super) const COMMANDS: &[&[Defined]] = &[SPECS];

static SPECS: &[Defined] = &[
    Defined::new("nbkeys", Group::Generic, exactly!(nbkeys))
        .flags(Flags::READONLY.with(Flags::NONBLOCKING))
        .categories(&["dangerous"])
        .tips(&["request_policy:all_shards", "nondeterministic_output_order"])
        .locks(Scope::Stepwise)
        .since(SINCE, "O(N) with N being the number of keys in the database")
        .doc(
            "pattern redirect",
            "Sends all key names that match a pattern to a client later, while the connection goes on.",
        )
        .example(
            r#"
            > MSET user:1 Ada order:1 open
            OK
            > NBKEYS user:* 1000000
            (error) ERR The client ID you want redirect to does not exist
            > MULTI
            OK
            > NBKEYS user:* 0
            QUEUED
            > EXEC
            1) 1) "user:1"
            "#,
        ),
    Defined::new("nblpop", Group::List, many!(nbpop))
        .flags(POPPING)
        .keys(POP_KEYS)
        .since(SINCE, "O(N) where N is the number of provided keys.")
        .doc(
            "key [key ...] timeout redirect",
            "Removes and returns the first element of a list, now or when there is one, while the \
             connection goes on.",
        )
        .example(
            r#"
            > RPUSH low job-1 job-2
            (integer) 2
            > NBLPOP high low 10 0
            1) "low"
            2) "job-1"
            > NBLPOP high 10 1000000
            (error) ERR The client ID you want redirect to does not exist
            "#,
        ),
    Defined::new("nbrpop", Group::List, many!(nbpop))
        .flags(POPPING)
        .keys(POP_KEYS)
        .since(SINCE, "O(N) where N is the number of provided keys.")
        .doc(
            "key [key ...] timeout redirect",
            "Removes and returns the last element of a list, now or when there is one, while the \
             connection goes on.",
        )
        .example(
            r#"
            > RPUSH low job-1 job-2
            (integer) 2
            > NBRPOP high low 10 0
            1) "low"
            2) "job-2"
            "#,
        ),
    Defined::new("nblmpop", Group::List, many!(nblmpop))
        .flags(POPPING)
        .keys(&[KeySpec::counted(2, KeyFlags::READ_REMOVE)])
        .since(SINCE, "O(N+M) where N is the number of keys and M is the number of elements returned")
        .doc(
            "timeout numkeys key [key ...] <LEFT | RIGHT> [COUNT count] redirect",
            "Removes and returns elements of the first list that is not empty, now or when there is \
             one, while the connection goes on.",
        )
        .example(
            r#"
            > RPUSH low job-1 job-2 job-3
            (integer) 3
            > NBLMPOP 10 2 high low LEFT COUNT 2 0
            1) "low"
            2) 1) "job-1"
               2) "job-2"
            "#,
        ),
    Defined::new("nblmove", Group::List, exactly!(nblmove))
        .flags(POPPING.with(Flags::DENYOOM))
        .keys(&[
            KeySpec::at(1, KeyFlags::READ_REMOVE),
            KeySpec::at(2, KeyFlags(&["RW", "insert"])),
        ])
        .since(SINCE, "O(1)")
        .doc(
            "source destination <LEFT | RIGHT> <LEFT | RIGHT> timeout redirect",
            "Moves an element from one list to another and returns it, now or when there is one, \
             while the connection goes on.",
        )
        .example(
            r#"
            > RPUSH todo write test
            (integer) 2
            > NBLMOVE todo doing LEFT RIGHT 10 0
            "write"
            > LRANGE doing 0 -1
            1) "write"
            "#,
        ),
    Defined::new("nbzpopmin", Group::SortedSet, many!(nbpop))
        .flags(POPPING.with(Flags::FAST))
        .keys(POP_KEYS)
        .since(SINCE, "O(log(N)) with N being the number of elements in the sorted set.")
        .doc(
            "key [key ...] timeout redirect",
            "Removes and returns the member with the lowest score, now or when there is one, while \
             the connection goes on.",
        )
        .example(
            r#"
            > ZADD low 1 job-1 2 job-2
            (integer) 2
            > NBZPOPMIN high low 10 0
            1) "low"
            2) "job-1"
            3) "1"
            "#,
        ),
    Defined::new("nbzpopmax", Group::SortedSet, many!(nbpop))
        .flags(POPPING.with(Flags::FAST))
        .keys(POP_KEYS)
        .since(SINCE, "O(log(N)) with N being the number of elements in the sorted set.")
        .doc(
            "key [key ...] timeout redirect",
            "Removes and returns the member with the highest score, now or when there is one, while \
             the connection goes on.",
        )
        .example(
            r#"
            > ZADD low 1 job-1 2 job-2
            (integer) 2
            > NBZPOPMAX high low 10 0
            1) "low"
            2) "job-2"
            3) "2"
            "#,
        ),
    Defined::new("nbxread", Group::Stream, many!(nbxread))
        .flags(Flags::READONLY.with(Flags::NONBLOCKING))
        .keys(&[KeySpec::first_half_behind(
            "STREAMS",
            &[("COUNT", 1), ("BLOCK", 1)],
            1,
            KeyFlags::READ,
        )])
        .since(SINCE, "As XREAD; see there.")
        .doc(
            "[COUNT count] [BLOCK milliseconds] STREAMS key [key ...] id [id ...] redirect",
            "Returns entries of several streams with identities greater than those given, now or when \
             there are any, if asked to wait, while the connection goes on.",
        )
        .example(
            r#"
            > XADD events 1-1 type login
            "1-1"
            > NBXREAD COUNT 10 BLOCK 1000 STREAMS events 0 0
            1) 1) "events"
               2) 1) 1) "1-1"
                     2) 1) "type"
                        2) "login"
            "#,
        ),
    Defined::new("nbcancel", Group::Connection, many!(nbcancel))
        .since(SINCE, "O(N) where N is the number of results that are pending")
        .doc(
            "[number [number ...]]",
            "Ends NB* commands of the connection without their results: all, or those with these numbers. \
             Returns how many.",
        )
        .example(
            r#"
            > NBLPOP queue 0 0
            > NBLPOP other 0 0
            > NBCANCEL 7
            (integer) 0
            > NBCANCEL
            (integer) 2
            "#,
        ),
    Defined::new("nblist", Group::Connection, no_arguments!(nblist))
        .since(SINCE, "O(N) where N is the number of results that are pending")
        .doc(
            "",
            "Returns the NB* commands of the connection whose results are pending: number, name, and the id \
             of the client that gets the result.",
        )
        .example(
            r#"
            > NBLIST
            (empty array)
            > NBLPOP queue 0 0
            > NBLIST
            1) 1) (integer) ...
               2) "nblpop"
               3) (integer) ...
            > NBCANCEL
            (integer) 1
            "#,
        ),
];

fn nbkeys(ctx: &mut Context<'_, '_>, arguments: [&[u8]; 2]) -> Done {
    nonblocking(ctx, &arguments)
}

fn nbpop(ctx: &mut Context<'_, '_>, arguments: Rest<'_, 3>) -> Done {
    nonblocking(ctx, &arguments.iter().collect::<Vec<_>>())
}

fn nblmpop(ctx: &mut Context<'_, '_>, arguments: Rest<'_, 5>) -> Done {
    nonblocking(ctx, &arguments.iter().collect::<Vec<_>>())
}

fn nblmove(ctx: &mut Context<'_, '_>, arguments: [&[u8]; 6]) -> Done {
    nonblocking(ctx, &arguments)
}

fn nbxread(ctx: &mut Context<'_, '_>, arguments: Rest<'_, 4>) -> Done {
    nonblocking(ctx, &arguments.iter().collect::<Vec<_>>())
}

/// Runs the base command with all arguments but the last.
fn nonblocking(ctx: &mut Context<'_, '_>, arguments: &[&[u8]]) -> Done {
    let (kernel, name) = (ctx.kernel, ctx.command.spec.name);
    let base = BASES.iter().find(|(of, _)| *of == name).map_or(name, |(_, base)| base);
    let (Some((redirect, arguments)), Some(base)) =
        (arguments.split_last(), kernel.commands.find_original(base.as_bytes()))
    else {
        return Err(CommandError::SYNTAX);
    };
    let to = match ctx.mode {
        Mode::Client => Some(blocking::listener(kernel, ctx.caller, redirect)?),
        // All replies come at once here, but the argument must be valid.
        Mode::Never | Mode::OfProgram | Mode::Long { to: None } => {
            blocking::listener(kernel, ctx.caller, redirect).map(|_| None)?
        }
        _ => None,
    };
    if base.spec.keys.is_empty() {
        // It visits all keys, so its result always comes later.
        ctx.scale().weigh(usize::MAX)?;
    }
    let mut call = OwnedArgs::new();
    let words = std::iter::once(base.spec.name.as_bytes()).chain(arguments.iter().copied());
    words.for_each(|word| call.push(word).expect("no longer than a call that came"));
    let mode = to.as_ref().map_or(ctx.mode, |to| Mode::NonBlocking { to, name });
    ctx.run_as(base, call.as_args(), mode)
}

fn nbcancel(ctx: &mut Context<'_, '_>, numbers: Rest<'_>) -> Done {
    let client = &ctx.caller.client;
    if numbers.is_empty() {
        let cancelled = blocking::cancel_all(ctx.kernel, client);
        ctx.reply.count(cancelled);
        return Ok(());
    }
    let numbers = numbers.iter().map(number::parse_u64);
    let numbers: Option<Vec<u64>> = numbers.collect();
    let numbers = numbers.ok_or(CommandError::NOT_AN_INTEGER)?;
    let find = |number: &u64| client.results.lock().get(*number).cloned();
    let found: Vec<_> = numbers.iter().filter_map(find).collect();
    let cancelled = found.iter().filter(|deferred| blocking::cancel(ctx.kernel, deferred)).count();
    ctx.reply.count(cancelled);
    Ok(())
}

fn nblist(ctx: &mut Context<'_, '_>) -> Done {
    let results = ctx.caller.client.results.lock();
    ctx.reply.array(results.sent().len());
    for deferred in results.sent() {
        ctx.reply.array(3);
        ctx.reply.int(deferred.number as i64);
        ctx.reply.bulk(deferred.command.as_bytes());
        ctx.reply.int(deferred.to.id as i64);
    }
    Ok(())
}
