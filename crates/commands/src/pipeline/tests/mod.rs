//! All commands of the table, called without a connection.
//!
//! [`calls`] makes calls of a command from the syntax it declares, and others at random. [`bench`] runs
//! them: alone, and inside of a guard. `within` compares the two; `copies` and `long` are about long commands,
//! `plans` about what is known of a call before, `programs` about scripts, `waiting` about clients that wait for keys,
//! `gates` about what closes in front of a call; `facts` looks for commands that are not what they say they are.

mod added;
mod bench;
mod calls;
mod copies;
mod facts;
mod gates;
mod long;
mod plans;
mod programs;
mod undone;
mod waiting;
mod watched;
mod within;
