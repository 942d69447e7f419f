//! HTTP requests that wait for the bucket or for the lease of its owner, without blocking others.

use std::time::Duration;

use tierce_harness::{Connection, TempDir, wait_until};

use super::lease::{Everything, start_briefly, to};
use super::{Away, info, start as start_with_bucket, stop};

/// Makes a request that is answered before its connection closes.
fn post(path: &str, body: &str) -> Vec<u8> {
    let len = body.len();
    let head = format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n");
    format!("{head}Content-Length: {len}\r\n\r\n{body}").into_bytes()
}

fn rest(mut c: Connection) -> String {
    String::from_utf8(c.rest()).expect("text")
}

#[test]
fn writes_over_http_wait_for_the_bucket_together_and_hold_nothing_up() {
    const WRITERS: usize = 24;
    let (bucket, dir) = (TempDir::new(), TempDir::new());
    let launch = start_with_bucket(dir.path(), &bucket).with("appendfsync", "bucket");
    let all = Everything::start(launch);
    let mut c = all.server.connect();
    c.check("CLIENT DURABILITY everysec", "+OK");
    let objects = |c: &mut Connection| {
        info(c, "bucket_last_object").parse::<u64>().expect("a number of objects")
    };
    let before = objects(&mut c);
    let away = Away::begin(&bucket);
    let mut writers: Vec<_> = (0..WRITERS)
        .map(|n| {
            let mut writer = to(all.http);
            writer.send(post(&format!("/set/k{n}/v"), ""));
            writer
        })
        .collect();
    let mut pipeline = to(all.http);
    pipeline.send(post("/pipeline", r#"[["SET","p1","v"],["GET","p1"],["SET","p2","v"]]"#));
    wait_until("all are executed", || c.ask("DBSIZE").to_string() == format!(":{}", WRITERS + 2));
    for path in ["healthz", "metrics", "get/k0"] {
        let mut reader = to(all.http);
        reader
            .send(format!("GET /{path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"));
        let answer = rest(reader);
        assert!(answer.starts_with("HTTP/1.1 200"), "{path}: {answer}");
    }
    for writer in writers.iter_mut().chain([&mut pipeline]) {
        assert!(writer.is_silent_for(Duration::from_millis(1)));
    }
    away.end();
    for writer in writers {
        let answer = rest(writer);
        assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("OK"), "{answer}");
    }
    let answer = rest(pipeline);
    assert!(answer.ends_with(r#"[{"result":"OK"},{"result":"v"},{"result":"OK"}]"#), "{answer}");
    // One put was in flight, and the next one has the others.
    let puts = objects(&mut c) - before;
    assert!(puts < 5, "{puts} objects for {WRITERS} writers");
    stop(all.server);
}

#[test]
fn a_request_over_http_waits_once_for_all_its_commands() {
    let (bucket, dir) = (TempDir::new(), TempDir::new());
    let all = Everything::start(start_briefly(&dir, &bucket));
    let mut c = all.server.connect();
    c.check("SET k v", "+OK");
    let away = Away::begin(&bucket);
    all.wait_for_end_of_lease();
    let mut pipeline = to(all.http);
    pipeline.send(post("/pipeline", r#"[["GET","k"],["SET","k","w"],["GET","k"],["GET","k"]]"#));
    let answer = rest(pipeline);
    assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("lease"), "{answer}");
    away.end();
    c.check("GET k", "\"w\"");
    stop(all.server);
}
