//! Commands match their specs: number of arguments, keys, and if they change anything.

use tierce_collections::Set;
use tierce_harness::effort;
use tierce_keyspace::{DbIndex, Error, Event, Missing};
use tierce_wire::resp::{Proto, Rest};

use super::bench::{Bench, NOW_MS, owned};
use super::calls::{Call, Calls};
use crate::command::{
    Access, Argument, ArgumentKind, Command, Flags, Group, KeyFlags, KeySearch, KeySpec, Scope,
    Table,
};
use crate::commands;
use crate::pipeline::{Body, Context, Defined, Done, exactly, many};

/// Calls of each kind for a command.
const CALLS: usize = 12;

/// Calls of each kind for a command whose keys are found by searching for words.
const CALLS_WITH_WORDS: usize = 300;

/// Maximum calls of a writing command until one has changed something.
const CALLS_MAX: usize = 1500;

/// Commands that are not called at random, because they end something or wait for the operator's threads.
const NOT_CALLED: &[&str] = &["shutdown", "save", "bgsave", "backup"];

/// Commands that change something without declaring it, as in Redis: PFCOUNT caches its count, and programs do
/// anything.
const READS_AND_WRITES: &[&str] = &["pfcount", "debug", "eval", "evalsha", "evalname", "fcall"];

/// Commands that need memory for the client, not for data.
const GROWS_THE_CLIENT: &[&str] = &["himport|prepare"];

/// Commands that change keys declared as read, as in Redis: delivering entries to a group does not change them.
const CHANGES_WHAT_IT_READS: &[&str] = &["xreadgroup"];

/// Commands whose keys are no keys: KEYSLOT only hashes the name.
const NAMES_NO_KEY: &[&str] = &["cluster|keyslot"];

/// Returns the faults of a command.
fn faults_of(table: &Table, command: &Command) -> Vec<String> {
    let mut faults = faults_of_spec(command);
    if !command.spec.is_container && !NOT_CALLED.contains(&command.spec.name) {
        faults.extend(faults_in_calls(table, command, Proto::Resp2));
        if faults.is_empty() {
            faults.extend(faults_in_calls(table, command, Proto::Resp3));
        }
    }
    faults
}

/// Returns contradictions in the declaration.
fn faults_of_spec(command: &Command) -> Vec<String> {
    let (spec, mut faults) = (command.spec, Vec::new());
    let arguments = Argument::parse(spec.syntax);
    let words = command.full_name.split('|').count();
    let least = words + least_of(&arguments);
    if usize::from(spec.arity.unsigned_abs()) != least && !spec.is_container {
        faults.push(format!("the arity is {} and the syntax has {least} at least", spec.arity));
    }
    if spec.arity > 0 && has_choice_of_number(&arguments) {
        faults.push("the arity is fixed and the syntax is not".to_owned());
    }
    let heads = leading_kinds(&arguments);
    for (at, kind) in (words..).zip(&heads).filter(|_| !NAMES_NO_KEY.contains(&&*command.full_name))
    {
        if (*kind == "key") != spec.keys.iter().any(|keys| declares(*keys, at)) {
            faults
                .push(format!("argument {at} is a key in the syntax or in the spec, not in both"));
        }
    }
    let names_no_key = NAMES_NO_KEY.contains(&command.full_name.as_str());
    if spec.keys.is_empty() == has_keys(&arguments) && !names_no_key {
        faults.push("keys are in the syntax or in the spec, and not in the other".to_owned());
    }
    if spec.flags.contains(Flags::WRITE) && spec.flags.contains(Flags::READONLY) {
        faults.push("it cannot write and only read".to_owned());
    }
    let needs_memory = spec.flags.contains(Flags::DENYOOM);
    if needs_memory
        && !spec.flags.contains(Flags::WRITE)
        && !GROWS_THE_CLIENT.contains(&&*command.full_name)
    {
        faults.push("what needs memory writes".to_owned());
    }
    let changes_key = |keys: &KeySpec| keys.flags.0.first() != Some(&"RO");
    let reads_and_writes = READS_AND_WRITES.contains(&spec.name);
    if spec.keys.iter().any(changes_key)
        && spec.flags.contains(Flags::READONLY)
        && !reads_and_writes
    {
        faults.push("a key is declared to change, and the command only reads".to_owned());
    }
    faults
}

