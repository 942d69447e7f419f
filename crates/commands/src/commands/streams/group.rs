//! XGROUP: creates, changes and removes groups and their consumers. XACK.

use tierce_collections::Stream;
use tierce_collections::stream::StreamId;
use tierce_keyspace::{Editor, Event, Missing};
use tierce_wire::resp::Rest;

use super::common::{DELETE, INSERT, no_group_of_key, unsigned_ms};
use super::id;
use crate::command::{Flags, Group, KeyFlags, KeySpec};
use crate::commands::cursor::Options;
use crate::commands::help::{help, help_spec};
use crate::commands::options::integer;
use crate::error::CommandError;
use crate::pipeline::{Context, Defined, Done, at_least, exactly};

pub(super) static COMMANDS: &[Defined] = &[
    Defined::container(
        "xgroup",
        Group::Stream,
        &[
            Defined::new("create", Group::Stream, at_least!(sub create))
                .flags(Flags::WRITE.with(Flags::DENYOOM))
                .keys(&[KeySpec::at(2, INSERT)])
                .since("5.0.0", "O(1)")
                .doc(
                    "key group <id | \"$\"> [MKSTREAM] [ENTRIESREAD entries-read]",
                    "Creates a consumer group.",
                )
                .example(
                    r#"
                    > XGROUP CREATE events mailers $ MKSTREAM
                    OK
                    > XGROUP CREATE events mailers $
                    (error) BUSYGROUP Consumer Group name already exists
                    "#,
                ),
            Defined::new("createconsumer", Group::Stream, exactly!(sub create_consumer))
                .flags(Flags::WRITE.with(Flags::DENYOOM))
                .keys(&[KeySpec::at(2, INSERT)])
                .since("6.2.0", "O(1)")
                .doc("key group consumer", "Creates a consumer in a group.")
                .example(
                    r#"
                    > XGROUP CREATE events mailers $ MKSTREAM
                    OK
                    > XGROUP CREATECONSUMER events mailers worker-1
                    (integer) 1
                    > XGROUP CREATECONSUMER events mailers worker-1
                    (integer) 0
                    "#,
                ),
            Defined::new("delconsumer", Group::Stream, exactly!(sub delete_consumer))
                .flags(Flags::WRITE)
                .keys(&[KeySpec::at(2, DELETE)])
                .since("5.0.0", "O(1)")
                .doc(
                    "key group consumer",
                    "Deletes a consumer of a group with all that is pending there.",
                )
                .example(
                    r#"
                    > XADD events 1-1 type login
                    "1-1"
                    > XGROUP CREATE events mailers 0
                    OK
                    > XREADGROUP GROUP mailers worker-1 COUNT 1 STREAMS events >
                    1) 1) "events"
                       2) 1) 1) "1-1"
                             2) 1) "type"
                                2) "login"
                    > XGROUP DELCONSUMER events mailers worker-1
                    (integer) 1
                    "#,
                ),
            Defined::new("destroy", Group::Stream, exactly!(sub destroy))
                .flags(Flags::WRITE)
                .keys(&[KeySpec::at(2, DELETE)])
                .since(
                    "5.0.0",
                    "O(N) where N is the number of entries in the group's pending entries list \
                 (PEL).",
                )
                .doc("key group", "Destroys a consumer group.")
                .example(
                    r#"
                    > XGROUP CREATE events mailers $ MKSTREAM
                    OK
                    > XGROUP DESTROY events mailers
                    (integer) 1
                    > XGROUP DESTROY events mailers
                    (integer) 0
                    "#,
                ),
            help_spec(Group::Stream).example(
                r#"
                    > XGROUP HELP
                     1) XGROUP <subcommand> [<arg> [value] [opt] ...]. Subcommands are:
                     2) CREATE key group <id | "$"> [MKSTREAM] [ENTRIESREAD entries-read]
                     3)     Creates a consumer group.
                    ...
                    "#,
            ),
            Defined::new("setid", Group::Stream, at_least!(sub set_id))
                .flags(Flags::WRITE)
                .keys(&[KeySpec::at(2, KeyFlags::UPDATE)])
                .since("5.0.0", "O(1)")
                .doc(
                    "key group <id | \"$\"> [ENTRIESREAD entries-read]",
                    "Sets the last entry that a group has got.",
                )
                .example(
                    r#"
                    > XADD events 1-1 type login
                    "1-1"
                    > XGROUP CREATE events mailers $
                    OK
                    > XGROUP SETID events mailers 0
                    OK
                    > XREADGROUP GROUP mailers worker-1 STREAMS events >
                    1) 1) "events"
                       2) 1) 1) "1-1"
                             2) 1) "type"
                                2) "login"
                    "#,
                ),
        ],
        help,
    )
    .since("5.0.0", "Depends on subcommand.")
    .doc("", "A container for commands on consumer groups."),
    Defined::new("xack", Group::Stream, at_least!(xack))
        .flags(Flags::WRITE.with(Flags::FAST))
        .keys(&[KeySpec::at(1, KeyFlags::UPDATE)])
        .since("5.0.0", "O(1) for each message ID processed.")
        .doc(
            "key group id [id ...]",
            "Acknowledges entries that were delivered to a consumer of a group, and \
                 returns how many were pending.",
        )
        .example(
            r#"
            > XADD events 1-1 type login
            "1-1"
            > XGROUP CREATE events mailers 0
            OK
            > XREADGROUP GROUP mailers worker-1 STREAMS events >
            1) 1) "events"
               2) 1) 1) "1-1"
                     2) 1) "type"
                        2) "login"
            > XACK events mailers 1-1
            (integer) 1
            > XACK events mailers 1-1
            (integer) 0
            "#,
        ),
];

