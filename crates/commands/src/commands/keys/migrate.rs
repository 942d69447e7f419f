//! MIGRATE: moves keys to another server, which gets them as RESTORE.
//!
//! Payloads are made from copies. Then the keys stay locked until the target has confirmed them, so nobody reads a key
//! here that is also there, and no change is lost. If a confirmation does not arrive, the key stays.

use std::io::{BufRead, BufReader, Read, Write};
use std::time::Duration;

use tierce_keyspace::{Event, Key};
use tierce_wire::resp::{Encoder, Proto, Rest};

use super::dump;
use crate::command::{Flags, Group, KeyFlags, KeySpec, Scope};
use crate::commands::cursor::Options;
use crate::commands::options::integer;
use crate::error::CommandError;
use crate::kernel::Kernel;
use crate::outgoing::Stream;
use crate::pipeline::{Context, Defined, Done, at_least};

const MOVED: KeyFlags = KeyFlags(&["RW", "access", "delete"]);
const SOME_MOVED: KeyFlags = KeyFlags(&["RW", "access", "delete", "incomplete"]);

/// Options, and the numbers of their arguments.
const OPTIONS: &[(&str, usize)] = &[("COPY", 0), ("REPLACE", 0), ("AUTH", 1), ("AUTH2", 2)];

pub(super) static COMMANDS: &[Defined] =
    &[Defined::new("migrate", Group::Generic, at_least!(migrate))
        .locks(Scope::InTurns)
        // A script may run twice, and its end may undo it.
        .flags(Flags::WRITE.with(Flags::NOSCRIPT))
        .keys(&[
            KeySpec::at(3, MOVED).unless_word("KEYS", OPTIONS, 6),
            KeySpec::rest_behind("KEYS", OPTIONS, 6, SOME_MOVED),
        ])
        .categories(&["dangerous"])
        .tips(&["nondeterministic_output"])
        .since("2.6.0", "O(N) where N is the length of the values, here and at the target")
        .doc(
            "host port <key | \"\"> destination-db timeout [COPY] [REPLACE] \
         [AUTH password | AUTH2 username password] [KEYS key [key ...]]",
            "Moves keys to another server.",
        )
        .example(
            r#"
        > MIGRATE 127.0.0.1 1 nosuch 0 1000
        NOKEY
        > SET k v
        OK
        > MIGRATE 127.0.0.1 1 k 0 1000
        (error) IOERR error or timeout connecting to the client
        "#,
        )];

const CONNECTING: CommandError =
    CommandError::new("IOERR error or timeout connecting to the client");
const WRITING: CommandError =
    CommandError::new("IOERR error or timeout writing to target instance");
const READING: CommandError =
    CommandError::new("IOERR error or timeout reading to target instance");

/// Maximum length of a reply, which is a line.
const REPLY_BYTES_MAX: u64 = 64 * 1024;

/// Arguments of a call.
struct Call<'a> {
    host: &'a [u8],
    port: &'a [u8],
    keys: Vec<&'a [u8]>,
    db: i64,
    timeout: Duration,
    copies: bool,
    replaces: bool,
    /// Arguments of AUTH, if the target needs it.
    login: Vec<&'a [u8]>,
}

impl<'a> Call<'a> {
    fn parse(
        [host, port, key, db, timeout]: [&'a [u8]; 5],
        mut options: Options<'a>,
    ) -> Result<Self, CommandError> {
        const KEY_AND_KEYS: CommandError = CommandError::new(
            "ERR When using MIGRATE KEYS option, the key argument must be set to the empty string",
        );
        let (mut keys, mut login) = (vec![key], Vec::new());
        let (mut copies, mut replaces) = (false, false);
        while let Some(word) = options.next_word() {
            match &*word {
                b"copy" => copies = true,
                b"replace" => replaces = true,
                b"auth" => login = vec![options.value()?],
                b"auth2" => login = vec![options.value()?, options.value()?],
                b"keys" if key.is_empty() => {
                    keys = options.rest().iter().collect();
                    break;
                }
                b"keys" => return Err(KEY_AND_KEYS),
                _ => return Err(CommandError::SYNTAX),
            }
        }
        let (timeout_ms, db) = (integer(timeout)?, integer(db)?);
        // As in Redis.
        let timeout_ms = if timeout_ms > 0 { timeout_ms as u64 } else { 1000 };
        let timeout = Duration::from_millis(timeout_ms);
        Ok(Self { host, port, keys, db, timeout, copies, replaces, login })
    }
}

/// Key to be moved.
struct Moved<'k> {
    key: Key<'k>,
    /// Remaining milliseconds; 0 for a key without deadline.
    ttl_ms: i64,
    payload: Vec<u8>,
    /// True once the target has it.
    is_confirmed: bool,
}

