//! A change has one outcome for each way in which it reaches a copy of the data before it: by replay of its records, or
//! by execution of their commands for a replica. If it is undone, the data are as before.
//!
//! Each command of a random history is such a change, and each transaction. Each copy has reached the data in its own
//! way and is compared after each change, so that the last change has caused any difference. `together` of `engine`
//! tests values on disk and checkpoints; the tests of `keyspace` test counters, versions and events.

use std::iter;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use tierce_collections::{ListLimits, PackedLimits, SetLimits, StreamLimits};
use tierce_harness::effort;
use tierce_keyspace::log::{LiveReplay, Replay, Sizes};
use tierce_keyspace::planted::{self, Fault};
use tierce_keyspace::{DbIndex, Keyspace, Limits, Marks, Options, STREAM_NAME_LEN, StreamPosition};
use tierce_replication::note;
use tierce_replication::translate::Dialect;

use super::data::{Data, Sameness};
use super::history::History;
use super::sides::{Clock, Command, Primary, Side, Store, shown};

/// Changes of a history.
const CHANGES: usize = 150;

/// Data, and copies of it that get its changes in different ways.
struct World {
    primary: Primary,
    data: Data,
    /// All records so far.
    records: Vec<Vec<u8>>,
    replayed: Arc<Keyspace>,
    live: LiveReplay,
    translated: Store,
}

/// A way that a change takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Way {
    TakenBack,
    Replayed,
    Translated,
    /// With all earlier changes, as at the start of a server.
    ReplayedFromTheBeginning,
}

/// The way with a different outcome, and the difference.
type Failure = (Way, String);

impl World {
    fn new(piece_len: usize) -> Self {
        let log_sizes = Sizes { piece_len, large_bytes_min: 200, ..Sizes::default() };
        let options = Options { log_sizes, ..few(4) };
        let primary = Primary::new(Dialect::Tierce, options, Clock::Behind);
        primary.store.keyspace().set_limits(&small_limits());
        let data = Data::of(primary.store.keyspace());
        let replayed = Arc::new(Keyspace::new(few(2)).expect("sound options"));
        replayed.set_following(true);
        let (live, translated) = (LiveReplay::default(), Store::replica(few(8)));
        Self { primary, data, records: Vec::new(), replayed, live, translated }
    }

    /// Undoes a change, makes it again, and updates the copies.
    fn make(&mut self, change: &Change) -> Result<(), Failure> {
        let store = &mut self.primary.store;
        if let Change::Commands(commands) = change {
            store.call_and_take_back(commands);
            let found = Data::of(store.keyspace());
            self.compare(Way::TakenBack, &self.data, &found, Sameness::Full)?;
        }
        let taken_back = self.primary.records();
        if !taken_back.is_empty() {
            return Err((Way::TakenBack, format!("it has left records: {}", shown(&taken_back))));
        }
        match change {
            Change::Commands(commands) => commands.iter().for_each(|command| {
                self.primary.store.call(command);
            }),
            Change::Note(command) => _ = self.primary.store.apply(command),
        }
        self.primary.remove_expired();
        let records = self.primary.records();
        let after = Data::of(self.primary.store.keyspace());
        self.replay(&records, &after)?;
        self.translate(&records, &after)?;
        self.records.extend(records);
        self.data = after;
        Ok(())
    }

    fn compare(
        &self,
        way: Way,
        expected: &Data,
        found: &Data,
        up_to: Sameness,
    ) -> Result<(), Failure> {
        let Some(difference) = expected.difference(found, up_to) else { return Ok(()) };
        Err((way, format!("{difference}\nBefore it was\n{}", self.data.shown(&difference))))
    }

    /// Replays records like a follower that has the data before.
    fn replay(&mut self, records: &[Vec<u8>], after: &Data) -> Result<(), Failure> {
        if !records.is_empty() {
            let offset = self.records.len() as u64;
            let position =
                StreamPosition { stream: [b'o'; STREAM_NAME_LEN], offset, db: DbIndex::ZERO };
            let mut locks = self.replayed.locks();
            let now_ms = self.primary.store.now_ms;
            let applied = self.live.apply(&mut locks, records, position, now_ms);
            applied.map_err(|error| (Way::Replayed, error.to_string()))?;
            if !self.live.is_between_batches() {
                return Err((Way::Replayed, "its last record is missing".into()));
            }
        }
        self.compare(Way::Replayed, after, &Data::of(&self.replayed), Sameness::Log)
    }

