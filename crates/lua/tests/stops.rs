//! No function of the sandbox catches a stop, and none prevents a script from being stopped.

use crate::harness::{Commands, TestMachine};
use tierce_lua::{Outcome, Stop};

/// Returns all functions that scripts can reach, by path.
pub fn functions() -> Vec<String> {
    let source = "local names = {} \
        for name, value in pairs(_G) do \
            if type(value) == 'function' then names[#names + 1] = name end \
            if type(value) == 'table' and name ~= '_G' then \
                for member, value in pairs(value) do \
                    if type(value) == 'function' then names[#names + 1] = name .. '.' .. member end \
                end \
            end \
        end \
        return table.concat(names, ' ')";
    let reply = TestMachine::new().eval(source);
    let names = reply.lines().nth(1).expect("a bulk string");
    names.split(' ').map(str::to_owned).collect()
}

/// Ways to make a function run `stop`: as a callback, in a coroutine, or as a metamethod.
const ARGUMENTS: [&str; 12] = [
    "stop",
    "stop, stop",
    "coroutine.create(stop)",
    "coroutine.wrap(stop)",
    "{3, 2, 1}, stop",
    "'abc', '.', stop",
    "'%s', meta",
    "1, meta",
    "meta",
    "meta, 1, 2",
    "{meta, meta}, 'x'",
    "function() error('x') end, stop",
];

/// A stop is raised in three ways: by a command, by the look of the hook, and by the allocator.
const STOPS: [(&str, Stop); 3] = [
    ("redis.call('stop')", Stop::Undeclared),
    ("while true do end", Stop::TimeLimit),
    ("local s = 'xxxxxxxx' while true do s = s .. s end", Stop::MemoryLimit),
];

#[test]
fn no_function_catches_a_stop() {
    let names = functions();
    for known in ["pcall", "xpcall", "load", "coroutine.resume", "redis.pcall", "cjson.encode"] {
        assert!(names.iter().any(|name| name == known), "{known} is missing");
    }
    for (body, stop) in STOPS {
        let mut machine = TestMachine::new();
        machine.machine.set_memory_limit(4 << 20);
        let mut stopped = 0;
        for name in &names {
            for arguments in ARGUMENTS {
                let source = format!(
                    "local stopping = false \
                     local function stop() stopping = true {body} end \
                     local meta = setmetatable({{}}, {{__index = stop, __newindex = stop, __call = stop, \
                         __tostring = stop, __lt = stop, __le = stop, __eq = stop, __concat = stop, __len = stop}}) \
                     local result = {name}({arguments}) \
                     if type(result) == 'function' then result() end \
                     if stopping then redis.log(redis.LOG_NOTICE, 'caught') end"
                );
                let mut host = Commands { looks_left: 3000, ..Commands::default() };
                if matches!(stop, Stop::TimeLimit) {
                    host.looks_left = 3;
                }
                let outcome = machine.run(&source, &mut host);
                let is_caught = host.log.iter().any(|(_, message)| message == "caught");
                assert!(!is_caught, "{name}({arguments}) catches {stop:?}");
                stopped += usize::from(outcome == Outcome::Stopped(stop));
            }
        }
        assert!(stopped > 20, "{stopped} were stopped by {stop:?}");
    }
}

