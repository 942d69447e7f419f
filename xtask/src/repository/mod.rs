//! Tests of the repository itself: dependencies of crates, layers, the number of files that name a data type, names
//! in documents and code, and that every test file and every script is run.

mod circles;
mod data_types;
mod dependencies;
mod documents;
mod glossary;
mod layers;
mod methods;
mod suites;
