//! Messages that are added once, however often producers send them: options of XADD, XCFGSET, XIDMPRECORD.

use tierce_collections::Stream;
use tierce_collections::stream::{MessageCounts, MessageLimits, MessageName, Messages, StreamId};
use tierce_config::DirectiveId;
use tierce_keyspace::{Editor, Event, Missing};
use tierce_wire::resp::Rest;

use super::common::unsigned_ms;
use super::id;
use crate::acl::sha256;
use crate::clock;
use crate::command::{Flags, Group, KeyFlags, KeySpec};
use crate::commands::cursor::Options;
use crate::commands::options::integer;
use crate::error::CommandError;
use crate::pipeline::{Context, Defined, Done, at_least};

pub(super) static COMMANDS: &[Defined] = &[
    Defined::new("xcfgset", Group::Stream, at_least!(xcfgset))
        .flags(Flags::WRITE.with(Flags::FAST))
        .keys(&[KeySpec::at(1, KeyFlags::UPDATE)])
        .since("8.6.0", "O(1)")
        .doc(
            "key [IDMP-DURATION duration] [IDMP-MAXSIZE maxsize]",
            "Sets for how many seconds a stream knows the messages of XADD IDMP and IDMPAUTO, and \
                 how many of each producer. All messages so far are forgotten.",
        )
        .example(
            r#"
            > XADD events IDMP shop-1 order-17 * total 20
            "...-0"
            > XCFGSET events IDMP-DURATION 600 IDMP-MAXSIZE 1000
            OK
            "#,
        ),
    Defined::new("xidmprecord", Group::Stream, at_least!(xidmprecord))
        .flags(Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST))
        .keys(&[KeySpec::at(1, KeyFlags::UPDATE)])
        .since("8.8.0", "O(1)")
        .doc(
            "key producer-id idempotent-id id",
            "Makes an existing entry that of a message, as if XADD IDMP had added it. For \
                 append-only files and replicas.",
        )
        .example(
            r#"
            > XADD events 1-1 total 20
            "1-1"
            > XIDMPRECORD events shop-1 order-17 1-1
            OK
            "#,
        ),
];

/// Bytes of a name that is made of the fields of a message.
const DIGEST_LEN: usize = 16;

/// Name of an added message, as given: IDMP, IDMPAUTO.
pub(super) struct Message<'a> {
    producer: &'a [u8],
    /// Its own name; `None` if its fields determine it.
    given: Option<&'a [u8]>,
}

impl<'a> Message<'a> {
    /// Takes the option with its values. Returns `false` if it is another one.
    pub(super) fn take(
        message: &mut Option<Self>,
        options: &mut Options<'a>,
    ) -> Result<bool, CommandError> {
        const TWICE: CommandError =
            CommandError::new("ERR syntax error, only one of IDMP and IDMPAUTO may be given, once");
        let is_given = options.take("idmp");
        if !is_given && !options.take("idmpauto") {
            return Ok(false);
        }
        let producer = options.value()?;
        let given = is_given.then(|| options.value()).transpose()?;
        named(producer, given.unwrap_or(producer))?;
        match message.replace(Self { producer, given }) {
            Some(_) => Err(TWICE),
            None => Ok(true),
        }
    }

    /// Returns its name; `digest` gets the one made of its fields.
    pub(super) fn name<'n>(
        &self,
        fields: impl Iterator<Item = [&'a [u8]; 2]>,
        digest: &'n mut [u8; DIGEST_LEN],
    ) -> MessageName<'n>
    where
        'a: 'n,
    {
        let message = self.given.unwrap_or_else(|| {
            *digest = digest_of(fields);
            digest
        });
        MessageName { producer: self.producer, message }
    }

    /// Returns true if its fields determine its name.
    pub(super) fn is_automatic(&self) -> bool {
        self.given.is_none()
    }
}

/// Returns a name for a message with these fields, in any order. It is the same on all servers.
fn digest_of<'a>(fields: impl Iterator<Item = [&'a [u8]; 2]>) -> [u8; DIGEST_LEN] {
    let mut fields: Vec<_> = fields.collect();
    fields.sort_unstable();
    let mut bytes = Vec::new();
    for part in fields.as_flattened() {
        bytes.extend_from_slice(&(part.len() as u64).to_le_bytes());
        bytes.extend_from_slice(part);
    }
    *sha256::hash(&bytes).first_chunk().expect("a hash is longer")
}

