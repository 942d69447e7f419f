//! The thread that produces the stream for replicas: it takes changes from the feed, translates them into commands, and
//! appends these to the backlog, from which each replica takes them at its own speed.
//!
//! The feed is followed only while a replica wants the stream, and for `repl-backlog-ttl` seconds after the last one has
//! disconnected, so that it can continue when it comes back. Otherwise nothing is recorded, and there is nothing to
//! translate.
//!
//! **Offset of a copy.** The mark of a full copy is in the feed at the moment of the copy, between the changes that are in
//! the copy and those that are not. So the stream after the mark is exactly what the copy lacks.

use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tierce_engine::feed::{Fed, FedBatch, Follower, Overrun};
use tierce_keyspace::log::Malformed;
use tierce_replication::translate::{Options, Translator};

use crate::clock::unix_ms;
use crate::config::{ClientClass, DirectiveId, Settings};
use crate::server::Server;

/// How often the thread looks whether it is still needed, if nothing changes.
const TICK: Duration = Duration::from_millis(100);

/// After each batch the thread rests so long. What changes meanwhile comes in one batch and goes out in one piece, so that
/// a busy server does not wake this thread, and this thread the replicas' workers, for every few changes. A change after
/// a pause goes out at once, and so does one that a client waits for.
const REST: Duration = Duration::from_micros(500);

/// Commands are passed on when there are so many bytes of them, and at the end of what the feed has given.
const CHUNK_BYTES: usize = 64 << 10;

/// The thread. Dropping it ends it.
pub struct Stream {
    server: Arc<Server>,
    thread: Option<JoinHandle<()>>,
}

impl Stream {
    /// Starts it.
    ///
    /// # Errors
    /// When the system has no thread to give.
    pub fn start(server: &Arc<Server>) -> io::Result<Self> {
        const BACKLOG: DirectiveId = DirectiveId::of("repl-backlog-size");
        let weak = Arc::downgrade(server);
        server.config.on_change([BACKLOG], move |settings| {
            if let Some(server) = weak.upgrade() {
                server.primary.backlog.set_kept_bytes(kept_bytes(settings));
            }
            Ok(())
        });
        let of_thread = Arc::clone(server);
        let thread = thread::Builder::new().name("stream".into()).spawn(move || run(&of_thread))?;
        Ok(Self { server: Arc::clone(server), thread: Some(thread) })
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.server.primary.end();
        self.server.feed.call();
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
}

fn run(server: &Server) {
    while server.primary.wait_for_reader() {
        // Nothing else in a server follows its feed.
        let Some(follower) = server.engine.follow() else { return };
        server.primary.begin_stream(kept_bytes(&server.config.settings()));
        let mut writer = Writer::new(server);
        let outcome = writer.write_while_needed(follower);
        server.primary.end_stream();
        server.wake_replicas();
        match outcome {
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
            let batch = follower.wait(TICK)?;
            if batch.is_empty() && !self.is_needed(&settings) {
                return Ok(());
            }
            self.write(&batch, &settings)?;
            self.ask_for_confirmations(&settings);
            if !batch.is_empty() {
                self.server.wake_replicas();
                follower.rest(REST);
            }
        }
    }

    fn write(&mut self, batch: &FedBatch, settings: &Settings) -> Result<(), StreamError> {
        let lag_max = lag_max(settings);
        for (position, fed) in batch.iter() {
            self.position = position;
            match fed {
                Fed::Record(record) => self.translator.record(record, &mut self.commands)?,
                Fed::Command(command) => {
                    self.translator.command(None, command, &mut self.commands);
                }
                Fed::Mark(number) => {
                    self.pass_on(lag_max);
                    self.begin_copy(number);
                }
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
        const GETACK: &[u8] = b"*3\r\n$8\r\nREPLCONF\r\n$6\r\nGETACK\r\n$1\r\n*\r\n";
        let primary = &self.server.primary;
        if primary.confirmations.note_streamed(self.position, primary.backlog.end()) {
            self.translator.command(None, GETACK, &mut self.commands);
            self.pass_on(lag_max(settings));
            self.server.wake_replicas();
            // Replicas may have all of that already.
            self.server.serve_confirmed();
        }
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
        self.server.log.notice(format_args!("A full copy begins for {count} replicas"));
    }

    fn is_needed(&self, settings: &Settings) -> bool {
        const TTL: DirectiveId = DirectiveId::of("repl-backlog-ttl");
        let primary = &self.server.primary;
        let ttl_seconds = settings.number(TTL);
        let is_forgotten =
            ttl_seconds > 0 && primary.alone_ms(unix_ms()) >= ttl_seconds.saturating_mul(1000);
        !primary.ends() && !is_forgotten
    }
}

/// So much of the stream is kept for replicas that come back.
fn kept_bytes(settings: &Settings) -> usize {
    const BACKLOG: DirectiveId = DirectiveId::of("repl-backlog-size");
    settings.bytes(BACKLOG) as usize
}

/// A replica may be so far behind, and at least as far as the kept part of the stream, which costs nothing more. Zero:
/// without end.
fn lag_max(settings: &Settings) -> usize {
    match settings.output_limits().of(ClientClass::Replica).hard_bytes as usize {
        0 => 0,
        hard => hard.max(kept_bytes(settings)),
    }
}
