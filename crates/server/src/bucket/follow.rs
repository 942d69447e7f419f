//! The thread of a server that does not own the log. It applies the records that the owner appends. It takes over when
//! the owner has released the log or the owner's lease has expired.
//!
//! Meanwhile clients read; the role keeps them from writing. Applied changes go into the local log, with the number of
//! the object they come from ([`LiveReplay`]). So a follower that restarts continues there. One that takes over has the
//! bucket's data in its local log, and continues without a snapshot.
//!
//! **Invariant**: there is no unapplied object between the last applied object and this server's CLAIM.
//!
//! **Invariant**: nothing behind a base is applied or claimed before the base is loaded: it has changes that no object
//! has.
//!
//! **Invariant**: everything before this server's CLAIM is on the local device before the CLAIM is put.
//!
//! **Invariant**: an unreachable store never causes a takeover. The lease is checked only after the store has just
//! reported that there is nothing new.

mod replace;
mod tell;

use std::pin::pin;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use tierce_bucket::{
    End, Env, Error, Followed, Follower, Group, Hash, Id, Moment, Owner, Progress, Right, Runtime,
    Store, System,
};
use tierce_keyspace::log::{LiveReplay, Unfinished};
use tierce_keyspace::{DbIndex, STREAM_NAME_LEN, StreamPosition};
use tokio::time::timeout;

use super::claimed::{Claimed, new_mark};
use super::ending::Ending;
use super::error::BucketError;
use super::lease::{self, KeptOwner};
use super::plan::Start;
use super::position_file::{Known, PositionFile, new_id};
use super::settings::{address, claim_of};
use super::spool::Content;
use super::{Looked, restore};
use crate::clock::unix_ms;
use crate::engine::Opening;
use crate::message::Notice;
use crate::server::Server;
use tell::{is_down, note_end, owner_of};

/// Polling interval of the thread when nothing arrives.
const TICK: Duration = Duration::from_millis(100);

/// Time after which a CLAIM without an outcome is logged.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// Delay before the store is asked again after a failure.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Delay before a full reload, which costs requests, if the log cannot be applied.
const RELOAD_AFTER: Duration = Duration::from_secs(30);

/// Server that will follow, while its data are being loaded.
pub struct Joining {
    runtime: Runtime,
    store: Store,
    position_file: PositionFile,
    end: End,
    is_forced: bool,
    /// Number of the role.
    number: u64,
    from: From,
    /// Batches that `from` has begun and not completed.
    unfinished: Unfinished,
}

impl Joining {
    /// Begins to follow. Fills an empty directory from the log.
    pub(super) fn begin(
        looked: Looked,
        server: &Server,
        opening: &mut Opening,
        start: Start,
    ) -> Result<Self, BucketError> {
        let Looked { runtime, store, mut position_file, end, is_forced } = looked;
        let failed = |error| BucketError::Store { url: store.url().to_owned(), error };
        let now_ms = unix_ms();
        if start == Start::Diverged {
            put_aside(server, &position_file, now_ms)?;
        }
        // A copy of a directory is another server.
        let node = position_file
            .known
            .filter(|_| position_file.is_here())
            .map_or_else(new_id, |known| known.node);
        let cluster = end.cluster;
        let home = Some(position_file.home());
        let follows = true;
        position_file.write(Known { node, cluster, home, follows, ..Known::default() })?;
        let number = server.follow_bucket(owner_of(&end), now_ms);
        // This is the number of the last applied object, which is not known yet.
        note_end(server, &End { number: 0, ..end.clone() });
        let mut unfinished = Unfinished::default();
        let from = match start {
            Start::GoesOn => From::LocalLog,
            Start::Behind(object) => From::Object(object),
            Start::Empty | Start::Diverged => {
                let group = runtime.block_on(Group::open(&store)).map_err(failed)?;
                let (filled, begun) =
                    restore::fill(&runtime, &group, Moment::Newest, opening, |_, _| {})?;
                unfinished = begun;
                From::Object(filled.position)
            }
        };
        Ok(Self { runtime, store, position_file, end, is_forced, number, from, unfinished })
    }

    /// Follows until shutdown is requested. After a takeover it continues as the owner.
    pub(super) fn run(mut self, server: Arc<Server>, ending: Arc<Ending>) {
        let live = LiveReplay::behind(std::mem::take(&mut self.unfinished));
        let follow = Follow {
            server: Arc::clone(&server),
            ending: Arc::clone(&ending),
            // The role has the owner of that end.
            epoch: self.end.epoch,
            joining: self,
            live,
            trouble: None,
            has_told_behind: false,
        };
        if let Some(claimed) = follow.until_owner() {
            claimed.run(server, ending);
        }
    }
}

