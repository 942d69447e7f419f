//! Passwords do not appear in anything that others can read.

use crate::operations::support::TestServer;

#[test]
fn monitors_and_the_slow_log_see_no_passwords() {
    let server = TestServer::with("--slowlog-log-slower-than 0");
    let (mut monitor, mut client) = (server.client(), server.client());
    monitor.check(&[("MONITOR", "OK")]);
    for line in [
        "CONFIG SET requirepass hunter2",
        "AUTH hunter2",
        "AUTH default hunter2",
        "HELLO 2 AUTH default hunter2",
        "AUTH default hunter2 hunter2",
        "ECHO \"a\\nb\"",
    ] {
        client.call(line);
    }
    let mut seen = Vec::new();
    while !seen.last().is_some_and(|line: &String| line.contains("ECHO")) {
        seen.push(monitor.next());
    }
    let commands: Vec<_> = seen.iter().map(|line| line.split_once("] ").unwrap().1).collect();
    assert_eq!(
        commands,
        [
            r#""AUTH" "(redacted)""#,
            r#""AUTH" "(redacted)" "(redacted)""#,
            r#""HELLO" "2" "AUTH" "(redacted)" "(redacted)""#,
            r#""AUTH" "(redacted)" "(redacted)" "(redacted)""#,
            r#""ECHO" "a\nb""#,
        ]
    );
    let log = client.call("SLOWLOG GET -1");
    assert!(log.contains("[CONFIG, SET, requirepass, (redacted)]"), "{log}");
    assert!(!log.contains("hunter2"), "{log}");
}

#[test]
fn monitors_do_not_see_what_was_refused() {
    let server = TestServer::with("--requirepass secret");
    let (mut monitor, mut client) = (server.client(), server.client());
    monitor.check(&[("AUTH secret", "OK"), ("MONITOR", "OK")]);
    client.check(&[("SET k v", "-NOAUTH Authentication required."), ("AUTH secret", "OK")]);
    client.check(&[("GET k", "(nil)")]);
    assert!(monitor.next().ends_with(r#""AUTH" "(redacted)""#));
    assert!(monitor.next().ends_with(r#""GET" "k""#));
}
