//! EVAL, EVALSHA and their read-only variants.

use std::sync::Arc;

use tierce_lua::{Failure, Script, Sha1};
use tierce_wire::number;
use tierce_wire::resp::Rest;

use crate::command::{Flags, Group, KeyFlags, KeySpec, Scope};
use crate::error::CommandError;
use crate::pipeline::program::{Program, Workspace};
use crate::pipeline::{Context, Defined, Done, at_least};
use crate::scripting::{Keep, KnownScript};

const FLAGS_OF_ALL: Flags =
    Flags::NOSCRIPT.with(Flags::STALE).with(Flags::SKIP_MONITOR).with(Flags::PROGRAM);
pub(super) const FLAGS: Flags = FLAGS_OF_ALL.with(Flags::MAY_WRITE);
pub(super) const FLAGS_RO: Flags = FLAGS_OF_ALL.with(Flags::READONLY);

pub(super) const KEYS: KeySpec = KeySpec::counted(2, KeyFlags::READ_UPDATE);
pub(super) const KEYS_RO: KeySpec = KeySpec::counted(2, KeyFlags::READ);

pub(super) const ANY_WRITE: &str =
    "We cannot tell how the keys will be used so we assume the worst, RW and UPDATE";
pub(super) const ANY_READ: &str =
    "We cannot tell how the keys will be used so we assume the worst, RO and ACCESS";

const COMPLEXITY: &str = "Depends on the script that is executed.";
const NO_SCRIPT: CommandError = CommandError::new("NOSCRIPT No matching script. Please use EVAL.");

pub(super) static COMMANDS: &[Defined] = &[
    Defined::new("eval", Group::Scripting, at_least!(eval))
        .flags(FLAGS)
        .keys(&[KEYS.note(ANY_WRITE)])
        .locks(Scope::Program)
        .since("2.6.0", COMPLEXITY)
        .doc("script numkeys [key [key ...]] [arg [arg ...]]", "Runs a Lua script on the server.")
        .example(
            r#"
            > EVAL "return redis.call('incrby', KEYS[1], ARGV[1])" 1 visits 10
            (integer) 10
            > EVAL "return {KEYS[1], ARGV[1]}" 1 visits 10
            1) "visits"
            2) "10"
            "#,
        ),
    Defined::new("evalsha", Group::Scripting, at_least!(eval_sha))
        .flags(FLAGS)
        .keys(&[KEYS])
        .locks(Scope::Program)
        .since("2.6.0", COMPLEXITY)
        .doc(
            "sha1 numkeys [key [key ...]] [arg [arg ...]]",
            "Runs a Lua script that the server knows, by its SHA-1.",
        )
        .example(
            r#"
            > SCRIPT LOAD "return ARGV[1]"
            "098e0f0d1448c0a81dafe820f66d460eb09263da"
            > EVALSHA 098e0f0d1448c0a81dafe820f66d460eb09263da 0 hello
            "hello"
            > EVALSHA ffffffffffffffffffffffffffffffffffffffff 0
            (error) NOSCRIPT No matching script. Please use EVAL.
            "#,
        ),
    Defined::new("eval_ro", Group::Scripting, at_least!(eval))
        .flags(FLAGS_RO)
        .keys(&[KEYS_RO.note(ANY_READ)])
        .locks(Scope::Program)
        .since("7.0.0", COMPLEXITY)
        .doc(
            "script numkeys [key [key ...]] [arg [arg ...]]",
            "Runs a Lua script that may not write.",
        )
        .example(
            r#"
            > SET visits 10
            OK
            > EVAL_RO "return redis.call('get', KEYS[1])" 1 visits
            "10"
            "#,
        ),
    Defined::new("evalsha_ro", Group::Scripting, at_least!(eval_sha))
        .flags(FLAGS_RO)
        .keys(&[KEYS_RO])
        .locks(Scope::Program)
        .since("7.0.0", COMPLEXITY)
        .doc(
            "sha1 numkeys [key [key ...]] [arg [arg ...]]",
            "Runs a Lua script that the server knows, by its SHA-1, and that may not write.",
        )
        .example(
            r#"
            > SCRIPT LOAD "return ARGV[1]"
            "098e0f0d1448c0a81dafe820f66d460eb09263da"
            > EVALSHA_RO 098e0f0d1448c0a81dafe820f66d460eb09263da 0 hello
            "hello"
            "#,
        ),
];

