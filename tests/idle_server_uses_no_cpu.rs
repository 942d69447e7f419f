//! A server without requests sleeps, with any connections and any deadlines.

use std::time::Duration;

use crate::server;

#[test]
fn an_idle_server_sleeps() {
    let server = server();
    let mut c = server.connect();
    let _idle: Vec<_> = (0..100).map(|_| server.connect()).collect();
    for n in 0..1_000 {
        c.check(&format!("SET key:{n} 1 EX 1000"), "+OK");
    }
    let before = server.cpu_ticks();
    assert!(c.is_silent_for(Duration::from_secs(1)));
    // A tick is 10 ms. Clocks and statistics may use some; a busy loop would use 100.
    let used = server.cpu_ticks() - before;
    assert!(used <= 10, "{used} ticks in a second of doing nothing");
}
