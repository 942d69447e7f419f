use tierce_keyspace::{DbIndex, Expiry, Options};
use tierce_storage::disk::{Fault, SimDisk};
use tierce_storage::{Wal, WalOptions};

use super::*;

struct Store {
    keyspace: Arc<Keyspace>,
    feed: Arc<Feed>,
    durable_log: Arc<DurableLog>,
}

impl Store {
    fn new() -> Self {
        let durable_log = Arc::<DurableLog>::default();
        let feed = Arc::new(Feed::new(Arc::clone(&durable_log)));
        let sink = Arc::clone(&feed) as Arc<dyn LogSink>;
        let options = Options { log: Some(sink), ..Options::default() };
        Self { keyspace: Arc::new(Keyspace::new(options).unwrap()), feed, durable_log }
    }

    fn follow(&self) -> Follower {
        self.follow_as(Reader::Replicas, WAITING_BYTES_MAX)
    }

    fn follow_as(&self, reader: Reader, bytes_max: usize) -> Follower {
        self.feed.follow(&self.keyspace, reader, bytes_max).expect("there is none")
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
        self.durable_log.open(wal);
        self.keyspace.begin_logging();
        disk
    }
}

/// Returns the items that can be taken at once.
fn taken(follower: &mut Follower) -> Vec<(u64, String)> {
    let batch = follower.wait(Duration::ZERO).unwrap();
    let text = |fed: Fed<'_>| match fed {
        Fed::Record(record) => format!("record {}", String::from_utf8_lossy(&record[3..])),
        Fed::Command(command) => format!("command {}", String::from_utf8_lossy(command)),
        Fed::Mark(reader, id) => format!("mark {id} of {reader:?}"),
    };
    let items = batch.iter().map(|(position, fed)| (position, text(fed))).collect();
    follower.recycle(batch);
    items
}

fn texts(items: &[(u64, String)]) -> Vec<&str> {
    items.iter().map(|(_, text)| &**text).collect()
}

#[test]
fn a_follower_gets_what_happens_while_there_is_no_log() {
    let store = Store::new();
    store.set("a", "before");
    assert_eq!(store.feed.position(), 0);
    let mut follower = store.follow();
    let second = store.feed.follow(&store.keyspace, Reader::Replicas, WAITING_BYTES_MAX);
    assert!(second.is_none(), "there is one");
    store.set("a", "first");
    {
        let mut locks = store.keyspace.locks();
        let all = locks.lock_all();
        store.feed.mark(Reader::Replicas, 7);
        drop(all);
    }
    store.feed.pass(b"PING");
    assert_eq!(store.feed.position(), 3);
    let items = taken(&mut follower);
    assert_eq!(texts(&items), ["record a\u{5}first", "mark 7 of Replicas", "command PING"]);
    assert_eq!(items.iter().map(|(position, _)| *position).collect::<Vec<_>>(), [1, 2, 3]);
    store.set("a", "second");
    let items = taken(&mut follower);
    assert_eq!((items.len(), items[0].0), (1, 4));
    drop(follower);
    store.set("a", "third");
    assert_eq!((store.feed.position(), store.feed.waiting_bytes()), (4, 0));
    let mut follower = store.follow();
    assert_eq!(taken(&mut follower), []);
}

#[test]
fn a_pause_drops_what_happens_meanwhile_and_nothing_else() {
    let store = Store::new();
    let mut follower = store.follow();
    store.set("a", "before");
    store.feed.pause(Reader::Replicas);
    store.set("a", "paused");
    store.feed.pass(b"PING");
    // This change locks its shard during the pause and happens after it.
    let key = store.keyspace.key(b"a");
    let mut locks = store.keyspace.locks();
    let mut db = locks.db(DbIndex::ZERO, key.hash(), 0);
    store.feed.resume(Reader::Replicas);
    db.set(key, b"after", Expiry::Never).unwrap();
    locks.release();
    assert_eq!(texts(&taken(&mut follower)), ["record a\u{6}before", "record a\u{5}after"]);
    drop(follower);
    store.feed.resume(Reader::Replicas);
    assert!(!store.feed.is_followed(), "there is none");
}

