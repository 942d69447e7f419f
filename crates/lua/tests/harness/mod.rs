//! A machine with a host that knows a few commands.
#![allow(dead_code, reason = "each test file uses a part")]

use std::collections::HashMap;
use std::time::Duration;

use tierce_lua::{
    Call, Failure, Function, Host, Library, LibraryId, LogLevel, Machine, NoSuchCommand, Outcome,
    Replication, Script, Server, Stop,
};
use tierce_wire::resp::{Encoder, Proto};

/// Time limit for the code of a library.
const LOAD_TIME_MAX: Duration = Duration::from_millis(500);

/// Commands `echo`, `set`, `get`, `fail`, `raw` (replies its argument as it is) and `stop`.
#[derive(Default)]
pub struct Commands {
    pub values: HashMap<Vec<u8>, Vec<u8>>,
    pub looks_left: u32,
    pub log: Vec<(LogLevel, String)>,
    pub replication: Vec<Replication>,
    pub errors: Vec<String>,
}

impl Host for Commands {
    fn call(&mut self, args: &[&[u8]], proto: Proto, reply: &mut Vec<u8>) -> Result<(), Stop> {
        assert!(reply.is_empty());
        let mut encoder = Encoder::new(reply, proto);
        match (args[0], &args[1..]) {
            (b"echo", [text, ..]) => encoder.bulk(text),
            (b"get", [key]) => match self.values.get(*key) {
                Some(value) => encoder.bulk(value),
                None => encoder.null(),
            },
            (b"set", [key, value]) => {
                self.values.insert(key.to_vec(), value.to_vec());
                encoder.ok();
            }
            (b"raw", [bytes]) => reply.extend_from_slice(bytes),
            (b"stop", _) => return Err(Stop::Undeclared),
            _ => encoder.error("ERR no such command"),
        }
        Ok(())
    }

    fn look(&mut self) -> Result<(), Stop> {
        match self.looks_left {
            0 => Err(Stop::TimeLimit),
            _ => {
                self.looks_left -= 1;
                Ok(())
            }
        }
    }

    fn log(&mut self, level: LogLevel, message: &[u8]) {
        self.log.push((level, String::from_utf8_lossy(message).into_owned()));
    }

    fn acl_check(&mut self, args: &[&[u8]]) -> Result<bool, NoSuchCommand> {
        match args[0] {
            b"get" => Ok(true),
            b"set" => Ok(false),
            _ => Err(NoSuchCommand),
        }
    }

    fn set_repl(&mut self, replication: Replication) {
        self.replication.push(replication);
    }

    fn count_error(&mut self, error: &[u8]) {
        self.errors.push(String::from_utf8_lossy(error).into_owned());
    }
}

pub struct TestMachine {
    pub machine: Machine,
    pub reply: Vec<u8>,
    pub proto: Proto,
}

impl TestMachine {
    pub fn new() -> TestMachine {
        let machine = Machine::new(&Server { version: [7, 0, 15] });
        TestMachine { machine, reply: Vec::new(), proto: Proto::Resp2 }
    }

    pub fn run(&mut self, source: &str, host: &mut Commands) -> Outcome {
        let script = Script::parse(source.as_bytes()).expect("a script");
        self.reply.clear();
        let call = Call { keys: &[], args: &[], proto: self.proto };
        self.machine.run(&script, &call, host, &mut self.reply)
    }

    /// Returns the reply, as a client sees it.
    pub fn eval(&mut self, source: &str) -> String {
        let mut host = Commands { looks_left: 10_000, ..Commands::default() };
        let outcome = self.run(source, &mut host);
        self.seen(outcome)
    }

    pub fn seen(&self, outcome: Outcome) -> String {
        match outcome {
            Outcome::Reply { .. } => String::from_utf8_lossy(&self.reply).into_owned(),
            Outcome::Failed(failure) => format!("-{}\r\n", String::from_utf8_lossy(&failure.text)),
            Outcome::Stopped(stop) => format!("stopped: {stop:?}"),
        }
    }

    pub fn load(&mut self, id: u64, code: &str) -> Result<Vec<Function>, Failure> {
        let library = Library { id: LibraryId(id), code: code.as_bytes().into() };
        let mut host = Commands { looks_left: u32::MAX, ..Commands::default() };
        self.machine.load(&library, &mut host, LOAD_TIME_MAX)
    }

    pub fn call(
        &mut self,
        id: u64,
        code: &str,
        function: &str,
        keys: &[&[u8]],
        args: &[&[u8]],
    ) -> String {
        let library = Library { id: LibraryId(id), code: code.as_bytes().into() };
        let mut host = Commands { looks_left: 10_000, ..Commands::default() };
        self.reply.clear();
        let call = Call { keys, args, proto: self.proto };
        let outcome = self.machine.run_function(
            &library,
            function.as_bytes(),
            &call,
            &mut host,
            &mut self.reply,
        );
        self.seen(outcome)
    }
}
