//! Libraries: loading, registration, and calls of their functions.

use crate::harness::{Commands, TestMachine};
use tierce_lua::{Call, Flags, Library, LibraryId, Outcome, Stop};

const HEAD: &str = "#!lua name=x\n";

/// Checks the error of loading code after a first line, with the text of redis-server 7.0.
#[track_caller]
fn check_refused(code: &str, expected: &str) {
    let error = TestMachine::new().load(1, &format!("{HEAD}{code}")).expect_err("an error");
    assert_eq!(String::from_utf8_lossy(&error.text), expected, "{code}");
}

#[track_caller]
fn check_registration(arguments: &str, expected: &str) {
    let expected = format!("ERR Error registering functions: ERR {expected}");
    check_refused(&format!("redis.register_function{arguments}"), &expected);
}

#[test]
fn code_that_is_refused() {
    check_refused("return 1", "ERR No functions registered");
    check_refused("x x", "ERR Error compiling function: user_function:2: '=' expected near 'x'");
    let nonexistent = |name: &str| {
        format!(
            "ERR Error registering functions: ERR user_function:2: Script attempted to access nonexistent global \
             variable '{name}'"
        )
    };
    check_refused("redis.call('get')", &nonexistent("call"));
    check_refused("error('boo')", &nonexistent("error"));
    check_refused("return _G", &nonexistent("_G"));
    check_refused("redis.setresp(3)", &nonexistent("setresp"));
    check_refused(
        "x = 1",
        "ERR Error registering functions: ERR user_function:2: Attempt to modify a readonly table",
    );
    check_refused(
        "while true do end",
        "ERR Error registering functions: ERR FUNCTION LOAD timeout",
    );
    check_refused(
        "redis.log()",
        "ERR Error registering functions: ERR redis.log() requires two arguments or more.",
    );
}

#[test]
fn registrations_that_are_refused() {
    check_registration("()", "wrong number of arguments to redis.register_function");
    check_registration(
        "(1)",
        "calling redis.register_function with a single argument is only applicable to Lua table (representing named \
         arguments).",
    );
    check_registration("{}", "redis.register_function must get a function name argument");
    check_registration(
        "{function_name = 'f'}",
        "redis.register_function must get a callback argument",
    );
    check_registration(
        "{function_name = 'f', callback = 1}",
        "callback argument given to redis.register_function must be a function",
    );
    check_registration(
        "{function_name = {}}",
        "function_name argument given to redis.register_function must be a string",
    );
    check_registration(
        "{description = {}}",
        "description argument given to redis.register_function must be a string",
    );
    check_registration(
        "{flags = 1}",
        "flags argument to redis.register_function must be a table representing function flags",
    );
    check_registration("{flags = {'bad'}}", "unknown flag given");
    check_registration("{flags = {1}}", "unknown flag given");
    check_registration("{foo = 1}", "unknown argument given to redis.register_function");
    check_registration("{2}", "unknown argument given to redis.register_function");
    check_registration("('f', 1)", "second argument to redis.register_function must be a function");
    check_registration(
        "({}, function() end)",
        "first argument to redis.register_function must be a string",
    );
    let names = "Library names can only contain letters, numbers, or underscores(_) and must be at least one \
                 character long";
    check_registration("('a-b', function() end)", names);
    check_registration("('', function() end)", names);
    check_registration(
        "('f', function() end, 3)",
        "wrong number of arguments to redis.register_function",
    );
    check_registration(
        "('f', function() end) redis.register_function('f', function() end)",
        "Function already exists in the library",
    );
}

#[test]
fn registrations() {
    let mut machine = TestMachine::new();
    let code = format!(
        "{HEAD}redis.register_function('f', function() end)
         redis.register_function{{function_name = 'G_1', callback = function() end, description = 'does it',
             flags = {{'no-writes', 'atomic', nil, 'bad'}}}}"
    );
    let functions = machine.load(1, &code).expect("functions");
    assert_eq!((&*functions[0].name, &functions[0].description), (&b"f"[..], &None));
    assert_eq!(
        (&*functions[1].name, functions[1].description.as_deref()),
        (&b"G_1"[..], Some(&b"does it"[..]))
    );
    assert_eq!(functions[0].flags, Flags::default());
    assert_eq!(functions[1].flags, Flags::NO_WRITES.with(Flags::ATOMIC));
}

