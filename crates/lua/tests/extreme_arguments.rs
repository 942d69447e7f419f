//! Calls every function of the sandbox with arguments at the ends of their ranges, three at a time. Lua's `unpack`
//! wrote beyond its stack for `unpack({}, 0, 2147483647)`. An address sanitizer detects more than crashes: see
//! `fuzz/README.md`.

use crate::harness::TestMachine;
use crate::stops::functions;
use tierce_harness::effort;
use tierce_lua::{Call, Host, LogLevel, NoSuchCommand, Outcome, Replication, Script, Stop};
use tierce_wire::resp::Proto;

/// Calls one function with all combinations of two values and some thirds, from a given one on, and reports the
/// current one to the host.
const CALLS: &str = r#"
    local called, skipped, count = FUNCTION, tonumber(ARGV[1]), tonumber(ARGV[2])
    local values = {
        false, true, 0, -1, 1, 31, 32, -32, 0.5, 2^31 - 1, 2^31, -2^31, -2^31 - 1, 2^32, 2^53, 2^63, -2^63,
        1e308, 0/0, 1/0, -1/0, '', 'x', '-2147483648', '%d%s', '%99.99f', '!16i16s', '[=[', '(()%1)',
        string.rep('x', 600), {}, {1, 2, 3}, setmetatable({}, {__index = {1}}), function(...) return ... end, 'thread',
    }
    local thirds, places = {2, 4, 10, 12, 16, 19, 23, 31}, #values + 1
    local function value(place)
        if values[place] == 'thread' then return coroutine.create(function() end) end
        return values[place]
    end
    for at = skipped + 1, places * places * count do
        local n, pair = (at - 1) % count + 1, math.floor((at - 1) / count)
        local a, b = math.floor(pair / places) + 1, pair % places + 1
        local c = thirds[(a + b + n) % #thirds + 1]
        redis.call(at)
        pcall(called, value(a), value(b), value(c))
    end
"#;

/// Number of values for the third argument.
const THIRDS: u32 = 8;

/// Maximum number of looks for one combination.
const LOOKS_MAX: u32 = 4;

#[derive(Default)]
struct Progress {
    at: u64,
    looks_left: u32,
}

impl Host for Progress {
    fn call(&mut self, args: &[&[u8]], _: Proto, reply: &mut Vec<u8>) -> Result<(), Stop> {
        if let Some(at) = std::str::from_utf8(args[0]).ok().and_then(|at| at.parse().ok()) {
            // The called functions may call this one as well.
            if at == self.at + 1 {
                (self.at, self.looks_left) = (at, LOOKS_MAX);
            }
        }
        reply.extend_from_slice(b"+OK\r\n");
        Ok(())
    }

    fn look(&mut self) -> Result<(), Stop> {
        self.looks_left = self.looks_left.checked_sub(1).ok_or(Stop::TimeLimit)?;
        Ok(())
    }

    fn log(&mut self, _: LogLevel, _: &[u8]) {}

    fn acl_check(&mut self, _: &[&[u8]]) -> Result<bool, NoSuchCommand> {
        Err(NoSuchCommand)
    }

    fn set_repl(&mut self, _: Replication) {}
}

#[test]
fn functions_take_any_arguments() {
    let mut machine = TestMachine::new();
    machine.machine.set_memory_limit(16 << 20);
    let thirds = effort(2).min(THIRDS).to_string();
    for name in functions() {
        let script = Script::parse(CALLS.replace("FUNCTION", &name).as_bytes()).expect("a script");
        let mut progress = Progress::default();
        loop {
            progress.looks_left = LOOKS_MAX;
            let skipped = progress.at.to_string();
            let args = [skipped.as_bytes(), thirds.as_bytes()];
            let call = Call { keys: &[], args: &args, proto: Proto::Resp2 };
            let outcome = machine.machine.run(&script, &call, &mut progress, &mut Vec::new());
            match outcome {
                Outcome::Reply { .. } => break,
                Outcome::Stopped(_) if skipped != progress.at.to_string() => {}
                _ => panic!("{name} at {}: {outcome:?}", progress.at),
            }
        }
        assert_eq!(machine.eval("return 1"), ":1\r\n", "{name}");
    }
}

#[test]
fn unpack_counts_beyond_the_range_of_its_bounds() {
    for bounds in ["0, 2147483647", "-2, 2147483647", "-2147483648, 2147483647", "1, 8001"] {
        let reply =
            TestMachine::new().eval(&format!("return {{pcall(unpack, {{1, 2, 3}}, {bounds})}}"));
        assert_eq!(reply, "*2\r\n$-1\r\n$26\r\ntoo many results to unpack\r\n", "{bounds}");
    }
    for (bounds, results) in
        [("2", "2 3"), ("2, 1", ""), ("-1, 1", "nil nil 1"), ("2147483647, 2147483647", "nil")]
    {
        let source = format!(
            "local t = {{unpack({{1, 2, 3}}, {bounds})}} local n = select('#', unpack({{1, 2, 3}}, {bounds})) \
             for i = 1, n do t[i] = tostring(t[i]) end return table.concat(t, ' ')"
        );
        let expected = format!("${}\r\n{results}\r\n", results.len());
        assert_eq!(TestMachine::new().eval(&source), expected, "{bounds}");
    }
}

#[test]
fn functions_with_many_parameters_are_called_with_none() {
    let names: Vec<_> = (0..190).map(|number| format!("p{number}")).collect();
    let function = format!("local function f({}, ...) return p0, p189, ... end", names.join(", "));
    // In a coroutine the stack is as small as possible.
    let source =
        format!("{function} return {{coroutine.wrap(function() return select('#', f()) end)()}}");
    assert_eq!(TestMachine::new().eval(&source), "*1\r\n:2\r\n");
}
