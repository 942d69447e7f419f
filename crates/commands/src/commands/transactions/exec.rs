//! MULTI, EXEC and DISCARD: begin, run and discard a transaction.

use crate::command::{Flags, Group};
use crate::error::CommandError;
use crate::pipeline::{Context, Defined, Done, no_arguments};

const ANYWHERE: Flags =
    Flags::NOSCRIPT.with(Flags::LOADING).with(Flags::STALE).with(Flags::NOT_QUEUED);

pub(super) static COMMANDS: &[Defined] = &[
    Defined::new("multi", Group::Transactions, no_arguments!(multi))
        .flags(ANYWHERE.with(Flags::FAST).with(Flags::ALLOW_BUSY))
        .since("1.2.0", "O(1)")
        .doc("", "Begins a transaction: commands are queued until EXEC runs them.")
        .example(
            r#"
            > MULTI
            OK
            > INCR visits
            QUEUED
            > INCR visits
            QUEUED
            > EXEC
            1) (integer) 1
            2) (integer) 2
            "#,
        ),
    Defined::new("exec", Group::Transactions, no_arguments!(exec))
        .flags(ANYWHERE.with(Flags::SKIP_SLOWLOG))
        .since("1.2.0", "Depends on commands in the transaction")
        .doc(
            "",
            "Executes the queued commands atomically: other clients, and a start after a crash, see all of their \
             changes or none. A script in it that is ended is undone alone.",
        )
        .example(
            r#"
            > MULTI
            OK
            > SET state ready
            QUEUED
            > INCR state
            QUEUED
            > EXEC
            1) OK
            2) (error) ERR value is not an integer or out of range
            > MULTI
            OK
            > INCR
            (error) ERR wrong number of arguments for 'incr' command
            > EXEC
            (error) EXECABORT Transaction discarded because of previous errors.
            "#,
        ),
    Defined::new("discard", Group::Transactions, no_arguments!(discard))
        .flags(ANYWHERE.with(Flags::FAST).with(Flags::ALLOW_BUSY))
        .since("2.0.0", "O(N), when N is the number of queued commands")
        .doc("", "Ends a transaction without running what is queued.")
        .example(
            r#"
            > MULTI
            OK
            > SET state ready
            QUEUED
            > DISCARD
            OK
            > GET state
            (nil)
            "#,
        ),
];

fn multi(ctx: &mut Context<'_, '_>) -> Done {
    ctx.caller.begin_transaction()?;
    ctx.reply.ok();
    Ok(())
}

fn exec(ctx: &mut Context<'_, '_>) -> Done {
    ctx.execute_transaction()
}

fn discard(ctx: &mut Context<'_, '_>) -> Done {
    if !ctx.caller.is_in_transaction() {
        return Err(CommandError::new("ERR DISCARD without MULTI"));
    }
    ctx.end_watch();
    ctx.caller.end_transaction();
    ctx.reply.ok();
    Ok(())
}
