//! An owner of a log in a bucket whose local log fails: changes that were not acknowledged to a client are not in the
//! bucket, and the next start knows that.

use std::fs;
use std::sync::Arc;

use tierce_storage::disk::SimDisk;

use crate::operations::support::TestServer;

#[test]
fn what_the_local_log_has_refused_comes_with_a_base_after_an_orderly_end() {
    let (disk, places) = (SimDisk::new(1), tierce_harness::TempDir::new());
    let [dir, bucket] = ["data", "bucket"].map(|name| places.path().join(name));
    fs::create_dir(&bucket).unwrap();
    let options = format!(
        "--dir {} --appendonly yes --appendfsync always --bucket file://{} --bucket-interval 20",
        dir.display(),
        bucket.display()
    );
    let released = || {
        let state = fs::read_to_string(dir.join("bucket.state")).unwrap();
        state.lines().find_map(|line| line.strip_prefix("released ")).unwrap().to_owned()
    };
    drop(TestServer::on_disk(Arc::new(disk.clone()), &options));
    assert_ne!(released(), "-", "an orderly end");
    let server = TestServer::on_disk(Arc::new(disk.clone()), &options);
    let mut client = server.client();
    disk.set_capacity(Some(disk.used()));
    let value = "v".repeat(100_000);
    let is_refused = (0..10_000).any(|number| {
        client.send(&format!("SET k{number} {value}"));
        client.next() != "OK"
    });
    assert!(is_refused, "the disk never failed");
    drop(server);
    assert_eq!(released(), "-");
}
