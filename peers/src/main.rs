//! Runs the same workloads on Cask and on other embeddable stores and prints a table.
//!
//! `tierce-peers --help` lists the arguments; `scripts/peers` builds this and installs RocksDB's
//! own load generator first. Every phase of every store runs in a process of its own
//! (`phase.rs`), so that memory and processor time are that store's alone, and rounds take turns
//! over the stores, so that a change of the machine's mood meets all of them.

mod arguments;
mod phase;
mod rocksdb;
mod shape;
mod store;
mod stores;
mod table;

use arguments::{Arguments, Mode};

fn main() {
    let result =
        Arguments::parse(std::env::args().skip(1)).and_then(|arguments| match &arguments.mode {
            Mode::Help => {
                print!("{}", arguments::HELP);
                Ok(())
            }
            Mode::Compare => table::compare(&arguments),
            Mode::Phase { store, phase } => phase::run(&arguments, store, *phase),
        });
    if let Err(error) = result {
        eprintln!("tierce-peers: {error}");
        std::process::exit(1);
    }
}