#[test]
fn a_checkpoint_is_in_the_log_and_not_in_the_feed() {
    use tierce_keyspace::log::{Checkpoint, Pass};
    let store = Store::new();
    store.open_log();
    let mut follower = store.follow();
    store.set("a", "value");
    let appended = store.durable_log.appended();
    let mut checkpoint = Checkpoint::begin(&store.keyspace);
    while checkpoint.step().1 != Pass::Complete {}
    assert!(store.durable_log.appended() > appended);
    assert_eq!(texts(&taken(&mut follower)), ["record a\u{5}value"]);
}

#[test]
fn a_long_value_comes_in_pieces() {
    let store = Store::new();
    let mut follower = store.follow();
    store.set("a", &"x".repeat(5 << 20));
    let batch = follower.wait(Duration::ZERO).unwrap();
    let bytes = |fed| if let Fed::Record(record) = fed { record.len() } else { 0 };
    let pieces: Vec<usize> = batch.iter().map(|(_, fed)| bytes(fed)).collect();
    assert!(pieces.len() > 4 && pieces.iter().sum::<usize>() > 5 << 20, "{pieces:?}");
}

#[test]
fn what_the_log_has_not_taken_is_held_back_until_it_is_healed() {
    let store = Store::new();
    let disk = store.open_log();
    let mut follower = store.follow();
    store.set("a", "one");
    disk.inject(Fault::Sync, 0);
    store.durable_log.sync().unwrap_err();
    assert!(store.durable_log.has_write_error());
    store.set("b", "refused");
    store.feed.mark(Reader::Replicas, 1);
    let mut before = taken(&mut follower);
    assert_eq!(texts(&before), ["record a\u{3}one"]);
    assert_eq!(taken(&mut follower), []);
    // Switching the log off lets clients write again.
    store.keyspace.end_logging();
    let _ = store.durable_log.close();
    store.set("c", "later");
    before.extend(taken(&mut follower));
    assert_eq!(
        texts(&before)[1..],
        ["record b\u{7}refused", "mark 1 of Replicas", "record c\u{5}later"]
    );
    let positions = before.iter().map(|(position, _)| *position);
    assert!(positions.eq(1..=store.feed.position()), "none is missing");
}

#[test]
fn a_follower_that_takes_nothing_is_overrun_and_may_begin_again() {
    let store = Store::new();
    let mut follower = store.follow_as(Reader::Replicas, 1000);
    for _ in 0..100 {
        store.set("a", "twenty bytes or more.");
    }
    assert_eq!(store.feed.waiting_bytes(), 0);
    assert_eq!(follower.wait(Duration::ZERO).err(), Some(Overrun));
    drop(follower);
    let mut follower = store.follow();
    store.set("a", "1");
    assert_eq!(taken(&mut follower).len(), 1);
}

#[test]
fn a_follower_that_waits_is_woken() {
    let store = Store::new();
    let mut follower = store.follow();
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
    let store = Store::new();
    let mut follower = store.follow();
    let rested = std::thread::scope(|scope| {
        let rests = scope.spawn(|| {
            follower.rest(FOR_EVER);
            taken(&mut follower).len()
        });
        for round in 0..1000 {
            store.set("a", &round.to_string());
        }
        store.feed.call(Reader::Replicas);
        rests.join().unwrap()
    });
    assert_eq!(rested, 1000, "only the call ends the rest");
    store.feed.call(Reader::Replicas);
    follower.rest(FOR_EVER);
    assert!(follower.wait(FOR_EVER).unwrap().is_empty(), "the call is still to be seen");
}

