//! The stream of this server, and all its replicas.
//!
//! **Source.** As a primary the server makes its stream from its own changes. As a replica it repeats the stream of its
//! primary, byte by byte, with equal ids and offsets. Each byte is appended together with its effects on the data
//! ([`Primary::repeat`]). The two sources never append at once:
//!
//! * A primary that becomes a replica hands over ([`Primary::hand_over`]) when no client can change keys any more and
//!   all their changes are in the stream. The link to the new primary then asks for the rest of the stream from its
//!   end.
//! * A replica that is promoted continues under a new id ([`Primary::take_over`]), while nothing is being applied and
//!   before a client can change anything.
//!
//! **Invariant:** while the link is the source, the stream is active exactly if the offset of the data in the primary's
//! stream is known, and the stream ends at this offset.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tierce_keyspace::DbIndex;
use tierce_replication::backlog::Backlog;
use tierce_replication::identity::{ID_LEN, Identity, Previous, Refusal, ReplicationId, Wish};
use tierce_replication::link;

use super::role::Address;
use super::{Asked, Confirmations, Copy, Position, Replica};

/// Decision on a replica that has asked for the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accepted {
    /// It gets the rest of the stream with this id.
    Rest(ReplicationId),
    /// It gets a full copy, for this reason.
    Copy(Refusal),
    /// It would need a full copy, but does not support the format of copies.
    Nothing,
}

/// The way in which the offset of the copy with this number becomes known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begun {
    /// From a mark in the feed ([`Primary::place_copy`]).
    Mark(u64),
    /// At once: the thread that begins it calls [`Primary::place_copy`] while nothing is applied.
    Here(u64),
    /// There is no stream and so no offset ([`Primary::place_copy_alone`]).
    Alone(u64),
}

/// The thread that appends to the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The thread that translates the changes of this server.
    Changes,
    /// The link to the primary whose stream it is.
    Link,
}

/// Numbers of requests of replicas since the start, by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Syncs {
    /// Full copies.
    pub full: u64,
    /// Accepted requests for the rest of the stream.
    pub rest: u64,
    /// Requests for the rest that were refused and got a full copy.
    pub rest_refused: u64,
}

/// The stream and its followers.
pub struct Primary {
    /// The bytes of the stream.
    pub backlog: Arc<Backlog>,
    /// Clients that wait for confirmations of replicas.
    pub confirmations: Confirmations,
    state: Mutex<State>,
    /// Signaled when the thread that begins copies has work.
    work: Condvar,
    /// Number of replicas that get the stream and were heard from recently.
    good: AtomicUsize,
    /// True if there are replicas.
    has_replicas: AtomicBool,
    /// Bytes that were passed to connections of replicas since the start.
    sent: AtomicU64,
    /// The selected database at the end of a primary's stream.
    db: Mutex<DbIndex>,
}

struct State {
    identity: Identity,
    /// True if changes, or the bytes of a primary, go into the stream.
    is_active: bool,
    /// End of the stream when the server ended.
    ended_at: Option<Previous>,
    source: Source,
    /// True if the server is a replica, so that its link has to become the source.
    is_to_repeat: bool,
    replicas: Vec<Arc<Replica>>,
    syncs: Syncs,
    /// Time when the last replica disconnected, in Unix milliseconds. Not meaningful while there are replicas.
    alone_since_ms: i64,
    ends: bool,
    /// Number of copies begun so far.
    copies: u64,
    /// The copy that begins, with its number, until its offset in the stream is known.
    beginning: Option<(u64, Arc<Copy>)>,
    /// The last copy that has begun.
    current: Option<Arc<Copy>>,
}

