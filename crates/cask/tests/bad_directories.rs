//! Opening a path that is no directory, belongs to another program, or is in use returns an error
//! with the path, and changes nothing.
//!
//! Permissions do not stop root, who often runs the tests, so the cases here are refused to
//! everybody.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use tierce_cask::disk::SimDisk;
use tierce_cask::{Db, Error, IndexKind, Options, check, repair};
use tierce_storage::{Wal, WalOptions};

struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("tierce-cask-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        Scratch(dir)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn assert_refused(dir: &Path, named: &Path) {
    for create_if_missing in [true, false] {
        let options = Options { create_if_missing, ..Options::default() };
        let error = Db::open(dir, options).err().expect("there can be no store");
        let text = error.to_string();
        assert!(text.contains(named.to_str().unwrap()), "{text} does not name {}", named.display());
        match error {
            Error::Io { .. } => {}
            Error::NotAStore { .. } => assert!(!create_if_missing, "{text}"),
            _ => panic!("{text}"),
        }
    }
    assert!(check(dir, |_| {}).is_err());
    assert!(repair(dir, dir.join("new"), |_| {}).is_err());
}

#[test]
fn file_in_place_of_the_directory() {
    let scratch = Scratch::new("file");
    let path = scratch.0.join("file");
    std::fs::write(&path, b"mine").unwrap();
    assert_refused(&path, &path);
    assert_refused(&path.join("below"), &path);
    assert_eq!(std::fs::read(&path).unwrap(), b"mine");
}

#[test]
fn file_system_that_takes_no_files() {
    // Not even root can create files there.
    let path = Path::new("/proc/self/tierce");
    assert_refused(path, path);
}

#[test]
fn directory_without_permission() {
    use std::os::unix::fs::PermissionsExt as _;
    let scratch = Scratch::new("permission");
    let dir = scratch.0.join("closed");
    std::fs::create_dir(&dir).unwrap();
    std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o000)).unwrap();
    let may = std::fs::write(dir.join("probe"), b"");
    match (may, Db::open(&dir, Options::default())) {
        (Ok(()), Ok(db)) => db.close().unwrap(),
        (Err(e), Err(Error::Io { path, source, .. })) => {
            assert_eq!(e.kind(), ErrorKind::PermissionDenied);
            assert_eq!(source.kind(), ErrorKind::PermissionDenied);
            assert!(path.starts_with(&dir));
        }
        (may, opened) => panic!("{may:?}, but {:?}", opened.map(|_| ())),
    }
    std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o700)).unwrap();
}

#[test]
fn directory_without_a_store() {
    let scratch = Scratch::new("empty");
    let options = Options { create_if_missing: false, ..Options::default() };
    assert!(matches!(Db::open(&scratch.0, options.clone()), Err(Error::NotAStore { .. })));
    let missing = scratch.0.join("missing");
    assert!(
        matches!(Db::open(&missing, options), Err(Error::NotAStore { path }) if path == missing)
    );
    assert!(!missing.exists());
}

/// A file with a name of ours but foreign content is refused by name; all other files stay
/// unchanged.
#[test]
fn foreign_files() {
    let scratch = Scratch::new("foreign");
    let dir = &scratch.0;
    let strangers = ["notes.txt", "00000042.data", "7.seg", "snapshot.tmp", ".hidden", "LOCK.old"];
    for name in strangers {
        std::fs::write(dir.join(name), b"mine").unwrap();
    }
    std::fs::create_dir(dir.join("folder")).unwrap();
    // The content of the lock file is never read.
    std::fs::write(dir.join("LOCK"), b"who wrote this?").unwrap();
    let db = Db::open(dir, Options::default()).unwrap();
    db.put(b"key", b"value").unwrap();
    db.close().unwrap();
    drop(db);

    let refused = |name: &str, wanted: &str| {
        let path = dir.join(name);
        let error = Db::open(dir, Options::default()).err().unwrap_or_else(|| panic!("{name}"));
        let text = error.to_string();
        assert!(text.contains(path.to_str().unwrap()) && text.contains(wanted), "{text}");
    };
    std::fs::write(dir.join("00009999.seg"), b"not a segment").unwrap();
    refused("00009999.seg", "does not belong to this store");
    assert_eq!(check(dir, |_| {}).unwrap().problems.len(), 1);
    std::fs::remove_file(dir.join("00009999.seg")).unwrap();
    std::fs::create_dir(dir.join("00009999.seg")).unwrap();
    refused("00009999.seg", "does not belong to this store");
    std::fs::remove_dir(dir.join("00009999.seg")).unwrap();

    let manifest = std::fs::read(dir.join("MANIFEST")).unwrap();
    std::fs::write(dir.join("MANIFEST"), b"the manifest of another program, by the same name")
        .unwrap();
    refused("MANIFEST", "damaged at offset 0");
    std::fs::remove_file(dir.join("MANIFEST")).unwrap();
    std::fs::create_dir(dir.join("MANIFEST")).unwrap();
    refused("MANIFEST", "MANIFEST");
    std::fs::remove_dir(dir.join("MANIFEST")).unwrap();
    std::fs::write(dir.join("MANIFEST"), manifest).unwrap();

    let db = Db::open(dir, Options::default()).unwrap();
    assert_eq!(db.get(b"key").unwrap().unwrap().into_vec(), b"value");
    for name in strangers {
        assert_eq!(std::fs::read(dir.join(name)).unwrap(), b"mine", "{name}");
    }
    assert!(dir.join("folder").is_dir());
}

const SECOND_PROCESS: &str = "TIERCE_TEST_SECOND_PROCESS";

#[test]
fn second_process_is_refused_until_the_first_is_done() {
    // This test again, as the second process.
    if let Some(dir) = std::env::var_os(SECOND_PROCESS) {
        let options = Options { index: IndexKind::Ordered, ..Options::default() };
        match Db::open(&dir, options) {
            Ok(_) => println!("second process: opened"),
            Err(Error::Locked { path }) => println!("second process: locked {}", path.display()),
            Err(error) => println!("second process: {error}"),
        }
        return;
    }
    let scratch = Scratch::new("second-process");
    let ask = || {
        let output = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "bad_directories::second_process_is_refused_until_the_first_is_done",
                "--nocapture",
            ])
            .env(SECOND_PROCESS, &scratch.0)
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let db = Db::open(&scratch.0, Options::default()).unwrap();
    db.put(b"key", b"value").unwrap();
    let locked = format!("second process: locked {}", scratch.0.join("LOCK").display());
    assert!(ask().contains(&locked), "{}", ask());
    assert!(matches!(check(&scratch.0, |_| {}), Err(Error::Locked { .. })));
    assert_eq!(db.get(b"key").unwrap().unwrap().into_vec(), b"value");
    db.close().unwrap();
    assert!(ask().contains("second process: opened"), "{}", ask());
}

#[test]
fn a_log_and_a_database_do_not_take_each_other_for_their_own() {
    let disk = Arc::new(SimDisk::new(1));
    let open_log = |dir| Wal::open_on(disk.clone(), dir, WalOptions::default(), |_| Ok(()));
    drop(open_log("/log").unwrap());
    let database = Db::open_on(disk.clone(), "/log", Options::default());
    assert!(matches!(database.map(drop), Err(Error::Foreign { .. })));
    drop(Db::open_on(disk.clone(), "/database", Options::default()).unwrap());
    assert!(matches!(open_log("/database").map(drop), Err(Error::Foreign { .. })));
}
