//! A value for every directive: the settings in force at one moment.

use std::path::{Path, PathBuf};

use super::directive::Secrecy;
use super::events::Events;
use super::limits::OutputLimits;
use super::sync_policy::SyncPolicy;
use super::table::DirectiveId;
use super::value::{SavePoint, Value};

/// Memory that all clients together always get: enough for a few with small requests.
const CLIENT_MEMORY_MIN: u64 = 128 * 1024;

/// A value for every directive, each of its directive's kind.
///
/// The typed readers panic if the directive is of another kind. User input cannot cause that, so a test that reads
/// everything once finds it.
#[derive(Clone, PartialEq)]
pub struct Settings {
    /// In the order of the table.
    values: Vec<Value>,
    /// Absolute path of the file that CONFIG REWRITE rewrites.
    file: Option<PathBuf>,
    users: Vec<UserLine>,
    renamed_commands: Vec<RenamedCommand>,
}

/// A `user` line: a user and its rules.
#[derive(Clone, PartialEq, Eq)]
pub struct UserLine {
    /// The user.
    pub name: Vec<u8>,
    /// Rules, which may contain a password.
    pub rules: Vec<Vec<u8>>,
    /// Position of the line, for messages.
    pub place: String,
}

/// A `rename-command` line.
#[derive(Clone, PartialEq, Eq)]
pub struct RenamedCommand {
    /// The command.
    pub command: Vec<u8>,
    /// New name; empty if clients cannot use the command.
    pub name: Vec<u8>,
    /// Position of the line, for messages.
    pub place: String,
}

impl Default for Settings {
    fn default() -> Self {
        let values = DirectiveId::all().map(|id| id.directive().default_value()).collect();
        Self { values, file: None, users: Vec::new(), renamed_commands: Vec::new() }
    }
}

impl Settings {
    /// Returns a directive whose value contradicts another directive, and the reason. Neither a start nor CONFIG SET
    /// accepts such settings.
    pub(crate) fn contradiction(&self) -> Option<(DirectiveId, &'static str)> {
        const BUCKET: DirectiveId = DirectiveId::of("bucket");
        const APPENDONLY: DirectiveId = DirectiveId::of("appendonly");
        const APPENDFSYNC: DirectiveId = DirectiveId::of("appendfsync");
        let has_bucket = !self.text(BUCKET).is_empty();
        if !has_bucket && self.word(APPENDFSYNC) == SyncPolicy::Bucket.name() {
            return Some((APPENDFSYNC, "there is no bucket"));
        }
        if has_bucket && !self.is_on(APPENDONLY) {
            return Some((APPENDONLY, "the bucket needs the local log"));
        }
        None
    }

    /// Returns the value of a directive.
    pub fn value(&self, id: DirectiveId) -> &Value {
        &self.values[id.index()]
    }

    /// Returns the value of the directive with this name. For tests and other code where speed and compile-time
    /// checks do not matter.
    ///
    /// # Panics
    /// If there is no such directive.
    pub fn get(&self, name: &str) -> &Value {
        self.value(DirectiveId::of(name))
    }

