//! ACL LOG.

use tierce_wire::resp::Rest;

use crate::acl::Entry;
use crate::commands::options::integer;
use crate::error::CommandError;
use crate::pipeline::{Context, Done};
use crate::reply::Reply;

/// Default number of entries shown.
const SHOWN_DEFAULT: usize = 10;

pub(super) fn log(ctx: &mut Context<'_, '_>, options: Rest<'_>) -> Done {
    if options.len() > 1 {
        return Err(CommandError::subcommand_syntax(ctx.spelled_name(), "acl"));
    }
    let log = &ctx.kernel.acl.log;
    let count = match options.get(0) {
        None => SHOWN_DEFAULT,
        Some(word) if word.eq_ignore_ascii_case(b"reset") => {
            log.clear();
            ctx.reply.ok();
            return Ok(());
        }
        Some(count) => integer(count)?.max(0) as usize,
    };
    let entries = log.newest(count);
    ctx.reply.array(entries.len());
    entries.iter().for_each(|entry| show(&mut ctx.reply, entry, ctx.now_ms));
    Ok(())
}

fn show(reply: &mut Reply<'_>, entry: &Entry, now_ms: i64) {
    let number = |reply: &mut Reply<'_>, name: &str, value: i64| {
        reply.bulk(name.as_bytes());
        reply.int(value);
    };
    let text = |reply: &mut Reply<'_>, name: &str, value: &[u8]| {
        reply.bulk(name.as_bytes());
        reply.bulk(value);
    };
    reply.map(10);
    number(reply, "count", entry.count as i64);
    text(reply, "reason", entry.what.reason.name().as_bytes());
    text(reply, "context", entry.what.origin.name().as_bytes());
    text(reply, "object", &entry.what.object);
    text(reply, "username", &entry.what.username);
    reply.bulk(b"age-seconds");
    reply.double((now_ms - entry.updated_ms).max(0) as f64 / 1000.0);
    text(reply, "client-info", entry.client.as_bytes());
    number(reply, "entry-id", entry.id as i64);
    number(reply, "timestamp-created", entry.created_ms);
    number(reply, "timestamp-last-updated", entry.updated_ms);
}
