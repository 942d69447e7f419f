//! Effects that scripts can and cannot have on their machine.

use crate::harness::{Commands, TestMachine};
use tierce_lua::{Outcome, Stop};

fn check(source: &str, expected: &str) {
    assert_eq!(TestMachine::new().eval(source), expected, "{source}");
}

fn check_stopped(source: &str, stop: Stop) {
    let mut machine = TestMachine::new();
    machine.machine.set_memory_limit(32 << 20);
    let mut host = Commands { looks_left: 500_000, ..Commands::default() };
    assert_eq!(machine.run(source, &mut host), Outcome::Stopped(stop), "{source}");
    // The next script finds an intact machine.
    assert_eq!(
        machine.eval("local s = 0 for i = 1, 1000 do s = s + i end return s"),
        ":500500\r\n",
        "{source}"
    );
}

#[test]
fn endless_scripts_are_stopped_whatever_they_catch() {
    for source in [
        "while true do end",
        "while true do pcall(function() while true do end end) end",
        "while true do pcall(error) end",
        "pcall(function() while true do end end) return 1",
        "xpcall(function() while true do end end, function() while true do end end) return 1",
        "local f f = function() while true do pcall(f) end end f()",
        "local c = coroutine.wrap(function() while true do end end) while true do pcall(c) end",
        "while true do coroutine.resume(coroutine.create(function() while true do end end)) end",
        "coroutine.wrap(function() coroutine.wrap(function() while true do end end)() end)()",
        "return load(function() while true do end end)",
        "local t = setmetatable({}, {__index = function() while true do end end}) return t.x",
        "table.sort({3, 2, 1}, function() while true do end end)",
        "local t = {} for i = 1, 300000 do t[i] = (i * 7919) % 300007 end while true do table.sort(t) end",
        "table.insert({}, -2147483648, 1)",
        "local s = string.rep('x', 1000) while true do redis.pcall('echo', s) end",
        "local t = {} for i = 1, 30 do t = {t, t} end return t",
        "repeat until false",
        "local function f() return f() end return f()",
    ] {
        let mut machine = TestMachine::new();
        let mut host = Commands { looks_left: 50, ..Commands::default() };
        assert_eq!(machine.run(source, &mut host), Outcome::Stopped(Stop::TimeLimit), "{source}");
        assert_eq!(machine.eval("return 1"), ":1\r\n", "{source}");
    }
}

#[test]
fn what_a_command_stops_is_not_caught() {
    for source in [
        "redis.call('stop')",
        "redis.pcall('stop')",
        "pcall(redis.call, 'stop') redis.call('set', 'k', 'v')",
        "xpcall(function() redis.call('stop') end, function() redis.call('set', 'k', 'v') end)",
        "coroutine.resume(coroutine.create(function() redis.call('stop') end)) redis.call('set', 'k', 'v')",
        "coroutine.wrap(function() pcall(redis.call, 'stop') end)()",
        "string.gsub('abc', '.', function() redis.call('stop') end)",
    ] {
        let mut machine = TestMachine::new();
        let mut host = Commands { looks_left: 50, ..Commands::default() };
        assert_eq!(machine.run(source, &mut host), Outcome::Stopped(Stop::Undeclared), "{source}");
        assert!(host.values.is_empty(), "{source}");
    }
}

#[test]
fn memory_is_limited() {
    for source in [
        "local s = 'x' while true do s = s .. s end",
        "local t = {} while true do t[#t + 1] = {} end",
        "local t = {} pcall(function() while true do t[#t + 1] = ('x'):rep(1000) .. #t end end) return 1",
        "return ('x'):rep(100000000)",
        "local t = {} for i = 1, 1000 do t[i] = ('x'):rep(100000) .. i end return table.concat(t)",
        "local t = {} for i = 1, 100 do t[i] = ('x'):rep(1000000) end return t",
        "return redis.call('echo', ('x'):rep(20000000)) .. 'y'",
        "local c = {} for i = 1, 1e6 do c[i] = coroutine.create(function() end) end",
    ] {
        check_stopped(source, Stop::MemoryLimit);
    }
}

