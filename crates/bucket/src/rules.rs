//! The rules that one writer, an ordered log and safe pruning rest on. In the simulation each is left out once, to see
//! that it is missed; everywhere else all are kept.

/// A rule of the design.
// Some are left out by code that only tests have.
#[cfg_attr(not(test), expect(dead_code))]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    /// What is pinned is not deleted.
    PinsHold,
    /// Pruning sets the floor and then lists the pins.
    FloorBeforePins,
    /// A restore puts its pin and then reads the floor.
    PinBeforeFloor,
    /// A branch pins all logs that it continues, and not its parent alone.
    ParentsPinned,
    /// The end of the log counts only if the floor, read after it was missing, is not above it.
    FloorAfterAbsence,
    /// A CLAIM counts only if the floor, read after it was put, is not above it.
    FloorAfterClaim,
    /// A process begins with a CLAIM.
    ClaimAtStart,
    /// CLAIMs are never deleted.
    ClaimsStay,
    /// An unknown outcome is followed by a read: a conflict may be with an attempt of one's own.
    ReadAfterConflict,
    /// After an unknown outcome and an absent object the same bytes are put again.
    SameBytes,
    /// An append whose future was dropped is finished before the next.
    SettleFirst,
    /// Two processes never write the same bytes.
    Nonce,
    /// A snapshot counts only with its SNAPSHOT record.
    SnapshotRecord,
    /// The lease counts from before the first attempt.
    FirstAttempt,
    /// Times in the log never go back.
    WallNeverBack,
    /// Others wait for a margin beyond the lease, since clocks run apart.
    Margin,
    /// A lease is counted from the receipt of the response that first showed the newest record.
    FromReceipt,
    /// A log is taken over only if its CLAIM says that it may be.
    TakeoverAsked,
    /// A follower claims only behind records that it has returned.
    FollowFirst,
    /// The lease ends before the RELEASE is put.
    EndBeforeRelease,
    /// Deletion waits for the longest lease and margin.
    DeleteLater,
    /// The clock of an owner starts no lower than the newest record's.
    ClockStarts,
    /// The lease is looked at after a command was executed.
    FreshClock,
    /// Replies to reads wait until what they show is committed.
    GateReads,
    /// Commands wait when what is not in the bucket is as old as the interval.
    BackPressure,
}