const NO_KEY: CommandError = CommandError::new(
    "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use the \
     MKSTREAM option to create an empty stream automatically.",
);

/// Options of CREATE and SETID.
struct Creation {
    missing: Missing,
    entries_read: Option<u64>,
    /// True if the primary decides how much a group has read.
    is_following: bool,
    too_many: Option<CommandError>,
}

impl Creation {
    fn parse(ctx: &Context<'_, '_>, mut words: Options<'_>) -> Result<Self, CommandError> {
        const NEGATIVE: CommandError =
            CommandError::new("ERR value for ENTRIESREAD must be positive or -1");
        let is_create = ctx.command.spec.name == "create";
        let wrong = || CommandError::subcommand_syntax(ctx.spelled_name(), "xgroup");
        // Redis reports repeated options only after it has found the key.
        let too_many = words.left() > if is_create { 3 } else { 2 };
        let too_many = too_many.then(wrong);
        let is_following = ctx.kernel.keyspace.is_following();
        let mut options =
            Self { missing: Missing::Skip, entries_read: None, is_following, too_many };
        while let Some(word) = words.next_word() {
            match &*word {
                b"mkstream" if is_create => options.missing = Missing::Create,
                b"entriesread" => {
                    let value = words.next_value().ok_or_else(wrong)?;
                    options.entries_read = match integer(value)? {
                        -1 => None,
                        read => Some(u64::try_from(read).map_err(|_| NEGATIVE)?),
                    };
                }
                _ => return Err(wrong()),
            }
        }
        Ok(options)
    }

    /// Returns the number of entries that a group has read, at most the number that were added.
    fn entries_read(&self, stream: &Stream) -> Option<u64> {
        let max = if self.is_following { u64::MAX } else { stream.state().entries_added };
        self.entries_read.map(|read| read.min(max))
    }
}