fn migrate(ctx: &mut Context<'_, '_>, arguments: [&[u8]; 5], options: Rest<'_>) -> Done {
    let call = Call::parse(arguments, Options::of(options))?;
    // A worker never waits for another server.
    ctx.scale().weigh(usize::MAX)?;
    let keys = ctx.keys(call.keys.iter().copied());
    let compresses = dump::compresses(ctx.kernel);
    let payloads = |values: &[Option<tierce_keyspace::Value<'_>>]| {
        let payload = |value: &Option<_>| {
            value.as_ref().map(|value| dump::payload(value, compresses)).transpose()
        };
        values.iter().map(payload).collect::<Result<Vec<_>, _>>()
    };
    ctx.compute(&keys, payloads, |ctx, payloads| {
        let mut moved = with_deadlines(ctx, &keys, payloads);
        if moved.is_empty() {
            ctx.reply.simple("NOKEY");
            return Ok(());
        }
        let result = hand_over(ctx.kernel, &call, &mut moved);
        if !call.copies {
            remove(ctx, &moved);
        }
        result?;
        ctx.reply.ok();
        Ok(())
    })
}

/// Returns the keys that exist and have not expired.
fn with_deadlines<'k>(
    ctx: &mut Context<'_, '_>,
    keys: &[Key<'k>],
    payloads: Vec<Option<Vec<u8>>>,
) -> Vec<Moved<'k>> {
    let (db, moment_ms) = (ctx.caller.db, ctx.moment_ms());
    let moved = |(key, payload): (&Key<'k>, Option<Vec<u8>>)| {
        let payload = payload?;
        let deadline_ms = ctx.guard.db(db, key.hash(), moment_ms).peek(*key)?.deadline_ms();
        let ttl_ms = deadline_ms.map_or(0, |at_ms| (at_ms - moment_ms).max(1));
        Some(Moved { key: *key, ttl_ms, payload, is_confirmed: false })
    };
    keys.iter().zip(payloads).filter_map(moved).collect()
}

/// Removes what the target has confirmed.
fn remove(ctx: &mut Context<'_, '_>, moved: &[Moved<'_>]) {
    for Moved { key, .. } in moved.iter().filter(|moved| moved.is_confirmed) {
        let mut db = ctx.guard.db(ctx.caller.db, key.hash(), ctx.now_ms);
        // The call may name a key twice.
        if db.remove(*key) {
            db.event(Event::Del, *key);
        }
    }
}

/// Sends keys to the target and notes which it confirms. Returns the first error.
fn hand_over(kernel: &Kernel, call: &Call<'_>, moved: &mut [Moved<'_>]) -> Done {
    const NO_NETWORK: CommandError =
        CommandError::new("ERR this program connects to no other server");
    let connect = kernel.connect.get().ok_or(NO_NETWORK)?;
    let text = |word: &[u8]| String::from_utf8_lossy(word).into_owned();
    let port = text(call.port).parse().map_err(|_| CONNECTING)?;
    let stream = connect(&text(call.host), port, call.timeout).map_err(|_| CONNECTING)?;
    let mut target = Target { stream: BufReader::new(stream) };
    // Nothing may be restored in a wrong database.
    if !call.login.is_empty() {
        target.send(&[&[&b"AUTH"[..]], &call.login[..]].concat())?;
        target.reply()??;
    }
    target.send(&[b"SELECT", call.db.to_string().as_bytes()])?;
    target.reply()??;
    for Moved { key, ttl_ms, payload, .. } in &*moved {
        let ttl = ttl_ms.to_string();
        let words: [&[u8]; 5] = [b"RESTORE", key.bytes(), ttl.as_bytes(), payload, b"REPLACE"];
        target.send(&words[..if call.replaces { 5 } else { 4 }])?;
    }
    let mut result = Ok(());
    for one in moved {
        let reply = target.reply()?;
        one.is_confirmed = reply.is_ok();
        result = result.and(reply);
    }
    result
}

/// Connection to the target.
struct Target {
    stream: BufReader<Box<dyn Stream>>,
}

impl Target {
    fn send(&mut self, words: &[&[u8]]) -> Done {
        let mut request = Vec::new();
        let mut encoder = Encoder::new(&mut request, Proto::Resp2);
        encoder.array(words.len());
        words.iter().for_each(|word| encoder.bulk(word));
        self.stream.get_mut().write_all(&request).map_err(|_| WRITING)
    }

    /// Reads a reply. The inner error is one of the target.
    fn reply(&mut self) -> Result<Done, CommandError> {
        let mut line = Vec::new();
        let stream = &mut self.stream;
        stream.take(REPLY_BYTES_MAX).read_until(b'\n', &mut line).map_err(|_| READING)?;
        match line.strip_suffix(b"\r\n").and_then(|line| line.split_first()) {
            Some((b'+', _)) => Ok(Ok(())),
            Some((b'-', error)) => Ok(Err(CommandError::text(format!(
                "ERR Target instance replied with error: {}",
                String::from_utf8_lossy(error)
            )))),
            _ => Err(READING),
        }
    }
}
