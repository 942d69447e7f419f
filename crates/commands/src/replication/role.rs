//! Role of this server: the primary that it follows, if any, and the state of its link; and the restrictions for
//! clients that result from this, or from too few replicas.
//!
//! Commands change the primary. A thread of the server follows it and reports its progress here. The check for each
//! request is one atomic load.
//!
//! **Invariant:** clients do not change keys while the server is a replica. Otherwise its data would differ from the
//! primary's, and nothing would correct that.
//!
//! **Invariant:** a link changes data only while it is the current one and the role is not being changed
//! ([`Role::apply_for`]). So nothing of a stream is applied after the reply to the command that ends it.

use std::fmt;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64};
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};
use tierce_keyspace::DbIndex;
use tierce_replication::link::Position;

/// Clients must not change data.
pub(crate) const READ_ONLY: u8 = 1;
/// Clients must not read stale data.
pub(crate) const STALE: u8 = 2;
/// Clients must not change data while there are too few replicas.
pub(crate) const LACKS_REPLICAS: u8 = 4;
/// The server is not a primary.
const REPLICA: u8 = 8;

/// Time for which a thread with waiting clients tries to lock the role. A busy link releases the lock earlier, unless
/// one of its commands waits for a shard.
const STILL_PATIENCE: Duration = Duration::from_millis(2);

/// Listening address of a primary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// Its name or address.
    pub host: Vec<u8>,
    /// Its port.
    pub port: u16,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host.escape_ascii(), self.port)
    }
}

/// State of the link to the primary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LinkState {
    /// There is no connection; an attempt will follow.
    #[default]
    Connect,
    /// A connection is being made, or the handshake is running.
    Connecting,
    /// A full copy is being transferred.
    Sync,
    /// The stream arrives.
    Connected,
}

impl LinkState {
    /// Returns its name in ROLE.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Connecting => "connecting",
            Self::Sync => "sync",
            Self::Connected => "connected",
        }
    }
}

/// Source of the primary's changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Via {
    /// A stream of commands, from the primary itself.
    Link,
    /// The log in a bucket, which the primary owns. Its offsets are numbers of objects.
    Bucket,
}

/// The first pause between two full copies that heal a divergence, in milliseconds. It doubles up to
/// [`PAUSE_DOUBLED_MAX`] times: if a limit is lower here than on the primary, a copy does not help for long.
const PAUSE_MS: i64 = 60_000;
const PAUSE_DOUBLED_MAX: u32 = 10;

/// Schedule of full copies that a replica requests because its data may differ from the primary's.
#[derive(Clone, Copy, Debug, Default)]
pub struct Healing {
    /// True if the data may differ since the last full copy was loaded.
    pub differs: bool,
    copies: u32,
    not_before_ms: i64,
}

impl Healing {
    /// Returns true if a copy is to be requested now, and counts it as requested.
    pub fn begins(&mut self, now_ms: i64) -> bool {
        let is_due = self.differs && now_ms >= self.not_before_ms;
        if is_due {
            self.not_before_ms = now_ms + (PAUSE_MS << self.copies.min(PAUSE_DOUBLED_MAX));
            self.copies += 1;
        }
        is_due
    }

    /// Notes that a full copy could not be loaded. Returns the pause before the next one, if it was for healing: the
    /// next one would probably fail for the same reason.
    pub fn pause_after_failure(&mut self, now_ms: i64) -> Option<Duration> {
        self.begins(now_ms);
        let ms = u64::try_from(self.not_before_ms - now_ms).unwrap_or(0);
        self.differs.then_some(Duration::from_millis(ms))
    }
}

