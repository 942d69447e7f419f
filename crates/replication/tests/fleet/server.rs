//! One server: its data, the id and the position of its stream, and its backlog.
//!
//! The backlog of a replica is the stream of its primary, byte by byte, so that it can have replicas of its own. A
//! transaction enters it as a whole: its bytes count when its data do.

use std::sync::Arc;

use tierce_harness::Random;
use tierce_replication::backlog::Backlog;
use tierce_replication::identity::{Identity, ReplicationId};
use tierce_replication::link::Position;

use super::Fault;
use super::truth::{Data, Truth};

/// Number of databases.
const DBS: usize = 3;

/// Number of past bytes that are kept, rounded up to whole blocks.
const KEPT_BYTES: usize = 1 << 10;

/// State of a server at a position in a stream, in memory or on disk.
#[derive(Clone)]
pub(crate) struct State {
    pub(crate) data: Data,
    pub(crate) position: Position,
    /// Database that the stream has selected at this position.
    db: u8,
}

pub(crate) struct Server {
    pub(crate) now: State,
    on_device: State,
    pub(crate) identity: Identity,
    pub(crate) backlog: Arc<Backlog>,
    /// Number of the server that it follows.
    pub(crate) primary: Option<usize>,
    /// True if a primary must send a `SELECT` before its next write.
    must_select: bool,
    /// On a replica: bytes of the stream that do not count yet.
    pending: Vec<u8>,
    /// Writes of an incomplete transaction, and the database selected in it.
    transaction: Option<(Vec<(u8, u64)>, u8)>,
    fault: Option<Fault>,
}

impl Server {
    /// Returns a primary without data.
    pub(crate) fn new(truth: &mut Truth, offset: u64, fault: Option<Fault>) -> Self {
        let id = truth.name(None);
        let state = State { data: Data::default(), position: Position { id, offset }, db: 0 };
        truth.note(state.position, &state.data).expect("a new name");
        Self {
            on_device: state.clone(),
            now: state,
            identity: Identity::new(id),
            backlog: Backlog::new(offset, KEPT_BYTES),
            primary: None,
            must_select: true,
            pending: Vec::new(),
            transaction: None,
            fault,
        }
    }

