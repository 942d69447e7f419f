//! PUBLISH, SPUBLISH.

use crate::command::{Channels, Flags, Group, KeyFlags, KeySpec, Scope};
use crate::pipeline::{Context, Defined, Done, Mode, WEIGHT_MAX, exactly};

const FLAGS: Flags = Flags::PUBSUB.with(Flags::LOADING).with(Flags::STALE).with(Flags::FAST);

pub(super) static COMMANDS: &[Defined] = &[
    Defined::new("publish", Group::PubSub, exactly!(publish))
        .flags(FLAGS)
        .channels(Channels::FIRST)
        .locks(Scope::Unlocked)
        .since(
            "2.0.0",
            "O(N+M) where N is the number of clients subscribed to the receiving channel and M is the total \
             number of subscribed patterns (by any client).",
        )
        .doc("channel message", "Sends a message to the subscribers of a channel.")
        .example(
            r#"
            > PUBLISH news "Hello, world!"
            (integer) 0
            "#,
        ),
    Defined::new("spublish", Group::PubSub, exactly!(publish_to_shard))
        .flags(FLAGS)
        .channels(Channels::FIRST)
        .locks(Scope::Unlocked)
        .routes(&[KeySpec::at(1, KeyFlags::NOT_KEY)])
        .since(
            "7.0.0",
            "O(N) where N is the number of clients subscribed to the receiving shard channel.",
        )
        .doc("shardchannel message", "Sends a message to the subscribers of a shard channel.")
        .example(
            r#"
            > SPUBLISH orders "Hello, world!"
            (integer) 0
            "#,
        ),
];

/// Publishes a message. Replicas get it after the changes of earlier requests: outside a transaction no shard is
/// locked any more, and inside one the message waits for its end.
fn publish(ctx: &mut Context<'_, '_>, [channel, message]: [&[u8]; 2]) -> Done {
    let pubsub = &ctx.kernel.pubsub;
    let weight = pubsub.weight_of_patterns(channel, WEIGHT_MAX);
    ctx.weigh(weight)?;
    ctx.guard.deliver_events();
    ctx.caller.tell_replicas(&ctx.kernel.feed, b"PUBLISH", channel, message);
    let count = if weight > WEIGHT_MAX {
        pubsub.publish_in_steps(channel, message)
    } else {
        pubsub.publish(channel, message, worker(ctx))
    };
    ctx.reply.count(count);
    Ok(())
}

fn publish_to_shard(ctx: &mut Context<'_, '_>, [channel, message]: [&[u8]; 2]) -> Done {
    ctx.guard.deliver_events();
    ctx.caller.tell_replicas(&ctx.kernel.feed, b"SPUBLISH", channel, message);
    let count = ctx.kernel.pubsub.publish_to_shard(channel, message, worker(ctx));
    ctx.reply.count(count);
    Ok(())
}

/// Returns the worker that runs this command, if any.
fn worker(ctx: &Context<'_, '_>) -> Option<u16> {
    matches!(ctx.mode, Mode::Client).then_some(ctx.caller.client.conn.worker)
}
