//! The command line. A child gets the arguments of its parent, and which phase it is.

use crate::phase::Phase;
use crate::shape::Shape;
use crate::store::Result;
use std::path::PathBuf;

pub const HELP: &str = "\
tierce-peers [--shape small|race] [--dir DIR] [--stores A,B,...] [--rounds N]
             [--records N] [--threads N] [--cold]

  --shape    small: 2,000,000 records, 16-byte keys, 100-byte values, 8 shards, compressed, 1 thread
             race: 960,000 records, 8-byte keys, 4096-byte values, uncompressed, 64 threads
  --dir      where the stores are made and removed again; default: the directory for temporary files
  --stores   default: all of cask-hash, cask-ordered, cask-by-key, rocksdb, fjall, redb, redb-batches,
             sled
  --rounds   the table shows medians of this many rounds; default 1
  --records, --threads   other numbers than the shape's
  --cold     drops the page cache before reading phases (needs root)
";

/// What the program is to do.
pub enum Mode {
    Help,
    Compare,
    /// Run one phase of one store and print what it took.
    Phase {
        store: String,
        phase: Phase,
    },
}

/// Everything from the command line.
pub struct Arguments {
    pub mode: Mode,
    pub shape: Shape,
    pub dir: PathBuf,
    pub stores: Vec<String>,
    pub rounds: usize,
    pub is_cold: bool,
}

impl Arguments {
    pub fn parse(mut words: impl Iterator<Item = String>) -> Result<Self> {
        let mut arguments = Arguments {
            mode: Mode::Compare,
            shape: Shape::small(),
            dir: std::env::temp_dir().join("tierce-peers"),
            stores: crate::stores::NAMES.iter().map(|name| (*name).to_owned()).collect(),
            rounds: 1,
            is_cold: false,
        };
        let (mut records, mut threads) = (None, None);
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or(format!("{word} needs a value"));
            match word.as_str() {
                "--help" | "-h" => arguments.mode = Mode::Help,
                "--cold" => arguments.is_cold = true,
                "--shape" => arguments.shape = Shape::named(&value()?)?,
                "--dir" => arguments.dir = value()?.into(),
                "--stores" => arguments.stores = value()?.split(',').map(str::to_owned).collect(),
                "--rounds" => arguments.rounds = value()?.parse::<usize>()?.max(1),
                "--records" => records = Some(value()?.parse::<u64>()?),
                "--threads" => threads = Some(value()?.parse::<u64>()?),
                "--phase" => {
                    let (store, phase) = (value()?, Phase::named(&value()?)?);
                    arguments.mode = Mode::Phase { store, phase };
                }
                _ => return Err(format!("unknown argument {word}; see --help").into()),
            }
        }
        arguments.shape.threads = threads.unwrap_or(arguments.shape.threads).max(1);
        arguments.shape.records = records.unwrap_or(arguments.shape.records).max(1);
        Ok(arguments)
    }
}
