//! What a data directory says of its log in a bucket: the file `bucket.state`, and a lock beside it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use tierce_bucket::Id;

const NAME: &str = "bucket.state";
const LOCK: &str = "bucket.lock";
const TITLE: &str = "tierce-bucket 1";
/// The last line of one that follows.
const FOLLOWS: &str = "follows\n";

/// What the file says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Known {
    /// The id of this directory.
    pub(super) node: Id,
    /// The id of the log that it has claimed; zeros before that.
    pub(super) cluster: Id,
    /// The number of its last CLAIM; 0 while it claims.
    pub(super) claim: u64,
    /// The number of the RELEASE after which nothing was written here.
    pub(super) released: Option<u64>,
    /// The last place in the local log of which it is known where it is in the bucket's.
    pub(super) cut: Option<Cut>,
    /// Where the directory was when it claimed.
    pub(super) home: Option<Home>,
    /// Everything here comes from the log, of which it says how far it is.
    pub(super) follows: bool,
}

/// What a copy of a directory does not have in common with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Home {
    /// The id of the machine, which outlives its starts. If it has none, that of this start of it: then a directory is in
    /// another place after the next one, since nothing tells it from a copy on another machine.
    machine: Id,
    /// The number of the directory in its file system.
    inode: u64,
}

impl Home {
    fn of(dir: &Path) -> io::Result<Self> {
        let machine = machine("/etc/machine-id", "/proc/sys/kernel/random/boot_id")?;
        Ok(Self { machine, inode: fs::metadata(dir)?.ino() })
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

/// A place in both logs: all changes before it are in objects up to this one, and all others behind that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cut {
    /// Its number in the local log.
    pub(super) id: u64,
    /// The object.
    pub(super) object: u64,
}

/// The file, whose directory no other process uses with a bucket.
#[derive(Debug)]
pub(super) struct Place {
    dir: PathBuf,
    /// What the file says, if there is one.
    pub(super) known: Option<Known>,
    home: Home,
    _lock: File,
}

impl Place {
    /// Locks a data directory, which is made if it is not there, and reads its file.
    ///
    /// # Errors
    /// When another process has the lock, or the file is not readable or damaged.
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

    /// Where the directory is.
    pub(super) fn home(&self) -> Option<Home> {
        Some(self.home)
    }

    /// Whether it is where it was when it claimed, so that its lock says whether that process lives.
    pub(super) fn is_here(&self) -> bool {
        self.known.and_then(|known| known.home).is_none_or(|home| home == self.home)
    }

    /// Has a directory that is used without its bucket forget where it is in the log there: what it writes does not say
    /// what is a change, and so it is not known to be equal to what it has left, either.
    ///
    /// # Errors
    /// As [`lock`](Self::lock) and [`write`](Self::write).
    pub(super) fn forget_places(dir: &Path) -> io::Result<()> {
        if !dir.join(NAME).exists() {
            return Ok(());
        }
        let mut place = Self::lock(dir)?;
        match place.known {
            Some(known) if known.cut.is_some() || known.released.is_some() => {
                place.write(Known { cut: None, released: None, ..known })
            }
            _ => Ok(()),
        }
    }

    /// Moves the local log into a directory of its own, on which a server without a bucket can start. Returns its path.
    ///
    /// # Errors
    /// When that fails. What has not been moved is moved by the next attempt, into another directory.
    pub(super) fn set_aside(&self, now_ms: i64) -> io::Result<PathBuf> {
        let aside = self.dir.join(format!("diverged-{now_ms}"));
        fs::create_dir(&aside)?;
        for found in fs::read_dir(&self.dir)? {
            let found = found?;
            let name = found.file_name();
            let is_log = |name: &str| {
                name == "wal" || name == "cold" || name.starts_with("wal-") || name == "dump.rdb"
            };
            if name.to_str().is_some_and(is_log) {
                fs::rename(found.path(), aside.join(&name))?;
            }
        }
        File::open(&aside)?.sync_all()?;
        File::open(&self.dir)?.sync_all()?;
        Ok(aside)
    }

    /// Replaces the file. It is on the device when this returns.
    ///
    /// # Errors
    /// When it cannot be written; then it is as it was.
    pub(super) fn write(&mut self, known: Known) -> io::Result<()> {
        let released = known.released.map_or("-".to_owned(), |number| number.to_string());
        let cut = known.cut.map_or("-".to_owned(), |cut| format!("{} {}", cut.id, cut.object));
        let home = known
            .home
            .map_or("-".to_owned(), |home| format!("{} {}", hex(&home.machine), home.inode));
        let (node, cluster) = (hex(&known.node), hex(&known.cluster));
        let text = format!(
            "{TITLE}\nnode {node}\ncluster {cluster}\nclaim {}\nreleased {released}\ncut {cut}\nhome {home}\n{}",
            known.claim,
            if known.follows { FOLLOWS } else { "" }
        );
        let (path, new) = (self.dir.join(NAME), self.dir.join("bucket.state-new"));
        let mut file = File::create(&new)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, &path)?;
        File::open(&self.dir)?.sync_all()?;
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
        home => {
            let (machine, inode) = home.split_once(' ')?;
            Some(Home { machine: parse_id(machine)?, inode: inode.parse().ok()? })
        }
    };
    let follows = lines.next() == Some(FOLLOWS.trim_end());
    Some(Known { node, cluster, claim, released, cut, home, follows })
}

fn parse_id(digits: &str) -> Option<Id> {
    let mut id = Id::default();
    (digits.len() == 2 * id.len() && digits.is_ascii()).then_some(())?;
    for (at, byte) in id.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierce_harness::TempDir;

    #[test]
    fn what_was_written_is_read_and_only_one_process_has_it() {
        let dir = TempDir::new();
        let mut place = Place::lock(dir.path()).unwrap();
        assert_eq!(place.known, None);
        assert!(Place::lock(dir.path()).unwrap_err().to_string().contains("another process"));
        for released in [None, Some(0), Some(u64::MAX)] {
            let cut = released.map(|object| Cut { id: u64::MAX, object });
            let home = place.home().filter(|_| released.is_some());
            let (node, cluster, follows) = ([0xab; 16], [1; 16], released.is_none());
            let known = Known { node, cluster, claim: 3, released, cut, home, follows };
            place.write(known).unwrap();
            drop(place);
            place = Place::lock(dir.path()).unwrap();
            assert_eq!(place.known, Some(known));
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
        let mut place = Place::lock(dir.path()).unwrap();
        let left = Known { claim: 3, released: Some(7), ..Known::default() };
        for cut in [None, Some(Cut { id: 1, object: 2 })] {
            place.write(Known { cut, ..left }).unwrap();
            drop(place);
            Place::forget_places(dir.path()).unwrap();
            place = Place::lock(dir.path()).unwrap();
            assert_eq!(place.known, Some(Known { released: None, ..left }));
        }
    }

    #[test]
    fn a_damaged_file_is_refused() {
        for text in ["", "tierce-bucket 2\n", "tierce-bucket 1\nnode 00\n", "tierce-bucket 1\n"] {
            let dir = TempDir::new();
            dir.write(NAME, text);
            let error = Place::lock(dir.path()).unwrap_err().to_string();
            assert!(error.contains("bucket.state: it is damaged"), "{error}");
        }
    }
}
