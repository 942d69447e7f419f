//! A simulated disk in memory that fails in all the ways in which a disk may.
//!
//! A seed and the calls made determine everything, so failures are reproducible.
//!
//! * **Death of the process** ([`Moment::after_kill`]): every completed call has happened; of the write in
//!   flight, a prefix may have.
//! * **Power cut** ([`Moment::after_power_cut`]): synced data survives. Of later writes, each 512-byte sector
//!   survives or not independently; a file's length follows its surviving sectors. Of the creations, renames and
//!   removals since the last `sync_dir`, a prefix or an arbitrary subset happened.
//! * **Mapped files** are never synced: a kill keeps all stores, a power cut any sectors of any of them. Each
//!   store counts as a call.
//! * **Faults**: chosen calls fail with EIO, the disk has a capacity, bits can be flipped.
//!
//! Not simulated: sectors that decay after a sync, other than by [`SimDisk::flip_bit`].

use super::{Disk, DiskFile, DiskLock, DiskMap, OpenMode, Space};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashSet};
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Unit in which a power cut keeps or loses written bytes.
const SECTOR: u64 = 512;

/// A kind of call that can be made to fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// Reading from a file.
    Read,
    /// Writing to a file; a prefix of the data is still written.
    Write,
    /// Making a file durable.
    Sync,
    /// Making a directory durable.
    SyncDir,
    /// Opening or creating a file.
    Open,
    /// Renaming.
    Rename,
    /// Removing.
    Remove,
    /// Changing a file's length.
    Truncate,
}

/// An in-memory file system with injected failures. Clones share it.
#[derive(Clone)]
pub struct SimDisk(Arc<Mutex<Sim>>);

struct Sim {
    files: Files,
    locks: HashSet<PathBuf>,
    random: Random,
    /// Number of changing calls so far.
    calls: u64,
    halt_at: Option<u64>,
    /// Kind of call, number of calls to skip, and the error number.
    faults: Vec<(Fault, u64, i32)>,
    capacity: Option<u64>,
    history: Option<Vec<Moment>>,
    /// Number of the call before which a moment is kept.
    moment_at: Option<u64>,
    moment: Option<Moment>,
    trace: Option<Vec<String>>,
}

/// The disk just before one call, and that call if it was a write.
#[derive(Clone)]
pub struct Moment {
    files: Files,
    in_flight: Option<(usize, FileOp)>,
    /// Number of changing calls completed.
    pub calls: u64,
}

#[derive(Clone, Default)]
struct Files {
    inodes: Vec<Inode>,
    names: BTreeMap<PathBuf, usize>,
    durable_names: BTreeMap<PathBuf, usize>,
    pending_names: Vec<NameOp>,
}

#[derive(Clone, Default)]
struct Inode {
    data: Vec<u8>,
    durable: Vec<u8>,
    pending: Vec<FileOp>,
    /// End of the reserved space.
    reserved: u64,
}

#[derive(Clone)]
enum FileOp {
    Write(u64, Arc<[u8]>),
    Truncate(u64),
}

#[derive(Clone)]
enum NameOp {
    Link(PathBuf, usize),
    Rename(PathBuf, PathBuf),
    Unlink(PathBuf),
}

impl SimDisk {
    /// Creates an empty disk. All randomness follows from `seed`.
    pub fn new(seed: u64) -> Self {
        Self::with_files(Files::default(), seed)
    }

    fn with_files(files: Files, seed: u64) -> Self {
        SimDisk(Arc::new(Mutex::new(Sim {
            files,
            locks: HashSet::new(),
            random: Random(seed),
            calls: 0,
            halt_at: None,
            faults: Vec::new(),
            capacity: None,
            history: None,
            moment_at: None,
            moment: None,
            trace: None,
        })))
    }

    /// Keeps a [`Moment`] for every changing call from now on.
    pub fn record_history(&self) {
        self.0.lock().history = Some(Vec::new());
    }

    /// Returns the moments recorded so far, oldest first.
    pub fn take_history(&self) -> Vec<Moment> {
        self.0.lock().history.take().unwrap_or_default()
    }

