//! Commands are what their specs say: number of arguments, keys, whether they change anything.

use tierce_wire::resp::{Args, Proto};

use super::bench::Bench;
use super::calls::Calls;
use crate::command::{
    Argument, ArgumentKind, Command, Flags, Group, KeyFlags, KeySpec, Scope, Spec, Table,
};
use crate::commands;
use crate::error::CommandError;
use crate::execute::Context;

/// Calls of each kind that are made of a command.
const CALLS: usize = 30;

/// The same, of a command whose keys are found by looking for words.
const CALLS_WITH_WORDS: usize = 1000;

/// Calls of a command that writes, until one has changed something.
const CALLS_MAX: usize = 1500;

/// Commands that are not called at random, for they end something or wait for the operator's threads.
const NOT_CALLED: &[&str] = &["shutdown", "save", "bgsave", "backup"];

/// Commands that change something and do not say so, as in Redis: PFCOUNT writes down what it has counted.
const READS_AND_WRITES: &[&str] = &["pfcount", "debug"];

/// Commands whose keys are no keys: KEYSLOT computes with the name alone.
const NAMES_NO_KEY: &[&str] = &["cluster|keyslot"];

/// What is wrong with a command.
fn faults_of(command: &Command) -> Vec<String> {
    let mut faults = faults_of_spec(command);
    if command.spec.subcommands.is_empty() && !NOT_CALLED.contains(&command.spec.name) {
        faults.extend(faults_in_calls(command));
    }
    faults
}

/// What contradicts itself in what is declared.
fn faults_of_spec(command: &Command) -> Vec<String> {
    let (spec, mut faults) = (command.spec, Vec::new());
    let arguments = Argument::parse(spec.syntax);
    let words = command.full_name.split('|').count();
    let least = words + least_of(&arguments);
    if usize::from(spec.arity.unsigned_abs()) != least && spec.subcommands.is_empty() {
        faults.push(format!("the arity is {} and the syntax has {least} at least", spec.arity));
    }
    if spec.arity > 0 && has_choice_of_number(&arguments) {
        faults.push("the arity is fixed and the syntax is not".to_owned());
    }
    let names_no_key = NAMES_NO_KEY.contains(&command.full_name.as_str());
    if spec.keys.is_empty() == has_keys(&arguments) && !names_no_key {
        faults.push("keys are in the syntax or in the spec, and not in the other".to_owned());
    }
    if spec.flags.contains(Flags::WRITE) && spec.flags.contains(Flags::READONLY) {
        faults.push("it cannot write and only read".to_owned());
    }
    if spec.flags.contains(Flags::DENYOOM) && !spec.flags.contains(Flags::WRITE) {
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

/// What calls show: panics, and changes that are not declared. Builds with debug assertions panic as well
/// when a command opens a key, or walks through shards, that it has not declared.
fn faults_in_calls(command: &Command) -> Vec<String> {
    let mut faults = Vec::new();
    let mut bench = Bench::new(Proto::Resp2);
    let mut calls = Calls::new(1, bench.payload("list0"));
    let (begun, writes) = (bench.changes(), command.spec.flags.contains(Flags::WRITE));
    let has_words = command.spec.keys.iter().any(|keys| keys.search.goes_by_words());
    let calls_min = 3 * if has_words { CALLS_WITH_WORDS } else { CALLS };
    for number in 0..CALLS_MAX.max(calls_min) {
        if number >= calls_min && (!writes || bench.changes() != begun) {
            break;
        }
        let call = match number % 3 {
            0 => calls.fitting(command),
            1 => calls.least(command),
            _ => calls.any(command),
        };
        if !command.spec.accepts(call.len()) || is_slow(&call) {
            continue;
        }
        let before = bench.changes();
        let ran = bench.try_one(command, &call);
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
    }
    if writes && bench.changes() == begun {
        faults.push("it is declared to write, and no call has changed anything".to_owned());
    }
    faults
}

/// Calls that take long by intention.
fn is_slow(call: &[Vec<u8>]) -> bool {
    let is = |at: usize, word: &str| {
        call.get(at).is_some_and(|arg| arg.eq_ignore_ascii_case(word.as_bytes()))
    };
    is(0, "debug")
        && ["sleep", "reload", "populate", "set-active-expire"].iter().any(|sub| is(1, sub))
}

/// The smallest number of arguments that a syntax allows.
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

#[test]
fn every_command_is_what_it_declares() {
    let table = commands::table();
    let faults: Vec<String> = table
        .all()
        .flat_map(|command| {
            let faults = faults_of(command);
            faults.into_iter().map(|fault| format!("{}: {fault}", command.full_name))
        })
        .collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// A body that takes an argument for granted, writes, and opens a key.
fn set_third(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let (mut db, key, reply) = ctx.open(args.at(1));
    db.set(key, args.at(2), tierce_keyspace::Expiry::Never)?;
    reply.ok();
    Ok(())
}

const fn planted(arity: i16, flags: Flags) -> Spec {
    Spec::new("planted", arity, Group::String, set_third).flags(flags)
}

/// A writing command that says it reads, without keys, of any number of arguments.
static WRONG: Spec = planted(-1, Flags::READONLY).doc("1.0.0", "O(1)", "key value", "Is wrong.");
static PANICS: Spec = planted(-1, Flags::WRITE).keys(&[KeySpec::at(1, KeyFlags::OVERWRITE)]).doc(
    "1.0.0",
    "O(1)",
    "[key]",
    "Is wrong.",
);
static WRITES: Spec = planted(3, Flags::READONLY).keys(&[KeySpec::at(1, KeyFlags::READ)]).doc(
    "1.0.0",
    "O(1)",
    "key value",
    "Is wrong.",
);
static OPENS: Spec = planted(3, Flags::WRITE).keys(&[KeySpec::at(2, KeyFlags::OVERWRITE)]).doc(
    "1.0.0",
    "O(1)",
    "value key",
    "Is wrong.",
);
static LOCKS_NOTHING: Spec = planted(3, Flags::WRITE)
    .keys(&[KeySpec::at(1, KeyFlags::OVERWRITE)])
    .locks(Scope::Nothing)
    .doc("1.0.0", "O(1)", "key value", "Is wrong.");
static RIGHT: Spec = planted(3, Flags::WRITE.with(Flags::DENYOOM))
    .keys(&[KeySpec::at(1, KeyFlags::OVERWRITE)])
    .doc("1.0.0", "O(1)", "key value", "Is right.");

#[test]
fn what_a_command_declares_wrongly_is_found() {
    // Looked for in builds with debug assertions only.
    const NOT_DECLARED: &[&str] =
        if cfg!(debug_assertions) { &["a key that the command has not declared"] } else { &[] };
    for (spec, expected) in [
        (&WRONG, &["the arity is -1 and the syntax has 3", "keys are in the syntax", "panics"][..]),
        (&PANICS, &["panics"]),
        (&WRITES, &["is not declared to write"]),
        (&OPENS, NOT_DECLARED),
        (&LOCKS_NOTHING, NOT_DECLARED),
        (&RIGHT, &[]),
    ] {
        let table = Table::new([spec]);
        let faults = faults_of(&table.commands()[0]).join("\n");
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
                let words = ["Locker", ".locker()", "lock_many", "lock_all"];
                let used = words.iter().filter(|word| text.contains(**word));
                found.extend(used.map(|word| format!("{}: {word}", path.display())));
            }
        }
    }
    let mut found = Vec::new();
    look(&std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/commands"), &mut found);
    assert!(found.is_empty(), "{found:?}");
}
