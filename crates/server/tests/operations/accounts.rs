//! Requests of memcached and PedroKV clients are accounted for like those of Redis clients, and pass equal admission
//! checks, in equal order.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use tierce_wire::pedrokv::{Kind, Request, Response, Status};

use crate::operations::support::{Client, TestServer, free_port, wait_until};

/// Server for all protocols.
struct Server {
    server: TestServer,
    memcached: u16,
    pedrokv: u16,
}

impl Server {
    fn with(options: &str) -> Self {
        let (memcached, pedrokv) = (free_port(), free_port());
        let ports = format!("--memcached-port {memcached} --pedrokv-port {pedrokv}");
        Self { server: TestServer::with(&format!("{ports} {options}")), memcached, pedrokv }
    }

    fn memcached(&self) -> TcpStream {
        connect(self.memcached)
    }

    fn pedrokv(&self) -> TcpStream {
        connect(self.pedrokv)
    }
}

fn connect(port: u16) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream
}

/// Sends bytes, and checks the reply.
#[track_caller]
fn exchange(stream: &mut TcpStream, sent: impl AsRef<[u8]>, expected: impl AsRef<[u8]>) {
    stream.write_all(sent.as_ref()).unwrap();
    let mut bytes = vec![0; expected.as_ref().len()];
    stream.read_exact(&mut bytes).unwrap();
    assert_eq!(bytes.escape_ascii().to_string(), expected.as_ref().escape_ascii().to_string());
}

