//! Sixteen independent databases.

use crate::{launch, server};

#[test]
fn a_connection_starts_in_the_first_and_selects_others() {
    let server = server();
    let mut c = server.connect();
    for db in 0..16 {
        c.check(&format!("SELECT {db}"), "+OK");
        c.check(&format!("SET db {db}"), "+OK");
    }
    for db in (0..16).rev() {
        c.check(&format!("SELECT {db}"), "+OK");
        c.check("GET db", &format!("\"{db}\""));
        c.check("DBSIZE", ":1");
    }
    server.connect().check("GET db", "\"0\"");
    c.check("SELECT 16", "-ERR DB index is out of range");
    c.check("SELECT -1", "-ERR DB index is out of range");
    c.check("SELECT x", "-ERR value is not an integer or out of range");
    c.check("GET db", "\"0\"");
}

#[test]
fn their_number_can_be_chosen() {
    let server = launch().with("databases", "2").start();
    let mut c = server.connect();
    c.check("SELECT 1", "+OK");
    c.check("SELECT 2", "-ERR DB index is out of range");
    c.check("CONFIG GET databases", "[\"databases\", \"2\"]");
}

#[test]
fn unused_ones_take_next_to_no_memory() {
    let resident = |databases: &str| {
        let server = launch().with("databases", databases).start();
        let mut c = server.connect();
        c.check(&format!("SELECT {}", databases.parse::<usize>().unwrap() - 1), "+OK");
        c.check("SET k 1", "+OK");
        assert!(c.ask("INFO keyspace").text().contains(":keys=1"));
        c.check("SELECT 0", "+OK");
        c.check("DBSIZE", ":0");
        server.resident_bytes()
    };
    let grown = resident("10000").saturating_sub(resident("16"));
    assert!(grown < 8 * 1024 * 1024, "{grown} bytes more");
}

#[test]
fn keys_move() {
    let server = server();
    let mut c = server.connect();
    c.check("SET k 1", "+OK");
    c.check("MOVE k 1", ":1");
    c.check("MOVE k 1", ":0");
    c.check("EXISTS k", ":0");
    c.check("SET k 2", "+OK");
    // The target has a key of this name.
    c.check("MOVE k 1", ":0");
    c.check("GET k", "\"2\"");
    c.check("MOVE k 0", "-ERR source and destination objects are the same");
    c.check("MOVE k 16", "-ERR DB index is out of range");
    c.check("MOVE k x", "-ERR value is not an integer or out of range");
    c.check("SELECT 1", "+OK");
    c.check("GET k", "\"1\"");
}

#[test]
fn copies_go_to_other_databases() {
    let server = server();
    let mut c = server.connect();
    c.check("SET k 1", "+OK");
    c.check("COPY k k", "-ERR source and destination objects are the same");
    c.check("COPY k k DB 1", ":1");
    c.check("COPY k k DB 1", ":0");
    c.check("SET k 2", "+OK");
    c.check("COPY k k DB 1 REPLACE", ":1");
    c.check("COPY k k DB 16", "-ERR DB index is out of range");
    c.check("SELECT 1", "+OK");
    c.check("GET k", "\"2\"");
    c.check("APPEND k x", ":2");
    c.check("SELECT 0", "+OK");
    c.check("GET k", "\"2\"");
}

/// All clients see the other data at once, even if they had selected the database before.
#[test]
fn databases_swap() {
    let server = server();
    let (mut zero, mut one) = (server.connect(), server.connect());
    one.check("SELECT 1", "+OK");
    zero.check("MSET where zero only0 1", "+OK");
    one.check("SET where one PXAT 99999999999999", "+OK");
    zero.check("SWAPDB 0 1", "+OK");
    zero.check("GET where", "\"one\"");
    zero.check("PEXPIRETIME where", ":99999999999999");
    zero.check("DBSIZE", ":1");
    one.check("GET where", "\"zero\"");
    one.check("DBSIZE", ":2");
    zero.check("SWAPDB 1 1", "+OK");
    zero.check("SWAPDB 0 16", "-ERR DB index is out of range");
    zero.check("SWAPDB x 1", "-ERR invalid first DB index");
    zero.check("SWAPDB 1 x", "-ERR invalid second DB index");
}

#[test]
fn flushing_one_or_all() {
    let server = server();
    let mut c = server.connect();
    let fill = |c: &mut tierce_harness::Connection| {
        for db in 0..3 {
            c.check(&format!("SELECT {db}"), "+OK");
            c.check("MSET a 1 b 2", "+OK");
        }
    };
    for mode in ["", " SYNC", " ASYNC"] {
        fill(&mut c);
        c.check(&format!("FLUSHDB{mode}"), "+OK");
        c.check("DBSIZE", ":0");
        c.check("SELECT 1", "+OK");
        c.check("DBSIZE", ":2");
        c.check(&format!("FLUSHALL{mode}"), "+OK");
        for db in 0..3 {
            c.check(&format!("SELECT {db}"), "+OK");
            c.check("DBSIZE", ":0");
        }
    }
    c.check("FLUSHDB NOSUCH", "-ERR syntax error");
    c.check("FLUSHALL SYNC SYNC", "-ERR syntax error");
}
