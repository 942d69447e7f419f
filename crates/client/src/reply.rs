//! The future of a request, and its completion by a callback.

use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use crate::callback::{Outcome, Recipient};

/// The future answer to a request: awaited in any runtime, or without one by [`Reply::wait`].
///
/// The request is made even if the future is never polled. Dropping the future discards the answer,
/// but not the request, unless it still waits for room in the window.
#[must_use = "the request is made, but its answer is not looked at"]
#[derive(Debug)]
pub struct Reply<T> {
    cell: Arc<ReplyCell<T>>,
}

/// Cell that one side fills with an answer and the other side takes it from.
#[derive(Debug)]
pub(crate) struct ReplyCell<T> {
    state: Mutex<CellState<T>>,
    /// Converts the received bytes to the answer.
    read: fn(Outcome<'_>) -> T,
}

#[derive(Debug)]
enum CellState<T> {
    Empty,
    Waiting(Waker),
    Full(T),
    Taken,
    /// The answer will not be taken.
    Abandoned,
}

impl<T> Reply<T> {
    /// Makes a reply and its cell. `read` converts the received bytes to the answer.
    pub(crate) fn pending(read: fn(Outcome<'_>) -> T) -> (Reply<T>, Arc<ReplyCell<T>>) {
        let cell = Arc::new(ReplyCell { state: Mutex::new(CellState::Empty), read });
        (Reply { cell: Arc::clone(&cell) }, cell)
    }

    /// Blocks the calling thread until the answer arrives.
    ///
    /// Not for callbacks: they run on the thread that receives answers.
    pub fn wait(mut self) -> T {
        thread_local! {
            static WAKER: Waker = Waker::from(Arc::new(Unpark(thread::current())));
        }
        WAKER.with(|waker| {
            let mut context = Context::from_waker(waker);
            loop {
                match Pin::new(&mut self).poll(&mut context) {
                    Poll::Ready(answer) => return answer,
                    Poll::Pending => thread::park(),
                }
            }
        })
    }
}

impl<T> Future for Reply<T> {
    type Output = T;

    /// # Panics
    /// If polled again after the answer was taken.
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let mut state = self.cell.lock();
        match mem::replace(&mut *state, CellState::Taken) {
            CellState::Full(answer) => return Poll::Ready(answer),
            CellState::Taken | CellState::Abandoned => {
                panic!("a reply was polled after its answer")
            }
            CellState::Waiting(waker) if waker.will_wake(context.waker()) => {
                *state = CellState::Waiting(waker);
            }
            CellState::Empty | CellState::Waiting(_) => {
                *state = CellState::Waiting(context.waker().clone());
            }
        }
        Poll::Pending
    }
}

impl<T> Drop for Reply<T> {
    fn drop(&mut self) {
        // The old contents of the cell are dropped after its lock is released.
        let _state = mem::replace(&mut *self.cell.lock(), CellState::Abandoned);
    }
}

impl<T> ReplyCell<T> {
    /// Stores the answer and wakes the waiter. Only the first answer counts.
    pub(crate) fn fill(&self, answer: T) {
        let mut state = self.lock();
        match mem::replace(&mut *state, CellState::Taken) {
            CellState::Empty => *state = CellState::Full(answer),
            CellState::Waiting(waker) => {
                *state = CellState::Full(answer);
                drop(state);
                waker.wake();
            }
            other => *state = other,
        }
    }

    fn lock(&self) -> MutexGuard<'_, CellState<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Send> Recipient for ReplyCell<T> {
    fn receive(&self, outcome: Outcome<'_>) {
        self.fill((self.read)(outcome));
    }

    fn is_waiting(&self) -> bool {
        !matches!(*self.lock(), CellState::Abandoned)
    }
}

/// Wakes a parked thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn len(outcome: Outcome<'_>) -> usize {
        outcome.map_or(0, <[u8]>::len)
    }

    #[test]
    fn an_answer_is_taken_before_and_after_it_is_awaited() {
        let (reply, cell) = Reply::pending(len);
        cell.receive(Ok(b"one"));
        cell.receive(Ok(b"another"));
        assert_eq!(reply.wait(), 3);

        let (reply, cell) = Reply::pending(len);
        let waiting = thread::spawn(move || reply.wait());
        cell.receive(Ok(b"late"));
        assert_eq!(waiting.join().unwrap(), 4);
    }

    #[test]
    fn a_dropped_reply_is_not_awaited() {
        let (reply, cell) = Reply::pending(len);
        assert!(cell.is_waiting());
        drop(reply);
        assert!(!cell.is_waiting());
        cell.receive(Ok(b"nobody"));
    }
}
