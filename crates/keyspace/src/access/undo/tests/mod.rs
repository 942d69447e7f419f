//! What was taken back is as if it had never been.
//!
//! `world` is a keyspace whose whole state can be compared, `act` does something at random. `properties`: a
//! rollback restores everything; what is not taken back is what it would have been without an undo log; faults
//! that are planted into the rollback are found. `snapshots`: one that is under way has its moment. `costs`: how
//! much is kept, and at which limit.

mod act;
mod world;

mod costs;
mod properties;
mod snapshots;
