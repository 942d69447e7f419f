//! Errors for rules, in the words of Redis.

/// Reason why a rule does not apply to a user.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RuleError {
    /// It names a command, subcommand or category that does not exist.
    #[error("Unknown command or category name in ACL")]
    Unknown,
    /// It is not a valid rule.
    #[error("Syntax error")]
    Syntax,
    /// It adds a key pattern, but all keys match already.
    #[error(
        "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does not have any effect. \
         Try 'resetkeys' to start with an empty list of patterns"
    )]
    AfterAllKeys,
    /// It adds a channel pattern, but all channels match already.
    #[error(
        "Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid and does not have any \
         effect. Try 'resetchannels' to start with an empty list of channels"
    )]
    AfterAllChannels,
    /// It removes a password that the user does not have.
    #[error("The password you are trying to remove from the user does not exist")]
    NoSuchPassword,
    /// It has something other than a hash after the `#` or `!`.
    #[error(
        "The password hash must be exactly 64 characters and contain only lowercase hexadecimal characters"
    )]
    NotAHash,
    /// It allows the first argument of a subcommand.
    #[error("Allowing first-arg of a subcommand is not supported")]
    ArgumentOfSubcommand,
}

/// Reason why a list of rules is refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RulesError {
    /// A selector begins with this rule and has no end.
    Unmatched(Vec<u8>),
    /// A rule does not apply.
    Rule {
        /// The rule.
        rule: Vec<u8>,
        /// Why.
        error: RuleError,
    },
}
