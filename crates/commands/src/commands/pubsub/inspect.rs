//! PUBSUB: lists channels and counts their subscribers.

use tierce_wire::glob::{self, Case};
use tierce_wire::resp::Rest;

use crate::command::{Flags, Group};
use crate::commands::help::{help, help_spec};
use crate::error::CommandError;
use crate::pipeline::{Body, Context, Defined, Done, many, no_arguments};
use crate::pubsub::Kind;

const FLAGS: Flags = Flags::PUBSUB.with(Flags::LOADING).with(Flags::STALE);

const fn sub(name: &'static str, body: Body) -> Defined {
    Defined::new(name, Group::PubSub, body).flags(FLAGS)
}

pub(super) static COMMANDS: &[Defined] = &[Defined::container(
    "pubsub",
    Group::PubSub,
    &[
        sub("channels", many!(sub channels))
            .since(
                "2.8.0",
                "O(N) where N is the number of active channels, and assuming constant time pattern matching \
                 (relatively short channels and patterns)",
            )
            .doc("[pattern]", "Returns the channels that have subscribers.")
            .example(
                r#"
                > PUBSUB CHANNELS news.*
                (empty array)
                "#,
            ),
        sub("numpat", no_arguments!(sub patterns))
            .since("2.8.0", "O(1)")
            .doc("", "Returns the number of patterns that have subscribers.")
            .example(
                r#"
                > PUBSUB NUMPAT
                (integer) 0
                "#,
            ),
        sub("numsub", many!(sub subscribers))
            .since(
                "2.8.0",
                "O(N) for the NUMSUB subcommand, where N is the number of requested channels",
            )
            .doc(
                "[channel [channel ...]]",
                "Returns the number of subscribers of channels, without those of patterns.",
            )
            .example(
                r#"
                > PUBSUB NUMSUB news
                1) "news"
                2) (integer) 0
                "#,
            ),
        sub("shardchannels", many!(sub shard_channels))
            .since(
                "7.0.0",
                "O(N) where N is the number of active shard channels, and assuming constant time pattern \
                 matching (relatively short shard channels).",
            )
            .doc("[pattern]", "Returns the shard channels that have subscribers.")
            .example(
                r#"
                > PUBSUB SHARDCHANNELS
                (empty array)
                "#,
            ),
        sub("shardnumsub", many!(sub shard_subscribers))
            .since(
                "7.0.0",
                "O(N) for the SHARDNUMSUB subcommand, where N is the number of requested shard channels",
            )
            .doc(
                "[shardchannel [shardchannel ...]]",
                "Returns the number of subscribers of shard channels.",
            )
            .example(
                r#"
                > PUBSUB SHARDNUMSUB orders
                1) "orders"
                2) (integer) 0
                "#,
            ),
        help_spec(Group::PubSub).since("6.2.0", "O(1)").example(
            r#"
                > PUBSUB HELP
                 1) PUBSUB <subcommand> [<arg> [value] [opt] ...]. Subcommands are:
                 2) CHANNELS [pattern]
                 3)     Returns the channels that have subscribers.
                ...
                "#),
    ],
    help,
)
.since("2.8.0", "Depends on subcommand.")
.doc("", "A container for Pub/Sub commands.")];

fn channels(ctx: &mut Context<'_, '_>, pattern: Rest<'_>) -> Done {
    list(ctx, Kind::Channel, pattern)
}

fn shard_channels(ctx: &mut Context<'_, '_>, pattern: Rest<'_>) -> Done {
    list(ctx, Kind::ShardChannel, pattern)
}

fn list(ctx: &mut Context<'_, '_>, kind: Kind, pattern: Rest<'_>) -> Done {
    if pattern.len() > 1 {
        return Err(CommandError::subcommand_syntax(ctx.spelled_name(), "pubsub"));
    }
    let pubsub = &ctx.kernel.pubsub;
    ctx.weigh(pubsub.count(kind))?;
    let pattern = pattern.get(0).unwrap_or(b"*");
    let mut names = pubsub.channels(kind, |name| glob::matches(pattern, name, Case::Sensitive));
    names.sort_unstable();
    ctx.reply.bulks(names);
    Ok(())
}

fn patterns(ctx: &mut Context<'_, '_>) -> Done {
    ctx.reply.count(ctx.kernel.pubsub.count(Kind::Pattern));
    Ok(())
}

fn subscribers(ctx: &mut Context<'_, '_>, channels: Rest<'_>) -> Done {
    count(ctx, Kind::Channel, channels)
}

fn shard_subscribers(ctx: &mut Context<'_, '_>, channels: Rest<'_>) -> Done {
    count(ctx, Kind::ShardChannel, channels)
}

fn count(ctx: &mut Context<'_, '_>, kind: Kind, channels: Rest<'_>) -> Done {
    ctx.reply.array(channels.len() * 2);
    for channel in channels.iter() {
        ctx.reply.bulk(channel);
        ctx.reply.count(ctx.kernel.pubsub.subscribers(kind, channel));
    }
    Ok(())
}
