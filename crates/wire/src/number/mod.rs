//! Numbers as Redis reads and prints them.
//!
//! Clients depend on the exact texts: what counts as an integer decides whether `INCR` works, and
//! a float comes back as the characters that were computed. So every function here follows Redis
//! 7.2, and says where it does not.

mod integer;

pub use integer::{parse_i64, parse_u64};
