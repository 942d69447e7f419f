//! HyperLogLogs, equal to those of Redis byte for byte.

use tierce_harness::Reply;

use crate::server;

#[test]
fn strings_are_those_of_redis() {
    let server = server();
    for mut c in [server.connect(), server.connect_resp3()] {
        c.check("FLUSHALL", "+OK");
        c.check("PFADD h a b c", ":1");
        c.check("PFADD h a", ":0");
        c.check("PFDEBUG DECODE h", "\"Z:8436 v:1,1 Z:4274 v:2,1 Z:3068 v:1,1 Z:603\"");
        c.check("PFCOUNT h", ":3");
        c.check("OBJECT ENCODING h", "\"raw\"");
        let expected = b"HYLL\x01\0\0\0\x03\0\0\0\0\0\0\0`\xf3\x80P\xb1\x84K\xfb\x80BZ";
        assert_eq!(c.ask("GET h"), Reply::Bulk(expected.to_vec()));
        c.check("PFADD empty", ":1");
        c.check("PFADD empty", ":0");
        c.check("PFCOUNT empty none", ":0");
        c.check("PFADD other c d", ":1");
        c.check("PFCOUNT h other", ":4");
        c.check("PFMERGE h other none", "+OK");
        c.check("PFCOUNT h", ":4");
        c.check("PFDEBUG TODENSE h", ":1");
        c.check("PFDEBUG TODENSE h", ":0");
        c.check("PFDEBUG ENCODING h", "+dense");
        c.check("STRLEN h", ":12304");
        c.check("PFCOUNT h", ":4");
        c.check("PFADD h a d", ":0");
        c.check("PFADD h e", ":1");
        c.check("PFCOUNT h", ":5");
        c.check("PFSELFTEST", "+OK");
    }
}

#[test]
fn many_elements_become_dense() {
    let server = server();
    let mut c = server.connect();
    for from in (0..10_000).step_by(100) {
        let elements: Vec<String> = (from..from + 100).map(|at| format!("element:{at}")).collect();
        let call: Vec<&str> =
            ["PFADD", "h"].into_iter().chain(elements.iter().map(|e| &**e)).collect();
        c.call(&call);
    }
    // Estimate of Redis for the same elements.
    c.check("PFCOUNT h", ":10017");
    c.check("PFDEBUG ENCODING h", "+dense");
}

#[test]
fn the_configuration_says_from_when_on_they_are_dense() {
    let server = server();
    let mut c = server.connect();
    for (bytes_max, len) in [(3000, ":186"), (100, ":12304")] {
        c.check(&format!("CONFIG SET hll-sparse-max-bytes {bytes_max}"), "+OK");
        c.check("DEL h", &format!(":{}", i32::from(bytes_max == 100)));
        (1..=60)
            .for_each(|number| assert_eq!(c.ask(&format!("PFADD h e{number}")).to_string(), ":1"));
        // Number of bytes in Redis.
        c.check("STRLEN h", len);
    }
}

#[test]
fn what_is_no_counter_is_refused() {
    let server = server();
    let mut c = server.connect();
    c.check("SET s text", "+OK");
    c.check("PFADD s a", "-WRONGTYPE Key is not a valid HyperLogLog string value.");
    c.check("PFCOUNT s", "-WRONGTYPE Key is not a valid HyperLogLog string value.");
    c.check("PFMERGE d s", "-WRONGTYPE Key is not a valid HyperLogLog string value.");
    // It is marked as sparse, and has too few registers.
    c.call(&[&b"SET"[..], b"s", b"HYLL\x01\0\0\0\0\0\0\0\0\0\0\x80\x7f\xfe"]);
    c.check("PFCOUNT s", "-INVALIDOBJ Corrupted HLL object detected");
    c.check("PFDEBUG GETREG none", "-ERR The specified key does not exist");
    c.check("PFDEBUG NOSUCH s", "-ERR Unknown PFDEBUG subcommand 'NOSUCH'");
}
