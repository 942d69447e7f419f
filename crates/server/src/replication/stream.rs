//! The thread that produces the stream for replicas: it takes changes from the feed, translates them into commands, and
//! appends these to the backlog, from which each replica takes them at its own speed.
//!
//! The feed is followed only while a replica wants the stream, and for `repl-backlog-ttl` seconds after the last one
//! has disconnected, so that it can continue when it comes back. Otherwise nothing is recorded, and there is nothing to
//! translate.
//!
//! **On a replica** this thread appends nothing: the link repeats the stream of the primary, and the feed pauses. It is
//! followed all the same, so that no change is missed from a promotion on.
//!
//! **Offset of a copy.** The mark of a full copy is in the feed at the moment of the copy, between the changes that are
//! in the copy and those that are not. So the stream after the mark is exactly what the copy lacks.

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

/// How often the thread looks whether it is still needed, if nothing changes.
const TICK: Duration = Duration::from_millis(100);

/// After each batch the thread rests so long. What changes meanwhile comes in one batch and goes out in one piece, so
/// that a busy server does not wake this thread, and this thread the replicas' workers, for every few changes. A change
/// after a pause goes out at once, and so does one that a client waits for.
const REST: Duration = Duration::from_millis(1);

/// Commands are passed on when there are so many bytes of them, and at the end of what the feed has given.
const CHUNK_BYTES: usize = 64 << 10;

/// The thread. Dropping it ends it.
pub struct Stream {
    server: Arc<Server>,
    thread: Option<JoinHandle<()>>,
}

impl Stream {
    /// Starts it, with the changes since the place where the server goes on in its stream, if it does.
    ///
    /// # Errors
    /// When the system has no thread to give.
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
            // A panic was reported when it happened.
            let _ = thread.join();
        }
    }
}

/// Why a stream has ended.
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
            server.primary.note_last_place();
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

/// What turns changes into the stream.
struct Writer<'s> {
    server: &'s Server,
    translator: Translator,
    /// Commands that are not in the stream yet.
    commands: Vec<u8>,
    /// The position of the feed up to which they are translated.
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
            // Asked behind the batch: what a promoted server changes is not in it before it says so.
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
            // The position also counts what only others get, as the log in a bucket while the link was the source.
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

    /// Waits until the bucket has the changes of a batch, if that counts: then replicas get only what does not go with
    /// this machine. A server that takes over from the bucket never lacks what a replica of this one has, nor does a
    /// copy that begins in this batch have more. That counts as well for the last changes of a server that becomes a
    /// replica, whose link begins behind them.
    fn await_commit(&self, batch: &FedBatch) {
        let server = self.server;
        let Some((position, _)) = batch.iter().last() else { return };
        while server.bucket_goes_before_replicas() && server.bucket.committed() < position {
            if server.primary.ends() || !server.primary.is_active() {
                return;
            }
            // Who began to wait has hastened what there was, and this batch may have more.
            let is_awaited = server.primary.confirmations.is_awaited_up_to(position);
            if is_awaited || server.role.is_replica() {
                server.bucket.hasten(&server.feed);
            }
            server.bucket.wait_for(position, TICK);
        }
    }

    /// The server ends, and nothing changes any more: completes the stream of a primary.
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

    /// The server is a replica now: completes the stream, and lets the link go on with it.
    fn hand_over(
        &mut self,
        follower: &mut Follower,
        settings: &Settings,
    ) -> Result<(), StreamError> {
        let server = self.server;
        let Some(number) = server.role.following().map(|following| following.number) else {
            return Ok(());
        };
        // Clients that were let in as those of a primary are done then, and what they have changed is in the feed. Not
        // while the role is held still: a worker may wait for that.
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
        // With another role meanwhile, clients may have been let in again.
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
        let place = server.primary.hand_over(following.place, following.db, kept_bytes(settings));
        // It is the current link as long as the role is the same.
        let _ = server.role.update(following.number, |following| {
            following.place = place;
            following.read_offset = place.map_or(0, |place| place.offset);
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

    /// Has replicas say how far they are, if clients wait for what is in the stream now.
    fn ask_for_confirmations(&mut self, settings: &Settings) {
        const RECEIVED: &[u8] = b"*3\r\n$8\r\nREPLCONF\r\n$6\r\nGETACK\r\n$1\r\n*\r\n";
        // A Tierce begins a sync of its log then, and answers at its end. Others see no difference.
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

    /// Appends what is translated to the stream.
    fn pass_on(&mut self, lag_max: usize) {
        if !self.commands.is_empty() {
            self.server.primary.backlog.append(&self.commands, lag_max);
            self.commands.clear();
        }
    }

    /// The stream is where a copy was taken.
    fn begin_copy(&mut self, number: u64) {
        // Those that begin here know nothing of what was selected before.
        self.translator.forget_db();
        let count = self.server.primary.place_copy(number);
        if count == 0 {
            // It was given up.
            return;
        }
        self.server.log.notice(format_args!("A full copy begins for {count} replicas"));
    }

    /// Whether no replica has come back for too long.
    fn is_forgotten(&self, settings: &Settings) -> bool {
        const TTL: DirectiveId = DirectiveId::of("repl-backlog-ttl");
        let ttl_seconds = settings.number(TTL);
        let alone_ms = self.server.primary.alone_ms(unix_ms());
        ttl_seconds > 0 && alone_ms >= ttl_seconds.saturating_mul(1000)
    }
}

/// What all replicas understand.
pub(super) fn dialect(settings: &Settings) -> Dialect {
    const DIALECT: DirectiveId = DirectiveId::of("replica-dialect");
    Dialect::named(settings.word(DIALECT))
}

/// So much of the stream is kept for replicas that come back.
pub fn kept_bytes(settings: &Settings) -> usize {
    const BACKLOG: DirectiveId = DirectiveId::of("repl-backlog-size");
    settings.bytes(BACKLOG) as usize
}

/// A replica may be so far behind, and at least as far as the kept part of the stream, which costs nothing more. Zero:
/// without end.
pub(super) fn lag_max(settings: &Settings) -> usize {
    match settings.output_limits().of(ClientClass::Replica).hard_bytes as usize {
        0 => 0,
        hard => hard.max(kept_bytes(settings)),
    }
}
