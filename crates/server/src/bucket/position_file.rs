//! The state that a data directory keeps of its log in a bucket: the file `bucket.state`, with a lock file next to it.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use tierce_bucket::Id;

const NAME: &str = "bucket.state";
const LOCK: &str = "bucket.lock";
/// Prefix of the name of a side directory with data that are not part of the log.
const ASIDE: &str = "diverged-";
/// Suffix of its name until it has all of these data.
const INCOMPLETE: &str = ".incomplete";
const TITLE: &str = "tierce-bucket 1";
/// Line of a directory that follows.
const FOLLOWS: &str = "follows";
/// Prefix of the line of a directory that claims.
const CLAIMING: &str = "claiming ";

/// Contents of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Known {
    /// Id of this directory.
    pub(super) node: Id,
    /// Id of the log that it has claimed; zeros before that.
    pub(super) cluster: Id,
    /// Number of its last CLAIM that is known to be in the log. 0 if there is none, or an earlier build was killed
    /// while it claimed.
    pub(super) claim: u64,
    /// CLAIM that will be put, or was, behind everything that this file knows: it may or may not be in the log. Nothing
    /// is written to the log behind it before it is the last known one.
    pub(super) claiming: Option<Claiming>,
    /// Number of the RELEASE after which nothing was written here.
    pub(super) released: Option<u64>,
    /// Last position in the local log whose position in the bucket's log is known.
    pub(super) cut: Option<Cut>,
    /// Location of the directory when it last claimed the log, or began to follow it. A failed attempt does not change
    /// it: the directory may be a copy.
    pub(super) home: Option<Home>,
    /// True if all data here come from the log, which determines their position.
    pub(super) follows: bool,
}

/// CLAIM in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Claiming {
    /// Id that identifies it: the CLAIM of a copy of the directory has another one.
    pub(super) nonce: Id,
    /// Location of the directory that puts it.
    pub(super) home: Home,
}

/// Location of a directory, which differs from that of any copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Home {
    /// Id of the machine, which survives reboots. Without one, it is the id of the boot: then the directory's location
    /// differs after a reboot, because it cannot be distinguished from a copy on another machine.
    machine: Id,
    /// Inode number of the directory.
    inode: u64,
}

impl Home {
    fn of(dir: &Path) -> io::Result<Self> {
        let machine = machine("/etc/machine-id", "/proc/sys/kernel/random/boot_id")?;
        Ok(Self { machine, inode: fs::metadata(dir)?.ino() })
    }
}

impl fmt::Display for Home {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", hex(&self.machine), self.inode)
    }
}

fn machine(machine_id: impl AsRef<Path>, boot_id: impl AsRef<Path>) -> io::Result<Id> {
    let text = fs::read_to_string(machine_id).unwrap_or_default();
    if let Some(id) = parse_id(text.trim()).filter(|id| *id != Id::default()) {
        return Ok(id);
    }
    let text = fs::read_to_string(boot_id)?.replace('-', "");
    parse_id(text.trim()).ok_or_else(|| io::Error::other("the kernel's boot_id is none"))
}

/// Position in both logs: all changes before it are in objects up to this one, and all others behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cut {
    /// Its number in the local log.
    pub(super) id: u64,
    /// Number of the object.
    pub(super) object: u64,
}

/// State file, with a lock that keeps other processes from using the directory with a bucket.
#[derive(Debug)]
pub(super) struct PositionFile {
    dir: PathBuf,
    /// Contents of the file, if there is one.
    pub(super) known: Option<Known>,
    home: Home,
    _lock: File,
}

