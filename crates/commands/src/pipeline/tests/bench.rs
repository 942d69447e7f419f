//! A server without sockets that runs calls in different ways.

use std::io::{self, Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use parking_lot::Mutex;
use tierce_engine::log::Log;
use tierce_keyspace::log::{LogSink, RecordKind};
use tierce_keyspace::{DbIndex, Keyspace, Options, ShardLocks, for_each_entry};
use tierce_output::Output;
use tierce_wire::resp::{OwnedArgs, Proto, ReplyDecoder, Value};

use super::calls::Call;
use crate::caller::Caller;
use crate::clients::{Client, Origin};
use crate::command::{Command, Flags, Scope, Table};
use crate::commands;
use crate::config::{Config, FileSource, LogLevel, Sources};
use crate::durability::Durability;
use crate::engine::Engine;
use crate::error::Interrupt;
use crate::kernel::Kernel;
use crate::pipeline::{self, Bodies, Context, Mode, Request, Turn};
use crate::reply::Reply;

/// Mode of a thread for long commands, without a client that would wait.
const LONG: Mode<'static> = Mode::Long { to: None };

/// Time of all calls. It is in the future: otherwise, it would change after a wait.
pub(super) const NOW_MS: i64 = 4_000_000_000_000;

/// Initial contents of every bench.
const CONTENTS: &[&str] = &[
    "SET string0 5",
    "SET string1 abc",
    "SET string2 10.5",
    "SET weight_a 3",
    "RPUSH list0 a b c d 1 2",
    "RPUSH list1 1 2 3",
    "SADD set0 a b c",
    "SADD set1 1 2 3 4",
    "ZADD zset0 1 a 2 b 3 c",
    "ZADD zset1 1 a 1 b 1 c 1 d",
    "GEOADD zset2 13.4 52.5 a 13.5 52.6 b",
    "HSET hash0 a 1 b 2 c d",
    "HSET hash1 a b",
    "XADD stream0 5-1 a b",
    "XADD stream0 6-1 c d",
    "XGROUP CREATE stream0 g 0",
    "XGROUP CREATE stream1 g $ MKSTREAM",
    "SET string3 v PX 1000000",
    "HPEXPIRE hash0 1000000 FIELDS 1 a",
    "SPEXPIRE set0 1000000 MEMBERS 1 a",
    "XGROUP CREATECONSUMER stream0 g d",
    "XREADGROUP GROUP g c STREAMS stream0 >",
    "PFADD counter0 a b c",
    "PFADD counter1 c d e",
    "HIMPORT PREPARE fieldset0 a b",
    "SCRIPT LOAD return",
    "SCRIPT REGISTER script0 return",
    "FUNCTION LOAD #!lua\tname=library0\nredis.register_function{function_name='function0',callback=function()\tend,\
     flags={'no-writes'}}",
];

/// Way to run calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// One after the other, each locking its own keys.
    Alone,
    /// One after the other, as on a thread for long commands.
    Long,
    /// Inside a guard over their declared keys.
    Declared,
    /// Inside a guard over all shards.
    All,
}

/// Counts log records.
#[derive(Default)]
struct Records(Mutex<usize>);

impl LogSink for Records {
    fn append(&self, _record: &[u8], _: RecordKind) {
        *self.0.lock() += 1;
    }
}

/// Another server, which agrees to everything.
struct Agrees;

impl Read for Agrees {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        (&b"+OK\r\n"[..]).read(buffer)
    }
}

impl Write for Agrees {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

pub(super) struct Bench {
    pub(super) kernel: Kernel,
    pub(super) caller: Caller,
    records: Arc<Records>,
}

impl Bench {
    pub(super) fn new(proto: Proto) -> Self {
        Self::with(proto, "")
    }

    /// Creates a bench with this configuration file.
    pub(super) fn with(proto: Proto, file: &str) -> Self {
        let records = Arc::new(Records::default());
        let log = Some(Arc::clone(&records) as Arc<dyn LogSink>);
        let options = Options { shards: 16, databases: 4, log, ..Options::default() };
        let keyspace = Arc::new(Keyspace::new(options).expect("options within bounds"));
        keyspace.begin_logging();
        let log = Log::open(None, LogLevel::Nothing).expect("nothing is opened");
        let sources = Sources { file: FileSource::Stdin, ..Sources::default() };
        let settings = sources.load(&mut file.as_bytes()).expect("a valid file");
        let config = Arc::new(Config::new(settings.settings));
        let durability = Durability::without_log();
        let engine = Arc::new(Engine::new(config, keyspace, durability, log));
        let kernel = Kernel::new(engine, commands::table(), 1);
        let connected = kernel.connect.set(Box::new(|_, _, _, _| Ok(Box::new(Agrees))));
        assert!(connected.is_ok());
        let client = Client::new(Origin::default(), NOW_MS);
        let mut caller = Caller::new(Arc::new(client), true);
        caller.proto = proto;
        let mut bench = Self { kernel, caller, records };
        let lines = CONTENTS.iter().map(|line| line.split(' ').map(|word| word.into()).collect());
        let replies = bench.run(Way::Alone, &lines.collect::<Vec<_>>());
        assert!(replies.iter().all(|reply| !reply.is_error()), "{replies:?}");
        bench
    }

