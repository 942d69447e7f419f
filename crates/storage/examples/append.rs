//! Appends records of 40 bytes to a log, by one or several threads: `append DIR 1000000 2`. Under callgrind, the
//! difference between two numbers of records is the cost of their appends alone.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use tierce_storage::disk::OsDisk;
use tierce_storage::{Error, Wal, WalOptions};

fn main() -> Result<(), Error> {
    let mut arguments = std::env::args().skip(1);
    let dir = PathBuf::from(arguments.next().expect("a directory"));
    let mut number = || arguments.next().and_then(|text| text.parse::<u64>().ok());
    let (records, threads) = (number().unwrap_or(1_000_000), number().unwrap_or(1).max(1));
    let (log, _) = Wal::open_on(Arc::new(OsDisk), dir, WalOptions::default(), |_| Ok(()))?;
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            let append = |_| log.append(&[7; 40]).expect("appended");
            scope.spawn(move || (0..records / threads).for_each(append));
        }
    });
    let nanos = begun.elapsed().as_nanos() / u128::from(records.max(1));
    println!("{nanos} ns a record, {threads} threads");
    log.close()
}
