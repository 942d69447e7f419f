//! The reaper removes expired data on time, and frees large values.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tierce_keyspace::{
    BLOB_LEN_MIN, Clock, DbIndex, Event, EventBatch, EventClasses, EventSink, Expiry, Freeing,
    Keyspace, ManualClock, Options, Reaper, SystemClock, flush_dbs,
};

/// Maximum time that a test waits for something immediate before it fails.
const PATIENCE: Duration = Duration::from_secs(60);

/// Sends the names of expired keys.
struct Expired(Mutex<Sender<Vec<u8>>>);

impl EventSink for Expired {
    fn deliver(&self, events: &EventBatch<'_>) {
        for event in events.iter() {
            assert_eq!(event.event, Event::Expired);
            self.0.lock().unwrap().send(event.key.to_vec()).expect("the test is still there");
        }
    }
}

fn keyspace() -> (Arc<Keyspace>, Receiver<Vec<u8>>) {
    let (sender, expired) = channel();
    let keyspace = Keyspace::new(Options::default()).expect("good options");
    keyspace.set_event_sink(Expired(Mutex::new(sender)));
    keyspace.set_event_classes(EventClasses::EXPIRED);
    (Arc::new(keyspace), expired)
}

fn set(keyspace: &Keyspace, name: &[u8], value: &[u8], expiry: Expiry, now_ms: i64) {
    let key = keyspace.key(name);
    keyspace.locks().db(DbIndex::ZERO, key.hash(), now_ms).set(key, value, expiry).unwrap();
}

#[test]
fn a_call_is_made_by_the_thread_once() {
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    fn call() {
        assert_eq!(std::thread::current().name(), Some("reaper"));
        CALLS.fetch_add(1, Ordering::Relaxed);
    }
    let (keyspace, _) = keyspace();
    let reaper = Reaper::start(keyspace, Arc::new(ManualClock::new(1000))).unwrap();
    for calls in 1..=3 {
        reaper.call(call);
        tierce_harness::wait_until("it was called", || CALLS.load(Ordering::Relaxed) == calls);
    }
}

#[test]
fn keys_go_when_the_clock_reaches_their_deadline() {
    let (keyspace, expired) = keyspace();
    let clock = Arc::new(ManualClock::new(1000));
    let reaper = Reaper::start(Arc::clone(&keyspace), clock.clone()).unwrap();
    for number in 0..200u8 {
        set(&keyspace, &[number], b"v", Expiry::At(2000 + i64::from(number)), 1000);
    }
    for (now_ms, names) in [(2099, 0..100u8), (5000, 100..200)] {
        clock.set(now_ms);
        reaper.wake();
        let mut seen: Vec<u8> = names
            .clone()
            .map(|_| expired.recv_timeout(PATIENCE).expect("an expired key")[0])
            .collect();
        seen.sort_unstable();
        assert_eq!(seen, names.collect::<Vec<u8>>());
        assert!(expired.try_recv().is_err());
    }
    drop(reaper);
    assert_eq!(keyspace.memory().total(), 0);
}

#[test]
fn a_sleeping_reaper_wakes_for_an_earlier_deadline() {
    let (keyspace, expired) = keyspace();
    let _reaper = Reaper::start(Arc::clone(&keyspace), Arc::new(SystemClock)).unwrap();
    let now_ms = SystemClock.now_ms();
    set(&keyspace, b"in an hour", b"v", Expiry::At(now_ms + 3_600_000), now_ms);
    for name in ["one", "two", "three"] {
        let now_ms = SystemClock.now_ms();
        set(&keyspace, name.as_bytes(), b"v", Expiry::At(now_ms + 5), now_ms);
        assert_eq!(expired.recv_timeout(PATIENCE).expect("it expires"), name.as_bytes());
        assert!(SystemClock.now_ms() >= now_ms + 5, "not before its time");
    }
}

#[test]
fn large_values_and_flushed_tables_are_freed_by_the_reaper() {
    for freeing in [Freeing::Later, Freeing::Now] {
        let (keyspace, _expired) = keyspace();
        let reaper = Reaper::start(Arc::clone(&keyspace), Arc::new(ManualClock::new(0))).unwrap();
        let large = vec![b'x'; 16 * BLOB_LEN_MIN];
        for number in 0..50u8 {
            set(&keyspace, &[number], &large, Expiry::Never, 0);
            set(&keyspace, &[number], &large, Expiry::Never, 0);
        }
        let key = keyspace.key(&[0]);
        assert!(keyspace.locks().db(DbIndex::ZERO, key.hash(), 0).remove(key));
        assert_eq!(flush_dbs(&mut keyspace.locks(), [DbIndex::ZERO], freeing), 49);
        assert_eq!(
            keyspace.memory().entries,
            0,
            "what waits for the reaper is counted as lazy-free"
        );
        drop(reaper);
        assert_eq!(keyspace.memory().total(), 0);
    }
}

#[test]
fn a_reply_keeps_its_bytes_when_the_value_is_gone() {
    let (keyspace, _expired) = keyspace();
    let large = vec![b'x'; BLOB_LEN_MIN];
    set(&keyspace, b"key", &large, Expiry::Never, 0);
    let key = keyspace.key(b"key");
    let mut locks = keyspace.locks();
    let mut db = locks.db(DbIndex::ZERO, key.hash(), 0);
    let Ok(Some(tierce_keyspace::StrView::Shared(blob))) = db.string(key) else {
        panic!("a string of this size can be shared");
    };
    let reply = blob.to_arc();
    assert_eq!(db.append(key, b"more"), Ok(large.len() + 4));
    assert!(db.remove(key));
    assert_eq!(*reply, large);
}

/// With nothing to expire, an entry's time wraps around as well.
#[test]
fn idle_times_do_not_come_round() {
    const HOUR_MS: i64 = 3_600_000;
    let (keyspace, expired) = keyspace();
    let start_ms = 1_700_000_000_000;
    let clock = Arc::new(ManualClock::new(start_ms));
    set(&keyspace, b"key", b"v", Expiry::Never, start_ms);
    let reaper = Reaper::start(Arc::clone(&keyspace), clock.clone()).unwrap();
    // A key that expires in a round of the reaper is the sign that it saw the time. It ages in steps after that.
    for hours in [1, 7, 30, 31, 100, 2000] {
        let now_ms = start_ms + hours * HOUR_MS;
        set(&keyspace, b"sign", b"v", Expiry::At(now_ms), now_ms - 1);
        clock.set(now_ms);
        reaper.wake();
        assert_eq!(expired.recv_timeout(PATIENCE).expect("an expired key"), b"sign");
        let key = keyspace.key(b"key");
        let (expected, until) = (hours as u64 * 3600, Instant::now() + PATIENCE);
        loop {
            let idle = keyspace.locks().db(DbIndex::ZERO, key.hash(), now_ms).idle_seconds(key);
            if idle.is_some_and(|idle| idle.abs_diff(expected) <= 512) {
                break;
            }
            assert!(Instant::now() < until, "{idle:?} s for {expected}");
            std::thread::yield_now();
        }
    }
}
