//! Commands that wait for keys: BLPOP and its relatives, XREAD BLOCK.
//!
//! Such a command looks at its keys with all of their shards locked. If it finds something it replies
//! like any other. If not, it ends with [`wait`], which registers the client under the same locks. The
//! session is suspended, and the worker goes on with others.
//!
//! Whoever changes such a key serves those who wait for it when its own command is through, on its own
//! thread ([`serve`]): it runs the client's command once more, in the client's name, and posts the reply
//! to the worker that the client belongs to. So the elements that a command has pushed are gone to those
//! who waited before the next command of that connection runs, as users of Redis expect.
//!
//! Three can end the waiting: somebody who serves, the end of the client's patience (or CLIENT UNBLOCK),
//! and the end of the connection. Which of them does is decided by the waiter's
//! [`Claim`](tierce_keyspace::Claim): exactly one.

mod serve;

use std::sync::Arc;

use tierce_keyspace::{Cancelled, Db, DbIndex, Key, Reason, Waiter};
use tierce_net::{ConnKey, ConnMut};
use tierce_wire::number;
use tierce_wire::resp::{Args, OwnedArgs, Proto};

use crate::clients::{Client, ClientFlags};
use crate::error::CommandError;
use crate::execute::{Context, Guard};
use crate::message::Message;
use crate::reply::Reply;
use crate::server::Server;
use crate::service::AnySession;
use crate::session::{ReplyMode, Session};

pub(crate) use serve::serve;

/// Whether a command may wait.
#[derive(Clone, Copy)]
pub enum Mode<'a> {
    /// It may: a client has sent it.
    Client,
    /// It is run in the name of a client that waits already.
    Attempt(&'a Attempt),
    /// It replies at once as if its time were up: nobody would wake it.
    Never,
}

impl Mode<'_> {
    /// Whether the reply may come later.
    pub(crate) fn may_wait(self) -> bool {
        matches!(self, Mode::Client)
    }

    /// Whether an error is none to a client that waits already: somebody has put something else where it
    /// waits, and it goes on waiting for what it wants.
    pub(crate) fn passes_over(self, error: &CommandError) -> bool {
        matches!(self, Mode::Attempt(_)) && *error == CommandError::WRONG_TYPE
    }
}

/// One attempt to serve a client that waits.
#[derive(Debug, Default)]
pub struct Attempt {
    found_nothing: std::cell::Cell<bool>,
}

/// What a command waits for.
pub(crate) struct Wait<'a> {
    /// The keys, all of which are locked.
    pub(crate) keys: &'a [Key<'a>],
    /// The command, as it is to be run when one of them has changed.
    pub(crate) command: OwnedArgs,
    /// How long.
    pub(crate) patience: Patience,
    /// Whether it must be told when a key is deleted.
    pub(crate) minds_removal: bool,
}

/// How long a client waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Patience {
    /// As long as it takes.
    Forever,
    /// At most so many milliseconds.
    Ms(u64),
}

/// Why a client is answered without being served.
const TIME_IS_UP: Reason = Reason(1);
const UNBLOCKED: Reason = Reason(2);
const GONE: Reason = Reason(3);

/// A client that waits, for whoever serves it.
struct Blocked {
    conn: ConnKey,
    client: Arc<Client>,
    db: DbIndex,
    proto: Proto,
    command: OwnedArgs,
}

/// What a session remembers while it waits.
pub struct Waiting {
    waiter: Arc<Waiter>,
    patience: Patience,
    /// Whether the client gets the reply: CLIENT REPLY may have it off.
    is_heard: bool,
}

impl Waiting {
    /// When its patience ends, if it began now.
    pub(crate) fn until_ms(&self, now_ms: u64) -> Option<u64> {
        match self.patience {
            Patience::Forever => None,
            Patience::Ms(ms) => Some(now_ms.saturating_add(ms)),
        }
    }
}

