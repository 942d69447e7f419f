//! Decides what a start does with a data directory and the log in a bucket, without effects.

use std::fmt;
use std::time::Duration;

use tierce_bucket::{End, Id, Right};

use super::position_file::Known;

/// Input of the decision.
#[derive(Debug, Clone, Copy)]
pub(super) struct Found<'f> {
    /// State that the directory keeps.
    pub(super) known: Option<Known>,
    /// True if the directory has data.
    pub(super) has_data: bool,
    /// End of the log.
    pub(super) end: &'f End,
    /// True if the operator declares the last owner dead.
    pub(super) is_forced: bool,
    /// True if the directory is no copy, as far as can be told.
    pub(super) is_here: bool,
    /// True if the server may follow another one, and take over from it.
    pub(super) takes_over: bool,
}

/// Plan of a start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Plan {
    /// Reason why the log may be claimed.
    pub(super) right: Right,
    /// True if the log continues behind a snapshot of this directory, which may have more than the log.
    pub(super) needs_base: bool,
}

/// Reason why the server refuses to start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The directory has data unrelated to the log, which has its own.
    Foreign,
    /// The directory was the owner of another log.
    OtherLog,
    /// The directory was the owner of a log, and this one is empty.
    Gone,
    /// The log lacks records that the directory has sent: it is an old copy, or its local log is damaged.
    Behind,
    /// This machine's clock is this far behind the newest time in the log.
    ClockBehind(Duration),
    /// Another server has claimed the log since this directory wrote to it, or the directory is an old copy of itself.
    Diverged,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ClockBehind(behind) => {
                return write!(
                    f,
                    "this machine's clock is {} s behind the newest object there, so keys that have expired would be there \
                     again. Nothing was changed. Check the clocks of this machine and of the last owner",
                    behind.as_secs()
                );
            }
            Self::Foreign => {
                "the data directory has data, and so has the bucket, which do not come from it. Nothing was changed. To \
                 use the bucket's data, start on an empty dir; to keep the directory's, choose another prefix"
            }
            Self::OtherLog => {
                "the data directory belongs to another log than the one there. Nothing was changed. Check the name and \
                 prefix; to use the bucket's data, start on an empty dir"
            }
            Self::Gone => {
                "the data directory was the owner of a log, and there is none: its objects were deleted, or name or \
                 prefix are other ones. Nothing was changed. To begin a new log with the directory's data: \
                 --bucket-claim force"
            }
            Self::Behind => {
                "the log has changes of this directory that are not there any more: it is an old copy of itself, or its \
                 local log is damaged. To use the bucket's data, start on an empty dir, with --bucket-claim force; what \
                 this directory has can be seen by starting on it without --bucket"
            }
            Self::Diverged => {
                "the log has gone on without this directory: another server has claimed it, or the directory is an old \
                 copy. Nothing \
                 was changed. To use the bucket's data, start on an empty dir; what only this directory has can be seen \
                 by starting on it without --bucket"
            }
        })
    }
}

/// Returns the directory's state after a check whether the CLAIM it was about to put is in the log.
///
/// It is, if the last CLAIM has its nonce: then it is right behind the directory's known position, and the directory
/// has written nothing behind it. Another CLAIM of this node is from a copy.
pub(super) fn settled(known: Known, end: &End) -> Known {
    let last = end.claim.as_ref().filter(|last| last.node == known.node);
    match known.claiming.zip(last) {
        Some((claiming, last)) if claiming.nonce == last.nonce => Known {
            cluster: end.cluster,
            claim: last.number,
            claiming: None,
            released: None,
            // The log is a new one if the objects of the old one were gone.
            cut: known.cut.filter(|_| known.cluster == end.cluster),
            home: Some(claiming.home),
            ..known
        },
        _ => known,
    }
}

/// Way in which a directory begins to follow a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Start {
    /// It is empty, and filled from the log.
    Empty,
    /// It has followed before, and continues at the position in its local log, even if its own CLAIM comes next.
    GoesOn,
    /// It was the owner, and has the log's data up to this object.
    Behind(u64),
    /// It was the owner, and may have data that the log lacks. They are moved away, and the directory is filled again.
    Diverged,
}

