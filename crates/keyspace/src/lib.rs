//! Typed values in shards: expiry, memory accounting, multi-key locking.

mod clock;
mod error;
mod key;
mod text_int;

mod entry;
mod value;

mod change;
mod deadline;
mod garbage;
mod shard;
mod stats;

mod alarm;
mod keyspace;
mod locker;

mod db;
mod flush;
mod prefetch;
mod scan;
mod string;

mod reaper;

pub use change::{Change, Event, Observer, Removal};
pub use clock::{Clock, ManualClock, SystemClock};
pub use db::{Db, DeadlineSet, Touch, Ttl};
pub use entry::{Entry, size_class};
pub use error::{Error, Result};
pub use flush::Freeing;
pub use key::{KEY_LEN_MAX, Key, KeyHash};
pub use keyspace::{DATABASES_MAX, DbIndex, Keyspace, Options, OptionsError, SHARDS_MAX};
pub use locker::{Locker, Many};
pub use reaper::Reaper;
pub use stats::{DbStats, Memory, Stats};
pub use string::{Expiry, NewString};
pub use text_int::{INT_TEXT_MAX, IntText, int_text_len, parse_int};
pub use value::{BLOB_LEN_MIN, Blob, StrView, Value, ValueType, range_of};
