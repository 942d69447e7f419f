//! What a script reaches outside of its machine, and what ends it.

use tierce_wire::resp::Proto;

/// Why a script ends that neither returned nor failed by itself. `pcall` does not catch it, and no more code of the
/// script runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// By `SCRIPT KILL`, `FUNCTION KILL` or a shutdown.
    Killed,
    /// It has run longer than it may.
    TimeLimit,
    /// It needs more memory than it may, its reply included.
    MemoryLimit,
    /// It reached a key that it has not declared: to be started again with all shards locked.
    Undeclared,
    /// It runs long: to be started again on a thread for that.
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

/// Where the effects of a script go, as `redis.set_repl` chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replication {
    /// To the log.
    pub log: bool,
    /// To replicas.
    pub replicas: bool,
}

/// The command that `redis.acl_check_cmd` was asked about does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoSuchCommand;

/// What a script can reach outside of its machine.
pub trait Host {
    /// Runs a command, and appends its reply to `reply`, which is empty, in RESP of version `proto`. What the
    /// script may catch, such as a wrong type, is an error reply.
    ///
    /// # Errors
    ///
    /// What ends the script whatever it catches.
    fn call(&mut self, args: &[&[u8]], proto: Proto, reply: &mut Vec<u8>) -> Result<(), Stop>;

    /// Asked every [`INSTRUCTIONS_PER_LOOK`](crate::INSTRUCTIONS_PER_LOOK) instructions, and as often in what runs
    /// long outside of the virtual machine, such as the matching of patterns.
    ///
    /// # Errors
    ///
    /// What ends the script.
    fn look(&mut self) -> Result<(), Stop>;

    /// `redis.log`
    fn log(&mut self, level: LogLevel, message: &[u8]);

    /// `redis.acl_check_cmd`: whether the user may run this command on these keys.
    ///
    /// # Errors
    ///
    /// If there is no such command.
    fn acl_check(&mut self, args: &[&[u8]]) -> Result<bool, NoSuchCommand>;

    /// The reply of the script has this error in it, without its sign, which no command has replied.
    fn count_error(&mut self, _error: &[u8]) {}

    /// `redis.set_repl`
    fn set_repl(&mut self, replication: Replication);
}

/// What scripts read about the server.
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
