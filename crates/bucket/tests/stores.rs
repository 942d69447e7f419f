//! A log from its first record to a restore, in a directory and, run by `scripts/bucket`, in a real S3 server; and
//! every kind of damage to its objects.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use object_store::aws::AmazonS3Builder;
use object_store::{ClientOptions, RetryConfig};
use tierce_bucket::{
    Claim, Env, Error, Group, Item, Location, Moment, Outcome, Owner, Restore, Retention, Right,
    Store, System, Tuning, branch, list, probe, verify,
};
use tierce_harness::TempDir;

/// Returns more than one piece of data without long repetitions.
fn large() -> Vec<u8> {
    (0..9_000_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

fn claim(node: u8, right: Right) -> Claim {
    Claim {
        node: [node; 16],
        address: format!("node {node}"),
        takeover: false,
        lease: Duration::from_millis(20),
        margin: Duration::from_millis(5),
        right,
    }
}

fn open(url: &str) -> Store {
    Store::new(&Location::parse(url).expect(url))
}

fn run<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(future)
}

type Contents = (u64, Vec<u8>, Vec<Vec<u8>>);

/// Returns the position of the snapshot, its bytes, and all batches after it.
async fn contents(restore: &mut Restore) -> tierce_bucket::Result<Contents> {
    let (mut at, mut snapshot, mut all) = (0, Vec::new(), Vec::new());
    while let Some(item) = restore.next().await? {
        match item {
            Item::Snapshot { position, .. } => at = position,
            Item::Part(part) => snapshot.extend_from_slice(&part),
            Item::Batches { batches, .. } => all.extend(batches.iter().map(|b| b.to_vec())),
        }
    }
    Ok((at, snapshot, all))
}

async fn restored(store: &Store, moment: Moment) -> Contents {
    let group = Group::open(store).await.expect("the group");
    let mut restore = Restore::at(&group, moment).await.expect("a restore");
    let contents = contents(&mut restore).await.expect("all of it");
    restore.finish().await.expect("the pin");
    contents
}

/// Runs every operation of an owner, and the checks of a second owner.
async fn whole_life(url: &str) -> tierce_bucket::Result<()> {
    let store = open(url);
    probe(&store).await?;
    let large = large();
    let mut owner = Owner::claim(&store, claim(1, Right::Orderly)).await?;
    assert_eq!(owner.append(&[b"a", b""]).await?, Outcome::Committed(2));
    assert_eq!(owner.append(&[&large]).await?, Outcome::Committed(3));
    let mut upload = owner.begin_snapshot(3).await?;
    assert_eq!(owner.append(&[b"b"]).await?, Outcome::Committed(4));
    upload.write(&large).await?;
    upload.write(b"a").await?;
    let uploaded = upload.finish(b"description").await?;
    assert_eq!(owner.snapshot(uploaded).await?, Outcome::Committed(5));
    assert_eq!(owner.append(&[b"c"]).await?, Outcome::Committed(6));

    let ab = [b"a".to_vec(), Vec::new(), large.clone(), b"b".to_vec()];
    assert_eq!(restored(&store, Moment::Position(4)).await, (0, Vec::new(), ab.to_vec()));
    let (at, snapshot, later) = restored(&store, Moment::Newest).await;
    assert!(at == 3 && snapshot.len() == large.len() + 1 && snapshot.starts_with(&large));
    assert_eq!(later, [b"b", b"c"]);

    let refused = Owner::claim(&store, claim(2, Right::Orderly)).await.err().expect("refused");
    assert!(refused.to_string().contains("--bucket-claim force"), "{refused}");
    let mut second = Owner::claim(&store, claim(2, Right::Force)).await?;
    assert_eq!(second.before().number, 6);
    let deposed = owner.append(&[b"lost"]).await?;
    assert!(matches!(deposed, Outcome::Deposed { node, .. } if node == [2; 16]), "{deposed:?}");
    assert!(matches!(owner.append(&[b"lost"]).await, Err(Error::Deposed { .. })));

    let child = open(&format!("{url}-child"));
    let parent = Group::open(&store).await?;
    branch(&parent, Moment::Position(6), &child).await?;
    assert!(Owner::claim(&child, claim(3, Right::Orderly)).await?.append(&[b"d"]).await.is_ok());
    let (at, _, later) = restored(&child, Moment::Newest).await;
    assert!(at == 3 && later == [b"b", b"c", b"d"], "{at} {later:?}");

    let deletion = second.prune(Retention { keep: Duration::ZERO }).await?.expect("a snapshot");
    assert_eq!((deletion.floor, deletion.below), (4, 4));
    while System.boottime() < deletion.not_before {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // Records 2 and 3 with the pieces of 3; the CLAIM stays.
    assert_eq!(second.delete(&deletion).await?, 2 + 3);
    let lost = Restore::at(&Group::open(&store).await?, Moment::Position(2)).await.err();
    assert!(matches!(lost, Some(Error::History(_))), "{lost:?}");
    assert_eq!(restored(&store, Moment::Newest).await.2, [b"b", b"c"]);
    second.release().await?;

    let group = Group::open(&store).await?;
    let verified = verify(&group, |_| {}).await?;
    assert_eq!((verified.records, verified.snapshots), (5, 1));
    let history = list(&group).await?;
    let claims: Vec<_> = history.claims.iter().map(|claim| claim.number).collect();
    assert_eq!(
        (claims.as_slice(), history.snapshots.len(), history.pins.len()),
        (&[7, 1][..], 1, 1)
    );
    Owner::claim(&store, claim(3, Right::Orderly)).await.map(drop)
}

#[test]
fn a_whole_life_in_a_directory() {
    let dir = TempDir::new();
    run(whole_life(&format!("file://{}/log", dir.path().display()))).expect("a life");
}

#[test]
#[ignore = "needs a server of S3: scripts/bucket"]
fn a_whole_life_in_a_real_store() {
    let url = std::env::var("TIERCE_TEST_BUCKET").expect("TIERCE_TEST_BUCKET");
    run(whole_life(&url)).expect("a life");
}

#[test]
#[ignore = "needs a server of S3: scripts/bucket"]
fn a_bucket_that_is_not_there_is_an_error() {
    let url = std::env::var("TIERCE_TEST_BUCKET").expect("TIERCE_TEST_BUCKET");
    let store = open(&url.replacen("s3://", "s3://no-", 1));
    let probed = run(probe(&store)).expect_err("no bucket").to_string();
    assert!(probed.contains("NoSuchBucket"), "{probed}");
    assert!(run(Group::open(&store)).is_err(), "an absent bucket is no empty log");
}

/// A small log in a directory: a CLAIM, two batches, a snapshot, a batch.
fn small_log(dir: &Path, name: &str) -> PathBuf {
    let root = dir.join(name);
    run(async {
        let store = open(&format!("file://{}", root.display()));
        let mut owner = Owner::claim(&store, claim(1, Right::Orderly)).await.expect("claim");
        owner.append(&[b"first"]).await.expect("append");
        owner.append(&[&[7; 300]]).await.expect("append");
        let mut upload = owner.begin_snapshot(2).await.expect("upload");
        upload.write(b"the state after the first").await.expect("write");
        let uploaded = upload.finish(b"").await.expect("finish");
        owner.snapshot(uploaded).await.expect("snapshot");
        owner.append(&[b"last"]).await.expect("append");
    });
    root
}

fn files(root: &Path, folder: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root.join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() { folders.push(path) } else { found.push(path) }
        }
    }
    found.sort();
    found
}