    /// Keeps only the [`Moment`] before the changing call that follows after `calls` calls. This costs less than
    /// recording them all.
    pub fn keep_moment(&self, calls: u64) {
        let mut sim = self.0.lock();
        sim.moment_at = Some(calls);
        sim.moment = None;
    }

    /// Returns that moment, once it has come.
    pub fn take_moment(&self) -> Option<Moment> {
        self.0.lock().moment.take()
    }

    /// Records every changing call as a line of text from now on.
    pub fn record_trace(&self) {
        self.0.lock().trace = Some(Vec::new());
    }

    /// Returns the lines recorded so far.
    pub fn take_trace(&self) -> Vec<String> {
        self.0.lock().trace.take().unwrap_or_default()
    }

    /// Returns the number of changing calls made.
    pub fn calls(&self) -> u64 {
        self.0.lock().calls
    }

    /// Returns the disk as it is now.
    pub fn now(&self) -> Moment {
        let sim = self.0.lock();
        Moment { files: sim.files.clone(), in_flight: None, calls: sim.calls }
    }

    /// Fails every call after the first `calls` changing ones, as if the process had died there.
    pub fn halt_at(&self, calls: u64) {
        self.0.lock().halt_at = Some(calls);
    }

    /// Fails one call of the given kind with EIO, after skipping `skip` of them.
    pub fn inject(&self, fault: Fault, skip: u64) {
        self.inject_os_error(fault, skip, libc::EIO);
    }

    /// Fails a call as [`SimDisk::inject`] does, with this error number of the operating system.
    pub fn inject_os_error(&self, fault: Fault, skip: u64, code: i32) {
        self.0.lock().faults.push((fault, skip, code));
    }

    /// Removes all injected failures that have not happened yet.
    pub fn clear_faults(&self) {
        self.0.lock().faults.clear();
    }

    /// Limits the bytes of all files together; `None` removes the limit.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.0.lock().capacity = bytes;
    }

    /// Returns the bytes of all files together.
    pub fn used(&self) -> u64 {
        self.0.lock().files.used()
    }

    /// Returns the names of all files.
    pub fn paths(&self) -> Vec<PathBuf> {
        self.0.lock().files.names.keys().cloned().collect()
    }

    /// Returns the content of a file, `None` if it does not exist.
    pub fn content(&self, path: &Path) -> Option<Vec<u8>> {
        let sim = self.0.lock();
        sim.files.names.get(path).map(|&inode| sim.files.inodes[inode].data.clone())
    }

    /// Puts a file on the disk durably, replacing an existing one.
    pub fn set_content(&self, path: &Path, data: Vec<u8>) {
        let mut sim = self.0.lock();
        let inode = sim.files.inodes.len();
        sim.files.inodes.push(Inode { durable: data.clone(), data, ..Inode::default() });
        sim.files.names.insert(path.to_owned(), inode);
        sim.files.durable_names.insert(path.to_owned(), inode);
    }

    /// Removes a file, durably.
    pub fn erase(&self, path: &Path) {
        let mut sim = self.0.lock();
        sim.files.names.remove(path);
        sim.files.durable_names.remove(path);
    }

    /// Inverts one bit of a file, durably.
    ///
    /// # Panics
    /// When there is no such bit.
    pub fn flip_bit(&self, path: &Path, bit: u64) {
        let mut sim = self.0.lock();
        let inode = sim.files.names[path];
        let inode = &mut sim.files.inodes[inode];
        inode.data[(bit / 8) as usize] ^= 1 << (bit % 8);
        inode.durable = inode.data.clone();
        inode.pending.clear();
    }
}

impl Moment {
    /// Returns the disk that a restarted process finds when the machine went on running.
    pub fn after_kill(&self, seed: u64) -> SimDisk {
        let mut random = Random(seed);
        let mut files = self.files.clone();
        if let Some((inode, op)) = &self.in_flight {
            let op = op.torn(&mut random);
            files.inodes[*inode].apply(op);
        }
        SimDisk::with_files(files, random.next())
    }

