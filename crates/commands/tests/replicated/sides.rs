//! A primary, and its followers.

use std::mem;
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use tierce_commands::caller::Caller;
use tierce_commands::clients::{Client, Origin as Peer};
use tierce_commands::kernel::Kernel;
use tierce_commands::pipeline::{self, Execution, Executor, Turn};
use tierce_config::{Config, LogLevel, Settings};
use tierce_engine::{Engine, durability::Durability, log::Log};
use tierce_harness::{Connection, Launch, Reply, Server};
use tierce_keyspace::log::{LogSink, RecordKind};
use tierce_keyspace::{Keyspace, Options, STREAM_NAME_LEN, expire_due, for_each_entry};
use tierce_output::Output;
use tierce_replication::translate::{self, Dialect, Translator};
use tierce_wire::resp::OwnedArgs;

/// A command with its arguments.
pub type Command = Vec<Vec<u8>>;

const DAY_MS: i64 = 86_400_000;

/// Days between the time of a history and that of this computer.
#[derive(Clone, Copy)]
pub enum Clock {
    /// For Redis: no deadline passes there before it has passed here.
    Ahead = 1,
    /// No entry of a stream was delivered in the future.
    Behind = -1,
}

impl Clock {
    fn now_ms(self) -> i64 {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
        since_1970.as_millis() as i64 + self as i64 * DAY_MS
    }
}

/// A follower of a primary.
pub trait Side {
    /// Executes a stream of commands; none may fail.
    fn feed(&mut self, stream: &[u8], now_ms: i64);

    /// Returns the reply to a command.
    fn ask(&mut self, args: &[&[u8]]) -> Reply;
}

/// A kernel, and a caller of its commands.
pub struct Store {
    kernel: Kernel,
    caller: Caller,
    /// The primary, as a caller.
    upstream: Caller,
    pub now_ms: i64,
}

impl Store {
    fn new(options: Options) -> Self {
        let keyspace = Arc::new(Keyspace::new(options).expect("sound options"));
        let log = Log::open(None, LogLevel::Nothing).expect("nothing is opened");
        let config = Arc::new(Config::new(Settings::default()));
        let engine = Engine::new(config, keyspace, Durability::without_log(), log);
        let kernel = Kernel::new(Arc::new(engine), tierce_commands::table(), 1);
        Self { kernel, caller: caller(), upstream: caller(), now_ms: 0 }
    }

    /// A store that only removes keys when its primary says so.
    pub fn replica(options: Options) -> Self {
        let store = Self::new(options);
        store.kernel.keyspace.set_following(true);
        store
    }

    pub fn keyspace(&self) -> &Keyspace {
        &self.kernel.keyspace
    }

    pub fn call<A: AsRef<[u8]>>(&mut self, command: &[A]) -> Reply {
        let (args, mut output) = (owned(command), Output::new());
        match pipeline::resolve(&self.kernel, args.as_args()) {
            Ok(spec) => {
                let now_ms = self.now_ms;
                self.kernel.run(spec, &mut self.caller, args.as_args(), &mut output, now_ms);
            }
            Err(_) => return Reply::Error("no such command".into()),
        }
        Reply::decode(&output.into_bytes()).expect("a reply").0
    }

    /// Executes a command of its primary.
    pub fn apply(&mut self, command: &[Vec<u8>]) -> Reply {
        let (args, mut output) = (owned(command), Output::new());
        let position = ([b'p'; STREAM_NAME_LEN], 0);
        self.kernel.apply(&mut self.upstream, args.as_args(), &mut output, position);
        Reply::decode(&output.into_bytes()).expect("a reply").0
    }

    /// Executes commands as one change, and undoes them.
    pub fn call_and_take_back(&mut self, commands: &[Command]) {
        let is_script = |command: &&Command| command[0] == b"EVAL";
        if let [script] = commands
            && is_script(&script)
        {
            self.call(&failing(script));
            return;
        }
        let mut caller = caller();
        caller.select(self.caller.db);
        let mut locks = self.kernel.keyspace.locks();
        let mut all = locks.lock_all();
        all.locks().begin_undo();
        // Scripts have an undo log of their own.
        for command in commands.iter().filter(|command| !is_script(command)) {
            let args = owned(command);
            let Ok(command) = pipeline::resolve(&self.kernel, args.as_args()) else { continue };
            if ["multi", "exec"].contains(&command.spec.name) {
                continue;
            }
            let turn = Turn::new(&self.kernel, self.kernel.counters(0), self.now_ms);
            let execution =
                Execution { turn, command, args: args.as_args(), by: Executor::Program };
            let done = execution.run(&mut caller, all.locks(), &mut Output::new());
            assert!(done.is_ok(), "all shards are locked");
        }
        all.locks().rollback();
    }

    pub fn ask(&mut self, args: &[&[u8]]) -> Reply {
        self.call(args)
    }
}

fn caller() -> Caller {
    Caller::new(Arc::new(Client::new(Peer::default(), 0)), true)
}

fn owned<A: AsRef<[u8]>>(command: &[A]) -> OwnedArgs {
    let mut args = OwnedArgs::new();
    command.iter().for_each(|arg| args.push(arg.as_ref()).expect("a short command"));
    args
}

