//! Damaged or missing objects of the log: starts and restores refuse them by name.

use std::fs;
use std::os::unix::fs::symlink;
use std::thread;

use tierce_harness::{TempDir, free_port, wait_until};

use super::{objects, refused, start, stop, text, tool, url, wait_for_bucket};

#[test]
fn objects_that_are_not_what_they_were_are_refused_by_name() {
    let (bucket, dir, of_other) = (TempDir::new(), TempDir::new(), TempDir::new());
    let server = start(dir.path(), &bucket).start();
    let mut c = server.connect();
    c.check("CLIENT DURABILITY bucket", "+OK");
    for number in 0..10 {
        c.check(&format!("SET key:{number} value"), "+OK");
    }
    stop(server);
    let other_dir = TempDir::new();
    let server = start(other_dir.path(), &of_other).start();
    let mut c = server.connect();
    c.check("CLIENT DURABILITY bucket", "+OK");
    (0..10).for_each(|number| c.check(&format!("SET key:{number} other"), "+OK"));
    stop(server);

    let paths = objects(&bucket);
    let (fifth, sixth) = (&paths[4], &paths[5]);
    let name = fifth.file_name().expect("a name").to_string_lossy().into_owned();
    let bytes = fs::read(fifth).expect("an object");
    let attempt = |what: &str| {
        let empty = TempDir::new();
        let error = refused(&start(empty.path(), &bucket).with("port", &free_port().to_string()));
        assert!(error.contains(&name), "{what}: {error}");
        let left: Vec<_> = fs::read_dir(empty.path())
            .expect("it is there")
            .flatten()
            .map(|entry| entry.file_name())
            .collect();
        assert!(left.iter().all(|name| name.to_string_lossy().starts_with("bucket.")), "{left:?}");
        let pins = fs::read_dir(bucket.path().join("pins")).map_or(0, Iterator::count);
        assert_eq!(pins, 0, "{what}: the restore needs nothing any more");
        // The failed start has released its claim, so the next one needs no force.
        fs::read(sixth).expect("untouched")
    };
    for at in [20, bytes.len() - 1] {
        let mut flipped = bytes.clone();
        flipped[at] ^= 4;
        fs::write(fifth, flipped).expect("written");
        attempt("a flipped bit");
    }
    fs::write(fifth, &bytes[..bytes.len() - 7]).expect("written");
    attempt("cut off");
    fs::write(fifth, fs::read(sixth).expect("an object")).expect("written");
    attempt("swapped");
    fs::copy(&objects(&of_other)[4], fifth).expect("copied");
    attempt("of another prefix");
    fs::write(fifth, &bytes).expect("written");
    let empty = TempDir::new();
    let server = start(empty.path(), &bucket).start();
    server.connect().check("DBSIZE", ":10");
}

#[test]
fn an_object_that_is_missing_is_refused_by_name() {
    let (bucket, dir) = (TempDir::new(), TempDir::new());
    let server = start(dir.path(), &bucket).start();
    let mut c = server.connect();
    for number in 0..10 {
        c.check(&format!("SET key:{number} value"), "+OK");
        wait_for_bucket(&mut c);
    }
    stop(server);
    let paths = objects(&bucket);
    let name = paths[4].file_name().expect("a name").to_string_lossy().into_owned();
    let bytes = fs::read(&paths[4]).expect("an object");
    fs::remove_file(&paths[4]).expect("removed");
    let empty = TempDir::new();
    let restored = empty.path().join("restored");
    let (code, _, error) = tool(&["restore", "--bucket", &url(&bucket), "--dir", text(&restored)]);
    assert!(code == 2 && error.contains(&name), "{error}");
    let server = start(empty.path(), &bucket).with("port", &free_port().to_string());
    let error = refused(&server);
    assert!(error.contains(&name), "{error}");
    fs::write(&paths[4], bytes).expect("written");
    let empty = TempDir::new();
    let server = start(empty.path(), &bucket).start();
    server.connect().check("DBSIZE", ":10");
}

/// A store may lose data in a crash of its own. It then refuses to create an object that it does not have.
#[test]
fn a_start_says_that_the_store_contradicts_itself_and_goes_on_when_it_does_not() {
    let (bucket, dir) = (TempDir::new(), TempDir::new());
    let server = start(dir.path(), &bucket).start();
    let mut c = server.connect();
    c.check("SET key value", "+OK");
    wait_for_bucket(&mut c);
    stop(server);
    let last = objects(&bucket).pop().expect("a log");
    let name = last.file_name().expect("a name").to_string_lossy();
    let next = last.with_file_name(format!("{:020}", name.parse::<u64>().expect("a number") + 1));
    symlink(dir.path().join("nothing"), &next).expect("a name for nothing");
    let log = dir.path().join("log");
    let launch = start(dir.path(), &bucket).with("logfile", text(&log));
    let starting = thread::spawn(move || launch.start());
    wait_until("it says so", || {
        let told = fs::read_to_string(&log).unwrap_or_default();
        told.contains("the store says that it is there, and does not find it")
    });
    fs::remove_file(&next).expect("it is there");
    starting.join().expect("it starts").connect().check("GET key", "\"value\"");
}
