//! Checks of the data directory: its file system, its space, and if its disk honours `fsync`.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tierce_config::{DirectiveId, Settings};

use super::finding::{Finding, bytes};
use super::machine::Machine;

/// Limits of the measurement; it ends at whichever comes first.
const SYNCS_MAX: u32 = 2000;
const MEASURED_FOR: Duration = Duration::from_millis(500);

/// Upper bound of plausible syncs per second: the fastest devices, with a protected cache, need 20 us each.
const SYNCS_PER_SECOND_BELIEVABLE: f64 = 50_000.0;

/// Syncs per second below which clients wait for each other with `appendfsync always`.
const SYNCS_PER_SECOND_SLOW: f64 = 100.0;

/// Free space below which writes may soon fail.
const FREE_BYTES_MIN: u64 = 256 << 20;

/// Result of the checks.
#[derive(Debug, Default)]
pub struct Storage {
    /// The problems.
    pub findings: Vec<Finding>,
    /// A line with the measurement.
    pub measured: Option<String>,
}

/// Checks the data directory. If it does not exist yet, checks the directory in which it would be created.
pub fn look_at(machine: &Machine, settings: &Settings) -> Storage {
    const APPENDONLY: DirectiveId = DirectiveId::of("appendonly");
    const APPENDFSYNC: DirectiveId = DirectiveId::of("appendfsync");
    let dir = settings.dir();
    let mut storage = Storage::default();
    let Some(there) = dir.ancestors().find(|dir| dir.is_dir()) else { return storage };
    let there = fs::canonicalize(there).unwrap_or_else(|_| there.to_owned());
    storage.findings.extend(access(&there, &dir));
    if let Some(kind) = machine.file_system(&there) {
        storage.findings.extend(suits(&dir, &kind));
    }
    if let Ok(space) = Space::of(&there, &dir) {
        storage.findings.extend(space.finding(&dir));
    }
    if !settings.is_on(APPENDONLY)
        && let Ok(Some(log)) = tierce_engine::durability::existing_log(&dir)
    {
        storage.findings.push(Finding::serious(
            format!("appendonly is off, and there is a log in {}.", log.display()),
            "It is not loaded, so its keys are not there.",
            "appendonly yes, or move the log away if it is not needed",
        ));
    }
    if !settings.is_on(APPENDONLY) || settings.word(APPENDFSYNC) == "no" {
        return storage;
    }
    if is_in_use(machine, &dir) {
        storage.measured =
            Some("a server uses the data directory, so its disk was not measured".into());
    } else if let Ok(syncs) = Syncs::measure(&there) {
        storage.measured = Some(syncs.to_string());
        storage.findings.extend(syncs.finding(settings.word(APPENDFSYNC)));
    }
    storage
}

/// Checks that files can be created in the data directory, or in the directory where it would be created.
fn access(there: &Path, dir: &Path) -> Option<Finding> {
    use rustix::fs::{Access, access};
    let error = access(there, Access::WRITE_OK | Access::EXEC_OK).err()?;
    let user = user_name();
    let give = if dir.is_dir() { "chown" } else { "install -d -m 0700 -o" };
    Some(Finding::serious(
        format!("This user cannot write to {}: {}.", there.display(), io::Error::from(error)),
        "The server does not start.",
        format!(
            "sudo {give} {user} {}, or run as the server's user: sudo -u tierce tierce doctor ...",
            dir.display()
        ),
    ))
}

/// Returns the name of this process' user, or its number. Below sudo -u, the variable USER still names another user.
fn user_name() -> String {
    let id = rustix::process::getuid().as_raw().to_string();
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    name_of_user(&users, &id).unwrap_or(&id).to_owned()
}

/// Returns the name of a user from the lines of `/etc/passwd`: `name:password:id:...`.
fn name_of_user<'a>(users: &'a str, id: &str) -> Option<&'a str> {
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == id).then_some(name)
    })
}

/// Reports a file system of a type that does not keep data reliably.
fn suits(dir: &Path, kind: &str) -> Option<Finding> {
    let why = match kind {
        "tmpfs" | "ramfs" => "It is in memory: the data are gone after a reboot.",
        "overlay" | "aufs" => "It is a layer of a container: the data are gone with the container.",
        "nfs" | "nfs4" | "cifs" | "smb3" | "9p" | "ceph" => {
            "Locks and syncs over a network are slow, and not reliable when the connection breaks."
        }
        _ if kind.starts_with("fuse") => {
            "Syncs and locks depend on a program, which may ignore them."
        }
        _ => return None,
    };
    let mend = match kind {
        "overlay" | "aufs" => "mount a volume there: docker run -v tierce-data:/data ...",
        _ => "dir /var/lib/tierce   (on a local ext4 or XFS)",
    };
    Some(Finding::serious(format!("dir {} is on {kind}.", dir.display()), why, mend))
}

/// Returns true if a lock is held on a file in the directory or one of its folders, without opening or locking
/// anything.
fn is_in_use(machine: &Machine, dir: &Path) -> bool {
    let folders = fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut folders = std::iter::once(dir.to_owned()).chain(folders);
    folders.any(|folder| {
        fs::metadata(folder.join("LOCK")).is_ok_and(|file| machine.is_locked(file.ino()))
    })
}

/// Space on the disk, in bytes.
#[derive(Debug, PartialEq, Eq)]
pub struct Space {
    free: u64,
    data: u64,
}

