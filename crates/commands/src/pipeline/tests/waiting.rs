//! Clients that wait for keys, some of which another thread has locked for long.

use std::cell::RefCell;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use tierce_keyspace::{
    Claimed, DbIndex, STREAM_NAME_LEN, ShardLocks, WaitKey, Waiter, take_unserved,
};
use tierce_output::Output;
use tierce_wire::resp::Proto;

use super::bench::{Bench, NOW_MS, Way, owned};
use super::calls::Call;
use crate::caller::Caller;
use crate::clients::{Client, Origin};
use crate::kernel::Kernel;
use crate::offload::Work;
use crate::pipeline;
use crate::waiting::Awaited;

thread_local! {
    /// Client for whose keys another thread has something while it is being served.
    static NOTED: RefCell<Option<Arc<Waiter>>> = const { RefCell::new(None) };
}

/// A clock that is read while a client is served; the other thread acts at that moment.
fn nanos() -> u64 {
    NOTED.with_borrow(|noted| {
        let Some(waiter) = noted else { return };
        if waiter.state.claim() == Claimed::Yes {
            waiter.state.give_back();
        }
    });
    0
}

/// Returns keys in different shards.
fn keys_in_other_shards<const N: usize>(kernel: &Kernel) -> [String; N] {
    let shard = |key: &String| kernel.keyspace.shard_of(kernel.keyspace.hash(key.as_bytes()));
    let mut keys: Vec<String> = Vec::new();
    for key in (0..).map(|n| format!("key{n}")) {
        if keys.iter().all(|other| shard(other) != shard(&key)) {
            keys.push(key);
        }
        if keys.len() == N {
            break;
        }
    }
    keys.try_into().expect("as many")
}

fn call(words: &[&str]) -> Call {
    words.iter().map(|word| word.as_bytes().to_vec()).collect()
}

fn wait_key(key: &str) -> WaitKey {
    (DbIndex::ZERO, key.as_bytes().into())
}

/// Creates a client that waits for an element of these lists.
fn waits(bench: &mut Bench, keys: &[&str]) -> Arc<Waiter> {
    waits_with(bench, &[&["BLPOP"], keys, &["0"]].concat())
}

/// Creates a client that waits with this command.
fn waits_with(bench: &mut Bench, words: &[&str]) -> Arc<Waiter> {
    let (interrupt, replied) = bench.on_worker(&call(words));
    assert_eq!((interrupt, replied), (None, 0));
    match bench.caller.end_wait().expect("it waits").awaited {
        Awaited::Keys { waiter, .. } => waiter,
        _ => panic!("it waits for something else"),
    }
}

/// Serves the clients of a key on a worker, and returns the keys that it defers.
fn serve(kernel: &Kernel, key: &str) -> Vec<WaitKey> {
    let mut locks: ShardLocks<'_> = kernel.keyspace.worker_locks(0);
    locks.note_ready(&wait_key(key));
    pipeline::serve(kernel, &mut locks, kernel.counters(0), &mut Output::new(), NOW_MS);
    locks.release();
    take_unserved(&mut locks);
    locks.take_ready()
}

/// Calls `body` while another thread has locked the shard of a key.
fn while_held<R>(kernel: &Kernel, key: &str, body: impl FnOnce() -> R) -> R {
    let mut others = kernel.keyspace.long_locks();
    others.reach(kernel.keyspace.hash(key.as_bytes())).expect("it waits");
    body()
}

#[test]
fn who_needs_a_held_key_as_well_keeps_nobody_from_a_free_one() {
    let mut bench = Bench::new(Proto::Resp2);
    let [free, held] = keys_in_other_shards(&bench.kernel);
    let first = waits(&mut bench, &[&free, &held]);
    let second = waits(&mut bench, &[&free]);
    let third = waits(&mut bench, &[&free]);
    bench.run(Way::Alone, &[call(&["RPUSH", &free, "a"])]);
    let left = while_held(&bench.kernel, &held, || serve(&bench.kernel, &free));
    assert_eq!([&first, &second, &third].map(|it| it.state.is_done()), [false, true, false]);
    assert_eq!(left, [wait_key(&free)]);
    bench.run(Way::Alone, &[call(&["RPUSH", &free, "b"])]);
    assert_eq!(serve(&bench.kernel, &free), []);
    assert_eq!([&first, &third].map(|it| it.state.is_done()), [true, false]);
}

/// Otherwise each retry would create as many as the client waits for keys.
#[test]
fn only_the_key_that_has_changed_is_left_for_later() {
    let mut bench = Bench::new(Proto::Resp2);
    let [free, other, held] = keys_in_other_shards(&bench.kernel);
    let _waiter = waits(&mut bench, &[&free, &other, &held]);
    bench.run(Way::Alone, &[call(&["RPUSH", &free, "a"])]);
    let left = while_held(&bench.kernel, &held, || serve(&bench.kernel, &free));
    assert_eq!(left, [wait_key(&free)]);
}

