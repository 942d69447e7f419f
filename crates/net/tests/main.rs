//! Event loops, over real sockets.
//!
//! One program for all files: linking one for each would take longer than running them.

mod descriptors;
mod hang_up;
mod held_output;
mod listeners;
mod messages;
mod requests;
mod slow_readers;
mod suspended;

mod support;