impl Primary {
    /// Creates a stream with a new id, which is not active yet.
    #[must_use]
    pub fn new() -> Self {
        let state = State {
            identity: Identity::new(random_id()),
            is_active: false,
            ended_at: None,
            source: Source::Changes,
            is_to_repeat: false,
            replicas: Vec::new(),
            syncs: Syncs::default(),
            alone_since_ms: 0,
            ends: false,
            copies: 0,
            beginning: None,
            current: None,
        };
        Self {
            backlog: Backlog::new(0, 0),
            confirmations: Confirmations::default(),
            state: Mutex::new(state),
            work: Condvar::new(),
            good: AtomicUsize::new(0),
            has_replicas: AtomicBool::new(false),
            sent: AtomicU64::new(0),
            db: Mutex::new(DbIndex::ZERO),
        }
    }

    /// Counts bytes that were passed to the connection of a replica.
    pub fn note_sent(&self, bytes: usize) {
        self.sent.fetch_add(bytes as u64, Relaxed);
    }

    /// Returns the bytes that were passed to connections of replicas since the start.
    #[must_use]
    pub fn sent_bytes(&self) -> u64 {
        self.sent.load(Relaxed)
    }

    /// Returns the ids of the stream.
    #[must_use]
    pub fn identity(&self) -> Identity {
        self.state.lock().identity
    }