/// A call of a script that fails after all of its effects, which are then undone.
fn failing(call: &[Vec<u8>]) -> Command {
    let script = String::from_utf8_lossy(&call[1]);
    let script = format!(
        "#!lua flags=atomic\nlocal function run() {script} end run() error('is taken back')"
    );
    [&call[..1], &[script.into_bytes()], &call[2..]].concat()
}

impl Side for Store {
    fn feed(&mut self, stream: &[u8], now_ms: i64) {
        self.now_ms = now_ms;
        execute_all(stream, |command| self.apply(command));
    }

    fn ask(&mut self, args: &[&[u8]]) -> Reply {
        self.call(args)
    }
}

/// A store with a translator of its changes.
pub struct Primary {
    pub store: Store,
    records: Arc<Records>,
    translator: Translator,
}

#[derive(Default)]
struct Records(Mutex<Vec<Vec<u8>>>);

impl LogSink for Records {
    fn append(&self, record: &[u8], kind: RecordKind) {
        assert_eq!(kind, RecordKind::Change);
        self.0.lock().expect("no test panics here").push(record.to_vec());
    }
}

impl Primary {
    pub fn new(dialect: Dialect, options: Options, clock: Clock) -> Self {
        let records = Arc::<Records>::default();
        let log = Some(Arc::clone(&records) as Arc<dyn LogSink>);
        let mut store = Store::new(Options { log, ..options });
        store.now_ms = clock.now_ms();
        store.kernel.keyspace.begin_following();
        let mut options = translate::Options::default();
        options.dialect = dialect;
        Self { store, records, translator: Translator::new(options) }
    }

    /// Removes expired keys and fields of hashes.
    ///
    /// # Panics
    ///
    /// If a key remains whose deadline has passed: it is missing in the index of deadlines, and would remain for ever.
    pub fn remove_expired(&mut self) {
        let keyspace = &self.store.kernel.keyspace;
        let mut locks = keyspace.locks();
        expire_due(&mut locks, self.store.now_ms);
        for db in keyspace.db_indices() {
            let mut seen = |now_ms| {
                let mut keys = 0;
                for_each_entry(&mut locks, db, now_ms, |_| keys += 1);
                keys
            };
            assert_eq!(seen(self.store.now_ms), seen(i64::MIN), "keys of database {}", db.get());
        }
    }

    /// Returns the records of the changes since the last call.
    pub fn records(&self) -> Vec<Vec<u8>> {
        mem::take(&mut *self.records.0.lock().expect("no test panics here"))
    }

    /// Returns those records as commands, and the commands as lines.
    pub fn stream(&mut self) -> (Vec<u8>, Vec<String>) {
        // The comparison of contents selects databases.
        self.translator.forget_db();
        let records = self.records();
        self.translate(&records)
    }

    /// Translates records into commands, and returns these also as lines.
    pub fn translate(&mut self, records: &[Vec<u8>]) -> (Vec<u8>, Vec<String>) {
        let mut stream = Vec::new();
        for record in records {
            self.translator.record(record, &mut stream).expect("a record");
        }
        let lines = commands(&stream).iter().map(|command| shown(command)).collect();
        (stream, lines)
    }
}

/// A redis-server, which gets the commands from a client connection.
pub struct Redis {
    connection: Connection,
    dialect: Dialect,
    _server: Server,
}

impl Redis {
    pub fn start(program: &str) -> Self {
        let server = Launch::new(program).start();
        let mut connection = server.connect();
        let info = connection.ask("INFO server").text().to_owned();
        let version = info.split("redis_version:").nth(1).expect("a version");
        let dialect = match version.split('.').next() {
            Some("6") => Dialect::Redis6_2,
            _ => Dialect::Redis7_0,
        };
        Self { connection, dialect, _server: server }
    }

    pub fn dialect(&self) -> Dialect {
        self.dialect
    }

    pub fn clear(&mut self) {
        self.connection.check("FLUSHALL", "+OK");
        self.connection.check("FUNCTION FLUSH", "+OK");
    }
}

impl Side for Redis {
    fn feed(&mut self, stream: &[u8], _now_ms: i64) {
        execute_all(stream, |command| self.connection.call(command));
    }

    fn ask(&mut self, args: &[&[u8]]) -> Reply {
        self.connection.call(args)
    }
}

/// Executes a stream of commands. None may fail.
fn execute_all(stream: &[u8], mut execute: impl FnMut(&[Vec<u8>]) -> Reply) {
    let mut before = Vec::new();
    for command in commands(stream) {
        before.push(shown(&command));
        let reply = execute(&command);
        let shown = &before[before.len().saturating_sub(40)..];
        assert!(!has_error(&reply), "{reply} to the last of\n{}", shown.join("\n"));
    }
}

/// Returns the commands of a stream.
fn commands(mut stream: &[u8]) -> Vec<Command> {
    let mut commands = Vec::new();
    while !stream.is_empty() {
        let (command, len) = Reply::decode(stream).expect("a whole command");
        commands.push(command.items().iter().map(|arg| arg.bytes().to_vec()).collect());
        stream = &stream[len..];
    }
    commands
}

/// Formats a command as a line.
pub fn shown(command: &[Vec<u8>]) -> String {
    command.iter().map(|arg| arg.escape_ascii().to_string()).collect::<Vec<_>>().join(" ")
}

fn has_error(reply: &Reply) -> bool {
    match reply {
        Reply::Error(_) => true,
        Reply::Array(items) => items.iter().any(has_error),
        _ => false,
    }
}