    /// Returns the disk that a restarted machine finds.
    pub fn after_power_cut(&self, seed: u64) -> SimDisk {
        let mut random = Random(seed);
        let mut files = self.files.clone();
        if let Some((inode, op)) = &self.in_flight {
            files.inodes[*inode].apply(op.clone());
        }
        for inode in &mut files.inodes {
            inode.cut_power(&mut random);
        }
        files.cut_power(&mut random);
        SimDisk::with_files(files, random.next())
    }
}

impl Files {
    fn used(&self) -> u64 {
        self.names.values().map(|&inode| self.inodes[inode].space()).sum()
    }

    fn change_names(&mut self, op: NameOp) {
        apply_name(&mut self.names, &op);
        self.pending_names.push(op);
    }

    fn sync_names(&mut self) {
        self.durable_names = self.names.clone();
        self.pending_names.clear();
    }

    fn cut_power(&mut self, random: &mut Random) {
        let mut names = std::mem::take(&mut self.durable_names);
        let ops = std::mem::take(&mut self.pending_names);
        // Journaling file systems keep a prefix; the standard does not guarantee even that.
        let prefix = random.chance(1, 2).then(|| random.below(ops.len() as u64 + 1) as usize);
        for (i, op) in ops.iter().enumerate() {
            if prefix.map_or_else(|| random.chance(1, 2), |prefix| i < prefix) {
                apply_name(&mut names, op);
            }
        }
        self.durable_names = names.clone();
        self.names = names;
    }
}

fn apply_name(names: &mut BTreeMap<PathBuf, usize>, op: &NameOp) {
    match op {
        NameOp::Link(path, inode) => {
            names.insert(path.clone(), *inode);
        }
        NameOp::Rename(from, to) => {
            if let Some(inode) = names.remove(from) {
                names.insert(to.clone(), inode);
            }
        }
        NameOp::Unlink(path) => {
            names.remove(path);
        }
    }
}

impl Inode {
    fn space(&self) -> u64 {
        self.reserved.max(self.data.len() as u64)
    }

    fn apply(&mut self, op: FileOp) {
        if let FileOp::Truncate(len) = op {
            self.reserved = len;
        }
        op.apply_to(&mut self.data);
        self.pending.push(op);
    }

    fn sync(&mut self) {
        self.durable = self.data.clone();
        self.pending.clear();
    }

    fn cut_power(&mut self, random: &mut Random) {
        let mut data = std::mem::take(&mut self.durable);
        // The surviving part differs between power cuts, from nearly nothing to nearly everything.
        let kept_of_8 = random.below(9);
        for op in std::mem::take(&mut self.pending) {
            for part in op.sectors() {
                if random.below(8) < kept_of_8 {
                    part.apply_to(&mut data);
                }
            }
        }
        self.durable = data.clone();
        self.data = data;
    }
}

/// Sets the length of a file; new bytes are zero. Zeros come from the allocator: without optimization, filling a
/// reserve of megabytes byte by byte would take most of the time of crash tests.
fn set_len(data: &mut Vec<u8>, len: usize) {
    if len <= data.len() {
        data.truncate(len);
        return;
    }
    let mut longer = vec![0; len];
    longer[..data.len()].copy_from_slice(data);
    *data = longer;
}

impl FileOp {
    fn apply_to(&self, data: &mut Vec<u8>) {
        match self {
            FileOp::Write(offset, bytes) => {
                let start = *offset as usize;
                let end = start + bytes.len();
                if data.len() < end {
                    set_len(data, end);
                }
                data[start..end].copy_from_slice(bytes);
            }
            FileOp::Truncate(len) => set_len(data, *len as usize),
        }
    }

    /// Returns a state that may remain when the process dies during the call.
    fn torn(&self, random: &mut Random) -> FileOp {
        match self {
            FileOp::Write(offset, bytes) => {
                let kept = random.below(bytes.len() as u64 + 1) as usize;
                FileOp::Write(*offset, bytes[..kept].into())
            }
            FileOp::Truncate(len) => FileOp::Truncate(*len),
        }
    }