    /// Runs calls of the table and returns the replies.
    pub(super) fn run(&mut self, way: Way, calls: &[Call]) -> Vec<Value> {
        let Self { kernel, caller, records } = self;
        let kernel: &Kernel = kernel;
        let calls: Vec<OwnedArgs> = calls.iter().map(|call| owned(call)).collect();
        let calls: Vec<_> = calls.iter().map(|args| (known(kernel, args), args)).collect();
        let mut locks = kernel.keyspace.locks();
        match way {
            Way::Alone => {
                return enter_all(kernel, caller, &mut locks, Mode::Never, &calls);
            }
            Way::Long => {
                let mut locks = kernel.keyspace.long_locks();
                return enter_all(kernel, caller, &mut locks, LONG, &calls);
            }
            Way::Declared | Way::All => {}
        }
        let needs_all = calls.iter().any(|(command, args)| {
            let scope = command.spec.scope_of(args.as_args());
            matches!(scope, Scope::All | Scope::AllInTurns | Scope::Stepwise | Scope::Program)
        });
        let mut hashes = Vec::new();
        for (command, args) in &calls {
            let keys = command.spec.key_indexes(args.as_args());
            hashes.extend(keys.map(|index| kernel.keyspace.hash(&args.as_args()[index])));
        }
        let before = *records.0.lock();
        let mut many =
            if way == Way::All || needs_all { locks.lock_all() } else { locks.lock_many(&hashes) };
        let replies = enter_all(kernel, caller, many.locks(), Mode::Never, &calls);
        assert_eq!(*records.0.lock(), before, "nothing is logged before the end of the guard");
        drop(many);
        assert!(*records.0.lock() <= before + 1, "the guard is one record");
        replies
    }

    /// Runs calls under an undo log. The `undone` calls between the others are rolled back. Returns the replies of
    /// the others.
    pub(super) fn run_and_take_back(
        &mut self,
        before: &[Call],
        undone: &[Call],
        after: &[Call],
    ) -> Vec<Value> {
        let Self { kernel, caller, .. } = self;
        let kernel: &Kernel = kernel;
        let mut locks = kernel.keyspace.locks();
        let mut all = locks.lock_all();
        all.locks().begin_undo();
        let mut replies = enter_calls(kernel, caller, all.locks(), before);
        let mark = all.locks().savepoint();
        enter_calls(kernel, caller, all.locks(), undone);
        all.locks().rollback_to(mark);
        replies.extend(enter_calls(kernel, caller, all.locks(), after));
        all.locks().commit();
        replies
    }

    /// Runs calls one after the other. Then another thread locks each shard before the batch ends.
    pub(super) fn run_and_let_others_in(&mut self, calls: &[Call]) {
        let Self { kernel, caller, .. } = self;
        let mut locks = kernel.keyspace.locks();
        for call in calls {
            let args = owned(call);
            enter(turn(kernel), caller, &mut locks, Mode::Never, known(kernel, &args), &args);
        }
        let others = || kernel.keyspace.locks().pass_all_shards();
        std::thread::scope(|scope| scope.spawn(others).join()).expect("it locks and unlocks");
    }

    /// Changes the configuration.
    pub(super) fn set(&mut self, directive: &str, value: &str) {
        let words = ["CONFIG", "SET", directive, value];
        self.succeed(&words.map(|word| word.as_bytes().to_vec()).to_vec());
    }

    /// Runs a call that has to succeed.
    pub(super) fn succeed(&mut self, call: &Call) {
        let reply = self.run(Way::Alone, std::slice::from_ref(call)).remove(0);
        assert!(!reply.is_error(), "{reply:?}");
    }

    /// Calls `body` with the context of a call on a thread for long commands.
    pub(super) fn with_long<R>(
        &mut self,
        call: &Call,
        body: impl FnOnce(&mut Context<'_, '_>) -> R,
    ) -> R {
        let mut locks = self.kernel.keyspace.long_locks();
        with(&self.kernel, &mut self.caller, &mut locks, LONG, call, body).0
    }

