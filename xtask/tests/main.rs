//! The repository itself: what its crates depend on, what its documents name, which layer uses which.

mod dependencies;
mod documents;
mod layers;