impl PositionFile {
    /// Locks a data directory, creating it if needed, and reads its file.
    ///
    /// # Errors
    /// If another process has the lock, or the file is unreadable or damaged.
    pub(super) fn lock(dir: &Path) -> io::Result<Self> {
        fs::create_dir_all(dir)?;
        let path = dir.join(LOCK);
        let lock = OpenOptions::new().create(true).truncate(false).write(true).open(&path)?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|errno| {
            io::Error::other(format!("{}: another process uses it ({errno})", path.display()))
        })?;
        let path = dir.join(NAME);
        let known =
            match fs::read_to_string(&path) {
                Ok(text) => Some(parse(&text).ok_or_else(|| {
                    io::Error::other(format!("{}: it is damaged", path.display()))
                })?),
                Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                Err(error) => return Err(error),
            };
        Ok(Self { dir: dir.to_owned(), known, home: Home::of(dir)?, _lock: lock })
    }

    /// Returns the location of the directory.
    pub(super) fn home(&self) -> Home {
        self.home
    }

    /// Returns true if the directory is where it last claimed, so that its lock proves if that process is alive.
    pub(super) fn is_here(&self) -> bool {
        self.known.and_then(|known| known.home).is_none_or(|home| home == self.home)
    }

    /// Returns true if a directory was ever used with a bucket.
    pub(super) fn is_in(dir: &Path) -> bool {
        dir.join(NAME).exists()
    }

    /// Makes a directory that is used without its bucket forget its position in the log. Its new writes are not
    /// recorded as changes of the log, so its data may no longer equal that position.
    ///
    /// All data of a directory that follows or is empty come from the log. New writes are no changes of that, so the
    /// directory becomes a new node: a CLAIM that it has put says nothing about these data.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub(super) fn forget_positions(&mut self, has_data: bool) -> io::Result<()> {
        let Some(known) = self.known else { return Ok(()) };
        let node = if known.follows || !has_data { new_id() } else { known.node };
        let forgotten = Known { node, cut: None, released: None, follows: false, ..known };
        if forgotten == known { Ok(()) } else { self.write(forgotten) }
    }

    /// Moves the local log into a side directory, on which a server without a bucket can start. Returns its path.
    ///
    /// The log may be several files. The side directory keeps a name that marks it incomplete until it has all of them,
    /// so a part of the log is never used as the data of this directory. [`finish_set_aside`](Self::finish_set_aside)
    /// completes an interrupted move.
    ///
    /// # Errors
    /// If the move fails.
    pub(super) fn set_aside(&self, now_ms: i64) -> io::Result<PathBuf> {
        let begun = self.dir.join(format!("{ASIDE}{now_ms}{INCOMPLETE}"));
        fs::create_dir(&begun)?;
        self.sync()?;
        self.move_into(&begun)
    }

    /// Completes an interrupted move. Returns the path of the side directory, if there was one.
    ///
    /// # Errors
    /// If the move fails.
    pub(super) fn finish_set_aside(&self) -> io::Result<Option<PathBuf>> {
        let is_begun = |name: &String| name.starts_with(ASIDE) && name.ends_with(INCOMPLETE);
        let begun = self.names()?.into_iter().find(is_begun);
        begun.map(|name| self.move_into(&self.dir.join(name))).transpose()
    }

    fn move_into(&self, begun: &Path) -> io::Result<PathBuf> {
        let is_data = |name: &String| {
            ["wal", "cold", "dump.rdb"].contains(&&name[..]) || name.starts_with("wal-")
        };
        for name in self.names()?.into_iter().filter(is_data) {
            fs::rename(self.dir.join(&name), begun.join(&name)).map_err(|error| {
                let (from, to) = (self.dir.join(&name), begun.display());
                io::Error::new(error.kind(), format!("{} into {to}: {error}", from.display()))
            })?;
        }
        File::open(begun)?.sync_all()?;
        self.sync()?;
        let aside = begun.with_extension("");
        fs::rename(begun, &aside)?;
        // Before any new file comes here: it would be moved, too.
        self.sync()?;
        Ok(aside)
    }

    /// Returns the files in the directory whose names a server gives.
    fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for found in fs::read_dir(&self.dir)? {
            names.extend(found?.file_name().into_string());
        }
        Ok(names)
    }

    fn sync(&self) -> io::Result<()> {
        File::open(&self.dir)?.sync_all()
    }

    /// Replaces the file. It is on the device when this returns.
    ///
    /// # Errors
    /// If it cannot be written; the old file then remains.
    pub(super) fn write(&mut self, known: Known) -> io::Result<()> {
        let released = known.released.map_or("-".to_owned(), |number| number.to_string());
        let cut = known.cut.map_or("-".to_owned(), |cut| format!("{} {}", cut.id, cut.object));
        let home = known.home.map_or("-".to_owned(), |home| home.to_string());
        let (node, cluster) = (hex(&known.node), hex(&known.cluster));
        let follows = if known.follows { format!("{FOLLOWS}\n") } else { String::new() };
        let claiming = known.claiming.map_or(String::new(), |Claiming { nonce, home }| {
            format!("{CLAIMING}{} {home}\n", hex(&nonce))
        });
        let text = format!(
            "{TITLE}\nnode {node}\ncluster {cluster}\nclaim {}\nreleased {released}\ncut {cut}\nhome {home}\n{follows}{claiming}",
            known.claim,
        );
        let (path, new) = (self.dir.join(NAME), self.dir.join("bucket.state-new"));
        let mut file = File::create(&new)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, &path)?;
        self.sync()?;
        self.known = Some(known);
        Ok(())
    }
}

