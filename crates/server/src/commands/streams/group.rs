//! XGROUP: making, changing and removing groups and their consumers. XACK.

use tierce_collections::Stream;
use tierce_collections::stream::StreamId;
use tierce_keyspace::{Editor, Missing};
use tierce_wire::resp::Args;

use super::{DELETE, INSERT, id, moment_ms, no_group_of_key, unsigned_ms};
use crate::command::{Flags, Group, KeyFlags, KeySpec, Spec};
use crate::commands::options::integer;
use crate::commands::server::{help, help_spec};
use crate::error::CommandError;
use crate::execute::Context;

pub(super) static COMMANDS: &[Spec] = &[
    Spec::container(
        "xgroup",
        Group::Stream,
        &[
            Spec::new("create", -5, Group::Stream, create)
                .flags(Flags::WRITE.with(Flags::DENYOOM))
                .keys(&[KeySpec::at(2, INSERT)])
                .doc(
                    "5.0.0",
                    "O(1)",
                    "key group <id | \"$\"> [MKSTREAM] [ENTRIESREAD entries-read]",
                    "Creates a consumer group.",
                ),
            Spec::new("createconsumer", 5, Group::Stream, create_consumer)
                .flags(Flags::WRITE.with(Flags::DENYOOM))
                .keys(&[KeySpec::at(2, INSERT)])
                .doc("6.2.0", "O(1)", "key group consumer", "Creates a consumer in a group."),
            Spec::new("delconsumer", 5, Group::Stream, delete_consumer)
                .flags(Flags::WRITE)
                .keys(&[KeySpec::at(2, DELETE)])
                .doc(
                    "5.0.0",
                    "O(1)",
                    "key group consumer",
                    "Deletes a consumer of a group with all that is pending there.",
                ),
            Spec::new("destroy", 4, Group::Stream, destroy)
                .flags(Flags::WRITE)
                .keys(&[KeySpec::at(2, DELETE)])
                .doc(
                    "5.0.0",
                    "O(N) where N is the number of entries in the group's pending entries list (PEL).",
                    "key group",
                    "Destroys a consumer group.",
                ),
            help_spec(Group::Stream),
            Spec::new("setid", -5, Group::Stream, set_id)
                .flags(Flags::WRITE)
                .keys(&[KeySpec::at(2, KeyFlags::UPDATE)])
                .doc(
                    "5.0.0",
                    "O(1)",
                    "key group <id | \"$\"> [ENTRIESREAD entries-read]",
                    "Sets the last entry that a group has got.",
                ),
        ],
        help,
    )
    .doc("5.0.0", "Depends on subcommand.", "", "A container for commands on consumer groups."),
    Spec::new("xack", -4, Group::Stream, xack)
        .flags(Flags::WRITE.with(Flags::FAST))
        .keys(&[KeySpec::at(1, KeyFlags::UPDATE)])
        .doc(
            "5.0.0",
            "O(1) for each message ID processed.",
            "key group id [id ...]",
            "Acknowledges entries that were delivered to a consumer of a group, and returns how many \
             were pending.",
        ),
];

type Done = Result<(), CommandError>;

const NO_KEY: CommandError = CommandError::new(
    "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use the \
     MKSTREAM option to create an empty stream automatically.",
);

/// The options of CREATE and SETID.
struct Options {
    missing: Missing,
    entries_read: Option<u64>,
}

impl Options {
    fn parse(args: Args<'_>) -> Result<Self, CommandError> {
        const NEGATIVE: CommandError =
            CommandError::new("ERR value for ENTRIESREAD must be positive or -1");
        let is_create = args[1].eq_ignore_ascii_case(b"create");
        let mut options = Self { missing: Missing::Skip, entries_read: None };
        let mut at = 5;
        while at < args.len() {
            match args[at].to_ascii_lowercase().as_slice() {
                b"mkstream" if is_create => options.missing = Missing::Create,
                b"entriesread" if at + 1 < args.len() => {
                    at += 1;
                    options.entries_read = match integer(&args[at])? {
                        -1 => None,
                        read => Some(u64::try_from(read).map_err(|_| NEGATIVE)?),
                    };
                }
                _ => return Err(CommandError::subcommand_syntax(&args[1], "xgroup")),
            }
            at += 1;
        }
        Ok(options)
    }
}

/// Lets `edit` change a stream that must be there, with the names of the group and of what follows.
fn edit<R>(
    ctx: &mut Context<'_, '_>,
    args: Args<'_>,
    missing: Missing,
    edit: impl FnOnce(&mut Editor<'_, Stream>) -> Result<R, CommandError>,
) -> Result<R, CommandError> {
    let (mut db, key, _) = ctx.open(args.at(2));
    db.edit(key, missing, edit)?.ok_or(NO_KEY)
}

/// The same for a stream whose group must be there, too.
fn edit_group<R>(
    ctx: &mut Context<'_, '_>,
    args: Args<'_>,
    change: impl FnOnce(&mut Editor<'_, Stream>) -> Result<R, CommandError>,
) -> Result<R, CommandError> {
    edit(ctx, args, Missing::Skip, |stream| {
        if stream.group(&args[3]).is_none() {
            return Err(no_group_of_key(&args[2], &args[3]));
        }
        change(stream)
    })
}

fn create(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    const EXISTS: CommandError = CommandError::new("BUSYGROUP Consumer Group name already exists");
    let options = Options::parse(args)?;
    edit(ctx, args, options.missing, |stream| {
        let position = match &args[4] {
            b"$" => stream.state().last_id,
            id => id::strict(id, 0)?,
        };
        if stream.group(&args[3]).is_some() {
            return Err(EXISTS);
        }
        stream.set_group(&args[3], position, options.entries_read);
        Ok(())
    })?;
    ctx.reply.ok();
    Ok(())
}

fn set_id(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let options = Options::parse(args)?;
    edit_group(ctx, args, |stream| {
        let position = match &args[4] {
            b"$" => stream.state().last_id,
            id => id::lenient(id, 0)?,
        };
        stream.set_group(&args[3], position, options.entries_read);
        Ok(())
    })?;
    ctx.reply.ok();
    Ok(())
}

fn destroy(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let removed = edit(ctx, args, Missing::Skip, |stream| Ok(stream.remove_group(&args[3])))?;
    ctx.reply.int(removed.into());
    Ok(())
}

fn create_consumer(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let now_ms = unsigned_ms(moment_ms(ctx));
    let created = edit_group(ctx, args, |stream| {
        let group = stream.group(&args[3]);
        let exists = group.is_some_and(|group| group.consumer_number(&args[4]).is_some());
        if !exists {
            stream.set_consumer(&args[3], &args[4], now_ms, None);
        }
        Ok(!exists)
    })?;
    ctx.reply.int(created.into());
    Ok(())
}

fn delete_consumer(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let pending = edit_group(ctx, args, |stream| Ok(stream.remove_consumer(&args[3], &args[4])))?;
    ctx.reply.count(pending.unwrap_or(0));
    Ok(())
}

fn xack(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let (mut db, key, reply) = ctx.open(args.at(1));
    let acknowledged = db.edit(key, Missing::Skip, |stream: &mut Editor<'_, Stream>| {
        if stream.group(&args[2]).is_none() {
            return Ok(0);
        }
        let ids: Vec<StreamId> = id::all(args.from(3))?;
        Ok::<_, CommandError>(stream.acknowledge(&args[2], ids.into_iter()))
    })?;
    reply.count(acknowledged.unwrap_or(0));
    Ok(())
}
