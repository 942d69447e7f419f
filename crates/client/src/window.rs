//! The window: the queue of requests from all threads, with a limit.
//!
//! - At most `max_inflight` requests are in flight: made and not completed. A request is completed when its callback
//!   is called.
//! - The calling threads encode requests into one shared buffer, which the I/O thread takes as is. Requests made
//!   while that thread is busy share one write.
//! - The I/O thread is woken only if it sleeps, by the first request after it fell asleep.
//! - Threads, and requests of futures, that find the window full wait in line and are served in order. Invariant:
//!   while a request waits, the window is full.
//! - A callback must not wait, since it runs on the thread that makes room. It may use the slot of the request that
//!   it completes: see [`Window::credits`].

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use crate::callback::{Callback, Outcome, Recipient};
use crate::error::Error;
use crate::reply::{Reply, ReplyCell};
use crate::wakeup::Wakeup;

/// Permission to send a request again after it was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// Allowed: the outcome is the same.
    Yes,
    /// Forbidden: it may have been executed, and must not be a second time.
    No,
}

/// A request: its range in the bytes of its batch, and the waiter for the answer.
pub(crate) struct Submitted {
    pub(crate) offset: usize,
    pub(crate) len: usize,
    pub(crate) repeat: Repeat,
    /// Number of replies in the answer.
    pub(crate) replies: u32,
    pub(crate) callback: Callback,
}

/// Requests, encoded one after the other.
#[derive(Default)]
pub(crate) struct Submission {
    pub(crate) bytes: Vec<u8>,
    pub(crate) requests: Vec<Submitted>,
}

/// Waiter for room in the window.
enum Waiter {
    /// A thread. It gets its slot before it is woken.
    Thread(Arc<ReplyCell<Result<(), Error>>>),
    /// A task that asks to be told about room. It gets no slot.
    Ready(Arc<ReplyCell<Result<(), Error>>>),
    /// A request of a future. It is dropped if the future is.
    Request { bytes: Vec<u8>, repeat: Repeat, replies: u32, callback: Callback },
}

/// State of the connection, for callers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum LinkStatus {
    /// An attempt to connect is in progress, the first one since the start or since the connection was lost.
    #[default]
    Connecting,
    /// There is a connection.
    Up,
    /// There is no connection, for this reason. The client keeps trying.
    Down(Error),
}

#[derive(Default)]
struct WindowState {
    batch: Submission,
    /// Number of requests in flight, and of slots given to waiting threads.
    outstanding: usize,
    waiters: VecDeque<Waiter>,
    /// Length of the line at which abandoned waiters are removed.
    sweep_at: usize,
    is_closed: bool,
    link: LinkStatus,
}

/// Converts the outcome for a waiter for room.
fn room(outcome: Outcome<'_>) -> Result<(), Error> {
    outcome.map(|_| ())
}

/// Minimum length of the line for removing abandoned waiters.
const SWEEP_MIN: usize = 64;

pub(crate) struct Window {
    state: Mutex<WindowState>,
    max_inflight: usize,
    /// Number of requests completed since the I/O thread last returned their slots. A callback may use one of these
    /// slots at once. Only the I/O thread writes it.
    credits: AtomicUsize,
    io_thread: OnceLock<ThreadId>,
    /// True if the I/O thread must be woken. It is set under the lock, after the thread found no requests. It is read
    /// under the lock, after a request was added. So no request is missed. A thread that still reads true just after
    /// the wakeup causes one needless wakeup.
    is_asleep: AtomicBool,
    wakeup: Wakeup,
    /// Notified when `link` or `is_closed` changes, and when the last request is completed.
    changed: Condvar,
}

/// Result of taking the requests, for the I/O thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exchanged {
    pub(crate) is_closed: bool,
    /// True if the next request will wake the I/O thread.
    pub(crate) is_asleep: bool,
}

impl Window {
    pub(crate) fn new(max_inflight: usize, wakeup: Wakeup) -> Window {
        Window {
            state: Mutex::default(),
            max_inflight,
            credits: AtomicUsize::new(0),
            io_thread: OnceLock::new(),
            is_asleep: AtomicBool::new(false),
            wakeup,
            changed: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, WindowState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a slot in the window; blocks while there is none.
    ///
    /// # Errors
    /// `Closed`, or `WindowFull` in a callback.
    #[inline]
    pub(crate) fn enter(&self) -> Result<Entry<'_>, Error> {
        match self.try_enter() {
            Err(Error::WindowFull) if !self.is_io_thread() => self.enter_in_turn(),
            other => other,
        }
    }

    /// Returns a slot in the window, if there is one.
    ///
    /// # Errors
    /// `Closed` or `WindowFull`.
    #[inline]
    pub(crate) fn try_enter(&self) -> Result<Entry<'_>, Error> {
        let mut state = self.lock();
        if state.is_closed {
            return Err(Error::Closed);
        }
        if state.outstanding < self.max_inflight {
            state.outstanding += 1;
        } else if !self.take_credit() {
            return Err(Error::WindowFull);
        }
        Ok(Entry { window: self, state })
    }

