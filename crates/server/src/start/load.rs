//! From listening to serving: the data are loaded while clients may connect.

use std::convert::Infallible;
use std::sync::mpsc::{RecvTimeoutError, Sender};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use tierce_gateway::Gateway;
use tierce_keyspace::StreamPlace;
use tierce_net::Runtime;
use tierce_replication::identity::{Previous, ReplicationId};
use tierce_replication::link::Place;

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

/// What shows how far a load is.
pub trait Console: Send {
    /// Whether it shows anything. If so, the log has no lines of progress.
    fn is_shown(&self) -> bool;
    /// So many bytes of `total` are loaded, as far as that is known. Called a few times a second.
    fn loading(&mut self, done: u64, total: u64);
    /// The load is over.
    fn loaded(&mut self);
}

/// The threads of a server that follow what it does.
pub(super) struct Threads {
    pub(super) copies: Copies,
    pub(super) stream: Stream,
    pub(super) follower: Follower,
    pub(super) bucket: Option<Bucket>,
}

/// A server that starts: its loops run, and they end with this unless it gets as far as to serve.
pub(super) struct Loops {
    pub(super) server: Arc<Server>,
    gateway: Arc<Gateway>,
    /// There until it serves.
    runtime: Option<Runtime<Message>>,
    /// Dropped when the load is over: connections are accepted then at the latest.
    loading: Option<Sender<Infallible>>,
}

/// Clients who connect while the data are loaded wait as long for them. Those of a small data set never see that there
/// was a load; with a large one they hear LOADING.
const ACCEPT_AFTER: Duration = Duration::from_millis(300);

impl Loops {
    /// Has clients answered soon: those who need no data. The others hear that it is loading.
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
        // Last: a CONFIG SET that comes earlier would find none of those that act on it.
        runtime.accept_after(move || {
            let _ = loaded.recv_timeout(ACCEPT_AFTER);
        })?;
        Ok((
            Self { server, gateway, runtime: Some(runtime), loading: Some(loading) },
            long_commands,
        ))
    }

    /// Loads the data, and then lets all commands pass.
    pub(super) fn load(
        &self,
        mut opening: Opening,
        of_redis: OfRedis,
        console: &mut dyn Console,
    ) -> Result<Threads, StartError> {
        let Self { server, gateway, .. } = self;
        let looked = bucket::look(server, &opening)?;
        // What is in a bucket is newer than what Redis left on this machine.
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
        engine.loading.end();
        let follower = Follower::start(server)?;
        let kernel: Arc<Server> = Arc::clone(server);
        let handle = self.runtime.as_ref().expect("it does not serve yet").handle().clone();
        let dial = move |peer, local| listening::dial(&handle, peer, local);
        gateway.serve(kernel, Box::new(dial));
        Ok(Threads { copies, stream, follower, bucket })
    }

    /// It serves.
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

/// How often the console hears of a load.
const LOAD_TOLD_EVERY: Duration = Duration::from_millis(200);

/// An engine with its data, and its feed if that is to go on where it was.
type LoadedEngine = (Arc<Engine>, Option<tierce_engine::feed::Follower>);

/// Loads, while another thread tells the console how far it is.
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

/// What becomes of data of Redis beside a log that was never written to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum OfRedis {
    /// They are imported.
    TakeOver,
    /// They are not looked for.
    Leave,
}

/// The data are those of a place in a stream: a replica goes on there, and a primary begins its own stream there.
/// Whether it does that.
fn go_on_in_stream(server: &Server) -> bool {
    let Some(StreamPlace { stream, offset, db }) = server.keyspace.stream_place() else {
        return false;
    };
    let id = ReplicationId::parse(&stream).filter(|_| offset <= Place::OFFSET_MAX);
    let place = id.map(|id| Place { id, offset });
    let Some(following) = server.role.following() else {
        if let Some(Place { id, offset }) = place {
            let kept_bytes = replication::kept_bytes(&server.config.settings());
            let last = Previous { id, until: offset };
            server.primary.resume_stream(last, kept_bytes, crate::clock::unix_ms());
        }
        // From now on changes come that are not of that stream.
        server.leave_stream();
        return place.is_some();
    };
    let _ = server.role.update(following.number, |following| {
        (following.place, following.db, following.read_offset) = (place, db, offset);
    });
    false
}

/// A log that was never written to takes over what Redis left. Another one does not, and the operator hears of it if
/// that is newer.
fn take_over_from_redis(opening: &Opening) -> Result<(), StartError> {
    const APPENDONLY: DirectiveId = DirectiveId::of("appendonly");
    let settings = opening.settings();
    let Some(found) =
        tierce_transfer::find_data_of_redis(settings).filter(|_| settings.is_on(APPENDONLY))
    else {
        return Ok(());
    };
    let log = &opening.engine().log;
    // Looking into the log changes its files, so what is newer is looked for before.
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