/// Returns how a server begins to follow the log; `None` if it should claim it now.
///
/// A follower that was interrupted after its claim knows only from its local log which part of the log it has. After a
/// power loss that may be less than the log before its CLAIM. So it follows, and takes over again, no matter how it was
/// started: its data are never a base.
pub(super) fn follow(found: Found<'_>) -> Option<Start> {
    let Found { known, has_data, end, is_forced, takes_over, .. } = found;
    let last = end.claim.as_ref()?;
    let known = known.filter(|known| known.cluster == end.cluster);
    let was_owner = known.is_some_and(|known| known.node == last.node);
    let has_claimed = has_data && was_owner && known.is_some_and(|known| known.follows);
    if has_claimed {
        return Some(Start::GoesOn);
    }
    if !takes_over {
        return None;
    }
    if !has_data {
        return (!is_forced && !end.released && !was_owner).then_some(Start::Empty);
    }
    match known? {
        Known { follows: true, .. } => Some(Start::GoesOn),
        _ if was_owner || is_forced => None,
        Known { released: Some(number), .. } => Some(Start::Behind(number)),
        Known { .. } => Some(Start::Diverged),
    }
}

/// Maximum time that a start waits for its clock to reach the times in the log: synchronized clocks differ by less.
const CLOCK_WAIT_MAX: Duration = Duration::from_secs(10);

/// Returns how long the claim of a log with this newest time has to wait. Both times are milliseconds since 1970,
/// `now_ms` by this machine's clock. An owner whose clock is behind would show expired keys.
pub(super) fn wait_for_clock(wall_ms: u64, now_ms: u64) -> Result<Duration, Refusal> {
    let behind = Duration::from_millis(wall_ms.saturating_sub(now_ms));
    if behind > CLOCK_WAIT_MAX { Err(Refusal::ClockBehind(behind)) } else { Ok(behind) }
}

const NOTHING: Id = [0; 16];

/// Decides if and how the log may be claimed.
pub(super) fn decide(found: Found<'_>) -> Result<Plan, Refusal> {
    let Found { known, has_data, end, is_forced, is_here, .. } = found;
    let is_empty_log = end.number == 0;
    let last = end.claim.as_ref();
    let was_owner = known.is_some_and(|known| last.is_some_and(|last| last.node == known.node));
    let right = match (is_forced, was_owner && is_here) {
        (true, _) => Right::Force,
        (false, true) => Right::PredecessorDead,
        (false, false) => Right::Orderly,
    };
    if !has_data {
        return Ok(Plan { right, needs_base: false });
    }
    let had_log = known.is_some_and(|known| known.cluster != NOTHING);
    if is_empty_log {
        let is_refused = had_log && !is_forced;
        return if is_refused { Err(Refusal::Gone) } else { Ok(Plan { right, needs_base: true }) };
    }
    let Some(known) = known else { return Err(Refusal::Foreign) };
    if had_log && known.cluster != end.cluster {
        return Err(Refusal::OtherLog);
    }
    if !was_owner {
        return Err(if had_log { Refusal::Diverged } else { Refusal::Foreign });
    }
    let is_old_copy = known.claim != 0 && last.is_some_and(|last| last.number != known.claim)
        || known.released.is_some_and(|number| number != end.number);
    if is_old_copy {
        return Err(Refusal::Diverged);
    }
    let is_equal = end.released && known.released == Some(end.number);
    Ok(Plan { right, needs_base: !is_equal })
}

#[cfg(test)]
mod tests {
    use tierce_bucket::ClaimInfo;

    use tierce_harness::TempDir;

    use super::*;
    use crate::bucket::position_file::{Claiming, Cut, PositionFile};

    const HERE: Id = [1; 16];
    const OTHER: Id = [2; 16];
    const LOG: Id = [9; 16];
    const FIRST: Id = [4; 16];
    const SECOND: Id = [5; 16];

    fn end(number: u64, node: Id, released: bool) -> End {
        let claim = ClaimInfo {
            number: 1,
            epoch: 1,
            node,
            nonce: FIRST,
            address: String::new(),
            takeover: false,
            lease_ms: 0,
            margin_ms: 0,
            fence_ms: 0,
            wall: 0,
        };
        End { number, cluster: LOG, claim: Some(claim), released, ..End::default() }
    }

