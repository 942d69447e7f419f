//! A server without sockets, on which calls are run in one way or another.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use parking_lot::Mutex;
use tierce_keyspace::log::LogSink;
use tierce_keyspace::{DbIndex, Keyspace, Locker, Options};
use tierce_net::{ConnInfo, Output};
use tierce_wire::resp::{OwnedArgs, Proto, ReplyDecoder, Value};

use super::calls::Call;
use crate::blocking::Mode;
use crate::clients::Client;
use crate::command::{Command, Scope};
use crate::config::{Config, LogLevel, Settings};
use crate::durability::Durability;
use crate::engine::Engine;
use crate::execute::{self, Context, Guard};
use crate::listening::Listening;
use crate::log::Log;
use crate::reply::Reply;
use crate::server::Server;
use crate::session::Session;

/// The time at which everything happens.
pub(super) const NOW_MS: i64 = 1_700_000_000_000;

/// What every bench begins with.
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
    "XGROUP CREATECONSUMER stream0 g d",
    "XREADGROUP GROUP g c STREAMS stream0 >",
    "PFADD counter0 a b c",
    "PFADD counter1 c d e",
];

/// How calls are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// One after the other, each locking what it needs.
    Alone,
    /// Inside of a guard that holds what they have declared.
    Declared,
    /// Inside of a guard that holds all shards.
    All,
}

/// Counts the records of the log.
#[derive(Default)]
struct Records(Mutex<usize>);

impl LogSink for Records {
    fn append(&self, _record: &[u8]) {
        *self.0.lock() += 1;
    }
}

pub(super) struct Bench {
    pub(super) server: Server,
    session: Session,
    records: Arc<Records>,
}

impl Bench {
    pub(super) fn new(proto: Proto) -> Self {
        let records = Arc::new(Records::default());
        let log = Some(Arc::clone(&records) as Arc<dyn LogSink>);
        let options = Options { shards: 16, databases: 4, log, ..Options::default() };
        let keyspace = Arc::new(Keyspace::new(options).expect("options within bounds"));
        keyspace.begin_logging();
        let log = Log::open(None, LogLevel::Nothing).expect("nothing is opened");
        let config = Arc::new(Config::new(Settings::default()));
        let (listening, durability) = (Listening::nowhere(), Durability::without_log());
        let engine = Arc::new(Engine::new(config, keyspace, durability, log));
        let server = Server::new(engine, 1, listening);
        let client = Client::new(&ConnInfo::of_nobody(), "", NOW_MS);
        let mut session = Session::new(Arc::new(client), true);
        session.proto = proto;
        let mut bench = Self { server, session, records };
        let lines = CONTENTS.iter().map(|line| line.split(' ').map(|word| word.into()).collect());
        let replies = bench.run(Way::Alone, &lines.collect::<Vec<_>>());
        assert!(replies.iter().all(|reply| !reply.is_error()), "{replies:?}");
        bench
    }

    /// Runs calls of the table and returns the replies.
    pub(super) fn run(&mut self, way: Way, calls: &[Call]) -> Vec<Value> {
        let Self { server, session, records } = self;
        let server: &Server = server;
        let calls: Vec<OwnedArgs> = calls.iter().map(owned).collect();
        let calls: Vec<_> = calls.iter().map(|args| (known(server, args), args)).collect();
        let mut locker = server.keyspace.locker();
        if way == Way::Alone {
            return enter_all(server, session, &mut locker, &calls);
        }
        let needs_all = calls.iter().any(|(command, args)| {
            matches!(command.spec.scope_of(args.as_args()), Scope::All | Scope::Stepwise)
        });
        let mut hashes = Vec::new();
        for (command, args) in &calls {
            let keys = command.spec.key_indexes(args.as_args());
            hashes.extend(keys.map(|index| server.keyspace.hash(&args.as_args()[index])));
        }
        let before = *records.0.lock();
        let mut many = if way == Way::All || needs_all {
            locker.lock_all()
        } else {
            locker.lock_many(&hashes)
        };
        let replies = enter_all(server, session, many.locker(), &calls);
        assert_eq!(*records.0.lock(), before, "nothing is logged before the end of the guard");
        drop(many);
        assert!(*records.0.lock() <= before + 1, "the guard is one record");
        replies
    }