#[test]
fn a_call_that_comes_with_changes_ends_no_later_rest() {
    let store = Store::new();
    let mut follower = store.follow();
    let is_called = || store.feed.queues.lock()[Reader::Replicas as usize].is_called();
    for round in 0..3 {
        // A busy server always has items to take.
        store.set("a", &round.to_string());
        store.feed.call(Reader::Replicas);
        assert!(is_called());
        assert_eq!(taken(&mut follower).len(), 1);
        assert!(!is_called(), "the next rest would end at once");
    }
}

#[test]
fn followers_get_the_same_at_the_same_positions_each_at_its_own_speed() {
    let store = Store::new();
    let mut replicas = store.follow();
    store.set("a", "v1");
    let mut bucket = store.follow_as(Reader::Bucket, WAITING_BYTES_MAX);
    assert_eq!(taken(&mut replicas).len(), 1);
    store.set("a", "v2");
    {
        let mut locks = store.keyspace.locks();
        let _all = locks.lock_all();
        store.feed.mark(Reader::Bucket, 9);
    }
    store.set("a", "v3");
    let of_replicas = taken(&mut replicas);
    assert_eq!(texts(&of_replicas), ["record a\u{2}v2", "mark 9 of Bucket", "record a\u{2}v3"]);
    assert_eq!(of_replicas.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [2, 3, 4]);
    // The end of one follower does not affect the other, which has taken nothing so far.
    drop(replicas);
    store.set("a", "v4");
    let of_bucket = taken(&mut bucket);
    assert_eq!(of_bucket[..3], of_replicas);
    assert_eq!(of_bucket[3..], [(5, "record a\u{2}v4".to_owned())]);
    assert!(store.feed.is_followed() && !store.feed.is_followed_by(Reader::Replicas));
    drop(bucket);
    store.set("a", "v5");
    assert_eq!((store.feed.is_followed(), store.feed.position()), (false, 5));
}

#[test]
fn an_overrun_of_one_follower_is_not_one_of_another() {
    let store = Store::new();
    let mut slow = store.follow_as(Reader::Bucket, 100);
    let mut other = store.follow();
    for _ in 0..20 {
        store.set("a", "twenty bytes or more.");
    }
    assert_eq!(slow.wait(Duration::ZERO).err(), Some(Overrun));
    assert_eq!(taken(&mut other).len(), 20);
    slow.begin_anew(100);
    store.set("a", "v1");
    assert_eq!(taken(&mut slow), taken(&mut other));
}

/// A client that sees such a change waits for the follower's next copy.
#[test]
fn changes_count_while_a_follower_is_overrun_and_another_one_pauses() {
    let store = Store::new();
    let _replicas = store.follow();
    let mut bucket = store.follow_as(Reader::Bucket, 10);
    store.set("k", "more than it may have");
    let before = store.feed.position();
    store.feed.pause(Reader::Replicas);
    store.set("k", "v");
    assert!(store.feed.is_followed() && store.feed.position() > before);
    assert!(bucket.wait(Duration::ZERO).is_err());
}

#[test]
fn a_follower_that_begins_anew_is_followed_whatever_another_one_did_meanwhile() {
    let store = Store::new();
    let mut slow = store.follow_as(Reader::Bucket, 100);
    for _ in 0..20 {
        store.set("a", "twenty bytes or more.");
    }
    store.feed.pause(Reader::Replicas);
    store.feed.resume(Reader::Replicas);
    slow.begin_anew(100);
    store.set("a", "v1");
    assert_eq!(taken(&mut slow).len(), 1);
}

#[test]
fn a_limit_is_raised_and_never_lowered() {
    let store = Store::new();
    let mut slow = store.follow_as(Reader::Bucket, 100);
    store.feed.raise_limit(Reader::Bucket, 10_000);
    store.feed.raise_limit(Reader::Bucket, 200);
    for _ in 0..20 {
        store.set("a", "twenty bytes or more.");
    }
    assert_eq!(taken(&mut slow).len(), 20);
}
