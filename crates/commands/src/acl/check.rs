//! Checks calls against the rules of a user.

use tierce_wire::resp::Args;

use super::pattern::Permission;
use super::user::User;
use crate::command::{Command, KeyFlags};

/// The part of a call that is denied.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Denial {
    /// The command.
    Command,
    /// The key that is the argument with this index.
    Key {
        /// The name of the command has index 0.
        index: usize,
    },
    /// The channel that is the argument with this index.
    Channel {
        /// The name of the command has index 0.
        index: usize,
    },
}

impl Denial {
    /// The message for a client, without the name of the key or channel.
    #[must_use]
    pub fn text(self, user: &User, command: &Command) -> String {
        match self {
            Self::Command => {
                let (user, command) = (user.display_name(), &command.full_name);
                format!("User {user} has no permissions to run the '{command}' command")
            }
            Self::Key { .. } => "No permissions to access a key".to_owned(),
            Self::Channel { .. } => "No permissions to access a channel".to_owned(),
        }
    }

    /// The message for an operator, with the name of the key or channel.
    #[must_use]
    pub fn full_text(self, user: &User, command: &Command, args: Args<'_>) -> Vec<u8> {
        let (index, kind) = match self {
            Self::Command => return self.text(user, command).into_bytes(),
            Self::Key { index } => (index, "key"),
            Self::Channel { index } => (index, "channel"),
        };
        let user = user.display_name();
        let mut text = format!("User {user} has no permissions to access the '").into_bytes();
        text.extend(args.at(index));
        text.extend(format!("' {kind}").into_bytes());
        text
    }

    /// Reason why EXEC refuses a request that could be queued.
    #[must_use]
    pub fn text_in_exec(self) -> &'static str {
        match self {
            Self::Command => "no permission to execute the command or subcommand",
            Self::Key { .. } => "no permission to touch the specified keys",
            Self::Channel { .. } => {
                "no permission to access one of the channels used as arguments to the command"
            }
        }
    }
}

impl User {
    /// Checks a call, including the name of its command. One selector has to allow all of it.
    ///
    /// # Errors
    /// The denied part: the command if no selector allows it, otherwise the last denied key or channel.
    pub fn check(&self, command: &Command, args: Args<'_>) -> Result<(), Denial> {
        let mut worst = Denial::Command;
        for selector in self.selectors() {
            match selector.check(command, args) {
                Ok(()) => return Ok(()),
                Err(denial) => worst = worst.max(denial),
            }
        }
        Err(worst)
    }

    /// Checks a request of another protocol: the user needs the rights for the equivalent command on these keys.
    ///
    /// # Errors
    /// As [`check`](Self::check); the index is that of a key.
    pub fn check_equivalent(
        &self,
        command: &Command,
        keys: &[&[u8]],
        needed: Permission,
    ) -> Result<(), Denial> {
        let mut worst = Denial::Command;
        for selector in self.selectors().iter().filter(|selector| selector.allows_any_call(command))
        {
            match keys.iter().position(|key| !selector.allows_key(key, needed)) {
                None => return Ok(()),
                Some(index) => worst = worst.max(Denial::Key { index }),
            }
        }
        Err(worst)
    }

    /// Returns true if one selector allows a call that also finds keys by what it reads, with this use of all keys.
    #[must_use]
    pub fn may_use_all_keys(&self, command: &Command, args: Args<'_>, flags: KeyFlags) -> bool {
        let allows = |selector: &super::Selector| {
            selector.check(command, args).is_ok() && selector.allows_all_keys(flags)
        };
        self.selectors().iter().any(allows)
    }
}
