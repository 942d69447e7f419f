//! A thousand connections at once, most of them idle.

use std::thread;
use std::time::Duration;

use tierce_harness::{Connection, allow_many_files, encode, wait_until};

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
    wait_until("the busy ones have gone", || {
        c.ask("INFO clients").text().contains("connected_clients:1001\r\n")
    });
    idle.iter_mut().for_each(|c| c.check("PING", "+PONG"));
}

/// Workers share the connections: a slow command of one client only delays some of the others.
#[test]
fn a_sleeping_worker_leaves_the_others_working() {
    let server = crate::launch().with("threads", "2").with("enable-debug-command", "yes").start();
    let mut connections: Vec<_> = (0..8).map(|_| server.connect()).collect();
    connections.iter_mut().for_each(|c| c.check("PING", "+PONG"));
    let mut sleeper = connections.swap_remove(0);
    sleeper.request(&["DEBUG", "SLEEP", "3"]);
    connections.iter_mut().for_each(|c| c.request(&["PING"]));
    let is_silent = |c: &mut Connection| c.is_silent_for(Duration::from_millis(5));
    loop {
        let is_asleep = is_silent(&mut sleeper);
        let answered = connections.iter_mut().map(|c| usize::from(!is_silent(c))).sum::<usize>();
        if answered >= 3 {
            break;
        }
        assert!(is_asleep, "only {answered} of 7 were answered");
    }
    sleeper.expect("+OK");
    connections.iter_mut().for_each(|c| c.expect("+PONG"));
}
