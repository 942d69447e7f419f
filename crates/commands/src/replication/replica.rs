//! A replica of this server: its reported properties, and the data that it gets next.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;
use tierce_replication::backlog::{Reader, Taken};

use super::Copy;
use super::role::Address;
use crate::clients::Client;

/// Properties that a replica reported by REPLCONF.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Its listening port; 0 if it has not reported one.
    pub port: u16,
    /// Its announced address, if it differs from that of its connection.
    pub ip: Option<String>,
    /// True if it accepts copies whose length is not known in advance.
    pub takes_marks: bool,
    /// True if it understands a new replication id after CONTINUE.
    pub takes_ids: bool,
    /// True if it wants a copy and no stream after it.
    pub copy_only: bool,
    /// Content of the copy, if it wants a copy without keys.
    pub filter: Option<CopyFilter>,
}

/// Content of a copy without keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyFilter {
    /// Libraries of functions, and scripts by their names.
    Functions,
    /// Nothing.
    Nothing,
}

/// The command by which it asked for data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// PSYNC: it expects id and offset.
    Psync,
    /// SYNC, of old replicas: it expects the copy at once.
    Sync,
}

/// The data that a replica gets next.
#[derive(Debug)]
pub enum Position {
    /// Nothing: it has not asked.
    Nothing,
    /// A full copy that has not begun. Until then it gets keepalive bytes.
    Waits {
        /// The command by which it asked.
        asked: Asked,
        /// True if a keepalive byte is due.
        is_due: bool,
    },
    /// A full copy, and then the stream from `then` on.
    Copies {
        /// Unsent bytes before the copy.
        head: Vec<u8>,
        /// The copy.
        copy: Arc<Copy>,
        /// Its position in the copy.
        reader: Reader,
        /// Its position in the stream after the copy.
        then: Reader,
        /// True if it has reported that the copy is loaded: the last bytes have just arrived there.
        is_loaded: bool,
    },
    /// The stream, once it has reported the copy as loaded. Earlier it could take the stream for a part of it.
    AwaitsAck(Reader),
    /// The stream.
    Streams(Reader),
    /// Nothing more: it only wanted a copy, and has it.
    Rests,
    /// Nothing more: its connection ends.
    Ended,
}

/// Effect of an acknowledgement by a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Began {
    /// Nothing new.
    Nothing,
    /// It gets the stream after its copy, which it has loaded.
    Stream,
}

/// Result of [`Replica::take`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Took {
    /// `max` bytes were taken, and there are more.
    More,
    /// All available bytes were taken.
    All,
    /// The connection has to be closed: the replica lags too much, or its copy has failed.
    Lost,
}

/// A replica.
pub struct Replica {
    /// Its connection.
    pub client: Arc<Client>,
    /// Its reported properties.
    pub facts: Mutex<Facts>,
    position: Mutex<Position>,
    /// Offset up to which it has processed the stream.
    acknowledged: AtomicU64,
    /// Offset up to which it has the stream on disk.
    synced: AtomicU64,
    /// Time of the last acknowledgement in Unix milliseconds; before the first one, of the last sign of progress.
    acknowledged_ms: AtomicI64,
    /// Time since which it exceeds the soft limit, in Unix milliseconds; 0 if it does not.
    lags_since_ms: AtomicI64,
    /// True if it has asked with SYNC and never acknowledges.
    is_old: AtomicBool,
    /// True if its worker knows that there is data for it.
    is_told: AtomicBool,
}

impl Replica {
    /// Creates a replica that has not asked for anything yet.
    #[must_use]
    pub fn new(client: Arc<Client>) -> Self {
        Self {
            client,
            facts: Mutex::default(),
            position: Mutex::new(Position::Nothing),
            acknowledged: AtomicU64::new(0),
            synced: AtomicU64::new(0),
            acknowledged_ms: AtomicI64::new(0),
            lags_since_ms: AtomicI64::new(0),
            is_old: AtomicBool::new(false),
            is_told: AtomicBool::new(false),
        }
    }

    /// Sets the data that it gets next.
    pub fn turn_to(&self, position: Position) {
        *self.position.lock() = position;
    }

    /// Returns true if it has asked for the stream or a copy.
    #[must_use]
    pub fn follows(&self) -> bool {
        !matches!(*self.position.lock(), Position::Nothing)
    }

    /// Returns true if it wants the stream, and not only a copy.
    #[must_use]
    pub fn wants_stream(&self) -> bool {
        self.follows() && !self.facts.lock().copy_only
    }

    /// Returns the command by which it asked, if it waits for a copy to begin.
    #[must_use]
    pub fn waits(&self) -> Option<Asked> {
        match *self.position.lock() {
            Position::Waits { asked, .. } => Some(asked),
            _ => None,
        }
    }

    /// Returns true if it gets the stream.
    #[must_use]
    pub fn is_online(&self) -> bool {
        matches!(*self.position.lock(), Position::Streams(_))
    }