/// Returns a message's name, unless a part is empty.
fn named<'a>(producer: &'a [u8], message: &'a [u8]) -> Result<MessageName<'a>, CommandError> {
    const EMPTY: CommandError =
        CommandError::new("ERR The producer ID and the idempotent ID must not be empty");
    match producer.is_empty() || message.is_empty() {
        true => Err(EMPTY),
        false => Ok(MessageName { producer, message }),
    }
}

/// Returns the limits for streams that had no messages so far.
pub(super) fn default_limits(ctx: &Context<'_, '_>) -> MessageLimits {
    const DURATION: DirectiveId = DirectiveId::of("stream-idmp-duration");
    const MAXSIZE: DirectiveId = DirectiveId::of("stream-idmp-maxsize");
    let settings = ctx.kernel.config.settings();
    let value = |id| settings.count(id) as u32;
    MessageLimits { duration_s: value(DURATION), messages_max: value(MAXSIZE) }
}

/// Returns true for a call that another server has executed before: its primary, or one whose files are imported.
pub(super) fn is_replayed(ctx: &Context<'_, '_>) -> bool {
    ctx.caller.is_primary() || ctx.now_ms == clock::STOPPED_MS
}

fn counts(stream: &Stream) -> MessageCounts {
    stream.messages().map(Messages::counts).unwrap_or_default()
}

/// Remembers a message that was added as this entry. `limits` are for a stream that had none so far.
pub(super) fn remember(
    stream: &mut Editor<'_, Stream>,
    name: MessageName<'_>,
    id: StreamId,
    at_ms: u64,
    limits: MessageLimits,
) {
    let counts = counts(stream);
    let added = counts.added.saturating_add(1);
    remember_counted(stream, name, id, at_ms, limits, MessageCounts { added, ..counts });
}

fn remember_counted(
    stream: &mut Editor<'_, Stream>,
    name: MessageName<'_>,
    id: StreamId,
    at_ms: u64,
    limits: MessageLimits,
    counts: MessageCounts,
) {
    if stream.messages().is_none() {
        stream.set_messages(limits, MessageCounts::default());
    }
    stream.remember(name, id, at_ms, counts);
}

/// Arguments of XCFGSET.
#[derive(Default)]
struct Change {
    duration_s: Option<u32>,
    messages_max: Option<u32>,
    /// Numbers of messages so far, from a primary.
    counts: Option<MessageCounts>,
}

impl Change {
    fn parse(mut options: Options<'_>, is_replayed: bool) -> Result<Self, CommandError> {
        const DURATION: CommandError =
            CommandError::new("ERR IDMP-DURATION must be between 1 and 86400 seconds");
        const MAXSIZE: CommandError =
            CommandError::new("ERR IDMP-MAXSIZE must be between 1 and 10000");
        const NOTHING: CommandError =
            CommandError::new("ERR syntax error, IDMP-DURATION or IDMP-MAXSIZE must be given");
        let within = |value: &[u8], max: u32, error| match integer(value)? {
            value if (1..=i64::from(max)).contains(&value) => Ok(Some(value as u32)),
            _ => Err(error),
        };
        let mut change = Self::default();
        while options.left() > 0 {
            if options.take("idmp-duration") {
                change.duration_s =
                    within(options.value()?, MessageLimits::MAX.duration_s, DURATION)?;
            } else if options.take("idmp-maxsize") {
                change.messages_max =
                    within(options.value()?, MessageLimits::MAX.messages_max, MAXSIZE)?;
            } else if is_replayed && options.take("counts") {
                let [added, duplicates] = options.values()?;
                change.counts = Some(counts_of(added, duplicates)?);
            } else {
                return Err(CommandError::SYNTAX);
            }
        }
        match change.duration_s.or(change.messages_max) {
            Some(_) => Ok(change),
            None => Err(NOTHING),
        }
    }
}

fn counts_of(added: &[u8], duplicates: &[u8]) -> Result<MessageCounts, CommandError> {
    let number = |text| integer(text).map(|number| number as u64);
    Ok(MessageCounts { added: number(added)?, duplicates: number(duplicates)? })
}

