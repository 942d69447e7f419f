//! The thread that produces the stream for replicas. It takes changes from the feed, translates them into commands, and
//! appends these to the backlog, from which each replica reads at its own speed.
//!
//! The feed is followed only while a replica wants the stream, and for `repl-backlog-ttl` seconds after the last one
//! has disconnected, so that it can continue when it reconnects. Otherwise nothing is recorded, and there is nothing to
//! translate.
//!
//! **On a replica** this thread appends nothing: the link repeats the stream of the primary, and the feed pauses. The
//! thread still follows the feed, so that it misses no change after a promotion.
//!
//! **Offset of a copy.** The mark of a full copy enters the feed at the moment of the copy, after the changes that the
//! copy has and before the others. So the stream after the mark is exactly what the copy lacks.

use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tierce_commands::replication::{Asks, Source};
use tierce_engine::feed::{Fed, FedBatch, Follower, Overrun, Reader, WAITING_BYTES_MAX};
use tierce_keyspace::log::Malformed;
use tierce_replication::translate::{Dialect, Options, Translator};

use super::quiet;
use crate::clock::unix_ms;
use crate::config::{ClientClass, DirectiveId, Settings};
use crate::server::Server;

/// Interval at which the thread checks if it is still needed, if nothing changes.
const TICK: Duration = Duration::from_millis(100);

/// Pause after each batch. Changes during it come in one batch and are sent in one piece, so a busy server does not
/// wake this thread, and this thread the replicas' workers, for every few changes. A change after a pause is sent at
/// once, and so is one that a client waits for.
const REST: Duration = Duration::from_millis(1);

/// Number of bytes of commands that are passed on together, at most; the rest follows at the end of a batch.
const CHUNK_BYTES: usize = 64 << 10;

/// Handle of the thread. Dropping it ends the thread.
pub struct Stream {
    server: Arc<Server>,
    thread: Option<JoinHandle<()>>,
}

impl Stream {
    /// Starts the thread. If the server continues its stream, `resumed` has the changes since that position.
    ///
    /// # Errors
    /// If the system cannot start a thread.
    pub fn start(server: &Arc<Server>, resumed: Option<Follower>) -> io::Result<Self> {
        const BACKLOG: DirectiveId = DirectiveId::of("repl-backlog-size");
        let weak = Arc::downgrade(server);
        server.config.on_change([BACKLOG], move |settings| {
            if let Some(server) = weak.upgrade() {
                server.primary.backlog.set_kept_bytes(kept_bytes(settings));
            }
            Ok(())
        });
        let of_thread = Arc::clone(server);
        let body = move || run(&of_thread, resumed);
        let thread = thread::Builder::new().name("stream".into()).spawn(body)?;
        Ok(Self { server: Arc::clone(server), thread: Some(thread) })
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.server.primary.end();
        self.server.feed.call(Reader::Replicas);
        if let Some(thread) = self.thread.take() {
            // The panic was reported when it happened.
            let _ = thread.join();
        }
    }
}

/// Reason why a stream has ended.
#[derive(Debug, thiserror::Error)]
enum StreamError {
    #[error("{0}; replicas need full copies")]
    Overrun(#[from] Overrun),
    #[error("a change cannot be told to replicas: {0}")]
    Translate(#[from] Malformed),
    #[error("the log has not taken the last changes; replicas need full copies")]
    HeldBack,
}

fn run(server: &Server, mut resumed: Option<Follower>) {
    while resumed.is_some() || server.primary.wait_for_need() {
        let is_new = resumed.is_none();
        // Nothing else in a server follows its feed for replicas.
        let follow = || server.engine.follow(Reader::Replicas, WAITING_BYTES_MAX);
        let Some(follower) = resumed.take().or_else(follow) else { return };
        let same_role = server.role.hold_still();
        if is_new && server.role.following().is_none() {
            server.primary.begin_stream(kept_bytes(&server.config.settings()));
        }
        drop(same_role);
        let mut writer = Writer::new(server);
        let outcome = writer.write_while_needed(follower);
        let was_active = server.primary.is_active();
        let is_whole = outcome.is_ok() && was_active && server.role.following().is_none();
        if is_whole && server.primary.ends() && !server.durability.refuses_writes() {
            server.primary.note_last_position();
        }
        server.primary.end_stream();
        server.wake_replicas();
        match outcome {
            Ok(()) if !was_active => {}
            Ok(()) => server.log.notice("The stream for replicas ends: none has come back"),
            Err(error) => server.log.warning(format_args!("The stream for replicas ends: {error}")),
        }
    }
}

/// Translator of changes into the stream.
struct Writer<'s> {
    server: &'s Server,
    translator: Translator,
    /// Commands that are not in the stream yet.
    commands: Vec<u8>,
    /// Position of the feed up to which they are translated.
    position: u64,
}

impl<'s> Writer<'s> {
    fn new(server: &'s Server) -> Self {
        let translator = Translator::new(Options::default());
        Self { server, translator, commands: Vec::new(), position: server.feed.position() }
    }

