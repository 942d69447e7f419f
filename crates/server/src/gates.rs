//! What a request has to pass before it runs, decided once for a batch where that can be.
//!
//! Each gate is closed for good reasons only, and most of the time none is. So a batch looks at all of them
//! once. While [`Gates::are_open`], a request that only works on data passes without another look; every
//! other request passes them one by one, and may be the one that changes them, so all are looked at again
//! behind it. What other threads change in between is noticed by the next batch.

use tierce_keyspace::Locker;

use crate::command::{Command, Flags};
use crate::error::CommandError;
use crate::eviction::Room;
use crate::execute::{self, Refused};
use crate::server::Server;
use crate::session::{ReplyMode, Session};

/// Why a request is held back; times are Unix milliseconds.
#[derive(Clone, Copy)]
pub enum Cause {
    /// A pause, until this time.
    Pause { until_ms: i64 },
    /// Lack of memory, of which there may be more at this time.
    Memory { until_ms: i64 },
    /// A sync that takes too long.
    Device,
}

/// What the gates say of a request.
pub enum Verdict<'k> {
    /// It runs, unless it needs values that are on disk.
    Passes,
    /// It is answered with an error.
    Refused(Refused<'k>),
    /// It waits.
    Held(Cause),
}

/// The gates of one batch.
pub struct Gates {
    now_ms: i64,
    /// The log takes no writes.
    refuses_writes: bool,
    /// A sync takes so long that writes wait.
    is_late: bool,
    paused: bool,
    limited: bool,
    /// Somebody watches all commands.
    pub watched: bool,
    /// Values may be on disk.
    pub has_spilled: bool,
    open: bool,
}

impl Gates {
    /// Looks at all of them.
    #[inline]
    pub fn look(server: &Server, session: &Session, now_ms: i64) -> Self {
        let mut gates = Self {
            now_ms,
            refuses_writes: server.durability.refuses_writes(),
            is_late: server.durability.holds_back(|| session.sync_policy(server)),
            paused: false,
            limited: false,
            watched: false,
            has_spilled: server.keyspace.has_spilled(),
            open: false,
        };
        gates.look_again(server, session);
        gates
    }

    /// Looks at those again that the request before may have changed.
    #[inline]
    pub fn look_again(&mut self, server: &Server, session: &Session) {
        self.paused = server.pause.is_on(self.now_ms);
        self.limited = server.keyspace.has_memory_limit();
        self.watched = server.clients.has_monitors();
        let is_special = self.refuses_writes
            | self.is_late
            | self.paused
            | self.limited
            | self.watched
            | self.has_spilled
            | server.persistence.refuses_writes()
            | !session.authenticated
            | (session.reply_mode != ReplyMode::On);
        self.open = !is_special;
    }

    /// Whether `command` passes without another look, and changes nothing that is decided here.
    #[inline]
    pub fn are_open(&self, command: &Command) -> bool {
        self.open & command.is_data_only
    }

    /// What they say of a call of `command`.
    pub fn judge<'k>(
        &self,
        server: &'k Server,
        session: &mut Session,
        locker: &mut Locker<'k>,
        command: &'k Command,
    ) -> Verdict<'k> {
        if let Err(refused) = execute::admit(server, session, command) {
            return Verdict::Refused(refused);
        }
        let flags = command.spec.flags;
        let refuse = |error| Verdict::Refused(Refused { command: Some(command), error });
        if self.refuses_writes && flags.contains(Flags::WRITE) {
            return refuse(CommandError::text(server.durability.misconfigured()));
        }
        if self.paused
            && let Some(until_ms) = server.pause.holds(command.spec, self.now_ms)
        {
            return Verdict::Held(Cause::Pause { until_ms });
        }
        if self.is_late && flags.contains(Flags::WRITE) {
            return Verdict::Held(Cause::Device);
        }
        if self.limited && flags.contains(Flags::DENYOOM) {
            match server.make_room(locker, self.now_ms) {
                Room::Enough => {}
                Room::Soon => {
                    return Verdict::Held(Cause::Memory { until_ms: self.now_ms + 1 });
                }
                Room::None => return refuse(CommandError::OUT_OF_MEMORY),
            }
        }
        Verdict::Passes
    }
}
