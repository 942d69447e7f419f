//! Asynchronous reads by io_uring.
//!
//! The invariants of the unsafe code:
//! * While the kernel may write into a buffer, a slot of the ring owns the buffer and the open file, and nothing
//!   else touches them. A slot is freed when the completion of its read is taken.
//! * Dropping a ring cancels what it can and waits for the rest. If waiting fails, the slots are leaked.
//! * There are as many slots as submissions fit, and room for twice as many completions, so neither queue
//!   overflows.
#![allow(unsafe_code, reason = "memory that the kernel writes to; the invariants are above")]

use super::{DEPTH_MAX, Done, Job};
use crate::disk::DIRECT_ALIGNMENT;
use io_uring::{IoUring, Probe, opcode, types};
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd};

/// A ring, for the thread that created it.
pub(super) struct Ring {
    ring: IoUring,
    slots: Vec<Option<Slot>>,
    free: Vec<usize>,
    /// Slots whose submission the kernel has not seen yet, oldest first.
    queued: Vec<usize>,
    /// Reads that ended without a completion.
    failed: Vec<Done>,
    /// The kernel accepts no more reads. It completes those that it has.
    is_broken: bool,
    /// The kernel wakes the thread that submits.
    not_send: PhantomData<*const ()>,
}

/// A read in flight.
struct Slot {
    /// `None` after the caller was told of a failure, when only the memory is still needed.
    token: Option<u32>,
    job: Job,
    /// Number of bytes read so far, at the beginning of the span.
    read: usize,
}