    /// Returns true if changes go into the stream.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.state.lock().is_active
    }

    /// Starts the stream: changes go into it from now on. It keeps `kept_bytes` for replicas that reconnect. It has a
    /// new id, because earlier changes are not in it.
    pub fn begin_stream(&self, kept_bytes: usize) {
        let mut state = self.state.lock();
        state.identity = Identity::new(random_id());
        state.is_active = true;
        // No replica can have the previous bytes, and a replica never sees offset 0 with a stream.
        self.backlog.restart(self.backlog.end() + 1);
        self.backlog.set_kept_bytes(kept_bytes);
        drop(state);
        self.work.notify_all();
    }

    /// Starts the stream at the offset where it ended when the server ended. It has a new id, as in Redis. A replica at
    /// exactly this offset can continue under the old one.
    pub fn resume_stream(&self, last: Previous, kept_bytes: usize, now_ms: i64) {
        let mut state = self.state.lock();
        state.identity = Identity { id: random_id(), previous: Some(last) };
        state.is_active = true;
        state.alone_since_ms = now_ms;
        self.backlog.restart(last.until);
        self.backlog.set_kept_bytes(kept_bytes);
    }

    /// Notes that the server ends and that all of its changes are in the stream.
    pub fn note_last_position(&self) {
        let mut state = self.state.lock();
        state.ended_at = Some(Previous { id: state.identity.id, until: self.backlog.end() });
    }

    /// Returns the id and the end of the stream, if it has all changes up to the end of the server.
    #[must_use]
    pub fn ended_at(&self) -> Option<Previous> {
        self.state.lock().ended_at
    }

    /// Ends the stream: nothing goes into it any more. Its replicas are disconnected.
    pub fn end_stream(&self) {
        let mut state = self.state.lock();
        state.is_active = false;
        state.identity = Identity::new(random_id());
        self.backlog.restart(self.backlog.end());
        state.give_up_copy();
    }

    /// Returns the source of the stream.
    #[must_use]
    pub fn source(&self) -> Source {
        self.state.lock().source
    }

    /// Notes a change of the role: the link to a primary has to become the source, or not any more.
    pub fn note_role(&self, is_replica: bool) {
        self.state.lock().is_to_repeat = is_replica;
        self.work.notify_all();
    }

    /// Makes the link to a primary the source. An active stream has to be complete; the link can ask for the rest of it
    /// at the returned position. Otherwise the data are those at the position `known`, if any, with this selected
    /// database.
    pub fn hand_over(
        &self,
        known: Option<link::Position>,
        db: DbIndex,
        kept_bytes: usize,
    ) -> Option<link::Position> {
        let mut state = self.state.lock();
        state.source = Source::Link;
        *self.db.lock() = db;
        let position = match state.is_active {
            true => Some(link::Position { id: state.identity.id, offset: self.backlog.end() }),
            false => known,
        };
        if let Some(position) = position.filter(|_| !state.is_active) {
            self.begin_at(&mut state, position, kept_bytes);
        }
        drop(state);
        self.work.notify_all();
        position
    }

    /// Promotes this server: it continues the stream of its primary under a new id. Call it while nothing of the stream
    /// is being applied, and before a client can change anything. Returns true if changes have to be collected from now
    /// on, and false if they still are.
    pub fn take_over(&self, now_ms: i64) -> bool {
        let mut state = self.state.lock();
        if state.source == Source::Changes {
            return false;
        }
        state.source = Source::Changes;
        if state.is_active {
            self.rename(&mut state, random_id());
            state.alone_since_ms = now_ms;
        }
        true
    }

    /// Continues the stream at this position, from which the link reads it. Replicas of this server continue if they
    /// have this stream. If its id has changed, they are disconnected and learn the new id when they reconnect. Returns
    /// true if it has changed.
    pub fn continue_at(&self, position: link::Position, db: DbIndex, kept_bytes: usize) -> bool {
        let mut state = self.state.lock();
        *self.db.lock() = db;
        if !state.is_active || self.backlog.end() != position.offset {
            self.begin_at(&mut state, position, kept_bytes);
            return false;
        }
        let is_renamed = state.identity.id != position.id;
        if is_renamed {
            self.rename(&mut state, position.id);
        }
        is_renamed
    }

    /// Appends applied bytes of a primary's stream; this database is selected after them. Call it before anything else
    /// can be applied.
    pub fn repeat(&self, bytes: &[u8], db: DbIndex, lag_max: usize) {
        *self.db.lock() = db;
        self.backlog.append(bytes, lag_max);
    }

    /// Waits until the link is the source, at most for `at_most`. Returns true if it is.
    #[must_use]
    pub fn wait_for_link(&self, at_most: Duration) -> bool {
        let mut state = self.state.lock();
        if state.source != Source::Link {
            self.work.wait_for(&mut state, at_most);
        }
        state.source == Source::Link
    }

    fn begin_at(&self, state: &mut State, position: link::Position, kept_bytes: usize) {
        state.identity = Identity::new(position.id);
        state.is_active = true;
        self.backlog.restart(position.offset);
        self.backlog.set_kept_bytes(kept_bytes);
    }

    /// Renames the stream. All replicas have to ask again, and then learn the new id.
    fn rename(&self, state: &mut State, id: ReplicationId) {
        state.identity = state.identity.renamed(id, self.backlog.end());
        self.backlog.lose_readers();
    }

    /// Handles a replica's request for the stream.
    pub fn accept(
        &self,
        replica: &Arc<Replica>,
        wish: Wish,
        asked: Asked,
        now_ms: i64,
    ) -> Accepted {
        let mut state = self.state.lock();
        replica.note_time(now_ms);
        if asked == Asked::Sync {
            replica.note_old();
        }
        let kept = state.is_active.then(|| self.backlog.offsets());
        let decided = state.identity.decide(wish, kept).and_then(|offset| {
            self.backlog.reader_at(offset).map(|reader| (offset, reader)).ok_or(Refusal::NotKept)
        });
        let accepted = match decided {
            Ok((offset, reader)) => {
                let _ = replica.acknowledge(offset, now_ms);
                replica.turn_to(Position::Streams(reader));
                state.syncs.rest += 1;
                Accepted::Rest(state.identity.id)
            }
            Err(_) if !replica.facts.lock().takes_marks => return Accepted::Nothing,
            Err(refusal) => {
                replica.turn_to(Position::Waits { asked, is_due: false });
                state.syncs.full += 1;
                state.syncs.rest_refused += u64::from(refusal != Refusal::Asked);
                Accepted::Copy(refusal)
            }
        };
        state.replicas.push(Arc::clone(replica));
        self.has_replicas.store(true, Relaxed);
        drop(state);
        self.work.notify_all();
        accepted
    }

    /// Removes a replica whose connection has ended.
    pub fn forget(&self, replica: &Arc<Replica>) {
        let mut state = self.state.lock();
        state.replicas.retain(|other| !Arc::ptr_eq(other, replica));
        self.has_replicas.store(!state.replicas.is_empty(), Relaxed);
        state.alone_since_ms = crate::clock::unix_ms();
        drop(state);
        replica.turn_to(Position::Ended);
        self.work.notify_all();
    }

    /// Returns the numbers of requests by outcome.
    #[must_use]
    pub fn syncs(&self) -> Syncs {
        self.state.lock().syncs
    }

    /// Returns all replicas.
    #[must_use]
    pub fn replicas(&self) -> Vec<Arc<Replica>> {
        self.state.lock().replicas.clone()
    }

    /// Returns the replica that announced this address.
    #[must_use]
    pub fn replica_at(&self, address: &Address) -> Option<Arc<Replica>> {
        self.replicas().into_iter().find(|replica| replica.is_at(address))
    }

    /// Returns true if there are replicas.
    #[must_use]
    #[inline]
    pub fn has_replicas(&self) -> bool {
        self.has_replicas.load(Relaxed)
    }

    /// Returns the last count of replicas that get the stream and were heard from within `min-replicas-max-lag`.
    #[must_use]
    pub fn good(&self) -> usize {
        self.good.load(Relaxed)
    }

    /// Counts them again.
    pub fn count_good(&self, lag_max_seconds: i64, now_ms: i64) -> usize {
        let is_good = |replica: &&Arc<Replica>| {
            replica.is_online() && replica.silent_seconds(now_ms) <= lag_max_seconds
        };
        let good = self.state.lock().replicas.iter().filter(is_good).count();
        self.good.store(good, Relaxed);
        good
    }

    /// Waits for a change of the replicas, at most for `at_most`. Without replicas, this does not wait for a copy that
    /// begins: the last replica may have left since it asked for it. Returns false if the server ends.
    #[must_use]
    pub fn wait(&self, at_most: Option<Duration>) -> bool {
        let mut state = self.state.lock();
        match at_most {
            _ if state.ends => {}
            Some(at_most) => _ = self.work.wait_for(&mut state, at_most),
            None if state.replicas.is_empty() && state.beginning.is_none() => {
                self.work.wait(&mut state);
            }
            None => {}
        }
        !state.ends
    }

    /// Waits until a replica wants the stream, or this server is a replica. Returns false if the server ends.
    #[must_use]
    pub fn wait_for_need(&self) -> bool {
        let mut state = self.state.lock();
        let wants = |replica: &Arc<Replica>| replica.wants_stream();
        while !state.ends && !state.is_to_repeat && !state.replicas.iter().any(wants) {
            self.work.wait(&mut state);
        }
        !state.ends
    }

    /// Returns true if the server ends.
    #[must_use]
    pub fn ends(&self) -> bool {
        self.state.lock().ends
    }

    /// Returns the time without replicas, in milliseconds.
    #[must_use]
    pub fn alone_ms(&self, now_ms: i64) -> i64 {
        let state = self.state.lock();
        if state.replicas.is_empty() { now_ms.saturating_sub(state.alone_since_ms) } else { 0 }
    }

    /// Notes that the server ends, and wakes all waiting threads.
    pub fn end(&self) {
        self.state.lock().ends = true;
        self.work.notify_all();
    }

    /// Begins a full copy for the replicas that wait for one. With [`Begun::Mark`] the caller sets a mark in the feed
    /// at the time of the copy. With [`Begun::Here`] nothing may be applied from before this call until the copy is
    /// [placed](Self::place_copy) at that time. Returns `None` while the offset of another copy is not known yet; the
    /// waiting replicas will get that one.
    #[must_use]
    pub fn begin_copy(&self, copy: Arc<Copy>) -> Option<Begun> {
        let mut state = self.state.lock();
        // That copy would never be opened, and its writer waits for this.
        if state.beginning.is_some() {
            return None;
        }
        state.copies += 1;
        state.beginning = Some((state.copies, copy));
        Some(match state.source {
            _ if !state.is_active => Begun::Alone(state.copies),
            Source::Changes => Begun::Mark(state.copies),
            Source::Link => Begun::Here(state.copies),
        })
    }

    /// Places a copy at the end of the stream. Waiting replicas get the copy, and then the stream from here on. Called
    /// by the thread that appends, or while nothing is appended. Returns the number of these replicas.
    pub fn place_copy(&self, number: u64) -> usize {
        self.position(number, |_| true)
    }

    /// Notes that the copy with this number has begun without a stream. Replicas that only want a copy get it. Returns
    /// the number of these replicas.
    pub fn place_copy_alone(&self, number: u64) -> usize {
        self.position(number, |replica| !replica.wants_stream())
    }

    fn position(&self, number: u64, gets_it: impl Fn(&Replica) -> bool) -> usize {
        let mut state = self.state.lock();
        let is_this = |beginning: &mut (u64, Arc<Copy>)| beginning.0 == number;
        let Some((_, copy)) = state.beginning.take_if(is_this) else { return 0 };
        let (id, offset) = (state.identity.id, self.backlog.end());
        let mut placed = 0;
        for replica in state.replicas.iter().filter(|replica| gets_it(replica)) {
            let Some(asked) = replica.waits() else { continue };
            let (Some(reader), Some(then)) = (copy.reader(), self.backlog.reader_at(offset)) else {
                continue;
            };
            let told = match asked {
                Asked::Psync => format!("+FULLRESYNC {id} {offset}\r\n"),
                Asked::Sync => String::new(),
            };
            let head = format!("{told}{}", copy.frame()).into_bytes();
            let (copy, is_loaded) = (Arc::clone(&copy), false);
            replica.turn_to(Position::Copies { head, copy, reader, then, is_loaded });
            placed += 1;
        }
        state.current = Some(Arc::clone(&copy));
        let is_repeated = state.is_active && state.source == Source::Link;
        drop(state);
        copy.open(is_repeated.then(|| *self.db.lock()));
        placed
    }

    /// Cancels a copy that could not begin; the waiting replicas continue to wait. If the stream has passed its mark
    /// already, the replicas that were to get it are disconnected.
    pub fn cancel_copy(&self, copy: &Copy) {
        self.cancel_beginning();
        copy.fail();
    }

    /// Cancels a copy whose offset is not known yet, so that its writer stops waiting. The waiting replicas continue to
    /// wait. Returns false if there was none.
    pub fn cancel_beginning(&self) -> bool {
        let beginning = self.state.lock().beginning.take();
        beginning.inspect(|(_, copy)| copy.fail()).is_some()
    }

    /// Cancels the copies that begin or have begun. Their replicas are disconnected.
    pub fn give_up_copy(&self) {
        self.state.lock().give_up_copy();
    }
}

