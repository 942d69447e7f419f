//! DUMP, RESTORE: single values in Redis' format, for copying them to another server.

use tierce_collections::{Collection, Set};
use tierce_keyspace::{CollectionType, Event, Expiry, Key, Limits, SavedValue, Value};
use tierce_rdb::{Kind, WriterOptions, dump};
use tierce_wire::resp::Rest;

use crate::command::{Flags, Group, KeyFlags, KeySpec, Scope, Weight};
use crate::commands::cursor::Options;
use crate::commands::options::integer;
use crate::config::DirectiveId;
use crate::error::CommandError;
use crate::kernel::Kernel;
use crate::persistence::values::{self, Assembly, Flaw};
use crate::pipeline::{Context, Defined, Done, at_least, exactly};

pub(super) static COMMANDS: &[Defined] = &[
    Defined::new("dump", Group::Generic, exactly!(dump))
        .weighs(Weight::All)
        .locks(Scope::InTurns)
        .flags(Flags::READONLY)
        .keys(&[KeySpec::at(1, KeyFlags::READ)])
        .tips(&["nondeterministic_output"])
        .since("2.6.0", "O(N) where N is the length of the value")
        .doc("key", "Returns a serialized representation of the value stored at a key.")
        .example(
            r#"
            > SET counter 10
            OK
            > DUMP counter
            "\x00\xc0\n..."
            > DUMP nosuch
            (nil)
            "#,
        ),
    Defined::new("restore", Group::Generic, at_least!(restore))
        .locks(Scope::InTurns)
        .flags(Flags::WRITE.with(Flags::DENYOOM))
        .keys(&[KeySpec::at(1, KeyFlags::OVERWRITE)])
        .categories(&["dangerous"])
        .since("2.6.0", "O(N) where N is the length of the value")
        .doc(
            "key ttl serialized-value [REPLACE] [ABSTTL] [IDLETIME seconds] [FREQ frequency]",
            "Creates a key from the serialized representation of a value.",
        )
        .example(
            r#"
            > RESTORE counter 0 "\x00\xc0\n\n\x00n\x9fWE\x0e\xaec\xbb"
            OK
            > GET counter
            "10"
            > RESTORE counter 0 "\x00\xc0\n\n\x00n\x9fWE\x0e\xaec\xbb"
            (error) BUSYKEY Target key name already exists.
            > RESTORE other 0 "not a dump"
            (error) ERR DUMP payload version or checksum are wrong
            "#,
        ),
];

fn dump(ctx: &mut Context<'_, '_>, [key]: [&[u8]; 1]) -> Done {
    let compression = compresses(ctx.kernel);
    let key = ctx.key(0, key);
    ctx.read(&[key], |values, reply| {
        match values {
            // A replica keeps a set whose members have all expired until its primary removes it.
            [Some(Value::Collection(collection))]
                if Set::of(collection).is_some_and(|set| set.live_len() == 0) =>
            {
                reply.null();
            }
            [Some(value)] => reply.bulk(&payload(value, compression)?),
            _ => reply.null(),
        }
        Ok(())
    })
}

/// Returns true if payloads are compressed.
pub(super) fn compresses(kernel: &Kernel) -> bool {
    const COMPRESSION: DirectiveId = DirectiveId::of("rdbcompression");
    kernel.config.settings().is_on(COMPRESSION)
}

/// Returns the serialized form of a value.
pub(super) fn payload(value: &Value<'_>, compression: bool) -> Result<Vec<u8>, CommandError> {
    let mut copy = Vec::new();
    let value = SavedValue::of(value, &mut copy);
    let version = values::version_of(&value);
    let options = WriterOptions { version, compression, ..WriterOptions::default() };
    // A payload has no place for deadlines of members.
    let payload = dump::encode(options, |writer| values::write(writer, &value, |_, _| {}));
    payload.map_err(|error| CommandError::text(format!("ERR {error}")))
}

const BUSY_KEY: CommandError = CommandError::new("BUSYKEY Target key name already exists.");
const BAD_FORMAT: CommandError = CommandError::new("ERR Bad data format");

/// Options of RESTORE after key, time and payload.
#[derive(Clone, Copy, Default)]
struct RestoreOptions {
    replaces: bool,
    is_absolute: bool,
    idle_seconds: Option<u64>,
    /// Only used by policies that count uses.
    frequency: Option<u8>,
}

impl RestoreOptions {
    fn parse(mut options: Options<'_>) -> Result<Self, CommandError> {
        const IDLE_TIME: CommandError =
            CommandError::new("ERR Invalid IDLETIME value, must be >= 0");
        const FREQUENCY: CommandError =
            CommandError::new("ERR Invalid FREQ value, must be >= 0 and <= 255");
        let mut parsed = Self::default();
        while let Some(word) = options.next_word() {
            match &*word {
                b"replace" => parsed.replaces = true,
                b"absttl" => parsed.is_absolute = true,
                b"idletime" if parsed.frequency.is_none() => {
                    let seconds =
                        u64::try_from(integer(options.value()?)?).map_err(|_| IDLE_TIME)?;
                    parsed.idle_seconds = Some(seconds);
                }
                b"freq" if parsed.idle_seconds.is_none() => {
                    let count = u8::try_from(integer(options.value()?)?).map_err(|_| FREQUENCY)?;
                    parsed.frequency = Some(count);
                }
                _ => return Err(CommandError::SYNTAX),
            }
        }
        Ok(parsed)
    }

