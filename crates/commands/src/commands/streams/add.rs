//! XADD, XTRIM: add entries, and remove the oldest.

use tierce_collections::Stream;
use tierce_collections::stream::{Keep, StreamId, Trim, TrimPrecision};
use tierce_keyspace::{Db, Editor, Event, Key, Missing};
use tierce_wire::resp::Rest;

use super::common::{DELETE, unsigned_ms};
use super::delete::{References, trim, weigh_trim};
use super::id::{self, NewId};
use super::messages::{self, Message};
use super::reply;
use crate::command::{Flags, Group, KeyFlags, KeySpec};
use crate::commands::cursor::Options;
use crate::commands::options::integer;
use crate::error::CommandError;
use crate::pipeline::{Context, Defined, Done, Scale, at_least};

pub(super) static COMMANDS: &[Defined] = &[
    Defined::new("xadd", Group::Stream, at_least!(xadd))
        .flags(Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST))
        .keys(&[KeySpec::at(1, KeyFlags::UPDATE)
            .note("UPDATE instead of INSERT because of the optional trimming feature")])
        .tips(&["nondeterministic_output"])
        .since(
            "5.0.0",
            "O(1) when adding a new entry, O(N) when trimming where N being the number of \
                 entries evicted.",
        )
        .doc(
            "key [NOMKSTREAM] [KEEPREF | DELREF | ACKED] [IDMPAUTO producer-id | IDMP producer-id \
                 idempotent-id] [<MAXLEN | MINID> [\"=\" | \"~\"] threshold [LIMIT count]] <\"*\" | \
                 id> field value [field value ...]",
            "Appends an entry to a stream. The key is created if it does not exist. May remove the \
                 oldest entries, as XTRIM. If a producer repeats a message, which IDMP names and \
                 IDMPAUTO recognizes by its fields, nothing is added, and the ID of the first entry \
                 is returned.",
        )
        .example(
            r#"
            > XADD readings * sensor 17 celsius 21.5
            "...-0"
            > XADD events 1-1 type login
            "1-1"
            > XADD events 1-* type logout
            "1-2"
            > XADD events MAXLEN 2 2-0 type login
            "2-0"
            > XRANGE events - +
            1) 1) "1-2"
               2) 1) "type"
                  2) "logout"
            2) 1) "2-0"
               2) 1) "type"
                  2) "login"
            > XADD orders IDMP shop-1 order-17 * total 20
            "...-0"
            > XADD orders IDMP shop-1 order-17 * total 20
            "...-0"
            > XLEN orders
            (integer) 1
            > XADD events 1-5 type late
            (error) ERR The ID specified in XADD is equal or smaller than the target stream top item
            "#,
        ),
    Defined::new("xtrim", Group::Stream, at_least!(xtrim))
        .flags(Flags::WRITE)
        .keys(&[KeySpec::at(1, DELETE)])
        .tips(&["nondeterministic_output"])
        .since(
            "5.0.0",
            "O(N), with N being the number of evicted entries. Constant times are very small \
                 however, since entries are organized in blocks containing multiple entries that \
                 can be released in a single deallocation.",
        )
        .doc(
            "key <MAXLEN | MINID> [\"=\" | \"~\"] threshold [LIMIT count] [KEEPREF | DELREF | \
                 ACKED]",
            "Removes the oldest entries of a stream. DELREF also removes them from what is pending \
                 in groups. ACKED removes only entries that all groups have read and acknowledged.",
        )
        .example(
            r#"
            > XADD events 1-1 n 1
            "1-1"
            > XADD events 2-1 n 2
            "2-1"
            > XADD events 3-1 n 3
            "3-1"
            > XTRIM events MAXLEN 2
            (integer) 1
            > XTRIM events MINID 3
            (integer) 1
            > XRANGE events - +
            1) 1) "3-1"
               2) 1) "n"
                  2) "3"
            "#,
        ),
];

/// Parsed options of trimming.
#[derive(Default)]
struct Trimming {
    keep: Option<Keep>,
    is_approximate: bool,
    limit: Option<i64>,
    references: Option<References>,
}