    fn known(cluster: Id, released: Option<u64>) -> Option<Known> {
        let claim = u64::from(cluster == LOG);
        Some(Known { node: HERE, cluster, claim, released, ..Known::default() })
    }

    #[test]
    fn a_clock_that_is_behind_is_waited_for_or_refused() {
        for (wall_ms, now_ms, expected) in [
            (0, 5_000, Ok(0)),
            (5_000, 5_000, Ok(0)),
            (5_001, 5_000, Ok(1)),
            (15_000, 5_000, Ok(10_000)),
            (15_001, 5_000, Err(10_001)),
        ] {
            let expected = expected.map(Duration::from_millis);
            let expected = expected.map_err(|ms| Refusal::ClockBehind(Duration::from_millis(ms)));
            assert_eq!(wait_for_clock(wall_ms, now_ms), expected, "{wall_ms} at {now_ms}");
        }
    }

    #[test]
    fn who_follows() {
        let (ours, released) = (end(7, HERE, false), end(7, OTHER, true));
        let others = end(7, OTHER, false);
        let of_other_log = End { cluster: [8; 16], ..others.clone() };
        let follower = known(LOG, None).map(|known| Known { claim: 0, follows: true, ..known });
        for (what, known, has_data, end, forced, expected) in [
            ("a new log", None, false, &End::default(), false, None),
            ("from nothing", None, false, &others, false, Some(Start::Empty)),
            ("after an orderly end", None, false, &released, false, None),
            ("by force", None, false, &others, true, None),
            ("our own", known(LOG, None), true, &ours, false, None),
            ("a follower", follower, true, &others, false, Some(Start::GoesOn)),
            ("one at an orderly end", follower, true, &released, false, Some(Start::GoesOn)),
            ("one that had claimed", follower, true, &ours, false, Some(Start::GoesOn)),
            ("and by force", follower, true, &ours, true, Some(Start::GoesOn)),
            ("and without data", follower, false, &ours, false, None),
            ("one that lost its data", follower, false, &others, false, Some(Start::Empty)),
            ("a deposed owner", known(LOG, None), true, &others, false, Some(Start::Diverged)),
            ("one that left", known(LOG, Some(5)), true, &others, false, Some(Start::Behind(5))),
            ("another log", known(LOG, None), true, &of_other_log, false, None),
            ("data of its own", None, true, &others, false, None),
        ] {
            let is_here = true;
            let found =
                Found { known, has_data, end, is_forced: forced, is_here, takes_over: true };
            assert_eq!(follow(found), expected, "{what}");
            let has_claimed = known == follower && has_data && end == &ours;
            let expected = expected.filter(|_| has_claimed);
            let alone = Found { takes_over: false, ..found };
            assert_eq!(follow(alone), expected, "{what}, without takeover");
        }
    }

    /// A directory at the end of its log, where number 7 is its RELEASE, was killed while it put CLAIM 8.
    #[test]
    fn a_claim_that_was_cut_short_is_told_from_that_of_a_copy() {
        let dir = TempDir::new();
        let home = PositionFile::lock(dir.path()).unwrap().home();
        let began = Known {
            node: HERE,
            cluster: LOG,
            claim: 1,
            claiming: Some(Claiming { nonce: SECOND, home }),
            released: Some(7),
            ..Known::default()
        };
        let landed = Known { claim: 8, claiming: None, released: None, home: Some(home), ..began };
        let claimed_at = |number, node, at, nonce| {
            let end = end(number, node, false);
            let claim = end.claim.clone().map(|claim| ClaimInfo { number: at, nonce, ..claim });
            End { claim, ..end }
        };
        let (goes_on, diverged) = (|needs_base| Ok(needs_base), Err(Refusal::Diverged));
        for (what, end, known, expected, follows) in [
            ("it is not there", end(7, HERE, true), began, goes_on(false), None),
            ("it is", claimed_at(8, HERE, 8, SECOND), landed, goes_on(true), None),
            ("it was renewed", claimed_at(9, HERE, 8, SECOND), landed, goes_on(true), None),
            ("a copy was faster", claimed_at(8, HERE, 8, [6; 16]), began, diverged, None),
            ("a copy has claimed later", claimed_at(9, HERE, 9, [6; 16]), began, diverged, None),
            ("or has written", end(8, HERE, false), began, diverged, None),
            (
                "another server was faster",
                claimed_at(9, OTHER, 8, [6; 16]),
                began,
                diverged,
                Some(Start::Behind(7)),
            ),
        ] {
            let settled = settled(began, &end);
            assert_eq!(settled, known, "{what}");
            let found = Found {
                known: Some(settled),
                has_data: true,
                end: &end,
                is_forced: false,
                is_here: true,
                takes_over: true,
            };
            assert_eq!(follow(found), follows, "{what}");
            let decided = decide(Found { takes_over: false, ..found });
            assert_eq!(decided.map(|plan| plan.needs_base), expected, "{what}");
        }
        let cut = Some(Cut { id: 3, object: 5 });
        let of_other_log = Known { cluster: OTHER, cut, ..began };
        let settled = settled(of_other_log, &claimed_at(1, HERE, 1, SECOND));
        assert_eq!((settled.cluster, settled.claim, settled.cut), (LOG, 1, None));
    }

