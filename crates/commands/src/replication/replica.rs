//! A replica of this server: what it has reported about itself, and what it gets next.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;
use tierce_replication::backlog::{Reader, Taken};

use super::Copy;
use super::role::Address;
use crate::clients::Client;

/// What a replica has said of itself by REPLCONF.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Where it listens; 0 if it has not said.
    pub port: u16,
    /// Its address, if it is not the one that it connects from.
    pub ip: Option<String>,
    /// It takes copies whose length is not known in advance.
    pub takes_marks: bool,
    /// It understands a new replication id behind CONTINUE.
    pub takes_ids: bool,
    /// It wants a copy and nothing behind it.
    pub copy_only: bool,
    /// It wants a copy without keys, with this.
    pub filter: Option<CopyFilter>,
}

/// What a copy without keys has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyFilter {
    /// Libraries of functions, and scripts by their names.
    Functions,
    /// Nothing.
    Nothing,
}

/// With which command it asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// PSYNC: it wants to be told name and offset.
    Psync,
    /// SYNC, of old replicas: it wants the copy at once.
    Sync,
}

/// What it gets next.
#[derive(Debug)]
pub enum Place {
    /// Nothing: it has not asked.
    Nothing,
    /// A full copy that has not begun, and meanwhile a sign of life from time to time.
    Waits {
        /// How it has asked.
        asked: Asked,
        /// A sign of life is due.
        is_due: bool,
    },
    /// A full copy, and then the stream from where `then` is.
    Copies {
        /// What is still to be sent in front of the copy.
        head: Vec<u8>,
        /// The copy.
        copy: Arc<Copy>,
        /// Where it is in the copy.
        reader: Reader,
        /// Where it goes on in the stream.
        then: Reader,
        /// It has said that it has loaded the copy: its last bytes have just arrived there.
        is_loaded: bool,
    },
    /// The stream, when it has said that it has loaded the copy: before, it could take the stream for a part of that.
    AwaitsAck(Reader),
    /// The stream.
    Streams(Reader),
    /// Nothing more: it wanted a copy alone, and has it.
    Rests,
    /// Nothing more: its connection ends.
    Ended,
}

/// What begins for a replica that has said how far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Began {
    /// Nothing that had not begun before.
    Nothing,
    /// The stream behind its copy, which it has loaded.
    Stream,
}

/// What [`Replica::take`] came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Took {
    /// As much as there was room for: there is more.
    More,
    /// All there is at the moment.
    All,
    /// The connection has to be closed: it has lagged too much, or its copy has failed.
    Lost,
}

/// A replica.
pub struct Replica {
    /// Its connection.
    pub client: Arc<Client>,
    /// What it has said of itself.
    pub facts: Mutex<Facts>,
    place: Mutex<Place>,
    /// It has processed the stream up to here.
    acknowledged: AtomicU64,
    /// And has it on disk up to here.
    synced: AtomicU64,
    /// When it said so last, in Unix milliseconds. Of one that is not as far as that, when it was heard of.
    acknowledged_ms: AtomicI64,
    /// Since when it has lagged more than the soft limit allows, in Unix milliseconds; 0 if it does not.
    lags_since_ms: AtomicI64,
    /// It has asked with SYNC, and never says how far it is.
    is_old: AtomicBool,
    /// Its worker knows that there is something for it.
    is_told: AtomicBool,
}

impl Replica {
    /// One that has not asked for anything yet.
    #[must_use]
    pub fn new(client: Arc<Client>) -> Self {
        Self {
            client,
            facts: Mutex::default(),
            place: Mutex::new(Place::Nothing),
            acknowledged: AtomicU64::new(0),
            synced: AtomicU64::new(0),
            acknowledged_ms: AtomicI64::new(0),
            lags_since_ms: AtomicI64::new(0),
            is_old: AtomicBool::new(false),
            is_told: AtomicBool::new(false),
        }
    }

    /// Gives it another place.
    pub fn turn_to(&self, place: Place) {
        *self.place.lock() = place;
    }

    /// Whether it has asked for the stream or a copy.
    #[must_use]
    pub fn follows(&self) -> bool {
        !matches!(*self.place.lock(), Place::Nothing)
    }

