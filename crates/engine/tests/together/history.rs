//! Histories: lists of steps derived from a seed.
//!
//! A step is described completely by small numbers and refers to no other step. So any steps can be
//! left out of a history, and it stays valid.

use tierce_keyspace::CodeKind;

use crate::together::model::{Stream, Value};

/// Number of an element, a member, a field, a group or a text.
pub type Number = u16;

/// A database and a key.
pub type DbKey = (usize, u8);

pub const DATABASES: usize = 3;
pub const KEYS: u8 = 6;

/// Elements with consecutive numbers: the first, and their count.
pub type Range = (Number, u8);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Front,
    Back,
}

/// Effect of one command on one key.
#[derive(Clone, Debug)]
pub enum Edit {
    Set { number: Number, ttl: Option<i64> },
    Store { number: Number, ttl: Option<i64>, flags: u32 },
    MarkStale,
    Append(Number),
    SetRange { offset: u8, number: Number },
    Increment(i64),
    Push(End, Range),
    Insert { at: u8, range: Range },
    SetElement { at: u8, number: Number },
    RemoveElements { at: u8, count: u8 },
    Add(Range),
    Discard(Range),
    Score(Range, i64),
    Unscore(Range),
    SetFields { range: Range, number: Number, ttl: Option<i64> },
    ExpireFields { range: Range, ttl: Option<i64> },
    DropFields(Range),
    AddEntries { count: u8, number: Number },
    AddMessage { producer: Number, number: Number },
    DeleteEntry(u8),
    TrimEntries(u8),
    MakeGroup(Number),
    DropGroup(Number),
    Deliver { group: Number, consumer: Number, count: u8 },
    Acknowledge { group: Number, nth: u8 },
    DropConsumer { group: Number, consumer: Number },
    Expire(Option<i64>),
    Delete,
}

impl Edit {
    /// Returns the value that the edit creates for a missing key.
    pub fn creates(&self) -> Option<Value> {
        match self {
            Self::Append(_) | Self::SetRange { .. } => Some(Value::Text(String::new())),
            Self::Increment(_) => Some(Value::Text("0".to_owned())),
            Self::Push(..) => Some(Value::List(Vec::new())),
            Self::Add(_) => Some(Value::Set(Default::default())),
            Self::Score(..) => Some(Value::SortedSet(Default::default())),
            Self::SetFields { .. } => Some(Value::Hash(Default::default())),
            Self::AddEntries { .. } | Self::AddMessage { .. } => {
                Some(Value::Stream(Stream::default()))
            }
            _ => None,
        }
    }
}

/// Effect of one command, as one change.
#[derive(Clone, Debug)]
pub enum Write {
    Key(DbKey, Edit),
    /// RENAME, MOVE and COPY with REPLACE.
    Transfer {
        from: DbKey,
        to: DbKey,
        is_copy: bool,
    },
    /// SUNIONSTORE.
    Union {
        from: [DbKey; 2],
        to: DbKey,
    },
    /// MSET.
    Both([DbKey; 2], Number),
    Flush(usize),
    Swap(usize, usize),
    /// FUNCTION LOAD and DELETE, or their equivalents for a named script.
    Code {
        kind: CodeKind,
        name: u8,
        source: Option<Number>,
    },
}

impl Write {
    /// Returns the keys that it names.
    pub fn places(&self) -> Vec<DbKey> {
        match self {
            Self::Key(place, _) => vec![*place],
            Self::Transfer { from, to, .. } => vec![*from, *to],
            Self::Union { from, to } => vec![from[0], from[1], *to],
            Self::Both(places, _) => places.to_vec(),
            Self::Flush(_) | Self::Swap(..) | Self::Code { .. } => Vec::new(),
        }
    }
}

/// Kind of a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    Kill,
    PowerCut,
}

/// Failure of a call of the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    Write,
    Sync,
    SyncDir,
    Open,
    /// EMFILE.
    NoDescriptor,
    Rename,
    Remove,
    Read,
}

