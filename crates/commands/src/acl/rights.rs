//! The rights of a connection: a snapshot of its user from the last lookup.

use std::sync::Arc;

use tierce_wire::resp::Args;

use super::check::Denial;
use super::pattern::Permission;
use super::user::User;
use super::users::Users;
use crate::command::{ChannelUse, Command, KeyFlags};

/// See the module.
#[derive(Clone)]
pub struct Rights {
    /// `None` for the server itself and for programs that embed it. They have all rights.
    user: Option<Arc<User>>,
    /// Generation of the users when `user` was looked up.
    generation: u64,
    /// True if something is not allowed.
    is_restricted: bool,
}

impl Rights {
    /// All rights. They never expire.
    #[must_use]
    pub fn unlimited() -> Self {
        Self { user: None, generation: 0, is_restricted: false }
    }

    /// The rights of a user.
    #[must_use]
    pub fn of(user: Arc<User>, users: &Users) -> Self {
        let mut rights = Self { user: Some(user), ..Self::unlimited() };
        rights.renew(users);
        rights
    }

    /// The rights of a connection that has not authenticated.
    #[must_use]
    pub fn of_default_user(users: &Users) -> Self {
        Self::of(users.default_user(), users)
    }

    /// Returns true if some user has changed since the last lookup.
    #[must_use]
    #[inline]
    pub fn are_old(&self, users: &Users) -> bool {
        self.generation != users.generation()
    }

    /// Looks the user up again. Returns false if the user was removed.
    #[cold]
    pub fn renew(&mut self, users: &Users) -> bool {
        // The generation is read first, so that a concurrent change is noticed the next time.
        self.generation = users.generation();
        let mut is_there = true;
        if let Some(user) = &mut self.user {
            match users.get(user.name()).filter(|there| there.id() == user.id()) {
                Some(there) => *user = there,
                None => {
                    *user = Arc::new(user.without_rights());
                    is_there = false;
                }
            }
        }
        self.is_restricted = self.user.as_ref().is_some_and(|user| !user.is_unrestricted());
        is_there
    }

    /// Returns the user, or `None` with unlimited rights.
    #[must_use]
    pub fn user(&self) -> Option<&Arc<User>> {
        self.user.as_ref()
    }

    /// Returns true if something is not allowed.
    #[must_use]
    #[inline]
    pub fn are_restricted(&self) -> bool {
        self.is_restricted
    }

    /// Returns true if [`check`](Self::check) allows a call. Usually takes a few instructions.
    #[must_use]
    #[inline]
    pub fn allow(&self, command: &Command, args: Args<'_>) -> bool {
        match &self.user {
            Some(user) => user.allows_at_once(command, args) || user.check(command, args).is_ok(),
            None => true,
        }
    }

    /// Checks a call, including the name of its command.
    ///
    /// # Errors
    /// The denied part.
    #[inline]
    pub fn check(&self, command: &Command, args: Args<'_>) -> Result<(), Denial> {
        match &self.user {
            Some(user) if self.is_restricted => user.check(command, args),
            _ => Ok(()),
        }
    }

    /// Checks a request of another protocol; see [`User::check_equivalent`].
    ///
    /// # Errors
    /// The denied part.
    pub fn check_equivalent(
        &self,
        command: &Command,
        keys: &[&[u8]],
        needed: Permission,
    ) -> Result<(), Denial> {
        match &self.user {
            Some(user) if self.is_restricted => user.check_equivalent(command, keys, needed),
            _ => Ok(()),
        }
    }

    /// Returns true if a call may use all keys like this. Some calls find keys in data.
    #[must_use]
    pub fn allow_all_keys(&self, command: &Command, args: Args<'_>, flags: KeyFlags) -> bool {
        let may = |user: &Arc<User>| user.may_use_all_keys(command, args, flags);
        !self.is_restricted || self.user.as_ref().is_some_and(may)
    }

    /// Returns true if the user may know that this key exists.
    #[must_use]
    pub fn see_key(&self, key: &[u8]) -> bool {
        let sees = |user: &Arc<User>| {
            user.selectors().iter().any(|selector| selector.allows_key(key, Permission::NONE))
        };
        !self.is_restricted || self.user.as_ref().is_some_and(sees)
    }

    /// Returns true if the user may keep a subscription to this channel or pattern.
    #[must_use]
    pub fn allow_channel(&self, name: &[u8], named_by: ChannelUse) -> bool {
        let allows = |user: &Arc<User>| {
            user.selectors().iter().any(|selector| selector.allows_channel(name, named_by))
        };
        !self.is_restricted || self.user.as_ref().is_some_and(allows)
    }
}