fn frames(requests: &[(Kind, &str, &str)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for ((kind, key, value), id) in requests.iter().zip(0..) {
        let (key, value) = (key.as_bytes(), value.as_bytes());
        Request { kind: *kind, id, key, value }.write(&mut bytes).unwrap();
    }
    bytes
}

/// Returns the response to a request with this id.
fn response(id: u32, is_ok: bool, data: &str) -> Vec<u8> {
    let status = if is_ok { Status::Ok } else { Status::Error };
    let mut bytes = Vec::new();
    Response { status, id, data: data.as_bytes() }.write(&mut bytes).unwrap();
    bytes
}

/// Returns a request of the binary protocol.
fn frame(opcode: u8, extras: &[u8], key: &str, value: &str) -> Vec<u8> {
    let body_len = (extras.len() + key.len() + value.len()) as u32;
    let mut bytes = vec![0x80, opcode, 0, key.len() as u8, extras.len() as u8, 0, 0, 0];
    bytes.extend(body_len.to_be_bytes());
    bytes.extend([0; 12]);
    bytes.extend(extras);
    bytes.extend(key.bytes());
    bytes.extend(value.bytes());
    bytes
}

/// Returns calls, rejected calls and failed calls of a command or operation.
fn calls(client: &mut Client, name: &str) -> [u64; 3] {
    let info = client.call("INFO commandstats");
    let line = info.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{name}:")));
    let Some(line) = line else { return [0; 3] };
    let figure = |wanted: &str| {
        let mut fields = line.split(',').filter_map(|field| field.split_once('='));
        fields.find(|(name, _)| *name == wanted).unwrap().1.parse().unwrap()
    };
    [figure("calls"), figure("rejected_calls"), figure("failed_calls")]
}

#[test]
fn requests_are_counted_and_timed_under_names_of_their_own() {
    let server = Server::with("--slowlog-log-slower-than 0");
    let (mut text, mut binary) = (server.memcached(), server.memcached());
    let (mut pedrokv, mut client) = (server.pedrokv(), server.server.client());
    client.check(&[("SLOWLOG RESET", "OK"), ("CONFIG RESETSTAT", "OK")]);
    exchange(
        &mut text,
        "set a 1 0 1\r\n7\r\nget a b\r\nmg a v\r\nincr a 1\r\nset b 0 0 1\r\nx\r\nincr b 1\r\nbad\r\n",
        "STORED\r\nVALUE a 1 1\r\n7\r\nEND\r\nVA 1\r\n7\r\n8\r\nSTORED\r\n\
         CLIENT_ERROR cannot increment or decrement non-numeric value\r\nERROR\r\n",
    );
    binary.write_all(&frame(1, &[0; 8], "c", "v")).unwrap();
    binary.read_exact(&mut [0; 24]).unwrap();
    let puts = frames(&[(Kind::Put, "d", "v"), (Kind::Get, "d", ""), (Kind::Delete, "e", "")]);
    let replies =
        [response(0, true, ""), response(1, true, "v"), response(2, false, "err: not found")];
    exchange(&mut pedrokv, puts, replies.concat());
    for (name, expected) in [
        ("memcached|set", [3, 0, 0]),
        ("memcached|get", [1, 0, 0]),
        ("memcached|mg", [1, 0, 0]),
        ("memcached|incr", [2, 0, 1]),
        ("pedrokv|put", [1, 0, 0]),
        ("pedrokv|get", [1, 0, 0]),
        ("pedrokv|delete", [1, 0, 0]),
        ("set", [0, 0, 0]),
    ] {
        assert_eq!(calls(&mut client, name), expected, "{name}");
    }
    assert!(client.call("INFO errorstats").contains("errorstat_CLIENT_ERROR:count=1"));
    assert!(client.call("INFO latencystats").contains("latency_percentiles_usec_memcached|get:"));
    assert!(client.call("LATENCY HISTOGRAM memcached").contains("memcached|incr"));
    let slow = client.call("SLOWLOG GET -1");
    for words in
        ["[set, a, 1, 0, 7]", "[get, a, b]", "[mg, a, v]", "[set, c, 0, 0, v]", "[put, d, v]"]
    {
        assert!(slow.contains(words), "{words}: {slow}");
    }
    let list = client.call("CLIENT LIST");
    for cmd in ["cmd=memcached|incr", "cmd=memcached|set", "cmd=pedrokv|delete"] {
        assert!(list.contains(cmd), "{cmd}: {list}");
    }
    assert!(client.call("INFO stats").contains("total_commands_processed:"));
}

#[test]
fn every_request_of_a_pipeline_is_counted() {
    let server = Server::with("");
    let (mut text, mut pedrokv) = (server.memcached(), server.pedrokv());
    exchange(&mut text, "get a\r\n".repeat(1000), "END\r\n".repeat(1000));
    let puts: Vec<String> = (0..500).map(|number| format!("key{number}")).collect();
    let puts: Vec<_> = puts.iter().map(|key| (Kind::Put, key.as_str(), "v")).collect();
    let responses: Vec<_> = (0..500).map(|id| response(id, true, "")).collect();
    exchange(&mut pedrokv, frames(&puts), responses.concat());
    let mut client = server.server.client();
    assert_eq!(calls(&mut client, "memcached|get"), [1000, 0, 0]);
    assert_eq!(calls(&mut client, "pedrokv|put"), [500, 0, 0]);
}

#[test]
fn requests_of_many_kinds_are_counted_each_under_its_name() {
    const KINDS: [(&str, &str, &str); 6] = [
        ("get", "get a\r\n", "END\r\n"),
        ("gets", "gets a\r\n", "END\r\n"),
        ("delete", "delete a\r\n", "NOT_FOUND\r\n"),
        ("incr", "incr a 1\r\n", "NOT_FOUND\r\n"),
        ("touch", "touch a 1\r\n", "NOT_FOUND\r\n"),
        ("mg", "mg a\r\n", "EN\r\n"),
    ];
    let server = Server::with("");
    let (mut text, mut client) = (server.memcached(), server.server.client());
    // Alternating kinds, and long runs of one, which end in the middle of a group that is timed together.
    let rows = (0..200).flat_map(|row| vec![row % KINDS.len(); 1 + row * row % 90]);
    let rows: Vec<usize> = rows.chain((0..300).map(|row| row * row % KINDS.len())).collect();
    let (sent, expected): (String, String) =
        rows.iter().map(|kind| (KINDS[*kind].1, KINDS[*kind].2)).unzip();
    exchange(&mut text, sent, expected);
    for (kind, (name, ..)) in KINDS.iter().enumerate() {
        let count = rows.iter().filter(|row| **row == kind).count() as u64;
        assert_eq!(calls(&mut client, &format!("memcached|{name}")), [count, 0, 0], "{name}");
    }
}

#[test]
fn a_frame_that_is_no_request_counts_as_nothing() {
    let server = Server::with("");
    let (mut binary, mut client) = (server.memcached(), server.server.client());
    let [unknown, noop] = [frame(0x77, b"", "", ""), frame(0x0a, b"", "", "")];
    // Its extras do not belong to a get, which ends the connection.
    let malformed = frame(0, &[0; 4], "a", "");
    binary.write_all(&[frame(0, b"", "a", ""), unknown, noop, malformed].concat()).unwrap();
    binary.read_to_end(&mut Vec::new()).unwrap();
    assert_eq!(calls(&mut client, "memcached|get"), [1, 0, 0]);
    assert_eq!(calls(&mut client, "memcached|mn"), [1, 0, 0]);
}

#[test]
fn monitors_see_requests_of_all_protocols_but_no_passwords() {
    let server = Server::with("--requirepass secret");
    let mut watcher = server.server.client();
    watcher.check(&[("AUTH secret", "OK"), ("MONITOR", "OK")]);
    let (mut text, mut binary) = (server.memcached(), server.memcached());
    exchange(&mut text, "set x 0 0 14\r\ndefault secret\r\n", "STORED\r\n");
    exchange(&mut text, "cas a 1 0 1 9\r\n\"\r\ngat 0 b c\r\n", "NOT_FOUND\r\nEND\r\n");
    binary.write_all(&frame(0x21, b"", "PLAIN", "\0default\0secret")).unwrap();
    binary.read_exact(&mut [0; 24 + 13]).unwrap();
    exchange(&mut binary, frame(0x0a, b"", "", ""), [&[0x81, 0x0a][..], &[0; 22]].concat());
    let shown = |client: &mut Client| {
        let line = client.next();
        line.split_once("] ").map(|(_, words)| words.to_owned()).unwrap_or(line)
    };
    assert_eq!(shown(&mut watcher), r#""cas" "a" "1" "0" "9" "\"""#);
    assert_eq!(shown(&mut watcher), r#""gat" "0" "b" "c""#);
    assert_eq!(shown(&mut watcher), r#""mn""#);
}

#[test]
fn what_the_gates_refuse_is_counted_as_refused() {
    let server = Server::with("--maxmemory-policy noeviction --appendonly no");
    let (mut text, mut pedrokv) = (server.memcached(), server.pedrokv());
    let mut client = server.server.client();
    client.check(&[("SETRANGE much 1000000 x", ":1000001"), ("CONFIG SET maxmemory 500000", "OK")]);
    exchange(
        &mut text,
        "set a 0 0 1\r\nx\r\nget a\r\n",
        "SERVER_ERROR out of memory storing object\r\nEND\r\n",
    );
    exchange(
        &mut pedrokv,
        frames(&[(Kind::Put, "a", "x")]),
        response(0, false, "err: out of memory"),
    );
    assert_eq!(calls(&mut client, "memcached|set"), [0, 1, 0]);
    assert_eq!(calls(&mut client, "memcached|get"), [1, 0, 0]);
    assert_eq!(calls(&mut client, "pedrokv|put"), [0, 1, 0]);
}

#[test]
fn any_number_of_kinds_may_be_refused_in_one_batch() {
    let server = Server::with("--maxmemory-policy noeviction --appendonly no");
    let (mut text, mut client) = (server.memcached(), server.server.client());
    client.check(&[("SETRANGE much 1000000 x", ":1000001"), ("CONFIG SET maxmemory 500000", "OK")]);
    let kinds = ["set", "add", "replace", "append", "prepend"];
    let requests = kinds.map(|kind| format!("{kind} a 0 0 1\r\nx\r\n")).concat();
    let refused = "SERVER_ERROR out of memory storing object\r\n".repeat(kinds.len());
    exchange(&mut text, requests + "get a\r\n", refused + "END\r\n");
    for kind in kinds {
        assert_eq!(calls(&mut client, &format!("memcached|{kind}")), [0, 1, 0], "{kind}");
    }
    assert_eq!(calls(&mut client, "memcached|get"), [1, 0, 0]);
}

#[test]
fn a_password_shuts_out_clients_of_pedrokv_that_are_in() {
    let server = Server::with("");
    let (mut pedrokv, mut client) = (server.pedrokv(), server.server.client());
    exchange(&mut pedrokv, frames(&[(Kind::Put, "a", "x")]), response(0, true, ""));
    client.check(&[("CONFIG SET requirepass secret", "OK")]);
    let refusal = "err: there is a password, which this protocol cannot say";
    exchange(&mut pedrokv, frames(&[(Kind::Get, "a", "")]), response(0, false, refusal));
    client.check(&[("CONFIG SET requirepass ''", "OK")]);
    exchange(&mut pedrokv, frames(&[(Kind::Get, "a", "")]), response(0, true, "x"));
}

#[test]
fn values_on_disk_are_read_for_requests_that_pass_the_gates() {
    const LEN: usize = 350_000;
    const KEYS: usize = 150;
    let server =
        Server::with("--appendonly no --shards 1 --maxmemory 40mb --maxmemory-policy spill");
    let (mut text, mut client) = (server.memcached(), server.server.client());
    for number in 0..KEYS {
        client.check(&[(&format!("SETRANGE k{number} {LEN} x"), &format!(":{}", LEN + 1))]);
    }
    let fetched = |client: &mut Client| {
        let info = client.call("INFO");
        let line = info.lines().find_map(|line| line.strip_prefix("spilled_reads:"));
        line.unwrap_or_else(|| panic!("{info}")).parse::<u64>().unwrap()
    };
    client.check(&[("CLIENT PAUSE 1000000 WRITE", "OK")]);
    let before = fetched(&mut client);
    let appends: String = (0..KEYS).map(|n| format!("append k{n} 0 0 1\r\ny\r\n")).collect();
    text.write_all(appends.as_bytes()).unwrap();
    // A worker's reads for these come after its reads for those.
    let mut reads = 0;
    while fetched(&mut client) < before + 4 {
        client.check(&[(&format!("GETRANGE k{} -1 -1", reads % KEYS), "x")]);
        reads += 1;
    }
    assert!(
        fetched(&mut client) - before <= reads as u64,
        "values were read for a request that waits"
    );
    client.check(&[("CLIENT UNPAUSE", "OK")]);
    exchange(&mut text, "", "STORED\r\n".repeat(KEYS));
    client.check(&[("STRLEN k0", &format!(":{}", LEN + 2))]);
}

#[test]
fn a_delayed_flush_waits_for_the_end_of_a_pause() {
    let server = Server::with("");
    let (mut text, mut client) = (server.memcached(), server.server.client());
    exchange(&mut text, "set a 0 0 1\r\nx\r\nflush_all 1\r\n", "STORED\r\nOK\r\n");
    client.check(&[("CLIENT PAUSE 1000000 WRITE", "OK")]);
    // The second of the server's timer in which the flush would have happened.
    let uptime = |client: &mut Client| {
        let info = client.call("INFO server");
        let line = info.lines().find_map(|line| line.strip_prefix("uptime_in_seconds:"));
        line.unwrap().parse::<u64>().unwrap()
    };
    let begin = uptime(&mut client);
    wait_until("its second is over", || uptime(&mut client) >= begin + 4);
    client.check(&[("EXISTS a", ":1"), ("CLIENT UNPAUSE", "OK")]);
    client.ask_until("EXISTS a", |reply| reply == ":0");
}
