//! HIMPORT: hashes with equal field names, which the client sends only once, as in Redis 8.10.

use tierce_collections::{Collection, CollectionKind, Hash};
use tierce_keyspace::{Event, ValueType};
use tierce_wire::resp::Rest;

use crate::command::{Flags, Group, KeyFlags, KeySpec};
use crate::commands::help::help;
use crate::commands::store::store_result;
use crate::error::CommandError;
use crate::pipeline::{Context, Defined, Done, at_least, exactly, no_arguments};

const SINCE: &str = "8.10.0";
const ON_ALL_SHARDS: &[&str] = &["request_policy:all_shards"];

pub(super) static COMMANDS: &[Defined] = &[Defined::container(
    "himport",
    Group::Hash,
    &[
        Defined::new("prepare", Group::Hash, at_least!(sub prepare))
            .flags(Flags::DENYOOM)
            .tips(ON_ALL_SHARDS)
            .since(SINCE, "O(N*log(N)) where N is the number of fields")
            .doc(
                "fieldset-name field [field ...]",
                "Names a list of fields for the hashes that this connection imports.",
            )
            .example(
                r#"
                > HIMPORT PREPARE user name born
                OK
                > HIMPORT SET user:1 user Ada 1815
                OK
                > HGETALL user:1
                1) "name"
                2) "Ada"
                3) "born"
                4) "1815"
                > HIMPORT PREPARE user name name
                (error) ERR duplicate field name in fieldset
                "#,
            ),
        Defined::new("set", Group::Hash, at_least!(sub set))
            .flags(Flags::WRITE.with(Flags::DENYOOM))
            .keys(&[KeySpec::at(2, KeyFlags(&["OW", "update"]))])
            .since(SINCE, "O(N) where N is the number of fields")
            .doc(
                "key fieldset-name value [value ...]",
                "Sets a key to a hash with the fields of a prepared list and these values.",
            )
            .example(
                r#"
                > HIMPORT PREPARE user name born
                OK
                > HSET user:2 city London
                (integer) 1
                > HIMPORT SET user:2 user Grace 1906
                OK
                > HMGET user:2 name born city
                1) "Grace"
                2) "1906"
                3) (nil)
                > HIMPORT SET user:2 user Grace
                (error) ERR value count does not match fieldset field count
                "#,
            ),
        Defined::new("discard", Group::Hash, exactly!(sub discard))
            .tips(ON_ALL_SHARDS)
            .since(SINCE, "O(log(N)) where N is the number of prepared lists")
            .doc("fieldset-name", "Removes a prepared list of fields.")
            .example(
                r#"
                > HIMPORT PREPARE user name born
                OK
                > HIMPORT DISCARD user
                (integer) 1
                > HIMPORT SET user:1 user Ada 1815
                (error) ERR no such fieldset
                "#,
            ),
        Defined::new("discardall", Group::Hash, no_arguments!(sub discard_all))
            .tips(ON_ALL_SHARDS)
            .since(SINCE, "O(N) where N is the number of prepared lists")
            .doc("", "Removes all prepared lists of fields of the connection.")
            .example(
                r#"
                > HIMPORT PREPARE user name born
                OK
                > HIMPORT DISCARDALL
                (integer) 1
                "#,
            ),
    ],
    help,
)
.since(SINCE, "Depends on subcommand.")
.doc("", "A container for commands that import hashes with equal fields.")];

fn prepare(ctx: &mut Context<'_, '_>, [name]: [&[u8]; 1], fields: Rest<'_, 1>) -> Done {
    let mut sorted: Vec<&[u8]> = fields.iter().collect();
    sorted.sort_unstable();
    if sorted.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err(CommandError::new("ERR duplicate field name in fieldset"));
    }
    let bytes_max = ctx.kernel.config.live().client_query_buffer_limit();
    ctx.caller.put_fieldset(name, fields.as_args().to_owned(), bytes_max)?;
    ctx.reply.ok();
    Ok(())
}

fn set(ctx: &mut Context<'_, '_>, [key, name]: [&[u8]; 2], values: Rest<'_, 1>) -> Done {
    let fields = ctx.caller.fieldset(name).ok_or(CommandError::new("ERR no such fieldset"))?;
    if values.len() != fields.len() {
        return Err(CommandError::new("ERR value count does not match fieldset field count"));
    }
    let key = ctx.kernel.keyspace.key(key);
    let mut db = ctx.guard.db(ctx.caller.db, key.hash(), ctx.now_ms);
    let present = db.value_type(key);
    if present.is_some_and(|it| it != ValueType::Collection(CollectionKind::Hash)) {
        return Err(CommandError::WRONG_TYPE);
    }
    let limits = ctx.kernel.keyspace.limits().hash;
    let mut hash = Hash::new();
    for (field, value) in fields.iter().zip(values.iter()) {
        hash.put(field, value, None, limits);
    }
    store_result(&mut db, key, Collection::Hash(hash), Event::HSet)?;
    ctx.reply.ok();
    Ok(())
}

fn discard(ctx: &mut Context<'_, '_>, [name]: [&[u8]; 1]) -> Done {
    let was_there = ctx.caller.remove_fieldset(name);
    ctx.reply.int(was_there.into());
    Ok(())
}

fn discard_all(ctx: &mut Context<'_, '_>) -> Done {
    let count = ctx.caller.fieldsets.as_ref().map_or(0, |all| all.len());
    ctx.caller.set_fieldsets(None);
    ctx.reply.count(count);
    Ok(())
}