/// Another thread changes a second key meanwhile, and leaves the client to this one.
#[test]
fn no_key_of_a_client_is_forgotten_that_is_tried_again_later() {
    let mut bench = Bench::new(Proto::Resp2);
    let [free, other, held] = keys_in_other_shards(&bench.kernel);
    let waiter = waits(&mut bench, &[&free, &other, &held]);
    bench.run(Way::Alone, &[call(&["RPUSH", &free, "a"])]);
    NOTED.set(Some(waiter));
    bench.kernel.nanos = nanos;
    let left = while_held(&bench.kernel, &held, || serve(&bench.kernel, &free));
    NOTED.take();
    assert_eq!(left, [&free, &other, &held].map(|key| wait_key(key)));
}

/// Its locks wait without a limit, and a script may keep a client's shard locked without end.
#[test]
fn the_stream_of_a_primary_does_not_wait_to_serve_a_client() {
    let mut bench = Bench::new(Proto::Resp2);
    let [changed, held] = keys_in_other_shards(&bench.kernel);
    let read = ["XREAD", "BLOCK", "0", "STREAMS", &changed, &held, "$", "$"];
    assert_eq!(bench.on_worker(&call(&read)), (None, 0));
    let kernel = &bench.kernel;
    kernel.offload.open();
    let (done, is_done) = mpsc::channel();
    let mut others = kernel.keyspace.long_locks();
    others.reach(kernel.keyspace.hash(held.as_bytes())).expect("it waits");
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut primary = Caller::new(Arc::new(Client::new(Origin::default(), NOW_MS)), true);
            let (args, place) = (owned(&call(&["XADD", &changed, "*", "f", "v"])), 1);
            let stream = ([b'a'; STREAM_NAME_LEN], place);
            kernel.apply(&mut primary, args.as_args(), &mut Output::new(), stream);
            done.send(()).expect("it is listened to");
        });
        let applied = is_done.recv_timeout(Duration::from_secs(10));
        drop(others);
        applied.expect("it waits for what the client needs");
    });
    let work = kernel.offload.next(&mut 0);
    assert!(matches!(work, Some(Work::Serve(key)) if key == wait_key(&changed)));
}

/// Its check is enough for those that claim later, and for those that only want new entries.
#[test]
fn one_reader_that_can_claim_nothing_is_enough() {
    let mut bench = Bench::new(Proto::Resp2);
    bench.kernel.offload.open();
    for line in ["XGROUP CREATE s g 0 MKSTREAM", "XGROUP CREATE other g 0 MKSTREAM"] {
        bench.succeed(&call(&line.split(' ').collect::<Vec<_>>()));
    }
    let claims = ["CLAIM 7000", "CLAIM 7000", "CLAIM 5000", "CLAIM 8000", "", "CLAIM 9000"];
    for claim in claims {
        let line = format!("XREADGROUP GROUP g d BLOCK 9 {claim} STREAMS s >");
        waits_with(&mut bench, &line.split_whitespace().collect::<Vec<_>>());
    }
    let two = "XREADGROUP GROUP g d BLOCK 9 CLAIM 9000 STREAMS other s > >";
    waits_with(&mut bench, &two.split(' ').collect::<Vec<_>>());
    assert_eq!(bench.kernel.offload.retry_at(), None, "their calls end earlier");
    let before = bench.kernel.keyspace.stats().hits;
    assert!(serve(&bench.kernel, "s").is_empty());
    // The first, the one that claims earlier, and the last one, of whose streams each is read three times, too.
    assert_eq!(bench.kernel.keyspace.stats().hits - before, 3 * 4);
    // The others count on the next check.
    assert!(bench.kernel.offload.retry_at().is_some());
}

/// Nobody is woken by a delivery to another consumer, so it looks again in any case.
#[test]
fn a_reader_that_can_claim_nothing_looks_again_seldom() {
    let mut bench = Bench::new(Proto::Resp2);
    bench.kernel.offload.open();
    for line in
        ["XGROUP CREATE s g 0 MKSTREAM", "XADD s 1-1 a 1", "XREADGROUP GROUP g c STREAMS s >"]
    {
        bench.succeed(&call(&line.split(' ').collect::<Vec<_>>()));
    }
    bench.succeed(&call(&["XDEL", "s", "1-1"]));
    let before = Instant::now();
    let read = ["XREADGROUP", "GROUP", "g", "d", "BLOCK", "0", "CLAIM", "0", "STREAMS", "s", ">"];
    assert_eq!(bench.on_worker(&call(&read)), (None, 0));
    let again = bench.kernel.offload.retry_at().expect("it waits");
    assert!(again >= before + Duration::from_millis(50), "{:?}", again - before);
}
