//! Spare file descriptors for the log.
//!
//! Connections and readers can exhaust a process's descriptors, and the log could then not open its next file
//! although the disk is fine. So a few descriptors are kept open on the null device. If opening a file for
//! writing finds none left, one of them is closed. When such a file is closed, `dup3` returns its number to
//! the null device in one step, so that no other thread takes it in between.

use parking_lot::Mutex;
use rustix::fs::{self, Mode, OFlags};
use rustix::io::{DupFlags, Errno};
use std::fs::File;
use std::os::fd::OwnedFd;

/// Number of spare descriptors. A store has two or three files open for a moment when it begins a segment and
/// replaces its manifest. Some more are kept because another thread may take a closed one first.
const KEPT: usize = 8;

/// The reserve of the process. The limit and the locks belong to the process too.
static RESERVE: Reserve = Reserve { kept: Mutex::new(Vec::new()) };

struct Reserve {
    kept: Mutex<Vec<OwnedFd>>,
}

/// Fills the reserve, as far as descriptors are available.
pub(super) fn fill() {
    RESERVE.fill(null);
}

/// Opens something for writing, with a descriptor of the reserve if there is no other.
///
/// # Errors
/// The error of `open`; a lack of descriptors only when the reserve is used up.
pub(super) fn open<T>(open: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    RESERVE.open(open)
}

/// Closes a file. Keeps its descriptor if the reserve lacks one.
pub(super) fn close(file: File) {
    RESERVE.close(file.into());
}

fn null() -> Result<OwnedFd, Errno> {
    fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
}

impl Reserve {
    fn fill(&self, mut null: impl FnMut() -> Result<OwnedFd, Errno>) {
        let mut kept = self.kept.lock();
        while kept.len() < KEPT {
            let Ok(descriptor) = null() else { return };
            kept.push(descriptor);
        }
    }

    fn open<T>(&self, mut open: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
        loop {
            match open() {
                Err(errno @ (Errno::MFILE | Errno::NFILE)) => {
                    let mut kept = self.kept.lock();
                    // The last one is needed as the source of duplicates.
                    if kept.len() < 2 {
                        return Err(errno);
                    }
                    drop(kept.pop());
                }
                opened => return opened,
            }
        }
    }

    fn close(&self, mut descriptor: OwnedFd) {
        let mut kept = self.kept.lock();
        if let Some(null) = kept.first()
            && kept.len() < KEPT
            && rustix::io::dup3(null, &mut descriptor, DupFlags::CLOEXEC).is_ok()
        {
            kept.push(descriptor);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn a_kept_descriptor_gives_way_and_comes_back_with_the_file() {
        let reserve = Reserve { kept: Mutex::new(Vec::new()) };
        reserve.fill(null);
        assert_eq!(reserve.kept.lock().len(), KEPT);
        let held = || KEPT - reserve.kept.lock().len();
        // A process at its limit can open as many descriptors as it closes.
        let opened = Cell::new(0);
        let at_limit = || {
            if opened.get() == held() {
                return Err(Errno::MFILE);
            }
            opened.set(opened.get() + 1);
            null()
        };
        let mut files: Vec<_> = (1..KEPT).map(|_| reserve.open(at_limit).unwrap()).collect();
        assert_eq!(reserve.open(at_limit).unwrap_err(), Errno::MFILE);
        reserve.close(files.pop().unwrap());
        opened.set(opened.get() - 1);
        files.push(reserve.open(at_limit).unwrap());
        files.into_iter().for_each(|file| reserve.close(file));
        assert_eq!(reserve.kept.lock().len(), KEPT);
        // Other failures do not use the reserve.
        assert_eq!(reserve.open(|| Err::<(), _>(Errno::NOSPC)).unwrap_err(), Errno::NOSPC);
        assert_eq!(reserve.kept.lock().len(), KEPT);
    }
}
