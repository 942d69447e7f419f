//! Measures the cost per execution of the most common scripts: a read, and a read-modify-write with three calls. Count
//! its instructions with callgrind, or read the nanoseconds that it prints.
//!
//! Arguments: number of executions, and optionally the index of a single script (0, 1 or 2).

use std::time::Instant;

use tierce_lua::{
    Call, Host, LogLevel, Machine, NoSuchCommand, Outcome, Replication, Script, Server, Stop,
};
use tierce_wire::resp::Proto;

/// A host that costs nothing.
struct Nothing;

impl Host for Nothing {
    fn call(&mut self, args: &[&[u8]], _: Proto, reply: &mut Vec<u8>) -> Result<(), Stop> {
        reply.extend_from_slice(if args[0] == b"get" { b"$3\r\n123\r\n" } else { b"+OK\r\n" });
        Ok(())
    }

    fn look(&mut self) -> Result<(), Stop> {
        Ok(())
    }

    fn log(&mut self, _: LogLevel, _: &[u8]) {}

    fn acl_check(&mut self, _: &[&[u8]]) -> Result<bool, NoSuchCommand> {
        Ok(true)
    }

    fn set_repl(&mut self, _: Replication) {}
}

fn main() {
    let count: u32 =
        std::env::args().nth(1).and_then(|count| count.parse().ok()).unwrap_or(1_000_000);
    let mut machine = Machine::new(&Server { version: [7, 2, 0] });
    let mut reply = Vec::new();
    let only: Option<usize> = std::env::args().nth(2).and_then(|only| only.parse().ok());
    for (index, source) in [
        "return 1",
        "return redis.call('get', KEYS[1])",
        "local v = redis.call('get', KEYS[1]) if not v then v = 0 end redis.call('set', KEYS[1], v + 1) \
         redis.call('expire', KEYS[1], 100) return v",
    ]
    .into_iter()
    .enumerate()
    {
        if only.is_some_and(|only| only != index) {
            continue;
        }
        let script = Script::parse(source.as_bytes()).expect("a script");
        let call = Call { keys: &[b"key:000000000012"], args: &[], proto: Proto::Resp2 };
        let start = Instant::now();
        for _ in 0..count {
            reply.clear();
            let outcome = machine.run(&script, &call, &mut Nothing, &mut reply);
            assert!(matches!(outcome, Outcome::Reply { is_error: false }));
        }
        let nanos = start.elapsed().as_nanos() / u128::from(count);
        println!("{nanos} ns  {source}");
    }
}
