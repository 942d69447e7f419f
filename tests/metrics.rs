//! `/metrics`: the metrics for Prometheus, access control, and the cost of HTTP when it is off.

use std::fs;
use std::io::{Read, Write};
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use tierce_harness::{Both, Server, tls_config, tls_stream, wait_until};

use crate::launch;

/// Returns the response to a request for a path, with additional header lines.
fn get(http: &Both, path: &str, head: &str) -> String {
    let mut stream = http.connect();
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{head}Connection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("sent");
    let mut answer = Vec::new();
    // A server that has not read everything resets the connection after its response.
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

fn status(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or_default()
}

#[track_caller]
fn check_lines(page: &str, lines: &[&str]) {
    for line in lines {
        assert!(page.lines().any(|there| there == *line), "no {line} in {page}");
    }
}

#[test]
fn figures_have_the_names_of_redis_exporter() {
    let http = Both::start(launch(), "http-port");
    let mut c = http.server.connect();
    c.check("SET k v", "+OK");
    c.check("GET k", "\"v\"");
    c.check("GET absent", "nil");
    c.ask("INCR k");
    let page = get(&http, "/metrics", "");
    assert_eq!(status(&page), "200");
    assert!(page.contains("content-type: text/plain; version=0.0.4"), "{page}");
    check_lines(
        &page,
        &[
            "# TYPE redis_up gauge",
            "redis_up 1",
            "# TYPE redis_keyspace_hits_total counter",
            "redis_keyspace_misses_total 1",
            "redis_db_keys{db=\"db0\"} 1",
            "redis_commands_total{cmd=\"get\"} 2",
            "redis_commands_failed_calls_total{cmd=\"incr\"} 1",
            "redis_errors_total{err=\"ERR\"} 1",
            "redis_commands_latencies_usec_count{cmd=\"get\"} 2",
            "redis_commands_latencies_usec_bucket{cmd=\"get\",le=\"+Inf\"} 2",
            "redis_latency_percentiles_usec_count{cmd=\"set\"} 1",
            "redis_rdb_last_bgsave_status 1",
            "tierce_http_connections 1",
            "tierce_http_requests_total 1",
        ],
    );
    assert!(page.contains("tierce_memory_bytes{kind=\"entries\"} "), "{page}");
    assert!(page.contains("redis_instance_info{maxmemory_policy=\"noeviction\""), "{page}");
}

#[test]
fn every_family_is_there_once() {
    let http = Both::start(launch(), "http-port");
    let page = get(&http, "/metrics", "");
    let mut names: Vec<_> = page.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
    let all = names.len();
    assert!(all > 150, "{all} families");
    names.sort_unstable();
    names.dedup_by_key(|line| line.split(' ').next());
    assert_eq!(names.len(), all);
}

#[test]
fn a_token_is_for_metrics_alone() {
    let launch = launch().with("requirepass", "secret").with("http-metrics-token", "scraper");
    let http = Both::start(launch, "http-port");
    let bearer = |token: &str| format!("Authorization: Bearer {token}\r\n");
    for (path, head, expected) in [
        ("/metrics", String::new(), "401"),
        ("/metrics", bearer("scrape"), "401"),
        ("/metrics", bearer("scraper"), "200"),
        ("/metrics", bearer("secret"), "200"),
        ("/get/k", bearer("scraper"), "401"),
        ("/get/k", bearer("secret"), "200"),
    ] {
        assert_eq!(status(&get(&http, path, &head)), expected, "{path} {head}");
    }
    let mut c = http.server.connect();
    c.check("AUTH secret", "+OK");
    c.check("CONFIG SET http-metrics-token ''", "+OK");
    assert_eq!(status(&get(&http, "/metrics", &bearer("scraper"))), "401");
    assert_eq!(status(&get(&http, "/metrics", &bearer(""))), "401");
    let log = c.ask("SLOWLOG GET").to_string();
    assert!(!log.contains("scraper"), "{log}");
}

#[test]
fn a_token_is_guessed_no_faster_than_a_password() {
    let launch = launch().with("requirepass", "secret").with("http-metrics-token", "scraper");
    let http = Both::start(launch, "http-port");
    for _ in 0..12 {
        assert_eq!(status(&get(&http, "/metrics", "Authorization: Bearer wrong\r\n")), "401");
    }
    // Even the right token is checked later.
    let mut stream = http.connect();
    let request =
        "GET /metrics HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer scraper\r\n\r\n";
    stream.write_all(request.as_bytes()).expect("sent");
    stream.set_read_timeout(Some(Duration::from_millis(20))).expect("a socket");
    assert!(stream.read(&mut [0]).is_err(), "it waits");
    stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a socket");
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).expect("an answer");
    assert_eq!(&answer, b"HTTP/1.1 200");
}

#[test]
fn web_pages_see_no_metrics() {
    let http = Both::start(launch(), "http-port");
    let mut stream = http.connect();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n").expect("sent");
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).expect("received");
    assert_eq!(&answer, b"HTTP/1.1 421");
    for head in ["Origin: http://evil.example\r\n", "Sec-Fetch-Site: cross-site\r\n"] {
        assert_eq!(status(&get(&http, "/metrics", head)), "403", "{head}");
    }
}