    /// Splits the operation into parts that a power cut keeps or loses separately.
    fn sectors(self) -> Vec<FileOp> {
        let FileOp::Write(mut offset, bytes) = self else { return vec![self] };
        let mut rest = &bytes[..];
        let mut parts = Vec::new();
        while !rest.is_empty() {
            let len = (SECTOR - offset % SECTOR).min(rest.len() as u64);
            let (part, tail) = rest.split_at(len as usize);
            parts.push(FileOp::Write(offset, part.into()));
            offset += len;
            rest = tail;
        }
        parts
    }
}

impl Sim {
    /// Counts and records a changing call, and fails it if a fault was injected.
    fn begin(
        &mut self,
        fault: Fault,
        line: impl FnOnce() -> String,
        in_flight: Option<(usize, FileOp)>,
    ) -> io::Result<()> {
        self.count(line, in_flight)?;
        self.fault(fault)
    }

    /// Counts and records a changing call.
    fn count(
        &mut self,
        line: impl FnOnce() -> String,
        in_flight: Option<(usize, FileOp)>,
    ) -> io::Result<()> {
        self.check_halted()?;
        if self.moment_at == Some(self.calls) {
            self.moment_at = None;
            let (files, in_flight) = (self.files.clone(), in_flight.clone());
            self.moment = Some(Moment { files, in_flight, calls: self.calls });
        }
        if let Some(history) = &mut self.history {
            let files = self.files.clone();
            history.push(Moment { files, in_flight, calls: self.calls });
        }
        self.calls += 1;
        if let Some(trace) = &mut self.trace {
            trace.push(line());
        }
        Ok(())
    }

    fn check_halted(&self) -> io::Result<()> {
        if self.halt_at.is_some_and(|halt| self.calls >= halt) {
            return Err(io::Error::other("the simulated process is dead"));
        }
        Ok(())
    }

    fn fault(&mut self, fault: Fault) -> io::Result<()> {
        for i in 0..self.faults.len() {
            let (kind, skip, code) = &mut self.faults[i];
            if *kind != fault {
                continue;
            }
            if *skip == 0 {
                let error = io::Error::from_raw_os_error(*code);
                self.faults.remove(i);
                return Err(error);
            }
            *skip -= 1;
        }
        Ok(())
    }
}

