use tierce_cask::disk::{Fault, SimDisk};
use tierce_cask::{Wal, WalOptions};
use tierce_keyspace::{DbIndex, Expiry, Options};

use super::*;

struct Store {
    keyspace: Arc<Keyspace>,
    feed: Arc<Feed>,
    wal_handle: Arc<WalHandle>,
}

impl Store {
    fn new(waiting_bytes_max: usize) -> Self {
        let wal_handle = Arc::<WalHandle>::default();
        let feed = Arc::new(Feed::with_limit(Arc::clone(&wal_handle), waiting_bytes_max));
        let sink = Arc::clone(&feed) as Arc<dyn LogSink>;
        let options = Options { log: Some(sink), ..Options::default() };
        Self { keyspace: Arc::new(Keyspace::new(options).unwrap()), feed, wal_handle }
    }

    fn set(&self, key: &str, value: &str) {
        let key = self.keyspace.key(key.as_bytes());
        let mut locks = self.keyspace.locks();
        locks.db(DbIndex::ZERO, key.hash(), 0).set(key, value.as_bytes(), Expiry::Never).unwrap();
    }

    fn open_log(&self) -> Arc<SimDisk> {
        let disk = Arc::new(SimDisk::new(1));
        let options = WalOptions { background_threads: false, ..WalOptions::default() };
        let (wal, _) = Wal::open_on(Arc::clone(&disk) as _, "/wal", options, |_| Ok(())).unwrap();
        self.wal_handle.open(wal);
        self.keyspace.begin_logging();
        disk
    }
}

/// What can be taken at once.
fn taken(follower: &mut Follower) -> Vec<(u64, String)> {
    let batch = follower.wait(Duration::ZERO).unwrap();
    let text = |fed: Fed<'_>| match fed {
        Fed::Record(record) => format!("record {}", String::from_utf8_lossy(&record[3..])),
        Fed::Command(command) => format!("command {}", String::from_utf8_lossy(command)),
        Fed::Mark(id) => format!("mark {id}"),
    };
    batch.iter().map(|(position, fed)| (position, text(fed))).collect()
}

fn texts(items: &[(u64, String)]) -> Vec<&str> {
    items.iter().map(|(_, text)| &**text).collect()
}

#[test]
fn a_follower_gets_what_happens_while_there_is_no_log() {
    let store = Store::new(WAITING_BYTES_MAX);
    store.set("a", "before");
    assert_eq!(store.feed.position(), 0);
    let mut follower = store.feed.follow(&store.keyspace).unwrap();
    assert!(store.feed.follow(&store.keyspace).is_none(), "there is one");
    store.set("a", "first");
    {
        let mut locks = store.keyspace.locks();
        let all = locks.lock_all();
        store.feed.mark(7);
        drop(all);
    }
    store.feed.pass(b"PING");
    assert_eq!(store.feed.position(), 3);
    let items = taken(&mut follower);
    assert_eq!(texts(&items), ["record a\u{5}first", "mark 7", "command PING"]);
    assert_eq!(items.iter().map(|(position, _)| *position).collect::<Vec<_>>(), [1, 2, 3]);
    store.set("a", "second");
    let items = taken(&mut follower);
    assert_eq!((items.len(), items[0].0), (1, 4));
    drop(follower);
    store.set("a", "third");
    assert_eq!((store.feed.position(), store.feed.waiting_bytes()), (4, 0));
    let mut follower = store.feed.follow(&store.keyspace).unwrap();
    assert_eq!(taken(&mut follower), []);
}

#[test]
fn a_checkpoint_is_in_the_log_and_not_in_the_feed() {
    use tierce_keyspace::log::{Checkpoint, Pass};
    let store = Store::new(WAITING_BYTES_MAX);
    store.open_log();
    let mut follower = store.feed.follow(&store.keyspace).unwrap();
    store.set("a", "value");
    let appended = store.wal_handle.appended();
    let mut checkpoint = Checkpoint::begin(&store.keyspace);
    while checkpoint.step().1 == Pass::Underway {}
    assert!(store.wal_handle.appended() > appended);
    assert_eq!(texts(&taken(&mut follower)), ["record a\u{5}value"]);
}