impl Patience {
    /// From an argument in seconds, which may have a fraction.
    pub(crate) fn from_seconds(arg: &[u8]) -> Result<Self, CommandError> {
        const NOT_A_FLOAT: CommandError =
            CommandError::new("ERR timeout is not a float or out of range");
        const OUT_OF_RANGE: CommandError = CommandError::new("ERR timeout is out of range");
        let seconds = number::parse_f64(arg).ok_or(NOT_A_FLOAT)?;
        let ms = (seconds * 1000.0).ceil();
        if ms > i64::MAX as f64 {
            return Err(OUT_OF_RANGE);
        }
        Self::from_signed_ms(ms as i64)
    }

    /// From an argument in milliseconds.
    pub(crate) fn from_ms(arg: &[u8]) -> Result<Self, CommandError> {
        const NOT_AN_INTEGER: CommandError =
            CommandError::new("ERR timeout is not an integer or out of range");
        Self::from_signed_ms(number::parse_i64(arg).ok_or(NOT_AN_INTEGER)?)
    }

    fn from_signed_ms(ms: i64) -> Result<Self, CommandError> {
        match ms {
            ..0 => Err(CommandError::new("ERR timeout is negative")),
            0 => Ok(Patience::Forever),
            _ => Ok(Patience::Ms(ms as u64)),
        }
    }
}

/// What a command with several keys does that finds nothing under any of them.
pub(crate) struct Terms<'a> {
    /// The whole command.
    pub(crate) command: Args<'a>,
    /// `None` for a command that does not wait at all.
    pub(crate) patience: Option<Patience>,
}

/// Offers each of some keys to `serve`, which replies if it finds something there. If it finds nothing
/// anywhere, the client waits. All shards are locked throughout.
pub(crate) fn first_of<'b>(
    ctx: &mut Context<'_, '_>,
    keys: impl Iterator<Item = &'b [u8]>,
    terms: Terms<'_>,
    mut serve: impl FnMut(&mut Db<'_>, Key<'_>, &mut Reply<'_>) -> Result<bool, CommandError>,
) -> Result<(), CommandError> {
    let keys = ctx.keys(keys);
    let Context { guard, session, reply, now_ms, mode, .. } = ctx;
    for key in &keys {
        match serve(&mut guard.db(session.db, key.hash(), *now_ms), *key, reply) {
            Ok(true) => return Ok(()),
            Ok(false) => {}
            Err(error) if mode.passes_over(&error) => {}
            Err(error) => return Err(error),
        }
    }
    match terms.patience {
        Some(patience) => {
            let command = terms.command.to_owned();
            let terms = Wait { keys: &keys, command, patience, minds_removal: false };
            wait(*mode, session, reply, guard, terms);
        }
        None => reply.null_array(),
    }
    Ok(())
}

/// Ends a command that has found nothing: its client waits, if it may.
pub(crate) fn wait(
    mode: Mode<'_>,
    session: &mut Session,
    reply: &mut Reply<'_>,
    guard: &mut Guard<'_, '_>,
    wait: Wait<'_>,
) {
    match mode {
        Mode::Attempt(attempt) => attempt.found_nothing.set(true),
        Mode::Never => reply.null_array(),
        Mode::Client => {
            let client = Arc::clone(&session.client);
            let (conn, db, proto) = (client.conn, session.db, session.proto);
            let about = Blocked { conn, client, db, proto, command: wait.command };
            let waiter = guard.wait(db, wait.keys, wait.minds_removal, about);
            *session.client.waiter.lock() = Some(Arc::clone(&waiter));
            session.client.set(ClientFlags::BLOCKED, true);
            session.blocked = Some(Waiting {
                waiter,
                patience: wait.patience,
                is_heard: session.reply_mode == ReplyMode::On,
            });
        }
    }
}

/// What a worker is told about one of its clients.
#[derive(Clone)]
pub struct Answer {
    conn: ConnKey,
    waiter: Arc<Waiter>,
    content: Content,
}

#[derive(Clone)]
enum Content {
    /// The reply, and where the log ended after what it tells of, if that has changed anything.
    Served {
        reply: Arc<[u8]>,
        logged_at: Option<u64>,
    },
    InVain(Reason),
}

