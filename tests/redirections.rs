//! CLIENT CAPA redirect: a replica, or a follower of a bucket, redirects clients to its primary.

use tierce_harness::{Connection, TempDir, wait_until};

use crate::bucket::{kill, start, wait_for_bucket};
use crate::launch;

const READ_ONLY: &str = "-READONLY You can't write against a read only replica.";
const ABORTED: &str = "-EXECABORT Transaction discarded because of previous errors.";
const NO_CLUSTER: &str = "-ERR This instance has cluster support disabled";

/// Returns the address in a redirection.
fn target(c: &mut Connection, line: &str) -> String {
    let reply = c.ask(line).to_string();
    reply.strip_prefix("-REDIRECT ").unwrap_or_else(|| panic!("{line}: {reply}")).to_owned()
}

/// Returns the address of the primary, according to the replica.
fn primary_of(c: &mut Connection) -> String {
    let role = c.ask("ROLE");
    let items = role.items();
    assert_eq!(items[0].text(), "slave");
    format!("{}:{}", items[1].text(), items[2].int())
}

/// Checks a replica's replies to a client with `redirect`. The data have `k`.
fn check_redirections(c: &mut Connection, primary: &str) {
    let redirect = format!("-REDIRECT {primary}");
    c.check("SET k w", READ_ONLY);
    c.check("GET k", r#""v""#);
    c.check("READONLY", NO_CLUSTER);
    c.check("CLIENT CAPA nonesuch", "+OK");
    c.check("GET k", r#""v""#);
    c.check("CLIENT CAPA nonesuch REDIRECT", "+OK");
    for line in [
        "SET k w",
        "GET k",
        "FLUSHALL",
        "DBSIZE",
        "BLPOP l 0",
        "EVAL 'return 1' 0",
        "EVAL_RO 'return 1' 0",
    ] {
        c.check(line, &redirect);
    }
    // These commands do not access data.
    c.check("PING", "+PONG");
    c.check("PUBLISH c m", ":0");
    // A refused command aborts a transaction.
    c.check("MULTI", "+OK");
    c.check("GET k", &redirect);
    c.check("EXEC", ABORTED);
    c.check("MULTI", "+OK");
    c.check("PING", "+QUEUED");
    c.check("EXEC", "[+PONG]");
    // READONLY accepts stale data.
    c.check("READONLY", "+OK");
    c.check("GET k", r#""v""#);
    c.check("EVAL 'return 1' 0", ":1");
    c.check("SET k w", &redirect);
    c.check("EVAL '#!lua\nreturn 1' 0", &redirect);
    c.check("READWRITE", "+OK");
    c.check("GET k", &redirect);
    c.check("RESET", "+RESET");
    c.check("GET k", r#""v""#);
    c.check("SET k w", READ_ONLY);
}

#[test]
fn a_replica_sends_clients_to_its_primary() {
    let (primary, replica) = (launch().start(), launch().start());
    let mut a = primary.connect();
    a.check("SET k v", "+OK");
    let mut b = replica.connect();
    b.check(&format!("REPLICAOF 127.0.0.1 {}", primary.port()), "+OK");
    wait_until("it has the data", || b.ask("GET k").to_string() == r#""v""#);
    check_redirections(&mut b, &format!("127.0.0.1:{}", primary.port()));
    // A primary serves clients with `redirect` as usual.
    a.check("CLIENT CAPA redirect", "+OK");
    a.check("SET k w", "+OK");
    a.check("GET k", r#""w""#);
}

#[test]
fn a_follower_of_a_bucket_sends_clients_to_the_owner() {
    let (bucket, first, second) = (TempDir::new(), TempDir::new(), TempDir::new());
    let joining = |dir: &TempDir| {
        start(dir.path(), &bucket).with("bucket-takeover", "yes").with("bucket-lease", "3")
    };
    let owner = joining(&first).start();
    let mut a = owner.connect();
    a.check("SET k v", "+OK");
    wait_for_bucket(&mut a);
    let follower = joining(&second).start();
    let mut b = follower.connect();
    wait_until("it has the data", || b.ask("GET k").to_string() == r#""v""#);
    let address = primary_of(&mut b);
    assert!(address.ends_with(&format!(":{}", owner.port())), "{address}");
    check_redirections(&mut b, &address);
    b.check("CLIENT CAPA redirect", "+OK");
    assert_eq!(target(&mut b, "SET k w"), address);
    kill(owner);
    wait_until("it has taken over", || b.ask("ROLE").items()[0].text() == "master");
    b.check("SET k w", "+OK");
    b.check("GET k", r#""w""#);
}

#[test]
fn a_server_that_becomes_a_replica_sends_those_on_that_wait_or_have_queued() {
    let server = launch().start();
    let mut c = server.connect();
    let mut waiting = server.connect();
    waiting.check("CLIENT CAPA redirect", "+OK");
    waiting.send("BLPOP l 0\r\n");
    wait_until("it waits", || c.ask("INFO clients").text().contains("blocked_clients:1"));
    let mut queued = server.connect();
    queued.check("CLIENT CAPA redirect", "+OK");
    queued.check("MULTI", "+OK");
    queued.check("SET k v", "+QUEUED");
    c.check("REPLICAOF 127.0.0.1 1", "+OK");
    waiting.expect("-REDIRECT 127.0.0.1:1");
    waiting.check("PING", "+PONG");
    queued.check("EXEC", "-REDIRECT 127.0.0.1:1");
    queued.check("EXEC", "-ERR EXEC without MULTI");
    // Its primary is not reachable from here, but may be from its clients.
    c.check("CONFIG SET replica-serve-stale-data no", "+OK");
    queued.check("GET k", "-REDIRECT 127.0.0.1:1");
    c.check("REPLICAOF NO ONE", "+OK");
    queued.check("EXISTS k", ":0");
}
