//! A thousand connections at once, most of them idle.

use std::thread;

use tierce_harness::{allow_many_files, encode};

use crate::server;

#[test]
fn a_thousand_idle_and_some_busy() {
    allow_many_files();
    let server = server();
    let before = server.resident_bytes();
    let mut idle: Vec<_> = (0..1_000)
        .map(|_| {
            let mut c = server.connect();
            c.check("PING", "+PONG");
            c
        })
        .collect();
    let each = server.resident_bytes().saturating_sub(before) / idle.len();
    assert!(each < 4096, "{each} bytes for an idle connection");
    thread::scope(|scope| {
        for n in 0..8 {
            let mut c = server.connect();
            scope.spawn(move || {
                let requests =
                    [encode(&["INCR", &format!("counter:{n}")]), encode(&["INCR", "all"])];
                let requests = requests.concat().repeat(10);
                for _ in 0..100 {
                    c.send(&requests);
                    (0..20).for_each(|_| drop(c.reply()));
                }
            });
        }
    });
    let mut c = server.connect();
    c.check("GET all", "\"8000\"");
    c.check("GET counter:3", "\"1000\"");
    let clients = c.ask("INFO clients").text().to_owned();
    assert!(clients.contains("connected_clients:1001\r\n"), "{clients}");
    idle.iter_mut().for_each(|c| c.check("PING", "+PONG"));
}

/// Workers share the connections: a slow command of one client only delays some of the others.
#[test]
fn a_sleeping_worker_leaves_the_others_working() {
    let server = crate::launch().with("threads", "2").with("enable-debug-command", "yes").start();
    let mut connections: Vec<_> = (0..8).map(|_| server.connect()).collect();
    connections.iter_mut().for_each(|c| c.check("PING", "+PONG"));
    let mut sleeper = connections.swap_remove(0);
    sleeper.request(&["DEBUG", "SLEEP", "1"]);
    let mut answered = 0;
    for c in &mut connections {
        c.request(&["PING"]);
        answered += usize::from(!c.is_silent_for(std::time::Duration::from_millis(50)));
    }
    assert!(answered >= 3, "only {answered} of 7 were answered");
    sleeper.expect("+OK");
    connections.iter_mut().for_each(|c| c.expect("+PONG"));
}
