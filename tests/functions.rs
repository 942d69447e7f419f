//! FUNCTION and FCALL: libraries of functions, which are data like keys.

use tierce_harness::{Connection, Launch, Random, Reply, TempDir, wait_until};

use crate::{launch, server};

/// Two functions, of which one writes nothing.
const VISITS: &str = "#!lua name=visits
redis.register_function('visit', function(keys, args)
  return redis.call('INCRBY', keys[1], args[1])
end)
redis.register_function{
  function_name='visited', callback=function(keys) return redis.call('GET', keys[1]) end,
  flags={'no-writes'}, description='How often.'
}";

/// Returns a library with one function, which returns a text.
fn library(name: &str, function: &str, returns: &str) -> String {
    format!(
        "#!lua name={name}\nredis.register_function('{function}', function() return '{returns}' end)"
    )
}

fn load(c: &mut Connection, code: &str) -> String {
    c.call(&["FUNCTION", "LOAD", code]).to_string()
}

fn replace(c: &mut Connection, code: &str) -> String {
    c.call(&["FUNCTION", "LOAD", "REPLACE", code]).to_string()
}

/// Returns the names of all libraries, in order.
fn libraries(c: &mut Connection) -> Vec<String> {
    let reply = c.ask("FUNCTION LIST");
    let mut names: Vec<_> =
        reply.items().iter().map(|library| library.items()[1].text().to_owned()).collect();
    names.sort();
    names
}

#[test]
fn functions_are_called_by_name() {
    let server = server();
    let mut c = server.connect();
    assert_eq!(load(&mut c, VISITS), "\"visits\"");
    c.check("FCALL visit 1 page 2", ":2");
    c.check("FCALL visit 1 page 3", ":5");
    c.check("FCALL visited 1 page", "\"5\"");
    c.check("FCALL_RO visited 1 page", "\"5\"");
    c.check(
        "FCALL_RO visit 1 page 1",
        "-ERR Can not execute a script with write flag using *_ro command.",
    );
    c.check("FCALL visits 0", "-ERR Function not found");
    c.check("FCALL visit x page", "-ERR Bad number of keys provided");
    c.check("FCALL visit -1 page", "-ERR Number of keys can't be negative");
    c.check("FCALL visit 2 page", "-ERR Number of keys can't be greater than number of args");
    c.check("FCALL visit", "-ERR wrong number of arguments for 'fcall' command");
    c.check("GET page", "\"5\"");
}

#[test]
fn what_is_no_library_is_refused_as_redis_does() {
    let server = server();
    let mut c = server.connect();
    assert_eq!(load(&mut c, &library("first", "f", "1")), "\"first\"");
    let register = "redis.register_function('g', function() end)";
    for (code, expected) in [
        ("return 1".to_owned(), "Missing library metadata"),
        ("#!lua name=a".to_owned(), "Invalid library metadata"),
        ("#!lua\n".to_owned(), "Library name was not given"),
        (
            "#!lua name=a name=b\n".to_owned(),
            "Invalid metadata value, name argument was given multiple times",
        ),
        ("#!lua name=a flags=b\n".to_owned(), "Invalid metadata value given: flags=b"),
        (
            "#!lua name=a-b\n".to_owned(),
            "Library names can only contain letters, numbers, or underscores(_) and must be at least one \
             character long",
        ),
        (format!("#!js name=a\n{register}"), "Engine 'js' not found"),
        (library("first", "g", "1"), "Library 'first' already exists"),
        (library("second", "f", "1"), "Function f already exists"),
        ("#!lua name=a\nreturn 1".to_owned(), "No functions registered"),
    ] {
        assert_eq!(load(&mut c, &code), format!("-ERR {expected}"), "{code}");
    }
    assert_eq!(replace(&mut c, &library("second", "f", "1")), "-ERR Function f already exists");
    assert_eq!(replace(&mut c, &library("first", "g", "2")), "\"first\"");
    c.check("FCALL f 0", "-ERR Function not found");
    c.check("FCALL g 0", "\"2\"");
    // The name of the engine is not case-sensitive.
    let upper = library("upper", "u", "3").replace("#!lua", "#!LUA");
    assert_eq!(load(&mut c, &upper), "\"upper\"");
    let unknown = c.call(&["FUNCTION", "LOAD", "nosuch", &upper]).to_string();
    assert_eq!(unknown, "-ERR Unknown option given: nosuch");
    let failing = load(&mut c, "#!lua name=a\nthis is no Lua");
    assert!(failing.starts_with("-ERR Error compiling function: "), "{failing}");
    let failing = load(&mut c, "#!lua name=a\nerror('oh no')");
    assert!(failing.starts_with("-ERR Error registering functions: "), "{failing}");
    assert_eq!(libraries(&mut c), ["first", "upper"]);
}

