//! The server's part of the log in a bucket: the steps at startup, and the thread that writes the log.
//!
//! * `settings`: values of the directives; `error`: reasons why a server cannot start with its bucket.
//! * `position_file`: the state that a data directory keeps: its node id, and its position in the log.
//! * `plan`: decides if a directory and a log fit together, and what has to be done.
//! * `claimed`: a log that this server writes; `ending`: the request to end its thread.
//! * `restore`: fills an empty directory.
//! * `tool`: fills one without a server: `tierce bucket restore`.
//! * `tail`: records of a killed owner's directory that the log lacks.
//! * `follow`: the thread that applies another server's records, and takes over from it.
//! * `lease`: the lease of an owner that another server may replace (`bucket-takeover yes`).
//! * `uploader`: the thread that follows the change feed, appends, and takes snapshots.
//! * `spool`: snapshots in a local file, on their way to the bucket.
//!
//! **Invariant**: data are on the local device before they are in the bucket. So the log of a directory that was the
//! owner is never behind the bucket, even after a machine failure.
//!
//! **Invariant**: objects have the records of the change feed, in its order. A batch of several records takes effect
//! with its last one, even if it spans objects, so a restore never shows half of it. The mark of a snapshot is set
//! while all shards are locked, and an object ends there.

mod claimed;
mod ending;
mod error;
mod follow;
mod lease;
mod plan;
mod position_file;
mod restore;
mod settings;
mod spool;
mod tail;
mod tool;
mod uploader;

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tierce_bucket::{End, Group, Location, Moment, Owner, Restore, Right, Runtime, Store, probe};
use tierce_engine::durability::CutSearch;
use tierce_engine::feed::Reader;
use tokio::time::timeout;

use crate::clock::unix_ms;
use crate::config::Settings;
use crate::engine::{Engine, Opening};
use crate::server::Server;
use claimed::{Claimed, new_mark};
use ending::Ending;
pub use error::BucketError;
use error::unusable;
use follow::Joining;
use lease::KeptOwner;
use plan::{Found, Refusal, Start};
use position_file::{Claiming, Known, PositionFile, new_id};
pub use restore::Restored;
use settings::{CLAIM, TAKEOVER, bytes_max, claim_of, url};
pub use tool::restore_into;

/// Time that a failed start waits for its RELEASE.
const RELEASE_MAX: Duration = Duration::from_secs(5);

/// Time after which a start logs that it waits for the store. A slow probe takes a second.
const SILENT_MAX: Duration = Duration::from_secs(3);

/// Number of threads of the runtime: requests wait for the network, and compressing a snapshot must not delay an
/// append.
const RUNTIME_THREADS: usize = 2;

/// Log in a bucket that was inspected and not claimed yet.
pub struct Looked {
    runtime: Runtime,
    store: Store,
    position_file: PositionFile,
    end: End,
    is_forced: bool,
}

/// This server's role in a log, while the data are being loaded.
pub enum Joined {
    /// It writes the log.
    Owner(Box<Claimed>),
    /// It applies the records of another server.
    Follower(Box<Joining>),
}

impl Joined {
    /// Must be called after the keys are loaded, and before any change.
    pub fn follow(&mut self, engine: &Engine) {
        match self {
            Self::Owner(claimed) => claimed.follow(engine),
            Self::Follower(_) => {}
        }
    }

    /// Starts the thread that writes or follows the log.
    ///
    /// # Errors
    /// If the log has changes that the data lack, which are then an old copy, or the system cannot start a thread.
    pub fn start(self, server: &Arc<Server>) -> Result<Bucket, BucketError> {
        if let Self::Owner(claimed) = &self
            && claimed.is_behind
        {
            let (url, refusal) = (claimed.store.url().to_owned(), Refusal::Behind);
            return Err(BucketError::Refused { url, refusal });
        }
        let ending = Arc::<Ending>::default();
        let thread = thread::Builder::new().name("bucket-log".into());
        let (of_thread, ending_of_thread) = (Arc::clone(server), Arc::clone(&ending));
        let thread = match self {
            Self::Owner(claimed) => thread.spawn(|| claimed.run(of_thread, ending_of_thread))?,
            Self::Follower(joining) => thread.spawn(|| joining.run(of_thread, ending_of_thread))?,
        };
        Ok(Bucket { server: Arc::clone(server), ending, thread: Some(thread) })
    }
}

/// Inspects the log in the settings, if there is one.
///
/// # Errors
/// As [`Looked::at`].
pub fn look(server: &Server, opening: &Opening) -> Result<Option<Looked>, BucketError> {
    Looked::at(server, opening)
}