#[derive(Clone, Debug)]
pub enum Step {
    Write(Write),
    Read(DbKey),
    /// Time passes.
    Wait(i64),
    /// The reaper runs.
    Expire,
    Evict,
    /// The log is synced.
    Sync,
    /// A compaction of the log is requested.
    Compact,
    /// The WAL manager does so many steps.
    Keep(u8),
    SwitchLog(bool),
    /// Cold values are copied into a batch.
    Gather(u8),
    /// The batch is written, and its values are dropped from memory.
    Spill,
    /// Values in sparse segments are moved together.
    Clean,
    /// Segments without live values are removed.
    RemoveDead,
    BeginSnapshot {
        slices: bool,
    },
    /// The snapshot continues by some pieces. Other writes come between the slices of a large one.
    Save {
        pieces: u8,
        between: Vec<Write>,
    },
    /// A call of the disk fails, after so many of its kind.
    Fault(Fault, u8),
    /// The disk has so many bytes left, or plenty again.
    Space(Option<u16>),
    /// The process crashes after so many calls of the disk.
    Crash(Crash, u16),
    /// The process shuts down and restarts.
    Restart,
}

pub fn text(number: Number) -> String {
    let n = number % 1000;
    match number % 9 {
        0..=2 => n.to_string(),
        3..=5 => format!("t{n}"),
        6 | 7 => format!("{n:-<100}"),
        _ if number.is_multiple_of(31) => format!("{n:=<17000}"),
        _ => format!("{n:+<700}"),
    }
}

pub fn element(number: Number) -> String {
    match number % 3 {
        0 => number.to_string(),
        1 => format!("m{number}"),
        _ => format!("a longer one with the number {number}"),
    }
}

pub fn element_range((from, count): Range) -> impl Iterator<Item = String> + Clone {
    (from..from + Number::from(count)).map(element)
}