fn xcfgset(ctx: &mut Context<'_, '_>, [key]: [&[u8]; 1], options: Rest<'_>) -> Done {
    let change = Change::parse(Options::of(options), is_replayed(ctx))?;
    let (defaults, scale) = (default_limits(ctx), ctx.scale());
    let (mut db, key, reply) = ctx.open(key);
    let changed = db.edit(key, Missing::Skip, |stream: &mut Editor<'_, Stream>| {
        let known = stream.messages().map(Messages::message_limits);
        let before = known.unwrap_or(defaults);
        let limits = MessageLimits {
            duration_s: change.duration_s.unwrap_or(before.duration_s),
            messages_max: change.messages_max.unwrap_or(before.messages_max),
        };
        let forgotten = stream.messages().map_or(0, Messages::len);
        if known == Some(limits) && change.counts.is_none() && forgotten == 0 {
            return Ok(false);
        }
        scale.weigh(forgotten)?;
        let counts = change.counts.unwrap_or_else(|| counts(stream));
        stream.set_messages(limits, counts);
        Ok::<_, CommandError>(true)
    })?;
    if changed.ok_or(CommandError::NO_SUCH_KEY)? {
        db.event(Event::XCfgSet, key);
    }
    reply.ok();
    Ok(())
}

/// Facts of a message that a primary sends with its name and entry.
struct Replicated {
    at_ms: u64,
    counts: MessageCounts,
}

fn xidmprecord(
    ctx: &mut Context<'_, '_>,
    [key, producer, message, id]: [&[u8]; 4],
    replicated: Rest<'_>,
) -> Done {
    const ABSENT: CommandError = CommandError::new("ERR The stream has no entry with this ID");
    const OTHER: CommandError =
        CommandError::new("ERR The message with these IDs was added as another entry");
    const NAMED: CommandError = CommandError::new("ERR The entry was added as another message");
    let is_replayed = is_replayed(ctx);
    let (name, id) = (named(producer, message)?, id::strict(id, 0)?);
    let replicated = match replicated.exactly() {
        Some([at_ms, added, duplicates]) if is_replayed => {
            let (at_ms, counts) = (integer(at_ms)? as u64, counts_of(added, duplicates)?);
            Some(Replicated { at_ms, counts })
        }
        _ if replicated.is_empty() => None,
        _ => return Err(CommandError::arity(ctx.name())),
    };
    let (limits, now_ms) = (default_limits(ctx), unsigned_ms(ctx.now_ms));
    let (mut db, key, reply) = ctx.open(key);
    let changed = db.edit(key, Missing::Skip, |stream: &mut Editor<'_, Stream>| {
        if let Some(Replicated { at_ms, counts }) = replicated {
            remember_counted(stream, name, id, at_ms, limits, counts);
            return Ok(true);
        }
        if !is_replayed && stream.get(id).is_none() {
            return Err(ABSENT);
        }
        match stream.messages().and_then(|messages| messages.find(name, now_ms)) {
            Some(known) if known == id => return Ok(false),
            Some(_) if !is_replayed => return Err(OTHER),
            _ => {}
        }
        if !is_replayed && stream.messages().is_some_and(|it| it.has_name(id, now_ms)) {
            return Err(NAMED);
        }
        // An ID in the future must not let others expire.
        let at_ms = if is_replayed { id.ms } else { id.ms.min(now_ms) };
        remember(stream, name, id, at_ms, limits);
        Ok(true)
    })?;
    match changed.ok_or(CommandError::NO_SUCH_KEY)? {
        true => db.event(Event::XIdmpRecord, key),
        false => db.confirm_earlier(),
    }
    reply.ok();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_determine_a_name_in_any_order() {
        let of = |fields: &[[&[u8]; 2]]| digest_of(fields.iter().copied());
        assert_eq!(of(&[[b"a", b"1"], [b"b", b"2"]]), of(&[[b"b", b"2"], [b"a", b"1"]]));
        assert_ne!(of(&[[b"a", b"1"], [b"b", b"2"]]), of(&[[b"a", b"2"], [b"b", b"1"]]));
        assert_ne!(of(&[[b"a", b"1"], [b"a", b"1"]]), of(&[[b"a", b"1"]]));
        assert_ne!(of(&[[b"ab", b"c"]]), of(&[[b"a", b"bc"]]));
        // A promoted replica of another version must find it.
        let expected = 0x9fe2_af43_0579_0bd0_7097_66d7_e53a_b693_u128.to_be_bytes();
        assert_eq!(of(&[[b"a", b"1"]]), expected);
    }
}