    #[test]
    fn every_case() {
        use Right::{Force, Orderly, PredecessorDead};
        let empty = End::default();
        let plan = |right, needs_base| Ok(Plan { right, needs_base });
        let (ours, released) = (end(7, HERE, false), end(7, HERE, true));
        let (others, left) = (end(7, OTHER, false), end(7, OTHER, true));
        let of_other_log = End { cluster: [8; 16], ..ours.clone() };
        for (what, known, has_data, end, forced, expected) in [
            ("a new server", None, false, &empty, false, plan(Orderly, false)),
            ("data get a bucket", None, true, &empty, false, plan(Orderly, true)),
            ("from nothing", None, false, &left, false, plan(Orderly, false)),
            (
                "its owner may live, which the claim finds",
                None,
                false,
                &others,
                false,
                plan(Orderly, false),
            ),
            ("its owner is dead", None, false, &others, true, plan(Force, false)),
            (
                "killed while it restored",
                known(LOG, None),
                false,
                &ours,
                false,
                plan(PredecessorDead, false),
            ),
            (
                "stopped in order",
                known(LOG, Some(7)),
                true,
                &released,
                false,
                plan(PredecessorDead, false),
            ),
            ("killed", known(LOG, None), true, &ours, false, plan(PredecessorDead, true)),
            (
                "killed behind the release",
                known(LOG, None),
                true,
                &released,
                false,
                plan(PredecessorDead, true),
            ),
            (
                "killed before it knew its log",
                known(NOTHING, None),
                true,
                &ours,
                false,
                plan(PredecessorDead, true),
            ),
            (
                "an old copy of the directory",
                known(LOG, Some(5)),
                true,
                &ours,
                false,
                Err(Refusal::Diverged),
            ),
            ("others have data", None, true, &left, true, Err(Refusal::Foreign)),
            ("never claimed", known(NOTHING, None), true, &left, false, Err(Refusal::Foreign)),
            (
                "another has claimed",
                known(LOG, Some(5)),
                true,
                &left,
                false,
                Err(Refusal::Diverged),
            ),
            (
                "and force does not help",
                known(LOG, None),
                true,
                &others,
                true,
                Err(Refusal::Diverged),
            ),
            ("another log", known(LOG, None), true, &of_other_log, true, Err(Refusal::OtherLog)),
            ("objects are gone", known(LOG, None), true, &empty, false, Err(Refusal::Gone)),
            ("and that is known", known(LOG, None), true, &empty, true, plan(Force, true)),
        ] {
            let (is_here, takes_over) = (true, false);
            let found = Found { known, has_data, end, is_forced: forced, is_here, takes_over };
            assert_eq!(decide(found), expected, "{what}");
            // The lock of a copy says nothing about the process that uses the original.
            let copied = decide(Found { is_here: false, ..found });
            let of_copy = |plan: Plan| match plan.right {
                PredecessorDead => Plan { right: Orderly, ..plan },
                _ => plan,
            };
            assert_eq!(copied, expected.map(of_copy), "{what}, copied");
        }
    }
}