#[test]
fn libraries_are_listed_and_removed() {
    let server = server();
    let mut c = server.connect();
    load(&mut c, VISITS);
    load(&mut c, &library("other", "f", "1"));
    let mut resp3 = server.connect_resp3();
    let reply = resp3.ask("FUNCTION LIST LIBRARYNAME VIS* WITHCODE");
    let [visits] = reply.items() else { panic!("{reply}") };
    assert_eq!(visits.field("library_name").text(), "visits");
    assert_eq!(visits.field("engine").text(), "LUA");
    assert_eq!(visits.field("library_code").text(), VISITS);
    let mut functions: Vec<String> = visits
        .field("functions")
        .items()
        .iter()
        .map(|function| {
            let flags = function.field("flags").items().iter().map(ToString::to_string);
            let name = function.field("name").text();
            format!(
                "{name} {} {}",
                function.field("description"),
                flags.collect::<Vec<_>>().join(" ")
            )
        })
        .collect();
    functions.sort();
    assert_eq!(functions, ["visit null ", "visited \"How often.\" +no-writes"]);
    c.check("FUNCTION LIST LIBRARYNAME nosuch", "[]");
    c.check("FUNCTION LIST LIBRARYNAME", "-ERR library name argument was not given");
    c.check("FUNCTION LIST nosuch", "-ERR Unknown argument nosuch");
    c.check("FUNCTION LIST WITHCODE WITHCODE", "-ERR Unknown argument WITHCODE");
    c.check("FUNCTION DELETE nosuch", "-ERR Library not found");
    c.check("FUNCTION DELETE other", "+OK");
    c.check("FCALL f 0", "-ERR Function not found");
    assert_eq!(libraries(&mut c), ["visits"]);
    c.check("FUNCTION FLUSH nosuch", "-ERR FUNCTION FLUSH only supports SYNC|ASYNC option");
    for option in ["", " SYNC", " ASYNC"] {
        replace(&mut c, VISITS);
        c.check(&format!("FUNCTION FLUSH{option}"), "+OK");
        c.check("FUNCTION LIST", "[]");
    }
    c.check("FUNCTION KILL", "-NOTBUSY No scripts in execution right now.");
}

#[test]
fn figures_of_functions() {
    let server = server();
    let mut c = server.connect();
    let mut resp3 = server.connect_resp3();
    let mut counts = || {
        let stats = resp3.ask("FUNCTION STATS");
        assert_eq!(stats.field("running_script").to_string(), "null");
        let lua = stats.field("engines").field("LUA").clone();
        (lua.field("libraries_count").int(), lua.field("functions_count").int())
    };
    assert_eq!(counts(), (0, 0));
    load(&mut c, VISITS);
    assert_eq!(counts(), (1, 2));
    let info = c.ask("INFO memory").text().to_owned();
    assert!(info.contains("number_of_libraries:1\r\n"), "{info}");
    assert!(info.contains("number_of_functions:2\r\n"), "{info}");
    assert!(!info.contains("used_memory_functions:0\r\n"), "{info}");
    c.check("FUNCTION FLUSH", "+OK");
    assert_eq!(counts(), (0, 0));
}

fn dump(c: &mut Connection) -> Vec<u8> {
    c.ask("FUNCTION DUMP").bytes().to_vec()
}

fn restore(c: &mut Connection, payload: &[u8], policy: &[&str]) -> String {
    let mut args = vec![&b"FUNCTION"[..], b"RESTORE", payload];
    args.extend(policy.iter().map(|word| word.as_bytes()));
    c.call(&args).to_string()
}