/// Position from which a follower continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum From {
    /// The position in the local log.
    LocalLog,
    /// Behind this object; everything up to it is present.
    Object(u64),
    /// None: the data have to be replaced.
    Nothing,
}

/// Reason why following is interrupted.
enum Interrupt {
    /// The server shuts down.
    Ended,
    /// The store fails.
    Store(Error),
    /// The local data do not match the log: it was pruned, it continues behind a base, or it has another record.
    Lost(String),
    /// The log has a record that cannot be applied here.
    Unfit(String),
}

impl std::convert::From<Error> for Interrupt {
    fn from(error: Error) -> Self {
        match error {
            Error::Overtaken { .. } | Error::History(_) => Self::Lost(error.to_string()),
            error => Self::Store(error),
        }
    }
}

/// Waits for the store without a time limit, unless the server shuts down. Calls `look` from time to time meanwhile.
fn await_unless_ended<T>(
    runtime: &Runtime,
    ending: &Ending,
    answer: impl Future<Output = T>,
    mut look: impl FnMut(),
) -> Result<T, Interrupt> {
    runtime.block_on(async {
        let mut answer = pin!(answer);
        while !ending.is_asked() {
            if let Ok(answer) = timeout(TICK, answer.as_mut()).await {
                return Ok(answer);
            }
            look();
        }
        Err(Interrupt::Ended)
    })
}

/// State of the thread.
struct Follow {
    server: Arc<Server>,
    ending: Arc<Ending>,
    joining: Joining,
    live: LiveReplay,
    /// Epoch of the newest claim that the role knows.
    epoch: u64,
    /// Last logged error, while the log is not followed.
    trouble: Option<String>,
    /// True once the operator was told that the takeover waits for the clock.
    has_told_behind: bool,
}

impl Follow {
    fn await_store<T>(&self, answer: impl Future<Output = T>) -> Result<T, Interrupt> {
        await_unless_ended(&self.joining.runtime, &self.ending, answer, || {})
    }

    /// Waits for a claim in this way. If that takes long, it reports that the log is not followed: nothing ends this
    /// wait while the store fails.
    fn await_claim<T>(
        &mut self,
        claiming: &Progress,
        answer: impl Future<Output = T>,
    ) -> Result<T, Interrupt> {
        let Self { server, ending, joining, trouble, .. } = self;
        let began = Instant::now();
        await_unless_ended(&joining.runtime, ending, answer, || {
            let failure = claiming.trouble().map(|trouble| trouble.error);
            let is_slow = began.elapsed() >= ANSWER_MAX;
            let silence = || is_slow.then(|| "the store does not answer to a CLAIM".to_owned());
            if let Some(error) = failure.or_else(silence) {
                is_down(server, joining, trouble, &error);
            }
        })
    }

    fn rest(&self, pause: Duration) {
        let until = Instant::now() + pause;
        while Instant::now() < until && !self.ending.is_asked() {
            thread::sleep(TICK);
        }
    }

    /// Follows until this server owns the log; `None` if the server shuts down first.
    fn until_owner(mut self) -> Option<Claimed> {
        loop {
            let interrupt = match self.follow() {
                Ok(owner) => return Some(self.own(owner)),
                Err(interrupt) => interrupt,
            };
            let mut pause = RETRY_AFTER;
            match interrupt {
                Interrupt::Ended => return None,
                Interrupt::Store(error) => self.is_down(&error.to_string()),
                Interrupt::Lost(why) => {
                    self.is_down(&format!("{why}. The data are loaded anew"));
                    self.joining.from = From::Nothing;
                }
                Interrupt::Unfit(why) => {
                    self.is_down(&format!("{why}. The data are loaded anew"));
                    self.joining.from = From::Nothing;
                    pause = RELOAD_AFTER;
                }
            }
            self.rest(pause);
        }
    }

    /// Follows until this server owns the log.
    fn follow(&mut self) -> Result<Owner, Interrupt> {
        let mut follower = self.begin()?;
        // The loaded data may have more than one CLAIM.
        if let Some(claim) = follower.end().claim.clone() {
            self.has_owner(&claim);
        }
        self.tell(&follower);
        loop {
            if self.ending.is_asked() {
                return Err(Interrupt::Ended);
            }
            match self.await_store(follower.next(TICK))?? {
                Followed::Batches { batches, .. } => self.apply(&follower, &batches)?,
                Followed::Claimed(claim) => self.has_owner(&claim),
                Followed::Snapshot { position, description } => {
                    note_snapshot(position, &description)?;
                }
                Followed::Released | Followed::Alive => {}
                Followed::Quiet => {
                    if let Some(owner) = self.take_over_if_free(&mut follower)? {
                        return Ok(owner);
                    }
                }
            }
            self.tell(&follower);
        }
    }