#[test]
fn garbage_does_not_count_as_memory() {
    let mut machine = TestMachine::new();
    machine.machine.set_memory_limit(8 << 20);
    let source = "local n = 0 for i = 1, 20000 do n = n + #(('x'):rep(1000) .. i) end return n";
    assert_eq!(machine.eval(source), ":20088894\r\n");
    assert_eq!(
        machine
            .eval("collectgarbage('stop') for i = 1, 3000 do local s = ('x'):rep(1000) .. i end"),
        "$-1\r\n"
    );
    assert_eq!(machine.eval(source), ":20088894\r\n");
}

#[test]
fn deep_recursion_is_an_error() {
    for source in [
        "local function f() return 1 + f() end f()",
        "local function f() pcall(f) error('x') end f()",
        "local function f() coroutine.wrap(f)() end f()",
        "local function f() local c = coroutine.create(f) assert(coroutine.resume(c)) end f()",
        "local t = {} t = setmetatable(t, {__index = function(t, k) return t[k + 1] end}) return t[1]",
        "return loadstring(('('):rep(1000) .. '1' .. (')'):rep(1000))()",
        "local t = setmetatable({}, {__tostring = function(t) return tostring(t) end}) return tostring(t)",
        "return unpack({}, 1, 1e8)",
        "return select('#', unpack({}, 1, 1e6))",
        "return redis.call('echo', unpack({}, 1, 1e5))",
        "local function f() table.sort({1, 2}, f) end f()",
        "local function f() load(f) error() end f()",
    ] {
        let mut machine = TestMachine::new();
        machine.machine.set_memory_limit(64 << 20);
        let reply = machine.eval(source);
        assert!(reply.starts_with("-ERR"), "{source}: {reply}");
        assert_eq!(machine.eval("return 1"), ":1\r\n", "{source}");
    }
}

#[test]
fn replies_without_end_are_errors() {
    check("local t = {} t[1] = t return t", "-ERR reached lua stack limit\r\n");
    check("local t = {} t.map = {a = t} return t", "-ERR reached lua stack limit\r\n");
    check("local t = {} t.set = {[t] = true} return t", "-ERR reached lua stack limit\r\n");
    check("local t = {} for i = 1, 400 do t = {t} end return #t", ":1\r\n");
}

#[test]
fn nothing_survives_a_script_that_it_should_not() {
    let mut machine = TestMachine::new();
    for source in [
        "KEYS = nil",
        "string.x = 1",
        "rawset(_G, 'x', 1)",
        "rawset(redis, 'call', 1)",
        "table.insert(redis, 1)",
        "getmetatable('').__index = nil",
        "getmetatable('').__index.len = nil",
        "getmetatable(_G).__index = nil",
        "setmetatable(_G, nil)",
        "setmetatable(math, {})",
        "local f, t = pairs(string) t.len = nil",
        "_G.x = 1",
        "x = 1",
        "function f() end",
    ] {
        let reply = machine.eval(source);
        assert!(reply.contains("Attempt to modify a readonly table"), "{source}: {reply}");
    }
    for source in
        ["return os.time", "return os.execute", "return rawget(_G, 'x')", "return redis[1]"]
    {
        assert_eq!(machine.eval(source), "$-1\r\n", "{source}");
    }
    for name in [
        "io", "debug", "package", "require", "print", "dofile", "loadfile", "newproxy", "setfenv",
        "getfenv",
    ] {
        let reply = machine.eval(&format!("return {name}"));
        assert!(reply.contains("nonexistent global variable"), "{reply}");
    }
    assert_eq!(machine.eval("KEYS[1] = 1 KEYS.x = 1"), "$-1\r\n");
    assert_eq!(machine.eval("return {#KEYS, KEYS.x}"), "*1\r\n:0\r\n");
    assert_eq!(machine.eval("return string.len('abc') + ('abc'):len()"), ":6\r\n");
}

