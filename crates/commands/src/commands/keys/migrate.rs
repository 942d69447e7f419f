//! MIGRATE: moves keys to another server, which gets them as RESTORE.
//!
//! The connection is made first, and the payloads from copies. Then the keys stay locked until the target has confirmed
//! them: no client can read or change a key here that is already there. If a confirmation does not arrive, the key
//! stays. A slow target cannot keep keys locked for ever: all of them together have the timeout, and [`BYTE_TIME`] for
//! each byte. A thread of its own waits for the target: [`Kernel::migrations`].

use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};

use tierce_keyspace::{Event, Key, Value};
use tierce_wire::resp::{Encoder, Proto, Rest};

use super::dump;
use crate::clients::Client;
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
        // A script or a transaction may run twice or be undone, and locks more than the keys.
        .flags(Flags::WRITE.with(Flags::NOSCRIPT).with(Flags::NO_MULTI))
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
const REPLY_BYTES_MAX: usize = 64 * 1024;

/// Bytes that the target has to take within the timeout.
const WRITE_BYTES: usize = 64 * 1024;

/// Time for each byte of a payload, besides the timeout: 1 MB/s.
const BYTE_TIME: Duration = Duration::from_micros(1);

/// Time for each key, besides.
const KEY_TIME: Duration = Duration::from_micros(100);

/// Maximum timeout, far beyond any patience.
const TIMEOUT_MS_MAX: i64 = u32::MAX as i64;

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
        let timeout_ms = if timeout_ms > 0 { timeout_ms.min(TIMEOUT_MS_MAX) } else { 1000 };
        let timeout = Duration::from_millis(timeout_ms as u64);
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
    let (db, now_ms) = (ctx.caller.db, ctx.now_ms);
    let exist = ctx.holding(|ctx| {
        Ok(keys.iter().any(|key| ctx.guard.db(db, key.hash(), now_ms).peek(*key).is_some()))
    })?;
    if !exist {
        ctx.reply.simple("NOKEY");
        return Ok(());
    }
    let (kernel, client) = (ctx.kernel, ctx.caller.client.clone());
    let mut target = Target::connect(kernel, &client, &call)?;
    let compresses = dump::compresses(kernel);
    let payloads = |values: &[Option<Value<'_>>]| {
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
        let result = target.restore(&call, &mut moved);
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

/// Connection to the target. Each reply, and the writing of each [`WRITE_BYTES`], has to be complete within the
/// timeout, and all of them until `end`. It is given up when the server or the client ends.
struct Target<'a> {
    stream: Box<dyn Stream>,
    timeout: Duration,
    end: Instant,
    kernel: &'a Kernel,
    client: &'a Client,
    /// Bytes received behind the last reply.
    input: Vec<u8>,
}

impl<'a> Target<'a> {
    /// Connects, authenticates, and selects the database: nothing may be restored in a wrong one.
    fn connect(
        kernel: &'a Kernel,
        client: &'a Client,
        call: &Call<'_>,
    ) -> Result<Self, CommandError> {
        const NO_NETWORK: CommandError =
            CommandError::new("ERR this program connects to no other server");
        let connect = kernel.connect.get().ok_or(NO_NETWORK)?;
        let gives_up = || gives_up(kernel, client);
        if gives_up() {
            return Err(CONNECTING);
        }
        let text = |word: &[u8]| String::from_utf8_lossy(word).into_owned();
        let port = text(call.port).parse().map_err(|_| CONNECTING)?;
        let timeout = call.timeout;
        let stream = connect(&text(call.host), port, timeout, &gives_up).map_err(|_| CONNECTING)?;
        let end = Instant::now() + timeout;
        let mut target = Self { stream, timeout, end, kernel, client, input: Vec::new() };
        if !call.login.is_empty() {
            target.send(&[&[&b"AUTH"[..]], &call.login[..]].concat())?;
            target.reply()??;
        }
        target.send(&[b"SELECT", call.db.to_string().as_bytes()])?;
        target.reply()??;
        Ok(target)
    }

    /// Sends keys and notes which are confirmed. Returns the first error.
    fn restore(&mut self, call: &Call<'_>, moved: &mut [Moved<'_>]) -> Done {
        let bytes: usize = moved.iter().map(|one| one.payload.len()).sum();
        let count = |number| u32::try_from(number).unwrap_or(u32::MAX);
        let work = BYTE_TIME * count(bytes) + KEY_TIME * count(moved.len());
        self.end = Instant::now() + self.timeout + work;
        for Moved { key, ttl_ms, payload, .. } in &*moved {
            let ttl = ttl_ms.to_string();
            let words: [&[u8]; 5] = [b"RESTORE", key.bytes(), ttl.as_bytes(), payload, b"REPLACE"];
            self.send(&words[..if call.replaces { 5 } else { 4 }])?;
        }
        let mut result = Ok(());
        for one in moved {
            let reply = self.reply()?;
            one.is_confirmed = reply.is_ok();
            result = result.and(reply);
        }
        result
    }

    fn send(&mut self, words: &[&[u8]]) -> Done {
        let mut request = Vec::new();
        let mut encoder = Encoder::new(&mut request, Proto::Resp2);
        encoder.array(words.len());
        words.iter().for_each(|word| encoder.bulk(word));
        for mut part in request.chunks(WRITE_BYTES) {
            let until = self.step_end();
            while !part.is_empty() {
                let written = self.stream.write(part);
                let written = self.progress(written, until).ok_or(WRITING)?;
                part = &part[written..];
            }
        }
        Ok(())
    }

    /// Reads a reply. The inner error is one of the target.
    fn reply(&mut self) -> Result<Done, CommandError> {
        let until = self.step_end();
        let end = loop {
            if let Some(end) = self.input.iter().position(|byte| *byte == b'\n') {
                break end;
            }
            let mut buffer = [0; 4096];
            let read = self.stream.read(&mut buffer);
            let read = self.progress(read, until).ok_or(READING)?;
            self.input.extend_from_slice(&buffer[..read]);
            if self.input.len() > REPLY_BYTES_MAX {
                return Err(READING);
            }
        };
        let line: Vec<u8> = self.input.drain(..=end).collect();
        match line.trim_ascii_end().split_first() {
            Some((b'+', _)) => Ok(Ok(())),
            Some((b'-', error)) => Ok(Err(CommandError::text(format!(
                "ERR Target instance replied with error: {}",
                String::from_utf8_lossy(error)
            )))),
            _ => Err(READING),
        }
    }

    /// Returns the time at which the next step has to be complete.
    fn step_end(&self) -> Instant {
        self.end.min(Instant::now() + self.timeout)
    }

    /// Returns the bytes of a successful call of the stream, 0 if it has to be repeated, and `None` if it failed.
    fn progress(&self, result: io::Result<usize>, until: Instant) -> Option<usize> {
        match result {
            Ok(0) => None,
            Ok(bytes) if Instant::now() <= until => Some(bytes),
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
                    || error.kind() == ErrorKind::Interrupted =>
            {
                (Instant::now() <= until && !gives_up(self.kernel, self.client)).then_some(0)
            }
            Ok(_) | Err(_) => None,
        }
    }
}

/// Returns true if the client or the server ends, so that waiting for the target is of no use.
fn gives_up(kernel: &Kernel, client: &Client) -> bool {
    client.is_closing() || client.is_gone() || kernel.shutdown().reason().is_some()
}
