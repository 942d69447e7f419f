//! The window: where requests of all threads meet and wait for room.
//!
//! - At most `max_inflight` requests are in flight: made and not completed. A request is completed when its callback
//!   is called.
//! - The calling threads encode requests, one behind the other into one buffer, which the I/O thread takes as is.
//!   Requests made while it is busy leave in one write.
//! - The I/O thread is woken only if it sleeps, by the first request after it fell asleep.
//! - Threads, and requests of futures, that find the window full wait in line and are served in turn. Invariant:
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

/// Whether a request may be made a second time after it has been sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// It may: the outcome is the same.
    Yes,
    /// It may have been carried out, and must not be a second time.
    No,
}

/// A request that was made: its range in the bytes of its batch, and the waiter for the answer.
pub(crate) struct Submitted {
    pub(crate) offset: usize,
    pub(crate) len: usize,
    pub(crate) repeat: Repeat,
    /// Replies that make the answer.
    pub(crate) replies: u32,
    pub(crate) callback: Callback,
}

/// Requests, encoded one behind the other.
#[derive(Default)]
pub(crate) struct Submission {
    pub(crate) bytes: Vec<u8>,
    pub(crate) requests: Vec<Submitted>,
}

/// Who waits for room.
enum Waiter {
    /// A thread. Its slot is taken before it is woken.
    Thread(Arc<ReplyCell<Result<(), Error>>>),
    /// A task that wants to know when there is room, and takes none.
    Ready(Arc<ReplyCell<Result<(), Error>>>),
    /// A request of a future, which is dropped if the future is.
    Request { bytes: Vec<u8>, repeat: Repeat, replies: u32, callback: Callback },
}

/// How the connection is, for those who want to know.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum LinkStatus {
    /// An attempt to connect is under way, the first one since the start or since the connection was
    /// lost.
    #[default]
    Connecting,
    /// There is a connection.
    Up,
    /// There is none, for this reason; the client goes on trying.
    Down(Error),
}

#[derive(Default)]
struct WindowState {
    batch: Submission,
    /// Requests in flight, and slots that were given to threads that wait.
    outstanding: usize,
    waiters: VecDeque<Waiter>,
    /// Length of the line at which those are removed that are no longer wanted.
    sweep_at: usize,
    is_closed: bool,
    link: LinkStatus,
}

/// What those are told who wait for room.
fn room(outcome: Outcome<'_>) -> Result<(), Error> {
    outcome.map(|_| ())
}

/// The shortest line that is swept.
const SWEEP_MIN: usize = 64;

pub(crate) struct Window {
    state: Mutex<WindowState>,
    max_inflight: usize,
    /// Requests that were completed since the I/O thread last gave their slots back. A callback
    /// may use one of these slots at once. Written by the I/O thread only.
    credits: AtomicUsize,
    io_thread: OnceLock<ThreadId>,
    /// Whether the I/O thread has to be woken. Becomes true under the lock, after it found no
    /// requests there, and is read under the lock, after a request was put there: so none is missed.
    /// A thread that still reads true when the I/O thread has just woken up rings once too often.
    is_asleep: AtomicBool,
    wakeup: Wakeup,
    /// Notified when `link` or `is_closed` changes, and when the last request is completed.
    changed: Condvar,
}

/// What the I/O thread learns when it takes the requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exchanged {
    pub(crate) is_closed: bool,
    /// The next request will notify it.
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

    /// A slot in the window; blocks while there is none.
    ///
    /// # Errors
    /// `Closed`, and `WindowFull` in a callback.
    #[inline]
    pub(crate) fn enter(&self) -> Result<Entry<'_>, Error> {
        match self.try_enter() {
            Err(Error::WindowFull) if !self.is_io_thread() => self.enter_in_turn(),
            other => other,
        }
    }

    /// A slot in the window, if there is one.
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

    /// Takes the slot of a request that was just completed, if a callback asks.
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

    /// Makes a request now, or has it wait in line. Never blocks.
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

    /// Puts a waiter at the end of the line, where it is served at once if there is room after all.
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

    /// No more requests from now on, and those that wait in line fail. The I/O thread will complete
    /// the others.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        let waiters = std::mem::take(&mut state.waiters);
        drop(state);
        self.changed.notify_all();
        self.wakeup.notify();
        waiters.into_iter().for_each(|waiter| waiter.refuse(&Error::Closed));
    }

    /// Blocks until nothing is in flight, or so much time has passed. Whether nothing is in flight.
    pub(crate) fn wait_idle(&self, within: Duration) -> bool {
        self.wait_until(within, |state| state.outstanding == 0 || state.is_closed);
        self.lock().outstanding == 0
    }

    /// Blocks until there is a connection, an attempt has failed, or so much time has passed.
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

/// What the I/O thread does.
impl Window {
    /// Declares the calling thread the one whose callbacks must not wait.
    pub(crate) fn adopt_io_thread(&self) {
        let _ = self.io_thread.set(thread::current().id());
    }

    pub(crate) fn wakeup(&self) -> &Wakeup {
        &self.wakeup
    }

    /// The slot of a request may be used again; to be called before its callback.
    #[inline]
    pub(crate) fn complete_one(&self) {
        self.credits.store(self.credits.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Gives back the slots of completed requests, lets those in who wait, and takes all requests
    /// into `batch`, which must be empty. If there are none, the thread may fall asleep.
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

    /// The I/O thread is awake, and will look for requests before it sleeps again.
    pub(crate) fn wake_up(&self) {
        self.is_asleep.store(false, Ordering::Relaxed);
    }

    /// Whether slots are to be given back.
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
            // Tasks that come and go without ever getting in must not make the line grow.
            self.waiters.retain(Waiter::is_wanted);
            self.sweep_at = self.waiters.len() * 2;
        }
        self.waiters.push_back(waiter);
    }

    /// Lets waiters in, as long as there is room. Those to be told are returned, so that no waiter
    /// is woken while the lock is held.
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

/// A slot in the window, and the right to make a request now. While it lives, only its owner can.
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
