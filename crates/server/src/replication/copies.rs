//! The thread that starts full copies for replicas, and disconnects replicas that cannot continue.

use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tierce_commands::replication::{Begun, Copy, Replica, Source};
use tierce_engine::feed::Reader;
use tierce_keyspace::{Busy, SnapshotError};
use tierce_rdb::{VERSION_REDIS_6_2, VERSION_REDIS_7_0};
use tierce_replication::translate::Dialect;

use super::stream::dialect;
use crate::clock::{BEFORE_ALL_MS, unix_ms};
use crate::commands::bucket::State;
use crate::commands::replication::failover::Phase;
use crate::config::{ClientClass, DirectiveId, Settings};
use crate::persistence::SaveError;
use crate::server::Server;

/// Interval at which the thread checks the replicas, if nothing wakes it.
const TICK: Duration = Duration::from_millis(100);

/// Delay before a copy is tried again if a program has locked shards for too long.
const BUSY_FOR: Duration = Duration::from_secs(1);

/// Number of ticks between two keepalives to replicas that wait for a copy.
const TICKS_OF_A_SIGN: u32 = 10;

/// Command that replicas get now and then, to show that the link works.
const PING: &[u8] = b"*1\r\n$4\r\nPING\r\n";

/// Handle of the thread. Dropping it ends the thread.
pub struct Copies {
    server: Arc<Server>,
    thread: Option<JoinHandle<()>>,
}

impl Copies {
    /// Starts the thread.
    ///
    /// # Errors
    /// If the system cannot start a thread.
    pub fn start(server: &Arc<Server>) -> io::Result<Self> {
        const WANTED: DirectiveId = DirectiveId::of("min-replicas-to-write");
        const LAG_MAX: DirectiveId = DirectiveId::of("min-replicas-max-lag");
        server.count_replicas(&server.config.settings(), unix_ms());
        let weak = Arc::downgrade(server);
        server.config.on_change([WANTED, LAG_MAX], move |settings| {
            if let Some(server) = weak.upgrade() {
                server.count_replicas(settings, unix_ms());
            }
            Ok(())
        });
        let of_thread = Arc::clone(server);
        let thread =
            thread::Builder::new().name("replicas".into()).spawn(move || run(&of_thread))?;
        Ok(Self { server: Arc::clone(server), thread: Some(thread) })
    }
}

impl Drop for Copies {
    fn drop(&mut self) {
        self.server.primary.end();
        self.server.primary.give_up_copy();
        if let Some(thread) = self.thread.take() {
            // The panic was reported when it happened.
            let _ = thread.join();
        }
    }
}

fn run(server: &Arc<Server>) {
    let mut tick = 0_u32;
    let (mut pinged, mut begins_from) = (Instant::now(), Instant::now());
    while server.primary.wait(server.primary.has_replicas().then_some(TICK)) {
        let (settings, now_ms) = (server.config.settings(), unix_ms());
        server.count_replicas(&settings, now_ms);
        let replicas = server.primary.replicas();
        replicas.iter().for_each(|replica| end_if_lost(server, replica, &settings, now_ms));
        tick = tick.wrapping_add(1);
        if tick.is_multiple_of(TICKS_OF_A_SIGN) {
            replicas.iter().for_each(|replica| replica.show_life());
            server.wake_replicas();
        }
        if time_to_ping(server, &settings).is_some_and(|period| pinged.elapsed() >= period) {
            pinged = Instant::now();
            server.feed.pass(PING);
        }
        // The saver waits for the mark of a copy that has begun, and a base of the bucket for the saver.
        let is_wanted = replicas.iter().any(|replica| replica.waits().is_some());
        let is_useless = !is_wanted || awaits_bucket(server);
        if is_useless && server.primary.cancel_beginning() {
            server.log.notice(match is_wanted {
                true => "The full copy that began waits for the bucket, and is given up for now",
                false => "The full copy that began is given up: no replica waits for it",
            });
        }
        if Instant::now() >= begins_from
            && is_copy_due(server, &replicas, &settings, now_ms)
            && begin_copy(server, &settings).is_err()
        {
            begins_from = Instant::now() + BUSY_FOR;
        }
    }
}

/// Disconnects a replica if the stream lacks its bytes, if it lags for too long, or if it was silent for
/// `repl-timeout`.
fn end_if_lost(server: &Server, replica: &Replica, settings: &Settings, now_ms: i64) {
    let overdue = replica.overdue_seconds(now_ms);
    let is_silent = overdue.is_some_and(|time| time > repl_timeout(settings).as_secs() as i64);
    let limit = settings.output_limits().of(ClientClass::Replica);
    let lags = replica.is_lost() || replica.lags_for(limit.soft_bytes, limit.soft_seconds, now_ms);
    if is_silent || lags {
        let addr = &replica.client.addr;
        let why = match is_silent {
            true => "it was silent for repl-timeout",
            false => "it lags more than client-output-buffer-limit allows, or the stream has ended",
        };
        server.log.warning(format_args!("The replica {addr} is disconnected: {why}"));
        server.end_connection(&replica.client);
    }
}