impl Trimming {
    /// Takes the next option with its values; returns `false` if it is none of these.
    fn take(&mut self, options: &mut Options<'_>) -> Result<bool, CommandError> {
        const TWICE: CommandError = CommandError::new(
            "ERR syntax error, MAXLEN and MINID options at the same time are not compatible",
        );
        const NEGATIVE_LEN: CommandError =
            CommandError::new("ERR The MAXLEN argument must be >= 0.");
        const NEGATIVE_LIMIT: CommandError =
            CommandError::new("ERR The LIMIT argument must be >= 0.");
        if References::take(&mut self.references, options) {
            return Ok(true);
        }
        // The last argument is no other option, because no value follows it.
        if options.left() < 2 {
            return Ok(false);
        }
        if options.take("limit") {
            let limit = integer(options.value()?)?;
            if limit < 0 {
                return Err(NEGATIVE_LIMIT);
            }
            self.limit = Some(limit);
            return Ok(true);
        }
        let is_id = options.take("minid");
        if !is_id && !options.take("maxlen") {
            return Ok(false);
        }
        if self.keep.is_some() {
            return Err(TWICE);
        }
        // A sign without a following argument is the value.
        let has_sign = options.left() > 1;
        let sign = options.next_if(|word| has_sign && matches!(word, b"~" | b"="));
        self.is_approximate = sign == Some(b"~");
        let value = options.value()?;
        self.keep = Some(if is_id {
            Keep::From(id::strict(value, 0)?)
        } else {
            let len = u64::try_from(integer(value)?).map_err(|_| NEGATIVE_LEN)?;
            Keep::Newest(usize::try_from(len).unwrap_or(usize::MAX))
        });
        Ok(true)
    }

    /// Returns the trimming, if any. `node_entries_max` is the limit of entries in a block.
    fn finish(self, node_entries_max: usize) -> Result<Option<(Trim, References)>, CommandError> {
        const NO_STRATEGY: CommandError = CommandError::new(
            "ERR syntax error, LIMIT cannot be used without specifying a trimming strategy",
        );
        const EXACT: CommandError = CommandError::new(
            "ERR syntax error, LIMIT cannot be used without the special ~ option",
        );
        if self.keep.is_none() && self.limit.is_some_and(|limit| limit != 0) {
            return Err(NO_STRATEGY);
        }
        if self.limit.is_some() && !self.is_approximate {
            return Err(EXACT);
        }
        let Some(keep) = self.keep else { return Ok(None) };
        let precision = if self.is_approximate {
            let limit = match self.limit {
                Some(limit) => usize::try_from(limit).unwrap_or(usize::MAX),
                None => default_limit(node_entries_max),
            };
            TrimPrecision::Blocks { limit }
        } else {
            TrimPrecision::Exact
        };
        Ok(Some((Trim { keep, precision }, self.references.unwrap_or_default())))
    }
}

/// Returns the default limit of removed entries: those of a hundred blocks, so that no call takes long.
fn default_limit(node_entries_max: usize) -> usize {
    const BLOCKS: usize = 100;
    const WITHOUT_LIMIT: usize = 10_000;
    const MAX: usize = 1_000_000;
    if node_entries_max == 0 {
        return WITHOUT_LIMIT;
    }
    node_entries_max.saturating_mul(BLOCKS).min(MAX)
}

/// Arguments of XADD.
struct Addition<'a> {
    missing: Missing,
    trim: Option<(Trim, References)>,
    /// Name of the message, if it may be repeated.
    message: Option<Message<'a>>,
    id: NewId,
    /// Names and values, alternating.
    fields: Rest<'a>,
}

impl<'a> Addition<'a> {
    fn parse(ctx: &Context<'_, '_>, mut arguments: Options<'a>) -> Result<Self, CommandError> {
        const EXPLICIT: CommandError =
            CommandError::new("ERR IDMP and IDMPAUTO can only be used with * as the ID");
        let (mut missing, mut trimming, mut message) = (Missing::Create, Trimming::default(), None);
        // No ID begins with a letter, so that the usual call compares no words.
        let is_option = |next: &[u8]| next.first().is_some_and(u8::is_ascii_alphabetic);
        while arguments.rest().get(0).is_some_and(is_option) {
            if arguments.take("nomkstream") {
                missing = Missing::Skip;
            } else if !trimming.take(&mut arguments)?
                && !Message::take(&mut message, &mut arguments)?
            {
                break;
            }
        }
        let id = arguments.next_value().map(NewId::parse).transpose()?;
        let trim = trimming.finish(ctx.kernel.keyspace.limits().stream.node_entries_max)?;
        let id = id.ok_or_else(|| CommandError::arity(ctx.name()))?;
        // Another server states the ID that it has made.
        if message.is_some() && id != NewId::Now && !messages::is_replayed(ctx) {
            return Err(EXPLICIT);
        }
        Ok(Self { missing, trim, message, id, fields: arguments.rest() })
    }