/// Random choices of a history.
pub struct Random(tierce_harness::Random);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(tierce_harness::Random::new(seed))
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.0.u64_below(bound)
    }

    fn one_in(&mut self, bound: u64) -> bool {
        self.below(bound) == 0
    }

    fn number(&mut self) -> Number {
        self.below(500) as Number
    }

    fn small(&mut self, bound: u64) -> u8 {
        self.below(bound) as u8
    }

    fn place(&mut self) -> DbKey {
        // Most steps use the same database.
        let db = if self.one_in(3) { self.below(DATABASES as u64) as usize } else { 0 };
        (db, self.small(KEYS.into()))
    }

    /// Returns elements that often repeat earlier ones.
    fn range(&mut self) -> Range {
        let count = if self.one_in(3) { 10 + self.small(20) } else { 1 + self.small(3) };
        (self.below(30) as Number, count)
    }

    fn ttl(&mut self) -> i64 {
        1 + self.below(40) as i64
    }

    fn some_ttl(&mut self, one_in: u64) -> Option<i64> {
        self.one_in(one_in).then(|| self.ttl())
    }

    fn edit(&mut self, key: u8) -> Edit {
        // Usually each key keeps its type, so that values live long.
        let kind = if self.one_in(12) { self.small(KEYS.into()) } else { key };
        match (kind, self.below(16)) {
            (_, 0 | 1) => Edit::Expire(Some(self.ttl())),
            (_, 2) if self.one_in(2) => Edit::Expire(None),
            (_, 2) if self.one_in(2) => Edit::Delete,
            (0, roll) => self.text_edit(roll),
            (1, roll) => self.list_edit(roll),
            (2, roll) if roll < 12 => Edit::Add(self.range()),
            (2, _) => Edit::Discard(self.range()),
            (3, roll) if roll < 12 => Edit::Score(self.range(), self.below(9) as i64 - 4),
            (3, _) => Edit::Unscore(self.range()),
            (4, roll) => self.hash_edit(roll),
            (_, roll) => self.stream_edit(roll),
        }
    }

    fn text_edit(&mut self, roll: u64) -> Edit {
        let number = self.number();
        match roll {
            0..=5 => Edit::Set { number, ttl: self.some_ttl(4) },
            6..=8 => Edit::Append(number),
            9 | 10 => Edit::SetRange { offset: self.small(200), number },
            11 | 12 => Edit::Increment(self.below(9) as i64 - 4),
            13 => Edit::MarkStale,
            _ => {
                let flags = self.below(3) as u32 * 7;
                Edit::Store { number, ttl: self.some_ttl(4), flags }
            }
        }
    }

    fn list_edit(&mut self, roll: u64) -> Edit {
        let at = self.small(40);
        match roll {
            0..=6 => Edit::Push(End::Back, self.range()),
            7 | 8 => Edit::Push(End::Front, self.range()),
            9 | 10 => Edit::Insert { at, range: self.range() },
            11 | 12 => Edit::SetElement { at, number: self.number() },
            _ => Edit::RemoveElements { at, count: 1 + self.small(12) },
        }
    }

    fn hash_edit(&mut self, roll: u64) -> Edit {
        let range = self.range();
        match roll {
            0..=8 => Edit::SetFields { range, number: self.number(), ttl: self.some_ttl(3) },
            9..=11 => Edit::ExpireFields { range, ttl: self.some_ttl(1) },
            12 => Edit::ExpireFields { range, ttl: None },
            _ => Edit::DropFields(range),
        }
    }

    fn stream_edit(&mut self, roll: u64) -> Edit {
        let (group, consumer) = (self.below(2) as Number, self.below(3) as Number);
        match roll {
            0 => Edit::AddMessage { producer: group, number: self.below(8) as Number },
            1..=5 => Edit::AddEntries { count: 1 + self.small(12), number: self.number() },
            6 => Edit::DeleteEntry(self.small(12)),
            7 => Edit::TrimEntries(self.small(12)),
            8 => Edit::MakeGroup(group),
            9 if self.one_in(4) => Edit::DropGroup(group),
            9..=12 => Edit::Deliver { group, consumer, count: 1 + self.small(8) },
            13 | 14 => Edit::Acknowledge { group, nth: self.small(8) },
            _ => Edit::DropConsumer { group, consumer },
        }
    }

    fn write(&mut self) -> Write {
        let (place, other) = (self.place(), self.place());
        match self.below(40) {
            0 | 1 => Write::Transfer { from: place, to: other, is_copy: false },
            2 | 3 => Write::Transfer { from: place, to: other, is_copy: true },
            4 => Write::Union { from: [(place.0, 2), (other.0, 2)], to: other },
            5 => Write::Both([place, other], self.number()),
            6 => Write::Flush(self.below(DATABASES as u64) as usize),
            7 if self.one_in(2) => Write::Swap(place.0, other.0),
            8 => Write::Code {
                kind: CodeKind::ALL[self.below(2) as usize],
                name: self.small(3),
                source: (!self.one_in(3)).then(|| self.number()),
            },
            _ => Write::Key(place, self.edit(place.1)),
        }
    }

    fn fault(&mut self) -> Fault {
        use Fault::{NoDescriptor, Open, Read, Remove, Rename, Sync, SyncDir, Write};
        let all = [Write, Sync, SyncDir, Open, NoDescriptor, Rename, Remove, Read];
        all[self.below(all.len() as u64) as usize]
    }

    fn save(&mut self) -> Step {
        let between = (0..3).map(|_| self.write()).collect();
        Step::Save { pieces: 1 + self.small(3), between }
    }

    /// Returns a step other than a write.
    fn other(&mut self, has_faults: bool) -> Step {
        match self.below(if has_faults { 66 } else { 60 }) {
            0..=8 => Step::Wait(1 + self.below(30) as i64),
            9..=11 => Step::Expire,
            12 => Step::Evict,
            13 | 14 => Step::Sync,
            15..=18 => Step::Compact,
            19..=38 => Step::Keep(1 + self.small(4)),
            39 => Step::SwitchLog(self.one_in(2)),
            40 => Step::SwitchLog(true),
            41..=44 => Step::Gather(1 + self.small(4)),
            45..=47 => Step::Spill,
            48 => Step::Clean,
            49 => Step::RemoveDead,
            50 | 51 => Step::BeginSnapshot { slices: self.one_in(2) },
            52..=55 => self.save(),
            56 => Step::Read(self.place()),
            57 => Step::Crash(Crash::Kill, self.below(25) as u16),
            58 if self.one_in(3) => Step::Restart,
            58 | 59 => Step::Crash(Crash::PowerCut, self.below(25) as u16),
            60 | 61 => Step::Fault(self.fault(), self.small(6)),
            62 => Step::Space(Some(self.below(3000) as u16)),
            _ => Step::Space(None),
        }
    }
}

/// Returns the history of a seed. Every other one is on a disk that never fails.
pub fn draw(seed: u64) -> Vec<Step> {
    let mut random = Random::new(seed);
    let has_faults = seed % 2 == 1;
    let steps = 30 + random.below(90);
    let step = |_| match random.below(2) {
        0 => Step::Write(random.write()),
        _ => random.other(has_faults),
    };
    (0..steps).map(step).collect()
}
