//! Reports users and their rights.

use tierce_wire::resp::Rest;

use crate::acl::Selector;
use crate::command::category;
use crate::commands::options::integer;
use crate::error::CommandError;
use crate::pipeline::{Context, Done};
use crate::random;
use crate::reply::Reply;

/// Default and maximum bits of a password of GENPASS.
const PASSWORD_BITS: i64 = 256;
const PASSWORD_BITS_MAX: i64 = 4096;

/// Bits of a hexadecimal digit.
const DIGIT_BITS: usize = 4;

pub(super) fn categories(ctx: &mut Context<'_, '_>, options: Rest<'_>) -> Done {
    let Some(name) = options.get(0) else {
        ctx.reply.bulks(category::ALL);
        return Ok(());
    };
    if options.len() > 1 {
        return Err(CommandError::subcommand_syntax(ctx.spelled_name(), "acl"));
    }
    let category = category::find(name).ok_or_else(|| {
        let name = String::from_utf8_lossy(name);
        CommandError::text(format!("ERR Unknown category '{name}'"))
    })?;
    let commands = ctx.kernel.commands.all().filter(|command| command.spec.is_in(category));
    let names: Vec<_> = commands.map(|command| command.full_name.as_str()).collect();
    ctx.reply.bulks(names);
    Ok(())
}

pub(super) fn dry_run(
    ctx: &mut Context<'_, '_>,
    [username]: [&[u8]; 1],
    call: Rest<'_, 1>,
) -> Done {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let user =
        ctx.kernel.acl.users.get(username).ok_or_else(|| {
            CommandError::text(format!("ERR User '{}' not found", text(username)))
        })?;
    let call = call.as_args();
    let command = crate::pipeline::resolve(ctx.kernel, call).map_err(|refused| {
        // A known command has a wrong number of arguments.
        match refused.command {
            Some(_) => refused.error,
            None => CommandError::text(format!("ERR Command '{}' not found", text(call.at(0)))),
        }
    })?;
    match user.check(command, call) {
        Ok(()) => ctx.reply.ok(),
        Err(denial) => ctx.reply.bulk(&denial.full_text(&user, command, call)),
    }
    Ok(())
}

pub(super) fn generate_password(ctx: &mut Context<'_, '_>, options: Rest<'_>) -> Done {
    if options.len() > 1 {
        return Err(CommandError::subcommand_syntax(ctx.spelled_name(), "acl"));
    }
    let bits = options.get(0).map_or(Ok(PASSWORD_BITS), integer)?;
    if !(1..=PASSWORD_BITS_MAX).contains(&bits) {
        return Err(CommandError::text(format!(
            "ERR ACL GENPASS argument must be the number of bits for the output password, a positive number up to \
             {PASSWORD_BITS_MAX}"
        )));
    }
    let digits = (bits as usize).div_ceil(DIGIT_BITS);
    let mut bytes = vec![0; digits.div_ceil(2)];
    random::fill(&mut bytes)
        .map_err(|error| CommandError::text(format!("ERR no randomness: {error}")))?;
    let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    ctx.reply.bulk(&text.as_bytes()[..digits]);
    Ok(())
}

pub(super) fn get_user(ctx: &mut Context<'_, '_>, [username]: [&[u8]; 1]) -> Done {
    let Some(user) = ctx.kernel.acl.users.get(username) else {
        ctx.reply.null();
        return Ok(());
    };
    let Some((root, others)) = user.selectors().split_first() else { return Ok(()) };
    let reply = &mut ctx.reply;
    reply.map(6);
    reply.bulk(b"flags");
    let flags: Vec<_> = user.flags().collect();
    reply.set(flags.len());
    flags.iter().for_each(|flag| reply.bulk(flag.as_bytes()));
    reply.bulk(b"passwords");
    reply.array(user.passwords().len());
    user.passwords().iter().for_each(|hash| reply.bulk(hash.to_string().as_bytes()));
    describe(reply, root);
    reply.bulk(b"selectors");
    reply.array(others.len());
    for selector in others {
        reply.map(3);
        describe(reply, selector);
    }
    Ok(())
}

/// Replies with the three fields of a selector.
fn describe(reply: &mut Reply<'_>, selector: &Selector) {
    for (name, text) in [
        ("commands", selector.describe_commands()),
        ("keys", selector.describe_keys()),
        ("channels", selector.describe_channels()),
    ] {
        reply.bulk(name.as_bytes());
        reply.bulk(&text);
    }
}

pub(super) fn list(ctx: &mut Context<'_, '_>) -> Done {
    let users = ctx.kernel.acl.users.all();
    ctx.reply.array(users.len());
    for user in users {
        ctx.reply.bulk(&[b"user ", user.describe().as_slice()].concat());
    }
    Ok(())
}

pub(super) fn users(ctx: &mut Context<'_, '_>) -> Done {
    let users = ctx.kernel.acl.users.all();
    ctx.reply.array(users.len());
    users.iter().for_each(|user| ctx.reply.bulk(user.name()));
    Ok(())
}

pub(super) fn who_am_i(ctx: &mut Context<'_, '_>) -> Done {
    match ctx.caller.rights().user() {
        Some(user) => ctx.reply.bulk(user.name()),
        None => ctx.reply.null(),
    }
    Ok(())
}
