//! A model checker runs every interleaving of threads that serve a waiter: no waiter is forgotten, and none is
//! answered twice.
//!
//! The crate's state machine is compiled again on top of the checker's atomics. Lists and values are behind a lock,
//! like those of a shard.

use loom::sync::{Arc, Mutex};
use loom::thread;

#[path = "../src/registries/waiters/state.rs"]
#[expect(dead_code, reason = "the lists of the keyspace use the rest")]
mod state;

/// Primitives of `state`.
mod sync {
    pub(super) use loom::sync::atomic::{AtomicU32, Ordering};
}

use state::{Cancelled, Claimed, Reason, Returned, WaiterState};

/// A key of a shard, and its waiter.
struct Key {
    /// Elements, behind the lock of the shard.
    elements: Mutex<usize>,
    state: WaiterState,
    answers: Mutex<Vec<&'static str>>,
}

impl Key {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            elements: Mutex::new(0),
            state: WaiterState::new(),
            answers: Mutex::new(Vec::new()),
        })
    }

    fn answer(&self, with: &'static str) {
        self.answers.lock().unwrap().push(with);
    }

    /// Adds an element, and serves a waiter.
    fn push(&self) {
        *self.elements.lock().unwrap() += 1;
        self.serve();
    }

    fn serve(&self) {
        // The claim is made under the lock, the element is taken under a second lock.
        let claimed = {
            let _shard = self.elements.lock().unwrap();
            self.state.claim()
        };
        if claimed != Claimed::Yes {
            return;
        }
        loop {
            if self.pop() {
                self.state.done();
                return self.answer("element");
            }
            match self.state.give_back() {
                Returned::Waiting => return,
                Returned::CheckAgain => {}
                Returned::Answer(_) => return self.answer("nothing"),
            }
        }
    }

    fn pop(&self) -> bool {
        let mut elements = self.elements.lock().unwrap();
        let found = *elements > 0;
        *elements -= usize::from(found);
        found
    }

    fn lose_patience(&self) {
        if self.state.cancel(Reason(1)) == Cancelled::Now {
            self.answer("nothing");
        }
    }

    fn answers(&self) -> Vec<&'static str> {
        self.answers.lock().unwrap().clone()
    }
}

#[test]
fn one_of_two_who_push_serves_and_the_other_element_stays() {
    loom::model(|| {
        let key = Key::new();
        let other = Arc::clone(&key);
        let thread = thread::spawn(move || other.push());
        key.push();
        thread.join().unwrap();
        assert_eq!(key.answers(), ["element"]);
        assert_eq!(*key.elements.lock().unwrap(), 1);
    });
}

#[test]
fn an_element_that_somebody_else_has_taken_is_no_lost_wake_up() {
    loom::model(|| {
        let key = Key::new();
        let other = Arc::clone(&key);
        // Pushes and takes the element away before anybody is served.
        let thread = thread::spawn(move || {
            *other.elements.lock().unwrap() += 1;
            other.pop();
            other.serve();
        });
        key.push();
        thread.join().unwrap();
        let left = *key.elements.lock().unwrap();
        let served = key.answers().len();
        // A waiter that waits while there is an element was forgotten.
        assert!(served == 1 || left == 0, "{left} elements left, {served} answers");
        assert!(served <= 1);
    });
}

#[test]
fn the_end_of_patience_and_an_element_make_one_answer() {
    loom::model(|| {
        let key = Key::new();
        let other = Arc::clone(&key);
        let thread = thread::spawn(move || other.lose_patience());
        key.push();
        thread.join().unwrap();
        let answers = key.answers();
        assert_eq!(answers.len(), 1);
        let left = *key.elements.lock().unwrap();
        assert_eq!(left, usize::from(answers == ["nothing"]), "an element is lost or doubled");
    });
}

#[test]
fn patience_ends_during_an_attempt_that_finds_nothing() {
    loom::model(|| {
        let key = Key::new();
        let other = Arc::clone(&key);
        let thread = thread::spawn(move || other.serve());
        key.lose_patience();
        thread.join().unwrap();
        assert_eq!(key.answers(), ["nothing"]);
    });
}
