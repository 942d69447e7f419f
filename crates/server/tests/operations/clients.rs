//! CLIENT: who is there, and what can be done to them.

use crate::support::{Client, TestServer};

fn id_of(client: &mut Client) -> i64 {
    client.value("CLIENT ID").as_int().unwrap()
}

#[test]
fn a_line_of_client_list_has_the_fields_of_7_2_in_their_order() {
    let server = TestServer::start();
    let mut client = server.client();
    client.check(&[
        ("CLIENT SETNAME me", "OK"),
        ("CLIENT SETINFO lib-name redis-py", "OK"),
        ("CLIENT SETINFO LIB-VER 1.2.3", "OK"),
        ("CLIENT NO-EVICT on", "OK"),
        ("CLIENT NO-TOUCH ON", "OK"),
        ("SELECT 3", "OK"),
    ]);
    let line = client.call("CLIENT INFO");
    let fields: Vec<_> = line.trim_end().split(' ').map(|f| f.split_once('=').unwrap()).collect();
    let names: Vec<_> = fields.iter().map(|(name, _)| *name).collect();
    assert_eq!(
        names.join(" "),
        "id addr laddr fd name age idle flags db sub psub ssub multi qbuf qbuf-free argv-mem \
         multi-mem rbs rbp obl oll omem tot-mem events cmd user redir resp lib-name lib-ver"
    );
    let value = |wanted| fields.iter().find(|(name, _)| *name == wanted).unwrap().1;
    for (name, expected) in [
        ("name", "me"),
        ("flags", "eT"),
        ("db", "3"),
        ("omem", "0"),
        ("cmd", "client|info"),
        ("user", "default"),
        ("resp", "2"),
        ("lib-name", "redis-py"),
        ("lib-ver", "1.2.3"),
    ] {
        assert_eq!(value(name), expected, "{name}");
    }
}

#[test]
fn list_shows_whom_it_is_asked_for() {
    let server = TestServer::start();
    let (mut one, mut two) = (server.client(), server.client());
    let (first, second) = (id_of(&mut one), id_of(&mut two));
    let ids = |text: String| -> Vec<i64> {
        let id = |line: &str| line.split(['=', ' ']).nth(1).unwrap().parse().unwrap();
        text.lines().map(id).collect()
    };
    assert_eq!(ids(one.call("CLIENT LIST")), [first, second]);
    assert_eq!(ids(one.call("CLIENT LIST TYPE normal")), [first, second]);
    assert_eq!(ids(one.call(&format!("CLIENT LIST ID {second} 99 {second}"))), [second]);
    one.check(&[
        ("CLIENT LIST TYPE pubsub", ""),
        ("CLIENT LIST ID 0", ""),
        ("CLIENT LIST ID x", "-ERR Invalid client ID"),
        ("CLIENT LIST TYPE x", "-ERR Unknown client type 'x'"),
        ("CLIENT LIST ID", "-ERR syntax error"),
        ("CLIENT TRACKING on", "-ERR unknown subcommand 'TRACKING'. Try CLIENT HELP."),
        ("CLIENT CACHING yes", "-ERR unknown subcommand 'CACHING'. Try CLIENT HELP."),
    ]);
}