/// Writes the answer to a client that has waited. Whether there was such a client.
pub(crate) fn answer(server: &Server, conn: &mut ConnMut<'_, AnySession>, answer: &Answer) -> bool {
    let (AnySession::Resp(session), output) = conn.split() else { return false };
    let is_its_own = session
        .blocked
        .as_ref()
        .is_some_and(|waiting| Arc::ptr_eq(&waiting.waiter, &answer.waiter));
    if !is_its_own {
        return false;
    }
    let Some(waiting) = end_waiting(session) else { return false };
    if answer.tells_of_a_write() && server.durability.refuses_writes() {
        // What it tells of may be lost. What the client is waiting for besides is not.
        let journal = server.durability.journal();
        conn.release(journal.map_or(u64::MAX, |journal| journal.durable()));
        conn.close_without_held();
        return false;
    }
    match &answer.content {
        Content::Served { reply, logged_at } => {
            if let Some(at) = *logged_at {
                session.acknowledgements.note(at, session.sync_policy(server));
            }
            if waiting.is_heard {
                output.buffer().extend_from_slice(reply);
            }
        }
        Content::InVain(reason) => {
            server.keyspace.locker().forget_waiter(&waiting.waiter);
            write_in_vain(&waiting, *reason, &mut Reply::new(output, session.proto));
        }
    }
    conn.clear_timer();
    conn.resume();
    true
}

fn write_in_vain(waiting: &Waiting, reason: Reason, reply: &mut Reply<'_>) {
    const ERROR: CommandError = CommandError::new("UNBLOCKED client unblocked via CLIENT UNBLOCK");
    if !waiting.is_heard {
        return;
    }
    if reason == UNBLOCKED { reply.error(&ERROR) } else { reply.null_array() }
}

/// The session's time is up. Whether it is answered and goes on; otherwise somebody is just serving it.
pub(crate) fn time_is_up(
    server: &Server,
    session: &mut Session,
    output: &mut tierce_net::Output,
) -> bool {
    let Some(waiting) = &session.blocked else { return true };
    if waiting.waiter.claim.cancel(TIME_IS_UP) != Cancelled::Now {
        return false;
    }
    if let Some(waiting) = end_waiting(session) {
        server.keyspace.locker().forget_waiter(&waiting.waiter);
        write_in_vain(&waiting, TIME_IS_UP, &mut Reply::new(output, session.proto));
    }
    true
}

/// The connection ends.
pub(crate) fn connection_ends(server: &Server, session: &mut Session) {
    if let Some(waiting) = end_waiting(session) {
        waiting.waiter.claim.cancel(GONE);
        server.keyspace.locker().forget_waiter(&waiting.waiter);
    }
}

/// CLIENT UNBLOCK: whether the client was waiting. Its worker takes it out of the queues, which needs the
/// shards of its keys: the caller may hold some.
pub(crate) fn unblock(server: &Server, client: &Client, with_error: bool) -> bool {
    let Some(waiter) = client.waiter.lock().clone() else { return false };
    let reason = if with_error { UNBLOCKED } else { TIME_IS_UP };
    match waiter.claim.cancel(reason) {
        Cancelled::TooLate => false,
        Cancelled::ByAnother => true,
        Cancelled::Now => {
            post(server, waiter, client.conn, Content::InVain(reason));
            true
        }
    }
}

fn post(server: &Server, waiter: Arc<Waiter>, conn: ConnKey, content: Content) {
    if let Some(net) = server.net() {
        net.post(conn.worker, Message::Answer(Answer { conn, waiter, content }));
    }
}

impl Answer {
    fn tells_of_a_write(&self) -> bool {
        matches!(self.content, Content::Served { logged_at: Some(_), .. })
    }

    /// The connection that it is for.
    pub(crate) fn conn(&self) -> ConnKey {
        self.conn
    }
}

fn end_waiting(session: &mut Session) -> Option<Waiting> {
    let waiting = session.blocked.take()?;
    *session.client.waiter.lock() = None;
    session.client.set(ClientFlags::BLOCKED, false);
    Some(waiting)
}
