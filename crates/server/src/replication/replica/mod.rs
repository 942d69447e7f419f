//! The thread that follows a primary: it connects, asks for the stream, loads a full copy and applies commands.
//!
//! `tierce_replication::link` interprets the bytes of the link; this module waits, reads and writes. A failed link is
//! logged with the reason and retried. The data stay unchanged, and the link continues at its offset in the stream if
//! the primary still has the rest.

mod apply;
mod copy;
mod logged;
mod takeover;
mod wire;

use std::io::{self, ErrorKind};
use std::panic::resume_unwind;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tierce_keyspace::{DbIndex, StreamPosition};
use tierce_replication::link::{Event, Introduction, Link, LinkError, Position};

use self::apply::{Applied, Applier};
use self::copy::Copy;
use self::logged::Logged;
use self::takeover::Takeover;
use self::wire::Wire;
use crate::commands::replication::role::{Following, LinkState};
use crate::config::{DirectiveId, Settings, SyncPolicy};
use crate::connect::{self, LOOK_EVERY};
use crate::engine::ReloadError;
use crate::persistence::SaveError;
use crate::replication::stream::{kept_bytes, lag_max};
use crate::server::Server;
use crate::tls::{self, TlsError};

/// Delay between two attempts.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Interval at which the primary gets this replica's offset.
const ACKNOWLEDGE_EVERY: Duration = Duration::from_secs(1);

/// Interval while the primary waits for a sync here, so that it soon learns of its end.
const LOOK_FOR_SYNC_EVERY: Duration = Duration::from_millis(1);

/// Maximum number of bytes received at once.
const BUFFER_LEN: usize = 64 * 1024;