/// Opens, restores and verifies. Returns the first error, or the restored content.
fn read_all(root: &Path) -> Result<Contents, Error> {
    run(async {
        let store = open(&format!("file://{}", root.display()));
        let group = Group::open(&store).await?;
        let mut restore = Restore::newest(&group).await?;
        let contents = contents(&mut restore).await?;
        restore.finish().await?;
        verify(&group, |_| {}).await?;
        Ok(contents)
    })
}

#[test]
fn a_changed_byte_anywhere_is_found_and_named() {
    let dir = TempDir::new();
    let root = small_log(dir.path(), "log");
    assert_eq!(read_all(&root).expect("undamaged").0, 2);
    for file in files(&root, "log").into_iter().chain(files(&root, "snapshot")) {
        let good = fs::read(&file).expect("an object");
        let name = file.strip_prefix(&root).expect("below").display().to_string();
        for at in (0..good.len()).step_by(3) {
            let mut bad = good.clone();
            bad[at] ^= 1 << (at % 8);
            fs::write(&file, &bad).expect("damage");
            let error = read_all(&root).expect_err(&name).to_string();
            assert!(error.contains(&name), "{name} at {at}: {error}");
        }
        for len in [0, 1, good.len() / 2, good.len() - 1] {
            fs::write(&file, &good[..len]).expect("damage");
            let error = read_all(&root).expect_err(&name).to_string();
            assert!(error.contains(&name), "{name} cut to {len}: {error}");
        }
        fs::write(&file, &good).expect("repair");
    }
    assert_eq!(read_all(&root).expect("repaired").2.len(), 2);
}

