//! DUMP, RESTORE: single values in the format of Redis, to be carried elsewhere.

use tierce_keyspace::{Expiry, IntText, Value};
use tierce_rdb::{Error, Kind, Part, VERSION_REDIS_7_0, WriterOptions, dump};
use tierce_wire::resp::Args;

use crate::command::{Flags, Group, KeyFlags, KeySpec, Spec};
use crate::commands::options::integer;
use crate::config::DirectiveId;
use crate::error::CommandError;
use crate::execute::Context;

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
    // What every Redis from 7.0 on takes.
    let options = WriterOptions { version: VERSION_REDIS_7_0, compression, checksum: true };
    let (mut db, key, reply) = ctx.open(args.at(1));
    let Some(value) = db.get(key) else {
        reply.null();
        return Ok(());
    };
    let payload = dump::encode(options, |writer| match value {
        Value::Str(string) => writer.string(string.bytes(&mut IntText::new())),
        other => unreachable!("the keyspace has strings only, and this is {other:?}"),
    });
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
    /// Checked, and of no effect: keys do not count their uses.
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

fn restore(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let options = RestoreOptions::parse(args.from(4))?;
    let now_ms = ctx.now_ms;
    let (mut db, key, reply) = ctx.open(args.at(1));
    if !options.replaces && db.peek(key).is_some() {
        return Err(BUSY_KEY);
    }
    let expiry = options.expiry(args.at(2), now_ms)?;
    let payload = dump::Payload::parse(args.at(3)).map_err(|error| match error {
        dump::PayloadError::UnknownType { .. } => BAD_FORMAT,
        _ => WRONG_PAYLOAD,
    })?;
    if payload.kind() != Kind::String {
        return Err(CommandError::text(format!(
            "ERR Bad data format: this version has strings only, and this is of type {:?}",
            payload.kind()
        )));
    }
    let mut stored = Ok(());
    payload
        .visit(|part| {
            if let Part::String(bytes) = part {
                stored = db.set(key, bytes, expiry);
            }
            Ok::<_, Error>(())
        })
        .map_err(|_| BAD_FORMAT)?;
    stored?;
    if let Some(seconds) = options.idle_seconds {
        db.set_idle_seconds(key, seconds);
    }
    reply.ok();
    Ok(())
}
