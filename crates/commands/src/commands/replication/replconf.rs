//! REPLCONF: information from a replica, before it requests the stream and while it gets it.

use std::sync::Arc;

use tierce_wire::number;
use tierce_wire::resp::Rest;

use crate::clients::Identity;
use crate::command::{Flags, Group, Scope};
use crate::error::CommandError;
use crate::pipeline::{Context, Defined, Done, many};
use crate::replication::{Began, CopyFilter, Replica};

/// Maximum length of an address.
const IP_LEN_MAX: usize = 255;

pub(super) static COMMANDS: &[Defined] =
    &[Defined::new("replconf", Group::Server, many!(replconf))
        .flags(
            Flags::ADMIN
                .with(Flags::NOSCRIPT)
                .with(Flags::LOADING)
                .with(Flags::STALE)
                .with(Flags::ALLOW_BUSY)
                .with(Flags::SYSTEM),
        )
        .locks(Scope::Unlocked)
        .since("3.0.0", "O(1)")
        .doc("[option value [option value ...]]", "Tells what a replica is and how far it is.")
        .example(
            r#"
        > REPLCONF listening-port 6380 capa eof
        OK
        "#,
        )];

fn replconf(ctx: &mut Context<'_, '_>, options: Rest<'_>) -> Done {
    let mut left = options;
    let mut is_answered = true;
    while let Some(([option, value], rest)) = left.split_first() {
        let replica = Arc::clone(ctx.caller.become_replica());
        is_answered &= tell(ctx, &replica, &option.to_ascii_lowercase(), value)?;
        left = rest;
    }
    if !left.is_empty() {
        return Err(CommandError::SYNTAX);
    }
    if is_answered {
        ctx.reply.ok();
    }
    Ok(())
}

/// Parses the parts of a copy that are wanted. Keys cannot be selected.
fn filter(words: &[u8]) -> Result<CopyFilter, CommandError> {
    let mut filter = CopyFilter::Nothing;
    for word in words.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()) {
        if !word.eq_ignore_ascii_case(b"functions") {
            let word = String::from_utf8_lossy(word).into_owned();
            let text = format!("ERR Unsupported rdb-filter-only option: {word}");
            return Err(CommandError::text(text));
        }
        filter = CopyFilter::Functions;
    }
    Ok(filter)
}

/// Applies one option. Returns true if it is answered.
fn tell(
    ctx: &Context<'_, '_>,
    replica: &Replica,
    option: &[u8],
    value: &[u8],
) -> Result<bool, CommandError> {
    let number = || number::parse_i64(value).ok_or(CommandError::NOT_AN_INTEGER);
    let mut facts = replica.facts.lock();
    match option {
        b"listening-port" => {
            let port = u16::try_from(number()?);
            facts.port = port.map_err(|_| CommandError::new("ERR value is out of range"))?;
        }
        b"ip-address" => {
            let ip = Identity::clean(value).filter(|ip| ip.len() <= IP_LEN_MAX);
            let error = || {
                CommandError::new(
                    "ERR REPLCONF ip-address provided by replica instance is no address",
                )
            };
            facts.ip = Some(ip.ok_or_else(error)?);
        }
        b"capa" if value.eq_ignore_ascii_case(b"eof") => facts.takes_marks = true,
        b"capa" if value.eq_ignore_ascii_case(b"psync2") => facts.takes_ids = true,
        // Unknown capabilities are ignored.
        b"capa" | b"version" => {}
        b"rdb-only" => facts.copy_only = number()? != 0,
        b"rdb-filter-only" => facts.filter = Some(filter(value)?),
        b"ack" | b"fack" => {
            drop(facts);
            let offset = u64::try_from(number()?).unwrap_or(0);
            match option {
                b"ack" => {
                    if replica.acknowledge(offset, ctx.now_ms) == Began::Stream {
                        let settings = ctx.kernel.config.settings();
                        ctx.kernel.count_replicas(&settings, ctx.now_ms);
                    }
                }
                _ => replica.note_synced(offset),
            }
            ctx.kernel.serve_confirmed();
            return Ok(false);
        }
        // Only primaries send this to their replicas.
        b"getack" => return Ok(false),
        _ => {
            let option = String::from_utf8_lossy(option).into_owned();
            return Err(CommandError::text(format!("ERR Unrecognized REPLCONF option: {option}")));
        }
    }
    Ok(true)
}