/// Each of these ended only after the time of thousands of looks, or never.
#[test]
fn what_runs_long_is_looked_at() {
    for source in [
        "local function f(n) while true do coroutine.resume(coroutine.create(f), n + 1) end end f(0)",
        "local function f() while true do load(f) end end f()",
        "local function f() while true do pcall(coroutine.wrap(f)) end end f()",
        "local function f(n) for i = 1, 2000 do if n > 0 then coroutine.wrap(f)(n - 1) end end end f(6)",
        "for i = 1, 2000 do coroutine.wrap(function() for j = 1, 5000 do end end)() end",
        "local c = coroutine.wrap(function() while true do for i = 1, 90 do end coroutine.yield() end end) \
         for i = 1, 2000 do c() end",
        "local s = string.rep('x', 1000000) for i = 1, 100 do s:upper() end",
        "local s = string.rep('x', 1000000) for i = 1, 100 do s:lower() end",
        "local s = string.rep('x', 1000000) for i = 1, 100 do s:reverse() end",
        "local s = string.rep('x', 1000000) for i = 1, 100 do redis.sha1hex(s) end",
        "local s = string.rep('x', 1000000) for i = 1, 100 do local _ = s .. i end",
        "local s = string.rep('x', 1000000) for i = 1, 100 do local _ = ('%s'):format(s) .. i end",
        "for i = 1, 100 do string.rep('x', 1000000) end",
        "local t = {} for i = 1, 90000 do t[i] = '' end for i = 1, 100 do table.concat(t) end",
        "local t = {} for i = 1, 90000 do t[i] = '' end for i = 1, 100 do table.remove(t, 1) end",
        "local t = {} for i = 1, 90000 do t[i] = '' end for i = 1, 100 do table.insert(t, 1, 1) end",
        "local t = {} for i = 1, 90000 do t[i] = '' end for i = 1, 100 do table.maxn(t) end",
        "local t = {} for i = 1, 90000 do t[i] = '' end for i = 1, 100 do table.foreachi(t, math.randomseed) end",
        "local t = {} for i = 1, 90000 do t[i] = i end for i = 1, 100 do table.sort(t, rawequal) end",
        "local t = {} for i = 1, 90000 do t[i] = '' end for i = 1, 100 do collectgarbage() end",
        "local s = string.rep('x', 30000000) redis.sha1hex(s)",
        "string.gsub(string.rep('x', 1000), 'x', string.rep('y', 30000))",
        "string.gsub(string.rep('x', 1000000), '^.*', string.rep('%0', 30))",
        "local r = string.rep('y', 1000000) string.gsub(string.rep('x', 30), 'x', function() return r end)",
        "local t for i = 1, 20000 do t = {t} end for i = 1, 20 do collectgarbage() end",
        "local t for i = 1, 20000 do t = {t} end for i = 1, 20 do collectgarbage('step', 1000000) end",
        "local t for i = 1, 20000 do t = {t} end for i = 1, 20 do collectgarbage('step', -1) end",
        "local s = string.rep('x', 1000000) local a, b = s .. 'a', s .. 'b' for i = 1, 30000 do local _ = a < b end",
        "local s = string.rep('x', 1000000) local a = s .. 'a' for i = 1, 30000 do local _ = s .. 'a' end",
        "local s = string.rep('x', 1000000) for i = 1, 30000 do tonumber(s) end",
        "local s = string.rep('x', 1000000) for i = 1, 30000 do s:find('y', 1, true) end",
        "local s = string.rep('x', 1000000) for i = 1, 30000 do redis.error_reply(s) end",
        "local s = string.rep('x', 1000000) for i = 1, 100 do redis.call('echo', s) end",
        "local function f(s) while true do local a, b = s .. 'a', s .. 'b' coroutine.yield(a < b) end end \
         local c = coroutine.wrap(f) c('x') \
         local s = string.rep('x', 1000000) c = coroutine.wrap(f) for i = 1, 30000 do c(s) end",
        "local c = coroutine.create(function(s) for i = 1, 30000 do local _ = s < s end end) \
         local s = string.rep('x', 1000000) coroutine.resume(c, s .. 'x')",
        "local c = coroutine.wrap(function() local s = 'x' for i = 1, 20 do s = s .. s end error(s) end) pcall(c) \
         local s = string.rep('x', 1000000) for i = 1, 30000 do local _ = s .. 'a' end",
        "local s = '--' .. string.rep('x', 1000000) for i = 1, 10 do loadstring(s) end",
        "local s = ' ' .. string.rep(' ', 1000000) load(function() return s end)",
    ] {
        let mut machine = TestMachine::new();
        let mut host = Commands { looks_left: 70, ..Commands::default() };
        assert_eq!(machine.run(source, &mut host), Outcome::Stopped(Stop::TimeLimit), "{source}");
        assert_eq!(machine.eval("return 1"), ":1\r\n", "{source}");
    }
}

/// Otherwise a step of the collector is a whole collection.
#[test]
fn a_script_does_not_make_steps_of_the_collector_too_long() {
    let mut machine = TestMachine::new();
    let set = "collectgarbage('setstepmul', 2000000000) return collectgarbage('setstepmul', 0)";
    assert_eq!(machine.eval(set), ":10000\r\n");
    assert_eq!(machine.eval("return collectgarbage('setstepmul', 200)"), ":200\r\n");
}

/// Lua itself ends the process if memory runs out outside of a protected call.
#[test]
fn a_coroutine_without_memory_for_its_arguments_is_stopped() {
    for tail in ["coroutine.resume(c, unpack(list))", "coroutine.wrap(f)(unpack(list))"] {
        let source = format!(
            "local f = function(...) end local c = coroutine.create(f) local list = {{}} \
             for i = 1, 7000 do list[i] = i end local s = string.rep('x', 1000) local kept = {{}} \
             local limit = 2 * 1024 - 60 \
             unpack(list) \
             while collectgarbage('count') < limit do kept[#kept + 1] = s .. #kept end {tail}"
        );
        let mut machine = TestMachine::new();
        machine.machine.set_memory_limit(2 << 20);
        let mut host = Commands { looks_left: 10_000, ..Commands::default() };
        assert_eq!(machine.run(&source, &mut host), Outcome::Stopped(Stop::MemoryLimit), "{tail}");
        assert_eq!(machine.eval("return 1"), ":1\r\n");
    }
}
