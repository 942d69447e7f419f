//! Access control lists: users, and what they may do.
//!
//! | module | what it holds |
//! |---|---|
//! | `user` | a user: passwords and selectors, and the rules that change them |
//! | `selector` | commands, with the keys and channels that they may be used on |
//! | `pattern` | patterns of keys, and what they permit |
//! | `check` | whether a user may make a call |
//! | `shortcuts` | the same for most calls, in a few instructions |
//! | `users` | all users, and how connections notice changes |
//! | `rights` | what a connection may do |
//! | `file` | users in a file |
//! | `log` | what was denied |
//! | `guesses` | who guesses passwords waits |
//! | `password`, `sha256` | passwords as they are kept |
//!
//! Invariants:
//! * Rights are checked before anything else that depends on the arguments of a request: before values are fetched from
//!   disk, before keys are locked.
//! * What is denied is denied again when a request runs later than it was checked: in EXEC, on a thread for long
//!   commands, for a client that has waited for keys.
//! * This module knows neither clients nor commands' bodies. What follows from a change, such as closing connections,
//!   is done by the commands that change users.

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
mod sha256;
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

/// Users, and what is remembered of their attempts.
pub struct Acl {
    /// The users.
    pub users: Arc<Users>,
    /// What was denied.
    pub log: AclLog,
    /// Wrong passwords.
    pub guesses: Guesses,
    /// Held while users are written to their file, and while they are replaced by those that are in it: what is there
    /// after both is the same in memory and in the file.
    file: Mutex<()>,
}

impl Acl {
    /// With the default user alone, who may do everything.
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

/// Whether two secrets are the same, found in a time that tells nothing about where they differ.
#[must_use]
pub fn are_same_secrets(one: &[u8], other: &[u8]) -> bool {
    PasswordHash::of(one) == PasswordHash::of(other)
}
