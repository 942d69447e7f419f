//! COMMAND: facts that clients and proxies use for routing.

use tierce_wire::resp::Value;

use crate::operations::support::TestServer;

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
        ("COMMAND GETKEYS SORT l BY STORE x", "[l]"),
        ("COMMAND GETKEYS SORT l GET STORE STORE x LIMIT STORE 1", "[l, x]"),
        ("COMMAND GETKEYS SORT l STORE a STORE b", "[l, b]"),
        ("COMMAND GETKEYSANDFLAGS SET k v", "[[k, [OW, update]]]"),
        ("COMMAND GETKEYSANDFLAGS SET k v GET", "[[k, [RW, access, update]]]"),
    ]);
}

#[test]
fn list_and_info_name_the_same_commands_and_subcommands() {
    let server = TestServer::start();
    let mut client = server.client();
    let names = |reply: &Value| -> Vec<Vec<u8>> {
        reply.as_values().unwrap().iter().map(|name| name.as_bytes().unwrap().to_vec()).collect()
    };
    let listed = names(&client.value("COMMAND LIST"));
    let mut known = Vec::new();
    for command in client.value("COMMAND INFO").as_values().unwrap() {
        let facts = command.as_values().unwrap();
        known.push(facts[0].as_bytes().unwrap().to_vec());
        for subcommand in facts[9].as_values().unwrap() {
            known.push(subcommand.as_values().unwrap()[0].as_bytes().unwrap().to_vec());
        }
    }
    assert_eq!(listed, known);
    assert!(listed.contains(&b"config|get".to_vec()));
}

#[test]
fn questions_about_clusters_replicas_and_modules_are_answered_as_without() {
    const DISABLED: &str = "-ERR This instance has cluster support disabled";
    let server = TestServer::start();
    let mut client = server.client();
    client.check(&[
        ("READONLY", DISABLED),
        ("READWRITE", DISABLED),
        ("ASKING", DISABLED),
        ("CLUSTER INFO", DISABLED),
        ("CLUSTER HELP", DISABLED),
        ("CLUSTER KEYSLOT k", DISABLED),
        ("CLUSTER KEYSLOT", "-ERR wrong number of arguments for 'cluster|keyslot' command"),
        ("CLUSTER NOSUCH", "-ERR unknown subcommand 'NOSUCH'. Try CLUSTER HELP."),
        ("FAILOVER", "-ERR FAILOVER requires connected replicas."),
        ("FAILOVER TO h 1 FORCE TIMEOUT 5", "-ERR FAILOVER requires connected replicas."),
        ("FAILOVER TIMEOUT 0", "-ERR FAILOVER timeout must be greater than 0"),
        ("FAILOVER TO h", "-ERR syntax error"),
        ("FAILOVER ABORT", "-ERR No failover in progress."),
        ("MODULE LIST", "[]"),
        ("MODULE LOAD x", "-ERR MODULE command not allowed. There are no modules for this server."),
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
            "[blpop, brpop, blmpop, blmove, brpoplpush, blmovem, bzpopmin, bzpopmax, bzmpop, xread, \
             xreadgroup, waitaof, wait]",
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
            assert!(crate::operations::support::show(&help).starts_with(expected));
        }
    }
}
