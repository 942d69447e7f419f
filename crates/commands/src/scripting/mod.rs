//! Scripts: the programs that clients have sent, and those that run at the moment.
//!
//! * `registry`: scripts, found by the SHA-1 of their source.
//! * `libraries`: libraries of functions, which are data of the keyspace, with their registered functions.
//! * `names`: scripts that are called by names, which the keyspace stores.
//! * `history`: history of a program's runs, for the start of the next one.
//! * `running`: programs that run for long. They can be killed, and their keys are locked.
//!
//! This module does not run scripts: `pipeline/program` does, within a guard, on a machine of the crate `lua`.

mod history;
mod libraries;
mod names;
mod registry;
mod running;

pub use self::history::History;
pub use self::libraries::{
    Code, Collision, Existing, KnownFunction, KnownLibrary, Libraries, LibraryHost,
};
pub use self::names::Names;
pub use self::registry::{Keep, KnownScript, Scripts};
pub use self::running::{ENDED_BY_SHUTDOWN, Ending, Held, Kind, NotKilled, Run, Running, Ticket};
