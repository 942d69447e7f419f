//! The stages that a request passes, each written once for all callers.
//!
//! So far: [`Attempt`], the run of a request on a thread that is no worker, and its account.

mod attempt;

pub use self::attempt::{Attempt, Late, Ready};
