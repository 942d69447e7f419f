//! Errors of commands, with Redis' texts.
//!
//! The first word of a text is its kind (`ERR`, `WRONGTYPE`, …): clients and the `errorstats` section of INFO use it.

use std::borrow::Cow;

use tierce_keyspace::Busy;

/// The reply of a failed command; one line that starts with the kind of the error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandError(Cause);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Cause {
    /// A reply.
    Text(Cow<'static, str>),
    /// No reply: the command did not run.
    Interrupt(Interrupt),
}

/// Reason to stop a command before it has changed anything or replied. It is run again from its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interrupt {
    /// It needs a shard that another thread keeps locked for long. It runs when that is free.
    Busy(Busy),
    /// It takes long. It runs on another thread.
    Long,
    /// Its admission has changed since the check, or earlier writes have to be confirmed first. It is checked again.
    Admission,
    /// It changes the role, which another thread has locked for long. It is tried again soon.
    Role,
    /// It has begun something that only concerns later requests. It replies after the earlier ones are done.
    Quiet,
}

impl CommandError {
    /// The options are unknown or contradict each other.
    pub const SYNTAX: Self = Self::new("ERR syntax error");
    /// A number was expected.
    pub const NOT_AN_INTEGER: Self = Self::new("ERR value is not an integer or out of range");
    /// A floating point number was expected.
    pub const NOT_A_FLOAT: Self = Self::new("ERR value is not a valid float");
    /// The key has another type.
    pub const WRONG_TYPE: Self =
        Self::new("WRONGTYPE Operation against a key holding the wrong kind of value");
    /// The command needs other shards than the transaction, or threads that need some.
    pub const NOT_WITHIN: Self = Self::new("ERR Command not allowed inside a transaction");
    /// The connection carries a replication stream.
    pub const OF_REPLICA: Self = Self::new("ERR Replica can't interact with the keyspace");
    /// The key must exist.
    pub const NO_SUCH_KEY: Self = Self::new("ERR no such key");
    /// A number outside of its range.
    pub const OUT_OF_RANGE: Self = Self::new("ERR value is out of range");
    /// A database that does not exist.
    pub const DB_OUT_OF_RANGE: Self = Self::new("ERR DB index is out of range");
    /// The value would exceed `proto-max-bulk-len`.
    pub const STRING_TOO_LONG: Self =
        Self::new("ERR string exceeds maximum allowed size (proto-max-bulk-len)");
    /// The client has to authenticate first.
    pub const NO_AUTH: Self = Self::new("NOAUTH Authentication required.");
    /// The last background save failed, and `stop-writes-on-bgsave-error` is set.
    pub const CANNOT_SAVE: Self = Self::new(
        "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to \
         disk. Commands that may modify the data set are disabled, because this instance is \
         configured to report errors during writes if RDB snapshotting fails \
         (stop-writes-on-bgsave-error option). Please check the Redis logs for details about the \
         RDB error.",
    );
    /// Memory is at its limit, and nothing may be evicted.
    pub const OUT_OF_MEMORY: Self =
        Self::new("OOM command not allowed when used memory > 'maxmemory'.");
    /// The server is a replica.
    pub const REPLICA_IS_READ_ONLY: Self =
        Self::new("READONLY You can't write against a read only replica.");
    /// There are fewer replicas than `min-replicas-to-write`.
    pub const TOO_FEW_REPLICAS: Self = Self::new("NOREPLICAS Not enough good replicas to write.");
    /// The server is a replica that has lost its primary.
    pub const PRIMARY_IS_DOWN: Self = Self::new(
        "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
    );
    /// The data are being loaded.
    pub const LOADING: Self = Self::new("LOADING Redis is loading the dataset in memory");
    /// Wrong name or password.
    pub const WRONG_PASS: Self =
        Self::new("WRONGPASS invalid username-password pair or user is disabled.");

    /// The dumped value is from a later version, or was altered.
    pub const WRONG_PAYLOAD: Self = Self::new("ERR DUMP payload version or checksum are wrong");

    /// Creates an error with a constant text.
    pub const fn new(text: &'static str) -> Self {
        Self(Cause::Text(Cow::Borrowed(text)))
    }

    /// Creates an error with a formatted text. The encoder keeps it on one line.
    pub fn text(text: impl Into<String>) -> Self {
        Self(Cause::Text(Cow::Owned(text.into())))
    }

    /// A call with a wrong number of arguments; `name` is `get` or `client|list`.
    pub fn arity(name: &str) -> Self {
        Self::text(format!("ERR wrong number of arguments for '{name}' command"))
    }

    /// A command that a client with subscriptions may not send in RESP2.
    pub fn while_subscribed(name: &str) -> Self {
        Self::text(format!(
            "ERR Can't execute '{name}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are \
             allowed in this context"
        ))
    }

    /// The log refuses writes because of this failure, or until it has been rewritten.
    pub fn not_logged(failure: Option<String>) -> Self {
        let cause = failure.unwrap_or_else(|| "the log is being written anew".to_owned());
        Self::text(format!("MISCONF Errors writing to the AOF file: {cause}"))
    }

    /// An expiry time that is not positive or overflows.
    pub fn invalid_expire(name: &str) -> Self {
        Self::text(format!("ERR invalid expire time in '{name}' command"))
    }

