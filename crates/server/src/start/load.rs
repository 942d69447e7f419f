//! The phase from listening to serving: the data are loaded while clients may connect.

use std::convert::Infallible;
use std::sync::mpsc::{RecvTimeoutError, Sender};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use tierce_gateway::Gateway;
use tierce_keyspace::StreamPosition;
use tierce_net::Runtime;
use tierce_replication::identity::{Previous, ReplicationId};
use tierce_replication::link::Position;

use crate::bucket::{self, Bucket, Looked};
use crate::config::DirectiveId;
use crate::durability;
use crate::engine::{Engine, OpenError, Opening};
use crate::kernel::Kernel;
use crate::listening;
use crate::long_commands::LongCommands;
use crate::notifications;
use crate::persistence::{self, Holding};
use crate::replication::replica::Follower;
use crate::replication::{self, Copies, Stream};
use crate::server::{Message, Server};
use crate::supervision;
use crate::tracking;

use super::error::StartError;
use super::watch::{watch_config, watch_http};

/// Display of the progress of a load.
pub trait Console: Send {
    /// Returns true if it shows anything. If so, the log has no progress lines.
    fn is_shown(&self) -> bool;
    /// Shows that this many bytes of `total` are loaded, as far as known. Called a few times a second.
    fn loading(&mut self, done: u64, total: u64);
    /// Shows that the load is over.
    fn loaded(&mut self);
}

/// Threads that follow the changes of a server.
pub(super) struct Threads {
    pub(super) copies: Copies,
    pub(super) stream: Stream,
    pub(super) follower: Follower,
    pub(super) bucket: Option<Bucket>,
}

/// Server during its start: its loops run, and end with this unless it begins to serve.
pub(super) struct Loops {
    pub(super) server: Arc<Server>,
    gateway: Arc<Gateway>,
    /// Present until it serves.
    runtime: Option<Runtime<Message>>,
    /// Dropped when the load is over: connections are accepted then at the latest.
    loading: Option<Sender<Infallible>>,
}

/// Time for which connections during the load are not accepted. Clients of a small data set never notice the load; with
/// a large one they get LOADING.
const ACCEPT_AFTER: Duration = Duration::from_millis(300);

impl Loops {
    /// Begins to answer clients: commands that need no data run. The others get LOADING.
    pub(super) fn begin(
        server: Arc<Server>,
        gateway: Arc<Gateway>,
        mut runtime: Runtime<Message>,
    ) -> Result<(Self, LongCommands), StartError> {
        server.attach(runtime.handle().clone());
        let long_commands = LongCommands::start(&server)?;
        let _ = server.supervisor.set(supervision::name(&server.config.settings()));
        watch_config(&server, runtime.handle());
        watch_http(&server, &gateway);
        tracking::connect(&server);
        let (loading, loaded) = mpsc::channel::<Infallible>();
        // Last: an earlier CONFIG SET would not reach its handlers.
        runtime.accept_after(move || {
            let _ = loaded.recv_timeout(ACCEPT_AFTER);
        })?;
        Ok((
            Self { server, gateway, runtime: Some(runtime), loading: Some(loading) },
            long_commands,
        ))
    }

    /// Loads the data, and then admits all commands.
    pub(super) fn load(
        &self,
        mut opening: Opening,
        of_redis: OfRedis,
        console: &mut dyn Console,
    ) -> Result<Threads, StartError> {
        let Self { server, gateway, .. } = self;
        let looked = bucket::look(server, &opening)?;
        // The data in a bucket are newer than data that Redis left on this machine.
        if of_redis == OfRedis::TakeOver && !looked.as_ref().is_some_and(Looked::has_log) {
            take_over_from_redis(&opening)?;
        }
        let mut claimed = looked.map(|looked| looked.claim(server, &mut opening)).transpose()?;
        let dir = opening.settings().dir();
        let (engine, feed) = load_watched(opening, console, |engine| {
            if let Some(claimed) = &mut claimed {
                claimed.follow(engine);
            }
        })?;
        if of_redis == OfRedis::TakeOver {
            let holding = match engine.durability.durable_log() {
                Some(_) => Holding::Locked,
                None => Holding::Shared,
            };
            persistence::remove_leftovers(&dir, holding, &engine.log);
        }
        let kernel: &Kernel = server;
        server.scripts.libraries.check(kernel);
        engine.start_log()?;
        let goes_on = go_on_in_stream(server);
        let feed = feed.filter(|_| goes_on);
        let bucket = claimed.map(|claimed| claimed.start(server)).transpose()?;
        let copies = Copies::start(server)?;
        let stream = Stream::start(server, feed)?;
        notifications::connect(server);
        let kernel: Arc<Server> = Arc::clone(server);
        let handle = self.runtime.as_ref().expect("it does not serve yet").handle().clone();
        let dial = move |peer, local| listening::dial(&handle, peer, local);
        // It comes before commands are admitted, so a client with a reply finds the server ready.
        gateway.serve(kernel, Box::new(dial));
        engine.loading.end();
        let follower = Follower::start(server)?;
        Ok(Threads { copies, stream, follower, bucket })
    }