impl Space {
    fn of(there: &Path, dir: &Path) -> io::Result<Self> {
        let disk = rustix::fs::statvfs(there)?;
        Ok(Self { free: disk.f_bavail.saturating_mul(disk.f_frsize), data: size_of(dir) })
    }

    fn finding(&self, dir: &Path) -> Option<Finding> {
        let Self { free, data } = *self;
        let what = format!(
            "{} are free on the disk of {}, whose data take {}.",
            bytes(free),
            dir.display(),
            bytes(data)
        );
        let mend = format!("df -h {}   (make room, or move dir to a larger disk)", dir.display());
        if free < FREE_BYTES_MIN {
            return Some(Finding::serious(what, "Writes are refused when the disk is full.", mend));
        }
        (free < data).then(|| {
            Finding::advice(
                what,
                "A compaction, a snapshot or a copy for a replica writes the data once more.",
                mend,
            )
        })
    }
}

/// Returns the bytes of all files below a directory. Unreadable files do not count.
fn size_of(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let sizes = entries.map(|entry| match entry.metadata() {
        Ok(file) if file.is_dir() => size_of(&entry.path()),
        Ok(file) => file.len(),
        Err(_) => 0,
    });
    sizes.sum()
}

/// Rate of durable writes of one page.
#[derive(Debug)]
struct Syncs {
    count: u32,
    time: Duration,
}

impl Syncs {
    /// Measures with a file without a name, which needs no cleaning up.
    fn measure(dir: &Path) -> io::Result<Self> {
        let file = unnamed(dir)?;
        let page = [0x5a; 4096];
        file.write_all_at(&page, 0)?;
        file.sync_all()?;
        let (mut count, begun) = (0, Instant::now());
        while count < SYNCS_MAX && begun.elapsed() < MEASURED_FOR {
            file.write_all_at(&page, 0)?;
            file.sync_data()?;
            count += 1;
        }
        Ok(Self { count, time: begun.elapsed() })
    }

    fn per_second(&self) -> f64 {
        f64::from(self.count) / self.time.as_secs_f64().max(1e-9)
    }

    fn finding(&self, appendfsync: &str) -> Option<Finding> {
        let rate = self.per_second();
        if rate > SYNCS_PER_SECOND_BELIEVABLE {
            return Some(Finding::serious(
                format!(
                    "The disk answers {rate:.0} syncs in a second, more than a device can make durable."
                ),
                "It probably ignores fsync: a power cut loses writes that were acknowledged as durable.",
                "switch off the write cache (hdparm -W 0 DEVICE) or unsafe caching of the hypervisor, or use another disk",
            ));
        }
        (rate < SYNCS_PER_SECOND_SLOW && appendfsync == "always").then(|| {
            Finding::advice(
                format!("The disk answers {rate:.0} syncs in a second, and appendfsync is always."),
                "Each write waits for a sync.",
                "appendfsync everysec, or a disk with a protected write cache",
            )
        })
    }
}

impl std::fmt::Display for Syncs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let each_us = self.time.as_secs_f64() * 1e6 / f64::from(self.count.max(1));
        write!(f, "{:.0} syncs a second, {each_us:.0} us each", self.per_second())
    }
}

fn unnamed(dir: &Path) -> io::Result<File> {
    let unnamed = i32::try_from(rustix::fs::OFlags::TMPFILE.bits()).unwrap_or_default();
    let opened = OpenOptions::new().write(true).custom_flags(unnamed).mode(0o600).open(dir);
    opened.or_else(|_| {
        let path: PathBuf = dir.join(format!(".tierce-doctor-{}", std::process::id()));
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        fs::remove_file(&path)?;
        Ok(file)
    })
}

#[cfg(test)]
mod tests {
    use super::super::finding::Gravity::{self, Advice, Serious};
    use super::*;

    #[test]
    fn a_disk_is_believed_up_to_what_devices_can_do() {
        let of = |count, ms, appendfsync| -> Option<Gravity> {
            let syncs = Syncs { count, time: Duration::from_millis(ms) };
            syncs.finding(appendfsync).map(|finding| finding.gravity)
        };
        assert_eq!(of(2000, 10, "everysec"), Some(Serious));
        assert_eq!(of(2000, 100, "always"), None);
        assert_eq!(of(10, 500, "always"), Some(Advice));
        assert_eq!(of(10, 500, "everysec"), None);
        let told = Syncs { count: 1000, time: Duration::from_millis(500) }.to_string();
        assert_eq!(told, "2000 syncs a second, 500 us each");
    }

    #[test]
    fn a_user_has_the_name_in_the_list_of_users() {
        let users = "root:x:0:0::/root:/bin/sh\ntierce:x:998:997::/:/bin/false\n";
        assert_eq!(name_of_user(users, "998"), Some("tierce"));
        assert_eq!(name_of_user(users, "997"), None);
    }

    #[test]
    fn room_for_the_data_once_more() {
        let of = |free, data| -> Option<Gravity> {
            Space { free, data }.finding(Path::new("d")).map(|finding| finding.gravity)
        };
        assert_eq!(of(FREE_BYTES_MIN - 1, 0), Some(Serious));
        assert_eq!(of(FREE_BYTES_MIN, FREE_BYTES_MIN), None);
        assert_eq!(of(FREE_BYTES_MIN, FREE_BYTES_MIN + 1), Some(Advice));
    }
}