#[test]
fn payloads_are_restored_by_policy() {
    let server = server();
    let mut c = server.connect();
    load(&mut c, &library("a", "f", "old"));
    load(&mut c, &library("b", "g", "old"));
    let payload = dump(&mut c);
    c.check("FUNCTION FLUSH", "+OK");
    assert_eq!(restore(&mut c, &payload, &[]), "+OK");
    assert_eq!(libraries(&mut c), ["a", "b"]);
    c.check("FCALL g 0", "\"old\"");
    let collision = restore(&mut c, &payload, &["APPEND"]);
    assert!(
        ["-ERR Library a already exists", "-ERR Library b already exists"].contains(&&*collision),
        "{collision}"
    );
    replace(&mut c, &library("b", "g", "new"));
    load(&mut c, &library("c", "h", "new"));
    assert_eq!(restore(&mut c, &payload, &["REPLACE"]), "+OK");
    assert_eq!(libraries(&mut c), ["a", "b", "c"]);
    c.check("FCALL g 0", "\"old\"");
    assert_eq!(restore(&mut c, &payload, &["flush"]), "+OK");
    assert_eq!(libraries(&mut c), ["a", "b"]);
    // A function that has moved to another library.
    c.check("FUNCTION DELETE a", "+OK");
    load(&mut c, &library("c", "f", "moved"));
    assert_eq!(restore(&mut c, &payload, &["REPLACE"]), "-ERR Function f already exists");
    assert_eq!(libraries(&mut c), ["b", "c"], "all or nothing");
    assert_eq!(
        restore(&mut c, &payload, &["nosuch"]),
        "-ERR Wrong restore policy given, value should be either FLUSH, APPEND or REPLACE."
    );
    let syntax = restore(&mut c, &payload, &["FLUSH", "FLUSH"]);
    assert!(syntax.starts_with("-ERR unknown subcommand or wrong number of arguments"), "{syntax}");
    // An empty set of libraries is a payload as well.
    c.check("FUNCTION FLUSH", "+OK");
    let none = dump(&mut c);
    load(&mut c, VISITS);
    assert_eq!(restore(&mut c, &none, &["FLUSH"]), "+OK");
    c.check("FUNCTION LIST", "[]");
}

#[test]
fn broken_payloads_are_refused() {
    let server = server();
    let mut c = server.connect();
    load(&mut c, VISITS);
    let payload = dump(&mut c);
    const WRONG: &str = "-ERR DUMP payload version or checksum are wrong";
    for len in 0..payload.len() {
        assert_eq!(restore(&mut c, &payload[..len], &["REPLACE"]), WRONG);
    }
    let mut random = Random::new(7);
    for _ in 0..2000 {
        let mut broken = payload.clone();
        let at = random.below(broken.len());
        broken[at] ^= 1 << random.below(8);
        assert_eq!(restore(&mut c, &broken, &["REPLACE"]), WRONG);
    }
    c.check("SET key value", "+OK");
    let of_a_key = c.ask("DUMP key").bytes().to_vec();
    assert_eq!(restore(&mut c, &of_a_key, &[]), "-ERR given type is not a function");
    c.check("FCALL visit 1 page 1", ":1");
}

#[test]
fn a_transaction_may_load_functions() {
    let server = server();
    let mut c = server.connect();
    c.check("MULTI", "+OK");
    assert_eq!(load(&mut c, VISITS), "+QUEUED");
    c.check("FCALL visit 1 page 2", "+QUEUED");
    c.check("FUNCTION DELETE visits", "+QUEUED");
    c.check("FCALL visit 1 page 2", "+QUEUED");
    c.check("EXEC", "[\"visits\", :2, +OK, -ERR Function not found]");
    c.check("FUNCTION LIST", "[]");
}

#[test]
fn all_clients_call_what_was_loaded_last() {
    let server = launch().start();
    let mut writer = server.connect();
    let mut readers: Vec<Connection> = (0..6).map(|_| server.connect()).collect();
    for version in 0..30 {
        let version = version.to_string();
        assert_eq!(replace(&mut writer, &library("l", "f", &version)), "\"l\"");
        for reader in &mut readers {
            reader.check("FCALL f 0", &format!("\"{version}\""));
        }
    }
}

/// Makes a launch in a directory, with a log and without save points.
fn durable(dir: &TempDir) -> Launch {
    launch().with("appendonly", "yes").with("dir", &dir.path().display().to_string())
}

