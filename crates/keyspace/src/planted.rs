//! Faults that tests can plant and must find (`crates/engine/tests/together`, `crates/commands/tests/replicated`,
//! `crates/server/src/simulation`, `scripts/linearizability`).
//!
//! Each fault was in the code once, or is a natural mistake. The code calls [`is`] where it would have the fault.
//! Without the feature `planted-faults`, which only these tests enable, [`is`] is constant `false` and nothing
//! remains in the program.

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Fault {
    /// Emptying a database drops the partly logged lists of all databases.
    FlushEndsAllLists = 1,
    /// The expiry of a key is not logged.
    ExpiryIsNotLogged,
    /// Batches longer than a record are not logged.
    LongRecordsAreDropped,
    /// A log that could not be begun is never begun again.
    RefusedLogIsNotBegun,
    /// A log that has failed accepts writes again before another one has all keys.
    WriteErrorEndsTooEarly,
    /// A new log whose completion has failed once is never completed.
    CompletionIsNotRepeated,
    /// A rollback keeps keys that were added.
    UndoOfNewKeys,
    /// It does not restore entries that were removed, or that were changed and small.
    UndoOfEntries,
    /// It does not restore large values that were replaced.
    UndoOfValues,
    /// Large values keep their new deadlines and attributes.
    UndoOfShells,
    /// Keys keep their new usage data.
    UndoOfUses,
    /// Large strings keep the written bytes.
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
    /// Counters are not restored.
    UndoOfCounters,
    /// Groups of keys keep their new versions.
    UndoOfVersions,
    /// Emptied databases stay empty.
    UndoOfFlushes,
    /// Databases stay exchanged.
    UndoOfSwaps,
    /// Libraries of functions and scripts stay changed.
    UndoOfCode,
    /// A commit does not release locations on disk.
    UndoOfLocations,
    /// Rolled back changes are logged.
    UndoOfRecords,
    /// Waiters are told of rolled back changes.
    UndoOfReadyKeys,
    /// Events of rolled back changes are delivered.
    UndoOfEvents,
    /// Watchers are told of rolled back changes.
    UndoOfTouchedKeys,
    /// EXEC does not lock all its commands' keys together.
    TransactionsInPieces,
    /// Clients that began to wait continue to wait.
    UndoOfWaiters,
    /// A worker that cannot serve the clients of a key in a busy shard forgets them.
    BusyKeysStayUnserved,
    /// Threads for long commands wait without limit for a shard that a script has locked.
    LongThreadsWait,
    /// A worker drops pending messages for a connection when the connection sends a command.
    CommandsDropMessages,
    /// The messages of a script are sent after its keys were unlocked.
    MessagesWithoutLocks,
    /// A replica does not get the deadline of a collection that is written anew.
    TranslationOfDeadlines,
    /// A replica does not get field deadlines that come with field values.
    TranslationOfFieldDeadlines,
    /// Elements prepended to a list arrive in the opposite order.
    TranslationOfHeads,
    /// A replica empties the database that its stream selected last.
    TranslationOfFlushes,
    /// A deleted pending entry is claimed although it does not exist.
    TranslationOfPending,
    /// memcached's flags and marks are not sent with the value.
    TranslationOfNotes,
}

impl Fault {
    /// The faults of a rollback.
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

/// Plants a fault in this thread, and replaces the previous one. Other threads do not have it.
#[cfg(feature = "planted-faults")]
pub fn plant(fault: Option<Fault>) {
    OF_THREAD.set(fault.map_or(0, |fault| fault as u8));
}

/// Plants a fault in all threads of the process.
#[cfg(feature = "planted-faults")]
pub fn plant_everywhere(fault: Fault) {
    OF_PROCESS.store(fault as u8, std::sync::atomic::Ordering::SeqCst);
}

#[cfg(feature = "planted-faults")]
fn planted() -> [u8; 2] {
    [OF_THREAD.get(), OF_PROCESS.load(std::sync::atomic::Ordering::Relaxed)]
}

/// Returns true if this fault is planted.
#[cfg(feature = "planted-faults")]
pub fn is(fault: Fault) -> bool {
    planted().contains(&(fault as u8))
}

/// Returns true if this fault is planted.
#[cfg(not(feature = "planted-faults"))]
#[inline]
pub const fn is(_: Fault) -> bool {
    false
}

/// Returns true if any fault is planted.
#[cfg(feature = "planted-faults")]
pub fn is_any() -> bool {
    planted() != [0, 0]
}

/// Returns true if any fault is planted.
#[cfg(not(feature = "planted-faults"))]
#[inline]
pub const fn is_any() -> bool {
    false
}