impl Ring {
    /// # Errors
    /// The kernel's error if it does not know or allow io_uring, or has no memory for it.
    pub(super) fn new() -> io::Result<Self> {
        let entries = DEPTH_MAX as u32;
        // The kernel posts completions when this thread enters it anyway, and wakes the thread from sleep, but
        // does not interrupt it (Linux 5.19). A ring that posts completions only on request would cost less, but
        // it does not wake threads that sleep on its descriptor.
        let cooperative =
            IoUring::builder().setup_coop_taskrun().setup_taskrun_flag().build(entries);
        let ring = match cooperative {
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => IoUring::new(entries)?,
            ring => ring?,
        };
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        if !probe.is_supported(opcode::Read::CODE) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        Ok(Ring {
            ring,
            slots: (0..DEPTH_MAX).map(|_| None).collect(),
            free: (0..DEPTH_MAX).rev().collect(),
            queued: Vec::new(),
            failed: Vec::new(),
            is_broken: false,
            not_send: PhantomData,
        })
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        // SAFETY: the ring keeps the descriptor open as long as it lives, and the borrow is tied to it.
        unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) }
    }

    /// Queues a read. Returns it if there is no room.
    pub(super) fn begin(&mut self, job: Job) -> Result<(), Job> {
        let Some(index) = self.free.pop_if(|_| !self.is_broken) else { return Err(job) };
        self.slots[index] = Some(Slot { token: Some(job.token), job, read: 0 });
        self.queue(index);
        Ok(())
    }

    /// Queues the rest of the read in a slot.
    fn queue(&mut self, index: usize) {
        let Some(slot) = &mut self.slots[index] else { return };
        let Some(file) = slot.job.file.descriptor() else { return };
        let fd = types::Fd(file.as_raw_fd());
        let position = slot.job.span.first + slot.read as u64;
        let room = &mut slot.job.span.room(&mut slot.job.buf)[slot.read..];
        let read = opcode::Read::new(fd, room.as_mut_ptr(), room.len() as u32).offset(position);
        let entry = read.build().user_data(index as u64);
        // SAFETY: file and buffer are in the slot, and by the invariants at the head of this file they stay
        // there, untouched, until the kernel has finished; the length is that of the buffer.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        match pushed {
            Ok(()) => self.queued.push(index),
            // There are as many entries as slots, so this does not happen.
            Err(_) => self.fail(index, io::ErrorKind::QuotaExceeded.into(), true),
        }
    }

    /// Submits the queued reads, and makes the kernel post completions. Returns `false` if the kernel was too
    /// busy to take all of them.
    pub(super) fn submit(&mut self) -> bool {
        let has_work = !self.queued.is_empty() || self.ring.submission().taskrun();
        if !has_work {
            return true;
        }
        match self.ring.submit() {
            // Entries that have failed may be submitted now; their memory still exists.
            Ok(_) if self.is_broken => true,
            Ok(taken) => {
                self.queued.drain(..taken.min(self.queued.len()));
                self.queued.is_empty()
            }
            Err(error) if is_passing(&error) => false,
            Err(error) => {
                self.give_up(&error);
                true
            }
        }
    }

    /// Fails all queued reads, because the kernel takes no more. Their entries stay, and so does their memory.
    pub(super) fn give_up(&mut self, error: &io::Error) {
        self.is_broken = true;
        for index in std::mem::take(&mut self.queued) {
            let error =
                error.raw_os_error().map_or(error.kind().into(), io::Error::from_raw_os_error);
            self.fail(index, error, false);
        }
    }

    /// Reports to the caller that a read has failed.
    fn fail(&mut self, index: usize, error: io::Error, frees: bool) {
        let Some(slot) = &mut self.slots[index] else { return };
        if let Some(token) = slot.token.take() {
            self.failed.push(Done { token, buf: Default::default(), result: Err(error) });
        }
        if frees {
            self.slots[index] = None;
            self.free.push(index);
        }
    }

    /// Moves all ended reads to `into`. Returns true if short reads were queued again to be continued.
    pub(super) fn take(&mut self, into: &mut Vec<Done>) -> bool {
        into.append(&mut self.failed);
        loop {
            let Some(entry) = self.ring.completion().next() else { break };
            self.complete(entry.user_data() as usize, entry.result(), into);
        }
        into.append(&mut self.failed);
        !self.queued.is_empty()
    }

    /// Ends the kernel's work on a slot. `result` is a number of bytes, or a negative error number.
    fn complete(&mut self, index: usize, result: i32, into: &mut Vec<Done>) {
        let Some(slot) = self.slots.get_mut(index).and_then(Option::as_mut) else { return };
        let outcome = match usize::try_from(result) {
            Ok(more) => {
                slot.read += more;
                let is_whole = slot.read >= slot.job.span.len;
                // A direct read that ends inside a block is at the end of the file.
                let is_direct = slot.job.file.is_direct();
                let is_at_end =
                    more == 0 || is_direct && !slot.read.is_multiple_of(DIRECT_ALIGNMENT);
                (is_whole || is_at_end).then_some(Ok(slot.read))
            }
            Err(_) => {
                let error = io::Error::from_raw_os_error(-result);
                (!is_passing(&error)).then_some(Err(error))
            }
        };
        match outcome {
            None if slot.token.is_some() && !self.is_broken => self.queue(index),
            outcome => {
                let Some(slot) = self.slots[index].take() else { return };
                self.free.push(index);
                if slot.token.is_some() {
                    let read = outcome.unwrap_or_else(|| Err(io::ErrorKind::Interrupted.into()));
                    into.push(slot.job.done(read));
                }
            }
        }
    }

    fn is_idle(&self) -> bool {
        self.free.len() == self.slots.len()
    }
}

/// Returns true if the call can be tried again.
fn is_passing(error: &io::Error) -> bool {
    let code = error.raw_os_error();
    code.is_some_and(|code| [libc::EINTR, libc::EAGAIN, libc::EBUSY].contains(&code))
}

impl Drop for Ring {
    fn drop(&mut self) {
        // The results are no longer delivered.
        for slot in self.slots.iter_mut().flatten() {
            slot.token = None;
        }
        let mut into = Vec::new();
        while !self.is_idle() {
            // Reads of files cannot be cancelled and end by themselves; those of pipes can be cancelled.
            let all = types::CancelBuilder::any();
            let _ = self.ring.submit();
            let _ = self.ring.submitter().register_sync_cancel(None, all);
            match self.ring.submit_and_wait(1) {
                Ok(_) => {
                    self.take(&mut into);
                }
                Err(error) if is_passing(&error) => {
                    self.take(&mut into);
                }
                Err(_) => {
                    std::mem::forget(std::mem::take(&mut self.slots));
                    return;
                }
            }
        }
    }
}
