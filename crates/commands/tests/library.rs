//! A program calls commands without a server: each call leaves a reply.

use std::path::Path;
use std::sync::Arc;

use tierce_commands::caller::Caller;
use tierce_commands::clients::{Client, Origin};
use tierce_commands::kernel::Kernel;
use tierce_commands::stats::Stat;
use tierce_config::{Config, Invocation, LogLevel, Settings, parse};
use tierce_engine::Engine;
use tierce_engine::durability::Durability;
use tierce_engine::log::Log;
use tierce_harness::TempDir;
use tierce_keyspace::{Keyspace, Options};
use tierce_output::Output;
use tierce_storage::disk::OsDisk;
use tierce_wire::resp::OwnedArgs;

/// A store, and a caller of its commands.
struct Program {
    kernel: Arc<Kernel>,
    caller: Caller,
}

impl Program {
    /// A store in memory only, without workers.
    fn in_memory() -> Self {
        let keyspace = Arc::new(Keyspace::new(Options::default()).unwrap());
        let config = Arc::new(Config::new(Settings::default()));
        let log = Log::open(None, LogLevel::Nothing).unwrap();
        Self::with(Arc::new(Engine::new(config, keyspace, Durability::without_log(), log)))
    }

    /// A store in this directory.
    fn open(dir: &Path, options: &[&str]) -> Self {
        let mut args = vec!["--dir".into(), dir.into()];
        args.extend(options.iter().map(|option| option.into()));
        let Ok(Invocation::Serve(sources)) = parse(args, [], &[]) else { panic!("{options:?}") };
        let settings = sources.load(&mut std::io::empty()).unwrap().settings;
        let log = Log::open(None, LogLevel::Nothing).unwrap();
        Self::with(Engine::open(settings, Arc::new(OsDisk), log).unwrap())
    }

    fn with(engine: Arc<Engine>) -> Self {
        let kernel = Arc::new(Kernel::new(engine, tierce_commands::table(), 0));
        Self { kernel, caller: caller() }
    }

    fn call(&mut self, line: &str) -> String {
        call(&self.kernel, &mut self.caller, line)
    }

    #[track_caller]
    fn check(&mut self, cases: &[(&str, &str)]) {
        for (line, expected) in cases {
            assert_eq!(self.call(line), *expected, "{line}");
        }
    }
}

fn caller() -> Caller {
    Caller::new(Arc::new(Client::new(Origin::default(), 0)), true)
}

/// Returns the reply to a line, with line ends as blanks.
fn call(kernel: &Kernel, caller: &mut Caller, line: &str) -> String {
    let mut args = OwnedArgs::new();
    line.split(' ').for_each(|arg| args.push(arg.as_bytes()).unwrap());
    let mut output = Output::new();
    kernel.execute(caller, args.as_args(), &mut output);
    String::from_utf8_lossy(output.buffer()).trim_end().replace("\r\n", " ")
}

