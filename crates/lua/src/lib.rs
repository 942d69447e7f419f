//! Lua 5.1 as scripts and functions of Redis see it: sandboxed, limited and stoppable.
//!
//! A [`Machine`] runs scripts on one thread. A script reaches the outside only through its [`Host`], which runs
//! commands, and ends the script by a [`Stop`]. This crate knows no key and no command.
//!
//! * [`Script`] and [`Library`] are the code that runs; [`Flags`] are the flags of its first line.
//! * [`Outcome`] is the result: a reply, an error of the script, or a stop.
//!
//! ```
//! use tierce_lua::{Call, Host, LogLevel, Machine, NoSuchCommand, Outcome, Replication, Script, Server, Stop};
//! use tierce_wire::resp::Proto;
//!
//! /// Knows one command, which replies 42.
//! struct Answer;
//!
//! impl Host for Answer {
//!     fn call(&mut self, _: &[&[u8]], _: Proto, reply: &mut Vec<u8>) -> Result<(), Stop> {
//!         reply.extend_from_slice(b":42\r\n");
//!         Ok(())
//!     }
//!     fn look(&mut self) -> Result<(), Stop> {
//!         Err(Stop::TimeLimit) // asked by scripts that run long
//!     }
//!     fn log(&mut self, _: LogLevel, _: &[u8]) {}
//!     fn acl_check(&mut self, _: &[&[u8]]) -> Result<bool, NoSuchCommand> {
//!         Err(NoSuchCommand)
//!     }
//!     fn set_repl(&mut self, _: Replication) {}
//! }
//!
//! let mut machine = Machine::new(&Server { version: [7, 2, 0] });
//! let call = Call { keys: &[b"key"], args: &[], proto: Proto::Resp2 };
//! let mut reply = Vec::new();
//! let script = Script::parse(&b"return {redis.call('answer'), KEYS[1]}"[..])?;
//! let outcome = machine.run(&script, &call, &mut Answer, &mut reply);
//! assert_eq!(outcome, Outcome::Reply { is_error: false });
//! assert_eq!(reply, b"*2\r\n:42\r\n$3\r\nkey\r\n");
//!
//! let endless = Script::parse(&b"while true do pcall(error) end"[..])?;
//! assert_eq!(machine.run(&endless, &call, &mut Answer, &mut reply), Outcome::Stopped(Stop::TimeLimit));
//! # Ok::<(), String>(())
//! ```

#[doc(hidden)]
pub mod fuzzing;

mod api;
mod convert;
mod host;
mod libraries;
mod machine;
mod memory;
mod native;
mod number;
mod program;
mod random;
mod sandbox;
mod sha1;
mod shared;
mod shebang;
mod values;

pub use host::{Host, LogLevel, NoSuchCommand, Replication, Server, Stop};
pub use machine::{Failure, Machine, Outcome};
pub use memory::INSTRUCTIONS_PER_LOOK;
pub use program::{Call, Function, Library, LibraryId, Script};
pub use sha1::{Sha1, sha1};
pub use shebang::Flags;
