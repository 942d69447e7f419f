//! Scripts: what clients have sent to be run, and what of it runs at the moment.
//!
//! * `registry`: the scripts that are known by the SHA-1 of their source.
//! * `libraries`: the libraries of functions, which are data of the keyspace, with what they have registered.
//! * `names`: scripts that are called by names, which the keyspace keeps.
//! * `history`: what earlier runs of a program tell about the next one.
//! * `running`: programs that run for long, which can be killed, and keep others from their keys.
//!
//! Nothing here runs a script: `pipeline/program` does, within a guard, on a machine of the crate `lua`.

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