impl State {
    fn give_up_copy(&mut self) {
        let beginning = self.beginning.take().map(|(_, copy)| copy);
        beginning.into_iter().chain(self.current.take()).for_each(|copy| copy.fail());
    }
}

impl Default for Primary {
    fn default() -> Self {
        Self::new()
    }
}

fn random_id() -> ReplicationId {
    let words: [u64; 3] = std::array::from_fn(|_| crate::random::word());
    let mut bytes = [0; ID_LEN / 2];
    let random = words.iter().flat_map(|word| word.to_le_bytes());
    bytes.iter_mut().zip(random).for_each(|(byte, random)| *byte = random);
    ReplicationId::from_random(bytes)
}

#[cfg(test)]
mod tests {
    use tierce_keyspace::{Keyspace, Options};
    use tierce_replication::identity::Previous;

    use super::*;
    use crate::clients::{Client, Origin};
    use crate::replication::Took;

    #[test]
    fn a_copy_that_begins_is_not_replaced_by_another() {
        let primary = Primary::new();
        let copy = || Copy::begin(Duration::ZERO, None, Box::new(|| ())).0;
        primary.begin_stream(0);
        let first = copy();
        assert_eq!(primary.begin_copy(Arc::clone(&first)), Some(Begun::Mark(1)));
        // The stream has not reached its mark yet.
        assert_eq!(primary.begin_copy(copy()), None);
        assert!(first.reader().is_some());
        primary.place_copy(1);
        assert!(first.reader().is_none(), "it goes out");
        assert_eq!(primary.begin_copy(copy()), Some(Begun::Mark(2)));
    }

