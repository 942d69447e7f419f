//! A fleet of primaries and replicas, also of replicas of replicas, in a simulation without clocks and sockets.
//!
//! The decisions are those of the crate: [`Identity`](tierce_replication::identity::Identity) says who may continue,
//! [`Backlog`](tierce_replication::backlog::Backlog) has the bytes, and [`Link`](tierce_replication::link::Link) reads
//! them. Around them is the least that a server adds (`server`): when it changes its name, its place and its backlog.
//!
//! * `truth`: the data that belong to each place of each stream.
//! * `server`: one server.
//! * `connection`: a connection between two, with the bytes on their way.
//! * `world`: all of them, and what happens to them.
//!
//! **What must hold**, after each step:
//! - The data of a server are exactly those of its place.
//! - No two histories have the same place.
//! - `CONTINUE` is given only where both histories agree.
//! - Once nothing fails any more, all servers get the same data.
//!
//! Each rule of a server can be left out ([`Fault`]); the simulation has to notice.

mod connection;
mod server;
mod truth;
mod world;

use tierce_harness::effort;

use self::world::{Seen, World};

/// A rule that is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A replica may continue from the previous name at any offset.
    PreviousNameHasNoEnd,
    /// Offsets alone decide, and not names.
    NamesAreNotCompared,
    /// A full copy leaves the backlog as it is.
    BacklogSurvivesCopies,
    /// A promoted replica keeps the name of its stream.
    PromotionKeepsName,
    /// A primary that has lost the end of its log keeps the name of its stream.
    LossKeepsName,
    /// A replica does not take over the name that comes with `CONTINUE`.
    NewNameIsIgnored,
    /// The place advances inside of a transaction.
    PlaceInsideTransactions,
    /// A replica passes on a transaction before it is complete.
    TransactionsPassedOnInPieces,
    /// Its replicas stay connected to a server that is promoted.
    ReplicasStayAtPromotion,
    /// They stay connected to a replica whose stream gets another name.
    ReplicasStayAtNewName,
    /// A full copy counts when it begins.
    CopyCountsBeforeItsEnd,
    /// After a power cut the place is that of data that were lost.
    PlaceOutlivesData,
    /// Empty lines are not counted.
    EmptyLinesDoNotCount,
    /// The database that is selected at the place of a full copy is not a part of it.
    CopyWithoutDatabase,
    /// A promoted replica takes for granted that the first database is selected.
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

/// Seeds in an ordinary test run.
const SEEDS: u64 = 500;

/// So many seeds at most until a fault is found.
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