    /// Adds the entry, and trims the stream. Returns the ID and the number of trimmed entries.
    #[inline]
    fn apply(
        &self,
        stream: &mut Editor<'_, Stream>,
        fields: impl ExactSizeIterator<Item = [&'a [u8]; 2]> + Clone,
        now_ms: u64,
        scale: Scale,
    ) -> Result<(StreamId, usize), CommandError> {
        if let Some((trim, references)) = self.trim {
            weigh_trim(scale, stream, trim, references)?;
        }
        let id = new_id(stream, self.id, now_ms)?;
        stream.add(id, fields.map(|[name, value]| (name, value)));
        let trimmed = self.trim.map_or(0, |(what, references)| trim(stream, what, references));
        Ok((id, trimmed))
    }
}

/// Bytes that are hashed in the time for one element.
const HASHED_BYTES: usize = 16;

fn xadd(ctx: &mut Context<'_, '_>, [key]: [&[u8]; 1], arguments: Rest<'_, 3>) -> Done {
    const ZERO: CommandError =
        CommandError::new("ERR The ID specified in XADD must be greater than 0-0");
    let addition = Addition::parse(ctx, Options::of(arguments))?;
    let fields = addition.fields.groups().filter(|fields| fields.len() > 0);
    let fields = fields.ok_or_else(|| CommandError::arity(ctx.name()))?;
    if addition.id == NewId::Given(StreamId::MIN) {
        return Err(ZERO);
    }
    if addition.message.is_some() {
        return add_once(ctx, key, &addition, fields);
    }
    let (now_ms, scale) = (unsigned_ms(ctx.now_ms), ctx.scale());
    let (mut db, key, reply) = ctx.open(key);
    let added = db.edit(key, addition.missing, |stream: &mut Editor<'_, Stream>| {
        addition.apply(stream, fields, now_ms, scale)
    })?;
    match added {
        Some((id, trimmed)) => {
            publish(&db, key, trimmed);
            reply::id(reply, id);
        }
        None => reply.null(),
    }
    Ok(())
}

fn publish(db: &Db<'_>, key: Key<'_>, trimmed: usize) {
    db.event(Event::XAdd, key);
    if trimmed > 0 {
        db.event(Event::XTrim, key);
    }
}

/// Adds a message, unless it was added before.
#[cold]
fn add_once<'a>(
    ctx: &mut Context<'_, '_>,
    key: &[u8],
    addition: &Addition<'a>,
    fields: impl ExactSizeIterator<Item = [&'a [u8]; 2]> + Clone,
) -> Done {
    let Some(message) = &addition.message else { return Ok(()) };
    let (now_ms, scale) = (unsigned_ms(ctx.now_ms), ctx.scale());
    if message.is_automatic() {
        let bytes = fields.clone().flatten().map(<[u8]>::len).sum::<usize>();
        scale.weigh(bytes / HASHED_BYTES)?;
    }
    let mut digest = Default::default();
    let name = message.name(fields.clone(), &mut digest);
    let (limits, is_replayed) = (messages::default_limits(ctx), messages::is_replayed(ctx));
    let (mut db, key, reply) = ctx.open(key);
    let added = db.edit(key, addition.missing, |stream: &mut Editor<'_, Stream>| {
        if !is_replayed && let Some(id) = stream.find_duplicate(name, now_ms) {
            return Ok((id, None));
        }
        let (id, trimmed) = addition.apply(stream, fields, now_ms, scale)?;
        // The time stands still for commands of another server.
        let at_ms = if is_replayed { id.ms } else { now_ms };
        messages::remember(stream, name, id, at_ms, limits);
        Ok::<_, CommandError>((id, Some(trimmed)))
    })?;
    match added {
        Some((id, trimmed)) => {
            match trimmed {
                Some(trimmed) => publish(&db, key, trimmed),
                None => db.confirm_earlier(),
            }
            reply::id(reply, id);
        }
        None => reply.null(),
    }
    Ok(())
}

fn new_id(stream: &Stream, id: NewId, now_ms: u64) -> Result<StreamId, CommandError> {
    const EXHAUSTED: CommandError = CommandError::new(
        "ERR The stream has exhausted the last possible ID, unable to add more items",
    );
    const NOT_ABOVE: CommandError = CommandError::new(
        "ERR The ID specified in XADD is equal or smaller than the target stream top item",
    );
    let last = stream.state().last_id;
    if last == StreamId::MAX {
        return Err(EXHAUSTED);
    }
    id.after(last, now_ms).ok_or(NOT_ABOVE)
}

fn xtrim(ctx: &mut Context<'_, '_>, [key]: [&[u8]; 1], options: Rest<'_, 2>) -> Done {
    const NO_STRATEGY: CommandError =
        CommandError::new("ERR syntax error, XTRIM must be called with a trimming strategy");
    let (mut trimming, mut options) = (Trimming::default(), Options::of(options));
    while trimming.take(&mut options)? {}
    options.end()?;
    let parsed = trimming.finish(ctx.kernel.keyspace.limits().stream.node_entries_max)?;
    let (what, references) = parsed.ok_or(NO_STRATEGY)?;
    let scale = ctx.scale();
    let (mut db, key, reply) = ctx.open(key);
    let trimmed = db.edit(key, Missing::Skip, |stream: &mut Editor<'_, Stream>| {
        weigh_trim(scale, stream, what, references)?;
        Ok::<_, CommandError>(trim(stream, what, references))
    })?;
    if trimmed.is_some_and(|trimmed| trimmed > 0) {
        db.event(Event::XTrim, key);
    }
    reply.count(trimmed.unwrap_or(0));
    Ok(())
}