    #[test]
    fn a_copy_that_has_not_opened_can_be_given_up() {
        let primary = Primary::new();
        let (copy, sink) = Copy::begin(Duration::from_secs(60), None, Box::new(|| ()));
        primary.begin_stream(0);
        assert_eq!(primary.begin_copy(Arc::clone(&copy)), Some(Begun::Mark(1)));
        assert!(primary.cancel_beginning());
        assert_eq!(sink.stream_db(), None, "its writer goes on, and notices");
        assert_eq!((copy.ended(), primary.place_copy(1)), (Some(false), 0));
        assert!(!primary.cancel_beginning());
    }

    /// Otherwise the thread that starts copies would wait for ever, and the writer of the copy for that thread.
    #[test]
    fn a_copy_whose_last_replica_has_left_is_not_waited_for() {
        let primary = Arc::new(Primary::new());
        let (replica, _) = ask(&primary, position_at(1, 0));
        let (copy, _sink) = Copy::begin(Duration::from_secs(60), None, Box::new(|| ()));
        primary.begin_stream(0);
        assert_eq!(primary.begin_copy(copy), Some(Begun::Mark(1)));
        primary.forget(&replica);
        let (done, is_done) = std::sync::mpsc::channel();
        let waiting = Arc::clone(&primary);
        std::thread::spawn(move || done.send(waiting.wait(None)));
        assert_eq!(is_done.recv_timeout(Duration::from_secs(20)), Ok(true));
        assert!(primary.cancel_beginning());
    }