/// Reason why a link has ended.
#[derive(Debug, thiserror::Error)]
enum FollowError {
    #[error("cannot connect: {0}")]
    Connect(io::Error),
    #[error("cannot encrypt the connection: {0}")]
    Tls(#[from] TlsError),
    #[error("the encrypted connection was not made: {0}")]
    Handshake(io::Error),
    #[error("the connection failed: {0}")]
    Connection(#[from] io::Error),
    #[error("the primary closed the connection")]
    Closed,
    #[error("nothing came for {0} s (repl-timeout)")]
    Silence(u64),
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error("the full copy cannot be written: {0}")]
    File(#[from] SaveError),
    #[error("the full copy cannot be written: {0}")]
    Write(io::Error),
    #[error("the full copy cannot be loaded: {0}")]
    Load(ReloadError),
    #[error("the log takes no writes, so that nothing of the stream can be applied")]
    NotLogged,
    #[error("{0}. Asking for a full copy")]
    Lost(String),
    /// The server follows another primary now, or none.
    #[error("given up")]
    GivenUp,
}

impl From<ReloadError> for FollowError {
    fn from(error: ReloadError) -> Self {
        match error {
            ReloadError::NotWanted => Self::GivenUp,
            error => Self::Load(error),
        }
    }
}

/// Handle of the thread, which ends with its owner.
pub struct Follower {
    server: Arc<Server>,
    thread: Option<JoinHandle<()>>,
}

impl Follower {
    /// Starts the thread, which follows the configured primary.
    ///
    /// # Errors
    /// If the system cannot start a thread.
    pub fn start(server: &Arc<Server>) -> io::Result<Self> {
        const SERVES_STALE: DirectiveId = DirectiveId::of("replica-serve-stale-data");
        let adopt = |server: &Server, settings: &Settings| {
            server.role.set_serves_stale(settings.is_on(SERVES_STALE));
        };
        adopt(server, &server.config.settings());
        let weak = Arc::downgrade(server);
        server.config.on_change([SERVES_STALE], move |settings| {
            if let Some(server) = weak.upgrade() {
                adopt(&server, settings);
            }
            Ok(())
        });
        let body = {
            let server = Arc::clone(server);
            move || run(&server)
        };
        let thread = thread::Builder::new().name("follower".into()).spawn(body)?;
        Ok(Self { server: Arc::clone(server), thread: Some(thread) })
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.server.role.end();
        if let Some(thread) = self.thread.take() {
            // The panic was reported when it happened.
            let _ = thread.join();
        }
    }
}

fn run(server: &Server) {
    let mut last_error = String::new();
    let mut takeover = Takeover::default();
    while let Some(Following { number, .. }) = server.role.wait_for_primary() {
        if is_held_before_end(server) {
            server.role.pause(number, LOOK_EVERY);
            continue;
        }
        // The stream of its time as a primary is completed first.
        if !server.primary.wait_for_link(LOOK_EVERY) {
            continue;
        }
        let handed_over = server.role.hold_still();
        let Some(following) = server.role.following_as(number) else { continue };
        if following.hands_over && following.position.is_none() {
            // The other server could take that for a replica's request, and both would wait for each other.
            server.abort_failover(
                "the stream of this server has ended before the other one had all of it",
            );
            continue;
        }
        drop(handed_over);
        let mut session = Session::new(server, following);
        let outcome = session.follow();
        let now_ms = crate::clock::unix_ms();
        let could_not_load = matches!(outcome, Err(FollowError::Load(_)));
        let mut pause = None;
        let is_current = server.role.update(number, |following| {
            if could_not_load {
                pause = following.healing.pause_after_failure(now_ms);
            }
            if following.link == LinkState::Connected {
                following.down_since_ms = now_ms;
            }
            following.link = LinkState::Connect;
        });
        if !server.role.has_followed_since(number) {
            // A command that a transaction with keys did not wait for may have logged its position behind that.
            server.leave_stream();
        }
        let Err(error) = outcome else { continue };
        takeover.link_is_over(server, number, &error, session.has_asked);
        if let FollowError::Lost(_) = error {
            server.role.note_applied(number, None, DbIndex::ZERO);
        }
        if matches!(error, FollowError::GivenUp) || !is_current {
            last_error.clear();
            continue;
        }
        // A repeated error is logged once.
        let text = error.to_string();
        if text != last_error {
            let primary = &session.following.primary;
            server.log.warning(format_args!("The link to the primary {primary} is over: {text}"));
            last_error = text;
        }
        if let Some(pause) = pause {
            let seconds = pause.as_secs();
            server.log.warning(format_args!("The next full copy is asked for in {seconds} s"));
        }
        server.role.pause(number, pause.unwrap_or_default().max(RETRY_AFTER));
    }
}

/// Returns true if nothing more is taken from the primary, because this server shuts down. A failover needs the link.
fn is_held_before_end(server: &Server) -> bool {
    !server.failover.is_on() && server.role.holds_link()
}

/// One link.
struct Session<'s> {
    server: &'s Server,
    following: Following,
    /// Time when something last arrived.
    heard: Instant,
    acknowledged: Instant,
    /// True once it has sent PSYNC.
    has_asked: bool,
}

impl<'s> Session<'s> {
    fn new(server: &'s Server, following: Following) -> Self {
        let now = Instant::now();
        Self { server, following, heard: now, acknowledged: now, has_asked: false }
    }

    /// Returns the silence after which the link is given up.
    fn silence_max(&self) -> Duration {
        const TIMEOUT: DirectiveId = DirectiveId::of("repl-timeout");
        Duration::from_secs(self.server.config.settings().count(TIMEOUT))
    }

    /// Updates the state of the link for INFO.
    fn note(&self, change: impl FnOnce(&mut Following)) -> Result<(), FollowError> {
        let is_current = self.server.role.update(self.following.number, change);
        if is_current { Ok(()) } else { Err(FollowError::GivenUp) }
    }

