//! The replication offset that the data of a replica corresponds to, so that the replica can continue there after a
//! restart.
//!
//! The offset is logged in the record of the change that reaches it. **Invariant:** the last offset in a log is that of
//! the data in this log, or an older one after which the stream has changed nothing. So a power cut that takes the end
//! of the log takes data and offset together.
//!
//! A primary logs the place in its own stream once, when it ends in order ([`ShardLocks::end_at`]), and takes it back
//! when it starts ([`ShardLocks::move_to`]). So the log of a primary that was killed has none.

use parking_lot::Mutex;

use crate::db_index::DbIndex;
use crate::effects::Effects;
use crate::keyspace::Keyspace;

/// Length of the name of a stream.
pub const STREAM_NAME_LEN: usize = 40;

/// A place in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamPlace {
    /// The name of the stream.
    pub stream: [u8; STREAM_NAME_LEN],
    /// So many bytes of it are known.
    pub offset: u64,
    /// The database that is selected there.
    pub db: DbIndex,
}

/// A place that the next changes lead to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Due {
    place: Option<StreamPlace>,
    /// It is logged even if nothing changes.
    is_forced: bool,
    /// It is in the stream of this server itself, which is a primary and ends here.
    is_own: bool,
}

/// The place of the data, as the log has it. Locked while a record with it is appended, so that a checkpoint does not
/// restate an older one behind it.
pub(crate) type KnownPlace = Mutex<Option<StreamPlace>>;

impl Effects<'_> {
    /// Commits what leads to a place.
    #[cold]
    pub(crate) fn commit_with_place(&mut self, keyspace: &Keyspace) -> bool {
        let Some(Due { mut place, is_forced, is_own }) = self.due_place else { return false };
        let Some(pending) = &mut self.pending else {
            // It cannot be told from the log where the data are.
            self.due_place = None;
            *keyspace.stream_place.lock() = None;
            return false;
        };
        if !is_forced && pending.is_unchanged() {
            return pending.append();
        }
        self.due_place = None;
        let mut known = keyspace.stream_place.lock();
        if !is_own && !keyspace.is_following() {
            // A primary by now, whose clients may have changed what is no part of the stream.
            place = None;
        }
        *known = place;
        pending.push_place(place.as_ref());
        pending.append()
    }

    /// Another database is selected at the place.
    pub(crate) fn select_in_lead(&mut self, db: DbIndex) {
        if let Some(Due { place: Some(place), .. }) = &mut self.due_place {
            place.db = db;
        }
    }

    /// What is done next leads to this place, or to none.
    pub(crate) fn lead_to(&mut self, place: Option<StreamPlace>, is_forced: bool) {
        self.due_place = Some(Due { place, is_forced, is_own: false });
    }

    /// The data are those of this place in the stream of this server, and do not change any more.
    pub(crate) fn end_at(&mut self, place: StreamPlace) {
        self.due_place = Some(Due { place: Some(place), is_forced: true, is_own: true });
    }
}

impl Keyspace {
    /// The data are not those of a stream: some were lost. Before they are logged.
    pub fn forget_stream_place(&self) {
        *self.stream_place.lock() = None;
    }

    /// What was loaded is that of a place, as a snapshot says.
    pub fn note_loaded_place(&self, place: StreamPlace) {
        *self.stream_place.lock() = Some(place);
    }

    /// The place of the data in the stream of a primary, as the log has it.
    pub fn stream_place(&self) -> Option<StreamPlace> {
        *self.stream_place.lock()
    }
}
