//! What the protocols beside RESP have in common: what their sessions wait for, how a batch is
//! prefetched, how a value is written.

use tierce_keyspace::{DbIndex, Key, Locker, Policy, StrView};
use tierce_net::{Flow, Io, OnHangup, Output};

use crate::acknowledge::Acknowledgements;
use crate::eviction::Room;
use crate::fetch::{Fetcher, Fetches, add_key};
use crate::server::Server;

/// What keeps a session or its replies waiting.
#[derive(Default)]
pub struct Waits {
    /// The end of a pause.
    pub held: bool,
    /// Values on disk.
    pub fetches: Fetches,
    /// Replies that wait for the log to be on the device.
    pub acknowledgements: Acknowledgements,
}

impl Waits {
    /// Whether `CLIENT PAUSE` holds the requests back; then the session is to be suspended this way.
    /// Which of the requests only read is not worth finding out.
    #[inline]
    pub fn for_pause(&mut self, server: &Server, io: &mut Io<'_>) -> Option<Flow> {
        let now_ms = io.now().unix_ms as i64;
        if !server.pause.is_on(now_ms) {
            return None;
        }
        let (_, left_ms) = server.pause.remaining(now_ms)?;
        self.held = true;
        io.set_timer(io.now().monotonic_ms + left_ms.max(1) as u64);
        // Nobody does behind the back of whoever paused what clients wanted that have gone.
        Some(Flow::Suspend(OnHangup::Close))
    }

    /// Whether a sync that takes too long holds the requests back; then the session is to be suspended
    /// this way. Which of them only read is not worth finding out.
    #[inline]
    pub fn for_device(&mut self, server: &Server, io: &mut Io<'_>) -> Option<Flow> {
        if !server.durability.holds_back(|| server.config.live().appendfsync()) {
            return None;
        }
        self.held = true;
        io.set_timer(io.now().monotonic_ms + server.durability.hold_back());
        Some(Flow::Suspend(OnHangup::Wait))
    }

    /// Whether requests have to wait until there is room in memory; then the session is to be suspended
    /// this way. Which of them add to it is not worth finding out.
    #[inline]
    pub fn for_room(&mut self, server: &Server, io: &mut Io<'_>) -> Option<Flow> {
        if !server.keyspace.is_short_of_memory() {
            return None;
        }
        self.for_spilled_room(server, io)
    }

    #[cold]
    fn for_spilled_room(&mut self, server: &Server, io: &mut Io<'_>) -> Option<Flow> {
        let spills = server.keyspace.eviction().policy == Policy::Spill;
        if !spills || server.spill.room() != Room::Soon {
            return None;
        }
        self.held = true;
        io.set_timer(io.now().monotonic_ms + 1);
        Some(Flow::Suspend(OnHangup::Wait))
    }

    /// Whether the session has to wait for values on disk; then it is to be suspended this way, and its
    /// requests are to be read again afterwards.
    #[cold]
    pub fn for_values<'k>(
        &mut self,
        server: &Server,
        fetcher: &mut Fetcher,
        locker: &mut Locker<'_>,
        db: DbIndex,
        keys: impl Iterator<Item = &'k [u8]>,
        io: &Io<'_>,
    ) -> Option<Flow> {
        if !self.fetches.may_wait() {
            self.fetches.has_run();
            return None;
        }
        let now_ms = io.now().unix_ms as i64;
        let mut wanted = Vec::new();
        for key in keys {
            add_key(locker, db, key, now_ms, &mut wanted);
        }
        locker.release();
        if wanted.is_empty() {
            self.fetches.has_run();
            return None;
        }
        Some(fetcher.fetch(server, &mut self.fetches, io.info().key, wanted))
    }

    /// Notes where the log ended after writes of this session; `false` if the log could not take
    /// them, so that they must not be acknowledged.
    pub fn note_logged(&mut self, server: &Server) -> bool {
        let Some(journal) = server.durability.journal() else { return true };
        if journal.is_wounded() {
            return false;
        }
        self.acknowledgements.note(journal.appended(), server.config.live().appendfsync());
        true
    }
}

/// Starts loading what the batch will look at, so that the waits for memory overlap.
#[inline]
pub fn prefetch<'k>(
    locker: &mut Locker<'_>,
    db: DbIndex,
    keys: impl ExactSizeIterator<Item = Key<'k>> + Clone,
) {
    if keys.len() >= 2 && locker.keyspace().gains_from_prefetch(db) {
        locker.prefetch(keys.map(|key| (db, key.hash())));
    }
}

/// Appends a value, a large one by reference.
#[inline]
pub fn write_value(value: StrView<'_>, output: &mut Output) {
    match value {
        StrView::Bytes(bytes) => output.buffer().extend_from_slice(bytes),
        StrView::Shared(blob) => output.attach(blob.to_arc()),
        StrView::Int(_) => value.write_to(output.buffer()),
    }
}

/// The memory of a vector for elements of another lifetime. The compiler sees that nothing is
/// converted, and keeps the allocation.
pub fn recycle<A, B>(mut vec: Vec<A>) -> Vec<B> {
    const { assert!(size_of::<A>() == size_of::<B>() && align_of::<A>() == align_of::<B>()) };
    vec.clear();
    vec.into_iter().map(|_| unreachable!("it is empty")).collect()
}

#[cfg(test)]
mod tests {
    use super::recycle;

    #[test]
    fn memory_is_kept() {
        let vec: Vec<&str> = Vec::with_capacity(100);
        let recycled: Vec<&[u8]> = recycle(vec);
        assert!(recycled.capacity() >= 100);
    }
}