    /// Follows until the link ends.
    fn follow(&mut self) -> Result<(), FollowError> {
        // The primary would begin a full copy each second that nobody takes. A failover only needs the handshake.
        if self.server.durability.refuses_writes() && !self.following.hands_over {
            return Err(FollowError::NotLogged);
        }
        self.note(|following| following.link = LinkState::Connecting)?;
        let mut wire = self.connect()?;
        while !wire.shake_hands().map_err(FollowError::Handshake)? {
            self.look_at_time(0)?;
        }
        let mut introduction = introduction(&self.server.config.settings());
        introduction.hands_over = self.following.hands_over;
        let mut link = Link::new(&introduction, self.following.position);
        let mut work = Work {
            applier: Applier::new(self.server, self.following.number),
            copy: None,
            logged: Logged::default(),
        };
        let mut buffer = vec![0; BUFFER_LEN];
        loop {
            wire.send(&link.take_output())?;
            self.has_asked |= link.step() == "PSYNC";
            let len = if self.is_held_back() { 0 } else { receive(&mut wire, &mut buffer)? };
            self.look_at_time(len)?;
            self.acknowledge_in_time(&mut link, &mut work);
            if len > 0 {
                self.server.role.note_received(len);
                link.receive(&buffer[..len]);
                self.take_events(&mut link, &mut work, &mut wire)?;
            }
            let look_every = match work.logged.is_awaited() {
                true => LOOK_FOR_SYNC_EVERY,
                false => LOOK_EVERY,
            };
            wire.wait_at_most(look_every)?;
        }
    }

    /// Waits a moment while writers have to wait for the bucket, or during a shutdown. Clients' writes wait as well,
    /// and the primary's data would otherwise pile up in memory. The link is read again when the wait is over.
    fn is_held_back(&mut self) -> bool {
        let server = self.server;
        let is_held = is_held_before_end(server) || server.durability.is_held_for_outside();
        if is_held {
            thread::sleep(LOOK_EVERY);
            self.heard = Instant::now();
        }
        is_held
    }

    fn connect(&self) -> Result<Wire, FollowError> {
        const SOURCE: DirectiveId = DirectiveId::of("bind-source-addr");
        let primary = &self.following.primary;
        let host = String::from_utf8_lossy(&primary.host);
        // The files are read again for each link.
        let tls = tls::outgoing(&self.server.config.settings())?;
        let gives_up = || self.note(|_| ()).is_err();
        let source =
            str::from_utf8(self.server.config.settings().text(SOURCE)).ok().map(str::parse);
        let source = source.and_then(Result::ok);
        let connected = connect::connect(primary, source, self.silence_max(), &gives_up);
        let stream = connected.map_err(FollowError::Connect)?.ok_or(FollowError::GivenUp)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(LOOK_EVERY))?;
        stream.set_write_timeout(Some(self.silence_max()))?;
        Wire::new(stream, &host, tls).map_err(FollowError::Handshake)
    }

    /// Ends the link if the primary is silent, or should not be followed any more.
    fn look_at_time(&mut self, received: usize) -> Result<(), FollowError> {
        let now = Instant::now();
        if received > 0 {
            self.heard = now;
            let now_ms = crate::clock::unix_ms();
            return self.note(|following| following.last_io_ms = now_ms);
        }
        let silence_max = self.silence_max();
        if now.duration_since(self.heard) >= silence_max {
            return Err(FollowError::Silence(silence_max.as_secs()));
        }
        self.note(|_| ())
    }

    /// Sends this replica's offset to the primary at intervals.
    fn acknowledge_in_time(&mut self, link: &mut Link, work: &mut Work<'_>) {
        let now = Instant::now();
        let is_due = work.logged.take_news(self.server)
            || now.duration_since(self.acknowledged) >= ACKNOWLEDGE_EVERY;
        if let Some(position) = work.applier.position().filter(|_| link.is_streaming() && is_due) {
            self.acknowledged = now;
            self.acknowledge(link, work, position);
        }
    }

    /// Sends the primary the applied and the durable offset of this replica.
    fn acknowledge(&self, link: &mut Link, work: &mut Work<'_>, position: Position) {
        let logged = work.logged.offset(self.server, position.offset);
        link.acknowledge(position.offset, logged);
    }