/// Returns faults found by calls: panics, and undeclared changes. Builds with debug assertions also panic when a
/// command opens an undeclared key, or visits undeclared shards.
fn faults_in_calls(table: &Table, command: &Command, proto: Proto) -> Vec<String> {
    let mut faults = Vec::new();
    let mut bench = Bench::new(proto);
    let mut calls = Calls::new(1, bench.payload("list0"));
    let (begun, writes) = (bench.changes(), command.spec.flags.contains(Flags::WRITE));
    let has_words = command.spec.keys.iter().any(|keys| keys.search.goes_by_words());
    let calls_min = 3 * effort(if has_words { CALLS_WITH_WORDS } else { CALLS });
    let words = command.full_name.split('|').count();
    for number in 0..CALLS_MAX.max(calls_min) {
        if number >= calls_min && (!writes || bench.changes() != begun) {
            break;
        }
        let call = match number % 3 {
            0 => calls.fitting(command),
            1 => calls.least(command),
            _ => calls.any(command),
        };
        // Without arguments every call is the same, and some of these reply much or compute long.
        let is_repeated = number >= 3 && call.len() == words;
        if !command.spec.accepts(call.len()) || is_slow(&call) || is_repeated {
            continue;
        }
        let read_only = read_only_keys(command, &call);
        let before = bench.changes();
        let payloads: Vec<_> = read_only.iter().map(|key| bench.dump(key)).collect();
        let ran = bench.try_one(table, command, &call);
        let line: String = call.iter().map(|word| format!("{} ", word.escape_ascii())).collect();
        if let Err(panic) = ran {
            faults.push(format!("{line}panics: {panic}"));
            return faults;
        }
        let may_change = writes || READS_AND_WRITES.contains(&command.spec.name);
        if !may_change && bench.changes() != before {
            faults
                .push(format!("{line}changes something, and the command is not declared to write"));
            return faults;
        }
        let keeps = !CHANGES_WHAT_IT_READS.contains(&command.spec.name);
        if keeps && read_only.iter().map(|key| bench.dump(key)).ne(payloads) {
            faults.push(format!("{line}changes a key that it is declared to read only"));
            return faults;
        }
    }
    if writes && bench.changes() == begun {
        faults.push("it is declared to write, and no call has changed anything".to_owned());
    }
    faults
}

/// Returns the keys of a call that are only declared as read.
fn read_only_keys(command: &Command, call: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let owned = owned(call);
    let args = owned.as_args();
    let declared = |reads: bool| {
        let is_of_kind = move |keys: &&KeySpec| {
            (keys.flags.of_call(command.spec.name, args).0.first() == Some(&"RO")) == reads
        };
        let specs = command.spec.keys.iter().filter(is_of_kind);
        let indexes: Vec<usize> = specs.flat_map(|keys| keys.indexes(args)).collect();
        indexes.into_iter().map(|index| call[index].clone()).collect::<Vec<_>>()
    };
    let changed = declared(false);
    declared(true).into_iter().filter(|key| !changed.contains(key)).collect()
}

/// Returns true for calls that take long by intention.
fn is_slow(call: &[Vec<u8>]) -> bool {
    let is = |at: usize, word: &str| {
        call.get(at).is_some_and(|arg| arg.eq_ignore_ascii_case(word.as_bytes()))
    };
    is(0, "debug")
        && ["sleep", "reload", "populate", "set-active-expire"].iter().any(|sub| is(1, sub))
}

/// Returns the smallest number of arguments that a syntax allows.
fn least_of(arguments: &[Argument]) -> usize {
    let of_one = |argument: &Argument| {
        let own = match &argument.kind {
            ArgumentKind::PureToken => 0,
            ArgumentKind::Value(_) => 1,
            ArgumentKind::Block(parts) => least_of(parts),
            ArgumentKind::OneOf(choices) => choices
                .iter()
                .map(|choice| least_of(std::slice::from_ref(choice)))
                .min()
                .unwrap_or(0),
        };
        own + usize::from(argument.token.is_some())
    };
    arguments.iter().filter(|argument| !argument.optional).map(of_one).sum()
}

/// Returns the kinds of the arguments at fixed positions in every call: those before the first optional one, and the
/// first round of a repetition.
fn leading_kinds(arguments: &[Argument]) -> Vec<&'static str> {
    let mut kinds = Vec::new();
    for argument in arguments {
        if argument.optional {
            break;
        }
        kinds.extend(argument.token.is_some().then_some("token"));
        match &argument.kind {
            ArgumentKind::PureToken => {}
            ArgumentKind::Value(kind) => kinds.push(kind),
            ArgumentKind::Block(parts) => kinds.extend(leading_kinds(parts)),
            ArgumentKind::OneOf(choices) if least_of(choices) == choices.len() => {
                kinds.push("token");
            }
            ArgumentKind::OneOf(_) => break,
        }
        if argument.multiple {
            break;
        }
    }
    kinds
}

