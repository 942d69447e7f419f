//! Log, pid file, and the shutdown of the server.

use crate::operations::support::TestServer;

#[test]
fn the_log_file_tells_of_start_change_and_end() {
    let mut server = TestServer::with("--logfile {dir}/log.txt --loglevel verbose");
    let path = server.dir.join("log.txt");
    let mut client = server.client();
    client.check(&[
        ("CONFIG SET bind \"127.0.0.1 127.0.0.2\"", "OK"),
        ("CONFIG SET loglevel warning", "OK"),
        ("CONFIG SET bind 127.0.0.1", "OK"),
        ("CONFIG SET loglevel notice", "OK"),
    ]);
    client.send("SHUTDOWN NOSAVE");
    assert_eq!(client.next(), "(closed)");
    server.join();
    let text = std::fs::read_to_string(path).unwrap();
    let messages: Vec<_> = text
        .lines()
        .map(|line| line.splitn(7, ' ').skip(5).collect::<Vec<_>>().join(" "))
        .collect();
    let listening = |ip: &str| format!("* Listening on {ip}:{}", server.port);
    assert_eq!(
        messages,
        [
            listening("127.0.0.1"),
            listening("127.0.0.2"),
            "* A client asked for shutdown".to_owned(),
            "* All replies are sent, bye".to_owned(),
        ]
    );
    let pid = format!("{}:M ", std::process::id());
    assert!(text.lines().all(|line| line.starts_with(&pid)), "{text}");
}

#[test]
fn the_pid_file_lives_as_long_as_the_server() {
    let mut server = TestServer::with("--pidfile {dir}/pid");
    let path = server.dir.join("pid");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), format!("{}\n", std::process::id()));
    server.client().send("SHUTDOWN");
    server.join();
    assert!(!path.exists());
}

#[test]
fn shutdown_has_options_that_exclude_each_other() {
    let mut server = TestServer::start();
    let mut client = server.client();
    client.check(&[
        ("SHUTDOWN foo", "-ERR syntax error"),
        ("SHUTDOWN SAVE NOSAVE", "-ERR syntax error"),
        ("SHUTDOWN ABORT NOW", "-ERR syntax error"),
        ("SHUTDOWN ABORT", "-ERR No shutdown in progress."),
    ]);
    client.send("SHUTDOWN NOSAVE NOW FORCE");
    assert_eq!(client.next(), "(closed)");
    server.join();
}

#[test]
fn lolwut_takes_a_version() {
    let server = TestServer::start();
    let mut client = server.client();
    client.check(&[("LOLWUT VERSION x", "-ERR value is not an integer or out of range")]);
    for line in ["LOLWUT", "LOLWUT VERSION 5 1 2", "LOLWUT foo"] {
        assert!(client.call(line).contains("Redis ver. 7.4"), "{line}");
    }
}