impl Looked {
    /// Inspects the log in the settings, if there is one, and the directory's state of it.
    ///
    /// # Errors
    /// If the store does not answer or cannot hold a log, or another process uses the directory.
    pub fn at(server: &Server, opening: &Opening) -> Result<Option<Self>, BucketError> {
        let settings = opening.settings();
        let Some(url) = url(settings) else {
            if PositionFile::is_in(&settings.dir()) {
                let mut position_file = lock(server, settings)?;
                position_file.forget_positions(opening.has_log()?)?;
            }
            return Ok(None);
        };
        server.bucket.turn_on(&url);
        let failed = |error| BucketError::Store { url: url.clone(), error };
        let position_file = lock(server, settings)?;
        let runtime = runtime()?;
        let location = Location::parse(&url).map_err(unusable)?;
        runtime.block_on(location.check_credentials()).map_err(unusable)?;
        let store = Store::new(&location);
        let looked = runtime.block_on(awaited(server, &store, Step::Look, async {
            probe(&store).await?;
            Group::open(&store).await
        }));
        let end = looked.map_err(failed)?.end().clone();
        let is_forced = settings.word(CLAIM) == "force";
        Ok(Some(Self { runtime, store, position_file, end, is_forced }))
    }

    /// Returns true if there is a log, from which an empty directory is restored.
    pub fn has_log(&self) -> bool {
        self.end.number > 0
    }

    /// Claims the log. Begins to follow it instead if another server owns it and may be replaced. Fills an empty
    /// directory from it.
    ///
    /// # Errors
    /// If the directory and the log do not belong together, another server may own the log, or the log is damaged.
    pub fn claim(
        mut self,
        server: &Arc<Server>,
        opening: &mut Opening,
    ) -> Result<Joined, BucketError> {
        let url = self.store.url().to_owned();
        let failed = |error| BucketError::Store { url: url.clone(), error };
        let known = self.position_file.known.map(|known| plan::settled(known, &self.end));
        self.position_file.known = known;
        let is_forced = self.is_forced;
        let (has_data, is_here) = (opening.has_log()?, self.position_file.is_here());
        let takes_over = opening.settings().is_on(TAKEOVER);
        let found = Found { known, has_data, end: &self.end, is_forced, is_here, takes_over };
        if let Some(start) = plan::follow(found) {
            return self.join(server, opening, start);
        }
        let plan = plan::decide(found)
            .map_err(|refusal| BucketError::Refused { url: url.clone(), refusal })?;
        wait_for_clock(server, &url, self.end.wall)?;
        if is_forced {
            let line = "bucket-claim force: the last owner of the bucket is taken for dead. Remove this setting now";
            server.log.warning(line);
        }
        let before = known.unwrap_or_else(|| Known { node: new_id(), ..Known::default() });
        let owner = match self.put_claim(server, before, plan.right, has_data) {
            // Another empty server was faster.
            Err(tierce_bucket::Error::Owned { .. }) if takes_over && !has_data => {
                let group = self.runtime.block_on(Group::open(&self.store)).map_err(failed)?;
                self.end = group.end().clone();
                return self.join(server, opening, Start::Empty);
            }
            claimed => claimed.map_err(failed)?,
        };
        let (group, restores) = (owner.group().clone(), !has_data && owner.before().number > 0);
        lease::bind(server, &owner);
        // The following steps may take longer than the lease.
        let owner = KeptOwner::new(&self.runtime, server, owner);
        let end = group.end();
        let cut = before.cut.filter(|_| before.cluster == end.cluster && has_data);
        let known = Known {
            cluster: end.cluster,
            claim: end.number,
            claiming: None,
            released: None,
            follows: false,
            cut,
            home: Some(self.position_file.home()),
            ..before
        };
        self.position_file.write(known)?;
        let mut sent = None;
        if let Some(cut) = cut.filter(|_| plan.needs_base) {
            let max = bytes_max(opening.settings());
            let sought = Restore::behind(&group, cut.object, before.node, max);
            sent = self.runtime.block_on(sought).map_err(failed)?;
            // Each snapshot makes a cut, and pruning goes up to a cut: this is an older one.
            if cut.object + 1 < end.floor {
                return Err(BucketError::Refused { url, refusal: Refusal::Behind });
            }
            opening.engine().durability.search(CutSearch::new(cut.id, max));
        }
        server.bucket.update(|figures| {
            (figures.epoch, figures.number) = (end.epoch, end.number);
            if let Some(snapshot) = &end.snapshot {
                (figures.snapshot, figures.snapshot_ms) = (snapshot.position, snapshot.wall);
                figures.snapshot_bytes = snapshot.stored;
            }
        });
        let Self { runtime, store, position_file, .. } = self;
        let mut gaps = Vec::new();
        if restores {
            match restore::fill(&runtime, &group, Moment::Newest, opening, |_, _| {}) {
                Ok((_, unfinished)) => gaps = unfinished.gaps(),
                Err(error) => {
                    // Nothing was written behind the CLAIM. If this fails, the next start on this directory may claim.
                    let owner = owner.take(&runtime);
                    let _ = runtime.block_on(async { timeout(RELEASE_MAX, owner.release()).await });
                    return Err(error);
                }
            }
        }
        let (needs_base, tail, follower) = (plan.needs_base, Vec::new(), None);
        let mark = new_mark();
        let is_behind = false;
        let claimed = Claimed {
            runtime,
            store,
            owner,
            position_file,
            needs_base,
            sent,
            tail,
            gaps,
            follower,
            mark,
            is_behind,
        };
        Ok(Joined::Owner(Box::new(claimed)))
    }

