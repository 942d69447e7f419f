//! Numbers as Redis reads and prints them.
//!
//! Clients depend on the exact texts: `INCR` works on canonical integers only, and a float is returned as the
//! computed characters. So every function here follows Redis 7.2 on x86-64, on any machine, and documents its
//! exceptions.
//!
//! | what | read | printed |
//! |---|---|---|
//! | integers | [`parse_i64`], [`parse_u64`]: canonical form only | `itoa` |
//! | doubles: scores, coordinates | [`parse_f64`] | [`format_f64`]: shortest digits |
//! | `INCRBYFLOAT` and its like | [`LongDouble::parse`] | [`LongDouble::to_text`]: 17 decimals |

mod big;
mod double;
mod integer;
mod long_double;
mod rounding;
mod spelling;

pub use double::{DoubleText, format_f64, parse_f64};
pub use integer::{parse_i64, parse_u64};
pub use long_double::LongDouble;
