//! The stream of this server, and all its replicas.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tierce_replication::backlog::Backlog;
use tierce_replication::identity::{ID_LEN, Identity, Refusal, ReplicationId, Wish};

use super::{Asked, Confirmations, Copy, Place, Replica};

/// How a replica goes on that has asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accepted {
    /// It gets the rest of the stream with this name.
    Rest(ReplicationId),
    /// It gets a full copy, and this is why.
    Copy(Refusal),
}

/// How the place of a copy in the stream becomes known, which has this number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begun {
    /// By a mark in the feed ([`Primary::place_copy`]).
    Mark(u64),
    /// It has none, since there is no stream ([`Primary::place_copy_alone`]).
    Alone(u64),
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
}

struct State {
    identity: Identity,
    /// Changes go into the stream.
    is_active: bool,
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

    /// Changes go into the stream from now on, of which so many bytes are kept for replicas that come back. It has a new
    /// name: what changed before is not in it.
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

    /// Changes do not go into the stream any more. Its replicas lose their connections.
    pub fn end_stream(&self) {
        let mut state = self.state.lock();
        state.is_active = false;
        state.identity = Identity::new(random_id());
        self.backlog.restart(self.backlog.end());
        state.give_up_copy();
    }

    /// The same stream gets another name, as if this server had just been promoted.
    pub fn rename(&self) {
        let mut state = self.state.lock();
        state.identity = state.identity.renamed(random_id(), self.backlog.end());
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

    /// Waits for a change of the replicas, but no longer than so. `false` if the server ends.
    #[must_use]
    pub fn wait(&self, at_most: Option<Duration>) -> bool {
        let mut state = self.state.lock();
        match at_most {
            _ if state.ends => {}
            Some(at_most) => _ = self.work.wait_for(&mut state, at_most),
            None if state.replicas.is_empty() => self.work.wait(&mut state),
            None => {}
        }
        !state.ends
    }

    /// Waits until a replica wants the stream. `false` if the server ends.
    #[must_use]
    pub fn wait_for_reader(&self) -> bool {
        let mut state = self.state.lock();
        while !state.ends && !state.replicas.iter().any(|replica| replica.wants_stream()) {
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
    /// stream, a mark is set at the moment of the copy. `None` while the place of another copy is not known yet, which
    /// those that wait will get.
    #[must_use]
    pub fn begin_copy(&self, copy: Arc<Copy>) -> Option<Begun> {
        let mut state = self.state.lock();
        // That one would never be opened, and who writes it waits for that.
        if state.beginning.is_some() {
            return None;
        }
        state.copies += 1;
        state.beginning = Some((state.copies, copy));
        let begun = if state.is_active { Begun::Mark } else { Begun::Alone };
        Some(begun(state.copies))
    }

    /// The stream has reached the moment of the copy with this number: those that wait for one get it, and then the
    /// stream from here on. Called by the thread that appends to the stream. How many they are.
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
        drop(state);
        copy.open();
        placed
    }

    /// The copy that was to begin has not: those that wait for one go on waiting. The stream may have passed its mark
    /// already; those that were promised it then lose their connections.
    pub fn cancel_copy(&self, copy: &Copy) {
        self.state.lock().beginning = None;
        copy.fail();
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
    use super::*;

    #[test]
    fn a_copy_that_begins_is_not_replaced_by_another() {
        let primary = Primary::new();
        let copy = || Copy::begin(Duration::ZERO, Box::new(|| ())).0;
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
    fn a_cancelled_copy_fails_also_behind_its_mark() {
        let primary = Primary::new();
        let copy = || Copy::begin(Duration::ZERO, Box::new(|| ())).0;
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
