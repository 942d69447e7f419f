//! Changes of users.

use tierce_wire::resp::Rest;

use crate::acl::{self, RulesError, User};
use crate::error::CommandError;
use crate::pipeline::{Context, Done};

/// Reply to LOAD and SAVE on a server without an ACL file.
const NO_FILE: CommandError = CommandError::new(
    "ERR This Redis instance is not configured to use an ACL file. You may want to specify users via the ACL \
     SETUSER command and then issue a CONFIG REWRITE (assuming you have a Redis configuration file set) in order to \
     store users in the Redis configuration.",
);

pub(super) fn set(ctx: &mut Context<'_, '_>, [username]: [&[u8]; 1], rules: Rest<'_>) -> Done {
    if !User::is_name(username) {
        return Err(CommandError::new("ERR Usernames can't contain spaces or null characters"));
    }
    let rules: Vec<&[u8]> = rules.iter().collect();
    let changed = ctx.kernel.acl.users.change(username, &rules, ctx.kernel.acl_terms());
    if changed.map_err(|error| refusal(&error))?.old.is_some() {
        ctx.kernel.end_connections_without_rights(&ctx.caller.client);
    }
    ctx.reply.ok();
    Ok(())
}

fn refusal(error: &RulesError) -> CommandError {
    CommandError::text(match error {
        RulesError::Unmatched(rule) => {
            let rule = String::from_utf8_lossy(rule);
            format!("ERR Unmatched parenthesis in acl selector starting at '{rule}'.")
        }
        RulesError::Rule { rule, error } => {
            let rule = String::from_utf8_lossy(rule);
            format!("ERR Error in ACL SETUSER modifier '{rule}': {error}")
        }
    })
}

pub(super) fn delete(ctx: &mut Context<'_, '_>, usernames: Rest<'_, 1>) -> Done {
    if usernames.iter().any(|name| name == acl::DEFAULT) {
        return Err(CommandError::new("ERR The 'default' user cannot be removed"));
    }
    let users = &ctx.kernel.acl.users;
    let count = usernames.iter().filter(|name| users.remove(name)).count();
    if count > 0 {
        ctx.kernel.end_connections_without_rights(&ctx.caller.client);
    }
    ctx.reply.count(count);
    Ok(())
}

pub(super) fn load(ctx: &mut Context<'_, '_>) -> Done {
    if ctx.kernel.config.settings().acl_file().is_none() {
        return Err(NO_FILE);
    }
    ctx.kernel.load_users().map_err(|error| CommandError::text(format!("ERR {error}")))?;
    ctx.kernel.end_connections_without_rights(&ctx.caller.client);
    ctx.reply.ok();
    Ok(())
}

pub(super) fn save(ctx: &mut Context<'_, '_>) -> Done {
    let path = ctx.kernel.config.settings().acl_file().ok_or(NO_FILE)?;
    acl::save(&path, &ctx.kernel.acl).map_err(|error| {
        ctx.kernel.log.warning(format_args!("could not write {}: {error}", path.display()));
        CommandError::new(
            "ERR There was an error trying to save the ACLs. Please check the server logs for more information",
        )
    })?;
    ctx.reply.ok();
    Ok(())
}
