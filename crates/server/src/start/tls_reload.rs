//! Reads certificates, keys and authorities again when their files have changed, and warns before certificates end.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use parking_lot::Mutex;

use crate::commands::certificates::Shown;
use crate::config::{Config, DirectiveId, Settings};
use crate::log::Log;
use crate::server::Server;
use crate::tls::{
    CA_CERT_DIR, CERT_FILE, CERTIFICATE_DAYS_MIN, FILES, FILES_MAX, REPLICATION, is_encrypted,
    load, outgoing, shown,
};

const AUTO_RELOAD_INTERVAL: DirectiveId = DirectiveId::of("tls-auto-reload-interval");

const DAY_MS: i64 = 24 * 3600 * 1000;

/// Notes the certificates that are shown with these settings, which are valid.
pub(super) fn note_certificates(server: &Server, settings: &Settings) {
    // It is only missing if the file has just been removed; the one in use stays.
    if let Ok(shown) = shown(settings) {
        server.certificates.set(shown);
    }
}

/// Has the files of encrypted connections watched, and warnings logged before certificates end.
pub(super) fn watch(server: &Arc<Server>) {
    note_certificates(server, &server.config.settings());
    let (weak, state) = (Arc::downgrade(server), Arc::new(Mutex::new(State::default())));
    server.each_second(move |now_ms| {
        if let Some(server) = weak.upgrade() {
            check_aside(&server, &state, now_ms);
        }
    });
}

/// Checks files and certificates, if that is due. A thread reads the files, since a disk may not answer.
fn check_aside(server: &Arc<Server>, shared: &Arc<Mutex<State>>, now_ms: i64) {
    let settings = server.config.settings();
    if !is_encrypted(&settings) && !settings.is_on(REPLICATION) {
        return;
    }
    // It is locked while a thread checks.
    let Some(mut state) = shared.try_lock() else { return };
    state.warn(server.certificates.get(), &server.log, now_ms);
    if state.is_due(settings.number(AUTO_RELOAD_INTERVAL), now_ms) {
        let (server, shared) = (Arc::clone(server), Arc::clone(shared));
        let check = move || shared.lock().check(&server.config, &server.log);
        // Without a thread now, the next check comes after the interval.
        let _ = thread::Builder::new().name("tls-reload".to_owned()).spawn(check);
    }
}

#[derive(Default)]
struct State {
    checked_ms: i64,
    /// Files as they were when they were last read with success, or shortly before. `None` before the first check.
    files: Option<Vec<Stamp>>,
    /// Error of the last check; `None` if it succeeded.
    failed: Option<String>,
    /// Day of the last warnings, and the certificates then.
    warned: Option<(i64, Shown)>,
}

impl State {
    /// Reads the files again if they have changed. A failure is repeated at each interval: certificate and key may be
    /// replaced one after the other, and an error of the disk may pass.
    fn check(&mut self, config: &Config, log: &Log) {
        let settings = config.settings();
        let files = stamps(&settings);
        if self.files.as_ref() == Some(&files) {
            return;
        }
        // The files may have changed between the start and the first check.
        let is_first = self.files.is_none() && self.failed.is_none();
        // Reading them again keeps CONFIG SET waiting: a disk that does not answer must be found out before.
        let read = || config.read_again(CERT_FILE);
        let checked = outgoing(&settings).and_then(|_| load(&settings)).map_err(|e| e.to_string());
        if let Err(error) = checked.and_then(|_| read().map_err(|e| e.to_string())) {
            if self.failed.as_ref() != Some(&error) {
                log.warning(format_args!("Encrypting connections as before: {error}"));
                self.failed = Some(error);
            }
        } else {
            (self.files, self.failed) = (Some(files), None);
            if !is_first {
                log.notice("The changed files for encrypted connections are in use");
            }
        }
    }

    fn is_due(&mut self, interval_s: i64, now_ms: i64) -> bool {
        let since_ms = now_ms - self.checked_ms;
        // The clock may have been set back.
        let is_due = interval_s > 0 && !(0..interval_s * 1000).contains(&since_ms);
        if is_due {
            self.checked_ms = now_ms;
        }
        is_due
    }