/// The tables of arguments are reused for the next script, unless they were changed.
#[test]
fn settings_of_json_end_with_the_script() {
    let mut machine = TestMachine::new();
    let before = "return {cjson.encode(1/3), cjson.encode_max_depth(), cjson.encode_keep_buffer() and 1, \
                  select('#', cjson.encode_sparse_array())}";
    let expected = machine.eval(before);
    let changed = "cjson.encode_number_precision(3) cjson.encode_max_depth(2) cjson.encode_keep_buffer(false) \
                   cjson.encode_sparse_array(true) return cjson.encode(1/3)";
    assert_eq!(machine.eval(changed), "$5\r\n0.333\r\n");
    assert_eq!(machine.eval(before), expected);
    machine.eval("cjson.encode_number_precision(3) error('x')");
    assert_eq!(machine.eval(before), expected);
}

#[test]
fn arguments_are_those_of_the_script() {
    let mut machine = TestMachine::new();
    let mut run = |source: &str, keys: &[&[u8]]| {
        let mut host = Commands { looks_left: 10, ..Commands::default() };
        let script = tierce_lua::Script::parse(source.as_bytes()).expect("a script");
        machine.reply.clear();
        let call = tierce_lua::Call { keys, args: &[b"arg"], proto: machine.proto };
        let outcome = machine.machine.run(&script, &call, &mut host, &mut machine.reply);
        machine.seen(outcome)
    };
    let list = "local n = 0 for k, v in pairs(KEYS) do n = n + 1 end return {#KEYS, n, KEYS[1], KEYS[#KEYS], ARGV[1], \
                KEYS.x, getmetatable(KEYS)}";
    let many: Vec<&[u8]> = vec![b"a"; 100];
    for change in [
        "return 1",
        "KEYS[1] = nil",
        "KEYS[2] = 'x' KEYS[7] = 'y'",
        "KEYS.x = 1",
        "setmetatable(KEYS, {__index = function() return 1 end})",
        "for i = 1, 100 do KEYS[i] = i end",
        "table.remove(KEYS)",
        "while true do KEYS[1] = 1 end",
        "error(KEYS)",
        "KEYS[0] = 1 KEYS[-1] = 1 KEYS[1.5] = 1",
        "for i = 1, #KEYS do KEYS[i] = nil end KEYS[3] = 1",
        "collectgarbage('stop')",
    ] {
        for keys in [&[][..], &[&b"k"[..]], &[b"k", b"l", b"m"], &many] {
            for next in [&[][..], &[&b"p"[..]], &[b"p", b"q", b"r", b"s"]] {
                run(change, keys);
                let len = next.len();
                let expected = match next {
                    [] => ":0\r\n:0\r\n".to_owned(),
                    [first, .., last] => format!(
                        ":{len}\r\n:{len}\r\n$1\r\n{}\r\n$1\r\n{}\r\n$3\r\narg\r\n",
                        first[0] as char, last[0] as char
                    ),
                    [only] => {
                        let only = only[0] as char;
                        format!(":1\r\n:1\r\n$1\r\n{only}\r\n$1\r\n{only}\r\n$3\r\narg\r\n")
                    }
                };
                let count = if next.is_empty() { 2 } else { 5 };
                let expected = format!("*{count}\r\n{expected}");
                assert_eq!(run(list, next), expected, "{change} {len}");
            }
        }
    }
}

