//! MONITOR shows the commands of other clients while they run them.

use tierce_harness::{Connection, wait_until};

use crate::server;

/// Returns the next line without its time, of which only the form is checked.
fn shown(c: &mut Connection) -> String {
    let line = c.reply().text().to_owned();
    let (time, rest) = line.split_once(' ').expect("a time");
    let (seconds, micros) = time.split_once('.').expect("a point");
    assert!(seconds.len() == 10 && micros.len() == 6, "{line}");
    assert!(time.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.'), "{line}");
    rest.to_owned()
}

#[test]
fn commands_are_shown_with_database_and_address() {
    let server = server();
    let (mut watcher, mut c) = (server.connect(), server.connect());
    watcher.check("MONITOR", "+OK");
    let address = c.local_address();
    c.check("SELECT 2", "+OK");
    c.call(&[&b"SET"[..], b"a b", b"\"\\\n\r\t\x07\x08\x00\xff"]);
    c.ask("GET absent");
    c.ask("NOSUCH command");
    c.ask("client info");
    assert_eq!(shown(&mut watcher), format!("[2 {address}] \"SELECT\" \"2\""));
    let quoted = r#""\"\\\n\r\t\a\b\x00\xff""#;
    assert_eq!(shown(&mut watcher), format!("[2 {address}] \"SET\" \"a b\" {quoted}"));
    assert_eq!(shown(&mut watcher), format!("[2 {address}] \"GET\" \"absent\""));
    assert_eq!(shown(&mut watcher), format!("[2 {address}] \"client\" \"info\""));
}

#[test]
fn secrets_and_operators_are_not_shown() {
    let server = server();
    let (mut watcher, mut c) = (server.connect(), server.connect());
    watcher.check("MONITOR", "+OK");
    c.ask("AUTH default secret");
    c.ask("HELLO 3 AUTH default secret");
    c.ask("CONFIG SET requirepass ''");
    c.ask("ECHO end");
    loop {
        let line = shown(&mut watcher);
        assert!(!line.contains("secret") && !line.contains("CONFIG"), "{line}");
        if line.ends_with("\"ECHO\" \"end\"") {
            break;
        }
    }
}

#[test]
fn all_watchers_see_the_commands_of_all() {
    let server = server();
    let mut watchers: Vec<_> = (0..4).map(|_| server.connect()).collect();
    watchers.iter_mut().for_each(|watcher| watcher.check("MONITOR", "+OK"));
    let mut clients: Vec<_> = (0..4).map(|_| server.connect()).collect();
    for round in 0..50 {
        for (n, c) in clients.iter_mut().enumerate() {
            c.check(&format!("SET key:{n} {round}"), "+OK");
        }
    }
    for watcher in &mut watchers {
        let mut seen: Vec<_> = (0..200)
            .map(|_| shown(watcher).split_once("] ").expect("an address").1.to_owned())
            .collect();
        seen.sort();
        let mut all: Vec<_> =
            (0..200).map(|n| format!("\"SET\" \"key:{}\" \"{}\"", n % 4, n / 4)).collect();
        all.sort();
        assert_eq!(seen, all);
    }
}

#[test]
fn watching_ends_with_reset_or_the_connection() {
    let server = server();
    let (mut watcher, mut c) = (server.connect(), server.connect());
    watcher.check("MONITOR", "+OK");
    wait_until("one is watching", || {
        c.ask("CLIENT LIST").text().lines().filter(|line| line.contains(" flags=O ")).count() == 1
    });
    watcher.request(&["RESET"]);
    // Lines about the checks above may come first.
    while watcher.reply().to_string() != "+RESET" {}
    watcher.check("ECHO done", "\"done\"");
    let mut watcher = server.connect();
    watcher.check("MONITOR", "+OK");
    drop(watcher);
    c.check("SET a 1", "+OK");
    wait_until("there is no monitor", || !c.ask("CLIENT LIST").text().contains(" flags=O "));
}

#[test]
fn a_program_does_not_fail_because_it_is_watched() {
    let server = server();
    let (mut watcher, mut c) = (server.connect(), server.connect());
    watcher.check("MONITOR", "+OK");
    let script = "local s = string.rep('x', 2^20) for i = 1, 70 do redis.call('SET', KEYS[1], s) end return 1";
    assert_eq!(c.call(&["EVAL", script, "1", "k"]).to_string(), ":1");
    let mut calls = 0;
    let note = loop {
        let line = shown(&mut watcher);
        if !line.contains("\"SET\"") {
            assert!(line.contains("EVAL") || line.contains("calls more"), "{line:.100}");
        }
        match line.split_once("\"# ") {
            Some((_, note)) => break note.to_owned(),
            None => calls += usize::from(line.starts_with("[0 lua]")),
        }
    };
    assert_eq!(note, format!("{} calls more\"", 70 - calls));
}

/// As in Redis, which shows a call before it looks for the program.
#[test]
fn calls_of_programs_that_do_not_run_are_shown() {
    let server = server();
    let (mut watcher, mut c) = (server.connect(), server.connect());
    watcher.check("MONITOR", "+OK");
    let address = c.local_address();
    let calls: [&[&str]; 10] = [
        &["EVALSHA", "ffffffffffffffffffffffffffffffffffffffff", "0"],
        &["FCALL", "absent", "0"],
        &["FCALL_RO", "absent", "0"],
        &["EVALNAME", "absent", "0"],
        &["EVAL", "return (", "0"],
        &["EVAL", "return 1", "x"],
        &["EVAL", "return 1", "2"],
        &["EVAL_RO", "#!lua\nreturn 1", "0"],
        &["EVAL", "error('fails')", "0"],
        &["EVAL", "#!lua flags=atomic\nreturn redis.error_reply('undone')", "0"],
    ];
    let line = |call: &[&str]| {
        let words = call.iter().map(|word| format!(" {word:?}"));
        format!("[0 {address}]{}", words.collect::<String>())
    };
    for call in calls {
        assert!(c.call(call).to_string().starts_with('-'), "{call:?}");
        assert_eq!(shown(&mut watcher), line(call));
    }
    c.check("MULTI", "+OK");
    assert_eq!(shown(&mut watcher), line(&["MULTI"]));
    for call in calls {
        assert_eq!(c.call(call).text(), "QUEUED");
    }
    assert_eq!(c.ask("EXEC").items().len(), calls.len());
    for call in calls.into_iter().chain([&["EXEC"][..]]) {
        assert_eq!(shown(&mut watcher), line(call));
    }
    // As with other commands, a refused call is not shown.
    c.check("CONFIG SET maxmemory 1", "+OK");
    assert!(c.call(&["EVAL", "#!lua\nreturn 1", "0"]).to_string().starts_with("-OOM"));
    c.ask("ECHO end");
    assert_eq!(shown(&mut watcher), line(&["ECHO", "end"]));
}