    /// Converts the time argument to a deadline; zero means never.
    fn expiry(self, ttl: &[u8], now_ms: i64) -> Result<Expiry, CommandError> {
        const NEGATIVE: CommandError = CommandError::new("ERR Invalid TTL value, must be >= 0");
        match integer(ttl)? {
            ..0 => Err(NEGATIVE),
            0 => Ok(Expiry::Never),
            at_ms if self.is_absolute => Ok(Expiry::At(at_ms)),
            after_ms => Ok(Expiry::At(now_ms.saturating_add(after_ms))),
        }
    }
}

/// Complete, valid value of a payload.
enum Restored {
    String(Vec<u8>),
    Collection(Collection),
}

impl Restored {
    fn read(payload: &dump::Payload<'_>, limits: Limits) -> Result<Self, CommandError> {
        let read = || -> Result<Self, Flaw> {
            if let Some(string) = payload.string()? {
                return Ok(Self::String(string));
            }
            let loading = Assembly::begin(payload.kind(), limits);
            let mut loading = loading.expect("all others are collections");
            payload.visit(|part| loading.add(part))?;
            loading.finish().map(Self::Collection)
        };
        if payload.kind() == Kind::Module {
            return Err(CommandError::new(
                "ERR Bad data format: this version lacks values of modules",
            ));
        }
        read().map_err(|_| BAD_FORMAT)
    }
}

fn restore(
    ctx: &mut Context<'_, '_>,
    [key, ttl, serialized_value]: [&[u8]; 3],
    options: Rest<'_>,
) -> Done {
    let options = RestoreOptions::parse(Options::of(options))?;
    ctx.scale().weigh_bytes(serialized_value.len())?;
    let (now_ms, limits) = (ctx.moment_ms(), ctx.kernel.keyspace.limits());
    let key = ctx.key(0, key);
    ctx.holding(|ctx| check_free(ctx, key, &options))?;
    let expiry = options.expiry(ttl, now_ms)?;
    let payload = dump::Payload::parse(serialized_value).map_err(|error| match error {
        dump::PayloadError::UnknownType { .. } => BAD_FORMAT,
        _ => CommandError::WRONG_PAYLOAD,
    })?;
    // The whole payload is read before anything changes.
    let restored = Restored::read(&payload, limits)?;
    ctx.holding(|ctx| {
        check_free(ctx, key, &options)?;
        store(ctx, key, restored, expiry, &options)
    })
}

/// Returns an error if there is a value that must not be replaced.
fn check_free(
    ctx: &mut Context<'_, '_>,
    key: Key<'_>,
    options: &RestoreOptions,
) -> Result<(), CommandError> {
    let mut db = ctx.guard.db(ctx.caller.db, key.hash(), ctx.now_ms);
    if options.replaces || db.peek(key).is_none() { Ok(()) } else { Err(BUSY_KEY) }
}

fn store(
    ctx: &mut Context<'_, '_>,
    key: Key<'_>,
    restored: Restored,
    expiry: Expiry,
    options: &RestoreOptions,
) -> Done {
    let now_ms = ctx.now_ms;
    let mut db = ctx.guard.db(ctx.caller.db, key.hash(), now_ms);
    let was_there = db.peek(key).is_some();
    let deadline_ms = if let Expiry::At(at_ms) = expiry { Some(at_ms) } else { None };
    let is_over = deadline_ms.is_some_and(|at_ms| at_ms <= now_ms);
    match restored {
        Restored::String(bytes) => db.set(key, &bytes[..], expiry)?,
        Restored::Collection(_) if is_over => _ = db.remove(key),
        Restored::Collection(collection) => _ = db.put_collection(key, collection, deadline_ms)?,
    }
    match (was_there, is_over) {
        (true, true) => db.event(Event::Del, key),
        (false, true) => {}
        (_, false) => {
            if was_there {
                // For Redis, the old key is deleted, and this is another one.
                db.event(Event::New, key);
            }
            db.event(Event::Restore, key);
        }
    }
    let moment_ms = ctx.moment_ms();
    let mut db = ctx.guard.db(ctx.caller.db, key.hash(), moment_ms);
    if let Some(seconds) = options.idle_seconds {
        db.set_idle_seconds(key, seconds);
    }
    if let Some(counter) = options.frequency {
        db.set_frequency(key, counter);
    }
    ctx.reply.ok();
    Ok(())
}