    /// Whether it wants the stream, and not only a copy.
    #[must_use]
    pub fn wants_stream(&self) -> bool {
        self.follows() && !self.facts.lock().copy_only
    }

    /// With which command it waits for a copy to begin, if it does.
    #[must_use]
    pub fn waits(&self) -> Option<Asked> {
        match *self.place.lock() {
            Place::Waits { asked, .. } => Some(asked),
            _ => None,
        }
    }

    /// Whether it gets the stream.
    #[must_use]
    pub fn is_online(&self) -> bool {
        matches!(*self.place.lock(), Place::Streams(_))
    }

    /// Whether it gets the stream, and says from time to time how far it is.
    #[must_use]
    pub fn confirms(&self) -> bool {
        self.is_online() && !self.is_old.load(Relaxed)
    }

    /// Whether it wants the stream, and says from time to time how far it is, as soon as it has its copy.
    #[must_use]
    pub fn will_confirm(&self) -> bool {
        self.wants_stream() && !self.is_old.load(Relaxed)
    }

    /// It has asked with SYNC, and will not say how far it is.
    pub fn note_old(&self) {
        self.is_old.store(true, Relaxed);
    }

    /// Whether more than `bytes` of the stream have waited for it for more than `seconds` without a break, as far as
    /// this is asked often. Zero bytes: never.
    #[must_use]
    pub fn lags_for(&self, bytes: u64, seconds: u32, now_ms: i64) -> bool {
        let lag = match &*self.place.lock() {
            Place::Streams(reader) | Place::AwaitsAck(reader) => reader.lag(),
            Place::Copies { then, .. } => then.lag(),
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

    /// Its state in the words of INFO.
    #[must_use]
    pub fn state(&self) -> &'static str {
        match *self.place.lock() {
            Place::Streams(_) => "online",
            Place::Copies { .. } | Place::AwaitsAck(_) => "send_bulk",
            Place::Nothing | Place::Waits { .. } | Place::Rests | Place::Ended => "wait_bgsave",
        }
    }

    /// Appends to `into` what it gets next, about `max` bytes at most.
    pub fn take(&self, max: usize, into: &mut Vec<u8>) -> Took {
        self.is_told.store(false, Relaxed);
        let end = into.len() + max;
        let mut place = self.place.lock();
        loop {
            let room = end.saturating_sub(into.len());
            if room == 0 {
                return Took::More;
            }
            match &mut *place {
                Place::Nothing | Place::Rests => return Took::All,
                Place::Waits { is_due, .. } => {
                    if std::mem::take(is_due) {
                        into.push(b'\n');
                    }
                    return Took::All;
                }
                Place::AwaitsAck(reader) => {
                    return if reader.lag().is_some() { Took::All } else { Took::Lost };
                }
                Place::Ended => return Took::Lost,
                Place::Streams(reader) => match reader.take(room, into) {
                    Taken::Bytes(_) => {}
                    Taken::Nothing => return Took::All,
                    Taken::Lost => return Took::Lost,
                },
                Place::Copies { head, copy, reader, .. } => {
                    into.append(head);
                    // In this order: what is written before the end is known is there.
                    let ended = copy.ended();
                    match reader.take(room, into) {
                        Taken::Bytes(_) => {}
                        Taken::Lost => return Took::Lost,
                        Taken::Nothing => match ended {
                            None => return Took::All,
                            Some(false) => return Took::Lost,
                            Some(true) => self.end_copy(&mut place),
                        },
                    }
                }
            }
        }
    }

    fn end_copy(&self, place: &mut Place) {
        if let Place::Copies { then, is_loaded, .. } = std::mem::replace(place, Place::Ended) {
            // One that wants nothing else closes its connection, and keeps nothing until then.
            let copy_only = self.facts.lock().copy_only;
            *place = match is_loaded {
                _ if copy_only => Place::Rests,
                true => Place::Streams(then),
                false => Place::AwaitsAck(then),
            };
        }
    }

    /// It has the stream on disk up to an offset.
    pub fn note_synced(&self, offset: u64) {
        self.synced.fetch_max(offset, Relaxed);
    }

    /// It has processed the stream up to an offset. What it gets from now on because of that.
    pub fn acknowledge(&self, offset: u64, now_ms: i64) -> Began {
        self.acknowledged.fetch_max(offset, Relaxed);
        self.acknowledged_ms.store(now_ms, Relaxed);
        let mut place = self.place.lock();
        if let Place::Copies { is_loaded, .. } = &mut *place {
            *is_loaded = true;
        }
        if let Place::AwaitsAck(_) = *place
            && let Place::AwaitsAck(reader) = std::mem::replace(&mut *place, Place::Ended)
        {
            *place = Place::Streams(reader);
            return Began::Stream;
        }
        Began::Nothing
    }

    /// The offset up to which it has processed the stream.
    #[must_use]
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Relaxed)
    }

    /// The offset up to which it has the stream on disk.
    #[must_use]
    pub fn synced(&self) -> u64 {
        self.synced.load(Relaxed)
    }

    /// Seconds since it said so.
    #[must_use]
    pub fn silent_seconds(&self, now_ms: i64) -> i64 {
        (now_ms - self.acknowledged_ms.load(Relaxed)).max(0) / 1000
    }

    /// For how many seconds something should have been heard of it: that it takes the end of its copy, then that it
    /// loads it, and then how far it is in the stream. `None` if nothing is to be heard. While a copy is being written,
    /// its writer looks after those who take it.
    #[must_use]
    pub fn overdue_seconds(&self, now_ms: i64) -> Option<i64> {
        let is_old = self.is_old.load(Relaxed);
        match &*self.place.lock() {
            Place::Streams(_) | Place::AwaitsAck(_) if !is_old => Some(self.silent_seconds(now_ms)),
            Place::Copies { copy, .. } => {
                let complete = (now_ms - copy.complete_ms()?).max(0) / 1000;
                Some(complete.min(self.silent_seconds(now_ms)))
            }
            _ => None,
        }
    }

    /// It has taken something of its copy, or shows that it is loading it.
    pub fn show_progress(&self, now_ms: i64) {
        if let Place::Copies { .. } | Place::AwaitsAck(_) = &*self.place.lock() {
            self.note_time(now_ms);
        }
    }

    /// Its time begins: silence counts from now on.
    pub fn note_time(&self, now_ms: i64) {
        self.acknowledged_ms.store(now_ms, Relaxed);
    }

    /// Its bytes in the stream are gone, so that it can never get them.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        match &*self.place.lock() {
            Place::Streams(reader) | Place::AwaitsAck(reader) => reader.lag().is_none(),
            Place::Copies { reader, then, copy, .. } => {
                reader.lag().is_none() || then.lag().is_none() || copy.ended() == Some(false)
            }
            _ => false,
        }
    }

    /// Has it get a sign of life, if it waits for a copy to begin.
    pub fn show_life(&self) {
        if let Place::Waits { is_due, .. } = &mut *self.place.lock() {
            *is_due = true;
        }
    }

    /// Whether its worker has to be told that there is something for it: at most once until it takes that.
    #[must_use]
    pub fn tell(&self) -> bool {
        !self.is_told.swap(true, Relaxed)
    }

    /// Where it listens, by what it says of itself.
    #[must_use]
    pub fn address(&self) -> Address {
        Address { host: self.ip().into_bytes(), port: self.port() }
    }

    /// Whether that is this address. One that has not said where it listens is at none.
    #[must_use]
    pub fn is_at(&self, address: &Address) -> bool {
        self.listens()
            && self.port() == address.port
            && self.ip().as_bytes().eq_ignore_ascii_case(&address.host)
    }

    /// Whether it has said where it listens. A reader of the stream may not, and cannot take over.
    #[must_use]
    pub fn listens(&self) -> bool {
        self.port() != 0
    }

    /// Where it listens; 0 if it has not said.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.facts.lock().port
    }

    /// Its address, as others should see it.
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
        replica.turn_to(Place::Copies { head, copy: Arc::clone(&copy), reader, then, is_loaded });
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
        // Only how far it is counts from then on.
        replica.show_progress(begin + 120_000);
        assert_eq!(overdue(120_000), Some(10));
        replica.note_old();
        assert_eq!(overdue(120_000), None);
    }
}