#[test]
fn libraries_are_there_after_a_kill() {
    let dir = TempDir::new();
    let server = durable(&dir).start();
    let mut c = server.connect();
    load(&mut c, VISITS);
    load(&mut c, &library("gone", "f", "1"));
    load(&mut c, &library("changed", "g", "old"));
    c.check("FUNCTION DELETE gone", "+OK");
    replace(&mut c, &library("changed", "g", "new"));
    let long = format!("{}\n-- {}", library("long", "h", "1"), "x".repeat(3 << 20));
    assert_eq!(load(&mut c, &long), "\"long\"");
    c.check("FCALL visit 1 page 2", ":2");
    drop(server);

    let server = durable(&dir).start();
    let mut c = server.connect();
    assert_eq!(libraries(&mut c), ["changed", "long", "visits"]);
    c.check("FCALL g 0", "\"new\"");
    c.check("FCALL visit 1 page 1", ":3");
    // Neither concerns code.
    c.check("FLUSHALL", "+OK");
    c.check("SWAPDB 0 1", "+OK");
    c.check("BGREWRITEAOF", "+Background append only file rewriting started");
    wait_until("the log is compacted", || {
        !server.connect().ask("INFO persistence").text().contains("aof_rewrites:0")
    });
    replace(&mut c, &library("changed", "g", "newer"));
    drop(server);

    let server = durable(&dir).start();
    let mut c = server.connect();
    assert_eq!(libraries(&mut c), ["changed", "long", "visits"]);
    c.check("FCALL g 0", "\"newer\"");
    c.check("FUNCTION FLUSH", "+OK");
    drop(server);
    durable(&dir).start().connect().check("FUNCTION LIST", "[]");
}

#[test]
fn names_of_functions_mean_the_same_in_any_case() {
    let server = server();
    let mut c = server.connect();
    load(&mut c, &library("one", "f", "1"));
    c.check("FCALL F 0", "\"1\"");
    let taken = c.call(&["FUNCTION", "LOAD", &library("two", "F", "2")]).to_string();
    assert_eq!(taken, "-ERR Function F already exists");
    c.check("FUNCTION DELETE one", "+OK");
    load(&mut c, &library("two", "F", "2"));
    c.check("FCALL f 0", "\"2\"");
}

/// Loading takes longer than a worker has time for, and each thread loads it for itself.
#[test]
fn functions_of_libraries_that_take_long_to_load_are_called() {
    let server = server();
    let mut c = server.connect();
    let code = "#!lua name=big\nlocal t = {} for i = 1, 400000 do t[i] = i end\n\
                redis.register_function('last', function() return t[#t] end)";
    // It is refused if it takes half a second, as it may on a busy machine.
    wait_until("it is loaded", || load(&mut c, code) == "\"big\"");
    for _ in 0..10 {
        c.check("FCALL last 0", ":400000");
    }
}

#[test]
fn libraries_are_in_snapshots() {
    let dir = TempDir::new();
    let in_dir =
        || launch().with("appendonly", "no").with("dir", &dir.path().display().to_string());
    let server = in_dir().with("enable-debug-command", "yes").start();
    let mut c = server.connect();
    load(&mut c, VISITS);
    c.check("SET page 4", "+OK");
    c.check("SAVE", "+OK");
    load(&mut c, &library("unsaved", "f", "1"));
    drop(server);
    let server = in_dir().with("enable-debug-command", "yes").start();
    let mut c = server.connect();
    assert_eq!(libraries(&mut c), ["visits"]);
    c.check("FCALL visit 1 page 1", ":5");
    load(&mut c, &library("other", "f", "1"));
    c.check("DEBUG RELOAD", "+OK");
    assert_eq!(libraries(&mut c), ["other", "visits"]);
    load(&mut c, &library("unsaved", "g", "1"));
    c.check("DEBUG RELOAD NOSAVE", "+OK");
    // The first access to the loaded code is by a script, which cannot run the libraries.
    let report = "redis.call('memory', 'stats') return redis.call('info', 'memory')";
    let report = c.call(&["EVAL", report, "0"]).text().to_owned();
    assert!(report.contains("number_of_functions:"), "{report}");
    assert_eq!(libraries(&mut c), ["other", "visits"]);
    c.check("FCALL f 0", "\"1\"");
    c.check("FCALL visit 1 page 1", ":6");
}

