//! Messages to a worker from other threads: answers for its clients, and news for all of them.

use std::sync::Arc;

use tierce_keyspace::{Freed, take_unserved};
use tierce_net::{Conns, Now};

use crate::blocking;
use crate::caller::Caller;
use crate::clients::Client;
use crate::connection::{self, AnySession, answer};
use crate::dispatcher::{Dispatcher, Worker, note_backlogs, note_state};
use crate::listening::EVENTS;
use crate::message::Notice;
use crate::pipeline;
use crate::pipeline::handoff;
use crate::server::{Message, conn_at};
use crate::stats::Stat;
use crate::waiting::{self, ConnAddress, Obstacle};

impl Dispatcher {
    /// Handles a message to one worker, or to all.
    pub(crate) fn receive(
        &self,
        worker: &mut Worker,
        message: Message,
        conns: &mut Conns<'_, AnySession>,
    ) {
        match message {
            Message::Notice(notice) => self.tell(worker, notice, conns),
            Message::Answer(answer) => {
                let key = conn_at(answer.to.conn());
                let Some(mut conn) = conns.get(key) else {
                    return connection::lose(&self.0, &answer);
                };
                if connection::deliver(&self.0, &mut conn, answer)
                    && let Some(at) = worker.awaiting.note(&self.0, key, conn.session())
                {
                    conn.hold_output(at);
                }
            }
            Message::Deadline(deferred, after_ms) => {
                // One millisecond more, for the rest of the current one, as with the timers of waiting connections.
                let at_ms = conns.now().monotonic_ms.saturating_add(after_ms).saturating_add(1);
                worker.deadlines.add(at_ms, deferred);
            }
            Message::Feed(replica) => {
                if let Some(mut conn) = conns.get(conn_at(replica)) {
                    conn.call_when_sent();
                }
            }
            // Handled at the end of this turn.
            Message::Deliver => {}
            Message::ServeWaiters => self.serve_waiters(worker, conns.now()),
            Message::EvictClient(conn) => self.evict(worker, conn, conns),
            Message::Freed(freed) => self.go_on_with(worker, freed, conns),
        }
    }

    /// Handles a message to all workers.
    fn tell(&self, worker: &mut Worker, notice: Notice, conns: &mut Conns<'_, AnySession>) {
        match notice {
            Notice::Resume => conns.for_each(|conn| {
                let waits = conn.session().waits();
                if waits.obstacle().is_some_and(waits_for_news) {
                    waits.go_on();
                    conn.resume();
                }
            }),
            Notice::Monitor(line) => conns.for_each(|conn| {
                let (session, output) = conn.split();
                if session.is_monitor() {
                    output.buffer().extend_from_slice(&line);
                    session.client().note_output(Client::backlog_of(output));
                    self.0.clients.memory.count(session.client());
                    let key = conn.info().key;
                    if let Some(ticket) = worker.awaiting.note_line(&self.0, key, conn.session()) {
                        conn.hold_output(ticket);
                    }
                }
            }),
            Notice::Maintenance(notification) => conns.for_each(|conn| {
                let (session, output) = conn.split();
                if handoff::notify(session.client(), &notification, output) {
                    session.client().note_output(Client::backlog_of(output));
                    self.0.clients.memory.count(session.client());
                }
            }),
            Notice::NoteBacklogs => conns.iter().for_each(|conn| {
                note_state(&self.0, conn.session, conn.state);
            }),
            Notice::Saved { .. } | Notice::LogSwitched(_) | Notice::StaysUp => {
                conns.for_each(|conn| {
                    let command = conn.session().client().last_command();
                    answer(conn, |awaited, reply| {
                        let outcome = waiting::outcome_of(awaited, &notice);
                        outcome
                            .map(|it| blocking::reply_late(&self.0, command, it, reply))
                            .is_some()
                    });
                });
            }
            Notice::RightsChanged => conns.for_each(|conn| {
                // Like Redis, this lets running MONITOR and SUBSCRIBE continue after the right to call them is gone. A
                // stream of events is one request, which needs its right for as long as it lasts.
                let is_request = conn.info().listener == EVENTS;
                let listens = |caller: &&mut Caller| {
                    // A client deferred by a pause has not subscribed yet.
                    caller.is_subscribed() || is_request && caller.authenticated
                };
                let Some(caller) = conn.session().caller().filter(listens) else { return };
                caller.renew_rights(&self.0.acl.users);
                let may_go_on = match is_request {
                    true => caller.may_listen_again(&self.0.commands),
                    false => caller.may_stay_subscribed(),
                };
                if !may_go_on {
                    conn.close();
                }
            }),
            Notice::Purge => {
                self.0.purge.collect();
                self.0.offload.purge_memory();
                self.0.scripts.offload.purge_memory();
                self.0.migrations.purge_memory();
            }
            Notice::Durable => {
                worker.awaiting.release(&self.0, conns);
                self.0.serve_confirmed();
            }
            Notice::Report(reported) => reported.one(),
            Notice::IdleTimeout { timeout_ms } => {
                let now_ms = conns.now().monotonic_ms;
                if timeout_ms > 0 {
                    conns.for_each(|conn| {
                        // A waiting session has a timer of its own, and is not idle.
                        if conn.session().waits().is_idle() {
                            conn.set_timer(now_ms + timeout_ms);
                        }
                    });
                }
            }
        }
    }

    /// Resumes the connections that have waited for shards.
    fn go_on_with(&self, worker: &mut Worker, freed: Freed, conns: &mut Conns<'_, AnySession>) {
        worker.set_aside.go_on(freed, |shard, key| {
            let Some(mut conn) = conns.get(key) else { return false };
            let waits = conn.session().waits();
            if waits.obstacle() != Some(Obstacle::Shard(shard)) {
                return false;
            }
            waits.go_on();
            conn.resume();
            true
        });
        self.serve_waiters(worker, conns.now());
    }

    /// Serves clients that wait for changed keys, if they were not served at the change.
    fn serve_waiters(&self, worker: &mut Worker, now: Now) {
        let mut locks = self.0.keyspace.worker_locks(worker.index as u16);
        take_unserved(&mut locks);
        let (counters, served) = (self.0.counters(worker.index), &mut worker.memory.served);
        pipeline::serve(&self.0, &mut locks, counters, served, now.unix_ms as i64);
    }

    /// Closes a client that was chosen for eviction, unless it uses less memory by now.
    #[cold]
    fn evict(&self, worker: &Worker, conn: ConnAddress, conns: &mut Conns<'_, AnySession>) {
        let (server, now_ms) = (&self.0, conns.now().unix_ms as i64);
        let Some(mut conn) = conns.get(conn_at(conn)) else { return };
        let state = conn.state();
        let client = Arc::clone(conn.session().client());
        note_backlogs(&client, state);
        if !server.clients.memory.is_due(&client) {
            return;
        }
        let line = server.describe_client(&client, now_ms);
        server.log.notice(format_args!("Evicting client: {line}"));
        server.counters(worker.index).add(Stat::EvictedClients, 1);
        conn.close();
    }
}

/// True if the end of an obstacle is announced to all workers.
fn waits_for_news(obstacle: Obstacle) -> bool {
    use Obstacle::{EarlierRequests, Guesses, Role, Shard, Values};
    !matches!(obstacle, Values | Shard(_) | Guesses | Role | EarlierRequests)
}
