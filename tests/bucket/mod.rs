//! The log in a bucket, here a directory: written data are available on another machine, and only one server writes.
//!
//! - `protocols`: writes over every protocol; `spill`: values on disk.
//! - `start`: starts with a directory and a bucket; `restart`: starts with the directory of a killed owner; `base`:
//!   snapshots of data that the log does not have.
//! - `level`: replies that wait for the bucket.
//! - `objects`: creation and deletion of the log's objects; `damage`: damaged objects; `store`: an unavailable store,
//!   or one with objects of others.
//! - `history`: the tools `restore`, `branch`, `verify` and `prune`.
//! - `lease`: replies of an owner with takeover; `http`: its replies over HTTP; `failover`: its handover, and the
//!   records that its replicas get.
//! - `follower`: a server that follows the owner; `takeover`: a server that replaces the owner.

mod base;
mod damage;
mod failover;
mod follower;
mod history;
mod http;
mod lease;
mod level;
mod objects;
mod protocols;
mod restart;
mod spill;
mod start;
mod store;
mod takeover;

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;
use tierce_harness::{Connection, Launch, Reply, Server, TempDir, wait_until};

use crate::{launch, program};

/// Makes a launch with the data in `dir` and the log in the bucket `bucket`.
pub(crate) fn start(dir: &Path, bucket: &TempDir) -> Launch {
    launch()
        .keeping()
        .with("dir", &dir.display().to_string())
        .with("bucket", &format!("file://{}", bucket.path().display()))
        .with("bucket-interval", "20")
}

fn stop(mut server: Server) {
    server.signal(Signal::TERM);
    assert!(server.wait_for_end().success());
}

pub(crate) fn kill(mut server: Server) {
    server.signal(Signal::KILL);
    server.wait_for_end();
}

/// Returns a field of INFO bucket.
fn info(c: &mut Connection, name: &str) -> String {
    let text = c.ask("INFO bucket").text().to_owned();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_default().to_owned()
}

/// Waits for a state in INFO's `bucket_state`: a server accepts connections before it has read the bucket.
fn wait_for_state(c: &mut Connection, state: &str) {
    wait_until(&format!("bucket_state is {state}"), || info(c, "bucket_state") == state);
}

/// Waits until all changes are in the bucket.
pub(crate) fn wait_for_bucket(c: &mut Connection) {
    c.check("CLIENT DURABILITY bucket", "+OK");
    c.ask("DBSIZE");
    c.check("CLIENT DURABILITY default", "+OK");
}

fn wait_for_snapshot(c: &mut Connection) {
    c.check("CONFIG SET bucket-snapshot-interval 1", "+OK");
    wait_until("there is a snapshot", || info(c, "bucket_snapshot_object") != "0");
    c.check("CONFIG SET bucket-snapshot-interval 86400", "+OK");
}

/// Returns the output of a start that fails.
fn refused(launch: &Launch) -> String {
    let outcome = launch.run();
    assert_ne!(outcome.code, Some(0));
    outcome.errors
}

/// Values of all keys as replies, and the functions.
type Contents = BTreeMap<String, Vec<Reply>>;

/// Returns all data of a server, in a deterministic order. The server may load other data meanwhile.
fn contents(c: &mut Connection) -> Contents {
    let mut all = BTreeMap::new();
    for db in 0..16 {
        c.check(&format!("SELECT {db}"), "+OK");
        let keys: Vec<Vec<u8>> =
            c.ask("KEYS *").items().iter().map(|key| key.bytes().to_vec()).collect();
        for key in keys {
            let key = key.as_slice();
            let kind = c.call(&[b"TYPE", key]).text().to_owned();
            let mut parts = match kind.as_str() {
                "string" => vec![c.call(&[b"GET", key])],
                "list" => vec![c.call(&[b"LRANGE", key, b"0", b"-1"])],
                "set" => sorted(&c.call(&[b"SMEMBERS", key]), 1),
                "zset" => vec![c.call(&[b"ZRANGE", key, b"0", b"-1", b"WITHSCORES"])],
                "hash" => hash(c, key),
                "stream" => vec![
                    c.call(&[b"XRANGE", key, b"-", b"+"]),
                    c.call(&[&b"XINFO"[..], b"GROUPS", key]),
                    c.call(&[b"XPENDING", key, b"group:1"]),
                ],
                "none" => Vec::new(),
                other => panic!("type {other}"),
            };
            parts.push(c.call(&[b"PEXPIRETIME", key]));
            let name = format!("{db} {kind} {}", key.escape_ascii());
            all.insert(name, parts);
        }
    }
    c.check("SELECT 0", "+OK");
    all.insert("functions".into(), vec![c.ask("FUNCTION LIST WITHCODE")]);
    all
}