/// The order of equal elements is as in Lua; these orders are those of redis-server 7.0.
#[test]
fn tables_are_sorted() {
    check("local t = {3, 1, 2} table.sort(t) return t", "*3\r\n:1\r\n:2\r\n:3\r\n");
    check(
        "local t = {} for i = 1, 2000 do t[i] = (i * 7919) % 2003 end table.sort(t, function(a, b) return a > b end) \
         for i = 2, #t do assert(t[i - 1] > t[i]) end table.sort(t) for i = 2, #t do assert(t[i - 1] < t[i]) end return 1",
        ":1\r\n",
    );
    check(
        "return table.sort({3, 1, 2, 5, 4}, function() return true end)",
        "-ERR user_script:1: invalid order function for sorting script: 9b8b8347fb6461276c48a9d4a871f33e44cef586, on \
         @user_script:1.\r\n",
    );
    check(
        "local t = {} for i = 1, 12 do t[i] = {i % 3, i} end table.sort(t, function(a, b) return a[1] < b[1] end) \
         for i = 1, 12 do t[i] = t[i][2] end return table.concat(t, ' ')",
        "$26\r\n12 9 3 6 1 4 7 10 2 8 11 5\r\n",
    );
}

#[test]
fn protected_tables_can_be_listed() {
    let count = "local n = 0 for _ in pairs(redis) do n = n + 1 end return {n, rawget(redis, 'LOG_WARNING'), \
                 next(redis) ~= nil and 1 or 0, type(string)}";
    check(count, "*4\r\n:23\r\n:3\r\n:1\r\n$5\r\ntable\r\n");
}

#[test]
fn compiled_code_is_not_loaded() {
    check("return {loadstring(string.dump(function() return 1 end)) == nil}", "*1\r\n:1\r\n");
    check(
        "local s = string.dump(function() end) return {load(function() local x = s s = nil return x end) == nil}",
        "*1\r\n:1\r\n",
    );
    check(
        "\x1bLua",
        "-ERR Error compiling script (new function): user_script:1: unexpected symbol near 'char(27)'\r\n",
    );
}

/// A script that uses the name of its chunk as a string, and collects garbage whenever its reader is called.
#[test]
fn the_name_of_a_chunk_outlives_collections_while_it_is_parsed() {
    check(
        "local texts, place = {'', 'local x = ', '1 error(\"x\")'}, 0 \
         local function read() \
             place = place + 1 \
             for i = 1, 20 do collectgarbage() local _ = string.rep('y', 90) .. i end \
             return texts[place + 1] \
         end \
         local f = load(read, '@' .. string.rep('n', 20) .. '\\0end') \
         for i = 1, 200 do local _ = string.rep('z', 20) .. i end collectgarbage() \
         return {select(2, pcall(f))}",
        "*1\r\n$25\r\nnnnnnnnnnnnnnnnnnnnn:1: x\r\n",
    );
}

#[test]
fn levels_of_long_brackets_and_the_length_of_sources_are_limited() {
    check("return [==[a]=]b]==]", "$5\r\na]=]b\r\n");
    check(
        "return #loadstring('return [' .. ('='):rep(99999) .. '[x]' .. ('='):rep(99999) .. ']')()",
        ":1\r\n",
    );
    let mut machine = TestMachine::new();
    let mut host = Commands { looks_left: u32::MAX, ..Commands::default() };
    let outcome = machine.run(
        "local s = ('='):rep(1024 * 1024) local n = 0 \
         local f, text = load(function() n = n + 1 if n == 1 then return '--' end return s end) \
         return {tostring(f), text}",
        &mut host,
    );
    assert_eq!(
        machine.seen(outcome),
        "*2\r\n$3\r\nnil\r\n-ERR user_script:1: source too large\r\n"
    );
}

#[test]
fn a_machine_is_small() {
    let machine = TestMachine::new();
    assert!(machine.machine.used_bytes() < 64 << 10, "{}", machine.machine.used_bytes());
}

#[test]
fn ten_thousand_scripts_need_bounded_memory() {
    let mut machine = TestMachine::new();
    for number in 0..10_000 {
        assert_eq!(machine.eval(&format!("return {number}")), format!(":{number}\r\n"));
    }
    assert!(machine.machine.used_bytes() < 8 << 20, "{}", machine.machine.used_bytes());
    assert_eq!(machine.eval("return 0"), ":0\r\n");
}
