//! Damages every object of a small log and its branch: missing, truncated, with a flipped bit, under another object's
//! name, of another log, of absurd size; or with valid checksums and absurd fields.
//!
//! Every operation must return an error, or the correct data. It must not panic, and must come to an end.

use bytes::Bytes;
use tierce_harness::effort;
use tokio::time::{Duration, timeout};

use super::lab::{Lab, Objects, append, claim, entries, prune, run, snapshot};
use crate::record::{HEADER_LEN, Record, hash, log_name};
use crate::{Error, Group, Moment, Outcome, Owner, Retention, Right, branch, list, verify};

const LARGE: &str =
    "an entry in two pieces: 0123456789 abcdefghijklmnopqrstuvwxyz 9876543210 zyxwvutsrqponm";

/// Creates a log: CLAIM, a, LARGE, SNAPSHOT at 3, b, LARGE, CLAIM, c, SNAPSHOT at 8, d; pruned to 9, except for the
/// objects that the branch at 5 needs. In the branch: BRANCH, CLAIM, e.
async fn make(lab: &Lab) -> crate::Result<()> {
    let store = lab.store(0, "log", None);
    let mut owner = Owner::claim(&store, claim(1, Right::Orderly)).await?;
    append(&mut owner, &["a"]).await?;
    append(&mut owner, &[LARGE]).await?;
    snapshot(&mut owner, &texts(&["a", LARGE])).await?;
    append(&mut owner, &["b"]).await?;
    let child = lab.store(0, "child", None);
    branch(&Group::open(&store).await?, Moment::Newest, &child).await?;
    append(&mut owner, &[LARGE]).await?;
    let mut owner = Owner::claim(&store, claim(2, Right::Force)).await?;
    append(&mut owner, &["c"]).await?;
    snapshot(&mut owner, &texts(&["a", LARGE, "b", LARGE, "c"])).await?;
    append(&mut owner, &["d"]).await?;
    prune(&store).await?;
    let mut owner = Owner::claim(&child, claim(3, Right::Orderly)).await?;
    append(&mut owner, &["e"]).await?;
    Ok(())
}

fn texts(entries: &[&str]) -> Vec<String> {
    entries.iter().map(|&entry| entry.to_owned()).collect()
}

fn undamaged() -> Objects {
    run(async {
        let lab = Lab::new(Objects::new(), 1);
        make(&lab).await.expect("a log");
        lab.objects()
    })
}

/// Returns the entries at a position.
fn truth(url: &str, position: u64) -> Vec<String> {
    let all = match url {
        "log" => vec![(2, "a"), (3, LARGE), (5, "b"), (6, LARGE), (8, "c"), (10, "d")],
        _ => vec![(0, "a"), (0, LARGE), (0, "b"), (3, "e")],
    };
    let before = all.into_iter().filter(|(number, _)| *number <= position);
    before.map(|(_, entry)| entry.to_owned()).collect()
}

/// Restores moments of a log. The returned data must be correct.
async fn restore_all(lab: &Lab, url: &str) -> crate::Result<()> {
    let group = Group::open(&lab.store(0, url, None)).await?;
    let end = group.end().number;
    let mut outcome = Ok(());
    for moment in
        [Moment::Newest, Moment::Position(5), Moment::Position(end), Moment::Time(1 << 60)]
    {
        let position = match moment {
            Moment::Position(position) => position,
            _ => end,
        };
        match entries(&group, moment).await {
            Ok(found) => assert_eq!(found, truth(url, position), "{url} at {moment:?}"),
            Err(Error::History(_)) if matches!(moment, Moment::Position(5)) => {}
            Err(error) => outcome = Err(error),
        }
    }
    outcome
}

/// Runs every read operation, and then every write operation. Returns the first error of each kind.
async fn try_all(lab: &Lab) -> Vec<crate::Result<()>> {
    let mut outcomes = Vec::new();
    for url in ["log", "child"] {
        outcomes.push(restore_all(lab, url).await);
        let store = lab.store(0, url, None);
        outcomes.push(
            async {
                let group = Group::open(&store).await?;
                list(&group).await?;
                verify(&group, |_| {}).await.map(drop)
            }
            .await,
        );
    }
    let store = lab.store(0, "log", None);
    outcomes.push(
        async {
            let mut owner = Owner::claim(&store, claim(3, Right::Force)).await?;
            let number = owner.group().end().number;
            // A process that goes on knows the state before its claim.
            let state = entries(owner.group(), Moment::Newest).await?;
            assert_eq!(state, truth("log", number - 1));
            let outcome = append(&mut owner, &["new"]).await?;
            assert_eq!(outcome, Outcome::Committed(number + 1));
            snapshot(&mut owner, &state).await?;
            match owner.prune(Retention::default()).await? {
                Some(deletion) => owner.delete(&deletion).await.map(drop),
                None => Ok(()),
            }
        }
        .await,
    );
    outcomes
}