    /// Runs a call as a worker does. Returns the interrupt, if any, and the number of replied bytes.
    pub(super) fn on_worker(&mut self, call: &Call) -> (Option<Interrupt>, usize) {
        let mut locks = self.kernel.keyspace.worker_locks(0);
        with(&self.kernel, &mut self.caller, &mut locks, Mode::Client, call, |ctx| ctx.run())
    }

    /// Runs a transaction of these calls as a worker does. Returns the interrupt, if any.
    pub(super) fn transaction_on_worker(&mut self, calls: &[Call]) -> Option<Interrupt> {
        self.caller.begin_transaction().expect("there is none yet");
        for call in calls {
            let args = owned(call);
            let command = known(&self.kernel, &args);
            let queued = self.caller.queue(&self.kernel, command, args.as_args(), None);
            queued.expect("there is room");
        }
        let (interrupt, _) = self.on_worker(&vec![b"EXEC".to_vec()]);
        self.caller.end_transaction();
        interrupt
    }

    /// Runs one call of a command that may be of another table. The error is the text of a panic.
    pub(super) fn try_one(
        &mut self,
        table: &Table,
        command: &Command,
        call: &Call,
    ) -> Result<Value, String> {
        let args = owned(call);
        let Self { kernel, caller, .. } = self;
        let turn = Turn { bodies: Bodies::of(table), ..turn(kernel) };
        let run = || enter(turn, caller, &mut kernel.keyspace.locks(), Mode::Never, command, &args);
        catch_unwind(AssertUnwindSafe(run)).map_err(|panic| {
            let text = panic.downcast_ref::<String>().cloned();
            text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
                .unwrap_or_default()
        })
    }

    /// Returns the payload of DUMP for a key.
    pub(super) fn payload(&mut self, key: &str) -> Vec<u8> {
        let call = vec![b"DUMP".to_vec(), key.into()];
        let reply = self.run(Way::Alone, &[call]).remove(0);
        reply.as_bytes().expect("the key is there").to_vec()
    }

    /// Returns the reply of DUMP in the selected database.
    pub(super) fn dump(&mut self, key: &[u8]) -> Value {
        self.run(Way::Alone, &[vec![b"DUMP".to_vec(), key.to_vec()]]).remove(0)
    }

    /// Number of key changes so far.
    pub(super) fn changes(&self) -> u64 {
        self.kernel.keyspace.stats().changes
    }

    /// Checks the recorded memory of entries against a recount.
    pub(super) fn check_memory(&mut self, what: &str) {
        let (keyspace, mut bytes) = (&self.kernel.keyspace, 0);
        for db in keyspace.db_indices() {
            let add = |entry: &tierce_keyspace::Entry| bytes += entry.allocated_bytes() as u64;
            for_each_entry(&mut keyspace.locks(), db, NOW_MS, add);
        }
        assert_eq!(keyspace.memory().entries, bytes, "{what}");
    }

    /// Returns all keys with their values, element by element, deadlines and encodings.
    pub(super) fn contents(&mut self) -> Vec<String> {
        let mut found = Vec::new();
        let (proto, db) = (self.caller.proto, self.caller.db);
        (self.caller.proto, self.caller.db) = (Proto::Resp2, DbIndex::ZERO);
        for db in 0..4 {
            let mut keys = Vec::new();
            let db = self.kernel.keyspace.db_index(db).expect("there are four");
            for_each_entry(&mut self.kernel.keyspace.locks(), db, NOW_MS, |entry| {
                keys.push((entry.key().to_vec(), entry.value_type().name()));
            });
            keys.sort();
            self.caller.db = db;
            for (key, value_type) in keys {
                let mut shown = vec![format!("{} {} {value_type}", db.get(), key.escape_ascii())];
                for mut question in questions(value_type) {
                    let at = question.iter().position(|word| word == b"KEY").expect("in each");
                    question[at].clone_from(&key);
                    let reply = self.run(Way::Alone, &[question]).remove(0);
                    shown.push(show(&reply, matches!(value_type, "set" | "hash")));
                }
                found.push(shown.join(" "));
            }
        }
        (self.caller.proto, self.caller.db) = (proto, db);
        found
    }
}

/// Returns the calls that show everything about a key of this type.
fn questions(value_type: &str) -> Vec<Call> {
    let own = match value_type {
        "string" => "GET KEY",
        "list" => "LRANGE KEY 0 -1",
        "set" => "SMEMBERS KEY",
        "zset" => "ZRANGE KEY 0 -1 WITHSCORES",
        "hash" => "HGETALL KEY",
        _ => "XINFO STREAM KEY FULL COUNT 0",
    };
    let lines = [own, "PEXPIRETIME KEY", "OBJECT ENCODING KEY"];
    lines.map(|line| line.split(' ').map(|word| word.as_bytes().to_vec()).collect()).to_vec()
}

/// Formats a reply as text; unordered elements are sorted by bytes.
fn show(reply: &Value, is_unordered: bool) -> String {
    match reply.as_values() {
        Some(values) if is_unordered => {
            let mut all: Vec<String> = values.iter().map(|value| format!("{value:?}")).collect();
            all.sort();
            all.join(" ")
        }
        _ => format!("{reply:?}"),
    }
}

/// Converts a call to the form that commands get.
pub(super) fn owned(call: &[Vec<u8>]) -> OwnedArgs {
    let mut args = OwnedArgs::new();
    call.iter().for_each(|arg| args.push(arg).expect("a short call"));
    args
}

/// Returns the command of a call.
fn known<'k>(kernel: &'k Kernel, args: &OwnedArgs) -> &'k Command {
    let found = pipeline::resolve(kernel, args.as_args());
    found.unwrap_or_else(|refused| panic!("{}", refused.error.as_str()))
}

