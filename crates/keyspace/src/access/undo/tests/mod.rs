//! A rollback leaves no trace.
//!
//! `world` is a keyspace whose whole state can be compared; `act` does a random operation. `properties`: a rollback
//! restores everything; committed changes are as without an undo log; planted faults in the rollback are found.
//! `snapshots`: a running snapshot keeps its moment. `costs`: amount of kept data, and its limit.

mod act;
mod world;

mod costs;
mod properties;
mod snapshots;