/// Statistics of a replica.
#[derive(Clone, Debug)]
pub struct Following {
    /// Address of its primary.
    pub primary: Address,
    /// Source of the changes.
    pub via: Via,
    /// State of the link.
    pub link: LinkState,
    /// Id and applied offset of the stream; `None` before the first full copy.
    pub position: Option<Position>,
    /// The selected database of the stream at this offset.
    pub db: DbIndex,
    /// Offset up to which the stream has arrived. Its last bytes may not be applied yet.
    pub read_offset: u64,
    /// Time when something last arrived, in Unix milliseconds.
    pub last_io_ms: i64,
    /// Time since which there is no stream, in Unix milliseconds.
    pub down_since_ms: i64,
    /// Bytes of the full copy that have arrived.
    pub copied_bytes: u64,
    /// Schedule of full copies after commands that failed here.
    pub healing: Healing,
    /// Number of changes of the primary. A link with an older number has to stop.
    pub number: u64,
    /// True while its future primary has not taken over. Writes of clients wait, and are not refused yet.
    pub hands_over: bool,
    /// Number of the first link since which the server has always been a replica.
    since: u64,
}

impl Following {
    fn new(primary: Address, position: Option<Position>, number: u64, now_ms: i64) -> Self {
        Self {
            primary,
            via: Via::Link,
            link: LinkState::Connect,
            position,
            db: DbIndex::ZERO,
            read_offset: position.map_or(0, |position| position.offset),
            last_io_ms: now_ms,
            down_since_ms: now_ms,
            copied_bytes: 0,
            healing: Healing::default(),
            number,
            hands_over: false,
            since: number,
        }
    }

    /// Returns the offset up to which the primary's changes are applied, if it is known.
    #[must_use]
    pub fn applied_offset(&self) -> Option<u64> {
        match self.via {
            Via::Link => self.position.map(|position| position.offset),
            Via::Bucket => Some(self.read_offset),
        }
    }
}

#[derive(Debug, Default)]
struct State {
    following: Option<Following>,
    number: u64,
    serves_stale: bool,
    lacks_replicas: bool,
    is_ended: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Role {
    state: Mutex<State>,
    changed: Condvar,
    closes: AtomicU8,
    /// Locked to apply a stream or to change the role; see [`Role::hold_still`] for the order of locks.
    applies: Mutex<()>,
    /// True if the link must read no more from the primary, because this server is about to end.
    holds_link: AtomicBool,
    /// True after the link has stopped reading.
    link_stands: AtomicBool,
    /// Bytes that came from primaries since the start.
    received: AtomicU64,
    /// Commands of primaries that failed here since the start.
    failed: AtomicU64,
}

impl Role {
    /// Returns the restrictions for clients: [`READ_ONLY`], [`STALE`] and [`LACKS_REPLICAS`].
    #[inline]
    pub(crate) fn closes_to_some(&self) -> u8 {
        self.closes.load(Relaxed) & (READ_ONLY | STALE | LACKS_REPLICAS)
    }

    /// Returns true if clients must not change data.
    #[inline]
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.closes.load(Relaxed) & READ_ONLY != 0
    }

    /// Returns true if the server is a replica, or is becoming one. In the latter case writes of clients may still
    /// wait, and are not refused yet.
    #[inline]
    #[must_use]
    pub fn is_replica(&self) -> bool {
        self.closes.load(Relaxed) & REPLICA != 0
    }

    /// Returns true if clients must not read possibly stale data.
    #[inline]
    #[must_use]
    pub fn is_stale(&self) -> bool {
        self.closes.load(Relaxed) & STALE != 0
    }

    /// Returns true if clients must not change data because this server has too few replicas.
    #[inline]
    #[must_use]
    pub fn lacks_replicas(&self) -> bool {
        self.closes.load(Relaxed) & LACKS_REPLICAS != 0
    }

    /// Returns the statistics of a replica; `None` for a primary.
    #[must_use]
    pub fn following(&self) -> Option<Following> {
        self.state.lock().following.clone()
    }

    /// Returns the statistics of the link with this number; `None` if it has to stop.
    #[must_use]
    pub fn following_as(&self, number: u64) -> Option<Following> {
        self.following().filter(|following| following.number == number)
    }

