//! All commands of the table, called without a connection.
//!
//! [`calls`] generates calls of a command from its declared syntax, and others at random. [`bench`] runs them: alone,
//! and inside a guard. `within` compares the two; `copies` and `long` are about long commands, `plans` about plans,
//! `programs` about scripts, `waiting` about clients that wait for keys, `admission` about admission; `facts` finds
//! commands that contradict their declarations.

mod added;
mod admission;
mod bench;
mod calls;
mod copies;
mod facts;
mod long;
mod plans;
mod programs;
mod undone;
mod waiting;
mod watched;
mod within;