    fn take_events(
        &mut self,
        link: &mut Link,
        work: &mut Work<'s>,
        wire: &mut Wire,
    ) -> Result<(), FollowError> {
        let mut told = Told::default();
        work.applier.set_lag_max(lag_max(&self.server.config.settings()));
        let outcome = self.take_each(link, work, wire, &mut told);
        let outcome = outcome.and_then(|()| work.applier.heal());
        if self.server.primary.has_replicas() {
            self.server.wake_replicas();
        }
        if told.read_offset.is_some() {
            self.demand_sync();
        }
        // Also for a link that has ended: applied commands must not be requested again.
        let (position, db) = (work.applier.position(), work.applier.db());
        if let Some(read_offset) = told.read_offset {
            self.server.role.note_applied(self.following.number, position, db);
            self.note(|following| following.read_offset = read_offset)?;
        }
        outcome?;
        if let Some(position) = position {
            if told.wants_sync {
                work.logged.demand(self.server, position.offset);
            }
            if told.wants_answer {
                self.acknowledge(link, work, position);
            }
            wire.send(&link.take_output())?;
        }
        Ok(())
    }

    /// With `appendfsync always`, syncs applied commands soon: one sync for all that arrived together.
    fn demand_sync(&self) {
        if self.server.config.live().appendfsync() == SyncPolicy::Always
            && let Some(durable_log) = self.server.durability.durable_log()
        {
            durable_log.demand(durable_log.appended());
        }
    }

    fn take_each(
        &mut self,
        link: &mut Link,
        work: &mut Work<'s>,
        wire: &mut Wire,
        told: &mut Told,
    ) -> Result<(), FollowError> {
        while let Some(event) = link.next()? {
            match event {
                Event::Copy(position) => {
                    // It could not be loaded, and would use the space that the log needs to recover.
                    if self.server.durability.refuses_writes() {
                        return Err(FollowError::NotLogged);
                    }
                    let primary = &self.following.primary;
                    self.server.failover_is_done(self.following.number);
                    let line = format_args!("Full copy from {primary}, at {position}");
                    self.server.log.notice(line);
                    work.copy = Some(Copy::begin(self.server, position)?);
                    self.note(|following| {
                        (following.link, following.copied_bytes) = (LinkState::Sync, 0);
                    })?;
                }
                Event::Payload(bytes) => {
                    let Some(copy) = &mut work.copy else { continue };
                    copy.write(bytes).map_err(FollowError::Write)?;
                    self.note(|following| following.copied_bytes += bytes.len() as u64)?;
                }
                Event::CopyEnds => {
                    let Some(copy) = work.copy.take() else { continue };
                    let position = copy.position();
                    let db = self.load(copy, wire)?;
                    // The log has it as well. A link that is given up here still has its data.
                    self.server.role.note_applied(self.following.number, Some(position), db);
                    work.applier = Applier::new(self.server, self.following.number);
                    work.applier.go_on(position, db);
                    told.wants_answer = true;
                    self.begin_stream(position, db)?;
                    self.note(|following| following.healing.differs = false)?;
                }
                Event::Continues(position) => {
                    self.server.failover_is_done(self.following.number);
                    self.server.log.notice(format_args!("The stream goes on at {position}"));
                    work.applier.go_on(position, self.following.db);
                    told.wants_answer = true;
                    self.begin_stream(position, work.applier.db())?;
                }
                Event::Command { args, bytes, offset } => {
                    if self.server.durability.refuses_writes() {
                        return Err(FollowError::NotLogged);
                    }
                    told.read_offset = Some(offset);
                    match work.applier.apply(args, bytes, offset) {
                        Applied::Done => {}
                        Applied::AskedForOffset => told.wants_answer = true,
                        Applied::AskedForSync => {
                            (told.wants_answer, told.wants_sync) = (true, true);
                        }
                        Applied::Lost(error) => return Err(error),
                        Applied::GivenUp => return Err(FollowError::GivenUp),
                    }
                }
                Event::Blank(bytes) => {
                    if !work.applier.skip(bytes) {
                        return Err(FollowError::GivenUp);
                    }
                }
            }
        }
        Ok(())
    }