#[test]
fn kill_ends_those_who_meet_all_conditions() {
    let server = TestServer::start();
    let (mut one, mut two) = (server.client(), server.client());
    let (own, other) = (id_of(&mut one), id_of(&mut two));
    let address = two.call("CLIENT INFO");
    let address = address.split_once("addr=").unwrap().1.split(' ').next().unwrap();
    one.check(&[
        ("CLIENT KILL 1.2.3.4:5", "-ERR No such client"),
        ("CLIENT KILL ID 0", "-ERR client-id should be greater than 0"),
        ("CLIENT KILL ID x", "-ERR client-id should be greater than 0"),
        ("CLIENT KILL USER nosuch", "-ERR No such user 'nosuch'"),
        ("CLIENT KILL TYPE nosuch", "-ERR Unknown client type 'nosuch'"),
        ("CLIENT KILL SKIPME maybe", "-ERR syntax error"),
        ("CLIENT KILL ID 1 TYPE", "-ERR syntax error"),
        ("CLIENT KILL TYPE replica", ":0"),
        ("CLIENT KILL MAXAGE 1000", ":0"),
        (&format!("CLIENT KILL ID {own}"), ":0"),
        (&format!("CLIENT KILL ADDR {address} ID {own} SKIPME no"), ":0"),
        (&format!("CLIENT KILL ADDR {address} ID {other} USER default TYPE normal"), ":1"),
    ]);
    assert_eq!(two.next(), "(closed)");
    let mut three = server.client();
    three.check(&[("PING", "PONG")]);
    one.check(&[(&format!("CLIENT KILL LADDR 127.0.0.1:{} SKIPME yes", server.port), ":1")]);
    assert_eq!(three.next(), "(closed)");
    // Whoever ends itself still gets the reply.
    one.check(&[(&format!("CLIENT KILL ID {own} SKIPME no"), ":1")]);
    assert_eq!(one.next(), "(closed)");
}

#[test]
fn reply_off_and_skip_leave_out_exactly_what_they_say() {
    let server = TestServer::start();
    let mut client = server.client();
    for line in [
        "CLIENT REPLY OFF",
        "ECHO 1",
        "NOSUCH",
        "GET",
        "CLIENT REPLY SKIP",
        "ECHO 2",
        "CLIENT REPLY ON",
        "CLIENT REPLY SKIP",
        "ECHO 3",
        "ECHO 4",
        "CLIENT REPLY SKIP",
        "NOSUCH",
        "ECHO 5",
        "CLIENT REPLY SKIP",
        "CLIENT REPLY ON",
        "CLIENT REPLY OFF",
        "RESET",
        "CLIENT REPLY x",
    ] {
        client.send(line);
    }
    for expected in ["OK", "4", "5", "OK", "RESET", "-ERR syntax error"] {
        assert_eq!(client.next(), expected);
    }
}

#[test]
fn a_pause_holds_back_what_it_says_until_it_ends() {
    let server = TestServer::start();
    let (mut operator, mut client) = (server.client(), server.client());
    operator.check(&[
        ("CLIENT PAUSE x", "-ERR timeout is not an integer or out of range"),
        ("CLIENT PAUSE -1", "-ERR timeout is negative"),
        ("CLIENT PAUSE 1 foo", "-ERR CLIENT PAUSE mode must be WRITE or ALL"),
        ("CLIENT PAUSE 100000 WRITE", "OK"),
    ]);
    client.check(&[("GET k", "(nil)")]);
    client.send("SET k 1");
    client.send("GET k");
    operator.check(&[("GET k", "(nil)")]);
    let info = operator.call("INFO clients");
    assert!(info.contains("paused_actions:write\r\n"), "{info}");
    operator.check(&[("CLIENT UNPAUSE", "OK")]);
    assert_eq!((client.next(), client.next()), ("OK".into(), "1".into()));

    operator.check(&[("CLIENT PAUSE 100000", "OK")]);
    client.send("PING");
    operator.check(&[("CLIENT UNPAUSE", "OK")]);
    assert_eq!(client.next(), "PONG");
    // A pause that nobody ends is over by itself.
    operator.check(&[("CLIENT PAUSE 20 ALL", "OK")]);
    client.check(&[("PING", "PONG")]);
}

#[test]
fn unblock_knows_its_words() {
    let server = TestServer::start();
    server.client().check(&[
        ("CLIENT UNBLOCK 1", ":0"),
        ("CLIENT UNBLOCK 1 TIMEOUT", ":0"),
        ("CLIENT UNBLOCK x", "-ERR value is not an integer or out of range"),
        ("CLIENT UNBLOCK 1 foo", "-ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR"),
        (
            "CLIENT UNBLOCK 1 ERROR x",
            "-ERR unknown subcommand or wrong number of arguments for 'UNBLOCK'. Try CLIENT HELP.",
        ),
    ]);
}