#[test]
fn each_kind_of_call_leaves_a_reply() {
    let mut program = Program::in_memory();
    program.check(&[
        ("SET a 1", "+OK"),
        ("GET a", "$1 1"),
        ("NOSUCH a", "-ERR unknown command 'NOSUCH', with args beginning with: 'a'"),
        ("GET", "-ERR wrong number of arguments for 'get' command"),
        ("LPUSH a x", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
        // Several keys.
        ("MSET b 2 c 3", "+OK"),
        ("MGET a b c d", "*4 $1 1 $1 2 $1 3 $-1"),
        // No thread would wake the caller.
        ("BLPOP list 0", "*-1"),
        ("RPUSH list x", ":1"),
        ("BLPOP list 0", "*2 $4 list $1 x"),
        ("XREAD BLOCK 0 STREAMS s $", "*-1"),
        // Commands that need threads or a connection, which are missing here.
        ("SAVE", "-ERR this store was not opened to be saved: nothing writes files"),
        ("BGSAVE", "-ERR this store was not opened to be saved: nothing writes files"),
        ("SHUTDOWN NOSAVE", "-ERR this command is for connections, and its caller has none"),
        ("MONITOR", "-ERR this command is for connections, and its caller has none"),
        ("REPLCONF capa eof", "-ERR this command is for connections, and its caller has none"),
        ("PSYNC ? -1", "-ERR this command is for connections, and its caller has none"),
        ("SYNC", "-ERR this command is for connections, and its caller has none"),
        ("SUBSCRIBE news", "-ERR this command is for connections, and its caller has none"),
        ("WAIT 0 0", ":0"),
        ("FLUSHALL", "+OK"),
        ("DBSIZE", ":0"),
    ]);
    assert!(!program.caller.closing && program.caller.waits.is_idle());
}

#[test]
fn long_commands_run_on_the_thread_of_their_caller() {
    let mut program = Program::in_memory();
    let numbers: Vec<String> = (0..20_001).map(|number| number.to_string()).collect();
    assert_eq!(program.call(&format!("RPUSH list {}", numbers.join(" "))), ":20001");
    program.check(&[
        ("SORT list DESC LIMIT 0 2", "*2 $5 20000 $5 19999"),
        ("SORT list STORE sorted", ":20001"),
        ("LLEN sorted", ":20001"),
    ]);
}

#[test]
fn a_caller_keeps_its_state_and_two_have_their_own() {
    let mut program = Program::in_memory();
    let mut other = caller();
    program.check(&[("SELECT 3", "+OK"), ("SET a here", "+OK")]);
    assert_eq!(call(&program.kernel, &mut other, "GET a"), "$-1");
    program.check(&[
        ("GET a", "$4 here"),
        ("CLIENT REPLY SKIP", ""),
        ("GET a", ""),
        ("GET a", "$4 here"),
        ("MULTI", "+OK"),
        ("INCR count", "+QUEUED"),
        ("INCR count", "+QUEUED"),
    ]);
    assert_eq!(call(&program.kernel, &mut other, "EXISTS count"), ":0");
    program.check(&[("EXEC", "*2 :1 :2"), ("RESET", "+RESET"), ("EXISTS a", ":0")]);
}

#[test]
fn calls_pass_the_gates_and_are_accounted_for() {
    let dir = TempDir::new();
    let mut program = Program::open(dir.path(), &["--appendonly", "no"]);
    program.check(&[
        ("CONFIG SET slowlog-log-slower-than 0", "+OK"),
        ("GET a", "$-1"),
        ("INCRBY a x", "-ERR value is not an integer or out of range"),
        ("SETRANGE much 1000000 x", ":1000001"),
        ("CONFIG SET maxmemory 500000", "+OK"),
        ("SET b x", "-OOM command not allowed when used memory > 'maxmemory'."),
        ("CONFIG SET maxmemory 0", "+OK"),
    ]);
    let stats = program.call("INFO commandstats");
    assert!(stats.contains("cmdstat_get:calls=1,"), "{stats}");
    assert!(stats.contains("rejected_calls=0,failed_calls=1 cmdstat_"), "{stats}");
    assert!(program.call("SLOWLOG GET 1").contains("INFO"));
    // Concurrent callers count on their own threads.
    let before = program.kernel.totals().get(Stat::Commands);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut caller = caller();
                (0..500).for_each(|_| _ = call(&program.kernel, &mut caller, "INCR n"));
            });
        }
    });
    assert_eq!(program.kernel.totals().get(Stat::Commands) - before, 2000);
    program.check(&[("GET n", "$4 2000")]);
    program.kernel.engine.close();
}

#[test]
fn a_call_waits_for_the_end_of_a_pause() {
    let mut program = Program::in_memory();
    program.check(&[("CLIENT PAUSE 1000000 WRITE", "+OK"), ("GET a", "$-1")]);
    let kernel = Arc::clone(&program.kernel);
    let writer = std::thread::spawn(move || call(&kernel, &mut caller(), "SET a 1"));
    program.check(&[("GET a", "$-1"), ("CLIENT UNPAUSE", "+OK")]);
    assert_eq!(writer.join().unwrap(), "+OK");
    program.check(&[("GET a", "$1 1")]);
}

#[test]
fn a_store_on_disk_is_saved_while_the_caller_waits_and_keeps_what_was_acknowledged() {
    let dir = TempDir::new();
    let mut program = Program::open(dir.path(), &["--appendfsync", "always"]);
    program.check(&[("SET a 1", "+OK"), ("SAVE", "+OK"), ("BACKUP monday.rdb", "+OK")]);
    let wal = program.kernel.durability.durable_log().expect("a log");
    assert!(wal.durable() >= wal.appended() && wal.appended() > 0, "SET is on the device");
    assert!(dir.path().join("monday.rdb").exists());
    assert!(program.call("BACKUP monday.rdb").starts_with("-ERR "), "it is there already");
    program.kernel.engine.close();
    let mut program = Program::open(dir.path(), &[]);
    program.check(&[("GET a", "$1 1")]);
    program.kernel.engine.close();
}
