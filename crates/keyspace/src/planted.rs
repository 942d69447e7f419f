//! Faults that can be put back, for the tests that have to find them (`crates/engine/tests/together`,
//! `crates/commands/tests/replicated`, `crates/server/src/simulation`, `scripts/linearizability`).
//!
//! Each was in the code once, or is what a natural mistake there would do. [`is`] is where the code does
//! better now. Without the feature `planted-faults`, which only these tests have, it is `false` when the
//! program is compiled, and nothing is left of it.

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Fault {
    /// Emptying a database ends the lists of all databases that a checkpoint has logged in part.
    FlushEndsAllLists = 1,
    /// The log does not hear that a key has expired.
    ExpiryIsNotLogged,
    /// What is longer than a record does not get to the log.
    LongRecordsAreDropped,
    /// A log that could not be begun is not begun again, whatever is said of it.
    RefusedLogIsNotBegun,
    /// A log that has failed takes writes again before another one has all keys.
    WriteErrorEndsTooEarly,
    /// A new log whose completion has failed once is never complete.
    CompletionIsNotRepeated,
    /// A rollback leaves keys that were added.
    UndoOfNewKeys,
    /// It does not put back entries that were removed, or changed and small.
    UndoOfEntries,
    /// It does not put back large values that were replaced.
    UndoOfValues,
    /// Large values keep the deadlines and attributes that they got.
    UndoOfShells,
    /// Keys that were read stay used.
    UndoOfUses,
    /// Large strings keep what was written into them.
    UndoOfBytes,
    /// Large lists stay edited.
    UndoOfLists,
    /// Large sets stay edited.
    UndoOfSets,
    /// Large sorted sets stay edited.
    UndoOfSortedSets,
    /// Large hashes stay edited.
    UndoOfHashes,
    /// Streams stay edited.
    UndoOfStreams,
    /// A large value stays under its new key.
    UndoOfMoves,
    /// Counters stay.
    UndoOfCounters,
    /// Groups of keys keep their new versions.
    UndoOfVersions,
    /// Emptied databases stay empty.
    UndoOfFlushes,
    /// Databases stay exchanged.
    UndoOfSwaps,
    /// Libraries of functions and scripts stay changed.
    UndoOfCode,
    /// A commit does not give up locations on disk.
    UndoOfLocations,
    /// What was done goes to the log.
    UndoOfRecords,
    /// Waiters are told of what was taken back.
    UndoOfReadyKeys,
    /// Events are delivered of what was taken back.
    UndoOfEvents,
    /// Watchers are told of what was taken back.
    UndoOfTouchedKeys,
    /// EXEC does not lock what its commands need together.
    TransactionsInPieces,
    /// Clients that began to wait go on waiting.
    UndoOfWaiters,
    /// A worker that cannot serve the clients of a key, since its shard is busy, forgets that they are to be served.
    BusyKeysStayUnserved,
    /// Threads for long commands wait without limit for a shard that a script holds.
    LongThreadsWait,
    /// What a worker has yet to deliver to a connection is dropped when that sends a command.
    CommandsDropMessages,
    /// The messages of a script are sent when its keys are not locked any more.
    MessagesWithoutLocks,
    /// A replica hears of no deadline of a collection that begins anew.
    TranslationOfDeadlines,
    /// Nor of those of fields that come with their values.
    TranslationOfFieldDeadlines,
    /// Elements that are put before a list come there in the other order.
    TranslationOfHeads,
    /// A replica empties the database that its stream has selected last.
    TranslationOfFlushes,
    /// A pending entry that was deleted is claimed without being there.
    TranslationOfPending,
    /// memcached's flags and marks are not sent with the value.
    TranslationOfNotes,
}

impl Fault {
    /// A fault of a rollback.
    pub const OF_UNDO: [Self; 23] = [
        Self::UndoOfNewKeys,
        Self::UndoOfEntries,
        Self::UndoOfValues,
        Self::UndoOfShells,
        Self::UndoOfUses,
        Self::UndoOfBytes,
        Self::UndoOfLists,
        Self::UndoOfSets,
        Self::UndoOfSortedSets,
        Self::UndoOfHashes,
        Self::UndoOfStreams,
        Self::UndoOfMoves,
        Self::UndoOfCounters,
        Self::UndoOfVersions,
        Self::UndoOfFlushes,
        Self::UndoOfSwaps,
        Self::UndoOfCode,
        Self::UndoOfLocations,
        Self::UndoOfRecords,
        Self::UndoOfReadyKeys,
        Self::UndoOfEvents,
        Self::UndoOfTouchedKeys,
        Self::UndoOfWaiters,
    ];
}

#[cfg(feature = "planted-faults")]
static OF_PROCESS: std::sync::atomic::AtomicU8 = std::sync::atomic::AtomicU8::new(0);

#[cfg(feature = "planted-faults")]
thread_local! {
    static OF_THREAD: std::cell::Cell<u8> = const { std::cell::Cell::new(0) };
}

/// Puts a fault into what this thread does, in place of the one before. Tests on other threads of the process do not
/// have it.
#[cfg(feature = "planted-faults")]
pub fn plant(fault: Option<Fault>) {
    OF_THREAD.set(fault.map_or(0, |fault| fault as u8));
}

/// Puts a fault into what all threads of the process do.
#[cfg(feature = "planted-faults")]
pub fn plant_everywhere(fault: Fault) {
    OF_PROCESS.store(fault as u8, std::sync::atomic::Ordering::SeqCst);
}

#[cfg(feature = "planted-faults")]
fn planted() -> [u8; 2] {
    [OF_THREAD.get(), OF_PROCESS.load(std::sync::atomic::Ordering::Relaxed)]
}

/// Whether this fault is there.
#[cfg(feature = "planted-faults")]
pub fn is(fault: Fault) -> bool {
    planted().contains(&(fault as u8))
}

/// Whether this fault is there.
#[cfg(not(feature = "planted-faults"))]
#[inline]
pub const fn is(_: Fault) -> bool {
    false
}

/// Whether any fault is there.
#[cfg(feature = "planted-faults")]
pub fn is_any() -> bool {
    planted() != [0, 0]
}

/// Whether any fault is there.
#[cfg(not(feature = "planted-faults"))]
#[inline]
pub const fn is_any() -> bool {
    false
}
