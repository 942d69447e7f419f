//! The rules that guarantee one writer, an ordered log and safe pruning. Simulations leave out one rule at a time, to
//! see that they detect it; everywhere else all rules are kept.

/// A rule of the design.
// Only test code leaves out some of them.
#[cfg_attr(not(test), expect(dead_code))]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    /// Pinned objects are not deleted.
    PinsHold,
    /// Pruning sets the floor and then lists the pins.
    FloorBeforePins,
    /// A restore puts its pin and then reads the floor.
    PinBeforeFloor,
    /// A branch pins all logs that it continues, not only its parent.
    ParentsPinned,
    /// The end of the log is valid only if the floor, read after the next record was found missing, is not above it.
    FloorAfterAbsence,
    /// A CLAIM is valid only if the floor, read after it was put, is not above it.
    FloorAfterClaim,
    /// A process begins with a CLAIM.
    ClaimAtStart,
    /// CLAIMs are never deleted.
    ClaimsStay,
    /// An unknown outcome is followed by a read: the conflict may be with an earlier attempt of this process.
    ReadAfterConflict,
    /// After an unknown outcome and an absent object the same bytes are put again.
    SameBytes,
    /// An append whose future was dropped is finished before the next.
    SettleFirst,
    /// Two processes never write the same bytes.
    Nonce,
    /// A snapshot is valid only with its SNAPSHOT record.
    SnapshotRecord,
    /// The lease counts from before the first attempt.
    FirstAttempt,
    /// Times in the log never go back.
    WallNeverBack,
    /// Others wait for a margin beyond the lease, since clocks run at different speeds.
    Margin,
    /// A lease is counted from the receipt of the response that first showed the newest record.
    FromReceipt,
    /// A log is taken over only if its CLAIM allows it.
    TakeoverAsked,
    /// A follower claims only after records that it has returned.
    FollowFirst,
    /// The lease ends before the RELEASE is put.
    EndBeforeRelease,
    /// Deletion waits for the longest lease and margin.
    DeleteLater,
    /// The clock of an owner starts no lower than the newest record's.
    ClockStarts,
    /// The lease is checked after a command was executed.
    FreshClock,
    /// Replies to reads wait until the data they show is committed.
    ReadsWaitForCommit,
    /// Commands wait when the oldest data that is not in the bucket is as old as the interval.
    BackPressure,
}
