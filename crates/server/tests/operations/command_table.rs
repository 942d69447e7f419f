//! COMMAND: facts that clients and proxies route by.

use crate::support::TestServer;

#[test]
fn info_has_the_facts_of_7_2() {
    let server = TestServer::start();
    let mut client = server.client();
    let key = "[flags, [OW, update], begin_search, [type, index, spec, [index, :1]], find_keys, \
               [type, range, spec, [lastkey, :0, keystep, :1, limit, :0]]]";
    for (name, expected) in [
        ("nosuch", "[(nil)]".to_owned()),
        ("config|nosuch", "[(nil)]".to_owned()),
        (
            "setex",
            format!(
                "[[setex, :4, [write, denyoom], :1, :1, :1, [@write, @string, @slow], [], \
                 [{key}], []]]"
            ),
        ),
        (
            "config|set",
            "[[config|set, :-4, [admin, noscript, loading, stale], :0, :0, :0, [@admin, @slow, \
             @dangerous], [request_policy:all_nodes, response_policy:all_succeeded], [], \
             []]]"
                .to_owned(),
        ),
        (
            "wait",
            "[[wait, :3, [blocking], :0, :0, :0, [@slow, @blocking, @connection], \
             [request_policy:all_shards, response_policy:agg_min], [], []]]"
                .to_owned(),
        ),
        (
            "client|help",
            "[[client|help, :2, [loading, stale], :0, :0, :0, [@slow, @connection], [], [], []]]"
                .to_owned(),
        ),
    ] {
        assert_eq!(client.call(&format!("COMMAND INFO {name}")), expected, "{name}");
    }
    let debug = client.call("COMMAND INFO debug");
    assert!(debug.ends_with("[@admin, @slow, @dangerous], [], [], []]]"), "{debug}");
}

#[test]
fn docs_tell_what_is_deprecated() {
    let server = TestServer::start();
    let mut client = server.client();
    let docs = client.call("COMMAND DOCS substr nosuch");
    assert!(docs.starts_with("[substr, [summary, "), "{docs}");
    assert!(
        docs.contains("doc_flags, [deprecated], deprecated_since, 2.0.0, replaced_by, `GETRANGE`"),
        "{docs}"
    );
    client.check(&[("COMMAND DOCS nosuch", "[]")]);
}

#[test]
fn getkeys_finds_keys_or_says_why_not() {
    let server = TestServer::start();
    server.client().check(&[
        ("COMMAND GETKEYS GET k", "[k]"),
        ("COMMAND GETKEYS MSET a 1 b 2", "[a, b]"),
        ("COMMAND GETKEYS OBJECT ENCODING k", "[k]"),
        ("COMMAND GETKEYS MEMORY USAGE k", "[k]"),
        ("COMMAND GETKEYS nosuch", "-ERR Invalid command specified"),
        ("COMMAND GETKEYS PING", "-ERR The command has no key arguments"),
        ("COMMAND GETKEYS GET", "-ERR Invalid number of arguments specified for command"),
        ("COMMAND GETKEYS", "-ERR wrong number of arguments for 'command|getkeys' command"),
        ("COMMAND GETKEYSANDFLAGS SET k v", "[[k, [OW, update]]]"),
        ("COMMAND GETKEYSANDFLAGS SET k v GET", "[[k, [RW, access, update]]]"),
    ]);
}

#[test]
fn list_filters() {
    let server = TestServer::start();
    server.client().check(&[
        ("COMMAND LIST FILTERBY PATTERN set[ne]x", "[setnx, setex]"),
        (
            "COMMAND LIST FILTERBY PATTERN CONFIG|*",
            "[config|get, config|resetstat, config|rewrite, config|set, config|help]",
        ),
        ("COMMAND LIST FILTERBY MODULE x", "[]"),
        ("COMMAND LIST FILTERBY ACLCAT nosuch", "[]"),
        (
            "COMMAND LIST FILTERBY ACLCAT blocking",
            "[blpop, brpop, blmpop, blmove, brpoplpush, bzpopmin, bzpopmax, bzmpop, xread, \
             xreadgroup, wait, waitaof]",
        ),
        ("COMMAND LIST FILTERBY foo x", "-ERR syntax error"),
        ("COMMAND LIST FILTERBY", "-ERR syntax error"),
        ("COMMAND COUNT x", "-ERR wrong number of arguments for 'command|count' command"),
    ]);
}

#[test]
fn every_container_has_help() {
    let server = TestServer::start();
    let mut client = server.client();
    for name in ["CLIENT", "COMMAND", "CONFIG", "DEBUG", "LATENCY", "MEMORY", "OBJECT", "SLOWLOG"] {
        let help = client.value(&format!("{name} HELP"));
        let expected = if name == "DEBUG" { "-ERR DEBUG command not allowed." } else { "" };
        if expected.is_empty() {
            let lines = help.as_values().unwrap();
            let first = format!("{name} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:");
            assert_eq!(lines[0].as_bytes(), Some(first.as_bytes()));
            assert_eq!(lines[lines.len() - 2].as_bytes(), Some(&b"HELP"[..]));
        } else {
            assert!(crate::support::show(&help).starts_with(expected));
        }
    }
}