    /// Warns of certificates that end soon: once a day, and when they change.
    fn warn(&mut self, shown: Shown, log: &Log, now_ms: i64) {
        let now = (now_ms.div_euclid(DAY_MS), shown);
        if self.warned.as_ref() == Some(&now) {
            return;
        }
        for certificate in now.1.all() {
            let path = certificate.path.display();
            let days = (certificate.end_s * 1000 - now_ms).div_euclid(DAY_MS);
            let count = |days| tierce_engine::count(days, "day");
            if days < 0 {
                let ago = count(-days);
                log.warning(format_args!("The certificate {path} has ended {ago} ago"));
            } else if days < CERTIFICATE_DAYS_MIN {
                log.warning(format_args!("The certificate {path} ends in {}", count(days)));
            }
        }
        self.warned = Some(now);
    }
}

/// Facts about a file that change when it is written or replaced: device and inode, length, and the times of its
/// last changes in seconds and nanoseconds. `None` if it cannot be found.
type Facts = Option<([u64; 3], [i64; 4])>;

type Stamp = (PathBuf, Facts);

/// Returns the facts about all files that the settings name.
fn stamps(settings: &Settings) -> Vec<Stamp> {
    let mut paths: Vec<_> = FILES.iter().filter_map(|id| settings.path(*id)).collect();
    if let Some(Ok(entries)) = settings.path(CA_CERT_DIR).map(fs::read_dir) {
        let mut entries: Vec<_> =
            entries.flatten().take(FILES_MAX).map(|entry| entry.path()).collect();
        entries.sort();
        paths.extend(entries);
    }
    let stamp = |path: PathBuf| {
        let facts = facts(&path);
        (path, facts)
    };
    paths.into_iter().map(stamp).collect()
}

fn facts(path: &Path) -> Facts {
    let of = fs::metadata(path).ok()?;
    let times = [of.mtime(), of.mtime_nsec(), of.ctime(), of.ctime_nsec()];
    Some(([of.dev(), of.ino(), of.len()], times))
}

#[cfg(test)]
mod tests {
    use tierce_harness::{TempDir, certificate_file};

    use super::*;
    use crate::config::{FileSource, LogLevel, Sources};

    #[test]
    fn a_failure_is_logged_once_and_a_success_after_it() {
        let dir = TempDir::new();
        let path = |name: &str| dir.path().join(name);
        let file = format!(
            "tls-port 1\ntls-auth-clients no\ntls-cert-file {}\ntls-key-file {}\n",
            path("crt").display(),
            path("key").display()
        );
        let sources = Sources { file: FileSource::Stdin, ..Sources::default() };
        let settings = sources.load(&mut file.as_bytes()).unwrap().settings;
        let config = Config::new(settings);
        let log = Log::open(Some(&path("log")), LogLevel::Notice).unwrap();
        let mut state = State::default();
        let mut check = |count| {
            (0..count).for_each(|_| state.check(&config, &log));
            fs::read_to_string(path("log")).unwrap().lines().map(str::to_owned).collect::<Vec<_>>()
        };
        let lines = check(3);
        assert!(lines.len() == 1 && lines[0].contains("Encrypting connections as before"));
        fs::copy(certificate_file("server.crt"), path("crt")).unwrap();
        let lines = check(3);
        assert!(lines.len() == 2 && lines[1].contains("tls-key-file"), "{lines:?}");
        fs::copy(certificate_file("server.key"), path("key")).unwrap();
        let lines = check(3);
        assert!(lines.len() == 3 && lines[2].contains("are in use"), "{lines:?}");
    }

    #[test]
    fn checks_are_due_after_the_interval_and_when_the_clock_goes_back() {
        let mut state = State::default();
        let mut due = |interval_s, now_ms| state.is_due(interval_s, now_ms);
        assert_eq!([due(0, 100_000), due(10, 100_000), due(10, 109_999)], [false, true, false]);
        assert_eq!([due(10, 110_000), due(10, 50_000), due(10, 50_001)], [true, true, false]);
    }

    #[test]
    fn written_replaced_and_removed_files_have_other_facts() {
        let dir = TempDir::new();
        let path = dir.path().join("server.crt");
        let mut all = vec![facts(&path)];
        fs::write(&path, "1").unwrap();
        all.push(facts(&path));
        fs::write(&path, "22").unwrap();
        all.push(facts(&path));
        fs::write(dir.path().join("new"), "33").unwrap();
        fs::rename(dir.path().join("new"), &path).unwrap();
        all.push(facts(&path));
        assert!(all.windows(2).all(|two| two[0] != two[1]), "{all:?}");
    }
}