    fn join(
        self,
        server: &Server,
        opening: &mut Opening,
        start: Start,
    ) -> Result<Joined, BucketError> {
        Joining::begin(self, server, opening, start)
            .map(|joining| Joined::Follower(Box::new(joining)))
    }

    /// Puts a CLAIM. If the directory has data, it goes behind the end that was inspected.
    fn put_claim(
        &mut self,
        server: &Server,
        before: Known,
        right: Right,
        has_data: bool,
    ) -> Result<Owner, tierce_bucket::Error> {
        use tierce_bucket::Error;
        // Only data have to be distinguished from those of a copy.
        let claiming =
            has_data.then(|| Claiming { nonce: new_id(), home: self.position_file.home() });
        // Before the CLAIM: after a crash, the next start finds that it was from this directory. The home does not
        // change yet: a copy that only tries to claim stays a copy.
        if let Err(error) = self.position_file.write(Known { claiming, ..before }) {
            return Err(Error::Invalid(format!("bucket.state: {error}")));
        }
        let claim = claim_of(&server.config.settings(), before.node, right);
        let claimed = self.runtime.block_on(awaited(server, &self.store, Step::Claim, async {
            match claiming {
                Some(Claiming { nonce, .. }) => {
                    Owner::claim_behind(&self.store, &self.end, claim, nonce).await
                }
                None => Owner::claim(&self.store, claim).await,
            }
        }));
        if let Err(Error::Owned { .. } | Error::WentOn { .. }) = claimed {
            // After any other error the CLAIM may still arrive.
            let _ = self.position_file.write(before);
        }
        claimed
    }
}

/// Thread that writes or follows the log.
pub struct Bucket {
    server: Arc<Server>,
    ending: Arc<Ending>,
    thread: Option<JoinHandle<()>>,
}

impl Bucket {
    /// Ends the thread: it commits the rest and releases the log, if the store answers in time. The time `spent`
    /// waiting for clients counts.
    pub fn finish(self, spent: Duration) {
        let spent_ms = u64::try_from(spent.as_millis()).unwrap_or(u64::MAX);
        self.ending.spent_ms.store(spent_ms, Ordering::Relaxed);
        drop(self);
    }
}

impl Drop for Bucket {
    fn drop(&mut self) {
        self.ending.is_asked.store(true, Ordering::Release);
        self.server.feed.call(Reader::Bucket);
        if let Some(thread) = self.thread.take() {
            // The panic was reported when it happened.
            let _ = thread.join();
        }
    }
}

/// Steps of a start that wait for the store.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    /// First inspection of the log.
    Look,
    /// A CLAIM. Only an answer ends it: it may have arrived.
    Claim,
}

/// Waits for the store at startup, and logs the cause of a long wait.
async fn awaited<T>(
    server: &Server,
    store: &Store,
    step: Step,
    look: impl Future<Output = T>,
) -> T {
    let mut look = pin!(look);
    let (mut told, failures) = (None, store.counters().usage().failures);
    loop {
        if let Ok(looked) = timeout(SILENT_MAX, look.as_mut()).await {
            return looked;
        }
        let (otherwise, unknown) = match step {
            Step::Look => (
                "If it does not answer within about a minute, this start fails",
                Some("there is no answer yet"),
            ),
            Step::Claim => {
                ("The start goes on when the store has taken the claim of its log", None)
            }
        };
        // A failure of an earlier step does not count.
        let has_failed = store.counters().usage().failures > failures;
        let cause = store.counters().last_failure().filter(|_| has_failed);
        let cause = cause.or_else(|| unknown.map(str::to_owned));
        if let Some(cause) = &cause
            && told != Some(cause.clone())
        {
            let url = store.url();
            server.log.warning(format_args!("The bucket {url} is awaited: {cause}. {otherwise}"));
        }
        told = cause.or(told);
    }
}

/// Returns the runtime for the requests to the store.
fn runtime() -> std::io::Result<Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(RUNTIME_THREADS)
        .thread_name("bucket")
        .enable_all()
        .build()
        .map(Runtime::from)
}

/// Waits until this machine's clock has reached the newest time in the log: otherwise keys that have expired there
/// would exist again.
fn wait_for_clock(server: &Server, url: &str, wall_ms: u64) -> Result<(), BucketError> {
    loop {
        let wait = plan::wait_for_clock(wall_ms, unix_ms().max(0).unsigned_abs());
        let wait = wait.map_err(|refusal| BucketError::Refused { url: url.to_owned(), refusal })?;
        if wait.is_zero() {
            return Ok(());
        }
        server.log.notice(format_args!(
            "The bucket's newest object is of a clock that is ahead: waiting {} ms",
            wait.as_millis()
        ));
        thread::sleep(wait);
    }
}

/// Locks a data directory, and completes an interrupted move to a side directory.
fn lock(server: &Server, settings: &Settings) -> io::Result<PositionFile> {
    let position_file = PositionFile::lock(&settings.dir())?;
    if let Some(aside) = position_file.finish_set_aside()? {
        server.log.warning(format_args!(
            "An earlier start was about to put the data of this directory aside. All of them are in {} now",
            aside.display()
        ));
    }
    Ok(position_file)
}
