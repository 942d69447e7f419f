//! All users.
//!
//! Connections keep a copy of their user ([`Rights`](super::Rights)). A number, the generation, tells them that some
//! user has changed. So a check of rights takes no lock.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::RwLock;

use super::error::RulesError;
use super::user::{DEFAULT, Terms, User, UserId};

/// See the module. The default user always exists.
pub struct Users {
    by_name: RwLock<BTreeMap<Vec<u8>, Arc<User>>>,
    /// Incremented after each change.
    generation: AtomicU64,
    /// True if the default user is on and needs no password.
    is_open: AtomicBool,
    next_id: AtomicU64,
}

/// A user before and after a change.
pub struct Changed {
    /// The user before the change; `None` if it is new.
    pub old: Option<Arc<User>>,
    /// The user after the change.
    pub new: Arc<User>,
}

/// Identity of the first default user.
const FIRST: UserId = UserId(0);

impl Users {
    /// Creates the default user only, with all rights.
    #[must_use]
    pub fn new(terms: Terms<'_>) -> Self {
        let user = Arc::new(User::default_user(FIRST, terms));
        Self {
            by_name: RwLock::new(BTreeMap::from([(DEFAULT.to_vec(), user)])),
            generation: AtomicU64::new(0),
            is_open: AtomicBool::new(true),
            next_id: AtomicU64::new(FIRST.0 + 1),
        }
    }

    /// Returns a number that differs after each change.
    #[must_use]
    #[inline]
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Returns true if clients need not authenticate.
    #[must_use]
    #[inline]
    pub fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Relaxed)
    }

    /// Returns true if authentication cannot give a client other rights: the default user is open, and there is no
    /// other user.
    #[must_use]
    pub fn need_not_authenticate(&self) -> bool {
        self.is_open() && self.by_name.read().len() == 1
    }

    /// Returns the user of this name.
    #[must_use]
    pub fn get(&self, name: &[u8]) -> Option<Arc<User>> {
        self.by_name.read().get(name).cloned()
    }

    /// Returns the user of connections that have not authenticated.
    #[must_use]
    pub fn default_user(&self) -> Arc<User> {
        self.get(DEFAULT).expect("it cannot be removed")
    }

    /// Returns all users by name.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<User>> {
        self.by_name.read().values().cloned().collect()
    }

    /// Applies rules to a user, and creates it if needed.
    ///
    /// # Errors
    /// If one of the rules is invalid. Nothing has changed then.
    pub fn change(
        &self,
        name: &[u8],
        rules: &[&[u8]],
        terms: Terms<'_>,
    ) -> Result<Changed, RulesError> {
        let mut by_name = self.by_name.write();
        let old = by_name.get(name).cloned();
        let mut user = match &old {
            Some(old) => User::clone(old),
            None => self.new_user(name, terms),
        };
        user.apply_all(rules, terms)?;
        let new = Arc::new(user);
        by_name.insert(name.to_vec(), Arc::clone(&new));
        self.publish(&by_name);
        Ok(Changed { old, new })
    }

    /// Creates a user who is not in this set yet; see [`replace`](Self::replace).
    #[must_use]
    pub fn new_user(&self, name: &[u8], terms: Terms<'_>) -> User {
        User::new(UserId(self.next_id.fetch_add(1, Ordering::Relaxed)), name, terms)
    }

    /// Removes a user. Returns false if there is none, or if it is the default user.
    pub fn remove(&self, name: &[u8]) -> bool {
        let mut by_name = self.by_name.write();
        let is_removed = name != DEFAULT && by_name.remove(name).is_some();
        if is_removed {
            self.publish(&by_name);
        }
        is_removed
    }

    /// Replaces all users by these. A user whose name existed before keeps its identity. If the default user is not
    /// among them, it gets the rules of a server's start.
    pub fn replace(&self, users: Vec<User>, terms: Terms<'_>) {
        let mut by_name = self.by_name.write();
        let mut next = BTreeMap::new();
        for user in std::iter::once(User::default_user(FIRST, terms)).chain(users) {
            let user = match by_name.get(user.name()) {
                Some(old) => user.with_id(old.id()),
                None => user,
            };
            next.insert(user.name().to_vec(), Arc::new(user));
        }
        *by_name = next;
        self.publish(&by_name);
    }

    /// Publishes a change. The caller has the lock, so that the last change is published last.
    fn publish(&self, by_name: &BTreeMap<Vec<u8>, Arc<User>>) {
        let is_open = by_name.get(DEFAULT).is_some_and(|user| user.is_open());
        self.is_open.store(is_open, Ordering::Relaxed);
        self.generation.fetch_add(1, Ordering::Release);
    }
}
