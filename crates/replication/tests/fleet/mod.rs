//! Simulates a fleet of primaries and replicas, including replicas of replicas, without clocks and sockets.
//!
//! The decisions are those of the crate: [`Identity`](tierce_replication::identity::Identity) decides which replica
//! may continue, [`Backlog`](tierce_replication::backlog::Backlog) has the bytes, and
//! [`Link`](tierce_replication::link::Link) reads them. `server` adds the minimal logic around them: when it
//! changes its id, its position and its backlog.
//!
//! * `truth`: the data that belong to each position in each stream.
//! * `server`: one server.
//! * `connection`: a connection between two servers, with the bytes in flight.
//! * `world`: all servers and connections, and the events.
//!
//! **Guarantees** after each step:
//! - The data of a server are exactly those of its position.
//! - No two histories share a position.
//! - `CONTINUE` is given only if both histories agree.
//! - Once nothing fails any more, all servers get the same data.
//!
//! Each rule of a server can be omitted ([`Fault`]); the simulation must detect that.

mod connection;
mod server;
mod truth;
mod world;

use tierce_harness::effort;

use self::world::{Seen, World};

/// Omitted rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A replica may continue from the previous id at any offset.
    PreviousNameHasNoEnd,
    /// Only offsets are compared, not ids.
    NamesAreNotCompared,
    /// A full copy does not change the backlog.
    BacklogSurvivesCopies,
    /// A promoted replica keeps the id of its stream.
    PromotionKeepsName,
    /// A primary that lost the end of its log keeps the id of its stream.
    LossKeepsName,
    /// A replica does not take over the id that comes with `CONTINUE`.
    NewNameIsIgnored,
    /// The position advances inside a transaction.
    PlaceInsideTransactions,
    /// A replica passes on an incomplete transaction.
    TransactionsPassedOnInPieces,
    /// The replicas of a server stay connected when it is promoted.
    ReplicasStayAtPromotion,
    /// The replicas of a replica stay connected when its stream gets another id.
    ReplicasStayAtNewName,
    /// A full copy takes effect when it begins.
    CopyCountsBeforeItsEnd,
    /// After a power cut the position is that of lost data.
    PlaceOutlivesData,
    /// Empty lines are not counted.
    EmptyLinesDoNotCount,
    /// A full copy does not contain the selected database.
    CopyWithoutDatabase,
    /// A promoted replica assumes that the first database is selected.
    PromotionSelectsNothing,
    /// The stream behind a copy begins later than the copy.
    StreamBeginsLate,
}

const FAULTS: [Fault; 16] = [
    Fault::PreviousNameHasNoEnd,
    Fault::NamesAreNotCompared,
    Fault::BacklogSurvivesCopies,
    Fault::PromotionKeepsName,
    Fault::LossKeepsName,
    Fault::NewNameIsIgnored,
    Fault::PlaceInsideTransactions,
    Fault::TransactionsPassedOnInPieces,
    Fault::ReplicasStayAtPromotion,
    Fault::ReplicasStayAtNewName,
    Fault::CopyCountsBeforeItsEnd,
    Fault::PlaceOutlivesData,
    Fault::EmptyLinesDoNotCount,
    Fault::CopyWithoutDatabase,
    Fault::PromotionSelectsNothing,
    Fault::StreamBeginsLate,
];

/// Number of seeds in an ordinary test run.
const SEEDS: u64 = 500;

/// Upper bound of seeds until a fault is found.
const SEEDS_OF_FAULT: u64 = 2_000;

#[test]
fn data_are_those_of_their_place_whatever_fails() {
    let mut seen = Seen::default();
    for seed in 0..effort(SEEDS) {
        let run = World::new(seed, None).run();
        match run {
            Ok(of_seed) => seen.add(&of_seed),
            Err(violation) => panic!("seed {seed}: {violation}"),
        }
    }
    println!("{seen:?}");
    assert!(seen.is_complete(), "something never happens: {seen:?}");
}

#[test]
fn each_rule_that_is_left_out_is_noticed() {
    let mut missed = Vec::new();
    for fault in FAULTS {
        let found = (0..SEEDS_OF_FAULT).find_map(|seed| {
            let violation = World::new(seed, Some(fault)).run().err()?;
            Some((seed, violation))
        });
        match found {
            Some((seed, violation)) => println!("{fault:?}: seed {seed}: {violation}"),
            None => missed.push(fault),
        }
    }
    assert_eq!(missed, []);
}
