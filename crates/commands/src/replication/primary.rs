//! The stream of this server, and all its replicas.
//!
//! **Source.** As a primary the server makes its stream of its own changes. As a replica it has the stream of its
//! primary, byte by byte: the same id, the same offsets. Each byte is appended together with what it does to the data
//! ([`Primary::repeat`]). The two sources never append at the same time:
//!
//! * A primary that is told to follow another one hands over ([`Primary::hand_over`]) when no client can change keys
//!   any more and all their changes are in the stream. The link to the primary begins behind that, and asks for the
//!   rest of the stream from there.
//! * A replica that is promoted goes on under a new id ([`Primary::take_over`]) while nothing is being applied, before
//!   a client can change anything.
//!
//! **Invariant:** while the link is the source, the stream is active exactly if it is known where the data are in the
//! stream of the primary, and ends there.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tierce_keyspace::DbIndex;
use tierce_replication::backlog::Backlog;
use tierce_replication::identity::{ID_LEN, Identity, Previous, Refusal, ReplicationId, Wish};
use tierce_replication::link;

use super::role::Address;
use super::{Asked, Confirmations, Copy, Place, Replica};

/// How a replica goes on that has asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accepted {
    /// It gets the rest of the stream with this name.
    Rest(ReplicationId),
    /// It gets a full copy, and this is why.
    Copy(Refusal),
    /// It would need a full copy, and does not know the form in which these come.
    Nothing,
}

/// How the place of a copy in the stream becomes known, which has this number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begun {
    /// By a mark in the feed ([`Primary::place_copy`]).
    Mark(u64),
    /// At once, by who has begun it at a moment when nothing is applied ([`Primary::place_copy`]).
    Here(u64),
    /// It has none, since there is no stream ([`Primary::place_copy_alone`]).
    Alone(u64),
}

/// Who appends to the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The thread that translates the changes of this server.
    Changes,
    /// The link to a primary, whose stream it is.
    Link,
}

/// What became of replicas that have asked, since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Syncs {
    /// They get a full copy.
    pub full: u64,
    /// They get the rest of the stream.
    pub rest: u64,
    /// They wanted the rest, and get a full copy.
    pub rest_refused: u64,
}

/// The stream and its followers.
pub struct Primary {
    /// The bytes of the stream.
    pub backlog: Arc<Backlog>,
    /// Clients that wait for confirmations of replicas.
    pub confirmations: Confirmations,
    state: Mutex<State>,
    /// There is something for the thread that begins copies.
    work: Condvar,
    /// Replicas that get the stream, and were heard of lately.
    good: AtomicUsize,
    /// There are replicas.
    has_replicas: AtomicBool,
    /// Bytes that were passed to connections of replicas since the start.
    sent: AtomicU64,
    /// The database that is selected at the end of the stream of a primary.
    db: Mutex<DbIndex>,
}

struct State {
    identity: Identity,
    /// Changes go into the stream, or that of a primary is repeated.
    is_active: bool,
    /// Where it ended with the server.
    ended_at: Option<Previous>,
    source: Source,
    /// The server is a replica: its link is to be the source.
    is_to_repeat: bool,
    replicas: Vec<Arc<Replica>>,
    syncs: Syncs,
    /// When the last replica has gone, in Unix milliseconds; of no meaning while there are replicas.
    alone_since_ms: i64,
    ends: bool,
    /// Copies that were begun.
    copies: u64,
    /// The copy that begins, until its place in the stream is known, and its number.
    beginning: Option<(u64, Arc<Copy>)>,
    /// The last copy that has begun.
    current: Option<Arc<Copy>>,
}

impl Primary {
    /// A stream with a new name, to which nothing is added yet.
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

    /// So many bytes were passed to the connection of a replica.
    pub fn note_sent(&self, bytes: usize) {
        self.sent.fetch_add(bytes as u64, Relaxed);
    }

    /// Bytes that were passed to connections of replicas since the start.
    #[must_use]
    pub fn sent_bytes(&self) -> u64 {
        self.sent.load(Relaxed)
    }

    /// The names of the stream.
    #[must_use]
    pub fn identity(&self) -> Identity {
        self.state.lock().identity
    }