    /// Returns the absolute path of the configuration file, if one was read.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    pub(super) fn replace(&mut self, id: DirectiveId, value: Value) {
        self.values[id.index()] = value;
    }

    /// Returns the users that the configuration defines, in the order of their lines.
    pub fn users(&self) -> &[UserLine] {
        &self.users
    }

    /// Returns the renamed commands, in the order of the lines.
    pub fn renamed_commands(&self) -> &[RenamedCommand] {
        &self.renamed_commands
    }

    pub(super) fn add_user(&mut self, user: UserLine) {
        self.users.push(user);
    }

    pub(super) fn add_renamed_command(&mut self, renamed: RenamedCommand) {
        self.renamed_commands.push(renamed);
    }

    pub(super) fn set_file(&mut self, file: Option<PathBuf>) {
        self.file = file;
    }

    /// Returns a yes or no.
    pub fn is_on(&self, id: DirectiveId) -> bool {
        match self.value(id) {
            Value::Bool(yes) => *yes,
            _ => wrong_kind(id),
        }
    }

    /// Returns a number.
    pub fn number(&self, id: DirectiveId) -> i64 {
        match self.value(id) {
            Value::Int(number) => *number,
            _ => wrong_kind(id),
        }
    }

    /// Returns the number of a directive that takes no negative ones.
    pub fn count(&self, id: DirectiveId) -> u64 {
        u64::try_from(self.number(id)).unwrap_or_else(|_| wrong_kind(id))
    }

    /// Returns a number of bytes.
    pub fn bytes(&self, id: DirectiveId) -> u64 {
        match self.value(id) {
            Value::Memory(bytes) => *bytes,
            _ => wrong_kind(id),
        }
    }

    /// Returns file permissions.
    pub fn permissions(&self, id: DirectiveId) -> u32 {
        match self.value(id) {
            Value::Octal(bits) => *bits,
            _ => wrong_kind(id),
        }
    }

    /// Returns one word of a fixed choice.
    pub fn word(&self, id: DirectiveId) -> &'static str {
        match self.value(id) {
            Value::Word(word) => word,
            _ => wrong_kind(id),
        }
    }

    /// Returns several words of a fixed choice.
    pub fn words(&self, id: DirectiveId) -> &[&'static str] {
        match self.value(id) {
            Value::Words(words) => words,
            _ => wrong_kind(id),
        }
    }

    /// Returns the number of the `SyncPolicy` that a word names.
    pub fn sync_policy_code(&self, id: DirectiveId) -> u8 {
        SyncPolicy::parse(self.word(id).as_bytes()).unwrap_or_else(|| wrong_kind(id)) as u8
    }

    /// Returns a text, which may be empty.
    pub fn text(&self, id: DirectiveId) -> &[u8] {
        match self.value(id) {
            Value::Text(text) => text,
            _ => wrong_kind(id),
        }
    }

    /// Returns true if the text is not empty.
    pub fn is_not_empty(&self, id: DirectiveId) -> bool {
        !self.text(id).is_empty()
    }

    /// Returns several texts.
    pub fn list(&self, id: DirectiveId) -> &[Vec<u8>] {
        match self.value(id) {
            Value::List(texts) => texts,
            _ => wrong_kind(id),
        }
    }

    /// Returns the memory limit of all clients together, 0 for none. A percentage means no limit while `maxmemory`
    /// has none. As in Redis, the limit is never too low for an administrator to connect and raise it.
    pub fn client_memory_limit(&self) -> u64 {
        match self.client_memory_asked() {
            0 => 0,
            bytes => bytes.max(CLIENT_MEMORY_MIN),
        }
    }

    fn client_memory_asked(&self) -> u64 {
        const LIMIT: DirectiveId = DirectiveId::of("maxmemory-clients");
        const MAXMEMORY: DirectiveId = DirectiveId::of("maxmemory");
        match self.value(LIMIT) {
            Value::Memory(bytes) => *bytes,
            Value::Percent(percent) => {
                let share = u128::from(self.bytes(MAXMEMORY)) * u128::from(*percent) / 100;
                u64::try_from(share).unwrap_or(u64::MAX)
            }
            _ => wrong_kind(LIMIT),
        }
    }

    /// Returns the save points.
    pub fn save_points(&self) -> &[SavePoint] {
        const SAVE: DirectiveId = DirectiveId::of("save");
        match self.value(SAVE) {
            Value::SavePoints(points) => points,
            _ => wrong_kind(SAVE),
        }
    }

    /// Returns the limits of output buffers.
    pub fn output_limits(&self) -> OutputLimits {
        const LIMITS: DirectiveId = DirectiveId::of("client-output-buffer-limit");
        match self.value(LIMITS) {
            Value::OutputLimits(limits) => *limits,
            _ => wrong_kind(LIMITS),
        }
    }

    /// Returns host and port of the primary to follow, if there is one.
    pub fn primary(&self) -> Option<(&[u8], u16)> {
        const PRIMARY: DirectiveId = DirectiveId::of("replicaof");
        match self.value(PRIMARY) {
            Value::Primary(primary) => primary.as_ref().map(|(host, port)| (&**host, *port)),
            _ => wrong_kind(PRIMARY),
        }
    }

    /// Returns the percentiles that INFO shows.
    pub fn percentiles(&self) -> &[f64] {
        const PERCENTILES: DirectiveId = DirectiveId::of("latency-tracking-info-percentiles");
        match self.value(PERCENTILES) {
            Value::Percentiles(percentiles) => percentiles,
            _ => wrong_kind(PERCENTILES),
        }
    }

    /// Returns the events to publish.
    pub fn events(&self) -> Events {
        const EVENTS: DirectiveId = DirectiveId::of("notify-keyspace-events");
        match self.value(EVENTS) {
            Value::Events(events) => *events,
            _ => wrong_kind(EVENTS),
        }
    }
}

fn wrong_kind(id: DirectiveId) -> ! {
    panic!("{} is of kind {:?}", id.name(), id.directive().kind)
}

/// Shows only values that differ from the defaults, without passwords.
impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut map = f.debug_map();
        for id in DirectiveId::all() {
            let directive = id.directive();
            if *self.value(id) == directive.default_value() {
                continue;
            }
            match directive.secrecy {
                Secrecy::Open => map.entry(&id.name(), self.value(id)),
                Secrecy::Secret => map.entry(&id.name(), &"(redacted)"),
            };
        }
        map.finish()
    }
}
