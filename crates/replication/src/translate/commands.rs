//! Commands as RESP, one behind the other.

use tierce_wire::resp::{Encoder, Proto};

/// Appends commands, and counts them.
#[derive(Debug)]
pub(super) struct Commands<'a> {
    out: &'a mut Vec<u8>,
    /// The database of the last `SELECT`, which the caller keeps.
    db: &'a mut Option<u64>,
    count: usize,
}

impl<'a> Commands<'a> {
    pub(super) fn new(out: &'a mut Vec<u8>, db: &'a mut Option<u64>) -> Self {
        Self { out, db, count: 0 }
    }

    /// Commands so far, without `SELECT`.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// What follows is of this database.
    pub(super) fn select(&mut self, db: u64) {
        if *self.db != Some(db) {
            *self.db = Some(db);
            write(self.out, &[b"SELECT", itoa(db).as_bytes()]);
        }
    }

    /// Appends a command.
    pub(super) fn push(&mut self, args: &[&[u8]]) {
        self.count += 1;
        write(self.out, args);
    }
}

/// Appends a command.
pub(super) fn write(out: &mut Vec<u8>, args: &[&[u8]]) {
    let mut encoder = Encoder::new(out, Proto::Resp2);
    encoder.array(args.len());
    args.iter().for_each(|arg| encoder.bulk(arg));
}

fn itoa(number: u64) -> String {
    number.to_string()
}