    /// Appends to the stream until no replica needs it any more.
    fn write_while_needed(&mut self, mut follower: Follower) -> Result<(), StreamError> {
        loop {
            let settings = self.server.config.settings();
            let server = self.server;
            let may_hand_over =
                server.role.is_replica() && server.primary.source() == Source::Changes;
            let seen = server.feed.position();
            let batch = follower.wait(if may_hand_over { Duration::ZERO } else { TICK })?;
            if server.primary.ends() {
                return self.write_the_rest(batch, &mut follower, &settings);
            }
            // Checked after the batch: the changes of a promoted server come after its role change.
            if server.primary.source() == Source::Link {
                self.position = self.position.max(seen);
                continue;
            }
            if server.role.is_replica() {
                self.await_commit(&batch);
                self.write(&batch, &settings)?;
                self.hand_over(&mut follower, &settings)?;
                server.wake_replicas();
                continue;
            }
            // The position also counts records for other readers only, such as the bucket's while the link was the
            // source.
            if batch.is_empty() && server.feed.waiting_bytes_of(Reader::Replicas) == 0 {
                self.position = self.position.max(seen);
            }
            if !server.primary.is_active() || batch.is_empty() && self.is_forgotten(&settings) {
                return Ok(());
            }
            self.await_commit(&batch);
            self.write(&batch, &settings)?;
            self.ask_for_confirmations(&settings);
            if !batch.is_empty() {
                self.server.wake_replicas();
                follower.recycle(batch);
                follower.rest(REST);
            }
        }
    }

    /// Waits until the bucket has the changes of a batch, if that is required: then replicas get only changes that
    /// survive the loss of this machine. A server that takes over from the bucket never lacks a change that a replica
    /// of this one has, nor does a copy that begins in this batch have more. This also applies to the last changes of a
    /// server that becomes a replica, whose link begins behind them.
    fn await_commit(&self, batch: &FedBatch) {
        let server = self.server;
        let Some((position, _)) = batch.iter().last() else { return };
        while server.bucket_goes_before_replicas() && server.bucket.committed() < position {
            if server.primary.ends() || !server.primary.is_active() {
                return;
            }
            // New waiters have hastened only earlier changes, and this batch may have more.
            let is_awaited = server.primary.confirmations.is_awaited_up_to(position);
            if is_awaited || server.role.is_replica() {
                server.bucket.hasten(&server.feed);
            }
            server.bucket.wait_for(position, TICK);
        }
    }

    /// Completes the stream of a primary at shutdown, when nothing changes any more.
    fn write_the_rest(
        &mut self,
        mut batch: FedBatch,
        follower: &mut Follower,
        settings: &Settings,
    ) -> Result<(), StreamError> {
        let server = self.server;
        if server.role.is_replica() || !server.primary.is_active() {
            return Ok(());
        }
        while !batch.is_empty() {
            self.write(&batch, settings)?;
            batch = follower.wait(Duration::ZERO)?;
        }
        if server.feed.waiting_bytes_of(Reader::Replicas) > 0 {
            return Err(StreamError::HeldBack);
        }
        Ok(())
    }

    /// Completes the stream of a server that has become a replica, and lets the link continue it.
    fn hand_over(
        &mut self,
        follower: &mut Follower,
        settings: &Settings,
    ) -> Result<(), StreamError> {
        let server = self.server;
        let Some(number) = server.role.following().map(|following| following.number) else {
            return Ok(());
        };
        // Clients that were admitted by a primary are done then, and their changes are in the feed. This must not be
        // called while the role is locked: a worker may wait for it.
        let is_over = || server.primary.ends() || server.role.following_as(number).is_none();
        if !quiet::await_writers(server, is_over) {
            return Ok(());
        }
        loop {
            let batch = follower.wait(Duration::ZERO)?;
            if batch.is_empty() {
                break;
            }
            self.await_commit(&batch);
            self.write(&batch, settings)?;
        }
        let _same_role = server.role.hold_still();
        // If the role changed meanwhile, clients may have been admitted again.
        let Some(following) = server.role.following_as(number) else { return Ok(()) };
        let mut locks = server.keyspace.long_locks();
        let all = locks.lock_all();
        server.feed.pause(Reader::Replicas);
        drop(all);
        self.write(&follower.wait(Duration::ZERO)?, settings)?;
        if server.feed.waiting_bytes_of(Reader::Replicas) > 0 {
            return Err(StreamError::HeldBack);
        }
        // The stream of a promoted server begins with `SELECT`.
        self.translator = Translator::new(Options::default());
        let position =
            server.primary.hand_over(following.position, following.db, kept_bytes(settings));
        // The link is the current one as long as the role is the same.
        let _ = server.role.update(following.number, |following| {
            following.position = position;
            following.read_offset = position.map_or(0, |position| position.offset);
        });
        Ok(())
    }

