//! The thread of a server that does not own the log: it applies what the owner appends, and takes over when the owner
//! has released the log or its lease is over.
//!
//! Clients read meanwhile; the role keeps them from writing. What is applied goes into the local log, with the number
//! of the object that it reaches ([`LiveReplay`]). So a follower that starts again goes on there, and one that takes
//! over has in its local log what the bucket has, and goes on without a snapshot.
//!
//! **Invariant**: between the last object that is applied and this server's CLAIM is nothing that is not applied.
//!
//! **Invariant**: behind a base nothing is applied or claimed before that is loaded: it has changes that no object has.
//!
//! **Invariant**: what is before this server's CLAIM is on the local device before that is put.
//!
//! **Invariant**: nothing is taken over because the store does not answer. Whether a lease is over is asked when the
//! store has just said that there is nothing new.

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
use tierce_keyspace::{DbIndex, STREAM_NAME_LEN, StreamPlace};
use tokio::time::timeout;

use super::claimed::{Claimed, new_mark};
use super::ending::Ending;
use super::error::BucketError;
use super::lease::{self, KeptOwner};
use super::place::{Known, Place, new_id};
use super::plan::Start;
use super::settings::{address, claim_of};
use super::spool::Content;
use super::{Looked, restore};
use crate::clock::unix_ms;
use crate::engine::Opening;
use crate::message::Notice;
use crate::server::Server;
use tell::{is_down, note_end, owner_of};

/// How often the thread looks around, if nothing comes.
const TICK: Duration = Duration::from_millis(100);

/// A CLAIM that has no outcome after this is told.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// After a failure of the store, it is asked again not earlier.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The same, if what the log has cannot be applied: then all of it is loaded, which costs requests.
const RELOAD_AFTER: Duration = Duration::from_secs(30);

/// A server that will follow, while its data are being loaded.
pub struct Joining {
    runtime: Runtime,
    store: Store,
    place: Place,
    end: End,
    is_forced: bool,
    /// Of the role.
    number: u64,
    from: From,
    /// What `from` has begun and not completed.
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
        let Looked { runtime, store, mut place, end, is_forced } = looked;
        let failed = |error| BucketError::Store { url: store.url().to_owned(), error };
        let now_ms = unix_ms();
        if start == Start::Diverged {
            put_aside(server, &place, now_ms)?;
        }
        // A copy of a directory is another server.
        let node = place.known.filter(|_| place.is_here()).map_or_else(new_id, |known| known.node);
        let cluster = end.cluster;
        let home = Some(place.home());
        let follows = true;
        place.write(Known { node, cluster, home, follows, ..Known::default() })?;
        let number = server.follow_bucket(owner_of(&end), now_ms);
        // It is the number of what is applied, which is not known yet.
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
        Ok(Self { runtime, store, place, end, is_forced, number, from, unfinished })
    }

    /// Follows until the end is asked for, or as the owner after a takeover.
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

/// Where a follower goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum From {
    /// Where the local log says.
    LocalLog,
    /// Behind this object, up to which everything is there.
    Object(u64),
    /// Nowhere: the data have to be replaced.
    Nothing,
}

/// Why following is interrupted.
enum Interrupt {
    /// The server ends.
    Ended,
    /// The store fails.
    Store(Error),
    /// The data here are not those that the log goes on from: it was pruned, or goes on behind a base, or there is
    /// another record.
    Lost(String),
    /// What the log has cannot be applied here.
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

/// Waits for the store, however long that takes, unless the server ends. `look` is called from time to time meanwhile.
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

/// The thread's state.
struct Follow {
    server: Arc<Server>,
    ending: Arc<Ending>,
    joining: Joining,
    live: LiveReplay,
    /// That of the newest claim that the role knows.
    epoch: u64,
    /// What was logged last, if the log is not followed.
    trouble: Option<String>,
    /// The operator knows that the clock is what a takeover waits for.
    has_told_behind: bool,
}

impl Follow {
    fn await_store<T>(&self, answer: impl Future<Output = T>) -> Result<T, Interrupt> {
        await_unless_ended(&self.joining.runtime, &self.ending, answer, || {})
    }