fn sorted(reply: &Reply, of: usize) -> Vec<Reply> {
    let mut items: Vec<_> = reply.items().chunks(of).map(<[Reply]>::to_vec).collect();
    items.sort_by_key(|item| item[0].bytes().to_vec());
    items.into_iter().flatten().collect()
}

/// Returns fields in order, each with its value and its deadline.
fn hash(c: &mut Connection, key: &[u8]) -> Vec<Reply> {
    let mut parts = sorted(&c.call(&[b"HGETALL", key]), 2);
    let fields: Vec<_> = parts.iter().step_by(2).map(|field| field.bytes().to_vec()).collect();
    let count = fields.len().to_string();
    let mut request: Vec<&[u8]> = vec![b"HPEXPIRETIME", key, b"FIELDS", count.as_bytes()];
    request.extend(fields.iter().map(Vec::as_slice));
    parts.push(c.call(&request));
    parts
}

/// Writes values of each type, with each kind of command that changes them.
fn write_everything(c: &mut Connection, round: usize) {
    let far = 32_503_680_000_000_i64;
    let big = "b".repeat(3 << 20);
    c.call(&["SET", &format!("text:{round}"), "hello"]);
    c.call(&["APPEND", &format!("text:{round}"), " world"]);
    c.call(&["SET", &format!("big:{round}"), &big]);
    c.call(&["SETRANGE", &format!("big:{round}"), "70000", "middle"]);
    c.call(&["SET", &format!("mortal:{round}"), "x", "PXAT", &far.to_string()]);
    c.call(&["SET", "gone", "x", "PX", "1"]);
    c.call(&["INCRBY", "counter", "17"]);
    for number in 0..700 {
        let number = number.to_string();
        c.request(&["RPUSH", "list", &number]);
        c.request(&["SADD", &format!("set:{round}"), &number]);
        c.request(&["ZADD", "scores", &number, &format!("{round}:{number}")]);
        c.request(&["HSET", "hash", &format!("{round}:{number}"), &number]);
        c.request(&["XADD", "stream", "*", "n", &number]);
    }
    (0..5 * 700).for_each(|_| drop(c.reply()));
    c.call(&["HPEXPIREAT", "hash", &far.to_string(), "FIELDS", "1", &format!("{round}:5")]);
    c.call(&["LPOP", "list", "33"]);
    c.call(&["XGROUP", "CREATE", "stream", &format!("group:{round}"), "0"]);
    let group = format!("group:{round}");
    c.call(&["XREADGROUP", "GROUP", &group, "me", "COUNT", "5", "STREAMS", "stream", ">"]);
    c.check("MULTI", "+OK");
    for key in ["one", "two", "three"] {
        c.check(&format!("SET exec:{key} {round}"), "+QUEUED");
    }
    c.ask("EXEC");
    let script = "for i = 1, 50 do redis.call('SET', 'script:' .. i, ARGV[1]) end";
    c.call(&["EVAL", script, "0", &round.to_string()]);
    let library = format!(
        "#!lua name=lib{round}\nredis.register_function('f{round}', \
        function() return redis.call('INCR', 'called') end)"
    );
    c.call(&["FUNCTION", "LOAD", &library]);
    c.call(&["FCALL", &format!("f{round}"), "0"]);
    for db in [3, 4] {
        c.check(&format!("SELECT {db}"), "+OK");
        c.call(&["SET", &format!("of:{db}:{round}"), "x"]);
    }
    c.check("SWAPDB 3 5", "+OK");
    c.check("SELECT 9", "+OK");
    c.call(&["SET", "flushed", "x"]);
    c.check("FLUSHDB", "+OK");
    c.call(&["SET", &format!("after:{round}"), "x"]);
    c.check("SELECT 0", "+OK");
    wait_until("what was to expire has", || c.ask("EXISTS gone").int() == 0);
}