    fn is_io_thread(&self) -> bool {
        self.io_thread.get() == Some(&thread::current().id())
    }

    /// For a callback: takes the slot of a request that was just completed.
    fn take_credit(&self) -> bool {
        if !self.is_io_thread() {
            return false;
        }
        let credits = self.credits.load(Ordering::Relaxed);
        self.credits.store(credits.saturating_sub(1), Ordering::Relaxed);
        credits > 0
    }

    #[cold]
    fn enter_in_turn(&self) -> Result<Entry<'_>, Error> {
        let (slot, cell) = Reply::pending(room);
        {
            let mut state = self.lock();
            if state.is_closed {
                return Err(Error::Closed);
            }
            if state.outstanding < self.max_inflight {
                state.outstanding += 1;
                return Ok(Entry { window: self, state });
            }
            state.wait_in_line(Waiter::Thread(cell));
        }
        slot.wait()?;
        Ok(Entry { window: self, state: self.lock() })
    }

    /// Makes a request now, or puts it in line. Never blocks.
    pub(crate) fn submit(
        &self,
        encode: impl FnOnce(&mut Vec<u8>) -> Result<(), Error>,
        repeat: Repeat,
        replies: u32,
        callback: Callback,
    ) {
        match self.try_enter() {
            Ok(entry) => entry.send(encode, repeat, replies, callback),
            Err(Error::WindowFull) => {
                let mut bytes = Vec::new();
                match encode(&mut bytes) {
                    Ok(()) => {
                        self.park(Waiter::Request { bytes, repeat, replies, callback });
                    }
                    Err(error) => callback.call(Err(error)),
                }
            }
            Err(error) => callback.call(Err(error)),
        }
    }

    /// Becomes ready as soon as there is room.
    pub(crate) fn ready(&self) -> Reply<Result<(), Error>> {
        let (reply, cell) = Reply::pending(room);
        self.park(Waiter::Ready(cell));
        reply
    }

    /// Puts a waiter at the end of the line. It is served at once if there is room after all.
    #[cold]
    fn park(&self, waiter: Waiter) {
        let mut state = self.lock();
        if state.is_closed {
            drop(state);
            return waiter.refuse(&Error::Closed);
        }
        state.wait_in_line(waiter);
        let served = state.admit(self.max_inflight);
        self.unlock_and_wake(state);
        served.into_iter().for_each(|cell| cell.fill(Ok(())));
    }

    #[inline]
    fn unlock_and_wake(&self, state: MutexGuard<'_, WindowState>) {
        let must_wake = self.is_asleep.load(Ordering::Relaxed) && !state.batch.requests.is_empty();
        if must_wake {
            self.is_asleep.store(false, Ordering::Relaxed);
        }
        drop(state);
        if must_wake {
            self.wakeup.notify();
        }
    }

    /// Refuses further requests and fails those in line. The I/O thread will complete the others.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        let waiters = std::mem::take(&mut state.waiters);
        drop(state);
        self.changed.notify_all();
        self.wakeup.notify();
        waiters.into_iter().for_each(|waiter| waiter.refuse(&Error::Closed));
    }

    /// Blocks until nothing is in flight, at most `within`. Returns true if nothing is in flight.
    pub(crate) fn wait_idle(&self, within: Duration) -> bool {
        self.wait_until(within, |state| state.outstanding == 0 || state.is_closed);
        self.lock().outstanding == 0
    }

    /// Blocks until there is a connection or an attempt has failed, at most `within`.
    pub(crate) fn wait_link(&self, within: Duration) -> LinkStatus {
        self.wait_until(within, |state| state.link != LinkStatus::Connecting || state.is_closed);
        self.link()
    }

    fn wait_until(&self, within: Duration, condition: impl Fn(&WindowState) -> bool) {
        let until = Instant::now().checked_add(within);
        let mut state = self.lock();
        while !condition(&state) {
            let left =
                until.map_or(within, |until| until.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return;
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    pub(crate) fn link(&self) -> LinkStatus {
        self.lock().link.clone()
    }

    pub(crate) fn outstanding(&self) -> usize {
        self.lock().outstanding
    }

    #[cfg(test)]
    pub(crate) fn is_closed(&self) -> bool {
        self.lock().is_closed
    }
}

/// Methods of the I/O thread.
impl Window {
    /// Marks the calling thread as the one whose callbacks must not wait.
    pub(crate) fn adopt_io_thread(&self) {
        let _ = self.io_thread.set(thread::current().id());
    }

    pub(crate) fn wakeup(&self) -> &Wakeup {
        &self.wakeup
    }

    /// Makes the slot of a request available again. Must be called before its callback.
    #[inline]
    pub(crate) fn complete_one(&self) {
        self.credits.store(self.credits.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Returns the slots of completed requests, admits waiters, and takes all requests into `batch`, which must be
    /// empty. If there are none, the thread may fall asleep.
    pub(crate) fn exchange(&self, batch: &mut Submission) -> Exchanged {
        debug_assert!(batch.requests.is_empty() && batch.bytes.is_empty());
        let credits = self.credits.load(Ordering::Relaxed);
        self.credits.store(0, Ordering::Relaxed);
        let mut state = self.lock();
        state.outstanding -= credits;
        let served = state.admit(self.max_inflight);
        std::mem::swap(batch, &mut state.batch);
        let is_asleep = batch.requests.is_empty() && !state.is_closed;
        self.is_asleep.store(is_asleep, Ordering::Relaxed);
        let exchanged = Exchanged { is_closed: state.is_closed, is_asleep };
        let is_idle = credits > 0 && state.outstanding == 0;
        drop(state);
        served.into_iter().for_each(|cell| cell.fill(Ok(())));
        if is_idle {
            self.changed.notify_all();
        }
        exchanged
    }

    /// Notes that the I/O thread is awake. It will look for requests before it sleeps again.
    pub(crate) fn wake_up(&self) {
        self.is_asleep.store(false, Ordering::Relaxed);
    }

    /// Returns true if there are slots to return.
    pub(crate) fn has_credits(&self) -> bool {
        self.credits.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn set_link(&self, link: LinkStatus) {
        self.lock().link = link;
        self.changed.notify_all();
    }
}

impl WindowState {
    fn wait_in_line(&mut self, waiter: Waiter) {
        if self.waiters.len() >= self.sweep_at.max(SWEEP_MIN) {
            // Abandoned tasks must not make the line grow.
            self.waiters.retain(Waiter::is_wanted);
            self.sweep_at = self.waiters.len() * 2;
        }
        self.waiters.push_back(waiter);
    }

    /// Admits waiters while there is room. Returns those to notify, so that no waiter is woken under the lock.
    fn admit(&mut self, max_inflight: usize) -> Vec<Arc<ReplyCell<Result<(), Error>>>> {
        let mut served = Vec::new();
        while self.outstanding < max_inflight {
            match self.waiters.pop_front() {
                None => break,
                Some(Waiter::Ready(cell)) => served.push(cell),
                Some(Waiter::Thread(cell)) => {
                    self.outstanding += 1;
                    served.push(cell);
                }
                Some(Waiter::Request { bytes, repeat, replies, callback }) => {
                    if callback.is_wanted() {
                        self.outstanding += 1;
                        let offset = self.batch.bytes.len();
                        self.batch.bytes.extend_from_slice(&bytes);
                        self.push(offset, repeat, replies, callback);
                    }
                }
            }
        }
        served
    }

    /// Adds the request whose bytes are at the end of the batch.
    #[inline]
    fn push(&mut self, offset: usize, repeat: Repeat, replies: u32, callback: Callback) {
        let len = self.batch.bytes.len() - offset;
        self.batch.requests.push(Submitted { offset, len, repeat, replies, callback });
    }
}

impl Waiter {
    fn is_wanted(&self) -> bool {
        match self {
            Waiter::Thread(_) => true,
            Waiter::Ready(cell) => cell.is_waiting(),
            Waiter::Request { callback, .. } => callback.is_wanted(),
        }
    }

    fn refuse(self, error: &Error) {
        match self {
            Waiter::Thread(cell) | Waiter::Ready(cell) => cell.fill(Err(error.clone())),
            Waiter::Request { callback, .. } => callback.call(Err(error.clone())),
        }
    }
}

/// A slot in the window. While it lives, only its owner can make a request.
pub(crate) struct Entry<'a> {
    window: &'a Window,
    state: MutexGuard<'a, WindowState>,
}

impl Entry<'_> {
    /// Makes the request. If it cannot be encoded, its callback is called with the reason.
    #[inline]
    pub(crate) fn send(
        mut self,
        encode: impl FnOnce(&mut Vec<u8>) -> Result<(), Error>,
        repeat: Repeat,
        replies: u32,
        callback: Callback,
    ) {
        let offset = self.state.batch.bytes.len();
        let is_closed = self.state.is_closed;
        let encoded = match is_closed {
            true => Err(Error::Closed),
            false => encode(&mut self.state.batch.bytes),
        };
        match encoded {
            Ok(()) => {
                self.state.push(offset, repeat, replies, callback);
                self.window.unlock_and_wake(self.state);
            }
            Err(error) => {
                self.state.batch.bytes.truncate(offset);
                self.state.outstanding -= 1;
                let served = self.state.admit(self.window.max_inflight);
                self.window.unlock_and_wake(self.state);
                served.into_iter().for_each(|cell| cell.fill(Ok(())));
                callback.call(Err(error));
            }
        }
    }
}