    fn translate(&mut self, records: &[Vec<u8>], after: &Data) -> Result<(), Failure> {
        let (stream, lines) = self.primary.translate(records);
        self.translated.feed(&stream, self.primary.store.now_ms);
        let found = Data::of(self.translated.keyspace());
        let compared = self.compare(Way::Translated, after, &found, Sameness::Replica);
        compared
            .map_err(|(way, text)| (way, format!("{text}\nThe commands are\n{}", lines.join("\n"))))
    }

    /// Replays all changes on an empty keyspace.
    fn replay_all(&self) -> Result<(), Failure> {
        let keyspace = Arc::new(Keyspace::new(few(1)).expect("sound options"));
        let replay = Replay::start(Arc::clone(&keyspace), 1, self.primary.store.now_ms);
        let mut replay = replay.expect("a thread starts");
        let replayed = self.records.iter().try_for_each(|record| replay.record(record));
        let way = Way::ReplayedFromTheBeginning;
        replayed.and_then(|()| replay.finish()).map_err(|error| (way, error.to_string()))?;
        self.compare(way, &self.data, &Data::of(&keyspace), Sameness::Log)
    }
}

/// An atomic change.
enum Change {
    Commands(Vec<Command>),
    /// A note of the primary's primary on an item of memcached.
    Note(Command),
}

impl Change {
    fn draw(history: &mut History) -> Self {
        if !history.random.one_in(25) {
            return Self::Commands(history.next());
        }
        let (key, random) = (history.string_key(), &mut history.random);
        let marks = Marks { stale: random.one_in(2), won: random.one_in(2), fetched: false };
        let flags = random.one_in(2).then(|| random.below(1000) as u32);
        let number = note::encode(flags, marks).to_string().into_bytes();
        Self::Note(vec![b"SETRANGE".to_vec(), key, number, Vec::new()])
    }

    fn shown(&self) -> String {
        match self {
            Self::Commands(commands) => {
                let lines: Vec<_> = commands.iter().map(|command| shown(command)).collect();
                lines.join("\n")
            }
            Self::Note(command) => shown(command),
        }
    }
}

/// Few shards, so that a scan of all takes no time.
fn few(shards: usize) -> Options {
    Options { shards, databases: 2, ..Options::default() }
}

/// Low limits, so that small histories have large values.
fn small_limits() -> Limits {
    let packed = PackedLimits { entries_max: 4, value_len_max: 150 };
    Limits {
        list: ListLimits { entries_max: 4, bytes_max: 400 },
        set: SetLimits { integers_max: 4, packed },
        sorted_set: packed,
        hash: packed,
        stream: StreamLimits { node_bytes_max: 400, node_entries_max: 4 },
    }
}

/// Runs a history up to the first change that fails, and returns its number with the failure.
fn run(seed: u64, changes: usize) -> Result<(), (usize, Failure)> {
    let mut history = History::dense(seed);
    let mut world = World::new(1 << (5 + history.random.below(16)));
    for number in 0..changes {
        if history.random.one_in(20) {
            world.primary.store.now_ms += [1, 1000, 5000][history.random.below(3)];
        }
        let change = Change::draw(&mut history);
        world
            .make(&change)
            .map_err(|(way, text)| (number, (way, change.shown() + "\n" + &text)))?;
    }
    world.replay_all().map_err(|failure| (changes, failure))
}

#[test]
fn a_change_replayed_translated_and_taken_back_has_one_outcome() {
    for seed in 0..effort(5) {
        if let Err((number, (way, text))) = run(seed, CHANGES) {
            panic!("seed {seed}, change {number} has another outcome when {way:?}:\n{text}");
        }
    }
}

/// Changes in this order.
fn make_all(lines: &[&str]) -> Result<(), Failure> {
    let mut world = World::new(1 << 20);
    lines.iter().try_for_each(|line| world.make(&Change::Commands(vec![words(line)])))
}

fn words(line: &str) -> Command {
    line.split(' ').map(|word| word.into()).collect()
}

/// The commands for a replica removed the element before they added it again, so the list was gone in between.
#[test]
fn a_list_of_one_element_that_is_rotated_keeps_its_deadline() {
    for ends in ["LEFT RIGHT", "LEFT LEFT", "RIGHT LEFT", "RIGHT RIGHT"] {
        let rotate = format!("LMOVE l l {ends}");
        let outcome = make_all(&["RPUSH l a", "PEXPIRE l 1000", &rotate, "RPUSH l b", &rotate]);
        assert_eq!(outcome, Ok(()), "{ends}");
    }
}