    /// Replaces all data by the copy, and sends the primary keepalives meanwhile, because it waits only for its own
    /// `repl-timeout`. Returns the database that is selected in the stream after the copy.
    fn load(&mut self, copy: Copy, wire: &mut Wire) -> Result<DbIndex, FollowError> {
        let session = &*self;
        let (done, is_done) = mpsc::channel::<()>();
        let report = thread::scope(|scope| {
            let loading = scope.spawn(move || {
                // From here on the data have no position until they are replaced.
                let is_wanted = || session.leave_stream().is_ok();
                let report = copy.load(session.server, is_wanted);
                drop(done);
                report
            });
            while is_done.recv_timeout(ACKNOWLEDGE_EVERY) == Err(RecvTimeoutError::Timeout) {
                // A failed link is noticed afterwards: the loaded data are good in any case.
                let _ = wire.send(b"\n");
            }
            loading.join()
        });
        let report = report.unwrap_or_else(|panic| resume_unwind(panic))?;
        self.heard = Instant::now();
        let keys = tierce_engine::count(report.keys, "key");
        self.server.log.notice(format_args!("The full copy is loaded: {keys}"));
        Ok(self.server.keyspace.db_index(report.stream_db).unwrap_or(DbIndex::ZERO))
    }

    /// Marks the data as belonging to no stream for now, so that this server has none for replicas.
    fn leave_stream(&self) -> Result<(), FollowError> {
        self.note(|following| following.position = None)?;
        self.server.primary.end_stream();
        Ok(())
    }

    fn begin_stream(&self, position: Position, db: DbIndex) -> Result<(), FollowError> {
        let server = self.server;
        let Some(_nobody_else) = server.role.apply_for(self.following.number) else {
            return Err(FollowError::GivenUp);
        };
        let kept_bytes = kept_bytes(&server.config.settings());
        if server.primary.continue_at(position, db, kept_bytes) {
            server.log.notice(format_args!("The stream has a new id: {}", position.id));
            // After a restart, the stream is requested by this id.
            let stream = *position.id.as_bytes();
            let mut locks = server.keyspace.locks();
            locks.move_to(Some(StreamPosition { stream, offset: position.offset, db }));
            locks.release();
        }
        self.note(|following| {
            (following.link, following.db) = (LinkState::Connected, db);
            (following.position, following.read_offset) = (Some(position), position.offset);
        })
    }
}

/// Outcome of some events.
#[derive(Default)]
struct Told {
    /// The primary asks for this replica's offset.
    wants_answer: bool,
    /// The primary also asks for a report when this replica's log is on the device.
    wants_sync: bool,
    /// Number of received bytes of the stream.
    read_offset: Option<u64>,
}

/// State of a link.
struct Work<'s> {
    applier: Applier<'s>,
    copy: Option<Copy>,
    logged: Logged,
}

/// Returns the received bytes; none if nothing came within the time that the link waits.
fn receive(wire: &mut Wire, buffer: &mut [u8]) -> Result<usize, FollowError> {
    match wire.receive(buffer) {
        Ok(0) => Err(FollowError::Closed),
        Ok(len) => Ok(len),
        Err(error) if is_timeout(&error) => Ok(0),
        Err(error) => Err(error.into()),
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

/// Returns the description of this replica, from the settings.
fn introduction(settings: &Settings) -> Introduction {
    const USER: DirectiveId = DirectiveId::of("masteruser");
    const PASSWORD: DirectiveId = DirectiveId::of("masterauth");
    const ANNOUNCED_PORT: DirectiveId = DirectiveId::of("replica-announce-port");
    const ANNOUNCED_IP: DirectiveId = DirectiveId::of("replica-announce-ip");
    const ENCRYPTED: DirectiveId = DirectiveId::of("tls-replication");
    let text = |id| Some(settings.text(id).to_vec()).filter(|text| !text.is_empty());
    let ports = [
        u16::try_from(settings.count(ANNOUNCED_PORT)).unwrap_or(0),
        if settings.is_on(ENCRYPTED) { settings.tls_port() } else { 0 },
        settings.port(),
    ];
    Introduction {
        user: text(USER),
        password: text(PASSWORD),
        port: ports.into_iter().find(|port| *port != 0).unwrap_or(0),
        hands_over: false,
        address: text(ANNOUNCED_IP),
    }
}

/// Returns the directory in which a full copy is written.
fn dir_of(server: &Server) -> &Path {
    server.persistence.start_dir()
}
