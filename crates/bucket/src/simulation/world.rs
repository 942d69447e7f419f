//! The store of a simulation, its history, and the faults on the way to it.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use object_store::Error;
use tierce_harness::Random;
use tokio::time::Instant;

use super::server::Seen;
use crate::body::split_batches;
use crate::group::number_in;
use crate::payload::{Piece, blob_name, unpack};
use crate::record::{Encoding, Hash, Kind, Record, hash};

/// First record under a number in the log, whatever came later in its place.
pub(super) struct Landed {
    pub hash: Hash,
    pub entries: Vec<String>,
    pub record: Record,
    pub at: Instant,
}

/// Fate of a request.
pub(super) enum Fate {
    /// Arrives and is answered after these times.
    Fine { there: Duration, back: Duration },
    /// Is refused at once: 503 SlowDown.
    Throttled,
    /// Is carried out, perhaps much later, and is answered with an error before that.
    Unanswered { there: Duration, error_after: Duration },
    /// Is carried out twice; the first outcome is answered.
    Twice { there: Duration, again: Duration },
    /// Never arrives.
    Lost { error_after: Duration },
}

/// The store and its past.
pub(super) struct World {
    pub random: Random,
    pub objects: BTreeMap<String, Bytes>,
    pub log: BTreeMap<u64, Landed>,
    /// One of this many requests has a fault; 0: none.
    pub faults: usize,
    pub start: Instant,
    /// Upper bound of the latency of a request without a fault, in milliseconds.
    pub way: u64,
    /// True if owners mostly take snapshots and prune, and many readers come by.
    pub prunes: bool,
    /// Step of the wall clocks, in milliseconds.
    pub wall_step: u64,
    /// Entries that an owner was told are committed.
    pub acknowledged: Vec<(u64, String)>,
    /// Violated guarantees.
    pub violations: Vec<String>,
    pub tally: Tally,
    pub seen: Seen,
}

/// Counts of the events in a life, to see that the interesting ones happen.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Tally {
    pub appends: usize,
    pub deposed: usize,
    pub claims: usize,
    pub snapshots: usize,
    pub deletions: usize,
    pub restores: usize,
    pub crashes: usize,
    pub late: usize,
}

impl World {
    pub fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let faults = [0, 3, 5, 10, 30][random.below(5)];
        let way = [20, 20, 300][random.below(3)];
        let prunes = random.one_in(2);
        let wall_step = [1, 1000, 20_000][random.below(3)];
        Self {
            random,
            objects: BTreeMap::new(),
            log: BTreeMap::new(),
            faults,
            start: Instant::now(),
            way,
            prunes,
            wall_step,
            acknowledged: Vec::new(),
            violations: Vec::new(),
            tally: Tally::default(),
            seen: Seen::default(),
        }
    }

    pub fn fate(&mut self) -> Fate {
        let random = &mut self.random;
        let mut millis = |up_to: u64| Duration::from_millis(random.u64_below(up_to));
        let (there, back) = (millis(self.way), millis(self.way));
        if self.faults == 0 || !self.random.one_in(self.faults) {
            return Fate::Fine { there, back };
        }
        let random = &mut self.random;
        let late = [50, 500, 5_000, 60_000][random.below(4)];
        let late = Duration::from_millis(random.u64_below(late));
        let error_after = Duration::from_millis(random.u64_below(3000));
        match random.below(6) {
            0 => Fate::Throttled,
            1 => Fate::Lost { error_after },
            2 => Fate::Twice { there, again: late },
            3 => Fate::Fine { there: late, back },
            _ => Fate::Unanswered { there: late, error_after },
        }
    }

    pub fn violation(&mut self, what: String) {
        let at = self.start.elapsed();
        self.violations.push(format!("{at:?}: {what}"));
    }

    pub fn create(&mut self, path: &str, bytes: &Bytes) -> Result<(), Error> {
        if self.objects.contains_key(path) {
            let source = "412 Precondition Failed".into();
            return Err(Error::AlreadyExists { path: path.into(), source });
        }
        self.overwrite(path, bytes);
        Ok(())
    }

    pub fn overwrite(&mut self, path: &str, bytes: &Bytes) {
        self.objects.insert(path.into(), bytes.clone());
        let Some(number) = path.strip_prefix("log/").and(number_in(path)) else { return };
        if self.log.contains_key(&number) {
            // A late put that found the number free again.
            self.tally.late += 1;
            return;
        }
        let record = Record::decode(bytes, number, None).map_err(|error| error.to_string());
        match record.and_then(|record| {
            Ok((entries(&record, |name| self.objects.get(name).cloned())?, record))
        }) {
            Ok((entries, record)) => {
                let landed = Landed { hash: hash(bytes), entries, record, at: Instant::now() };
                self.log.insert(number, landed);
            }
            Err(error) => self.violation(format!("put {path}: {error}")),
        }
    }

    /// Returns the highest number that ever landed.
    pub fn last(&self) -> u64 {
        self.log.last_key_value().map_or(0, |(number, _)| *number)
    }

    /// Returns the state after a record, from the log: all entries in order.
    pub fn state(&self, position: u64) -> Vec<String> {
        self.log.range(..=position).flat_map(|(_, landed)| landed.entries.iter().cloned()).collect()
    }

    /// Checks that the log is one history: each record was written after the one that came first before it.
    pub fn check_history(&mut self) {
        let mut before = [0; 32];
        let mut broken = None;
        for (expected, (number, landed)) in (1..).zip(&self.log) {
            if *number != expected {
                broken = Some(format!("log/{expected} never was, and log/{number} is"));
                break;
            }
            if landed.record.header.before != before {
                broken = Some(format!("log/{number} was not written behind its predecessor"));
                break;
            }
            before = landed.hash;
        }
        if let Some(broken) = broken {
            self.violation(broken);
        }
    }
}

/// Returns the entries of a record that lands: its pieces are there.
pub(super) fn entries(
    record: &Record,
    piece: impl Fn(&str) -> Option<Bytes>,
) -> Result<Vec<String>, String> {
    let header = &record.header;
    if header.kind != Kind::Batch {
        return Ok(Vec::new());
    }
    let payload = match header.encoding {
        Encoding::Pieces => {
            let pieces = Piece::decode_all(&record.stored).ok_or("pieces")?;
            let mut payload = Vec::new();
            for (index, described) in pieces.iter().enumerate() {
                let name = blob_name(header.number, header.nonce, index);
                let stored = piece(&name).ok_or(format!("{name} is not there"))?;
                payload.extend_from_slice(&unpack(described.encoding, &stored, described.len)?);
            }
            payload.into()
        }
        encoding => unpack(encoding, &record.stored, header.len)?,
    };
    let batches = split_batches(header.number, &payload).map_err(|error| error.to_string())?;
    Ok(batches.iter().map(|batch| String::from_utf8_lossy(batch).into_owned()).collect())
}

impl Tally {
    fn counts(&mut self) -> [&mut usize; 8] {
        let Self { appends, deposed, claims, snapshots, deletions, restores, crashes, late } = self;
        [appends, deposed, claims, snapshots, deletions, restores, crashes, late]
    }

    pub fn add(&mut self, other: &Self) {
        let mut other = *other;
        for (sum, count) in self.counts().into_iter().zip(other.counts()) {
            *sum += *count;
        }
    }

    /// Returns the count of the rarest event, except for late puts, which are rare.
    pub fn rarest(mut self) -> usize {
        self.late = usize::MAX;
        self.counts().into_iter().map(|count| *count).min().unwrap_or_default()
    }
}