    /// An unknown command. Quotes its name and first arguments, up to a limit.
    pub fn unknown_command<'a>(name: &[u8], args: impl Iterator<Item = &'a [u8]>) -> Self {
        const QUOTED_MAX: usize = 128;
        let mut quoted = String::new();
        for arg in args {
            if quoted.len() >= QUOTED_MAX {
                break;
            }
            let room = QUOTED_MAX - quoted.len();
            quoted += &format!("'{}' ", printable(arg, room));
        }
        let name = printable(name, QUOTED_MAX);
        Self::text(format!("ERR unknown command '{name}', with args beginning with: {quoted}"))
    }

    /// An unknown subcommand.
    pub fn unknown_subcommand(name: &[u8], container: &str) -> Self {
        let name = printable(name, 128);
        let container = container.to_ascii_uppercase();
        Self::text(format!("ERR unknown subcommand '{name}'. Try {container} HELP."))
    }

    /// An option that the command does not have.
    pub fn unknown_argument(arg: &[u8]) -> Self {
        Self::text(format!("ERR unknown argument: {}", printable(arg, 128)))
    }

    /// An unknown subcommand, or one with a wrong number of arguments, of a command that parses its subcommands itself.
    pub fn subcommand_syntax(name: &[u8], container: &str) -> Self {
        let name = printable(name, 128);
        let container = container.to_ascii_uppercase();
        Self::text(format!(
            "ERR unknown subcommand or wrong number of arguments for '{name}'. Try {container} HELP."
        ))
    }

    /// An operation on the keyspace that was refused.
    fn from_keyspace(error: tierce_keyspace::Error) -> Self {
        use tierce_keyspace::Error;
        match error {
            Error::WrongType => Self::WRONG_TYPE,
            Error::NotAnInteger => Self::NOT_AN_INTEGER,
            Error::IntegerOverflow => Self::new("ERR increment or decrement would overflow"),
            Error::ValueTooLong { .. } => Self::STRING_TOO_LONG,
            other => Self::text(format!("ERR {other}")),
        }
    }

    /// Returns true if this line says that something exceeds a limit of this server. Loading all data of the other
    /// server would then fail as well.
    #[must_use]
    pub fn is_of_limit(line: &[u8]) -> bool {
        const LINES: [CommandError; 3] = [
            CommandError::STRING_TOO_LONG,
            CommandError::DB_OUT_OF_RANGE,
            CommandError::WRONG_PAYLOAD,
        ];
        let key_too_long = Self::from(tierce_keyspace::Error::KeyTooLong { len: 0, max: 0 });
        let key_begin = key_too_long.as_str().split_inclusive("key of ").next();
        LINES.iter().any(|error| error.as_str().as_bytes() == line)
            || key_begin.is_some_and(|begin| line.starts_with(begin.as_bytes()))
    }

    /// Returns the whole line.
    pub fn as_str(&self) -> &str {
        match &self.0 {
            Cause::Text(text) => text,
            // Clients never see it.
            Cause::Interrupt(_) => "ERR the command was interrupted",
        }
    }

    /// Returns the bytes of the reply: the line with `-` and its end.
    pub fn reply_bytes(&self) -> usize {
        self.as_str().len() + 3
    }

    /// Returns the interrupt if this is no reply and the command has to run again.
    pub fn interrupt(&self) -> Option<Interrupt> {
        match self.0 {
            Cause::Interrupt(interrupt) => Some(interrupt),
            Cause::Text(_) => None,
        }
    }

    /// Returns the first word, which is the kind of the error. A text without a short first word followed by others has
    /// the kind `ERR`.
    pub fn kind(&self) -> &str {
        const KIND_LEN_MAX: usize = 32;
        match self.as_str().split_once(' ') {
            Some((kind, _)) if kind.len() < KIND_LEN_MAX => kind,
            _ => "ERR",
        }
    }
}

impl From<Interrupt> for CommandError {
    fn from(interrupt: Interrupt) -> Self {
        Self(Cause::Interrupt(interrupt))
    }
}

impl From<Busy> for CommandError {
    fn from(busy: Busy) -> Self {
        Interrupt::Busy(busy).into()
    }
}

impl From<tierce_keyspace::Error> for CommandError {
    fn from(error: tierce_keyspace::Error) -> Self {
        Self::from_keyspace(error)
    }
}

/// Returns at most `max` bytes from a client as text. Control characters are replaced, so that one reply cannot look
/// like two.
fn printable(bytes: &[u8], max: usize) -> String {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(max)]);
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_commands_are_quoted_on_one_line() {
        let error = CommandError::unknown_command(b"FOO\r\n+OK", [&b"a"[..], b"b"].into_iter());
        assert_eq!(
            error.as_str(),
            "ERR unknown command 'FOO  +OK', with args beginning with: 'a' 'b' "
        );
        assert_eq!(error.kind(), "ERR");
        assert_eq!(CommandError::new("BUSY come back later").kind(), "BUSY");
        assert_eq!(CommandError::new("alone").kind(), "ERR");
    }

    #[test]
    fn quoted_arguments_are_bounded() {
        let long = vec![b'x'; 1 << 20];
        let error = CommandError::unknown_command(&long, (0..100).map(|_| &long[..]));
        assert!(error.as_str().len() < 400);
    }
}
