//! FCALL and FCALL_RO.

use tierce_wire::number;
use tierce_wire::resp::Rest;

use super::eval::{ANY_READ, ANY_WRITE, FLAGS, FLAGS_RO, KEYS, KEYS_RO, keys_and_args};
use crate::command::{Group, Scope};
use crate::error::CommandError;
use crate::pipeline::program::Program;
use crate::pipeline::{Context, Defined, Done, at_least};

const COMPLEXITY: &str = "Depends on the function that is executed.";

pub(super) static COMMANDS: &[Defined] = &[
    Defined::new("fcall", Group::Scripting, at_least!(fcall))
        .flags(FLAGS)
        .keys(&[KEYS.note(ANY_WRITE)])
        .locks(Scope::Program)
        .since("7.0.0", COMPLEXITY)
        .doc("function numkeys [key [key ...]] [arg [arg ...]]", "Runs a function of a library.")
        .example(
            r##"
            > FUNCTION LOAD REPLACE "#!lua name=visits\nredis.register_function('visit', function(keys, args) return redis.call('incrby', keys[1], args[1]) end)"
            "visits"
            > FCALL visit 1 page 2
            (integer) 2
            > FCALL leave 0
            (error) ERR Function not found
            "##,
        ),
    Defined::new("fcall_ro", Group::Scripting, at_least!(fcall))
        .flags(FLAGS_RO)
        .keys(&[KEYS_RO.note(ANY_READ)])
        .locks(Scope::Program)
        .since("7.0.0", COMPLEXITY)
        .doc(
            "function numkeys [key [key ...]] [arg [arg ...]]",
            "Runs a function of a library that may not write.",
        )
        .example(
            r##"
            > FUNCTION LOAD REPLACE "#!lua name=pages\nredis.register_function{function_name='page', callback=function(keys) return redis.call('get', keys[1]) end, flags={'no-writes'}}"
            "pages"
            > SET page 1
            OK
            > FCALL_RO page 1 page
            "1"
            "##,
        ),
];

fn fcall(ctx: &mut Context<'_, '_>, [name, numkeys]: [&[u8]; 2], rest: Rest<'_>) -> Done {
    const NOT_FOUND: CommandError = CommandError::new("ERR Function not found");
    const BAD_NUMBER: CommandError = CommandError::new("ERR Bad number of keys provided");
    let kernel = ctx.kernel;
    let known = kernel.scripts.libraries.function(kernel, name).ok_or(NOT_FOUND)?;
    let count = number::parse_i64(numkeys).ok_or(BAD_NUMBER)?;
    let words: Vec<&[u8]> = rest.iter().collect();
    let (keys, args) = keys_and_args(count, &words)?;
    ctx.run_program(&Program::of_function(&known), keys, args)
}