    /// Returns the parts when it serves.
    pub(super) fn into_parts(mut self) -> (Arc<Server>, Runtime<Message>, Arc<Gateway>) {
        let runtime = self.runtime.take().expect("it does not serve yet");
        (Arc::clone(&self.server), runtime, Arc::clone(&self.gateway))
    }
}

impl Drop for Loops {
    fn drop(&mut self) {
        drop(self.loading.take());
        let Some(runtime) = self.runtime.take() else { return };
        self.gateway.end(Duration::ZERO);
        runtime.handle().drain(Duration::ZERO);
        runtime.join();
        // The last clones, so that Unix sockets leave no file behind.
        self.server.listening.close();
        self.server.close();
    }
}

/// Interval of progress reports to the console.
const LOAD_TOLD_EVERY: Duration = Duration::from_millis(200);

/// Engine with its data, and its feed if that continues at its old position.
type LoadedEngine = (Arc<Engine>, Option<tierce_engine::feed::Follower>);

/// Loads, while another thread reports the progress to the console.
fn load_watched(
    opening: Opening,
    console: &mut dyn Console,
    loaded: impl FnOnce(&Arc<Engine>),
) -> Result<LoadedEngine, OpenError> {
    let engine = Arc::clone(opening.engine());
    if console.is_shown() {
        engine.loading.show_elsewhere();
    }
    let (ends, end) = std::sync::mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let watch = move || {
            while let Err(RecvTimeoutError::Timeout) = end.recv_timeout(LOAD_TOLD_EVERY) {
                if let Some(report) = engine.loading.report() {
                    console.loading(report.loaded_bytes, report.total_bytes);
                }
            }
            console.loaded();
        };
        std::thread::Builder::new().name("load".into()).spawn_scoped(scope, watch)?;
        let outcome = opening.load_followed(loaded);
        drop(ends);
        outcome
    })
}

/// Handling of Redis data next to a log that was never written to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum OfRedis {
    /// They are imported.
    TakeOver,
    /// They are ignored.
    Leave,
}

/// Continues at the stream position of the data: a replica continues there, and a primary begins its own stream there.
/// Returns true if there is such a position.
fn go_on_in_stream(server: &Server) -> bool {
    let Some(StreamPosition { stream, offset, db }) = server.keyspace.stream_position() else {
        return false;
    };
    let id = ReplicationId::parse(&stream).filter(|_| offset <= Position::OFFSET_MAX);
    let position = id.map(|id| Position { id, offset });
    let Some(following) = server.role.following() else {
        if let Some(Position { id, offset }) = position {
            let kept_bytes = replication::kept_bytes(&server.config.settings());
            let last = Previous { id, until: offset };
            server.primary.resume_stream(last, kept_bytes, crate::clock::unix_ms());
        }
        // From now on there are changes that are not of that stream.
        server.leave_stream();
        return position.is_some();
    };
    let _ = server.role.update(following.number, |following| {
        (following.position, following.db, following.read_offset) = (position, db, offset);
    });
    false
}

/// Imports data of Redis into a log that was never written to. With another log, it only warns the operator if Redis'
/// data are newer.
fn take_over_from_redis(opening: &Opening) -> Result<(), StartError> {
    const APPENDONLY: DirectiveId = DirectiveId::of("appendonly");
    let settings = opening.settings();
    let Some(found) =
        tierce_transfer::find_data_of_redis(settings).filter(|_| settings.is_on(APPENDONLY))
    else {
        return Ok(());
    };
    let log = &opening.engine().log;
    // Opening the log changes its files, so newer data are searched for before.
    let newer = durability::log_dir(&settings.dir());
    let newer = newer.ok().and_then(|dir| tierce_transfer::newer_than_log(settings, &dir));
    if !opening.has_log()? {
        // The import opens the log by itself.
        tierce_transfer::first_import(&found, settings, log)?;
    } else if let Some(newer) = newer {
        log.warning(format_args!(
            "{path} is newer than Tierce's log and is not read; to use it: tierce import {path} --dir NEW-DIRECTORY",
            path = newer.display()
        ));
    }
    Ok(())
}