    /// Makes the server follow a primary, or none. Returns true if this is a change. The position in the stream is kept
    /// for another primary, which may have an equal stream. As a primary, the server has a stream of its own.
    pub fn follow(&self, primary: Option<Address>, now_ms: i64) -> bool {
        let mut state = self.state.lock();
        if state.following.as_ref().map(|following| &following.primary) == primary.as_ref() {
            return false;
        }
        state.number += 1;
        let number = state.number;
        let known = state.following.as_ref();
        let position = known.and_then(|following| following.position);
        let db = known.map_or(DbIndex::ZERO, |following| following.db);
        let since = known.map_or(number, |following| following.since);
        state.following = primary.map(|primary| Following {
            db,
            since,
            ..Following::new(primary, position, number, now_ms)
        });
        self.note(&state);
        self.changed.notify_all();
        true
    }

    /// Makes the server follow a replica that will take over. Returns false if it follows a primary already.
    #[must_use]
    pub fn hand_over(&self, replica: Address, now_ms: i64) -> bool {
        let mut state = self.state.lock();
        if state.following.is_some() {
            return false;
        }
        state.number += 1;
        let number = state.number;
        state.following =
            Some(Following { hands_over: true, ..Following::new(replica, None, number, now_ms) });
        self.note(&state);
        self.changed.notify_all();
        true
    }

    /// Makes the server follow the log in a bucket, which `owner` owns. It gets a number like a link, which is
    /// returned.
    pub fn follow_bucket(&self, owner: Address, now_ms: i64) -> u64 {
        let mut state = self.state.lock();
        state.number += 1;
        let number = state.number;
        let following = Following::new(owner, None, number, now_ms);
        state.following = Some(Following { via: Via::Bucket, ..following });
        self.note(&state);
        self.changed.notify_all();
        number
    }

    /// Returns the owner of the log in a bucket that the server follows, if it does.
    #[must_use]
    pub fn owner(&self) -> Option<Address> {
        let following = self.state.lock().following.clone()?;
        (following.via == Via::Bucket).then_some(following.primary)
    }

    /// Sets whether clients may read possibly stale data.
    pub fn set_serves_stale(&self, serves_stale: bool) {
        let mut state = self.state.lock();
        state.serves_stale = serves_stale;
        self.note(&state);
    }

    /// Sets whether there are too few replicas of this server. This only matters while it is a primary.
    pub fn set_lacks_replicas(&self, lacks_replicas: bool) {
        let mut state = self.state.lock();
        state.lacks_replicas = lacks_replicas;
        self.note(&state);
    }

    fn note(&self, state: &State) {
        let closes = match &state.following {
            None if state.lacks_replicas => LACKS_REPLICAS,
            None => 0,
            // Writes are deferred, and continue if the replica does not take over.
            Some(Following { hands_over: true, .. }) if state.serves_stale => REPLICA,
            Some(Following { hands_over: true, .. }) => REPLICA | STALE,
            Some(Following { link: LinkState::Connected, .. }) => REPLICA | READ_ONLY,
            Some(_) if state.serves_stale => REPLICA | READ_ONLY,
            Some(_) => REPLICA | READ_ONLY | STALE,
        };
        self.closes.store(closes, Relaxed);
    }

    /// Changes the statistics of the link with this number. Returns false if it has to stop.
    #[must_use]
    pub fn update(&self, number: u64, change: impl FnOnce(&mut Following)) -> bool {
        let mut state = self.state.lock();
        if state.is_ended {
            return false;
        }
        let Some(following) = state.following.as_mut().filter(|of| of.number == number) else {
            return false;
        };
        change(following);
        self.note(&state);
        true
    }

    /// Notes the position up to which the link with this number has applied the stream. The next link continues there.
    /// So this is also noted for a link that has to stop, unless the server was a primary in between.
    pub fn note_applied(&self, number: u64, position: Option<Position>, db: DbIndex) {
        let mut state = self.state.lock();
        if let Some(following) = state.following.as_mut().filter(|of| of.since <= number) {
            (following.position, following.db) = (position, db);
        }
    }

