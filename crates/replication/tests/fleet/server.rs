//! One server: its data, the name and the place of its stream, and its backlog.
//!
//! The backlog of a replica is the stream of its primary, byte by byte, so that it can have replicas of its own. A
//! transaction enters it as a whole: its bytes count when its data do.

use std::sync::Arc;

use tierce_harness::Random;
use tierce_replication::backlog::Backlog;
use tierce_replication::identity::{Identity, ReplicationId};
use tierce_replication::link::Place;

use super::Fault;
use super::truth::{Data, Truth};

/// Databases.
const DBS: usize = 3;

/// So much of the past is kept, and whole blocks of it.
const KEPT_BYTES: usize = 1 << 10;

/// What a server has at a place of a stream, and what of it is on its device.
#[derive(Clone)]
pub(crate) struct State {
    pub(crate) data: Data,
    pub(crate) place: Place,
    /// The database that the stream has selected at the place.
    db: u8,
}

pub(crate) struct Server {
    pub(crate) now: State,
    on_device: State,
    pub(crate) identity: Identity,
    pub(crate) backlog: Arc<Backlog>,
    /// Which server it follows.
    pub(crate) primary: Option<usize>,
    /// As a primary it has to say which database its next write is in.
    must_select: bool,
    /// As a replica: bytes of the stream that do not count yet.
    pending: Vec<u8>,
    /// The writes of a transaction that is not complete, and the database selected in it.
    transaction: Option<(Vec<(u8, u64)>, u8)>,
    fault: Option<Fault>,
}

impl Server {
    /// A primary without data.
    pub(crate) fn new(truth: &mut Truth, offset: u64, fault: Option<Fault>) -> Self {
        let id = truth.name(None);
        let state = State { data: Data::default(), place: Place { id, offset }, db: 0 };
        truth.note(state.place, &state.data).expect("a new name");
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

    /// A full copy of what it has.
    pub(crate) fn copy(&self) -> Vec<u8> {
        let db = if self.has(Fault::CopyWithoutDatabase) { 0 } else { self.now.db };
        self.now.data.to_file(db)
    }

    /// As a primary it writes something.
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
        self.now.place.offset = self.backlog.append(bytes, 0);
        truth.note(self.now.place, &self.now.data)
    }

    /// As a replica it gets a command, with which the stream is known up to `offset`.
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
            self.now.place.offset = offset;
            self.count();
        }
    }

    /// As a replica it gets empty lines.
    pub(crate) fn blank(&mut self, bytes: &[u8]) {
        self.take(bytes);
        if self.transaction.is_none() {
            let counts = !self.has(Fault::EmptyLinesDoNotCount);
            self.now.place.offset += if counts { bytes.len() as u64 } else { 0 };
            self.count();
        }
    }

    fn take(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
        if self.has(Fault::TransactionsPassedOnInPieces) {
            self.count();
        }
    }

    /// What was pending counts.
    fn count(&mut self) {
        if !self.pending.is_empty() {
            self.backlog.append(&self.pending, 0);
            self.pending.clear();
        }
    }

    pub(crate) fn is_in_transaction(&self) -> bool {
        self.transaction.is_some()
    }

    /// Its link is over: what did not count is gone.
    pub(crate) fn lose_link(&mut self) {
        self.pending.clear();
        self.transaction = None;
    }

    /// A full copy begins to arrive.
    pub(crate) fn begin_copy(&mut self, place: Place) {
        if self.has(Fault::CopyCountsBeforeItsEnd) {
            self.take_place(place);
        }
    }

    /// A full copy is there.
    pub(crate) fn load(&mut self, place: Place, file: &[u8]) -> Result<(), String> {
        let (data, db) = Data::of_file(file).ok_or("a full copy that is none")?;
        (self.now.data, self.now.db) = (data, db);
        self.take_place(place);
        Ok(())
    }

    fn take_place(&mut self, place: Place) {
        self.now.place = place;
        self.identity = Identity::new(place.id);
        if !self.has(Fault::BacklogSurvivesCopies) {
            self.backlog.restart(place.offset);
        }
    }

    /// The stream goes on, perhaps with another name. Whether it has one.
    pub(crate) fn go_on(&mut self, place: Place) -> bool {
        if place.id == self.identity.id || self.has(Fault::NewNameIsIgnored) {
            return false;
        }
        self.rename(place.id);
        true
    }

    fn rename(&mut self, id: ReplicationId) {
        self.identity = self.identity.renamed(id, self.now.place.offset);
        self.now.place.id = id;
    }

    /// It becomes a primary.
    pub(crate) fn promote(&mut self, truth: &mut Truth) {
        self.lose_link();
        self.primary = None;
        if !self.has(Fault::PromotionKeepsName) {
            let id = truth.name(Some(self.now.place));
            self.rename(id);
        }
        self.must_select = true;
        if self.has(Fault::PromotionSelectsNothing) {
            (self.must_select, self.now.db) = (false, 0);
        }
    }

    /// It follows another one from now on, and asks for the rest of the stream that it has.
    pub(crate) fn follow(&mut self, primary: usize) {
        self.lose_link();
        self.primary = Some(primary);
    }

    /// What it has is on its device now.
    pub(crate) fn sync(&mut self) {
        self.on_device = self.now.clone();
    }

    /// It starts again, with what is on its device if the power failed.
    pub(crate) fn restart(
        &mut self,
        is_power_cut: bool,
        keeps_name: bool,
        truth: &mut Truth,
    ) -> Result<(), String> {
        self.lose_link();
        if is_power_cut {
            let place = self.now.place;
            self.now = self.on_device.clone();
            if self.has(Fault::PlaceOutlivesData) {
                self.now.place = place;
            }
        }
        let is_same = match self.primary {
            Some(_) => true,
            None => keeps_name && (!is_power_cut || self.has(Fault::LossKeepsName)),
        };
        if !is_same {
            self.now.place.id = truth.name(None);
            truth.note(self.now.place, &self.now.data)?;
        }
        self.sync();
        self.must_select = true;
        self.identity = Identity::new(self.now.place.id);
        self.backlog = Backlog::new(self.now.place.offset, KEPT_BYTES);
        Ok(())
    }
}

/// A command as it is in a stream.
fn command(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}