/// Returns the time after which replicas get the next PING in the stream. `None` while a shutdown or a handover waits
/// for the replicas to reach the end of the stream, because a PING makes it longer. A shutdown is soon over. A failover
/// may wait for long, and silent links are closed: so it has PINGs, but few, as the new primary has to confirm each.
fn time_to_ping(server: &Server, settings: &Settings) -> Option<Duration> {
    if server.shutdown().is_asked() {
        return None;
    }
    match server.failover.phase() {
        Phase::Nothing => Some(ping_period(settings)),
        Phase::WaitsForSync => Some(ping_period(settings).max(repl_timeout(settings) / 4)),
        // The other server has the stream.
        Phase::HandsOver => None,
    }
}

fn ping_period(settings: &Settings) -> Duration {
    const PERIOD: DirectiveId = DirectiveId::of("repl-ping-replica-period");
    Duration::from_secs(settings.count(PERIOD))
}

fn repl_timeout(settings: &Settings) -> Duration {
    const TIMEOUT: DirectiveId = DirectiveId::of("repl-timeout");
    Duration::from_secs(settings.count(TIMEOUT))
}

/// Returns the newest RDB version that all replicas read, if that is not the newest one.
fn version_max(settings: &Settings) -> Option<u16> {
    match dialect(settings) {
        Dialect::Redis6_2 => Some(VERSION_REDIS_6_2),
        Dialect::Redis7_0 => Some(VERSION_REDIS_7_0),
        _ => None,
    }
}

/// Returns true if replicas have waited long enough for others to share their copy. Replicas that want the stream after
/// the copy first wait for the stream to begin. No copy begins while the log has failed or the bucket is unreachable:
/// its mark would get no offset, and nothing else could be saved meanwhile. None begins during the last snapshot of a
/// shutdown.
fn is_copy_due(
    server: &Server,
    replicas: &[Arc<Replica>],
    settings: &Settings,
    now_ms: i64,
) -> bool {
    const DELAY: DirectiveId = DirectiveId::of("repl-diskless-sync-delay");
    const ENOUGH: DirectiveId = DirectiveId::of("repl-diskless-sync-max-replicas");
    let is_active = server.primary.is_active();
    let is_marked = is_active && server.primary.source() == Source::Changes;
    let gets_no_position = server.durability.log_has_failed() || awaits_bucket(server);
    if is_marked && gets_no_position || server.shutdown().is_asked() {
        return false;
    }
    let waits = |replica: &&Arc<Replica>| {
        replica.waits().is_some() && (is_active || !replica.wants_stream())
    };
    let waiting: Vec<_> = replicas.iter().filter(waits).collect();
    let longest = waiting.iter().map(|replica| replica.silent_seconds(now_ms)).max();
    let enough = settings.count(ENOUGH);
    longest.is_some_and(|longest| longest >= settings.number(DELAY))
        || enough > 0 && waiting.len() as u64 >= enough
}

/// Returns true if the stream waits for a bucket that is unreachable, or waits for its base.
fn awaits_bucket(server: &Server) -> bool {
    server.bucket_goes_before_replicas()
        && server.bucket.update(|figures| figures.state != State::Following)
}

/// Begins a copy for all replicas that wait for one. If a save is running, they keep waiting.
///
/// The copy also has expired keys that still exist. While this server is a replica, its primary decides about them, and
/// the decision about such a key comes after the copy.
///
/// # Errors
/// [`Busy`] if a program locks shards for too long.
fn begin_copy(server: &Arc<Server>, settings: &Settings) -> Result<(), Busy> {
    let weak = Arc::downgrade(server);
    let wake = move || {
        if let Some(server) = weak.upgrade() {
            server.wake_replicas();
        }
    };
    let (copy, sink) = Copy::begin(repl_timeout(settings), version_max(settings), Box::new(wake));
    // Until the offset of the copy is set or known, the source of the stream does not change, and that of a primary
    // does not advance.
    let still = server.role.hold_still();
    let Some(begun) = server.primary.begin_copy(Arc::clone(&copy)) else { return Ok(()) };
    let mut placed = None;
    let moment = || match begun {
        Begun::Mark(number) => server.feed.mark(Reader::Replicas, number),
        Begun::Here(number) => placed = Some(server.primary.place_copy(number)),
        Begun::Alone(_) => {}
    };
    // Other threads wait for the role meanwhile.
    let patience = server.persistence.patience().min(Duration::from_secs(1));
    let mut locks = server.keyspace.impatient_long_locks(patience);
    let outcome = server.engine.begin_copy(&mut locks, BEFORE_ALL_MS, sink, moment);
    drop(still);
    match outcome {
        Ok(_) => {
            if let Begun::Alone(number) = begun {
                placed = Some(server.primary.place_copy_alone(number));
            }
            if let Some(count) = placed {
                server.log.notice(format_args!(
                    "A full copy begins for {}",
                    tierce_engine::count(count, "replica")
                ));
                server.wake_replicas();
            }
        }
        Err(error) => {
            server.primary.cancel_copy(&copy);
            match error {
                SaveError::InProgress => {}
                SaveError::Snapshot(SnapshotError::Busy(busy)) => return Err(busy),
                _ => server.log.warning(format_args!("No full copy for replicas: {error}")),
            }
        }
    }
    Ok(())
}