    /// Returns true if the server has always been a replica since the link with this number, so that its data still
    /// match the stream.
    #[must_use]
    pub fn has_followed_since(&self, number: u64) -> bool {
        self.state.lock().following.as_ref().is_some_and(|of| of.since <= number)
    }

    /// Counts bytes from the primary.
    pub fn note_received(&self, bytes: usize) {
        self.received.fetch_add(bytes as u64, Relaxed);
    }

    /// Returns the bytes from primaries since the start.
    #[must_use]
    pub fn received_bytes(&self) -> u64 {
        self.received.load(Relaxed)
    }

    /// Counts a command of a primary that failed here. Returns their number since the start.
    pub fn note_failed(&self) -> u64 {
        self.failed.fetch_add(1, Relaxed) + 1
    }

    /// Returns the number of commands of primaries that failed here since the start.
    #[must_use]
    pub fn failed_commands(&self) -> u64 {
        self.failed.load(Relaxed)
    }

    /// Locks the role to apply a part of the stream; returns `None` if the link with this number has to stop.
    #[must_use]
    pub fn apply_for(&self, number: u64) -> Option<MutexGuard<'_, ()>> {
        let applies = self.applies.lock();
        self.update(number, |_| ()).then_some(applies)
    }

    /// Locks the role, to change it or to read the exact offset of the data in the stream. Waits until nothing of the
    /// stream is being applied.
    ///
    /// **Order of locks:** this one, then shards, then short locks, including `state`. The owner of this lock may wait
    /// for shards, for as long as a program runs that has locked them. So a thread that waits here
    ///
    /// * has no shard locked, not even that of the previous request, which a worker usually keeps;
    /// * has no waiting clients. Workers and threads for long commands use [`Role::try_hold_still`] and retry later, so
    ///   that others are served meanwhile, including SCRIPT KILL, which ends such a program. Commands use
    ///   `Context::hold_role_still`.
    pub fn hold_still(&self) -> MutexGuard<'_, ()> {
        self.applies.lock()
    }

    /// Like [`Role::hold_still`], for threads with waiting clients. `None` if another thread keeps the lock for long.
    #[must_use]
    pub fn try_hold_still(&self) -> Option<MutexGuard<'_, ()>> {
        self.applies.try_lock_for(STILL_PATIENCE)
    }

    /// Waits until there is a primary to follow by a link, or the end.
    #[must_use]
    pub fn wait_for_primary(&self) -> Option<Following> {
        let mut state = self.state.lock();
        loop {
            match &state.following {
                _ if state.is_ended => return None,
                Some(following) if following.via == Via::Link => return Some(following.clone()),
                _ => self.changed.wait(&mut state),
            }
        }
    }

    /// Waits for `time`, or until the link with this number has to stop.
    pub fn pause(&self, number: u64, time: Duration) {
        let mut state = self.state.lock();
        let is_current = state.following.as_ref().is_some_and(|of| of.number == number);
        if is_current && !state.is_ended {
            let _ = self.changed.wait_for(&mut state, time);
        }
    }

    /// Makes the link stop reading from the primary, or continue.
    pub fn hold_link(&self, holds: bool) {
        self.link_stands.store(false, SeqCst);
        self.holds_link.store(holds, SeqCst);
    }

    /// Returns true if the link, which calls this, must read no more. Everything it has read is applied.
    #[must_use]
    pub fn holds_link(&self) -> bool {
        let holds = self.holds_link.load(SeqCst);
        if holds {
            self.link_stands.store(true, SeqCst);
        }
        holds
    }

    /// Returns true if nothing more arrives from a primary, while the link is stopped.
    #[must_use]
    pub fn link_stands(&self) -> bool {
        let is_streaming = |of: &Following| of.via == Via::Link && of.link == LinkState::Connected;
        self.link_stands.load(SeqCst)
            || !self.state.lock().following.as_ref().is_some_and(is_streaming)
    }

    /// Ends the thread that follows.
    pub fn end(&self) {
        self.state.lock().is_ended = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use tierce_replication::identity::ReplicationId;

    use super::*;

    fn address(port: u16) -> Address {
        Address { host: b"h".to_vec(), port }
    }

    #[test]
    fn what_clients_may_do() {
        let role = Role::default();
        let may = || (!role.is_read_only(), !role.is_stale());
        assert_eq!(may(), (true, true));
        assert!(role.follow(Some(address(1)), 0));
        assert_eq!(may(), (false, false));
        role.set_serves_stale(true);
        assert_eq!(may(), (false, true));
        role.set_serves_stale(false);
        let number = role.following().unwrap().number;
        assert!(role.update(number, |following| following.link = LinkState::Connected));
        assert_eq!(may(), (false, true));
        assert!(role.follow(None, 0));
        assert_eq!(may(), (true, true));
    }

    #[test]
    fn what_an_old_link_has_applied_is_known_to_the_next_one() {
        let role = Role::default();
        let id = ReplicationId::NONE;
        let position_at = |offset| Some(Position { id, offset });
        let known = || role.following().and_then(|following| following.position);
        assert!(role.follow(Some(address(1)), 0));
        let first = role.following().unwrap().number;
        role.note_applied(first, position_at(10), DbIndex::ZERO);
        assert!(role.follow(Some(address(2)), 0));
        // Its last commands were running when the primary changed.
        role.note_applied(first, position_at(20), DbIndex::ZERO);
        assert_eq!(known(), position_at(20));
        // Clients of a primary make changes that are not in the stream.
        assert!(role.follow(None, 0));
        assert!(role.follow(Some(address(1)), 0));
        role.note_applied(first, position_at(30), DbIndex::ZERO);
        assert_eq!(known(), None);
    }

    #[test]
    fn one_that_follows_a_bucket_is_read_only() {
        let role = Role::default();
        role.set_serves_stale(true);
        let number = role.follow_bucket(address(1), 0);
        assert!(role.is_read_only() && role.is_replica() && !role.is_stale());
        assert_eq!(role.owner(), Some(address(1)));
        assert!(role.update(number, |following| following.read_offset = 7));
        assert_eq!(role.following().unwrap().applied_offset(), Some(7));
        assert!(role.follow(None, 0));
        assert!(!role.is_read_only() && role.owner().is_none());
        assert!(!role.update(number, |_| panic!("of an old role")));
    }

    #[test]
    fn pauses_between_copies_that_heal_grow_also_when_they_cannot_be_loaded() {
        let mut healing = Healing::default();
        assert_eq!((healing.begins(0), healing.pause_after_failure(0)), (false, None));
        healing.differs = true;
        assert!(healing.begins(0));
        let pause = |healing: &mut Healing, now_ms| healing.pause_after_failure(now_ms).unwrap();
        assert_eq!(pause(&mut healing, 1000), Duration::from_secs(59));
        assert_eq!(pause(&mut healing, 60_000), Duration::from_secs(120));
        assert_eq!(pause(&mut healing, 180_000), Duration::from_secs(240));
        // A copy was loaded, and the next command fails.
        healing.differs = false;
        assert_eq!(healing.pause_after_failure(500_000), None);
        healing.differs = true;
        assert!(healing.begins(500_000));
        assert_eq!(pause(&mut healing, 500_000), Duration::from_secs(480));
    }

    #[test]
    fn a_link_is_given_up_when_the_primary_changes() {
        let role = Role::default();
        assert!(role.follow(Some(address(1)), 5));
        assert!(!role.follow(Some(address(1)), 6), "it follows already");
        let first = role.wait_for_primary().unwrap();
        assert!(role.update(first.number, |_| ()));
        assert!(role.follow(Some(address(2)), 7));
        assert!(!role.update(first.number, |_| panic!("of an old link")));
        // Returns at once.
        role.pause(first.number, Duration::from_secs(3600));
        role.end();
        assert!(role.wait_for_primary().is_none());
        assert!(!role.update(role.following().unwrap().number, |_| panic!("ended")));
    }
}