    /// Returns true if it gets the stream and acknowledges it.
    #[must_use]
    pub fn confirms(&self) -> bool {
        self.is_online() && !self.is_old.load(Relaxed)
    }

    /// Returns true if it wants the stream, and will acknowledge it once it has its copy.
    #[must_use]
    pub fn will_confirm(&self) -> bool {
        self.wants_stream() && !self.is_old.load(Relaxed)
    }

    /// Notes that it has asked with SYNC and will not acknowledge.
    pub fn note_old(&self) {
        self.is_old.store(true, Relaxed);
    }

    /// Returns true if it has lagged more than `bytes` behind the stream for more than `seconds` without a break, as
    /// seen by frequent calls. Never with zero bytes.
    #[must_use]
    pub fn lags_for(&self, bytes: u64, seconds: u32, now_ms: i64) -> bool {
        let lag = match &*self.position.lock() {
            Position::Streams(reader) | Position::AwaitsAck(reader) => reader.lag(),
            Position::Copies { then, .. } => then.lag(),
            _ => None,
        };
        if bytes == 0 || lag.is_none_or(|lag| lag <= bytes) {
            self.lags_since_ms.store(0, Relaxed);
            return false;
        }
        let since_ms = match self.lags_since_ms.load(Relaxed) {
            0 => now_ms,
            since_ms => since_ms,
        };
        self.lags_since_ms.store(since_ms, Relaxed);
        now_ms.saturating_sub(since_ms) > i64::from(seconds) * 1000
    }