    /// The same while the log is claimed, and tells that it is not followed if that takes long: nothing ends this wait
    /// as long as the store fails.
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

    /// Follows until this server owns the log; `None` if the server ends first.
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
        // What was loaded may have more than one CLAIM in it.
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

    /// A follower behind what is here.
    fn begin(&mut self) -> Result<Follower, Interrupt> {
        let Joining { store, end, from, .. } = &self.joining;
        let keyspace = &self.server.keyspace;
        let object = match *from {
            From::Object(number) => {
                let hash = self.await_store(hash_of(store, number))??;
                note_place(&self.server, &self.live, place_at(end.cluster, number, hash));
                Some((number, hash))
            }
            From::LocalLog => keyspace.stream_place().and_then(|place| object_at(end, &place)),
            From::Nothing => None,
        };
        if object.is_some() {
            // What is applied from now on is behind that.
            self.joining.from = From::LocalLog;
        }
        match object {
            Some((number, hash)) => {
                Ok(self.await_store(Follower::at(&self.joining.store, number, hash))??)
            }
            None => self.replace_all(),
        }
    }

    /// Applies an object, at the end of which the follower is.
    fn apply(
        &mut self,
        follower: &Follower,
        batches: &[impl AsRef<[u8]>],
    ) -> Result<(), Interrupt> {
        let server = &self.server;
        let end = follower.end();
        let place = place_at(end.cluster, end.number, end.hash);
        let Some(_nobody_else) = server.role.apply_for(self.joining.number) else {
            return Err(Interrupt::Ended);
        };
        let mut locks = server.keyspace.long_locks();
        let applied = self.live.apply(&mut locks, batches, place, unix_ms());
        server.serve_waiting(&mut locks);
        applied.map_err(|error| Interrupt::Unfit(format!("object {}: {error}", end.number)))
    }