/// No command leaves a deleted entry without a consumer.
#[test]
fn a_deleted_entry_that_is_given_back_is_acknowledged() {
    let read = "XREADGROUP GROUP g c STREAMS s >";
    let begin = ["XADD s 1-1 a 1", "XADD s 1-2 a 1", "XGROUP CREATE s g 0", read, "XDEL s 1-1"];
    for give_back in
        ["FAIL IDS 2 1-1 1-2", "SILENT IDS 1 1-1 FORCE", "FATAL IDS 1 1-1 RETRYCOUNT 2"]
    {
        let give_back = format!("XNACK s g {give_back}");
        let outcome = make_all(&[&begin[..], &[&give_back, "XDEL s 1-2", &give_back]].concat());
        assert_eq!(outcome, Ok(()), "{give_back}");
    }
}

/// A replica would take the claim of a client for that of its primary.
#[test]
fn a_client_without_a_name_that_claims_gives_nothing_back() {
    let mut world = World::new(1 << 20);
    for line in ["XADD s 1-1 a 1", "XGROUP CREATE s g 0", "XREADGROUP GROUP g c STREAMS s >"] {
        assert_eq!(world.make(&Change::Commands(vec![words(line)])), Ok(()), "{line}");
    }
    for time in ["TIME 0", "TIME 1", "IDLE 5"] {
        let line = format!("XCLAIM s g  0 1-1 {time} JUSTID");
        assert_eq!(world.make(&Change::Commands(vec![words(&line)])), Ok(()), "{line}");
        let consumer = world.primary.store.call(&words("XPENDING s g - + 10 "));
        assert_eq!(consumer.items().len(), 1, "{line}");
    }
}

/// The copy is large here and small on a replica, where negative zero became zero.
#[test]
fn a_score_of_negative_zero_stays_one_in_a_small_copy_of_a_large_set() {
    let outcome = make_all(&[
        "ZADD z 1 a 2 b 3 c 4 d 5 e 6 f",
        "ZREMRANGEBYRANK z 1 -1",
        "COPY z copy",
        "ZADD copy -0.0 x",
    ]);
    assert_eq!(outcome, Ok(()));
}

/// Faults, the way on which changes fail by them, and the last known seed of a history that finds them.
const FAULTS: &[(Fault, Way, u64)] = &[
    (Fault::UndoOfNewKeys, Way::TakenBack, 2),
    (Fault::UndoOfEntries, Way::TakenBack, 15),
    (Fault::UndoOfValues, Way::TakenBack, 59),
    (Fault::UndoOfShells, Way::TakenBack, 34),
    (Fault::UndoOfBytes, Way::TakenBack, 0),
    (Fault::UndoOfLists, Way::TakenBack, 6),
    (Fault::UndoOfSets, Way::TakenBack, 3),
    (Fault::UndoOfSortedSets, Way::TakenBack, 0),
    (Fault::UndoOfHashes, Way::TakenBack, 1),
    (Fault::UndoOfStreams, Way::TakenBack, 20),
    (Fault::UndoOfMoves, Way::TakenBack, 54),
    (Fault::UndoOfFlushes, Way::TakenBack, 23),
    (Fault::UndoOfSwaps, Way::TakenBack, 24),
    (Fault::UndoOfCode, Way::TakenBack, 6),
    (Fault::UndoOfRecords, Way::TakenBack, 2),
    (Fault::ExpiryIsNotLogged, Way::Replayed, 34),
    (Fault::LongRecordsAreDropped, Way::Replayed, 6),
    (Fault::TranslationOfDeadlines, Way::Translated, 3),
    (Fault::TranslationOfFieldDeadlines, Way::Translated, 1),
    (Fault::TranslationOfHeads, Way::Translated, 0),
    (Fault::TranslationOfFlushes, Way::Translated, 2),
    (Fault::TranslationOfPending, Way::Translated, 22),
    (Fault::TranslationOfNotes, Way::Translated, 0),
];

/// Returns true if a change fails with the fault in the code and does not fail without it.
fn is_found(fault: Fault, expected: Way, seed: u64) -> bool {
    planted::plant(Some(fault));
    // Replicas that cannot execute a command panic.
    let outcome = catch_unwind(AssertUnwindSafe(|| run(seed, CHANGES)));
    planted::plant(None);
    match outcome {
        Ok(Err((number, (way, _)))) => way == expected && run(seed, number + 1).is_ok(),
        Ok(Ok(())) | Err(_) => false,
    }
}

#[test]
fn planted_faults_are_found() {
    for (fault, way, last) in FAULTS {
        let seed = iter::once(*last).chain(0..400).find(|seed| is_found(*fault, *way, *seed));
        let seed = seed.unwrap_or_else(|| panic!("{fault:?} is found by no history"));
        println!("{fault:?} is found by the history of seed {seed}");
    }
}
