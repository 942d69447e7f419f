//! Interface from a script to the outside of its machine, including the stops.

use tierce_wire::resp::Proto;

/// Reason for ending a script that neither returned nor failed by itself. `pcall` does not catch it, and no more code
/// of the script runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// By `SCRIPT KILL`, `FUNCTION KILL` or a shutdown.
    Killed,
    /// It has run longer than it may.
    TimeLimit,
    /// It needs more memory than its limit, including its reply.
    MemoryLimit,
    /// It accessed an undeclared key: it must be restarted with all shards locked.
    Undeclared,
    /// It runs long: it must be restarted on a thread for long scripts.
    Long,
}

/// Levels of `redis.log`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    /// `redis.LOG_DEBUG`
    Debug,
    /// `redis.LOG_VERBOSE`
    Verbose,
    /// `redis.LOG_NOTICE`
    Notice,
    /// `redis.LOG_WARNING`
    Warning,
}

/// Destinations of a script's effects, as chosen by `redis.set_repl`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replication {
    /// To the log.
    pub log: bool,
    /// To replicas.
    pub replicas: bool,
}

/// The command passed to `redis.acl_check_cmd` does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoSuchCommand;

/// Everything that a script can reach outside of its machine.
pub trait Host {
    /// Runs a command, and appends its reply to `reply`, which is empty, in RESP of version `proto`. An error that the
    /// script may catch, such as a wrong type, is an error reply.
    ///
    /// # Errors
    ///
    /// A stop, which the script cannot catch.
    fn call(&mut self, args: &[&[u8]], proto: Proto, reply: &mut Vec<u8>) -> Result<(), Stop>;

    /// Checks for a stop. Called every [`INSTRUCTIONS_PER_LOOK`](crate::INSTRUCTIONS_PER_LOOK) instructions, and as
    /// often in native code that runs long, such as pattern matching.
    ///
    /// # Errors
    ///
    /// The stop.
    fn look(&mut self) -> Result<(), Stop>;

    /// `redis.log`
    fn log(&mut self, level: LogLevel, message: &[u8]);

    /// `redis.acl_check_cmd`: returns true if the user may run this command on these keys.
    ///
    /// # Errors
    ///
    /// If there is no such command.
    fn acl_check(&mut self, args: &[&[u8]]) -> Result<bool, NoSuchCommand>;

    /// Counts an error in the script's reply, passed without its dash, that no command has replied.
    fn count_error(&mut self, _error: &[u8]) {}

    /// `redis.set_repl`
    fn set_repl(&mut self, replication: Replication);
}

/// Facts about the server that scripts can read.
#[derive(Clone, Debug)]
pub struct Server {
    /// `redis.REDIS_VERSION`, three numbers with points between them.
    pub version: [u8; 3],
}

impl Server {
    pub(crate) fn version_text(&self) -> String {
        let [major, minor, patch] = self.version;
        format!("{major}.{minor}.{patch}")
    }
}