    /// Claims the log if it is free. `None`: it is not, or another server was faster.
    fn take_over_if_free(&mut self, follower: &mut Follower) -> Result<Option<Owner>, Interrupt> {
        let (server, is_forced) = (Arc::clone(&self.server), self.joining.is_forced);
        let settings = server.config.settings();
        let address = address(&settings);
        let free_at = follower.free_at(&address);
        let is_free = free_at.is_some_and(|at| at <= System.boottime());
        let known = self.joining.place.known.unwrap_or_default();
        // Nothing was ever answered under it: a start that had put it was killed before it knew, and the lock of this
        // directory, which is no copy, says that it is dead. Else nobody would ever take over from it.
        let last = follower.end().claim.as_ref();
        let is_own = free_at.is_none() && last.is_some_and(|last| last.node == known.node);
        // While the local log fails, another one is the better owner.
        let may = follower.trouble().is_none() && !server.durability.refuses_writes();
        if !may || !(is_free || is_own || is_forced) || self.is_behind(follower.end()) {
            return Ok(None);
        }
        let unwritten = |error| Error::Invalid(format!("bucket.state: {error}"));
        if is_own {
            // CLAIMs are never deleted. A directory that cannot be written is not to add one after the other.
            self.joining.place.write(known).map_err(unwritten)?;
        }
        // After a power cut, this directory is to have what it claims to go on from.
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
        // Whether the CLAIM lands or not, until the role changes the data are those of the log, and a start after a
        // crash finds a directory that follows.
        let claiming = Arc::clone(follower.claiming());
        let claim = claim_of(&settings, known.node, right);
        let taken = self.await_claim(&claiming, follower.take_over(claim))?;
        let owner = match taken {
            Ok(owner) => owner,
            Err(Error::Owned { .. }) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let end = owner.group().end();
        // Before the first change that is not of the log. If it cannot be written, the lease passes unused.
        let place = &mut self.joining.place;
        let (claim, home) = (end.number, Some(place.home()));
        let owns = Known { claim, follows: false, cut: None, home, ..known };
        place.write(owns).map_err(unwritten)?;
        let millis = began.elapsed().as_millis();
        server.log.notice(format_args!(
            "This server owns the bucket now: its CLAIM is object {} (in {millis} ms)",
            end.number
        ));
        Ok(Some(owner))
    }

    /// Whether this machine's clock has not come to the times in the log: keys would expire twice.
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

    /// What clients change goes into the log from now on.
    fn own(self, owner: Owner) -> Claimed {
        let Joining { runtime, store, place, .. } = self.joining;
        let server = self.server;
        note_end(&server, owner.group().end());
        // Before the role changes: from then on clients are answered as by the owner.
        lease::bind(&server, &owner);
        let owner = KeptOwner::new(&runtime, &server, owner);
        let mut claimed = Claimed {
            runtime,
            store,
            owner,
            place,
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
            // What was applied is there already.
            server.bucket.note_committed(server.feed.position());
        });
        server.tell_all(&Notice::Resume);
        server.log.notice("This server is a primary now");
        claimed
    }
}

/// A snapshot of the log says nothing new. A base has what was in no object, and so has to be loaded before this server
/// may claim the log, or note a place behind it.
fn note_snapshot(position: u64, description: &[u8]) -> Result<(), Interrupt> {
    match Content::of(description) {
        Some(Content::OfLog) => Ok(()),
        Some(Content::Base) => {
            Err(Interrupt::Lost(format!("the log goes on behind a base, at object {position}")))
        }
        None => Err(Interrupt::Unfit("a snapshot of an unknown kind".to_owned())),
    }
}

/// Notes in the local log how far the data are. In the middle of a batch they are nowhere: a start that went on there
/// would not have what the batch has begun with.
fn note_place(server: &Server, live: &LiveReplay, place: StreamPlace) {
    let mut locks = server.keyspace.long_locks();
    locks.move_to(Some(place).filter(|_| live.is_between_batches()));
    locks.release();
}

/// The hash of an object up to which everything is here.
async fn hash_of(store: &Store, number: u64) -> Result<Hash, Interrupt> {
    let group = Group::open(store).await?;
    group.hash_of(number).await.map_err(|error| match error {
        Error::Missing { .. } => Interrupt::Lost(error.to_string()),
        error => error.into(),
    })
}

/// What a deposed owner has is put aside.
fn put_aside(server: &Server, place: &Place, now_ms: i64) -> Result<(), BucketError> {
    let aside = place.set_aside(now_ms)?;
    let (path, claim) = (aside.display(), place.known.map_or(0, |known| known.claim));
    server.log.warning(format_args!(
        "Another server has claimed the bucket since object {claim}, with which this directory was its owner. What was here \
         is in {path} now: all its data, also changes that never reached the bucket. To look at them, start a server \
         without --bucket on that directory; else remove it"
    ));
    Ok(())
}

/// The part of a log's id that is in the name of a place.
const CLUSTER_BYTES: usize = STREAM_NAME_LEN - size_of::<Hash>();

/// An object of a log as a place of the data: the name has a part of the log's id and the object's hash, so that
/// nothing is appended to what another log has.
fn place_at(cluster: Id, number: u64, hash: Hash) -> StreamPlace {
    let mut stream = [0; STREAM_NAME_LEN];
    stream[..CLUSTER_BYTES].copy_from_slice(&cluster[..CLUSTER_BYTES]);
    stream[CLUSTER_BYTES..].copy_from_slice(&hash);
    StreamPlace { stream, offset: number, db: DbIndex::ZERO }
}

/// The reverse; `None` if it is not a place in this log.
fn object_at(end: &End, place: &StreamPlace) -> Option<(u64, Hash)> {
    let (cluster, hash) = place.stream.split_at(CLUSTER_BYTES);
    let is_of_log = cluster == &end.cluster[..CLUSTER_BYTES] && place.offset > 0;
    is_of_log.then(|| (place.offset, hash.try_into().expect("the rest")))
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
