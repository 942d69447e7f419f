//! Access control lists: users and their rights.
//!
//! | module | content |
//! |---|---|
//! | `user` | a user: passwords and selectors, and the rules that change them |
//! | `selector` | commands, with the keys and channels that they may be used on |
//! | `pattern` | patterns of keys, with the permissions that they give |
//! | `check` | checks a call against the rules of a user |
//! | `shortcuts` | a fast check that suffices for most calls |
//! | `users` | all users; connections learn from it that users have changed |
//! | `rights` | the rights of a connection |
//! | `file` | users in a file |
//! | `log` | denials |
//! | `guesses` | slows down password guessing |
//! | `password`, `sha256` | stored form of passwords |
//!
//! Invariants:
//! * Rights are checked before anything else that depends on the arguments of a request: before values are fetched from
//!   disk, before keys are locked.
//! * A request that runs later than it was checked is checked again: in EXEC, on a thread for long commands, or after
//!   its client was blocked on keys.
//! * This module knows neither clients nor the bodies of commands. The commands that change users carry out the
//!   consequences, such as closing connections.

mod check;
mod error;
mod file;
#[doc(hidden)]
pub mod fuzzing;
mod guesses;
mod log;
mod password;
mod pattern;
mod rights;
mod selector;
pub(crate) mod sha256;
mod shortcuts;
#[cfg(test)]
mod tests;
mod user;
mod users;

use std::sync::Arc;

use parking_lot::Mutex;

use self::password::PasswordHash;

pub use self::check::Denial;
pub use self::error::{RuleError, RulesError};
#[cfg(test)]
use self::file::parse;
pub use self::file::{FileError, load, load_configured, save};
pub use self::guesses::{Attempt, Guesses};
pub use self::log::{AclLog, Denied, Entry, Origin, Reason};
pub use self::pattern::{KeyPattern, Permission};
pub use self::rights::Rights;
pub use self::selector::{ChannelDefault, Selector};
pub use self::user::{DEFAULT, Terms, User, UserId};
pub use self::users::{Changed, Users};

/// Users, denials and wrong passwords.
pub struct Acl {
    /// The users.
    pub users: Arc<Users>,
    /// Denials.
    pub log: AclLog,
    /// Wrong passwords.
    pub guesses: Guesses,
    /// Locked while users are written to their file or replaced by those in it, so that memory and file agree after
    /// both.
    file: Mutex<()>,
}

impl Acl {
    /// Creates the default user only, with all rights.
    #[must_use]
    pub fn new(terms: Terms<'_>) -> Self {
        Self {
            users: Arc::new(Users::new(terms)),
            log: AclLog::default(),
            guesses: Guesses::default(),
            file: Mutex::new(()),
        }
    }
}

/// Compares two secrets in a time that does not depend on the position of the first difference.
#[must_use]
pub fn are_same_secrets(one: &[u8], other: &[u8]) -> bool {
    PasswordHash::of(one) == PasswordHash::of(other)
}
