//! Values on disk (`maxmemory-policy spill`) are in the bucket like those in memory.

use tierce_harness::{Connection, TempDir};

use super::{contents, start, stop, wait_for_bucket, wait_for_snapshot};

#[test]
fn values_on_disk_are_in_the_bucket() {
    let (bucket, dir, other) = (TempDir::new(), TempDir::new(), TempDir::new());
    let server = start(dir.path(), &bucket)
        .with("maxmemory", "8mb")
        .with("maxmemory-policy", "spill")
        .start();
    let mut c = server.connect();
    for number in 0..1000 {
        let value = format!("{number}:{}", "v".repeat(10_000));
        c.request(&["SET", &format!("key:{number}"), &value]);
    }
    (0..1000).for_each(|_| c.expect("+OK"));
    check_spilled(&mut c, 50);
    wait_for_snapshot(&mut c);
    c.check("APPEND key:7 end", ":10005");
    stop(server);
    let server = start(other.path(), &bucket).start();
    let mut c = server.connect();
    for number in 0..1000 {
        let end = if number == 7 { "end" } else { "" };
        let value = format!("{number}:{}{end}", "v".repeat(10_000));
        assert_eq!(c.call(&["GET", &format!("key:{number}")]).text(), value);
    }
}

#[test]
fn values_on_disk_that_get_another_key_are_in_the_bucket() {
    let (bucket, dir, other) = (TempDir::new(), TempDir::new(), TempDir::new());
    let server = start(dir.path(), &bucket)
        .with("maxmemory", "10mb")
        .with("maxmemory-policy", "spill")
        .start();
    let mut c = server.connect();
    for number in 0..200 {
        c.request(&["SET", &format!("text:{number}"), &format!("{number}:{}", "v".repeat(10_000))]);
        c.request(&["RPUSH", &format!("list:{number}"), &"e".repeat(5_000), &number.to_string()]);
        c.request(&["HSET", &format!("hash:{number}"), "field", &"h".repeat(5_000)]);
    }
    (0..200).for_each(|_| ["+OK", ":2", ":1"].iter().for_each(|reply| c.expect(reply)));
    fill_memory(&mut c, "before");
    for number in 0..100 {
        c.request(&["RENAME", &format!("text:{number}"), &format!("renamed:{number}")]);
    }
    (0..100).for_each(|_| c.expect("+OK"));
    wait_for_snapshot(&mut c);
    // The snapshot has these, and some were written to after it.
    c.check("APPEND text:110 end", ":10007");
    c.check("RPUSH list:110 end", ":3");
    fill_memory(&mut c, "behind");
    for number in 0..200 {
        c.request(&["RENAME", &format!("list:{number}"), &format!("hash:{number}")]);
    }
    (0..200).for_each(|_| c.expect("+OK"));
    for number in 100..200 {
        c.request(&["MOVE", &format!("text:{number}"), "3"]);
    }
    (0..100).for_each(|_| c.expect(":1"));
    c.check("MULTI", "+OK");
    c.check("RENAME hash:7 once", "+QUEUED");
    c.check("RENAME once twice", "+QUEUED");
    c.check("PEXPIREAT twice 32503680000000", "+QUEUED");
    c.check("RPUSH twice more", "+QUEUED");
    c.ask("EXEC");
    let expected = contents(&mut c);
    wait_for_bucket(&mut c);
    stop(server);
    let server = start(other.path(), &bucket).start();
    assert_eq!(contents(&mut server.connect()), expected);
}

/// Writes so much that all earlier values go to disk, and removes it.
fn fill_memory(c: &mut Connection, name: &str) {
    for number in 0..1500 {
        c.request(&["SET", &format!("{name}:{number}"), &"f".repeat(20_000)]);
    }
    (0..1500).for_each(|_| c.expect("+OK"));
    for number in 0..1500 {
        c.request(&["DEL", &format!("{name}:{number}")]);
    }
    (0..1500).for_each(|_| c.expect(":1"));
    check_spilled(c, 200);
}

/// Checks that at least this number of values is on disk.
fn check_spilled(c: &mut Connection, count_min: u32) {
    let text = c.ask("INFO").text().to_owned();
    let spilled = text.lines().find_map(|line| line.strip_prefix("spilled_keys:"));
    let spilled: u32 = spilled.expect("spilled_keys").parse().expect("a number");
    assert!(spilled >= count_min, "{spilled} values are on disk");
}
