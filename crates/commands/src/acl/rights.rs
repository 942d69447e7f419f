//! What a connection may do: the user that it is, as that user was when it was looked up last.

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
    /// `None` for the server itself and for programs that embed it, which may do everything.
    user: Option<Arc<User>>,
    /// The generation of the users at which `user` was right.
    generation: u64,
    /// Not everything is allowed.
    is_restricted: bool,
}

impl Rights {
    /// All rights, for good.
    #[must_use]
    pub fn unlimited() -> Self {
        Self { user: None, generation: 0, is_restricted: false }
    }

    /// Those of a user.
    #[must_use]
    pub fn of(user: Arc<User>, users: &Users) -> Self {
        let mut rights = Self { user: Some(user), ..Self::unlimited() };
        rights.renew(users);
        rights
    }

    /// Those of a connection that has not said who it is.
    #[must_use]
    pub fn of_default_user(users: &Users) -> Self {
        Self::of(users.default_user(), users)
    }

    /// Whether some user has changed since.
    #[must_use]
    #[inline]
    pub fn are_old(&self, users: &Users) -> bool {
        self.generation != users.generation()
    }

    /// Looks the user up again. Whether there still is that user.
    #[cold]
    pub fn renew(&mut self, users: &Users) -> bool {
        // The number first: a change in between is noticed the next time.
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

    /// The user; `None` for what has all rights.
    #[must_use]
    pub fn user(&self) -> Option<&Arc<User>> {
        self.user.as_ref()
    }

    /// Whether not everything is allowed.
    #[must_use]
    #[inline]
    pub fn are_restricted(&self) -> bool {
        self.is_restricted
    }

    /// Whether a call is allowed: as [`check`](Self::check), in a few instructions for most calls.
    #[must_use]
    #[inline]
    pub fn allow(&self, command: &Command, args: Args<'_>) -> bool {
        match &self.user {
            Some(user) => user.allows_at_once(command, args) || user.check(command, args).is_ok(),
            None => true,
        }
    }

    /// Whether a call, its name included, is allowed.
    ///
    /// # Errors
    /// What is denied.
    #[inline]
    pub fn check(&self, command: &Command, args: Args<'_>) -> Result<(), Denial> {
        match &self.user {
            Some(user) if self.is_restricted => user.check(command, args),
            _ => Ok(()),
        }
    }

    /// Whether a request of another protocol is allowed; see [`User::check_equivalent`].
    ///
    /// # Errors
    /// What is denied.
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

    /// Whether a call may also do this with keys that it finds by what it reads.
    #[must_use]
    pub fn allow_all_keys(&self, command: &Command, args: Args<'_>, flags: KeyFlags) -> bool {
        let may = |user: &Arc<User>| user.may_use_all_keys(command, args, flags);
        !self.is_restricted || self.user.as_ref().is_some_and(may)
    }

    /// `true` if the user may know that there is this key.
    #[must_use]
    pub fn see_key(&self, key: &[u8]) -> bool {
        let sees = |user: &Arc<User>| {
            user.selectors().iter().any(|selector| selector.allows_key(key, Permission::NONE))
        };
        !self.is_restricted || self.user.as_ref().is_some_and(sees)
    }

    /// Whether a subscription may go on.
    #[must_use]
    pub fn allow_channel(&self, name: &[u8], named_by: ChannelUse) -> bool {
        let allows = |user: &Arc<User>| {
            user.selectors().iter().any(|selector| selector.allows_channel(name, named_by))
        };
        !self.is_restricted || self.user.as_ref().is_some_and(allows)
    }
}