impl Disk for SimDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let mut sim = self.0.lock();
        sim.check_halted()?;
        let found = sim.files.names.get(path).copied();
        let writable = !matches!(mode, OpenMode::ReadOnly | OpenMode::Direct);
        let inode = match (mode, found) {
            (OpenMode::CreateNew, Some(_)) => return Err(io::ErrorKind::AlreadyExists.into()),
            (OpenMode::CreateNew, None) | (OpenMode::Truncate, _) => {
                sim.begin(Fault::Open, || format!("create {}", name(path)), None)?;
                let inode = sim.files.inodes.len();
                sim.files.inodes.push(Inode::default());
                sim.files.change_names(NameOp::Link(path.to_owned(), inode));
                inode
            }
            (_, None) => return Err(io::ErrorKind::NotFound.into()),
            (_, Some(inode)) => {
                sim.fault(Fault::Open)?;
                inode
            }
        };
        let name = name(path);
        Ok(Arc::new(SimFile { disk: self.clone(), inode, name, writable }))
    }

    fn map(&self, path: &Path, len: usize) -> io::Result<Arc<dyn DiskMap>> {
        let sim = self.0.lock();
        sim.check_halted()?;
        let inode = *sim.files.names.get(path).ok_or(io::ErrorKind::NotFound)?;
        if sim.files.inodes[inode].data.len() < len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(Arc::new(SimMap { disk: self.clone(), inode, name: name(path), len }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut sim = self.0.lock();
        sim.begin(Fault::Rename, || format!("rename {} to {}", name(from), name(to)), None)?;
        if !sim.files.names.contains_key(from) {
            return Err(io::ErrorKind::NotFound.into());
        }
        sim.files.change_names(NameOp::Rename(from.to_owned(), to.to_owned()));
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut sim = self.0.lock();
        sim.begin(Fault::Remove, || format!("remove {}", name(path)), None)?;
        if !sim.files.names.contains_key(path) {
            return Err(io::ErrorKind::NotFound.into());
        }
        sim.files.change_names(NameOp::Unlink(path.to_owned()));
        Ok(())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>> {
        let sim = self.0.lock();
        sim.check_halted()?;
        Ok(sim.files.names.keys().filter(|p| p.parent() == Some(dir)).cloned().collect())
    }

    fn create_dir_all(&self, _dir: &Path) -> io::Result<()> {
        self.0.lock().check_halted()
    }

    fn remove_dir(&self, _dir: &Path) -> io::Result<()> {
        self.0.lock().check_halted()
    }

    fn sync_dir(&self, _dir: &Path) -> io::Result<()> {
        let mut sim = self.0.lock();
        sim.begin(Fault::SyncDir, || "sync directory".to_owned(), None)?;
        sim.files.sync_names();
        Ok(())
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn DiskLock>> {
        let mut sim = self.0.lock();
        sim.check_halted()?;
        if !sim.locks.insert(path.to_owned()) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(Box::new(SimLock { disk: self.clone(), path: path.to_owned() }))
    }

    fn space(&self, _dir: &Path) -> Option<Space> {
        let sim = self.0.lock();
        let total = sim.capacity?;
        Some(Space { total, free: total.saturating_sub(sim.files.used()) })
    }

    fn entropy(&self) -> u64 {
        self.0.lock().random.next()
    }
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

struct SimLock {
    disk: SimDisk,
    path: PathBuf,
}

impl DiskLock for SimLock {}

impl Drop for SimLock {
    fn drop(&mut self) {
        self.disk.0.lock().locks.remove(&self.path);
    }
}

struct SimFile {
    disk: SimDisk,
    inode: usize,
    name: String,
    writable: bool,
}

impl DiskFile for SimFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut sim = self.disk.0.lock();
        sim.check_halted()?;
        sim.fault(Fault::Read)?;
        let data = &sim.files.inodes[self.inode].data;
        let start = data.len().min(offset as usize);
        let len = buf.len().min(data.len() - start);
        buf[..len].copy_from_slice(&data[start..start + len]);
        Ok(len)
    }

    fn write_all_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        assert!(self.writable, "{} is open for reading only", self.name);
        let bytes: Arc<[u8]> = bufs.iter().flat_map(|buf| buf.iter().copied()).collect();
        let len = bytes.len();
        let op = FileOp::Write(offset, bytes);
        let mut sim = self.disk.0.lock();
        let line = || format!("write {} {offset}+{len}", self.name);
        let begun = sim.begin(Fault::Write, line, Some((self.inode, op.clone())));
        if begun.is_err() && sim.check_halted().is_err() {
            return begun;
        }
        if begun.is_err() {
            let torn = op.torn(&mut sim.random);
            sim.files.inodes[self.inode].apply(torn);
            return begun;
        }
        let grown = (offset + len as u64).saturating_sub(sim.files.inodes[self.inode].space());
        let free = sim.capacity.map_or(u64::MAX, |c| c.saturating_sub(sim.files.used()));
        if grown > free {
            let FileOp::Write(_, bytes) = op else { unreachable!("made as a write above") };
            let kept = (len as u64 - (grown - free).min(len as u64)) as usize;
            let part = FileOp::Write(offset, bytes[..kept].into());
            sim.files.inodes[self.inode].apply(part);
            return Err(io::ErrorKind::StorageFull.into());
        }
        sim.files.inodes[self.inode].apply(op);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut sim = self.disk.0.lock();
        sim.begin(Fault::Sync, || format!("sync {}", self.name), None)?;
        sim.files.inodes[self.inode].sync();
        Ok(())
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        assert!(self.writable, "{} is open for reading only", self.name);
        let mut sim = self.disk.0.lock();
        sim.begin(Fault::Truncate, || format!("truncate {} {len}", self.name), None)?;
        sim.files.inodes[self.inode].apply(FileOp::Truncate(len));
        Ok(())
    }

    fn reserve(&self, len: u64) -> io::Result<()> {
        assert!(self.writable, "{} is open for reading only", self.name);
        let mut sim = self.disk.0.lock();
        sim.begin(Fault::Write, || format!("reserve {} {len}", self.name), None)?;
        let grown = len.saturating_sub(sim.files.inodes[self.inode].space());
        if sim.capacity.is_some_and(|capacity| sim.files.used() + grown > capacity) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let inode = &mut sim.files.inodes[self.inode];
        inode.reserved = inode.reserved.max(len);
        Ok(())
    }

    fn size(&self) -> io::Result<u64> {
        let sim = self.disk.0.lock();
        sim.check_halted()?;
        Ok(sim.files.inodes[self.inode].data.len() as u64)
    }
}

struct SimMap {
    disk: SimDisk,
    inode: usize,
    name: String,
    len: usize,
}

impl DiskMap for SimMap {
    fn write(&self, offset: usize, bytes: &[u8]) {
        assert!(offset.is_multiple_of(8) && bytes.len().is_multiple_of(8));
        assert!(offset + bytes.len() <= self.len);
        let mut sim = self.disk.0.lock();
        let op = FileOp::Write(offset as u64, bytes.into());
        let line = || format!("store {} {offset}+{}", self.name, bytes.len());
        // A dead process stores nothing and gets no error.
        if sim.count(line, Some((self.inode, op.clone()))).is_ok() {
            sim.files.inodes[self.inode].apply(op);
        }
    }

    fn read(&self, offset: usize, out: &mut [u8]) {
        assert!(offset.is_multiple_of(8) && out.len().is_multiple_of(8));
        let sim = self.disk.0.lock();
        out.copy_from_slice(&sim.files.inodes[self.inode].data[offset..offset + out.len()]);
    }
}

/// SplitMix64: small, and good enough to choose failures.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn chance(&mut self, of: u64, among: u64) -> bool {
        self.below(among) < of
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(file: &dyn DiskFile, offset: u64, bytes: &[u8]) -> io::Result<()> {
        file.write_all_at(&[IoSlice::new(bytes)], offset)
    }

    #[test]
    fn power_cut_keeps_what_was_synced_and_some_sectors_of_the_rest() {
        let disk = SimDisk::new(1);
        let path = Path::new("/d/f");
        let file = disk.open(path, OpenMode::CreateNew).unwrap();
        write(&*file, 0, &[1; 600]).unwrap();
        file.sync_data().unwrap();
        disk.sync_dir(Path::new("/d")).unwrap();
        write(&*file, 600, &[2; 2000]).unwrap();
        let mut lens = HashSet::new();
        for seed in 0..100 {
            let content = disk.now().after_power_cut(seed).content(path).unwrap();
            assert_eq!(content[..600], [1; 600]);
            assert!(content[600..].iter().all(|&b| b == 0 || b == 2));
            lens.insert(content.len());
        }
        assert!(lens.len() > 3 && lens.contains(&600) && lens.contains(&2600));
        assert_eq!(disk.now().after_kill(0).content(path).unwrap().len(), 2600);
    }

    #[test]
    fn power_cut_loses_names_that_were_not_synced() {
        let disk = SimDisk::new(1);
        disk.open(Path::new("/d/f"), OpenMode::CreateNew).unwrap();
        let kept = (0..64).filter(|&s| !disk.now().after_power_cut(s).paths().is_empty()).count();
        assert!(kept > 8 && kept < 56, "{kept}");
    }

    #[test]
    fn full_disk_writes_what_fits_and_recovers() {
        let disk = SimDisk::new(1);
        let file = disk.open(Path::new("/d/f"), OpenMode::CreateNew).unwrap();
        disk.set_capacity(Some(10));
        let error = write(&*file, 0, &[1; 16]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert_eq!(file.size().unwrap(), 10);
        disk.set_capacity(None);
        write(&*file, 0, &[1; 16]).unwrap();
    }

    #[test]
    fn lock_is_exclusive_until_dropped() {
        let disk = SimDisk::new(1);
        let path = Path::new("/d/LOCK");
        let lock = disk.lock(path).unwrap();
        assert!(disk.lock(path).is_err());
        drop(lock);
        assert!(disk.lock(path).is_ok());
    }
}