#[test]
fn a_long_value_comes_in_pieces() {
    let store = Store::new(WAITING_BYTES_MAX);
    let mut follower = store.feed.follow(&store.keyspace).unwrap();
    store.set("a", &"x".repeat(5 << 20));
    let batch = follower.wait(Duration::ZERO).unwrap();
    let bytes = |fed| if let Fed::Record(record) = fed { record.len() } else { 0 };
    let pieces: Vec<usize> = batch.iter().map(|(_, fed)| bytes(fed)).collect();
    assert!(pieces.len() > 4 && pieces.iter().sum::<usize>() > 5 << 20, "{pieces:?}");
}

#[test]
fn what_the_log_has_not_taken_is_held_back_until_it_is_healed() {
    let store = Store::new(WAITING_BYTES_MAX);
    let disk = store.open_log();
    let mut follower = store.feed.follow(&store.keyspace).unwrap();
    store.set("a", "one");
    disk.inject(Fault::Sync, 0);
    store.wal_handle.sync().unwrap_err();
    assert!(store.wal_handle.has_write_error());
    store.set("b", "refused");
    store.feed.mark(1);
    let mut before = taken(&mut follower);
    assert_eq!(texts(&before), ["record a\u{3}one"]);
    assert_eq!(taken(&mut follower), []);
    // Switched off, which lets clients write again.
    store.keyspace.end_logging();
    let _ = store.wal_handle.close();
    store.set("c", "later");
    before.extend(taken(&mut follower));
    assert_eq!(texts(&before)[1..], ["record b\u{7}refused", "mark 1", "record c\u{5}later"]);
    let positions = before.iter().map(|(position, _)| *position);
    assert!(positions.eq(1..=store.feed.position()), "none is missing");
}

#[test]
fn a_follower_that_takes_nothing_is_overrun_and_may_begin_again() {
    let store = Store::new(1000);
    let mut follower = store.feed.follow(&store.keyspace).unwrap();
    for _ in 0..100 {
        store.set("a", "twenty bytes or more.");
    }
    assert_eq!(store.feed.waiting_bytes(), 0);
    assert_eq!(follower.wait(Duration::ZERO).err(), Some(Overrun));
    drop(follower);
    let mut follower = store.feed.follow(&store.keyspace).unwrap();
    store.set("a", "1");
    assert_eq!(taken(&mut follower).len(), 1);
}

#[test]
fn a_follower_that_waits_is_woken() {
    let store = Store::new(WAITING_BYTES_MAX);
    let mut follower = store.feed.follow(&store.keyspace).unwrap();
    std::thread::scope(|threads| {
        let follower = threads.spawn(move || {
            let mut records = 0;
            while records < 1000 {
                let batch = follower.wait(Duration::from_secs(60)).unwrap();
                assert!(!batch.is_empty(), "woken for nothing, or not at all");
                records += batch.iter().count();
            }
        });
        for number in 0..1000 {
            store.set(&number.to_string(), "value");
        }
        follower.join().unwrap();
    });
}

#[test]
fn what_is_appended_while_a_follower_rests_comes_in_one_batch() {
    const FOR_EVER: Duration = Duration::from_secs(3600);
    let store = Store::new(WAITING_BYTES_MAX);
    let mut follower = store.feed.follow(&store.keyspace).unwrap();
    let rested = std::thread::scope(|scope| {
        let rests = scope.spawn(|| {
            follower.rest(FOR_EVER);
            taken(&mut follower).len()
        });
        for round in 0..1000 {
            store.set("a", &round.to_string());
        }
        store.feed.call();
        rests.join().unwrap()
    });
    assert_eq!(rested, 1000, "only the call ends the rest");
    store.set("a", "last");
    assert_eq!(taken(&mut follower).len(), 1);
    assert!(follower.wait(FOR_EVER).unwrap().is_empty(), "the call was still to be seen");
}
