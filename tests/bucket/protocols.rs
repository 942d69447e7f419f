//! Writes over any protocol are in the bucket: a server with an empty directory gets all of them.

use tierce_harness::{Both, TempDir, free_port};

use super::{contents, kill, pedrokv_ask, start, stop, wait_for_snapshot, write_everything};
use crate::pedrokv::{DELETE, GET, PUT, request};

fn pedrokv_put(port: u16, key: &[u8], value: &[u8]) {
    assert_eq!(pedrokv_ask(port, &request(PUT, 1, key, value)).0, 0);
}

#[test]
fn an_empty_directory_gets_all_that_was_written_over_every_protocol() {
    let (bucket, first, second) = (TempDir::new(), TempDir::new(), TempDir::new());
    let pedrokv = free_port();
    let launch = start(first.path(), &bucket).with("pedrokv-port", &pedrokv.to_string());
    let both = Both::start(launch, "memcached-port");
    let mut c = both.server.connect();
    write_everything(&mut c, 1);
    pedrokv_put(pedrokv, b"of pedrokv", b"\0\r\n1");
    pedrokv_put(pedrokv, b"deleted", b"1");
    both.check(b"set item 77 0 5\r\nvalue\r\n", b"STORED\r\n");
    wait_for_snapshot(&mut c);
    // In the log after the snapshot.
    write_everything(&mut c, 2);
    pedrokv_put(pedrokv, b"later of pedrokv", &[255; 1000]);
    pedrokv_ask(pedrokv, &request(DELETE, 1, b"deleted", b""));
    both.check(b"set other 4294967295 0 5\r\nvalue\r\n", b"STORED\r\n");
    let expected = contents(&mut c);
    stop(both.server);
    let launch = start(second.path(), &bucket).with("pedrokv-port", &pedrokv.to_string());
    let both = Both::start(launch, "memcached-port");
    let mut c = both.server.connect();
    assert_eq!(contents(&mut c), expected);
    let get = |key: &[u8]| pedrokv_ask(pedrokv, &request(GET, 1, key, b""));
    assert_eq!(get(b"of pedrokv"), (0, b"\0\r\n1".to_vec()));
    assert_eq!(get(b"later of pedrokv"), (0, vec![255; 1000]));
    assert_eq!(get(b"deleted").0, 1);
    both.check(b"get item\r\n", b"VALUE item 77 5\r\nvalue\r\nEND\r\n");
    both.check(b"get other\r\n", b"VALUE other 4294967295 5\r\nvalue\r\nEND\r\n");
    c.check("FCALL f1 0", ":3");
    // The local log of the restored directory has everything, too.
    let expected = contents(&mut c);
    kill(both.server);
    let server = start(second.path(), &bucket).start();
    assert_eq!(contents(&mut server.connect()), expected);
}
