//! A queue from any thread to one worker.
//!
//! - Mail of one sender arrives in the order it was posted.
//! - An eventfd wakes the worker only if it sleeps, and once for all mail: a busy worker checks its mailbox
//!   every turn anyway.
//! - A mailbox is unbounded; senders post in response to bounded work.
//!
//! # Thread safety
//!
//! No wake-up is lost: the worker announces its sleep before it checks the mailbox for the last time, and a
//! sender posts before it checks for a sleeper. With sequentially consistent operations on both flags, at least
//! one of them sees the other.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use rustix::event::{EventfdFlags, eventfd};

/// Queue with the means to wake its reader.
#[derive(Debug)]
pub(crate) struct Mailbox<T> {
    queue: Mutex<Vec<T>>,
    has_mail: AtomicBool,
    sleeping: AtomicBool,
    wake: OwnedFd,
}

impl<T> Mailbox<T> {
    pub(crate) fn new() -> rustix::io::Result<Mailbox<T>> {
        Ok(Mailbox {
            queue: Mutex::new(Vec::new()),
            has_mail: AtomicBool::new(false),
            sleeping: AtomicBool::new(false),
            wake: eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?,
        })
    }

    /// Appends, and wakes the reader if it sleeps.
    pub(crate) fn post(&self, mail: T) {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).push(mail);
        self.has_mail.store(true, Ordering::SeqCst);
        // Of several senders only the first sees the sleeper and makes the system call.
        if self.sleeping.load(Ordering::SeqCst) && self.sleeping.swap(false, Ordering::SeqCst) {
            self.wake();
        }
    }

    fn wake(&self) {
        // The counter cannot overflow: it is reset by every wake-up. Nothing else can fail.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    /// Called by the reader before it waits. False if there is mail, and it must not wait.
    pub(crate) fn fall_asleep(&self) -> bool {
        self.sleeping.store(true, Ordering::SeqCst);
        if self.has_mail.load(Ordering::SeqCst) {
            self.sleeping.store(false, Ordering::SeqCst);
            return false;
        }
        true
    }

    /// Called by the reader after it has waited.
    pub(crate) fn wake_up(&self) {
        // A sender that still sees the sleeper only writes once too often.
        self.sleeping.store(false, Ordering::Relaxed);
    }

    /// Moves all mail to the end of `into`.
    pub(crate) fn take(&self, into: &mut Vec<T>) {
        if !self.has_mail() {
            return;
        }
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        self.has_mail.store(false, Ordering::SeqCst);
        into.append(&mut queue);
    }

    /// Returns true if there is mail to take.
    #[inline]
    pub(crate) fn has_mail(&self) -> bool {
        self.has_mail.load(Ordering::Relaxed)
    }

    /// Returns the descriptor that becomes readable when the sleeping reader should wake up.
    pub(crate) fn wake_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// Makes the descriptor unreadable again.
    pub(crate) fn reset_wake_fd(&self) {
        // This fails only if it was not readable, which is harmless.
        let _ = rustix::io::read(&self.wake, &mut [0u8; 8]);
    }
}