/// A start keeps libraries that it cannot run, and tells the operator.
#[test]
fn code_that_does_not_run_stays_and_is_told() {
    let dir = TempDir::new();
    let mut file = b"REDIS0010".to_vec();
    for code in [
        "#!lua name=broken\nnot Lua",
        "#!lua name=good\nredis.register_function('f', function() return 1 end)",
    ] {
        file.extend([0xf5, 0x40, code.len() as u8]);
        file.extend(code.as_bytes());
    }
    file.push(0xff);
    // No checksum.
    file.extend([0; 8]);
    std::fs::write(dir.path().join("dump.rdb"), file).expect("a file");
    let server = durable(&dir).start();
    let told = server.output();
    assert!(told.contains("The functions of the library broken cannot be called"), "{told}");
    let mut c = server.connect();
    assert_eq!(libraries(&mut c), ["broken", "good"]);
    c.check("FCALL f 0", ":1");
    assert_eq!(replace(&mut c, &library("broken", "g", "2")), "\"broken\"");
    c.check("FCALL g 0", "\"2\"");
}

/// Kills the server repeatedly, and compares with the acknowledged changes.
#[test]
fn changes_of_libraries_survive_kills() {
    let dir = TempDir::new();
    let mut random = Random::new(11);
    let mut expected: std::collections::BTreeMap<String, String> = Default::default();
    for _ in 0..6 {
        let server = durable(&dir).start();
        let mut c = server.connect();
        for name in ["a", "b", "c"] {
            let reply = c.ask(&format!("FCALL f_{name} 0"));
            let found = match &reply {
                Reply::Error(_) => None,
                reply => Some(reply.text().to_owned()),
            };
            assert_eq!(found.as_ref(), expected.get(name), "{reply}");
        }
        for _ in 0..40 {
            let name = random.pick(&["a", "b", "c"]).to_owned();
            let text = random.next_u64().to_string();
            match random.below(8) {
                0 => {
                    c.check("FUNCTION FLUSH", "+OK");
                    expected.clear();
                }
                1 | 2 => {
                    c.ask(&format!("FUNCTION DELETE {name}"));
                    expected.remove(&name);
                }
                3 => _ = c.ask("BGREWRITEAOF"),
                4 => c.check("FLUSHALL", "+OK"),
                5 => {
                    let payload = dump(&mut c);
                    assert_eq!(restore(&mut c, &payload, &["FLUSH"]), "+OK");
                }
                _ => {
                    replace(&mut c, &library(&name, &format!("f_{name}"), &text));
                    expected.insert(name, text);
                }
            }
        }
    }
}

#[test]
fn a_function_that_does_not_end_is_killed_and_leaves_nothing() {
    // The operator does not wait for that.
    let server = launch().with("busy-reply-threshold", "100000000").start();
    let mut c = server.connect();
    let endless = "#!lua name=endless
redis.register_function('forever', function(keys)
  redis.call('SET', keys[1], 'half')
  while true do end
end)";
    load(&mut c, endless);
    let mut caller = server.connect();
    caller.request(&["FCALL", "forever", "1", "key"]);
    let mut resp3 = server.connect_resp3();
    wait_until("it runs", || {
        let stats = resp3.ask("FUNCTION STATS");
        let running = stats.field("running_script");
        if running.to_string() == "null" {
            return false;
        }
        assert_eq!(running.field("name").text(), "forever");
        assert_eq!(running.field("command").items().len(), 4);
        true
    });
    let busy = |by: &str| {
        format!(
            "-BUSY Redis is busy running a script. You can only call {by} KILL or SHUTDOWN NOSAVE."
        )
    };
    c.check("SCRIPT KILL", &busy("FUNCTION"));
    c.check("FUNCTION KILL", "+OK");
    let reply = caller.reply().to_string();
    assert!(reply.starts_with("-ERR") && reply.contains("killed"), "{reply}");
    c.check("EXISTS key", ":0");
    // Scripts have their own command for that.
    caller.request(&["EVAL", "while true do end", "0"]);
    wait_until("it runs", || c.ask("FUNCTION KILL").to_string() == busy("SCRIPT"));
    c.check("SCRIPT KILL", "+OK");
    assert!(caller.reply().to_string().contains("killed"));
}