    /// Runs calls one after the other, after which another thread locks each shard before the batch ends.
    pub(super) fn run_and_let_others_in(&mut self, calls: &[Call]) {
        let Self { server, session, .. } = self;
        let mut locker = server.keyspace.locker();
        for call in calls {
            let args = owned(call);
            enter(server, session, &mut locker, known(server, &args), &args);
        }
        let others = || server.keyspace.locker().pass_all_shards();
        std::thread::scope(|scope| scope.spawn(others).join()).expect("it locks and unlocks");
    }

    /// Runs one call of a command that need not be in the table. An error is what it panicked with.
    pub(super) fn try_one(&mut self, command: &Command, call: &Call) -> Result<Value, String> {
        let args = owned(call);
        let Self { server, session, .. } = self;
        let run = || enter(server, session, &mut server.keyspace.locker(), command, &args);
        catch_unwind(AssertUnwindSafe(run)).map_err(|panic| {
            let text = panic.downcast_ref::<String>().cloned();
            text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
                .unwrap_or_default()
        })
    }

    /// What DUMP makes of a key.
    pub(super) fn payload(&mut self, key: &str) -> Vec<u8> {
        let call = vec![b"DUMP".to_vec(), key.into()];
        let reply = self.run(Way::Alone, &[call]).remove(0);
        reply.as_bytes().expect("the key is there").to_vec()
    }

    /// Changes of keys so far.
    pub(super) fn changes(&self) -> u64 {
        self.server.keyspace.stats().changes
    }

    /// All keys with their values, element by element, deadlines and encodings.
    pub(super) fn contents(&mut self) -> Vec<String> {
        let mut found = Vec::new();
        (self.session.proto, self.session.db) = (Proto::Resp2, DbIndex::ZERO);
        for db in 0..4 {
            let mut keys = Vec::new();
            let db = self.server.keyspace.db_index(db).expect("there are four");
            self.server.keyspace.locker().for_each(db, NOW_MS, |entry| {
                keys.push((entry.key().to_vec(), entry.value_type().name()));
            });
            keys.sort();
            self.session.db = db;
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
        found
    }
}

/// The calls that tell all about a key of this type.
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

/// A reply as text, in the order of bytes where there is none.
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

fn owned(call: &Call) -> OwnedArgs {
    let mut args = OwnedArgs::new();
    call.iter().for_each(|arg| args.push(arg).expect("a short call"));
    args
}

/// The command of a call.
fn known<'k>(server: &'k Server, args: &OwnedArgs) -> &'k Command {
    let found = execute::resolve(server, args.as_args());
    found.unwrap_or_else(|refused| panic!("{}", refused.error.as_str()))
}

fn enter_all<'k>(
    server: &'k Server,
    session: &mut Session,
    locker: &mut Locker<'k>,
    calls: &[(&'k Command, &OwnedArgs)],
) -> Vec<Value> {
    calls.iter().map(|(command, args)| enter(server, session, locker, command, args)).collect()
}

/// Runs a call as the kernel does.
fn enter<'k>(
    server: &'k Server,
    session: &mut Session,
    locker: &mut Locker<'k>,
    command: &'k Command,
    args: &OwnedArgs,
) -> Value {
    let mut output = Output::new();
    let (reply, guard) = (Reply::new(&mut output, session.proto), Guard::new(locker));
    let (counters, mode) = (server.counters(0), Mode::Never);
    // The command may be one that no table has, which lives shorter than the server.
    let mut ctx = Context {
        server,
        session,
        guard,
        reply,
        command,
        counters,
        now_ms: NOW_MS,
        mode,
        large: None,
        hashed: None,
    };
    assert!(ctx.covers(args.as_args()), "the guard holds what was declared");
    ctx.run(args.as_args());
    let bytes = output.into_bytes();
    let decoded = ReplyDecoder::new().decode(&bytes).expect("a reply");
    let (value, used) = decoded.unwrap_or((Value::Null, 0));
    assert_eq!(used, bytes.len(), "one reply to {}: {}", command.full_name, bytes.escape_ascii());
    value
}