fn hex(id: &Id) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn parse(text: &str) -> Option<Known> {
    let mut lines = text.lines();
    (lines.next()? == TITLE).then_some(())?;
    let node = parse_id(lines.next()?.strip_prefix("node ")?)?;
    let cluster = parse_id(lines.next()?.strip_prefix("cluster ")?)?;
    let claim = lines.next()?.strip_prefix("claim ")?.parse().ok()?;
    let released = match lines.next()?.strip_prefix("released ")? {
        "-" => None,
        number => Some(number.parse().ok()?),
    };
    let cut = match lines.next().map_or(Some("-"), |line| line.strip_prefix("cut "))? {
        "-" => None,
        cut => {
            let (id, object) = cut.split_once(' ')?;
            Some(Cut { id: id.parse().ok()?, object: object.parse().ok()? })
        }
    };
    let home = match lines.next().map_or(Some("-"), |line| line.strip_prefix("home "))? {
        "-" => None,
        home => Some(parse_home(home)?),
    };
    let (mut follows, mut claiming) = (false, None);
    for line in lines {
        match line.strip_prefix(CLAIMING) {
            Some(claim) => {
                let (nonce, home) = claim.split_once(' ')?;
                claiming = Some(Claiming { nonce: parse_id(nonce)?, home: parse_home(home)? });
            }
            None => follows |= line == FOLLOWS,
        }
    }
    Some(Known { node, cluster, claim, claiming, released, cut, home, follows })
}

fn parse_home(text: &str) -> Option<Home> {
    let (machine, inode) = text.split_once(' ')?;
    Some(Home { machine: parse_id(machine)?, inode: inode.parse().ok()? })
}

fn parse_id(digits: &str) -> Option<Id> {
    let mut id = Id::default();
    (digits.len() == 2 * id.len() && digits.is_ascii()).then_some(())?;
    for (at, byte) in id.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(id)
}

