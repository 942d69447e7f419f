//! Serving those who wait for a key that has changed.

use std::sync::Arc;

use tierce_keyspace::{Locker, Returned, WaitKey, Waiter};
use tierce_net::Output;

use super::{Attempt, Blocked, Content, Mode, post};
use crate::execute::{self, Context, Guard};
use crate::reply::Reply;
use crate::server::Server;
use crate::session::Session;
use crate::stats::Counters;

/// Serves all who wait for keys that were changed with this locker. What they change in turn may be of
/// use to others, who are served, too.
#[cold]
pub(crate) fn serve<'k>(
    server: &'k Server,
    locker: &mut Locker<'k>,
    counters: &'k Counters,
    now_ms: i64,
) {
    while locker.has_ready() {
        for key in locker.take_ready() {
            serve_key(server, locker, counters, &key, now_ms);
        }
    }
}

fn serve_key<'k>(
    server: &'k Server,
    locker: &mut Locker<'k>,
    counters: &'k Counters,
    key: &WaitKey,
    now_ms: i64,
) {
    let mut after = None;
    while let Some(waiter) = locker.claim_waiter(key, after, now_ms) {
        after = Some(waiter.ticket());
        serve_one(server, locker, counters, &waiter, now_ms);
    }
}

/// Runs the command of a client that was claimed, and answers it if there is something for it.
fn serve_one<'k>(
    server: &'k Server,
    locker: &mut Locker<'k>,
    counters: &'k Counters,
    waiter: &Arc<Waiter>,
    now_ms: i64,
) {
    let blocked = waiter.about::<Blocked>().expect("only this module makes waiters");
    loop {
        if let Some(reply) = attempt(server, locker, counters, blocked, now_ms) {
            waiter.claim.done();
            locker.forget_waiter(waiter);
            let logged_at = note_logged(server, locker);
            post(
                server,
                Arc::clone(waiter),
                blocked.conn,
                Content::Served { reply: reply.into(), logged_at },
            );
            return;
        }
        match waiter.claim.give_back() {
            Returned::Waiting => return,
            Returned::LookAgain => {}
            Returned::Answer(reason) => {
                locker.forget_waiter(waiter);
                let content = Content::InVain(reason);
                post(server, Arc::clone(waiter), blocked.conn, content);
                return;
            }
        }
    }
}

/// The reply, unless there is nothing for this client.
fn attempt<'k>(
    server: &'k Server,
    locker: &mut Locker<'k>,
    counters: &'k Counters,
    blocked: &Blocked,
    now_ms: i64,
) -> Option<Vec<u8>> {
    let args = blocked.command.as_args();
    let command = execute::resolve(server, args).ok()?;
    let attempt = Attempt::default();
    let mut session = Session::new(Arc::clone(&blocked.client), true);
    (session.db, session.proto) = (blocked.db, blocked.proto);
    let mut output = Output::new();
    let reply = Reply::new(&mut output, blocked.proto);
    let mode = Mode::Attempt(&attempt);
    let session = &mut session;
    let mut ctx = Context {
        server,
        session,
        guard: Guard::new(locker),
        reply,
        command,
        counters,
        now_ms,
        mode,
        large: None,
        hashed: None,
    };
    match ctx.enter(args) {
        Ok(()) if attempt.found_nothing.get() => return None,
        Ok(()) => {}
        Err(error) => ctx.reply.error(&error),
    }
    Some(output.into_bytes())
}

/// Where the log ends, if anything was logged with this locker; it is put there first.
fn note_logged(server: &Server, locker: &mut Locker<'_>) -> Option<u64> {
    let journal = server.durability.journal()?;
    locker.release();
    locker.has_logged().then(|| journal.appended())
}