#[test]
fn objects_that_are_missing_or_elsewhere_are_found() {
    let dir = TempDir::new();
    let root = small_log(dir.path(), "log");
    let other = small_log(dir.path(), "other");
    let log = files(&root, "log");
    let theirs = files(&other, "log");
    let good: Vec<Vec<u8>> = log.iter().map(|file| fs::read(file).expect("an object")).collect();
    for (at, file) in log.iter().enumerate() {
        let name = file.strip_prefix(&root).expect("below").display().to_string();
        // An object of another log, and one of another number in the same log.
        for wrong in
            [fs::read(&theirs[at]).expect("an object"), good[(at + 1) % good.len()].clone()]
        {
            fs::write(file, wrong).expect("damage");
            let error = read_all(&root).expect_err(&name).to_string();
            // At the end of the log, the first mismatch is with the objects that it refers to.
            let is_end = at + 1 == log.len();
            assert!(
                error.contains(&name) || is_end && error.contains("another log"),
                "{name}: {error}"
            );
        }
        fs::write(file, &good[at]).expect("repair");
    }
    for file in files(&root, "snapshot").into_iter().chain(log[2..log.len() - 1].to_vec()) {
        let bytes = fs::read(&file).expect("an object");
        let name = file.strip_prefix(&root).expect("below").display().to_string();
        fs::remove_file(&file).expect("damage");
        let error = read_all(&root).expect_err(&name).to_string();
        assert!(error.contains(&name) && error.contains("missing"), "{error}");
        fs::write(&file, bytes).expect("repair");
    }
    read_all(&root).expect("repaired");
}

#[test]
fn a_newer_version_is_refused_and_nothing_is_written() {
    let dir = TempDir::new();
    let root = small_log(dir.path(), "log");
    let last = files(&root, "log").pop().expect("a log");
    let mut bytes = fs::read(&last).expect("an object");
    bytes[8] = 2;
    fs::write(&last, bytes).expect("a newer one");
    let before = files(&root, "").len();
    let error = run(async {
        let store = open(&format!("file://{}", root.display()));
        Owner::claim(&store, claim(1, Right::Force)).await.err().expect("refused")
    });
    assert!(error.to_string().contains("Use a newer Tierce"), "{error}");
    assert_eq!(files(&root, "").len(), before);
}

#[test]
fn a_piece_that_the_store_does_not_take_is_trouble_like_any_append() {
    let dir = TempDir::new();
    run(async {
        let store = open(&format!("file://{}", dir.path().display()));
        let mut owner = Owner::claim(&store, claim(1, Right::Orderly)).await.expect("claimed");
        let progress = Arc::clone(owner.progress());
        dir.write("blob", "no directory");
        let payload = large();
        let batches = [payload.as_slice()];
        let mut append = pin!(owner.append(&batches));
        while progress.trouble().is_none() {
            let poll = tokio::time::timeout(Duration::from_millis(10), append.as_mut()).await;
            assert!(poll.is_err(), "it cannot end: {poll:?}");
        }
        let error = progress.trouble().expect("seen above").error;
        assert!(error.contains("blob/"), "{error}");
        fs::remove_file(dir.path().join("blob")).expect("removed");
        assert_eq!(append.await.expect("appended"), Outcome::Committed(2));
        assert_eq!(progress.trouble(), None);
    });
}

#[test]
fn a_place_in_a_folder_of_another_log_is_refused_and_harms_nothing() {
    let dir = TempDir::new();
    let root = small_log(dir.path(), "outer");
    let before = files(&root, "");
    run(async {
        let outer = open(&format!("file://{}", root.display()));
        let group = Group::open(&outer).await.expect("the outer log");
        for inner in ["log", "log/x", "floor", "pins", "snapshot/a/b", "blob", "probe"] {
            let inner = open(&format!("file://{}/{inner}", root.display()));
            for refused in
                [probe(&inner).await.err(), branch(&group, Moment::Newest, &inner).await.err()]
            {
                let text = refused.expect("refused").to_string();
                assert!(text.contains("of another log"), "{text}");
            }
        }
        // Such names are accepted if no log is around them.
        let beside = open(&format!("file://{}/log", dir.path().display()));
        probe(&beside).await.expect("a place");
    });
    assert_eq!(files(&root, ""), before);
}

#[test]
fn a_log_that_was_begun_in_a_folder_of_another_one_is_none_of_its_objects() {
    let dir = TempDir::new();
    let root = small_log(dir.path(), "outer");
    for folder in ["log", "floor", "pins"] {
        let place = root.join(folder);
        fs::create_dir_all(&place).expect("a folder");
        small_log(&place, "inner");
        fs::rename(place.join("inner/log"), place.join("log")).expect("moved");
        fs::write(place.join("log/pins"), "").expect("written");
    }
    assert_eq!(read_all(&root).expect("undamaged").0, 2);
    run(async {
        let outer = open(&format!("file://{}", root.display()));
        let mut owner = Owner::claim(&outer, claim(1, Right::Force)).await.expect("claim");
        owner.append(&[b"more"]).await.expect("append");
        let history = list(owner.group()).await.expect("a list");
        assert_eq!(history.pins, []);
    });
}

