//! SCRIPT: manages the scripts of EVALSHA, and ends a running one.

use tierce_lua::Sha1;
use tierce_wire::resp::Rest;

use super::eval::add_script;
use super::named;
use crate::command::{Flags, Group};
use crate::commands::cursor::Options;
use crate::commands::help::{help, help_spec};
use crate::error::CommandError;
use crate::pipeline::{Body, Context, Defined, Done, exactly, many, no_arguments};
use crate::scripting::{Keep, Kind};

const fn sub(name: &'static str, body: Body) -> Defined {
    Defined::new(name, Group::Scripting, body).flags(Flags::NOSCRIPT)
}

pub(super) static COMMANDS: &[Defined] = &[Defined::container(
    "script",
    Group::Scripting,
    &[
        sub("load", exactly!(sub load))
            .flags(Flags::NOSCRIPT.with(Flags::STALE))
            .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"])
            .since("2.6.0", "O(N) with N being the length in bytes of the script body.")
            .doc("script", "Adds a script to those that EVALSHA finds, and returns its SHA-1.")
            .example(
                r#"
                > SCRIPT LOAD "return ARGV[1]"
                "098e0f0d1448c0a81dafe820f66d460eb09263da"
                "#,
            ),
        sub("exists", many!(sub exists))
            .tips(&["request_policy:all_shards", "response_policy:agg_logical_and"])
            .since(
                "2.6.0",
                "O(N) with N being the number of scripts to check (so checking a single script is an O(1) \
                 operation).",
            )
            .doc("sha1 [sha1 ...]", "Returns which scripts EVALSHA would find.")
            .example(
                r#"
                > SCRIPT LOAD "return ARGV[1]"
                "098e0f0d1448c0a81dafe820f66d460eb09263da"
                > SCRIPT EXISTS 098e0f0d1448c0a81dafe820f66d460eb09263da ffffffffffffffffffffffffffffffffffffffff
                1) (integer) 1
                2) (integer) 0
                "#,
            ),
        sub("flush", many!(sub flush))
            .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"])
            .since("2.6.0", "O(N) with N being the number of scripts in cache")
            .doc("[ASYNC | SYNC]", "Forgets all scripts that EVALSHA finds.")
            .example(
                r#"
                > SCRIPT FLUSH
                OK
                "#,
            ),
        named::REGISTER,
        named::UNREGISTER,
        named::NAMES,
        sub("kill", no_arguments!(sub kill))
            .flags(Flags::NOSCRIPT.with(Flags::ALLOW_BUSY))
            .tips(&["request_policy:all_shards", "response_policy:one_succeeded"])
            .since("2.6.0", "O(1)")
            .doc("", "Ends scripts that run for long, and undoes what they have written.")
            .example(
                r#"
                > SCRIPT KILL
                (error) NOTBUSY No scripts in execution right now.
                "#,
            ),
        sub("debug", exactly!(sub debug))
            .since("3.2.0", "O(1)")
            .doc("<YES | SYNC | NO>", "Is refused: there is no debugger.")
            .example(
                r#"
                > SCRIPT DEBUG YES
                (error) ERR there is no debugger for scripts: redis.log and errors say what a script does
                > SCRIPT DEBUG NO
                OK
                "#,
            ),
        help_spec(Group::Scripting).example(
            r#"
            > SCRIPT HELP
             1) SCRIPT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:
             2) LOAD script
             3)     Adds a script to those that EVALSHA finds, and returns its SHA-1.
            ...
            "#,
        ),
    ],
    help,
)
.since("2.6.0", "Depends on subcommand.")
.doc("", "A container for commands that manage scripts.")];

fn load(ctx: &mut Context<'_, '_>, [source]: [&[u8]; 1]) -> Done {
    let script = add_script(ctx, source, Keep::Always)?;
    ctx.reply.bulk(&script.script.sha().to_hex());
    Ok(())
}

fn exists(ctx: &mut Context<'_, '_>, shas: Rest<'_, 1>) -> Done {
    let scripts = &ctx.kernel.scripts;
    ctx.reply.array(shas.len());
    for sha in shas.iter() {
        let is_known = Sha1::from_hex(sha).is_some_and(|sha| scripts.contains(&sha));
        ctx.reply.int(is_known.into());
    }
    Ok(())
}

/// Removes all scripts. Neither mode delays other clients: scripts are freed after unlocking.
fn flush(ctx: &mut Context<'_, '_>, options: Rest<'_>) -> Done {
    const WRONG: CommandError =
        CommandError::new("ERR SCRIPT FLUSH only support SYNC|ASYNC option");
    let mut options = Options::of(options);
    if let Some(word) = options.next_word()
        && !matches!(&*word, b"sync" | b"async")
    {
        return Err(WRONG);
    }
    options.end().map_err(|_| WRONG)?;
    ctx.kernel.scripts.flush();
    ctx.reply.ok();
    Ok(())
}

fn kill(ctx: &mut Context<'_, '_>) -> Done {
    let threshold = ctx.kernel.busy_threshold();
    ctx.kernel.scripts.running.kill(Kind::Script, threshold)?;
    ctx.reply.ok();
    Ok(())
}

fn debug(ctx: &mut Context<'_, '_>, [mode]: [&[u8]; 1]) -> Done {
    const REFUSED: CommandError = CommandError::new(
        "ERR there is no debugger for scripts: redis.log and errors say what a script does",
    );
    const WRONG: CommandError = CommandError::new("ERR Use SCRIPT DEBUG YES/SYNC/NO");
    match mode.to_ascii_lowercase().as_slice() {
        b"no" => ctx.reply.ok(),
        b"yes" | b"sync" => return Err(REFUSED),
        _ => return Err(WRONG),
    }
    Ok(())
}
