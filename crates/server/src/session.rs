//! The state of one connection.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use tierce_keyspace::{DbIndex, Touch};
use tierce_wire::resp::{Parser, Proto};

use crate::acknowledge::Acknowledgements;
use crate::blocking;
use crate::clients::Client;
use crate::command::CommandId;
use crate::durability::SyncPolicy;
use crate::engine::Engine;
use crate::fetch::Fetches;
use crate::waiting::{Awaited, Waiting};

/// What a connection remembers from one request to the next.
pub struct Session {
    /// The part that others may see.
    pub client: Arc<Client>,
    /// Reads requests; holds the state of an incomplete one.
    pub parser: Parser,
    /// The protocol version of replies.
    pub proto: Proto,
    /// The selected database.
    pub db: DbIndex,
    /// May use commands other than those for authentication.
    pub authenticated: bool,
    /// Watches all commands.
    pub monitor: bool,
    /// Whether replies are sent.
    pub reply_mode: ReplyMode,
    /// Does not renew access times of keys.
    pub no_touch: bool,
    /// Waits for the end of a pause.
    pub held: bool,
    /// The reply to the last request comes later.
    pub waiting: Option<Waiting>,
    /// What it waits for from disk.
    pub fetches: Fetches,
    /// It waits for keys.
    pub blocked: Option<blocking::Waiting>,
    /// What this client asked for in place of `appendfsync`.
    pub durability: Option<SyncPolicy>,
    /// Replies that wait for the log to be on the device.
    pub acknowledgements: Acknowledgements,
    /// It has begun a transaction, which can only fail; see [`transaction`](crate::transaction).
    pub transaction_fails: bool,
    /// The connection ends when everything up to the current reply is sent.
    pub closing: bool,
}

/// `CLIENT REPLY`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReplyMode {
    /// Replies are sent.
    On,
    /// None are sent.
    Off,
    /// The next one is not sent.
    SkipNext,
    /// The one of the current command is not sent.
    SkipThis,
}

impl Session {
    /// A fresh session; `authenticated` when no password is set.
    #[must_use]
    pub fn new(client: Arc<Client>, authenticated: bool) -> Self {
        Self {
            client,
            parser: Parser::new(),
            proto: Proto::Resp2,
            db: DbIndex::ZERO,
            authenticated,
            monitor: false,
            reply_mode: ReplyMode::On,
            no_touch: false,
            held: false,
            waiting: None,
            fetches: Fetches::default(),
            blocked: None,
            durability: None,
            acknowledgements: Acknowledgements::default(),
            transaction_fails: false,
            closing: false,
        }
    }

    /// How durable a write of this client is when it is acknowledged.
    #[inline]
    pub fn sync_policy(&self, engine: &Engine) -> SyncPolicy {
        self.durability.unwrap_or_else(|| engine.config.live().appendfsync())
    }

    /// Whether its commands count as uses of keys.
    #[must_use]
    #[inline]
    pub fn touch(&self) -> Touch {
        if self.no_touch { Touch::No } else { Touch::Yes }
    }

    /// Leaves the reply to the message that [`waiting`](crate::waiting) tells of.
    pub fn wait_for(&mut self, awaited: Awaited) {
        let is_heard = self.reply_mode == ReplyMode::On;
        self.waiting = Some(Waiting { awaited, is_heard });
    }

    /// Switches to another database.
    pub fn select(&mut self, db: DbIndex) {
        self.db = db;
        self.client.db.store(db.get() as u16, Relaxed);
    }

    /// Switches to another protocol version.
    pub fn set_proto(&mut self, proto: Proto) {
        self.proto = proto;
        self.client.protocol.store(if proto == Proto::Resp3 { 3 } else { 2 }, Relaxed);
    }

    /// Lets others see which command came last.
    #[inline]
    pub fn note_command(&self, id: CommandId) {
        self.client.last_command.store(id.0 + 1, Relaxed);
    }
}