    fn position_at(digit: u8, offset: u64) -> link::Position {
        link::Position { id: ReplicationId::from_random([digit; ID_LEN / 2]), offset }
    }

    fn text(replica: &Replica) -> (Took, String) {
        let mut taken = Vec::new();
        let took = replica.take(1 << 20, &mut taken);
        (took, String::from_utf8(taken).unwrap())
    }

    /// A replica that asks for the rest of this stream.
    fn ask(primary: &Primary, position: link::Position) -> (Arc<Replica>, Accepted) {
        let client = Client::new(Origin::default(), 0);
        let replica = Arc::new(Replica::new(Arc::new(client)));
        replica.facts.lock().takes_marks = true;
        let wish = Wish::Rest { id: position.id, first_missing: position.offset as i64 + 1 };
        let accepted = primary.accept(&replica, wish, Asked::Psync, 0);
        (replica, accepted)
    }

    #[test]
    fn a_replica_repeats_the_stream_and_goes_on_with_it_when_it_is_promoted() {
        let primary = Primary::new();
        let known = position_at(1, 100);
        assert_eq!(primary.hand_over(Some(known), DbIndex::ZERO, 1 << 20), Some(known));
        assert!(!primary.continue_at(known, DbIndex::ZERO, 1 << 20), "it is the same");
        let (replica, accepted) = ask(&primary, known);
        assert_eq!(accepted, Accepted::Rest(known.id));
        primary.repeat(b"one", DbIndex::ZERO, 0);
        assert_eq!(text(&replica), (Took::All, "one".to_owned()));
        assert_eq!((primary.identity().id, primary.backlog.end()), (known.id, 103));

        assert!(primary.take_over(0));
        assert!(!primary.take_over(0), "it collects changes already");
        let identity = primary.identity();
        let previous = Previous { id: known.id, until: 103 };
        assert_eq!(identity.previous, Some(previous));
        // It has to learn the new id, and continues at its offset.
        assert_eq!(text(&replica).0, Took::Lost);
        primary.backlog.append(b"two", 0);
        let (replica, accepted) = ask(&primary, position_at(1, 103));
        assert_eq!(accepted, Accepted::Rest(identity.id));
        assert_eq!(text(&replica), (Took::All, "two".to_owned()));
        let (_, accepted) = ask(&primary, position_at(1, 104));
        assert_eq!(accepted, Accepted::Copy(Refusal::Ahead));
    }

