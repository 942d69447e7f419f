//! SUBSCRIBE, PSUBSCRIBE, SSUBSCRIBE and their opposites.

use tierce_wire::resp::Rest;

use crate::command::{Channels, Flags, Group, KeyFlags, KeySpec};
use crate::error::CommandError;
use crate::pipeline::{Body, Context, Defined, Done, many};
use crate::pubsub::{Kind, Name};

const FLAGS: Flags = Flags::PUBSUB
    .with(Flags::NOSCRIPT)
    .with(Flags::LOADING)
    .with(Flags::STALE)
    .with(Flags::WHILE_SUBSCRIBED);

const SHARD_CHANNELS: &[KeySpec] = &[KeySpec::all(1, KeyFlags::NOT_KEY)];

const fn spec(name: &'static str, body: Body) -> Defined {
    Defined::new(name, Group::PubSub, body).flags(FLAGS)
}

pub(super) static COMMANDS: &[Defined] = &[
    spec("subscribe", many!(subscribe))
        .channels(Channels::ALL)
        .since("2.0.0", "O(N) where N is the number of channels to subscribe to.")
        .doc("channel [channel ...]", "Subscribes to channels.")
        .example(
            r#"
            > SUBSCRIBE news
            1) "subscribe"
            2) "news"
            3) (integer) 1
            "#,
        ),
    spec("unsubscribe", many!(unsubscribe))
        .since("2.0.0", "O(N) where N is the number of channels to unsubscribe.")
        .doc("[channel [channel ...]]", "Ends subscriptions to channels, or to all of them.")
        .example(
            r#"
            > SUBSCRIBE news
            1) "subscribe"
            2) "news"
            3) (integer) 1
            > UNSUBSCRIBE
            1) "unsubscribe"
            2) "news"
            3) (integer) 0
            "#,
        ),
    spec("psubscribe", many!(subscribe_to_patterns))
        .channels(Channels::PATTERNS)
        .since("2.0.0", "O(N) where N is the number of patterns to subscribe to.")
        .doc("pattern [pattern ...]", "Subscribes to all channels that match patterns.")
        .example(
            r#"
            > PSUBSCRIBE news.*
            1) "psubscribe"
            2) "news.*"
            3) (integer) 1
            "#,
        ),
    spec("punsubscribe", many!(unsubscribe_from_patterns))
        .since("2.0.0", "O(N) where N is the number of patterns to unsubscribe.")
        .doc("[pattern [pattern ...]]", "Ends subscriptions to patterns, or to all of them.")
        .example(
            r#"
            > PSUBSCRIBE news.*
            1) "psubscribe"
            2) "news.*"
            3) (integer) 1
            > PUNSUBSCRIBE news.*
            1) "punsubscribe"
            2) "news.*"
            3) (integer) 0
            "#,
        ),
    spec("ssubscribe", many!(subscribe_to_shard))
        .channels(Channels::ALL)
        .routes(SHARD_CHANNELS)
        .since("7.0.0", "O(N) where N is the number of shard channels to subscribe to.")
        .doc("shardchannel [shardchannel ...]", "Subscribes to shard channels.")
        .example(
            r#"
            > SSUBSCRIBE orders
            1) "ssubscribe"
            2) "orders"
            3) (integer) 1
            "#,
        ),
    spec("sunsubscribe", many!(unsubscribe_from_shard))
        .routes(SHARD_CHANNELS)
        .since("7.0.0", "O(N) where N is the number of shard channels to unsubscribe.")
        .doc(
            "[shardchannel [shardchannel ...]]",
            "Ends subscriptions to shard channels, or to all of them.",
        )
        .example(
            r#"
            > SSUBSCRIBE orders
            1) "ssubscribe"
            2) "orders"
            3) (integer) 1
            > SUNSUBSCRIBE orders
            1) "sunsubscribe"
            2) "orders"
            3) (integer) 0
            "#,
        ),
];

fn subscribe(ctx: &mut Context<'_, '_>, channels: Rest<'_, 1>) -> Done {
    begin(ctx, "subscribe", Kind::Channel, channels)
}

fn subscribe_to_patterns(ctx: &mut Context<'_, '_>, patterns: Rest<'_, 1>) -> Done {
    begin(ctx, "psubscribe", Kind::Pattern, patterns)
}

fn subscribe_to_shard(ctx: &mut Context<'_, '_>, channels: Rest<'_, 1>) -> Done {
    if ctx.is_within() {
        return Err(CommandError::new("ERR SSUBSCRIBE isn't allowed for a DENY BLOCKING client"));
    }
    begin(ctx, "ssubscribe", Kind::ShardChannel, channels)
}

fn unsubscribe(ctx: &mut Context<'_, '_>, channels: Rest<'_>) -> Done {
    end(ctx, "unsubscribe", Kind::Channel, channels)
}

fn unsubscribe_from_patterns(ctx: &mut Context<'_, '_>, patterns: Rest<'_>) -> Done {
    end(ctx, "punsubscribe", Kind::Pattern, patterns)
}

fn unsubscribe_from_shard(ctx: &mut Context<'_, '_>, channels: Rest<'_>) -> Done {
    end(ctx, "sunsubscribe", Kind::ShardChannel, channels)
}

fn begin(ctx: &mut Context<'_, '_>, word: &str, kind: Kind, names: Rest<'_, 1>) -> Done {
    for name in names.iter() {
        let (output, proto) = ctx.reply.parts();
        ctx.caller.subscribe(&ctx.kernel.pubsub, kind, name, output, proto);
        confirm(ctx, word, kind, Some(name));
    }
    Ok(())
}

fn end(ctx: &mut Context<'_, '_>, word: &str, kind: Kind, names: Rest<'_>) -> Done {
    if !names.is_empty() {
        names.iter().for_each(|name| end_one(ctx, word, kind, name));
        return Ok(());
    }
    let all: Vec<Name> =
        ctx.caller.subscriptions().into_iter().flat_map(|all| all.names(kind)).cloned().collect();
    if all.is_empty() {
        confirm(ctx, word, kind, None);
    }
    all.iter().for_each(|name| end_one(ctx, word, kind, name));
    Ok(())
}

fn end_one(ctx: &mut Context<'_, '_>, word: &str, kind: Kind, name: &[u8]) {
    let (output, proto) = ctx.reply.parts();
    ctx.caller.unsubscribe(&ctx.kernel.pubsub, kind, name, output, proto);
    confirm(ctx, word, kind, Some(name));
}

/// Replies for one name with the current number of subscriptions. Channels and patterns count together.
fn confirm(ctx: &mut Context<'_, '_>, word: &str, kind: Kind, name: Option<&[u8]>) {
    let count = |kind| ctx.caller.subscription_count(kind);
    let left = match kind {
        Kind::ShardChannel => count(kind),
        _ => count(Kind::Channel) + count(Kind::Pattern),
    };
    ctx.caller.confirmations += 1;
    ctx.reply.push(3);
    ctx.reply.bulk(word.as_bytes());
    match name {
        Some(name) => ctx.reply.bulk(name),
        None => ctx.reply.null(),
    }
    ctx.reply.count(left);
}