    fn has(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    /// Returns a full copy of its data.
    pub(crate) fn copy(&self) -> Vec<u8> {
        let db = if self.has(Fault::CopyWithoutDatabase) { 0 } else { self.now.db };
        self.now.data.to_file(db)
    }

    /// Writes something, as a primary.
    pub(crate) fn write(&mut self, truth: &mut Truth, random: &mut Random) -> Result<(), String> {
        match random.below(12) {
            0 => return self.append(b"*1\r\n$4\r\nPING\r\n", truth),
            1 => return self.append(b"\n", truth),
            _ => {}
        }
        let db = random.below(DBS) as u8;
        if self.must_select || self.now.db != db {
            (self.must_select, self.now.db) = (false, db);
            self.append(&command(&[b"SELECT", &[b'0' + db]]), truth)?;
        }
        let is_transaction = random.one_in(3);
        let count = if is_transaction { 1 + random.below(4) } else { 1 };
        let mut bytes = if is_transaction { command(&[b"MULTI"]) } else { Vec::new() };
        for _ in 0..count {
            let number = truth.next_write();
            let len = if random.one_in(6) { random.below(12 << 10) } else { random.below(20) };
            let (name, value) = (number.to_string(), vec![b'x'; len]);
            bytes.extend(command(&[b"SET", name.as_bytes(), &value]));
            self.now.data.apply(db, number);
        }
        if is_transaction {
            bytes.extend(command(&[b"EXEC"]));
        }
        self.append(&bytes, truth)
    }

    fn append(&mut self, bytes: &[u8], truth: &mut Truth) -> Result<(), String> {
        self.now.position.offset = self.backlog.append(bytes, 0);
        truth.note(self.now.position, &self.now.data)
    }

    /// Handles a command, as a replica. With it the stream is known up to `offset`.
    pub(crate) fn command(&mut self, args: &[Vec<u8>], bytes: &[u8], offset: u64) {
        self.take(bytes);
        let number = || args.get(1).and_then(|text| std::str::from_utf8(text).ok()?.parse().ok());
        let selected = self.transaction.as_ref().map_or(self.now.db, |(_, db)| *db);
        match (args[0].as_slice(), &mut self.transaction) {
            (b"MULTI", None) => self.transaction = Some((Vec::new(), selected)),
            (b"EXEC", Some(_)) => {
                let (writes, db) = self.transaction.take().unwrap_or_default();
                writes.iter().for_each(|(db, number)| self.now.data.apply(*db, *number));
                self.now.db = db;
            }
            (b"SELECT", None) => self.now.db = number().unwrap_or(0) as u8,
            (b"SET", None) => self.now.data.apply(selected, number().unwrap_or(0)),
            (b"SET", Some((writes, _))) => writes.push((selected, number().unwrap_or(0))),
            _ => {}
        }
        if self.transaction.is_none() || self.has(Fault::PlaceInsideTransactions) {
            self.now.position.offset = offset;
            self.count();
        }
    }

    /// Handles empty lines, as a replica.
    pub(crate) fn blank(&mut self, bytes: &[u8]) {
        self.take(bytes);
        if self.transaction.is_none() {
            let counts = !self.has(Fault::EmptyLinesDoNotCount);
            self.now.position.offset += if counts { bytes.len() as u64 } else { 0 };
            self.count();
        }
    }

    fn take(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
        if self.has(Fault::TransactionsPassedOnInPieces) {
            self.count();
        }
    }

    /// Counts the pending bytes.
    fn count(&mut self) {
        if !self.pending.is_empty() {
            self.backlog.append(&self.pending, 0);
            self.pending.clear();
        }
    }

    pub(crate) fn is_in_transaction(&self) -> bool {
        self.transaction.is_some()
    }

    /// Loses the link; pending bytes that do not count are dropped.
    pub(crate) fn lose_link(&mut self) {
        self.pending.clear();
        self.transaction = None;
    }

    /// Begins a full copy.
    pub(crate) fn begin_copy(&mut self, position: Position) {
        if self.has(Fault::CopyCountsBeforeItsEnd) {
            self.take_place(position);
        }
    }

    /// Loads a complete full copy.
    pub(crate) fn load(&mut self, position: Position, file: &[u8]) -> Result<(), String> {
        let (data, db) = Data::of_file(file).ok_or("a full copy that is none")?;
        (self.now.data, self.now.db) = (data, db);
        self.take_place(position);
        Ok(())
    }

    fn take_place(&mut self, position: Position) {
        self.now.position = position;
        self.identity = Identity::new(position.id);
        if !self.has(Fault::BacklogSurvivesCopies) {
            self.backlog.restart(position.offset);
        }
    }

    /// Continues the stream at `position`. Returns true if its id has changed.
    pub(crate) fn go_on(&mut self, position: Position) -> bool {
        if position.id == self.identity.id || self.has(Fault::NewNameIsIgnored) {
            return false;
        }
        self.rename(position.id);
        true
    }

    fn rename(&mut self, id: ReplicationId) {
        self.identity = self.identity.renamed(id, self.now.position.offset);
        self.now.position.id = id;
    }

    /// Promotes the server to a primary.
    pub(crate) fn promote(&mut self, truth: &mut Truth) {
        self.lose_link();
        self.primary = None;
        if !self.has(Fault::PromotionKeepsName) {
            let id = truth.name(Some(self.now.position));
            self.rename(id);
        }
        self.must_select = true;
        if self.has(Fault::PromotionSelectsNothing) {
            (self.must_select, self.now.db) = (false, 0);
        }
    }

    /// Follows another server from now on, and asks it for the rest of the present stream.
    pub(crate) fn follow(&mut self, primary: usize) {
        self.lose_link();
        self.primary = Some(primary);
    }

    /// Syncs its state to disk.
    pub(crate) fn sync(&mut self) {
        self.on_device = self.now.clone();
    }

    /// Restarts the server; after a power cut, with the state on disk.
    pub(crate) fn restart(
        &mut self,
        is_power_cut: bool,
        keeps_name: bool,
        truth: &mut Truth,
    ) -> Result<(), String> {
        self.lose_link();
        if is_power_cut {
            let position = self.now.position;
            self.now = self.on_device.clone();
            if self.has(Fault::PlaceOutlivesData) {
                self.now.position = position;
            }
        }
        let is_same = match self.primary {
            Some(_) => true,
            None => keeps_name && (!is_power_cut || self.has(Fault::LossKeepsName)),
        };
        if !is_same {
            self.now.position.id = truth.name(None);
            truth.note(self.now.position, &self.now.data)?;
        }
        self.sync();
        self.must_select = true;
        self.identity = Identity::new(self.now.position.id);
        self.backlog = Backlog::new(self.now.position.offset, KEPT_BYTES);
        Ok(())
    }
}

/// Returns a command as the bytes of a stream.
fn command(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}