#[test]
fn what_is_in_the_way_of_an_append_is_told_and_the_batch_is_not_repeated() {
    let dir = TempDir::new();
    let root = small_log(dir.path(), "log");
    run(async {
        let store = open(&format!("file://{}", root.display()));
        let mut owner = Owner::claim(&store, claim(1, Right::Force)).await.expect("claim");
        let number = owner.group().end().number + 1;
        let object = root.join(format!("log/{number:020}"));
        fs::write(&object, "of somebody else").expect("written");
        let progress = Arc::clone(owner.progress());
        for _ in 0..2 {
            let blocked = owner.append(&[b"once"]).await;
            assert!(matches!(blocked, Err(Error::Damaged { .. })), "{blocked:?}");
            let trouble = progress.trouble().expect("it is told");
            assert!(trouble.error.contains(&format!("log/{number:020}")), "{}", trouble.error);
            assert!(progress.is_blocked());
        }
        fs::remove_file(&object).expect("removed");
        let settled = owner.settle().await.expect("settled");
        assert_eq!(settled, Some(Outcome::Committed(number)));
        assert!(progress.trouble().is_none() && !progress.is_blocked());
        assert_eq!(owner.settle().await.expect("settled"), None);
        owner.release().await.expect("released");
        let (_, _, batches) = restored(&store, Moment::Newest).await;
        assert_eq!(batches.iter().filter(|batch| **batch == b"once").count(), 1);
    });
}

#[test]
fn an_owner_that_cannot_append_finds_out_that_it_was_succeeded() {
    let dir = TempDir::new();
    let root = small_log(dir.path(), "log");
    run(async {
        let store = open(&format!("file://{}", root.display()));
        let mut owner = Owner::claim(&store, claim(1, Right::Force)).await.expect("claim");
        assert_eq!(owner.look().await.expect("a look"), None);
        Owner::claim(&store, claim(2, Right::Force)).await.expect("claim");
        let looked = owner.look().await.expect("a look");
        assert!(
            matches!(looked, Some(Outcome::Deposed { node, .. }) if node == [2; 16]),
            "{looked:?}"
        );
        assert!(owner.lease().is_deposed());
        assert!(matches!(owner.append(&[b"late"]).await, Err(Error::Deposed { .. })));
    });
}

/// Returns an S3 store that gives this answer to every request.
fn answering(answer: &'static str) -> (Store, Arc<AtomicU64>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let endpoint = format!("http://{}", listener.local_addr().expect("its address"));
    let requests = Arc::<AtomicU64>::default();
    let counted = Arc::clone(&requests);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.expect("a connection"));
            let (mut line, mut len) = (String::new(), 0);
            while stream.read_line(&mut line).is_ok_and(|read| read > 2) {
                let lower = line.to_ascii_lowercase();
                if let Some(value) = lower.strip_prefix("content-length:") {
                    len = value.trim().parse().expect("a length");
                }
                line.clear();
            }
            let mut body = vec![0; len];
            let _ = stream.read_exact(&mut body);
            counted.fetch_add(1, Relaxed);
            let _ = stream.get_mut().write_all(answer.as_bytes());
        }
    });
    let _ = rustls::crypto::ring::default_provider().install_default();
    let store = AmazonS3Builder::new()
        .with_bucket_name("Not_A_Name")
        .with_region("us-east-1")
        .with_access_key_id("key")
        .with_secret_access_key("not-a-secret")
        .with_endpoint(endpoint)
        .with_client_options(ClientOptions::new().with_allow_http(true))
        .with_retry(RetryConfig { max_retries: 0, ..RetryConfig::default() })
        .build();
    let inner = Arc::new(store.expect("a client"));
    let (prefix, env) = (object_store::path::Path::default(), Arc::new(System));
    (Store::with(inner, prefix, "s3://Not_A_Name", env, Tuning::default()), requests)
}

/// The first request of a start.
#[test]
fn a_store_that_refuses_for_good_is_asked_once() {
    let body = "<Error><Code>InvalidBucketName</Code><Message>The specified bucket is not valid.</Message></Error>";
    for status in ["400 Bad Request", "403 Forbidden", "404 Not Found"] {
        let answer = format!(
            "HTTP/1.1 {status}\r\nContent-Type: application/xml\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        );
        let (store, requests) = answering(answer.leak());
        let error = run(probe(&store)).expect_err("refused").to_string();
        assert!(error.contains("InvalidBucketName"), "{status}: {error}");
        // The puts of the probe, a get and a delete.
        assert!(requests.load(Relaxed) <= 66, "{status}: {requests:?}");
        let last = store.counters().last_failure();
        assert!(status.starts_with("404") || last.is_some(), "{status}");
    }
}
