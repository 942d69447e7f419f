//! All commands of the table, called without a connection.
//!
//! [`calls`] makes calls of a command from the syntax it declares, and others at random. [`bench`] runs
//! them: alone, and inside of a guard. `within` compares the two; `facts` looks for commands that are
//! not what they say they are.

mod bench;
mod calls;
mod facts;
mod within;