#[test]
fn calls() {
    let mut machine = TestMachine::new();
    let code = format!(
        "{HEAD}local count = 0
         local function increment() count = count + 1 return count end
         redis.register_function('count', increment)
         redis.register_function('args', function(keys, args) return {{keys, args, #keys}} end)
         redis.register_function('fails', function() error('boo') end)
         redis.register_function('call', function(keys) redis.call('set', keys[1], 'v') return redis.call('get', keys[1]) end)
         redis.register_function('global', function() return KEYS end)
         redis.register_function('writes', function() x = 1 end)
         redis.register_function('api', function() return {{type(redis.register_function), type(redis.call), type(_G.pairs)}} end)
         redis.register_function('log', redis.log)"
    );
    let mut call = |function: &str| machine.call(1, &code, function, &[b"k1", b"k2"], &[b"a1"]);
    assert_eq!(call("count"), ":1\r\n");
    assert_eq!(call("count"), ":2\r\n");
    assert_eq!(call("args"), "*3\r\n*2\r\n$2\r\nk1\r\n$2\r\nk2\r\n*1\r\n$2\r\na1\r\n:2\r\n");
    assert_eq!(call("fails"), "-ERR user_function:6: boo script: fails, on @user_function:6.\r\n");
    assert_eq!(call("call"), "$1\r\nv\r\n");
    assert_eq!(
        call("global"),
        "-ERR user_function:8: Script attempted to access nonexistent global variable 'KEYS' script: global, on \
         @user_function:8.\r\n"
    );
    assert!(call("writes").contains("Attempt to modify a readonly table"));
    assert_eq!(call("api"), "*3\r\n$3\r\nnil\r\n$8\r\nfunction\r\n$8\r\nfunction\r\n");
    assert_eq!(call("log"), "-ERR First argument must be a number (log level).\r\n");
    assert_eq!(call("none"), "-ERR Function not found\r\n");
    // Scripts and functions of one machine do not see each other's globals.
    assert_eq!(machine.eval("return #KEYS"), ":0\r\n");
    assert_eq!(machine.call(1, &code, "count", &[], &[]), ":3\r\n");
    machine.machine.forget(tierce_lua::LibraryId(1));
    assert_eq!(machine.call(1, &code, "count", &[], &[]), ":1\r\n");
}

#[test]
fn many_libraries_need_bounded_memory() {
    let mut machine = TestMachine::new();
    for id in 0..3000 {
        let code =
            format!("#!lua name=x{id}\nredis.register_function('f', function() return {id} end)");
        assert_eq!(machine.call(id, &code, "f", &[], &[]), format!(":{id}\r\n"));
    }
    assert!(machine.machine.used_bytes() < 8 << 20, "{}", machine.machine.used_bytes());
}

#[test]
fn a_library_that_is_replaced_is_forgotten() {
    let mut machine = TestMachine::new();
    for id in 0..50 {
        let code = format!(
            "{HEAD}local kept = ('x'):rep(1000000) .. {id} redis.register_function('f', function() return #kept end)"
        );
        machine.load(id, &code).expect("functions");
    }
    assert!(machine.machine.used_bytes() < 16 << 20, "{}", machine.machine.used_bytes());
}

/// Loading is part of the call: a stop of the load stops the call, which may be retried elsewhere.
#[test]
fn a_library_that_is_stopped_while_it_is_loaded_stops_the_call() {
    let mut machine = TestMachine::new();
    let code = format!(
        "{HEAD}for i = 1, 400000 do end redis.register_function('f', function() return 7 end)"
    );
    let library = Library { id: LibraryId(1), code: code.as_bytes().into() };
    let call = Call { keys: &[], args: &[], proto: machine.proto };
    let mut host = Commands { looks_left: 3, ..Commands::default() };
    let outcome = machine.machine.run_function(&library, b"f", &call, &mut host, &mut Vec::new());
    assert_eq!(outcome, Outcome::Stopped(Stop::TimeLimit));
    assert_eq!(machine.call(1, &code, "f", &[], &[]), ":7\r\n");
}