#[test]
fn users_need_the_right_to_info() {
    let http = Both::start(launch().with("requirepass", "secret"), "http-port");
    let mut c = http.server.connect();
    c.check("AUTH secret", "+OK");
    c.check("ACL SETUSER reader on >word +get ~*", "+OK");
    c.check("ACL SETUSER watcher on >word +info", "+OK");
    let of = |user: &str| get(&http, "/metrics", &format!("Authorization: Bearer {user}:word\r\n"));
    assert_eq!(status(&of("reader")), "403");
    assert_eq!(status(&of("watcher")), "200");
}

#[test]
fn info_counts_clients_of_http() {
    let http = Both::start(launch(), "http-port");
    let mut open = http.connect();
    open.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("sent");
    assert!(open.read(&mut [0; 8]).is_ok_and(|read| read > 0));
    let info = http.server.connect().ask("INFO everything").text().to_owned();
    for line in ["http_clients:1", "http_connections_received:1", "http_requests:1"] {
        assert!(info.contains(&format!("{line}\r\n")), "no {line} in {info}");
    }
}

/// Returns the number of HTTP threads of a server.
fn http_threads(server: &Server) -> usize {
    let tasks = fs::read_dir(format!("/proc/{}/task", server.pid())).expect("the process");
    let name =
        |task: fs::DirEntry| fs::read_to_string(task.path().join("comm")).unwrap_or_default();
    tasks.flatten().map(name).filter(|name| name.starts_with("http")).count()
}

#[test]
fn without_a_port_there_is_no_thread() {
    let server = launch().start();
    assert_eq!(http_threads(&server), 0);
    let mut c = server.connect();
    let port = tierce_harness::free_port();
    c.check(&format!("CONFIG SET http-port {port}"), "+OK");
    // A thread sets its own name.
    wait_until("the thread is there", || http_threads(&server) == 1);
    c.check("CONFIG SET http-port 0", "+OK");
    // The kernel lists a thread for a moment after the join.
    wait_until("the thread is gone", || http_threads(&server) == 0);
}

/// Returns the response over an encrypted connection, or nothing.
fn encrypted(http: &Both, client: &Arc<ClientConfig>, path: &str) -> String {
    let address = ([127, 0, 0, 1], http.port).into();
    let mut stream = tls_stream(address, client);
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    let mut answer = Vec::new();
    if stream.write_all(request.as_bytes()).is_ok() {
        let _ = stream.read_to_end(&mut answer);
    }
    String::from_utf8(answer).expect("text")
}

#[test]
fn connections_are_encrypted_with_http_tls() {
    let launch = launch().with_certificates().with("http-tls", "yes");
    let http = Both::start(launch, "http-port");
    let mut c = http.server.connect();
    c.check("SET k v", "+OK");
    let client = tls_config(Some("client"));
    assert!(encrypted(&http, &client, "/get/k").ends_with("{\"result\":\"v\"}"));
    assert_eq!(status(&encrypted(&http, &client, "/metrics")), "200");
    // As for other ports, clients without a certificate are refused by default.
    let stranger = tls_config(None);
    assert_eq!(encrypted(&http, &stranger, "/healthz"), "");
    c.check("CONFIG SET tls-auth-clients no", "+OK");
    assert_eq!(status(&encrypted(&http, &stranger, "/healthz")), "200");
    let reply = c.ask("CONFIG SET tls-cert-file /nonexistent").to_string();
    assert!(reply.starts_with("-ERR"), "{reply}");
    assert_eq!(status(&encrypted(&http, &stranger, "/healthz")), "200");
    // Unencrypted requests are refused.
    assert!(!get(&http, "/healthz", "").contains("alive"));
    c.check("CONFIG SET http-tls no", "+OK");
    assert_eq!(status(&get(&http, "/healthz", "")), "200");
}

/// Half a handshake keeps a connection open for `http-timeout` at most.
#[test]
fn clients_that_do_not_shake_hands_are_closed() {
    let launch = launch().with_certificates().with("http-tls", "yes").with("http-timeout", "3");
    let http = Both::start(launch, "http-port");
    let mut stream = http.connect();
    stream.write_all(b"\x16\x03\x01").expect("sent");
    assert_eq!(stream.read(&mut [0; 8]).expect("the end"), 0);
    let info = http.server.connect().ask("INFO stats").text().to_owned();
    assert!(info.contains("http_connections_rejected:1\r\n"), "{info}");
}

#[test]
fn an_encrypted_port_needs_a_certificate() {
    let server = launch().start();
    let mut c = server.connect();
    let port = tierce_harness::free_port();
    let reply =
        c.ask(&format!("CONFIG SET http-tls yes tls-auth-clients no http-port {port}")).to_string();
    assert!(reply.contains("tls-cert-file is needed"), "{reply}");
    assert_eq!(http_threads(&server), 0);
}
