//! Runs the scripts on standard input against a server that knows five commands, and prints their replies: a script in
//! hexadecimal digits per line, its reply in RESP in the same form. For comparisons with redis-server.
//!
//! A line may begin with `3 `, for a client that speaks RESP3.

use std::collections::HashMap;
use std::io::{self, BufRead, Write};

use tierce_lua::{
    Call, Host, LogLevel, Machine, NoSuchCommand, Outcome, Replication, Script, Server, Stop,
};
use tierce_wire::resp::{Encoder, Proto};

/// Number of checks after which a script is stopped.
const LOOKS_MAX: u32 = 10_000;

#[derive(Default)]
struct Commands {
    values: HashMap<Vec<u8>, Vec<u8>>,
    looks: u32,
}

impl Commands {
    fn increment(&mut self, key: &[u8], reply: &mut Encoder<'_>) {
        let value = self.values.entry(key.to_vec()).or_insert_with(|| b"0".to_vec());
        match std::str::from_utf8(value).ok().and_then(|text| text.parse::<i64>().ok()) {
            Some(number) => {
                *value = (number + 1).to_string().into_bytes();
                reply.int(number + 1);
            }
            None => reply.error("ERR value is not an integer or out of range"),
        }
    }
}

impl Host for Commands {
    fn call(&mut self, args: &[&[u8]], proto: Proto, reply: &mut Vec<u8>) -> Result<(), Stop> {
        let mut reply = Encoder::new(reply, proto);
        match (args[0].to_ascii_lowercase().as_slice(), &args[1..]) {
            (b"echo", [text]) => reply.bulk(text),
            (b"get", [key]) => match self.values.get(*key) {
                Some(value) => reply.bulk(value),
                None => reply.null(),
            },
            (b"set", [key, value]) => {
                self.values.insert(key.to_vec(), value.to_vec());
                reply.ok();
            }
            (b"incr", [key]) => self.increment(key, &mut reply),
            (b"del", [key]) => reply.int(i64::from(self.values.remove(*key).is_some())),
            (b"echo" | b"get" | b"set" | b"incr" | b"del", _) => {
                reply.error("ERR Wrong number of args calling Redis command from script");
            }
            _ => reply.error("ERR Unknown Redis command called from script"),
        }
        Ok(())
    }

    fn look(&mut self) -> Result<(), Stop> {
        self.looks += 1;
        if self.looks > LOOKS_MAX { Err(Stop::TimeLimit) } else { Ok(()) }
    }

    fn log(&mut self, _: LogLevel, message: &[u8]) {
        eprintln!("{}", String::from_utf8_lossy(message));
    }

    fn acl_check(&mut self, args: &[&[u8]]) -> Result<bool, NoSuchCommand> {
        match args[0] {
            b"echo" | b"get" | b"set" | b"incr" | b"del" => Ok(true),
            _ => Err(NoSuchCommand),
        }
    }

    fn set_repl(&mut self, _: Replication) {}
}

fn run(machine: &mut Machine, host: &mut Commands, source: Vec<u8>, proto: Proto) -> Vec<u8> {
    let mut reply = Vec::new();
    let script = match Script::parse(source) {
        Ok(script) => script,
        Err(text) => {
            Encoder::new(&mut reply, proto).error(text);
            return reply;
        }
    };
    host.looks = 0;
    match machine.run(&script, &Call { keys: &[], args: &[], proto }, host, &mut reply) {
        Outcome::Reply { .. } => {}
        Outcome::Failed(failure) => Encoder::new(&mut reply, proto).error(failure.text),
        Outcome::Stopped(stop) => {
            Encoder::new(&mut reply, proto).error(format!("STOPPED {stop:?}"));
        }
    }
    reply
}

fn from_hex(text: &str) -> Vec<u8> {
    let digits = text.as_bytes().chunks_exact(2);
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    digits.filter_map(byte).collect()
}

fn main() -> io::Result<()> {
    let mut machine = Machine::new(&Server { version: [7, 0, 15] });
    machine.set_memory_limit(1 << 30);
    let mut host = Commands::default();
    let mut stdout = io::stdout();
    for line in io::stdin().lock().lines() {
        let line = line?;
        let (proto, text) = match line.strip_prefix("3 ") {
            Some(text) => (Proto::Resp3, text),
            None => (Proto::Resp2, &*line),
        };
        let reply = run(&mut machine, &mut host, from_hex(text), proto);
        let reply: String = reply.iter().map(|byte| format!("{byte:02x}")).collect();
        writeln!(stdout, "{reply}")?;
        stdout.flush()?;
    }
    Ok(())
}