    /// Opens a follower at the position of the local data.
    fn begin(&mut self) -> Result<Follower, Interrupt> {
        let Joining { store, end, from, .. } = &self.joining;
        let keyspace = &self.server.keyspace;
        let object = match *from {
            From::Object(number) => {
                let hash = self.await_store(hash_of(store, number))??;
                note_position(&self.server, &self.live, position_at(end.cluster, number, hash));
                Some((number, hash))
            }
            From::LocalLog => {
                keyspace.stream_position().and_then(|position| object_at(end, &position))
            }
            From::Nothing => None,
        };
        if object.is_some() {
            // Applied objects are behind that position from now on.
            self.joining.from = From::LocalLog;
        }
        match object {
            Some((number, hash)) => {
                Ok(self.await_store(Follower::at(&self.joining.store, number, hash))??)
            }
            None => self.replace_all(),
        }
    }

    /// Applies an object, at whose end the follower is.
    fn apply(
        &mut self,
        follower: &Follower,
        batches: &[impl AsRef<[u8]>],
    ) -> Result<(), Interrupt> {
        let server = &self.server;
        let end = follower.end();
        let position = position_at(end.cluster, end.number, end.hash);
        let Some(_nobody_else) = server.role.apply_for(self.joining.number) else {
            return Err(Interrupt::Ended);
        };
        let mut locks = server.keyspace.long_locks();
        let applied = self.live.apply(&mut locks, batches, position, unix_ms());
        server.serve_waiting(&mut locks);
        applied.map_err(|error| Interrupt::Unfit(format!("object {}: {error}", end.number)))
    }

