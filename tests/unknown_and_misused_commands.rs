//! An unknown command, or a wrong call of a command, is an error, and the connection continues.

use tierce_harness::encode;

use crate::server;

#[test]
fn unknown_commands_are_quoted() {
    let server = server();
    let mut c = server.connect();
    c.check("NOSUCH", "-ERR unknown command 'NOSUCH', with args beginning with: ");
    c.check(
        "NoSuch a 'b c'",
        "-ERR unknown command 'NoSuch', with args beginning with: 'a' 'b c' ",
    );
    c.check("''", "-ERR unknown command '', with args beginning with: ");
    c.check("CLIENT nosuch", "-ERR unknown subcommand 'nosuch'. Try CLIENT HELP.");
    c.check("CONFIG", "-ERR wrong number of arguments for 'config' command");
    c.check("PING", "+PONG");
}

#[test]
fn quoted_bytes_cannot_forge_a_reply() {
    let server = server();
    let mut c = server.connect();
    let reply = c.call(&["NO\r\n+OK", "a\r\n:1\r\n"]);
    assert!(reply.text().starts_with("ERR unknown command 'NO  +OK', with args"), "{reply}");
    c.check("PING", "+PONG");
}

#[test]
fn quoted_arguments_are_cut() {
    let server = server();
    let mut c = server.connect();
    let long = "x".repeat(100_000);
    assert!(c.call(&[&long, &long, &long]).text().len() < 1000);
    c.check("PING", "+PONG");
}

#[test]
fn wrong_numbers_of_arguments() {
    let server = server();
    let mut c = server.connect();
    for line in
        ["GET", "GET a b", "SET a", "MSET", "MSET a", "MSET a b c", "MGET", "DEL", "APPEND a"]
    {
        let name = line.split(' ').next().expect("a name").to_lowercase();
        c.check(line, &format!("-ERR wrong number of arguments for '{name}' command"));
    }
    c.check("CLIENT ID 5", "-ERR wrong number of arguments for 'client|id' command");
    c.check("CONFIG GET", "-ERR wrong number of arguments for 'config|get' command");
    c.check("OBJECT ENCODING", "-ERR wrong number of arguments for 'object|encoding' command");
    c.check("PING a b", "-ERR wrong number of arguments for 'ping' command");
}

#[test]
fn names_are_found_in_any_case() {
    let server = server();
    let mut c = server.connect();
    c.check("sEt a 1 eX 100 nX", "+OK");
    c.check("get a", "\"1\"");
    c.check("object Encoding a", "\"int\"");
}

#[test]
fn an_error_inside_a_pipeline_does_not_end_it() {
    let server = server();
    let mut c = server.connect();
    let requests = [&["SET", "a", "x"][..], &["INCR", "a"], &["NOSUCH"], &["GET", "a"]];
    c.send(requests.map(encode).concat());
    c.expect("+OK");
    c.expect("-ERR value is not an integer or out of range");
    c.expect("-ERR unknown command 'NOSUCH', with args beginning with: ");
    c.expect("\"x\"");
}
