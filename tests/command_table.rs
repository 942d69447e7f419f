//! COMMAND: the server's description of its own commands.

use std::collections::BTreeSet;

use tierce_harness::Reply;

use crate::server;

/// All commands that the first issue of the project requires.
const PROMISED: &str = "ping echo auth hello select quit exit reset client info config command \
    time dbsize flushdb flushall slowlog latency monitor memory debug shutdown lolwut wait del \
    unlink exists type touch rename renamenx copy move swapdb keys scan randomkey object expire \
    pexpire expireat pexpireat ttl pttl expiretime pexpiretime persist set get getex getdel getset \
    setnx setex psetex mset msetnx mget append strlen incr decr incrby decrby incrbyfloat getrange \
    setrange substr lcs";

fn names(reply: &Reply) -> BTreeSet<String> {
    reply.items().iter().map(|name| name.text().to_owned()).collect()
}

#[test]
fn every_promised_command_is_there() {
    let server = server();
    let names = names(&server.connect().ask("COMMAND LIST"));
    let missing: Vec<_> =
        PROMISED.split_whitespace().filter(|name| !names.contains(*name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn all_views_agree() {
    let server = server();
    let mut c = server.connect_resp3();
    // Subcommands are listed as well; the other replies show them with their commands.
    let mut listed = names(&c.ask("COMMAND LIST"));
    listed.retain(|name| !name.contains('|'));
    assert_eq!(c.ask("COMMAND COUNT").int(), listed.len() as i64);
    let all = c.ask("COMMAND");
    let described: BTreeSet<_> =
        all.items().iter().map(|command| command.items()[0].text().to_owned()).collect();
    assert_eq!(described, listed);
    let Reply::Map(docs) = c.ask("COMMAND DOCS") else { panic!("a map") };
    let documented: BTreeSet<_> = docs.iter().map(|(name, _)| name.text().to_owned()).collect();
    assert_eq!(documented, listed);
    for (name, doc) in &docs {
        for field in ["summary", "since", "group", "complexity"] {
            assert!(!doc.field(field).text().is_empty(), "{name} has no {field}");
        }
    }
    assert_eq!(c.ask("COMMAND INFO").items().len(), listed.len());
}

#[test]
fn facts_about_a_command() {
    let server = server();
    let mut c = server.connect();
    let reply = c.ask("COMMAND INFO get nosuch MSET client|list");
    let [get, nosuch, mset, list] = reply.items() else { panic!("{reply}") };
    assert_eq!(nosuch.to_string(), "nil");
    let head = |command: &Reply| {
        command.items()[..6].iter().map(Reply::to_string).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(head(get), "\"get\" :2 [+readonly, +fast] :1 :1 :1");
    assert_eq!(get.items()[6].to_string(), "[+@read, +@string, +@fast]");
    assert_eq!(head(mset), "\"mset\" :-3 [+write, +denyoom] :1 :-1 :2");
    assert_eq!(head(list), "\"client|list\" :-2 [+admin, +noscript, +loading, +stale] :0 :0 :0");
    let keys = &mset.items()[8].items()[0];
    assert_eq!(keys.field("flags").to_string(), "[+OW, +update]");
    let range = keys.field("find_keys").field("spec");
    assert_eq!(
        ["lastkey", "keystep", "limit"].map(|name| range.field(name).int()),
        [-1, 2, 0],
        "{keys}"
    );
    let client = c.ask("COMMAND INFO client");
    let subcommands = client.items()[0].items()[9].items().len();
    assert!(subcommands >= 15, "{client}");
}

#[test]
fn commands_of_tierce_alone_name_its_version() {
    let server = server();
    let mut c = server.connect_resp3();
    let docs = c.ask("COMMAND DOCS get backup exit client|durability");
    let since = |name| docs.field(name).field("since").text();
    assert_eq!(since("get"), "1.0.0");
    for name in ["backup", "exit", "client|durability"] {
        assert_eq!(since(name), "Tierce 0.1.0", "{name}");
    }
}

/// redis-cli makes its hints from this.
#[test]
fn arguments_are_a_tree() {
    let server = server();
    let mut c = server.connect_resp3();
    let docs = c.ask("COMMAND DOCS set expire config nosuch");
    let Reply::Map(pairs) = &docs else { panic!("{docs}") };
    assert_eq!(pairs.len(), 3);
    let set = docs.field("set");
    assert_eq!((set.field("group").text(), set.field("since").text()), ("string", "1.0.0"));
    let arguments = set.field("arguments").items();
    let names: Vec<_> = arguments.iter().map(|argument| argument.field("name").text()).collect();
    assert_eq!(names[..2], ["key", "value"]);
    assert_eq!(arguments[0].field("type").text(), "key");
    let expiration = arguments.iter().find(|argument| argument.to_string().contains("KEEPTTL"));
    let expiration = expiration.expect("KEEPTTL");
    assert_eq!(expiration.field("type").text(), "oneof");
    assert_eq!(expiration.field("arguments").items().len(), 5, "{expiration}");
    assert!(docs.field("config").field("subcommands").to_string().contains("config|resetstat"));
}

#[test]
fn keys_of_a_call() {
    let server = server();
    let mut c = server.connect();
    c.check("COMMAND GETKEYS GET a", "[\"a\"]");
    c.check("COMMAND GETKEYS MSET a 1 b 2 c 3", "[\"a\", \"b\", \"c\"]");
    c.check("COMMAND GETKEYS DEL a b c", "[\"a\", \"b\", \"c\"]");
    c.check("COMMAND GETKEYS RENAME a b", "[\"a\", \"b\"]");
    c.check("COMMAND GETKEYS LCS a b IDX", "[\"a\", \"b\"]");
    c.check("COMMAND GETKEYS OBJECT ENCODING a", "[\"a\"]");
    c.check("COMMAND GETKEYS MEMORY USAGE a", "[\"a\"]");
    c.check("COMMAND GETKEYS PING", "-ERR The command has no key arguments");
    c.check("COMMAND GETKEYS NOSUCH a", "-ERR Invalid command specified");
    c.check("COMMAND GETKEYS GET", "-ERR Invalid number of arguments specified for command");
    c.check(
        "COMMAND GETKEYSANDFLAGS RENAME a b",
        "[[\"a\", [+RW, +access, +delete]], [\"b\", [+OW, +update]]]",
    );
}

#[test]
fn lists_can_be_narrowed() {
    let server = server();
    let mut c = server.connect();
    let all = names(&c.ask("COMMAND LIST"));
    let get = names(&c.ask("COMMAND LIST FILTERBY PATTERN ge*"));
    for name in ["get", "getex", "getdel", "getset", "getrange"] {
        assert!(get.contains(name), "{get:?}");
    }
    assert!(get.iter().all(|name| name.starts_with("ge")) && get.len() < all.len());
    let dangerous = names(&c.ask("COMMAND LIST FILTERBY ACLCAT dangerous"));
    assert!(
        dangerous.contains("keys") && dangerous.contains("flushall") && !dangerous.contains("get")
    );
    c.check("COMMAND LIST FILTERBY MODULE nosuch", "[]");
    c.check("COMMAND LIST FILTERBY NOSUCH x", "-ERR syntax error");
    c.check("COMMAND NOSUCH", "-ERR unknown subcommand 'NOSUCH'. Try COMMAND HELP.");
}
