//! A store whose lists are not sorted by name, as with S3 Express, or lack objects that are put meanwhile, as may
//! happen with a directory.

use super::lab::{Lab, Objects, append, claim, entries, prune, run, snapshot};
use crate::group::find_gap;
use crate::record::log_name;
use crate::{Group, Moment, Owner, Right, Store, verify};

/// Returns a store whose name says that it is in S3 Express.
fn store() -> Store {
    let lab = Lab::new(Objects::new(), 1);
    lab.list_backwards();
    lab.store(0, "s3://name--use1-az4--x-s3/log", None)
}

#[test]
fn lists_of_s3_express_are_not_taken_for_ordered() {
    run(async {
        let store = store();
        for name in ["log/3", "log/1", "log/2", "log/1/of-another"] {
            store.ensure(name, Default::default()).await.expect("an object");
        }
        let listed = store.list("log", Some("3")).await.expect("a list");
        let names: Vec<_> = listed.iter().map(|item| &*item.name).collect();
        assert_eq!(names, ["log/1", "log/1/of-another", "log/2"]);
        let first = store.first_after("log", "log/1").await.expect("a list");
        assert_eq!(first.as_deref(), Some("log/2"));
    });
}

#[test]
fn an_object_that_a_list_lacks_is_not_lost() {
    run(async {
        let lab = Lab::new(Objects::new(), 1);
        let store = lab.store(0, "log", None);
        let mut owner = Owner::claim(&store, claim(1, Right::Orderly)).await.expect("an owner");
        for entry in ["a", "b"] {
            append(&mut owner, &[entry]).await.expect("an object");
        }
        lab.unlist(&format!("log/{}", log_name(2)));
        // 1 was the end when it was looked for.
        assert_eq!(find_gap(&store, 1, 1).await.expect("no gap"), None);
        store.delete(&[log_name(2)]).await.expect("deleted");
        let error = find_gap(&store, 1, 1).await.expect_err("a gap");
        assert!(error.to_string().contains("no lifecycle rule may delete"), "{error}");
    });
}

#[test]
fn a_log_in_s3_express_is_pruned_and_restored() {
    run(async {
        let store = store();
        let mut owner = Owner::claim(&store, claim(1, Right::Orderly)).await.expect("an owner");
        for entry in ["a", "b", "c"] {
            append(&mut owner, &[entry]).await.expect("an object");
        }
        let state = ["a", "b", "c"].map(str::to_owned);
        snapshot(&mut owner, &state).await.expect("a snapshot");
        append(&mut owner, &["d"]).await.expect("an object");
        assert_eq!(
            prune(&store).await.expect("pruned"),
            3,
            "all before the snapshot but the CLAIM"
        );
        let group = Group::open(&store).await.expect("the log");
        let found = entries(&group, Moment::Newest).await.expect("the data");
        assert_eq!(found, ["a", "b", "c", "d"]);
        verify(&group, |_| {}).await.expect("sound");
    });
}