/// Runs all of that with damaged objects. Returns true if an error was found.
fn found(what: &str, objects: Objects) -> bool {
    !errors(what, objects).is_empty()
}

/// Returns the errors, each of which names an object.
fn errors(what: &str, objects: Objects) -> Vec<Error> {
    let outcomes = run(async {
        let lab = Lab::new(objects, 1);
        let tried = timeout(Duration::from_secs(10_000), try_all(&lab)).await;
        tried.unwrap_or_else(|_| panic!("{what}: no end"))
    });
    let errors: Vec<Error> = outcomes.into_iter().filter_map(Result::err).collect();
    for error in &errors {
        let text = error.to_string();
        let names = ["log", "blob/", "snapshot/", "floor/", "pins/"];
        assert!(names.iter().any(|name| text.contains(name)), "{what}: {text}");
    }
    errors
}

/// Returns true if a log needs this object, and reads its content.
fn is_needed(name: &str) -> bool {
    // Only the name of the floor counts. Records 6 and 8 lie after the branch and below the floor.
    let spared = [log_name(6), log_name(8), "blob/00000000000000000006".into(), "floor/".into()];
    !spared.iter().any(|spared| name.starts_with(&format!("log/{spared}")))
}

#[test]
fn a_missing_object_is_found_unless_it_is_the_last() {
    let good = undamaged();
    let errors = errors("nothing", good.clone());
    assert!(errors.is_empty(), "{errors:?}");
    for name in good.keys() {
        let mut objects = good.clone();
        objects.remove(name);
        let is_last = *name == format!("log/{}", log_name(10)) || name.starts_with("child/log/");
        let is_pin = name.contains("/pins/");
        let is_found = found(name, objects);
        assert!(is_found || is_last || is_pin || !is_needed(name), "{name}");
    }
}

#[test]
fn a_changed_or_cut_object_is_found() {
    let good = undamaged();
    for (name, object) in &good {
        let changed = (0..object.len()).step_by(7).map(|at| {
            let mut bytes = object.to_vec();
            bytes[at] ^= 1 << (at % 8);
            (format!("{name}, a bit at {at}"), bytes)
        });
        let cuts = [0, 1, object.len() / 2, object.len().saturating_sub(1)];
        let cut = cuts.into_iter().filter(|len| *len < object.len());
        let cut = cut.map(|len| (format!("{name} cut to {len}"), object[..len].to_vec()));
        let longer = (format!("{name} with a byte more"), [&object[..], &[0]].concat());
        for (what, bytes) in changed.chain(cut).chain([longer]) {
            let mut objects = good.clone();
            objects.insert(name.clone(), bytes.into());
            let is_found = found(&what, objects);
            assert!(is_found || !is_needed(name), "{what}");
        }
    }
}

#[test]
fn an_object_in_anothers_place_is_found() {
    let good = undamaged();
    let names: Vec<&String> = good.keys().collect();
    for (at, a) in names.iter().enumerate() {
        for b in &names[at + 1..] {
            let mut objects = good.clone();
            objects.insert(String::clone(a), good[*b].clone());
            objects.insert(String::clone(b), good[*a].clone());
            let is_found = found(&format!("{a} and {b} swapped"), objects);
            let is_same = good[*a] == good[*b];
            assert!(is_found || is_same || !is_needed(a) && !is_needed(b), "{a} and {b}");
        }
    }
}

#[test]
fn an_object_of_another_log_is_found() {
    let good = undamaged();
    let other = run(async {
        let lab = Lab::new(Objects::new(), 1);
        // Use different ids for everything.
        for _ in 0..1000 {
            crate::Env::random(&lab);
        }
        make(&lab).await.expect("a log");
        lab.objects()
    });
    for (name, object) in &good {
        let Some(foreign) = other.get(name).filter(|foreign| *foreign != object) else { continue };
        let mut objects = good.clone();
        objects.insert(name.clone(), foreign.clone());
        assert!(found(name, objects) || !is_needed(name), "{name}");
    }
    // The whole log, below the same branch.
    let mut objects: Objects =
        other.into_iter().filter(|(name, _)| name.starts_with("log/")).collect();
    objects.extend(good.into_iter().filter(|(name, _)| name.starts_with("child/")));
    assert!(found("the parent replaced", objects));
}

