//! All users.
//!
//! Connections keep the user that they are ([`Rights`](super::Rights)) and learn by a number, the generation, that some
//! user has changed. So a request of a user costs no lock.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::RwLock;

use super::error::RulesError;
use super::user::{DEFAULT, Terms, User, UserId};

/// See the module. There always is a default user.
pub struct Users {
    by_name: RwLock<BTreeMap<Vec<u8>, Arc<User>>>,
    /// Grows with each change, after it.
    generation: AtomicU64,
    /// Whether the default user needs no password and is on.
    is_open: AtomicBool,
    next_id: AtomicU64,
}

/// A user before and after a change.
pub struct Changed {
    /// As it was; none if it is new.
    pub old: Option<Arc<User>>,
    /// As it is.
    pub new: Arc<User>,
}

/// The identity of the first default user.
const FIRST: UserId = UserId(0);

impl Users {
    /// The default user alone, who may do everything.
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

    /// A number that is another one after each change.
    #[must_use]
    #[inline]
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Whether clients need not authenticate.
    #[must_use]
    #[inline]
    pub fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Relaxed)
    }

    /// Whether clients cannot become more than they are from the start: the default user is open, and there is no
    /// other.
    #[must_use]
    pub fn need_not_authenticate(&self) -> bool {
        self.is_open() && self.by_name.read().len() == 1
    }

    /// The user of this name.
    #[must_use]
    pub fn get(&self, name: &[u8]) -> Option<Arc<User>> {
        self.by_name.read().get(name).cloned()
    }

    /// The user of connections that have not said who they are.
    #[must_use]
    pub fn default_user(&self) -> Arc<User> {
        self.get(DEFAULT).expect("it cannot be removed")
    }

    /// All users by name.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<User>> {
        self.by_name.read().values().cloned().collect()
    }

    /// Applies rules to a user, who is made if there is none.
    ///
    /// # Errors
    /// If one of the rules is none; nothing has changed then.
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

    /// A user who is not among these yet; see [`replace`](Self::replace).
    #[must_use]
    pub fn new_user(&self, name: &[u8], terms: Terms<'_>) -> User {
        User::new(UserId(self.next_id.fetch_add(1, Ordering::Relaxed)), name, terms)
    }

    /// Removes a user, unless it is the default user. Whether there was one.
    pub fn remove(&self, name: &[u8]) -> bool {
        let mut by_name = self.by_name.write();
        let is_removed = name != DEFAULT && by_name.remove(name).is_some();
        if is_removed {
            self.publish(&by_name);
        }
        is_removed
    }

    /// Has these users and no others. Who has the name of one before stays that user, with other rules; a default user
    /// who is not among them is as at the start of a server.
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

    /// To be called with the lock held, so that the last change is the one that counts.
    fn publish(&self, by_name: &BTreeMap<Vec<u8>, Arc<User>>) {
        let is_open = by_name.get(DEFAULT).is_some_and(|user| user.is_open());
        self.is_open.store(is_open, Ordering::Relaxed);
        self.generation.fetch_add(1, Ordering::Release);
    }
}