/// Calls `edit` on a stream that must exist. `event` is reported if it returns that it changed
/// something.
fn edit<R>(
    ctx: &mut Context<'_, '_>,
    key: &[u8],
    missing: Missing,
    event: Event,
    edit: impl FnOnce(&mut Editor<'_, Stream>) -> Result<(bool, R), CommandError>,
) -> Result<R, CommandError> {
    let (mut db, key, _) = ctx.open(key);
    let (has_changed, result) = db.edit(key, missing, edit)?.ok_or(NO_KEY)?;
    if has_changed {
        db.event(event, key);
    }
    Ok(result)
}

/// Does the same for a stream whose group must exist, too.
fn edit_group<R>(
    ctx: &mut Context<'_, '_>,
    [key, group]: [&[u8]; 2],
    event: Event,
    change: impl FnOnce(&mut Editor<'_, Stream>) -> Result<(bool, R), CommandError>,
) -> Result<R, CommandError> {
    edit(ctx, key, Missing::Skip, event, |stream| {
        if stream.group(group).is_none() {
            return Err(no_group_of_key(key, group));
        }
        change(stream)
    })
}

fn create(ctx: &mut Context<'_, '_>, [key, group, id]: [&[u8]; 3], options: Rest<'_>) -> Done {
    const EXISTS: CommandError = CommandError::new("BUSYGROUP Consumer Group name already exists");
    let options = Creation::parse(ctx, Options::of(options))?;
    edit(ctx, key, options.missing, Event::XGroupCreate, |stream| {
        let read = options.entries_read(stream);
        options.too_many.map_or(Ok(()), Err)?;
        let position = match id {
            b"$" => stream.state().last_id,
            id => id::strict(id, 0)?,
        };
        if stream.group(group).is_some() {
            return Err(EXISTS);
        }
        stream.set_group(group, position, read);
        Ok((true, ()))
    })?;
    ctx.reply.ok();
    Ok(())
}

fn set_id(ctx: &mut Context<'_, '_>, [key, group, id]: [&[u8]; 3], options: Rest<'_>) -> Done {
    let options = Creation::parse(ctx, Options::of(options))?;
    edit_group(ctx, [key, group], Event::XGroupSetId, |stream| {
        let read = options.entries_read(stream);
        options.too_many.map_or(Ok(()), Err)?;
        let position = match id {
            b"$" => stream.state().last_id,
            id => id::lenient(id, 0)?,
        };
        stream.set_group(group, position, read);
        Ok((true, ()))
    })?;
    ctx.reply.ok();
    Ok(())
}

fn destroy(ctx: &mut Context<'_, '_>, [key, group]: [&[u8]; 2]) -> Done {
    let removed = edit(ctx, key, Missing::Skip, Event::XGroupDestroy, |stream| {
        let removed = stream.remove_group(group);
        Ok((removed, removed))
    })?;
    ctx.reply.int(removed.into());
    Ok(())
}

fn create_consumer(ctx: &mut Context<'_, '_>, [key, group, consumer]: [&[u8]; 3]) -> Done {
    let now_ms = unsigned_ms(ctx.moment_ms());
    let created = edit_group(ctx, [key, group], Event::XGroupCreateConsumer, |stream| {
        let found = stream.group(group);
        let exists = found.is_some_and(|group| group.consumer_number(consumer).is_some());
        if !exists {
            stream.set_consumer(group, consumer, now_ms, None);
        }
        Ok((!exists, !exists))
    })?;
    ctx.reply.int(created.into());
    Ok(())
}

fn delete_consumer(ctx: &mut Context<'_, '_>, [key, group, consumer]: [&[u8]; 3]) -> Done {
    let pending = edit_group(ctx, [key, group], Event::XGroupDelConsumer, |stream| {
        let pending = stream.remove_consumer(group, consumer);
        Ok((pending.is_some(), pending))
    })?;
    ctx.reply.count(pending.unwrap_or(0));
    Ok(())
}

fn xack(ctx: &mut Context<'_, '_>, [key, group]: [&[u8]; 2], ids: Rest<'_, 1>) -> Done {
    let (mut db, key, reply) = ctx.open(key);
    db.exists(key);
    let acknowledged = db.edit(key, Missing::Skip, |stream: &mut Editor<'_, Stream>| {
        if stream.group(group).is_none() {
            return Ok(0);
        }
        let ids: Vec<StreamId> = id::all(ids)?;
        Ok::<_, CommandError>(stream.acknowledge(group, ids.into_iter()))
    })?;
    if acknowledged.is_some_and(|acknowledged| acknowledged > 0) {
        db.event(Event::XAck, key);
    }
    reply.count(acknowledged.unwrap_or(0));
    Ok(())
}