    #[test]
    fn a_primary_goes_on_in_its_own_stream_as_a_replica() {
        let primary = Primary::new();
        primary.begin_stream(1 << 20);
        let begin = link::Position { id: primary.identity().id, offset: primary.backlog.end() };
        let (replica, _) = ask(&primary, begin);
        primary.backlog.append(b"own", 0);
        assert!(!primary.wait_for_link(Duration::ZERO));
        let position = primary.hand_over(None, DbIndex::ZERO, 1 << 20).unwrap();
        assert_eq!(position, link::Position { offset: begin.offset + 3, ..begin });
        assert!(primary.wait_for_link(Duration::ZERO));
        assert_eq!(text(&replica), (Took::All, "own".to_owned()), "nothing is lost for others");

        // The promoted server has an equal stream under another id.
        let renamed = link::Position { offset: position.offset, ..position_at(2, 0) };
        assert!(primary.continue_at(renamed, DbIndex::ZERO, 1 << 20));
        assert_eq!(text(&replica).0, Took::Lost);
        let (_, accepted) = ask(&primary, begin);
        assert_eq!(accepted, Accepted::Rest(renamed.id));
    }

    #[test]
    fn another_stream_begins_anew() {
        let primary = Primary::new();
        let first = position_at(1, 100);
        primary.hand_over(Some(first), DbIndex::ZERO, 1 << 20);
        let (replica, _) = ask(&primary, first);
        // A full copy has arrived.
        primary.end_stream();
        assert_eq!(text(&replica).0, Took::Lost);
        let second = position_at(2, 7);
        assert!(!primary.continue_at(second, DbIndex::ZERO, 1 << 20));
        assert_eq!(ask(&primary, first).1, Accepted::Copy(Refusal::OtherStream));
        assert_eq!(ask(&primary, second).1, Accepted::Rest(second.id));
        // Without an offset in a stream, a promoted server has no stream either.
        primary.end_stream();
        assert!(primary.take_over(0));
        assert!(!primary.is_active());
    }

    #[test]
    fn a_copy_of_a_replica_says_which_database_is_selected() {
        let primary = Primary::new();
        let position = position_at(1, 100);
        let db = Keyspace::new(Options::default()).unwrap().db_index(3).unwrap();
        primary.hand_over(Some(position), DbIndex::ZERO, 1 << 20);
        let (replica, accepted) = ask(&primary, position_at(3, 5));
        assert_eq!(accepted, Accepted::Copy(Refusal::OtherStream));
        primary.repeat(b"12345", db, 0);
        let (copy, sink) = Copy::begin(Duration::ZERO, None, Box::new(|| ()));
        assert_eq!(primary.begin_copy(copy), Some(Begun::Here(1)));
        assert_eq!(primary.place_copy(1), 1);
        assert_eq!(sink.stream_db(), Some(db));
        let head = format!("+FULLRESYNC {} 105\r\n$EOF:", position.id);
        assert!(text(&replica).1.starts_with(&head));
    }

    #[test]
    fn a_cancelled_copy_fails_also_behind_its_mark() {
        let primary = Primary::new();
        let copy = || Copy::begin(Duration::ZERO, None, Box::new(|| ())).0;
        primary.begin_stream(0);
        for is_placed in [false, true] {
            let cancelled = copy();
            let begun = primary.begin_copy(Arc::clone(&cancelled));
            let Some(Begun::Mark(number)) = begun else { panic!("{begun:?}") };
            if is_placed {
                primary.place_copy(number);
            }
            primary.cancel_copy(&cancelled);
            assert_eq!(cancelled.ended(), Some(false));
        }
    }
}
