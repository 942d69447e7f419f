//! Tests of the ring with files that behave oddly. Common behaviour of both drivers is tested in
//! `tests/cold_reads.rs`.

use super::ring::Ring;
use super::{Done, Job, Span};
use crate::disk::DiskFile;
use crate::disk::span::ReadBuf;
use rustix::event::{PollFd, PollFlags, poll};
use std::io::{self, IoSlice, PipeReader, PipeWriter, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

/// A pipe: the test decides when a read ends, and with how many bytes.
struct PipeFile(PipeReader);

impl DiskFile for PipeFile {
    fn read_at(&self, _: &mut [u8], _: u64) -> io::Result<usize> {
        unreachable!("the kernel reads")
    }
    fn write_all_at(&self, _: &[IoSlice<'_>], _: u64) -> io::Result<()> {
        unreachable!("it is for reading")
    }
    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }
    fn truncate(&self, _: u64) -> io::Result<()> {
        Ok(())
    }
    fn reserve(&self, _: u64) -> io::Result<()> {
        Ok(())
    }
    fn size(&self) -> io::Result<u64> {
        Ok(0)
    }
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0.as_fd())
    }
}

/// Returns a ring, or `None` if the kernel has none.
fn ring() -> Option<Ring> {
    Ring::new().inspect_err(|error| eprintln!("without io_uring: {error}")).ok()
}

fn pipe() -> (Arc<dyn DiskFile>, PipeWriter) {
    let (reader, writer) = io::pipe().unwrap();
    (Arc::new(PipeFile(reader)), writer)
}

fn job(token: u32, file: &Arc<dyn DiskFile>, len: usize) -> Job {
    let span = Span::of(&**file, 0, len);
    Job { token, file: Arc::clone(file), span, buf: ReadBuf::default() }
}

/// Returns the only read that ends.
fn take_one(ring: &mut Ring) -> Done {
    let mut done = take_some(ring);
    assert_eq!(done.len(), 1);
    done.remove(0)
}

/// Waits until at least one read has ended, and returns the ended reads.
fn take_some(ring: &mut Ring) -> Vec<Done> {
    let mut done = Vec::new();
    loop {
        assert!(ring.submit());
        let is_continued = ring.take(&mut done);
        if !done.is_empty() {
            return done;
        }
        if is_continued {
            continue;
        }
        // An interruption is as good as an event: the kernel interrupts when it begins to watch a ring.
        let _ = poll(&mut [PollFd::from_borrowed_fd(ring.descriptor(), PollFlags::IN)], None);
    }
}

#[test]
fn a_short_read_is_continued_until_all_is_there_or_the_end() {
    let Some(mut ring) = ring() else { return };
    let (file, mut writer) = pipe();
    assert!(ring.begin(job(1, &file, 10)).is_ok());
    for part in [b"red", b"ros"] {
        writer.write_all(part).unwrap();
        assert!(ring.submit());
        ring.take(&mut Vec::new());
    }
    writer.write_all(b"e.wh").unwrap();
    let done = take_one(&mut ring);
    assert!(done.token == 1 && done.result.is_ok() && done.buf.as_slice() == b"redrose.wh");
    assert!(ring.begin(job(2, &file, 10)).is_ok());
    writer.write_all(b"ite").unwrap();
    drop(writer);
    let done = take_one(&mut ring);
    assert!(done.token == 2 && done.result.is_ok() && done.buf.as_slice() == b"ite");
}

#[test]
fn a_ring_that_goes_waits_for_nobody_who_never_comes() {
    let Some(mut ring) = ring() else { return };
    let (file, writer) = pipe();
    for token in 0..5 {
        assert!(ring.begin(job(token, &file, 100)).is_ok());
        ring.submit();
    }
    // The kernel has not seen this read.
    assert!(ring.begin(job(5, &file, 100)).is_ok());
    drop(ring);
    drop(writer);
    assert_eq!(Arc::strong_count(&file), 1, "files are let go");
}

#[test]
fn there_is_room_for_so_many_reads_and_no_more() {
    let Some(mut ring) = ring() else { return };
    let (file, writer) = pipe();
    let count = super::DEPTH_MAX as u32;
    assert!((0..count).all(|token| ring.begin(job(token, &file, 1)).is_ok()));
    assert!(ring.begin(job(count, &file, 1)).is_err_and(|job| job.token == count));
    drop(writer);
    let mut tokens = Vec::new();
    while tokens.len() < count as usize {
        tokens.extend(take_some(&mut ring).into_iter().map(|done| done.token));
    }
    tokens.sort_unstable();
    assert!(tokens.into_iter().eq(0..count));
    assert!(ring.begin(job(count, &file, 1)).is_ok());
}

#[test]
fn a_ring_that_breaks_tells_everybody() {
    let Some(mut ring) = ring() else { return };
    let ((file, mut writer), (other, _other_writer)) = (pipe(), pipe());
    assert!(ring.begin(job(1, &file, 4)).is_ok());
    assert!(ring.submit());
    assert!(ring.begin(job(2, &other, 4)).is_ok());
    ring.give_up(&io::ErrorKind::OutOfMemory.into());
    assert!(ring.begin(job(3, &file, 4)).is_err());
    let done = take_one(&mut ring);
    assert!(done.token == 2 && done.result.is_err());
    // The kernel completes the reads that it has.
    writer.write_all(b"wine").unwrap();
    let done = take_one(&mut ring);
    assert!(done.token == 1 && done.buf.as_slice() == b"wine");
}