    fn write(&mut self, batch: &FedBatch, settings: &Settings) -> Result<(), StreamError> {
        let lag_max = lag_max(settings);
        self.translator.speak(dialect(settings));
        for (position, fed) in batch.iter() {
            self.position = position;
            match fed {
                Fed::Record(record) => self.translator.record(record, &mut self.commands)?,
                Fed::Command(command) => {
                    self.translator.command(None, command, &mut self.commands);
                }
                Fed::Mark(Reader::Replicas, number) => {
                    self.pass_on(lag_max);
                    self.begin_copy(number);
                }
                Fed::Mark(Reader::Bucket, _) => {}
            }
            if self.commands.len() >= CHUNK_BYTES {
                self.pass_on(lag_max);
            }
        }
        self.pass_on(lag_max);
        Ok(())
    }

    /// Asks replicas for their offsets, if clients wait for the present end of the stream.
    fn ask_for_confirmations(&mut self, settings: &Settings) {
        const RECEIVED: &[u8] = b"*3\r\n$8\r\nREPLCONF\r\n$6\r\nGETACK\r\n$1\r\n*\r\n";
        // A Tierce replica then begins a sync of its log, and answers at its end. Others ignore the word.
        const LOGGED: &[u8] = b"*3\r\n$8\r\nREPLCONF\r\n$6\r\nGETACK\r\n$6\r\nLOGGED\r\n";
        let primary = &self.server.primary;
        let asks = primary.confirmations.note_streamed(self.position, primary.backlog.end());
        let command = match asks {
            Asks::Nothing => None,
            Asks::Received => Some(RECEIVED),
            Asks::Logged => Some(LOGGED),
        };
        if let Some(command) = command {
            self.translator.command(None, command, &mut self.commands);
            self.pass_on(lag_max(settings));
            self.server.wake_replicas();
            // Replicas may have all of that already.
            self.server.serve_confirmed();
            primary.confirmations.note_asked();
        }
        self.server.failover.note_news();
    }

    /// Appends the translated commands to the stream.
    fn pass_on(&mut self, lag_max: usize) {
        if !self.commands.is_empty() {
            self.server.primary.backlog.append(&self.commands, lag_max);
            self.commands.clear();
        }
    }

    /// Notes that the stream is at the position of a copy.
    fn begin_copy(&mut self, number: u64) {
        // Replicas that begin here do not know the selected database.
        self.translator.forget_db();
        let count = self.server.primary.place_copy(number);
        if count == 0 {
            // It was given up.
            return;
        }
        self.server.log.notice(format_args!(
            "A full copy begins for {}",
            tierce_engine::count(count, "replica")
        ));
    }

    /// Returns true if no replica has reconnected for too long.
    fn is_forgotten(&self, settings: &Settings) -> bool {
        const TTL: DirectiveId = DirectiveId::of("repl-backlog-ttl");
        let ttl_seconds = settings.number(TTL);
        let alone_ms = self.server.primary.alone_ms(unix_ms());
        ttl_seconds > 0 && alone_ms >= ttl_seconds.saturating_mul(1000)
    }
}

/// Returns the dialect that all replicas understand.
pub(super) fn dialect(settings: &Settings) -> Dialect {
    const DIALECT: DirectiveId = DirectiveId::of("replica-dialect");
    Dialect::named(settings.word(DIALECT))
}

/// Returns the number of bytes of the stream kept for replicas that reconnect.
pub fn kept_bytes(settings: &Settings) -> usize {
    const BACKLOG: DirectiveId = DirectiveId::of("repl-backlog-size");
    settings.bytes(BACKLOG) as usize
}

/// Returns the maximum lag of a replica in bytes. It is at least the kept part of the stream, which costs nothing more.
/// Zero is no limit.
pub(super) fn lag_max(settings: &Settings) -> usize {
    match settings.output_limits().of(ClientClass::Replica).hard_bytes as usize {
        0 => 0,
        hard => hard.max(kept_bytes(settings)),
    }
}