    /// Claims the log if it is free. Returns `None` if it is not, or another server was faster.
    fn take_over_if_free(&mut self, follower: &mut Follower) -> Result<Option<Owner>, Interrupt> {
        let (server, is_forced) = (Arc::clone(&self.server), self.joining.is_forced);
        let settings = server.config.settings();
        let address = address(&settings);
        let free_at = follower.free_at(&address);
        let is_free = free_at.is_some_and(|at| at <= System.boottime());
        let known = self.joining.position_file.known.unwrap_or_default();
        // No client was ever answered under this CLAIM: the start that put it was killed before it knew. The lock of
        // this directory, which is no copy, proves that this start is dead. Otherwise nobody could ever take over from
        // it.
        let last = follower.end().claim.as_ref();
        let is_own = free_at.is_none() && last.is_some_and(|last| last.node == known.node);
        // While the local log has failed, another server is the better owner.
        let may = follower.trouble().is_none() && !server.durability.refuses_writes();
        if !may || !(is_free || is_own || is_forced) || self.is_behind(follower.end()) {
            return Ok(None);
        }
        let unwritten = |error| Error::Invalid(format!("bucket.state: {error}"));
        if is_own {
            // CLAIMs are never deleted, so an unwritable directory must not add one after the other.
            self.joining.position_file.write(known).map_err(unwritten)?;
        }
        // After a power loss, this directory must have the data that its claim continues from.
        let durable_log = server.durability.durable_log();
        if durable_log.is_some_and(|wal| wal.sync().is_err() || wal.has_write_error()) {
            return Ok(None);
        }
        let right = match (is_forced, is_own) {
            (true, _) => Right::Force,
            (false, true) => Right::PredecessorDead,
            (false, false) => Right::LeaseOver,
        };
        let began = Instant::now();
        // The outcome of the CLAIM does not matter here: until the role changes, the data are those of the log, and a
        // start after a crash finds a directory that follows.
        let claiming = Arc::clone(follower.claiming());
        let claim = claim_of(&settings, known.node, right);
        let taken = self.await_claim(&claiming, follower.take_over(claim))?;
        let owner = match taken {
            Ok(owner) => owner,
            Err(Error::Owned { .. }) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let end = owner.group().end();
        // Before the first change that is not from the log. If it cannot be written, the lease expires unused.
        let position_file = &mut self.joining.position_file;
        let (claim, home) = (end.number, Some(position_file.home()));
        let owns = Known { claim, follows: false, cut: None, home, ..known };
        position_file.write(owns).map_err(unwritten)?;
        let millis = began.elapsed().as_millis();
        server.log.notice(format_args!(
            "This server owns the bucket now: its CLAIM is object {} (in {millis} ms)",
            end.number
        ));
        Ok(Some(owner))
    }

    /// Returns true if this machine's clock is behind the times in the log: keys would expire twice.
    fn is_behind(&mut self, end: &End) -> bool {
        let behind_ms = end.wall.saturating_sub(unix_ms().max(0).unsigned_abs());
        let is_behind = behind_ms > 0;
        if is_behind && !std::mem::replace(&mut self.has_told_behind, true) {
            self.server.log.warning(format_args!(
                "The bucket has no owner, and this server takes over when its clock is at the time of the log, in {} s: \
                 that of the last owner was ahead. Check the clocks of both machines",
                behind_ms.div_ceil(1000)
            ));
        }
        is_behind
    }

    /// Makes this server the owner: client changes go into the log from now on.
    fn own(self, owner: Owner) -> Claimed {
        let Joining { runtime, store, position_file, .. } = self.joining;
        let server = self.server;
        note_end(&server, owner.group().end());
        // Before the role changes: from then on clients get replies of the owner.
        lease::bind(&server, &owner);
        let owner = KeptOwner::new(&runtime, &server, owner);
        let mut claimed = Claimed {
            runtime,
            store,
            owner,
            position_file,
            needs_base: false,
            sent: None,
            tail: Vec::new(),
            gaps: self.live.gaps(),
            follower: None,
            mark: new_mark(),
            is_behind: false,
        };
        server.own_bucket(unix_ms(), || {
            claimed.follow(&server.engine);
            // The applied changes are in the log already.
            server.bucket.note_committed(server.feed.position());
        });
        server.tell_all(&Notice::Resume);
        server.log.notice("This server is a primary now");
        claimed
    }
}

/// Handles a snapshot of the log. A normal one has nothing new. A base has changes that no object has, so it must be
/// loaded before this server claims the log or records a position behind it.
fn note_snapshot(position: u64, description: &[u8]) -> Result<(), Interrupt> {
    match Content::of(description) {
        Some(Content::OfLog) => Ok(()),
        Some(Content::Base) => {
            Err(Interrupt::Lost(format!("the log goes on behind a base, at object {position}")))
        }
        None => Err(Interrupt::Unfit("a snapshot of an unknown kind".to_owned())),
    }
}

/// Records the position of the data in the local log. In the middle of a batch there is none: a start that continued
/// there would lack the beginning of the batch.
fn note_position(server: &Server, live: &LiveReplay, position: StreamPosition) {
    let mut locks = server.keyspace.long_locks();
    locks.move_to(Some(position).filter(|_| live.is_between_batches()));
    locks.release();
}

/// Returns the hash of an object up to which everything is present.
async fn hash_of(store: &Store, number: u64) -> Result<Hash, Interrupt> {
    let group = Group::open(store).await?;
    group.hash_of(number).await.map_err(|error| match error {
        Error::Missing { .. } => Interrupt::Lost(error.to_string()),
        error => error.into(),
    })
}

/// Moves the data of a deposed owner to a side directory.
fn put_aside(
    server: &Server,
    position_file: &PositionFile,
    now_ms: i64,
) -> Result<(), BucketError> {
    let aside = position_file.set_aside(now_ms)?;
    let (path, claim) = (aside.display(), position_file.known.map_or(0, |known| known.claim));
    server.log.warning(format_args!(
        "Another server has claimed the bucket since object {claim}, with which this directory was its owner. What was here \
         is in {path} now: all its data, also changes that never reached the bucket. To look at them, start a server \
         without --bucket on that directory; else remove it"
    ));
    Ok(())
}

/// Number of bytes of a log's id in the stream name of a position.
const CLUSTER_BYTES: usize = STREAM_NAME_LEN - size_of::<Hash>();

/// Returns the position of the data at an object of a log. The name has a part of the log's id and the object's hash,
/// so that data of one log are never continued with another.
fn position_at(cluster: Id, number: u64, hash: Hash) -> StreamPosition {
    let mut stream = [0; STREAM_NAME_LEN];
    stream[..CLUSTER_BYTES].copy_from_slice(&cluster[..CLUSTER_BYTES]);
    stream[CLUSTER_BYTES..].copy_from_slice(&hash);
    StreamPosition { stream, offset: number, db: DbIndex::ZERO }
}

/// Returns the object of a position; `None` if it is not a position in this log.
fn object_at(end: &End, position: &StreamPosition) -> Option<(u64, Hash)> {
    let (cluster, hash) = position.stream.split_at(CLUSTER_BYTES);
    let is_of_log = cluster == &end.cluster[..CLUSTER_BYTES] && position.offset > 0;
    is_of_log.then(|| (position.offset, hash.try_into().expect("the rest")))
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn the_end_of_the_server_is_not_held_up_by_a_store_that_does_not_answer() {
        let (runtime, ending) = (super::super::runtime().unwrap(), Ending::default());
        assert!(matches!(await_unless_ended(&runtime, &ending, async { 7 }, || {}), Ok(7)));
        let asked = thread::scope(|scope| {
            let waits =
                scope.spawn(|| await_unless_ended(&runtime, &ending, pending::<()>(), || {}));
            ending.is_asked.store(true, Ordering::Release);
            waits.join().unwrap()
        });
        assert!(matches!(asked, Err(Interrupt::Ended)));
    }
}