/// Returns true if the argument at this index is a key in every call.
fn declares(keys: KeySpec, at: usize) -> bool {
    let (first, step) = (keys.first as usize, keys.step as usize);
    match keys.search {
        KeySearch::Index => {
            let is_up_to_last = keys.last < 0 || at <= keys.last as usize;
            at >= first && is_up_to_last && (at - first).is_multiple_of(step)
        }
        KeySearch::Count => at == first + 1,
        _ => false,
    }
}

fn has_choice_of_number(arguments: &[Argument]) -> bool {
    arguments.iter().any(|argument| {
        let inside = match &argument.kind {
            ArgumentKind::Block(parts) => has_choice_of_number(parts),
            ArgumentKind::OneOf(choices) => {
                let lens = choices.iter().map(|choice| least_of(std::slice::from_ref(choice)));
                has_choice_of_number(choices) || lens.clone().min() != lens.max()
            }
            _ => false,
        };
        argument.optional || argument.multiple || inside
    })
}

fn has_keys(arguments: &[Argument]) -> bool {
    arguments.iter().any(|argument| match &argument.kind {
        ArgumentKind::Value(kind) => *kind == "key",
        ArgumentKind::Block(parts) | ArgumentKind::OneOf(parts) => has_keys(parts),
        ArgumentKind::PureToken => false,
    })
}

/// PFCOUNT caches its count in existing bytes, so it does not wait for memory.
#[test]
fn only_programs_may_take_memory_without_saying_so() {
    let table = commands::table();
    let may_write = table.all().filter(|command| Access::of(command.spec).may_write);
    let (programs, others): (Vec<_>, Vec<_>) =
        may_write.partition(|command| Access::of(command.spec).may_grow);
    let names = |of: Vec<&Command>| of.iter().map(|it| it.spec.name).collect::<Vec<_>>();
    assert_eq!(names(others), ["pfcount"]);
    assert!(names(programs).contains(&"eval"));
}

