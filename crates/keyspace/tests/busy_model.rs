//! A model checker runs every interleaving of a thread that locks a shard for long and a worker that must not wait
//! for it. No worker with a deferred request is forgotten, and woken workers come before the next thread that locks
//! the shard for long.
//!
//! The crate's state machine is compiled again on top of the checker's locks.

use std::sync::Arc as StdArc;

use loom::sync::Arc;
use loom::sync::atomic::AtomicUsize;
use loom::thread;

#[path = "../src/registries/busy/registry.rs"]
mod registry;

/// Primitives of `registry`. Time stands still, so reservations last however long it takes.
mod sync {
    use std::ops::{Deref, DerefMut};

    pub(super) use loom::sync::atomic::{AtomicBool, Ordering};

    #[derive(Debug)]
    pub(super) struct Mutex<T>(loom::sync::Mutex<T>);

    pub(super) struct Guard<'a, T>(Option<loom::sync::MutexGuard<'a, T>>);

    #[derive(Debug)]
    pub(super) struct Condvar(loom::sync::Condvar);

    #[derive(Clone, Copy)]
    pub(super) struct Deadline;

    impl<T> Mutex<T> {
        pub(super) fn new(value: T) -> Self {
            Self(loom::sync::Mutex::new(value))
        }

        pub(super) fn lock(&self) -> Guard<'_, T> {
            Guard(Some(self.0.lock().unwrap()))
        }
    }

    impl<T> Deref for Guard<'_, T> {
        type Target = T;

        fn deref(&self) -> &T {
            self.0.as_ref().unwrap()
        }
    }

    impl<T> DerefMut for Guard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            self.0.as_mut().unwrap()
        }
    }

    impl Condvar {
        pub(super) fn new() -> Self {
            Self(loom::sync::Condvar::new())
        }

        pub(super) fn notify_all(&self) {
            self.0.notify_all();
        }
    }

    pub(super) fn deadline() -> Deadline {
        Deadline
    }

    pub(super) fn wait<T>(condvar: &Condvar, guard: &mut Guard<'_, T>) {
        let held = guard.0.take().unwrap();
        guard.0 = Some(condvar.0.wait(held).unwrap());
    }

    pub(super) fn wait_until<T>(condvar: &Condvar, guard: &mut Guard<'_, T>, _: Deadline) -> bool {
        wait(condvar, guard);
        true
    }
}

use registry::{Registry, Woken};
use sync::{AtomicBool, Ordering};

const WORKER: u16 = 7;

/// A keyspace of one shard, and the mailbox of one worker.
struct World {
    registry: Registry,
    /// True while a thread keeps the shard locked for long. Not a lock of the checker, which does not notice failed
    /// attempts to lock.
    is_locked: AtomicBool,
    /// Number of long locks so far.
    holds: AtomicUsize,
    mailbox: loom::sync::Mutex<Vec<Woken>>,
    has_mail: loom::sync::Condvar,
}

impl World {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            registry: Registry::new(1),
            is_locked: AtomicBool::new(false),
            holds: AtomicUsize::new(0),
            mailbox: loom::sync::Mutex::new(Vec::new()),
            has_mail: loom::sync::Condvar::new(),
        })
    }

    fn hold_for_long(&self) {
        let shards: StdArc<[usize]> = [0].into();
        assert!(self.registry.announce(&shards, None), "it does not give up");
        let was_locked = self.is_locked.swap(true, Ordering::AcqRel);
        assert!(!was_locked, "two hold the shard for long");
        self.holds.fetch_add(1, Ordering::Relaxed);
        self.is_locked.store(false, Ordering::Release);
        if let Some(woken) = self.registry.end(&shards) {
            self.mailbox.lock().unwrap().push(woken);
            self.has_mail.notify_one();
        }
    }

    /// A worker's request. Returns true if it ran; otherwise it was deferred.
    fn request(&self) -> bool {
        loop {
            if !self.is_locked.load(Ordering::Acquire) {
                return true;
            }
            if self.registry.is_busy(0) && self.registry.set_aside(0, WORKER) {
                return false;
            }
        }
    }

    fn take_mail(&self) -> Option<Woken> {
        self.mailbox.lock().unwrap().pop()
    }

    /// Waits for a wake-up, like the event loop.
    fn await_mail(&self) -> Woken {
        let mut mailbox = self.mailbox.lock().unwrap();
        loop {
            match mailbox.pop() {
                Some(woken) => return woken,
                None => mailbox = self.has_mail.wait(mailbox).unwrap(),
            }
        }
    }
}

#[test]
fn a_request_runs_or_its_worker_is_woken() {
    loom::model(|| {
        let world = World::new();
        let long = thread::spawn({
            let world = Arc::clone(&world);
            move || world.hold_for_long()
        });
        let has_run = world.request();
        long.join().unwrap();
        let mail = world.take_mail();
        assert_eq!(mail.is_some(), !has_run, "a lost or needless wake-up");
        if let Some(Woken { workers, shards }) = mail {
            assert_eq!(workers, [WORKER]);
            assert!(world.request(), "the shard is free");
            world.registry.served(&shards);
        }
        assert!(!world.registry.is_busy(0));
        // Nothing prevents the next one.
        world.hold_for_long();
        assert_eq!(world.holds.load(Ordering::Relaxed), 2);
    });
}

/// One thread locks the shard twice, so that three switches suffice to find a violated reservation: to that thread,
/// back while the shard is locked, and back again during the second lock.
#[test]
fn who_was_woken_comes_before_the_shard_is_held_again() {
    let mut checker = loom::model::Builder::new();
    checker.preemption_bound = Some(3);
    checker.check(|| {
        let world = World::new();
        let long = thread::spawn({
            let world = Arc::clone(&world);
            move || {
                world.hold_for_long();
                world.hold_for_long();
            }
        });
        if !world.request() {
            let Woken { shards, .. } = world.await_mail();
            assert!(world.request(), "a request that was woken is set aside again");
            world.registry.served(&shards);
        }
        long.join().unwrap();
        assert_eq!(world.holds.load(Ordering::Relaxed), 2);
        assert!(world.mailbox.lock().unwrap().is_empty());
    });
}

#[test]
fn who_was_woken_comes_before_the_next_who_holds_the_shard_for_long() {
    // Three threads: all interleavings would take minutes. Two switches find a thread out of turn.
    let mut checker = loom::model::Builder::new();
    checker.preemption_bound = Some(2);
    checker.check(|| {
        let world = World::new();
        let hold = |world: &Arc<World>| {
            let world = Arc::clone(world);
            thread::spawn(move || world.hold_for_long())
        };
        let both = [hold(&world), hold(&world)];
        if !world.request() {
            let Woken { shards, .. } = world.await_mail();
            assert!(world.request(), "a request that was woken is set aside again");
            world.registry.served(&shards);
        }
        both.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(world.holds.load(Ordering::Relaxed), 2);
        assert!(world.mailbox.lock().unwrap().is_empty());
    });
}