/// Sends a request of PedroKV. Returns the status of the response, and its data.
fn pedrokv_ask(port: u16, request: &[u8]) -> (u8, Vec<u8>) {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("a listener");
    stream.write_all(request).expect("it takes the bytes");
    let mut head = [0; 7];
    stream.read_exact(&mut head).expect("a response");
    let mut data = vec![0; usize::from(u16::from_be_bytes([head[0], head[1]])) - head.len()];
    stream.read_exact(&mut data).expect("the rest");
    (head[2], data)
}

/// A bucket whose store does not answer until this is dropped.
struct Away {
    log: PathBuf,
    aside: PathBuf,
}

impl Away {
    fn begin(bucket: &TempDir) -> Self {
        let (log, aside) = (bucket.path().join("log"), bucket.path().join("aside"));
        fs::rename(&log, &aside).expect("moved");
        fs::write(&log, "no directory").expect("written");
        Self { log, aside }
    }

    fn end(self) {
        fs::remove_file(&self.log).expect("removed");
        fs::rename(&self.aside, &self.log).expect("moved");
    }
}

/// Makes a launch with a short lease, which even a busy machine keeps.
fn joining(dir: &Path, bucket: &TempDir) -> Launch {
    start(dir, bucket).with("bucket-takeover", "yes").with("bucket-lease", "3")
}

/// Makes a launch with a lease that does not end during a test.
fn for_long(dir: &Path, bucket: &TempDir) -> Launch {
    joining(dir, bucket).with("bucket-lease", "3600")
}

fn role(c: &mut Connection) -> String {
    c.ask("ROLE").items()[0].text().to_owned()
}

/// Returns a field of INFO replication.
fn replication(c: &mut Connection, name: &str) -> String {
    let text = c.ask("INFO replication").text().to_owned();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_default().to_owned()
}

/// Waits until a follower has all earlier changes.
fn wait_until_followed(owner: &mut Connection, follower: &mut Connection) {
    wait_for_bucket(owner);
    let number = info(owner, "bucket_last_object").parse::<u64>().unwrap();
    wait_until("it has followed", || {
        info(follower, "bucket_last_object").parse::<u64>().unwrap() >= number
    });
}

fn wait_for_owner(c: &mut Connection) {
    wait_until("it has taken over", || role(c) == "master");
}

/// Returns the files of the log, ordered by number.
fn objects(bucket: &TempDir) -> Vec<PathBuf> {
    let entries = fs::read_dir(bucket.path().join("log")).expect("a log").flatten();
    let mut paths: Vec<_> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

/// Returns the names and bytes of all files of a bucket.
fn files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(dir).expect("a directory").flatten() {
        let path = entry.path();
        match path.is_dir() {
            true => files.extend(self::files(&path)),
            false => drop(files.insert(path.clone(), fs::read(&path).expect("a file"))),
        }
    }
    files
}

/// Runs a tool. Returns its exit code, standard output and standard error.
fn tool(arguments: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(program());
    let output = command.arg("bucket").args(arguments).output().expect("the program");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (output.status.code().expect("no signal"), text(output.stdout), text(output.stderr))
}

fn url(bucket: &TempDir) -> String {
    format!("file://{}", bucket.path().display())
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path of text")
}