/// Returns the objects up to a record, which becomes the last of its log.
fn up_to(good: &Objects, number: u64) -> Objects {
    let after = format!("log/{}", log_name(number + 1));
    let mut objects = good.clone();
    objects.retain(|name, _| !(name.starts_with("log/log/") && *name >= after));
    objects.retain(|name, _| number >= 9 || !name.starts_with("log/floor/"));
    objects
}

#[test]
fn absurd_fields_with_right_checksums_are_errors_at_most() {
    let good = undamaged();
    let absurd = [[0xff; 8], [0; 8], (1_u64 << 60).to_le_bytes(), (1_u64 << 63).to_le_bytes()];
    for number in [4, 5, 6, 7, 9, 10] {
        let name = format!("log/{}", log_name(number));
        let object = &good[&name];
        for at in (10..object.len().saturating_sub(7)).step_by(2) {
            // Two other values for each field, or all four.
            for value in absurd.iter().cycle().skip(at).take(absurd.len().min(effort(2))) {
                let mut bytes = object.to_vec();
                let len = value.len().min(bytes.len() - at);
                bytes[at..at + len].copy_from_slice(&value[..len]);
                let mut objects = up_to(&good, number);
                objects.insert(name.clone(), Record::sealed(bytes));
                no_panic(&format!("{name} with {value:?} at {at}"), objects);
            }
        }
    }
}

#[test]
fn an_absurd_manifest_is_an_error_at_most() {
    let good = undamaged();
    let record = format!("log/{}", log_name(9));
    let (name, manifest) =
        good.iter().rfind(|(name, _)| name.ends_with("/manifest")).expect("a manifest");
    for at in 8..manifest.len().saturating_sub(7) {
        let mut bytes = manifest.to_vec();
        bytes[at..at + 8].copy_from_slice(&[0xff; 8]);
        // The record has its hash, after position, hash and nonce.
        let mut pointing = good[&record].to_vec();
        let field = HEADER_LEN + 8 + 32 + 16;
        pointing[field..field + 32].copy_from_slice(&hash(&bytes));
        let mut objects = up_to(&good, 9);
        objects.insert(record.clone(), Record::sealed(pointing));
        objects.insert(name.clone(), bytes.into());
        no_panic(&format!("{name} at {at}"), objects);
    }
}

#[test]
fn absurd_names_are_errors_at_most() {
    let good = undamaged();
    let pin = good.iter().find(|(name, _)| name.contains("/pins/")).expect("a pin").1;
    let numbers = [
        "18446744073709551615",
        "99999999999999999999",
        "+0000000000000000005",
        "00000000000000000000",
        "01152921504606846976",
        "01152921504606846977",
        "00000000000000000006x",
        "x",
    ];
    for number in numbers {
        for folder in ["log", "floor", "blob", "snapshot", "pins"] {
            for object in
                [Bytes::new(), pin.clone(), good[&format!("log/{}", log_name(10))].clone()]
            {
                let mut objects = good.clone();
                objects.insert(format!("log/{folder}/{number}"), object.clone());
                objects.insert(format!("log/{folder}/{number}-00/000000"), object);
                no_panic(&format!("{folder}/{number}"), objects);
            }
        }
    }
    // A series of objects that never ends for a search that doubles its steps.
    let mut objects = good.clone();
    let last = good[&format!("log/{}", log_name(10))].clone();
    for power in 0..64 {
        objects.insert(format!("log/{}", log_name(9 + (1 << power) - 1)), last.clone());
        objects.insert(format!("log/{}", log_name(9 + ((1_u64 << power) - 1))), last.clone());
    }
    no_panic("a row without an end", objects);
}

/// Reads and writes deliberately damaged data. Data with a valid checksum may be anything.
fn no_panic(what: &str, objects: Objects) {
    run(async {
        let lab = Lab::new(objects, 1);
        let all = async {
            for url in ["log", "child"] {
                let store = lab.store(0, url, None);
                let Ok(group) = Group::open(&store).await else { continue };
                let _ = entries(&group, Moment::Newest).await;
                let _ = entries(&group, Moment::Time(1_700_000_000_000)).await;
                let _ = list(&group).await;
                let _ = verify(&group, |_| {}).await;
                if let Ok(mut owner) = Owner::claim(&store, claim(3, Right::Force)).await {
                    let _ = owner.lease_until();
                    let _ = append(&mut owner, &["new"]).await;
                    let _ = snapshot(&mut owner, &[]).await;
                    if let Ok(Some(deletion)) = owner.prune(Retention::default()).await {
                        let _ = owner.delete(&deletion).await;
                    }
                    let _ = owner.release().await;
                }
            }
        };
        let ended = timeout(Duration::from_secs(10_000), all).await;
        assert!(ended.is_ok(), "{what}: no end");
    });
}