#[test]
fn every_command_is_what_it_declares() {
    let table = commands::table();
    let faults: Vec<String> = table
        .all()
        .flat_map(|command| {
            let faults = faults_of(&table, command);
            faults.into_iter().map(|fault| format!("{}: {fault}", command.full_name))
        })
        .collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

fn set(ctx: &mut Context<'_, '_>, [key, value]: [&[u8]; 2]) -> Done {
    set_silently(ctx, [key, value])?;
    let (db, key, _) = ctx.open(key);
    db.event(Event::Set, key);
    Ok(())
}

/// A body that does not report its change.
fn set_silently(ctx: &mut Context<'_, '_>, [key, value]: [&[u8]; 2]) -> Done {
    let (mut db, key, reply) = ctx.open(key);
    db.set(key, value, tierce_keyspace::Expiry::Never)?;
    reply.ok();
    Ok(())
}

fn set_second(ctx: &mut Context<'_, '_>, [value, key]: [&[u8]; 2]) -> Done {
    set(ctx, [key, value])
}

fn move_string(ctx: &mut Context<'_, '_>, [from, to]: [&[u8]; 2]) -> Done {
    let (mut db, key, _) = ctx.open(from);
    if db.remove(key) {
        db.event(Event::Del, key);
    }
    set(ctx, [to, b"moved"])
}

/// A body that takes any number of arguments. Missing ones are empty, so it cannot panic.
fn set_any(ctx: &mut Context<'_, '_>, arguments: Rest<'_>) -> Done {
    set(ctx, [0, 1].map(|at| arguments.get(at).unwrap_or_default()))
}

/// A body that relies on an argument, with an `expect`.
fn set_granted(ctx: &mut Context<'_, '_>, arguments: Rest<'_>) -> Done {
    set(ctx, [0, 1].map(|at| arguments.get(at).expect("an argument")))
}

const fn planted(body: Body, flags: Flags) -> Defined {
    Defined::new("planted", Group::String, body).flags(flags)
}

/// A writing command with any number of arguments, declared as reading and without keys.
static WRONG: Defined =
    planted(many!(set_any), Flags::READONLY).since("1.0.0", "O(1)").doc("key value", "Is wrong.");
static PANICS: Defined = planted(many!(set_granted), Flags::WRITE)
    .keys(&[KeySpec::at(1, KeyFlags::OVERWRITE)])
    .since("1.0.0", "O(1)")
    .doc("[key]", "Is wrong.");
static WRITES: Defined = planted(exactly!(set), Flags::READONLY)
    .keys(&[KeySpec::at(1, KeyFlags::READ)])
    .since("1.0.0", "O(1)")
    .doc("key value", "Is wrong.");
static OPENS: Defined = planted(exactly!(set), Flags::WRITE)
    .keys(&[KeySpec::at(2, KeyFlags::OVERWRITE)])
    .since("1.0.0", "O(1)")
    .doc("value key", "Is wrong.");
static LOCKS_NOTHING: Defined = planted(exactly!(set), Flags::WRITE)
    .keys(&[KeySpec::at(1, KeyFlags::OVERWRITE)])
    .locks(Scope::Nothing)
    .since("1.0.0", "O(1)")
    .doc("key value", "Is wrong.");
/// Its syntax and its keys disagree about the order of arguments.
static MISNAMED: Defined = planted(exactly!(set_second), Flags::WRITE)
    .keys(&[KeySpec::at(2, KeyFlags::OVERWRITE)])
    .since("1.0.0", "O(1)")
    .doc("key value", "Is wrong.");
/// Empties the key that it declares as read.
static CHANGES_SOURCE: Defined = planted(exactly!(move_string), Flags::WRITE)
    .keys(&[KeySpec::at(1, KeyFlags::READ), KeySpec::at(2, KeyFlags::OVERWRITE)])
    .since("1.0.0", "O(1)")
    .doc("source destination", "Is wrong.");
static SILENT: Defined = planted(exactly!(set_silently), Flags::WRITE)
    .keys(&[KeySpec::at(1, KeyFlags::OVERWRITE)])
    .since("1.0.0", "O(1)")
    .doc("key value", "Is wrong.");
static RIGHT: Defined = planted(exactly!(set), Flags::WRITE.with(Flags::DENYOOM))
    .keys(&[KeySpec::at(1, KeyFlags::OVERWRITE)])
    .since("1.0.0", "O(1)")
    .doc("key value", "Is right.");

#[test]
fn what_a_command_declares_wrongly_is_found() {
    // Found only in builds with debug assertions.
    const NOT_DECLARED: &[&str] =
        if cfg!(debug_assertions) { &["a key that the command has not declared"] } else { &[] };
    const UNNAMED: &[&str] = if cfg!(debug_assertions) { &["without an event"] } else { &[] };
    const CHANGES: &str = if cfg!(debug_assertions) {
        "a key that the command has not declared"
    } else {
        "is not declared to write"
    };
    for (spec, expected) in [
        (
            &WRONG,
            &[
                "the arity is -1 and the syntax has 3",
                "argument 1 is a key",
                "keys are in the syntax",
                CHANGES,
            ][..],
        ),
        (&PANICS, &["panics"]),
        (&WRITES, &["is not declared to write"]),
        (&OPENS, NOT_DECLARED),
        (&LOCKS_NOTHING, NOT_DECLARED),
        (&MISNAMED, &["argument 1 is a key", "argument 2 is a key"]),
        (&CHANGES_SOURCE, &["declared to read only"]),
        (&SILENT, UNNAMED),
        (&RIGHT, &[]),
    ] {
        let table = Defined::table([spec]);
        let faults = faults_of(&table, &table.commands()[0]).join("\n");
        assert_eq!(faults.lines().count(), expected.len(), "{faults}");
        for text in expected {
            assert!(faults.contains(text), "{text}: {faults}");
        }
    }
}

#[test]
fn no_command_reaches_for_a_lock() {
    fn look(dir: &std::path::Path, found: &mut Vec<String>) {
        for entry in std::fs::read_dir(dir).expect("the sources") {
            let path = entry.expect("a name").path();
            if path.is_dir() {
                look(&path, found);
            } else {
                let text = std::fs::read_to_string(&path).expect("a source");
                let words = ["ShardLocks", ".locks()", "lock_many", "lock_all"];
                let used = words.iter().filter(|word| text.contains(**word));
                found.extend(used.map(|word| format!("{}: {word}", path.display())));
            }
        }
    }
    let mut found = Vec::new();
    look(&std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/commands"), &mut found);
    assert!(found.is_empty(), "{found:?}");
}

/// A replica keeps it until its primary removes it.
#[test]
fn a_set_whose_members_have_all_expired_has_no_dump() {
    let bench = &mut Bench::new(Proto::Resp2);
    let words = |line: &str| line.split(' ').map(|word| word.as_bytes().to_vec()).collect::<Call>();
    bench.succeed(&words("SADD set a b"));
    bench.kernel.keyspace.set_following(true);
    for (member, is_present) in [("a", true), ("b", false)] {
        let mut locks = bench.kernel.keyspace.locks();
        let key = bench.kernel.keyspace.key(b"set");
        let mut db = locks.db(DbIndex::ZERO, key.hash(), NOW_MS);
        let done = db.edit::<Set, _, Error>(key, Missing::Skip, |set| {
            Ok(set.set_deadline(member.as_bytes(), Some(NOW_MS - 1)))
        });
        assert!(matches!(done, Ok(Some(true))), "{done:?}");
        drop(locks);
        assert_eq!(bench.dump(b"set").as_bytes().is_some(), is_present);
    }
}
