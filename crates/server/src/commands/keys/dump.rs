//! DUMP, RESTORE: single values in the format of Redis, to be carried elsewhere.

use tierce_collections::Collection;
use tierce_keyspace::{Expiry, Limits, SavedValue};
use tierce_rdb::{Kind, Value, WriterOptions, dump};
use tierce_wire::resp::Args;

use crate::command::{Flags, Group, KeyFlags, KeySpec, Spec};
use crate::commands::options::integer;
use crate::config::DirectiveId;
use crate::error::CommandError;
use crate::execute::Context;
use crate::persistence::values::{self, Assembly, Flaw};

pub(super) static COMMANDS: &[Spec] = &[
    Spec::new("dump", 2, Group::Generic, dump)
        .flags(Flags::READONLY)
        .keys(&[KeySpec::at(1, KeyFlags::READ)])
        .tips(&["nondeterministic_output"])
        .doc(
            "2.6.0",
            "O(N) where N is the length of the value",
            "key",
            "Returns a serialized representation of the value stored at a key.",
        ),
    Spec::new("restore", -4, Group::Generic, restore)
        .flags(Flags::WRITE.with(Flags::DENYOOM))
        .keys(&[KeySpec::at(1, KeyFlags::OVERWRITE)])
        .categories(&["dangerous"])
        .doc(
            "2.6.0",
            "O(N) where N is the length of the value",
            "key ttl serialized-value [REPLACE] [ABSTTL] [IDLETIME seconds] [FREQ frequency]",
            "Creates a key from the serialized representation of a value.",
        ),
];

type Done = Result<(), CommandError>;

fn dump(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    const COMPRESSION: DirectiveId = DirectiveId::of("rdbcompression");
    let compression = ctx.server.config.settings().is_on(COMPRESSION);
    let (mut db, key, reply) = ctx.open(args.at(1));
    let Some(value) = db.get(key)? else {
        reply.null();
        return Ok(());
    };
    let mut copy = Vec::new();
    let value = SavedValue::of(&value, &mut copy);
    let version = values::version_of(&value);
    let options = WriterOptions { version, compression, checksum: true };
    let payload = dump::encode(options, |writer| values::write(writer, &value));
    let payload = payload.map_err(|error| CommandError::text(format!("ERR {error}")))?;
    reply.bulk(&payload);
    Ok(())
}

const BUSY_KEY: CommandError = CommandError::new("BUSYKEY Target key name already exists.");
const WRONG_PAYLOAD: CommandError =
    CommandError::new("ERR DUMP payload version or checksum are wrong");
const BAD_FORMAT: CommandError = CommandError::new("ERR Bad data format");

/// What RESTORE is told beside key, time and payload.
#[derive(Clone, Copy, Default)]
struct RestoreOptions {
    replaces: bool,
    is_absolute: bool,
    idle_seconds: Option<u64>,
    /// Of effect under the policies that count uses.
    frequency: Option<u8>,
}

impl RestoreOptions {
    fn parse(options: Args<'_>) -> Result<Self, CommandError> {
        const IDLE_TIME: CommandError =
            CommandError::new("ERR Invalid IDLETIME value, must be >= 0");
        const FREQUENCY: CommandError =
            CommandError::new("ERR Invalid FREQ value, must be >= 0 and <= 255");
        let mut parsed = Self::default();
        let mut at = 0;
        while at < options.len() {
            let has_value = at + 1 < options.len();
            match options[at].to_ascii_lowercase().as_slice() {
                b"replace" => parsed.replaces = true,
                b"absttl" => parsed.is_absolute = true,
                b"idletime" if has_value && parsed.frequency.is_none() => {
                    at += 1;
                    let seconds = u64::try_from(integer(&options[at])?).map_err(|_| IDLE_TIME)?;
                    parsed.idle_seconds = Some(seconds);
                }
                b"freq" if has_value && parsed.idle_seconds.is_none() => {
                    at += 1;
                    let count = u8::try_from(integer(&options[at])?).map_err(|_| FREQUENCY)?;
                    parsed.frequency = Some(count);
                }
                _ => return Err(CommandError::SYNTAX),
            }
            at += 1;
        }
        Ok(parsed)
    }

    /// When the key expires, from the argument of that time; zero stands for never.
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

/// The value in a payload, whole and sound.
enum Restored {
    String(Vec<u8>),
    Collection(Collection),
}

impl Restored {
    fn read(payload: &dump::Payload<'_>, limits: Limits) -> Result<Self, CommandError> {
        let read = || -> Result<Self, Flaw> {
            let Some(mut loading) = Assembly::begin(payload.kind(), limits) else {
                return match payload.value()? {
                    Value::String(string) => Ok(Self::String(string)),
                    other => unreachable!("{:?} is put together from parts", other.kind()),
                };
            };
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

fn restore(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let options = RestoreOptions::parse(args.from(4))?;
    let (now_ms, limits) = (ctx.now_ms, ctx.server.keyspace.limits());
    let (mut db, key, reply) = ctx.open(args.at(1));
    if !options.replaces && db.peek(key).is_some() {
        return Err(BUSY_KEY);
    }
    let expiry = options.expiry(args.at(2), now_ms)?;
    let payload = dump::Payload::parse(args.at(3)).map_err(|error| match error {
        dump::PayloadError::UnknownType { .. } => BAD_FORMAT,
        _ => WRONG_PAYLOAD,
    })?;
    // All of it, before anything changes.
    match Restored::read(&payload, limits)? {
        Restored::String(bytes) => db.set(key, &bytes[..], expiry)?,
        Restored::Collection(collection) => {
            let deadline_ms = if let Expiry::At(at_ms) = expiry { Some(at_ms) } else { None };
            if deadline_ms.is_some_and(|at_ms| at_ms <= now_ms) {
                db.remove(key);
            } else {
                db.put_collection(key, collection, deadline_ms)?;
            }
        }
    }
    if let Some(seconds) = options.idle_seconds {
        db.set_idle_seconds(key, seconds);
    }
    if let Some(counter) = options.frequency {
        db.set_frequency(key, counter);
    }
    reply.ok();
    Ok(())
}