fn enter_all<'k>(
    kernel: &'k Kernel,
    caller: &mut Caller,
    locks: &mut ShardLocks<'k>,
    mode: Mode<'_>,
    calls: &[(&'k Command, &OwnedArgs)],
) -> Vec<Value> {
    let enter = |(command, args): &(&'k Command, &OwnedArgs)| {
        enter(turn(kernel), caller, locks, mode, command, args)
    };
    calls.iter().map(enter).collect()
}

fn enter_calls<'k>(
    kernel: &'k Kernel,
    caller: &mut Caller,
    locks: &mut ShardLocks<'k>,
    calls: &[Call],
) -> Vec<Value> {
    let calls: Vec<OwnedArgs> = calls.iter().map(|call| owned(call)).collect();
    let calls: Vec<_> = calls.iter().map(|args| (known(kernel, args), args)).collect();
    enter_all(kernel, caller, locks, Mode::Never, &calls)
}

fn turn(kernel: &Kernel) -> Turn<'_> {
    Turn::new(kernel, kernel.counters(0), NOW_MS)
}

/// Runs a call as the kernel does.
fn enter<'k>(
    turn: Turn<'k>,
    caller: &mut Caller,
    locks: &mut ShardLocks<'k>,
    mode: Mode<'_>,
    command: &'k Command,
    args: &OwnedArgs,
) -> Value {
    let mut output = Output::new();
    let reply = Reply::new(&mut output, caller.proto);
    // The command may be of a table that is dropped before the server.
    let request = Request::new(caller, command, args.as_args(), mode);
    let mut ctx = Context::new(turn, request, locks, reply);
    assert!(ctx.covers(), "the guard holds what was declared");
    ctx.run();
    let bytes = output.into_bytes();
    let mut values = decode_all(&bytes);
    // One reply for each channel, and messages before them.
    if command.spec.flags.contains(Flags::WHILE_SUBSCRIBED) {
        return Value::Array(values);
    }
    assert!(values.len() <= 1, "one reply to {}: {}", command.full_name, bytes.escape_ascii());
    values.pop().unwrap_or(Value::Null)
}

fn decode_all(mut bytes: &[u8]) -> Vec<Value> {
    let mut values = Vec::new();
    while let Some((value, used)) = ReplyDecoder::new().decode(bytes).expect("a reply") {
        values.push(value);
        bytes = &bytes[used..];
    }
    assert_eq!(bytes.len(), 0, "whole replies");
    values
}

/// Calls `body` with the context of a call. The number is that of the replied bytes.
fn with<'k, R>(
    kernel: &'k Kernel,
    caller: &mut Caller,
    locks: &mut ShardLocks<'k>,
    mode: Mode<'_>,
    call: &Call,
    body: impl FnOnce(&mut Context<'_, '_>) -> R,
) -> (R, usize) {
    let (args, mut output) = (owned(call), Output::new());
    let request = Request::new(caller, known(kernel, &args), args.as_args(), mode);
    let reply = Reply::new(&mut output, Proto::Resp2);
    let result = body(&mut Context::new(turn(kernel), request, locks, reply));
    (result, output.buffer().len())
}