    /// Whether changes go into the stream.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.state.lock().is_active
    }

    /// Changes go into the stream from now on, of which so many bytes are kept for replicas that come back. It has a
    /// new name: what changed before is not in it.
    pub fn begin_stream(&self, kept_bytes: usize) {
        let mut state = self.state.lock();
        state.identity = Identity::new(random_id());
        state.is_active = true;
        // No replica can have the bytes before, and a replica never sees offset 0 with a stream.
        self.backlog.restart(self.backlog.end() + 1);
        self.backlog.set_kept_bytes(kept_bytes);
        drop(state);
        self.work.notify_all();
    }

    /// Changes go into the stream from now on, which goes on where this server ended it with its last life. It has a
    /// new name, as in Redis: a replica that is exactly there goes on under the old one.
    pub fn resume_stream(&self, last: Previous, kept_bytes: usize, now_ms: i64) {
        let mut state = self.state.lock();
        state.identity = Identity { id: random_id(), previous: Some(last) };
        state.is_active = true;
        state.alone_since_ms = now_ms;
        self.backlog.restart(last.until);
        self.backlog.set_kept_bytes(kept_bytes);
    }

    /// The server ends, and all of its changes are in the stream.
    pub fn note_last_place(&self) {
        let mut state = self.state.lock();
        state.ended_at = Some(Previous { id: state.identity.id, until: self.backlog.end() });
    }

    /// The name of the stream and its end, if all changes up to the end of the server are in it.
    #[must_use]
    pub fn ended_at(&self) -> Option<Previous> {
        self.state.lock().ended_at
    }

    /// The stream ends: nothing goes into it any more. Its replicas lose their connections.
    pub fn end_stream(&self) {
        let mut state = self.state.lock();
        state.is_active = false;
        state.identity = Identity::new(random_id());
        self.backlog.restart(self.backlog.end());
        state.give_up_copy();
    }

    /// Who appends to the stream.
    #[must_use]
    pub fn source(&self) -> Source {
        self.state.lock().source
    }

    /// The role has changed: the link to a primary is to become the source, or not any more.
    pub fn note_role(&self, is_replica: bool) {
        self.state.lock().is_to_repeat = is_replica;
        self.work.notify_all();
    }

    /// The link to a primary is the source from now on. If there is a stream, it has to be complete, and the link can
    /// ask for the rest of it at the place that is returned. Otherwise the data are those at the place that is `known`,
    /// where this database is selected.
    pub fn hand_over(
        &self,
        known: Option<link::Place>,
        db: DbIndex,
        kept_bytes: usize,
    ) -> Option<link::Place> {
        let mut state = self.state.lock();
        state.source = Source::Link;
        *self.db.lock() = db;
        let place = match state.is_active {
            true => Some(link::Place { id: state.identity.id, offset: self.backlog.end() }),
            false => known,
        };
        if let Some(place) = place.filter(|_| !state.is_active) {
            self.begin_at(&mut state, place, kept_bytes);
        }
        drop(state);
        self.work.notify_all();
        place
    }

    /// This server is promoted: it goes on with the stream of its primary, under a new id. To be called while nothing
    /// of the stream is being applied, and before a client can change anything. Returns whether changes are to
    /// be collected from now on: not if they still are.
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

    /// The link has begun to bring the stream from this place on. Replicas of this server go on if it is the stream
    /// that they have; if its id has changed, they lose their connections, and learn it when they come back. Returns
    /// whether it has changed.
    pub fn continue_at(&self, place: link::Place, db: DbIndex, kept_bytes: usize) -> bool {
        let mut state = self.state.lock();
        *self.db.lock() = db;
        if !state.is_active || self.backlog.end() != place.offset {
            self.begin_at(&mut state, place, kept_bytes);
            return false;
        }
        let is_renamed = state.identity.id != place.id;
        if is_renamed {
            self.rename(&mut state, place.id);
        }
        is_renamed
    }

    /// Appends bytes of a primary's stream that have been applied; this database is selected behind them. To be called
    /// before anything else can be applied.
    pub fn repeat(&self, bytes: &[u8], db: DbIndex, lag_max: usize) {
        *self.db.lock() = db;
        self.backlog.append(bytes, lag_max);
    }

    /// Waits until the link is the source, but no longer than so. Whether it is.
    #[must_use]
    pub fn wait_for_link(&self, at_most: Duration) -> bool {
        let mut state = self.state.lock();
        if state.source != Source::Link {
            self.work.wait_for(&mut state, at_most);
        }
        state.source == Source::Link
    }

    fn begin_at(&self, state: &mut State, place: link::Place, kept_bytes: usize) {
        state.identity = Identity::new(place.id);
        state.is_active = true;
        self.backlog.restart(place.offset);
        self.backlog.set_kept_bytes(kept_bytes);
    }

    /// All replicas have to ask again, which tells them the new id.
    fn rename(&self, state: &mut State, id: ReplicationId) {
        state.identity = state.identity.renamed(id, self.backlog.end());
        self.backlog.lose_readers();
    }

    /// A replica asks for the stream.
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
                replica.turn_to(Place::Streams(reader));
                state.syncs.rest += 1;
                Accepted::Rest(state.identity.id)
            }
            Err(_) if !replica.facts.lock().takes_marks => return Accepted::Nothing,
            Err(refusal) => {
                replica.turn_to(Place::Waits { asked, is_due: false });
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

    /// Its connection has ended.
    pub fn forget(&self, replica: &Arc<Replica>) {
        let mut state = self.state.lock();
        state.replicas.retain(|other| !Arc::ptr_eq(other, replica));
        self.has_replicas.store(!state.replicas.is_empty(), Relaxed);
        state.alone_since_ms = crate::clock::unix_ms();
        drop(state);
        replica.turn_to(Place::Ended);
        self.work.notify_all();
    }

    /// What became of those that have asked.
    #[must_use]
    pub fn syncs(&self) -> Syncs {
        self.state.lock().syncs
    }

    /// All that follow.
    #[must_use]
    pub fn replicas(&self) -> Vec<Arc<Replica>> {
        self.state.lock().replicas.clone()
    }

    /// The replica that listens at this address, by what it says of itself.
    #[must_use]
    pub fn replica_at(&self, address: &Address) -> Option<Arc<Replica>> {
        self.replicas().into_iter().find(|replica| replica.is_at(address))
    }

    /// Whether there are any.
    #[must_use]
    #[inline]
    pub fn has_replicas(&self) -> bool {
        self.has_replicas.load(Relaxed)
    }

    /// Replicas that get the stream and were heard of within `min-replicas-max-lag`, as of the last count.
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

    /// Waits for a change of the replicas, but no longer than so. Without replicas a copy that begins is not waited for:
    /// the last one may have left since it was asked for. `false` if the server ends.
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

    /// Waits until a replica wants the stream, or this server is a replica itself. `false` if the server ends.
    #[must_use]
    pub fn wait_for_need(&self) -> bool {
        let mut state = self.state.lock();
        let wants = |replica: &Arc<Replica>| replica.wants_stream();
        while !state.ends && !state.is_to_repeat && !state.replicas.iter().any(wants) {
            self.work.wait(&mut state);
        }
        !state.ends
    }

    /// Whether the server ends.
    #[must_use]
    pub fn ends(&self) -> bool {
        self.state.lock().ends
    }

    /// How long there has been no replica, in milliseconds.
    #[must_use]
    pub fn alone_ms(&self, now_ms: i64) -> i64 {
        let state = self.state.lock();
        if state.replicas.is_empty() { now_ms.saturating_sub(state.alone_since_ms) } else { 0 }
    }

    /// Has those that wait here see that the server ends.
    pub fn end(&self) {
        self.state.lock().ends = true;
        self.work.notify_all();
    }

    /// A full copy begins for those that wait for one. What is to be done with its number: while changes go into the
    /// stream, a mark is set at the moment of the copy; while the link brings it, nothing may be applied from before
    /// this call until the copy is [placed](Self::place_copy) at that moment. `None` while the place of another copy is
    /// not known yet, which those that wait will get.
    #[must_use]
    pub fn begin_copy(&self, copy: Arc<Copy>) -> Option<Begun> {
        let mut state = self.state.lock();
        // That one would never be opened, and who writes it waits for that.
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

    /// The stream has reached the moment of the copy with this number: those that wait for one get it, and then the
    /// stream from here on. Called by the thread that appends to the stream, or while nothing is. How many they are.
    pub fn place_copy(&self, number: u64) -> usize {
        self.place(number, |_| true)
    }

    /// The moment of the copy with this number is over, and there is no stream to go on with: those that want a copy
    /// alone get it. How many they are.
    pub fn place_copy_alone(&self, number: u64) -> usize {
        self.place(number, |replica| !replica.wants_stream())
    }

    fn place(&self, number: u64, gets_it: impl Fn(&Replica) -> bool) -> usize {
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
            replica.turn_to(Place::Copies { head, copy, reader, then, is_loaded });
            placed += 1;
        }
        state.current = Some(Arc::clone(&copy));
        let is_repeated = state.is_active && state.source == Source::Link;
        drop(state);
        copy.open(is_repeated.then(|| *self.db.lock()));
        placed
    }

    /// The copy that was to begin has not: those that wait for one go on waiting. The stream may have passed its mark
    /// already; those that were promised it then lose their connections.
    pub fn cancel_copy(&self, copy: &Copy) {
        self.cancel_beginning();
        copy.fail();
    }

    /// Gives up a copy whose place is not known yet, so that its writer waits no longer. Those that wait for a copy go
    /// on waiting. Whether there was one.
    pub fn cancel_beginning(&self) -> bool {
        let beginning = self.state.lock().beginning.take();
        beginning.inspect(|(_, copy)| copy.fail()).is_some()
    }

    /// A copy that begins or has begun is given up: its replicas lose their connections.
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

    /// The thread that starts copies would else wait without end, and who writes the copy for the thread.
    #[test]
    fn a_copy_whose_last_replica_has_left_is_not_waited_for() {
        let primary = Arc::new(Primary::new());
        let (replica, _) = ask(&primary, place_at(1, 0));
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

    fn place_at(digit: u8, offset: u64) -> link::Place {
        link::Place { id: ReplicationId::from_random([digit; ID_LEN / 2]), offset }
    }

    fn text(replica: &Replica) -> (Took, String) {
        let mut taken = Vec::new();
        let took = replica.take(1 << 20, &mut taken);
        (took, String::from_utf8(taken).unwrap())
    }

    /// One that asks for the rest of this stream.
    fn ask(primary: &Primary, place: link::Place) -> (Arc<Replica>, Accepted) {
        let client = Client::new(Origin::default(), 0);
        let replica = Arc::new(Replica::new(Arc::new(client)));
        replica.facts.lock().takes_marks = true;
        let wish = Wish::Rest { id: place.id, first_missing: place.offset as i64 + 1 };
        let accepted = primary.accept(&replica, wish, Asked::Psync, 0);
        (replica, accepted)
    }

    #[test]
    fn a_replica_repeats_the_stream_and_goes_on_with_it_when_it_is_promoted() {
        let primary = Primary::new();
        let known = place_at(1, 100);
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
        // It has to learn the new id, and goes on where it was.
        assert_eq!(text(&replica).0, Took::Lost);
        primary.backlog.append(b"two", 0);
        let (replica, accepted) = ask(&primary, place_at(1, 103));
        assert_eq!(accepted, Accepted::Rest(identity.id));
        assert_eq!(text(&replica), (Took::All, "two".to_owned()));
        let (_, accepted) = ask(&primary, place_at(1, 104));
        assert_eq!(accepted, Accepted::Copy(Refusal::Ahead));
    }

    #[test]
    fn a_primary_goes_on_in_its_own_stream_as_a_replica() {
        let primary = Primary::new();
        primary.begin_stream(1 << 20);
        let begin = link::Place { id: primary.identity().id, offset: primary.backlog.end() };
        let (replica, _) = ask(&primary, begin);
        primary.backlog.append(b"own", 0);
        assert!(!primary.wait_for_link(Duration::ZERO));
        let place = primary.hand_over(None, DbIndex::ZERO, 1 << 20).unwrap();
        assert_eq!(place, link::Place { offset: begin.offset + 3, ..begin });
        assert!(primary.wait_for_link(Duration::ZERO));
        assert_eq!(text(&replica), (Took::All, "own".to_owned()), "nothing is lost for others");

        // The promoted one has the same stream under another name.
        let renamed = link::Place { offset: place.offset, ..place_at(2, 0) };
        assert!(primary.continue_at(renamed, DbIndex::ZERO, 1 << 20));
        assert_eq!(text(&replica).0, Took::Lost);
        let (_, accepted) = ask(&primary, begin);
        assert_eq!(accepted, Accepted::Rest(renamed.id));
    }

    #[test]
    fn another_stream_begins_anew() {
        let primary = Primary::new();
        let first = place_at(1, 100);
        primary.hand_over(Some(first), DbIndex::ZERO, 1 << 20);
        let (replica, _) = ask(&primary, first);
        // A full copy has come.
        primary.end_stream();
        assert_eq!(text(&replica).0, Took::Lost);
        let second = place_at(2, 7);
        assert!(!primary.continue_at(second, DbIndex::ZERO, 1 << 20));
        assert_eq!(ask(&primary, first).1, Accepted::Copy(Refusal::OtherStream));
        assert_eq!(ask(&primary, second).1, Accepted::Rest(second.id));
        // Without a place in a stream, a promoted server has none either.
        primary.end_stream();
        assert!(primary.take_over(0));
        assert!(!primary.is_active());
    }

    #[test]
    fn a_copy_of_a_replica_says_which_database_is_selected() {
        let primary = Primary::new();
        let place = place_at(1, 100);
        let db = Keyspace::new(Options::default()).unwrap().db_index(3).unwrap();
        primary.hand_over(Some(place), DbIndex::ZERO, 1 << 20);
        let (replica, accepted) = ask(&primary, place_at(3, 5));
        assert_eq!(accepted, Accepted::Copy(Refusal::OtherStream));
        primary.repeat(b"12345", db, 0);
        let (copy, sink) = Copy::begin(Duration::ZERO, None, Box::new(|| ()));
        assert_eq!(primary.begin_copy(copy), Some(Begun::Here(1)));
        assert_eq!(primary.place_copy(1), 1);
        assert_eq!(sink.stream_db(), Some(db));
        let head = format!("+FULLRESYNC {} 105\r\n$EOF:", place.id);
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
