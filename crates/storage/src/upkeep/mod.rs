//! Work on a closed store: verify and repair.

pub(crate) mod check;
pub(crate) mod repair;