pub(super) fn new_id() -> Id {
    tierce_bucket::Env::random(&tierce_bucket::System)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierce_harness::TempDir;

    #[test]
    fn what_was_written_is_read_and_only_one_process_has_it() {
        let dir = TempDir::new();
        let mut position_file = PositionFile::lock(dir.path()).unwrap();
        assert_eq!(position_file.known, None);
        assert!(
            PositionFile::lock(dir.path()).unwrap_err().to_string().contains("another process")
        );
        for released in [None, Some(0), Some(u64::MAX)] {
            let cut = released.map(|object| Cut { id: u64::MAX, object });
            let home = released.map(|_| position_file.home());
            let (node, cluster, follows) = ([0xab; 16], [1; 16], released.is_none());
            for claiming in [None, Some(Claiming { nonce: [0xcd; 16], home: position_file.home() })]
            {
                let known =
                    Known { node, cluster, claim: 3, claiming, released, cut, home, follows };
                position_file.write(known).unwrap();
                drop(position_file);
                position_file = PositionFile::lock(dir.path()).unwrap();
                assert_eq!(position_file.known, Some(known));
            }
        }
    }

    #[test]
    fn without_an_id_of_the_machine_each_start_of_it_is_another_place() {
        let dir = TempDir::new();
        let [id, boot, other] =
            ["machine-id", "boot-1", "boot-2"].map(|name| dir.path().join(name));
        dir.write("boot-1", "12345678-1234-1234-1234-123456789abc\n");
        dir.write("boot-2", "22345678-1234-1234-1234-123456789abc\n");
        for none in
            [None, Some("\n"), Some("uninitialized\n"), Some("00000000000000000000000000000000\n")]
        {
            none.iter().for_each(|text| _ = dir.write("machine-id", text));
            let [first, second] = [&boot, &other].map(|boot| machine(&id, boot).unwrap());
            assert_ne!(first, second);
            assert_ne!(first, Id::default());
        }
        dir.write("machine-id", "ab345678123412341234123456789abc\n");
        assert_eq!(machine(&id, &boot).unwrap(), machine(&id, &other).unwrap());
    }

    #[test]
    fn what_is_written_without_the_bucket_is_not_what_was_left() {
        let dir = TempDir::new();
        let mut position_file = PositionFile::lock(dir.path()).unwrap();
        let left = Known { claim: 3, released: Some(7), ..Known::default() };
        for cut in [None, Some(Cut { id: 1, object: 2 })] {
            position_file.write(Known { cut, ..left }).unwrap();
            position_file.forget_positions(true).unwrap();
            drop(position_file);
            position_file = PositionFile::lock(dir.path()).unwrap();
            assert_eq!(position_file.known, Some(Known { released: None, ..left }));
        }
    }

    #[test]
    fn what_comes_from_the_log_is_of_another_directory_once_it_is_written_without_the_bucket() {
        let dir = TempDir::new();
        let left = Known { node: [1; 16], cluster: [2; 16], claim: 3, ..Known::default() };
        for (follows, has_data, is_same) in
            [(false, true, true), (true, true, false), (true, false, false), (false, false, false)]
        {
            let mut position_file = PositionFile::lock(dir.path()).unwrap();
            position_file.write(Known { follows, ..left }).unwrap();
            position_file.forget_positions(has_data).unwrap();
            drop(position_file);
            let known = PositionFile::lock(dir.path()).unwrap().known.unwrap();
            assert_eq!(known.node == left.node, is_same, "{follows} {has_data}");
            assert_eq!(known, Known { node: known.node, ..left });
        }
    }

    #[test]
    fn what_was_put_aside_in_part_is_put_aside_as_a_whole() {
        let dir = TempDir::new();
        let position_file = PositionFile::lock(dir.path()).unwrap();
        let names = ["wal-2", "wal-2.complete", "cold", "dump.rdb"];
        names.iter().for_each(|name| _ = dir.write(name, "data"));
        assert_eq!(position_file.finish_set_aside().unwrap(), None);
        // A directory that is not empty is not replaced.
        let at = |name: &str| dir.path().join(name);
        fs::create_dir_all(at("diverged-1.incomplete/cold/of another")).unwrap();
        position_file.finish_set_aside().unwrap_err();
        assert!(!at("diverged-1").exists());
        fs::remove_dir_all(at("diverged-1.incomplete/cold")).unwrap();
        let aside = position_file.finish_set_aside().unwrap();
        assert_eq!(aside, Some(at("diverged-1")));
        names.iter().for_each(|name| {
            assert!(at("diverged-1").join(name).exists() && !at(name).exists(), "{name}");
        });
        dir.write("wal", "newer");
        assert_eq!(position_file.finish_set_aside().unwrap(), None);
        assert_eq!(position_file.set_aside(2).unwrap(), at("diverged-2"));
        assert!(at("diverged-2/wal").exists() && !at("wal").exists());
        assert_eq!(position_file.finish_set_aside().unwrap(), None);
    }

    #[test]
    fn a_damaged_file_is_refused() {
        for text in ["", "tierce-bucket 2\n", "tierce-bucket 1\nnode 00\n", "tierce-bucket 1\n"] {
            let dir = TempDir::new();
            dir.write(NAME, text);
            let error = PositionFile::lock(dir.path()).unwrap_err().to_string();
            assert!(error.contains("bucket.state: it is damaged"), "{error}");
        }
    }
}
