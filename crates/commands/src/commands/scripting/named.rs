//! EVALNAME and the subcommands of SCRIPT for named scripts.
//!
//! A named script is data: it is in the log and in snapshots, and stays when the scripts of EVALSHA are flushed.

use tierce_keyspace::{CODE_NAME_LEN_MAX, CodeKind};
use tierce_wire::resp::Rest;

use super::check_room;
use super::eval::{FLAGS, KEYS, compile, run_script, split_keys};
use crate::command::{Flags, Group, Scope};
use crate::error::CommandError;
use crate::pipeline::{Context, Defined, Done, at_least, exactly, no_arguments};

const SINCE: &str = "Tierce 0.1.0";
const NO_SUCH_NAME: CommandError =
    CommandError::new("NOSCRIPT No script has this name. Please use SCRIPT REGISTER.");

pub(super) static COMMANDS: &[Defined] =
    &[Defined::new("evalname", Group::Scripting, at_least!(eval_name))
        .flags(FLAGS)
        .keys(&[KEYS])
        .locks(Scope::Program)
        .since(SINCE, "Depends on the script that is executed.")
        .doc(
            "name numkeys [key [key ...]] [arg [arg ...]]",
            "Runs a Lua script that was registered by this name.",
        )
        .example(
            r#"
        > SCRIPT REGISTER count "return redis.call('incrby', KEYS[1], ARGV[1])"
        OK
        > EVALNAME count 1 visits 10
        (integer) 10
        > EVALNAME other 0
        (error) NOSCRIPT No script has this name. Please use SCRIPT REGISTER.
        "#,
        )];

/// Flags of commands that change named scripts.
const WRITES: Flags = Flags::WRITE.with(Flags::NOSCRIPT);

/// Others call the script by its name, with their own rights.
const CATEGORIES: &[&str] = &["admin", "dangerous"];

pub(super) const REGISTER: Defined =
    Defined::new("register", Group::Scripting, exactly!(sub register))
        .flags(WRITES.with(Flags::DENYOOM))
        .categories(CATEGORIES)
        .locks(Scope::Stepwise)
        .since(SINCE, "O(N) with N being the length in bytes of the script body.")
        .doc(
            "name script",
            "Gives a script a name, by which EVALNAME calls it, also after a restart.",
        )
        .example(
            r#"
            > SCRIPT REGISTER count "return redis.call('incrby', KEYS[1], ARGV[1])"
            OK
            > SCRIPT REGISTER count "return"
            OK
            "#,
        );

pub(super) const UNREGISTER: Defined =
    Defined::new("unregister", Group::Scripting, exactly!(sub unregister))
        .flags(WRITES)
        .categories(CATEGORIES)
        .locks(Scope::All)
        .since(SINCE, "O(1)")
        .doc("name", "Takes a name back. Returns whether a script had it.")
        .example(
            r#"
            > SCRIPT REGISTER count "return redis.call('incrby', KEYS[1], ARGV[1])"
            OK
            > SCRIPT UNREGISTER count
            (integer) 1
            > SCRIPT UNREGISTER count
            (integer) 0
            "#,
        );

pub(super) const NAMES: Defined = Defined::new("names", Group::Scripting, no_arguments!(sub names))
    .flags(Flags::NOSCRIPT)
    .since(SINCE, "O(N) with N being the number of names.")
    .doc("", "Returns the names of all registered scripts, in the order of their bytes.")
    .example(
        r#"
        > SCRIPT REGISTER count "return redis.call('incrby', KEYS[1], ARGV[1])"
        OK
        > SCRIPT NAMES
        1) "count"
        "#,
    );

fn eval_name(ctx: &mut Context<'_, '_>, [name, numkeys]: [&[u8]; 2], rest: Rest<'_>) -> Done {
    let words: Vec<&[u8]> = rest.iter().collect();
    let (keys, args) = split_keys(numkeys, &words)?;
    let kernel = ctx.kernel;
    let script = kernel.scripts.names.get(kernel.keyspace.code(), name).ok_or(NO_SUCH_NAME)?;
    run_script(ctx, &script, keys, args)
}

fn register(ctx: &mut Context<'_, '_>, [name, source]: [&[u8]; 2]) -> Done {
    if !(1..=CODE_NAME_LEN_MAX).contains(&name.len()) {
        return Err(CommandError::text(format!(
            "ERR the name of a script has 1 to {CODE_NAME_LEN_MAX} bytes"
        )));
    }
    let script = compile(ctx, source)?;
    let (kernel, check) = (ctx.kernel, ctx.check_again());
    let is_of_primary = ctx.caller.is_primary();
    let source = script.source();
    let check = || {
        check()?;
        check_room(kernel, is_of_primary, |code| code.put(CodeKind::Script, name, source.clone()))
    };
    ctx.guard.change_code(check, |code| code.put(CodeKind::Script, name, source.clone()))?;
    ctx.reply.ok();
    Ok(())
}

fn unregister(ctx: &mut Context<'_, '_>, [name]: [&[u8]; 1]) -> Done {
    let check = ctx.check_again();
    let was_there = ctx.guard.change_code(check, |code| code.remove(CodeKind::Script, name))?;
    ctx.reply.int(was_there.into());
    Ok(())
}

fn names(ctx: &mut Context<'_, '_>) -> Done {
    let all = ctx.kernel.keyspace.code().all();
    ctx.reply.bulks(all.of(CodeKind::Script).map(|(name, _)| name));
    Ok(())
}
