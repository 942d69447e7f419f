//! Tests of the repository itself: what its crates depend on, which layer uses which, how many files name a data type,
//! what its documents name, and that every test file and every script is run by something.

mod circles;
mod data_types;
mod dependencies;
mod documents;
mod layers;
mod methods;
mod suites;