fn eval(ctx: &mut Context<'_, '_>, [source, numkeys]: [&[u8]; 2], rest: Rest<'_>) -> Done {
    let words: Vec<&[u8]> = rest.iter().collect();
    let (keys, args) = split_keys(numkeys, &words)?;
    let script = match ctx.kernel.scripts.get(&tierce_lua::sha1(source)) {
        Some(script) => script,
        None => add_script(ctx, source, Keep::WhileUsed)?,
    };
    run_script(ctx, &script, keys, args)
}

fn eval_sha(ctx: &mut Context<'_, '_>, [sha, numkeys]: [&[u8]; 2], rest: Rest<'_>) -> Done {
    let sha = Sha1::from_hex(sha).ok_or(NO_SCRIPT)?;
    let words: Vec<&[u8]> = rest.iter().collect();
    let (keys, args) = split_keys(numkeys, &words)?;
    let script = ctx.kernel.scripts.get(&sha).ok_or(NO_SCRIPT)?;
    run_script(ctx, &script, keys, args)
}

/// Runs a known script.
pub(super) fn run_script(
    ctx: &mut Context<'_, '_>,
    known: &KnownScript,
    keys: &[&[u8]],
    args: &[&[u8]],
) -> Done {
    let KnownScript { script, history, .. } = known;
    ctx.run_program(&Program::of_script(script, history), keys, args)
}

/// Keys of a call, and its other arguments.
pub(super) type KeysAndArgs<'w, 'a> = (&'w [&'a [u8]], &'w [&'a [u8]]);

/// Splits the words of a call into `numkeys` keys and other arguments.
pub(super) fn split_keys<'w, 'a>(
    numkeys: &[u8],
    words: &'w [&'a [u8]],
) -> Result<KeysAndArgs<'w, 'a>, CommandError> {
    keys_and_args(number::parse_i64(numkeys).ok_or(CommandError::NOT_AN_INTEGER)?, words)
}

/// Splits the words of a call into `count` keys and other arguments.
pub(super) fn keys_and_args<'w, 'a>(
    count: i64,
    words: &'w [&'a [u8]],
) -> Result<KeysAndArgs<'w, 'a>, CommandError> {
    if count < 0 {
        return Err(CommandError::new("ERR Number of keys can't be negative"));
    }
    let too_many = CommandError::new("ERR Number of keys can't be greater than number of args");
    words.split_at_checked(count as usize).ok_or(too_many)
}

/// Adds a script to the known ones, if it compiles.
///
/// # Errors
/// Errors of the compiler.
pub(super) fn add_script(
    ctx: &Context<'_, '_>,
    source: &[u8],
    keep: Keep,
) -> Result<Arc<KnownScript>, CommandError> {
    Ok(ctx.kernel.scripts.add(compile(ctx, source)?, keep))
}

/// Compiles a source.
///
/// # Errors
/// Errors of the compiler.
pub(super) fn compile(ctx: &Context<'_, '_>, source: &[u8]) -> Result<Script, CommandError> {
    // Each byte takes as long as an element.
    ctx.weigh(source.len())?;
    let script = Script::parse(source).map_err(CommandError::text)?;
    Workspace::with(ctx.kernel, |workspace| workspace.machine().check(&script))
        .map_err(|Failure { text, .. }| CommandError::text(String::from_utf8_lossy(&text)))?;
    Ok(script)
}