    /// Returns its state in the words of INFO.
    #[must_use]
    pub fn state(&self) -> &'static str {
        match *self.position.lock() {
            Position::Streams(_) => "online",
            Position::Copies { .. } | Position::AwaitsAck(_) => "send_bulk",
            Position::Nothing | Position::Waits { .. } | Position::Rests | Position::Ended => {
                "wait_bgsave"
            }
        }
    }

    /// Appends the next data for it to `into`, about `max` bytes at most.
    pub fn take(&self, max: usize, into: &mut Vec<u8>) -> Took {
        self.is_told.store(false, Relaxed);
        let end = into.len() + max;
        let mut position = self.position.lock();
        loop {
            let room = end.saturating_sub(into.len());
            if room == 0 {
                return Took::More;
            }
            match &mut *position {
                Position::Nothing | Position::Rests => return Took::All,
                Position::Waits { is_due, .. } => {
                    if std::mem::take(is_due) {
                        into.push(b'\n');
                    }
                    return Took::All;
                }
                Position::AwaitsAck(reader) => {
                    return if reader.lag().is_some() { Took::All } else { Took::Lost };
                }
                Position::Ended => return Took::Lost,
                Position::Streams(reader) => match reader.take(room, into) {
                    Taken::Bytes(_) => {}
                    Taken::Nothing => return Took::All,
                    Taken::Lost => return Took::Lost,
                },
                Position::Copies { head, copy, reader, .. } => {
                    into.append(head);
                    // The order matters: everything written before the end was seen is then taken.
                    let ended = copy.ended();
                    match reader.take(room, into) {
                        Taken::Bytes(_) => {}
                        Taken::Lost => return Took::Lost,
                        Taken::Nothing => match ended {
                            None => return Took::All,
                            Some(false) => return Took::Lost,
                            Some(true) => self.end_copy(&mut position),
                        },
                    }
                }
            }
        }
    }

    fn end_copy(&self, position: &mut Position) {
        if let Position::Copies { then, is_loaded, .. } =
            std::mem::replace(position, Position::Ended)
        {
            // A replica that wants nothing else closes its connection, and needs no position until then.
            let copy_only = self.facts.lock().copy_only;
            *position = match is_loaded {
                _ if copy_only => Position::Rests,
                true => Position::Streams(then),
                false => Position::AwaitsAck(then),
            };
        }
    }

    /// Notes that it has the stream on disk up to an offset.
    pub fn note_synced(&self, offset: u64) {
        self.synced.fetch_max(offset, Relaxed);
    }

    /// Notes that it has processed the stream up to an offset. Returns the effect on the data that it gets.
    pub fn acknowledge(&self, offset: u64, now_ms: i64) -> Began {
        self.acknowledged.fetch_max(offset, Relaxed);
        self.acknowledged_ms.store(now_ms, Relaxed);
        let mut position = self.position.lock();
        if let Position::Copies { is_loaded, .. } = &mut *position {
            *is_loaded = true;
        }
        if let Position::AwaitsAck(_) = *position
            && let Position::AwaitsAck(reader) = std::mem::replace(&mut *position, Position::Ended)
        {
            *position = Position::Streams(reader);
            return Began::Stream;
        }
        Began::Nothing
    }

    /// Returns the offset up to which it has processed the stream.
    #[must_use]
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Relaxed)
    }

    /// Returns the offset up to which it has the stream on disk.
    #[must_use]
    pub fn synced(&self) -> u64 {
        self.synced.load(Relaxed)
    }

    /// Returns the seconds since its last acknowledgement.
    #[must_use]
    pub fn silent_seconds(&self, now_ms: i64) -> i64 {
        (now_ms - self.acknowledged_ms.load(Relaxed)).max(0) / 1000
    }

    /// Returns the seconds for which a sign of life is overdue: that it reads the end of its copy, then that it loads
    /// it, then its acknowledgements. `None` if none is expected. While a copy is being written, its writer checks the
    /// readers.
    #[must_use]
    pub fn overdue_seconds(&self, now_ms: i64) -> Option<i64> {
        let is_old = self.is_old.load(Relaxed);
        match &*self.position.lock() {
            Position::Streams(_) | Position::AwaitsAck(_) if !is_old => {
                Some(self.silent_seconds(now_ms))
            }
            Position::Copies { copy, .. } => {
                let complete = (now_ms - copy.complete_ms()?).max(0) / 1000;
                Some(complete.min(self.silent_seconds(now_ms)))
            }
            _ => None,
        }
    }

    /// Notes that it has read a part of its copy, or reports that it is loading it.
    pub fn show_progress(&self, now_ms: i64) {
        if let Position::Copies { .. } | Position::AwaitsAck(_) = &*self.position.lock() {
            self.note_time(now_ms);
        }
    }

    /// Restarts the measurement of silence.
    pub fn note_time(&self, now_ms: i64) {
        self.acknowledged_ms.store(now_ms, Relaxed);
    }

    /// Returns true if its next bytes are no longer available, so that it can never get them.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        match &*self.position.lock() {
            Position::Streams(reader) | Position::AwaitsAck(reader) => reader.lag().is_none(),
            Position::Copies { reader, then, copy, .. } => {
                reader.lag().is_none() || then.lag().is_none() || copy.ended() == Some(false)
            }
            _ => false,
        }
    }

    /// Makes a keepalive byte due, if it waits for a copy to begin.
    pub fn show_life(&self) {
        if let Position::Waits { is_due, .. } = &mut *self.position.lock() {
            *is_due = true;
        }
    }

    /// Returns true if its worker has to be notified: at most once until it takes the data.
    #[must_use]
    pub fn tell(&self) -> bool {
        !self.is_told.swap(true, Relaxed)
    }

    /// Returns the address that it announced.
    #[must_use]
    pub fn address(&self) -> Address {
        Address { host: self.ip().into_bytes(), port: self.port() }
    }

    /// Returns true if it announced this address. A replica that announced none never matches.
    #[must_use]
    pub fn is_at(&self, address: &Address) -> bool {
        self.listens()
            && self.port() == address.port
            && self.ip().as_bytes().eq_ignore_ascii_case(&address.host)
    }

    /// Returns true if it announced an address. Mere readers of the stream may not do so, and cannot take over.
    #[must_use]
    pub fn listens(&self) -> bool {
        self.port() != 0
    }

    /// Returns its listening port; 0 if it has not reported one.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.facts.lock().port
    }

    /// Returns its address for others.
    #[must_use]
    pub fn ip(&self) -> String {
        self.facts.lock().ip.clone().unwrap_or_else(|| self.client.host().to_owned())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tierce_replication::backlog::Backlog;

    use super::*;
    use crate::clients::Origin;

    #[test]
    fn one_that_has_its_copy_must_show_that_it_loads_it() {
        let replica = Replica::new(Arc::new(Client::new(Origin::default(), 0)));
        let (copy, sink) = Copy::begin(Duration::from_secs(60), None, Box::new(|| ()));
        let (reader, then) = (copy.reader().unwrap(), Backlog::new(0, 0).reader_at(0).unwrap());
        let (head, is_loaded) = (Vec::new(), false);
        replica.turn_to(Position::Copies {
            head,
            copy: Arc::clone(&copy),
            reader,
            then,
            is_loaded,
        });
        copy.open(None);
        assert_eq!(replica.overdue_seconds(i64::MAX), None, "the writer looks after it");
        sink.end(Ok(()));
        let begin = copy.complete_ms().unwrap();
        let overdue = |after_ms| replica.overdue_seconds(begin + after_ms);
        assert_eq!(overdue(70_000), Some(70), "it takes nothing");
        assert_eq!(replica.take(1000, &mut Vec::new()), Took::All);
        replica.show_progress(begin + 70_000);
        assert_eq!(overdue(75_000), Some(5), "it says nothing");
        replica.show_progress(begin + 100_000);
        assert_eq!(overdue(100_999), Some(0), "it loads");
        assert_eq!(replica.acknowledge(0, begin + 110_000), Began::Stream);
        // From then on only acknowledgements count.
        replica.show_progress(begin + 120_000);
        assert_eq!(overdue(120_000), Some(10));
        replica.note_old();
        assert_eq!(overdue(120_000), None);
    }
}
