//! Random abuse of all protocols from many connections, while well-behaved clients verify their data.
//! `scripts/abuse-soak` does the same for minutes.

use tierce_harness::abuse::{self, Abuse, Extent};

use crate::launch;

/// Enough for each attack to happen on each port, in a few seconds.
const ATTACKS_EACH: usize = 60;

const ABUSERS: usize = 4;

#[test]
fn abuse_neither_disturbs_others_nor_leaves_memory_behind() {
    let abuse =
        Abuse { seed: 1, abusers: ABUSERS, parked_each: 12, extent: Extent::Attacks(ATTACKS_EACH) };
    let report = abuse::run(launch(), abuse);
    assert_eq!(
        report.attacks.values().sum::<usize>(),
        ABUSERS * (ATTACKS_EACH + ATTACKS_EACH / 10)
    );
    assert!(report.verified.values().all(|&replies| replies > 0), "{report:?}");
}
