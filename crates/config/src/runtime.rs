//! The configuration of a running server: CONFIG GET, SET and REWRITE.
//!
//! - CONFIG SET is all or nothing: values are checked, then listeners prepare for the change. The change becomes
//!   visible only if all of them agree.
//! - Changes are serialized; readers never wait for a change in progress.

use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use tierce_wire::glob::{self, Case};

use super::directive::{Meaning, Mutability, Secrecy, Visibility};
use super::live::Live;
use super::rewrite::{self, RewriteError};
use super::settings::Settings;
use super::table::DirectiveId;
use super::value::Value;

/// The configuration of a running server, shared by all its threads.
pub struct Config {
    live: Live,
    current: RwLock<Arc<Settings>>,
    /// Locked while a change is in progress.
    watchers: Mutex<Vec<Watcher>>,
    /// Locked while the file is written. Separate, because a write takes as long as the disk takes, and changes must
    /// not wait for that.
    rewriting: Mutex<()>,
}

/// A part of the server that acts on a change.
struct Watcher {
    watched: Vec<DirectiveId>,
    prepare: Prepare,
}

/// Prepares for new settings, or returns the reason why that is impossible.
type Prepare = Box<dyn Fn(&Settings) -> Result<(), String> + Send + Sync>;

/// Location of the client that asks for a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// On this machine: loopback, or a Unix socket.
    Local,
    /// Anywhere else.
    Remote,
}

/// A changed directive.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The directive.
    pub id: DirectiveId,
    /// Value before the change.
    pub old: Value,
    /// Value after the change.
    pub new: Value,
}

/// Reason why CONFIG SET changed nothing; the text is the error reply.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SetError {
    /// There is no such directive.
    #[error("ERR Unknown option or number of arguments for CONFIG SET - '{0}'")]
    Unknown(String),
    /// A value is refused.
    #[error("ERR CONFIG SET failed (possibly related to argument '{name}') - {reason}")]
    Refused {
        /// The directive.
        name: String,
        /// Reason for the refusal.
        reason: String,
    },
}

impl Config {
    /// Starts with these settings.
    pub fn new(settings: Settings) -> Self {
        Self {
            live: Live::new(&settings),
            current: RwLock::new(Arc::new(settings)),
            watchers: Mutex::new(Vec::new()),
            rewriting: Mutex::new(()),
        }
    }

    /// Returns the settings that every request reads.
    #[inline]
    pub fn live(&self) -> &Live {
        &self.live
    }

    /// Returns all settings in force at this moment.
    pub fn settings(&self) -> Arc<Settings> {
        self.current.read().clone()
    }

    /// Calls `prepare` before any of these directives changes, on the thread of CONFIG SET.
    ///
    /// `prepare` gets the new settings, while [`Self::settings`] and [`Self::live`] still return the old ones. If it,
    /// or a later listener, refuses the change, nothing changes, and the listeners that had agreed are called again
    /// with the old settings. It must not change the configuration itself.
    pub fn on_change(
        &self,
        watched: impl IntoIterator<Item = DirectiveId>,
        prepare: impl Fn(&Settings) -> Result<(), String> + Send + Sync + 'static,
    ) {
        let watched = watched.into_iter().collect();
        self.watchers.lock().push(Watcher { watched, prepare: Box::new(prepare) });
    }

    /// Like [`Self::on_change`], and calls `prepare` at once, before any further change.
    ///
    /// # Errors
    /// The error of this first call. The listener is not registered then.
    pub fn adopt(
        &self,
        watched: impl IntoIterator<Item = DirectiveId>,
        prepare: impl Fn(&Settings) -> Result<(), String> + Send + Sync + 'static,
    ) -> Result<(), String> {
        let mut watchers = self.watchers.lock();
        prepare(&self.settings())?;
        watchers
            .push(Watcher { watched: watched.into_iter().collect(), prepare: Box::new(prepare) });
        Ok(())
    }

    /// CONFIG GET: returns names and values of all directives that match a pattern, each name once.
    ///
    /// A pattern also matches aliases. A name without `*`, `?` or `[` is returned as it was asked for.
    pub fn get(&self, patterns: &[&[u8]]) -> Vec<(Vec<u8>, Vec<u8>)> {
        let settings = self.settings();
        let mut seen = HashSet::new();
        let mut found = Vec::new();
        let mut add = |name: &[u8], id: DirectiveId| {
            if seen.insert(name.to_ascii_lowercase()) {
                found.push((name.to_vec(), settings.value(id).text()));
            }
        };
        for &pattern in patterns {
            if !glob::is_pattern(pattern) {
                if let Some(id) = DirectiveId::find(pattern) {
                    add(pattern, id);
                }
                continue;
            }
            for (name, id) in listed_names() {
                if glob::matches(pattern, name.as_bytes(), Case::Ignored) {
                    add(name.as_bytes(), id);
                }
            }
        }
        found
    }

    /// CONFIG SET: changes all directives or none, and returns the changes.
    ///
    /// # Errors
    /// If a directive does not exist, cannot be changed, is named twice, or a value is refused.
    pub fn set(&self, pairs: &[(&[u8], &[u8])], peer: Peer) -> Result<Vec<Change>, SetError> {
        let watchers = self.watchers.lock();
        let old = self.settings();
        let targets = find_targets(&old, pairs, peer)?;
        let mut new = Settings::clone(&old);
        for (&id, (name, text)) in targets.iter().zip(pairs) {
            let value = id
                .directive()
                .parse(&[text], Some(old.value(id)))
                .map_err(|reason| refused(&name.to_ascii_lowercase(), reason.to_string()))?;
            if let Some(why) = id.directive().objection(&value) {
                return Err(refused(name, why));
            }
            new.replace(id, value);
        }
        if let Some((id, why)) = new.contradiction() {
            return Err(refused(id.name().as_bytes(), why));
        }
        let changes = changes(&old, &new, &targets);
        prepare_all(&watchers, &old, &new, &changes)?;
        self.live.store(&new);
        *self.current.write() = Arc::new(new);
        Ok(changes)
    }

    /// Calls the listeners of a directive that stands for the contents of a file, as CONFIG SET to its current value
    /// does.
    ///
    /// # Errors
    /// If a listener refuses the contents.
    pub fn read_again(&self, id: DirectiveId) -> Result<(), SetError> {
        let watchers = self.watchers.lock();
        let current = self.settings();
        let value = current.value(id).clone();
        prepare_all(&watchers, &current, &current, &[Change { id, old: value.clone(), new: value }])
    }

    /// Records the primary that the server follows, so that CONFIG GET and CONFIG REWRITE show it. No listener is
    /// called: this only records the role and does not change it.
    pub fn set_primary(&self, primary: Option<(Vec<u8>, u16)>) {
        const PRIMARY: DirectiveId = DirectiveId::of("replicaof");
        let _watchers = self.watchers.lock();
        let mut new = Settings::clone(&self.settings());
        new.replace(PRIMARY, Value::Primary(primary));
        *self.current.write() = Arc::new(new);
    }

    /// CONFIG REWRITE: updates the configuration file to the settings in force. It keeps comments, order, and every
    /// line that is still correct, and waits for the disk. `users` makes the `user` lines, without that word. It is
    /// called while no other thread writes the file, so that the last rewrite writes the newest users.
    ///
    /// # Errors
    /// If the server was started without a file, or the file cannot be written. The old file is intact then.
    pub fn rewrite(&self, users: impl FnOnce() -> Vec<Vec<u8>>) -> Result<(), RewriteError> {
        let _alone = self.rewriting.lock();
        rewrite::rewrite(&self.settings().without_those_for_one_start(), &users())
    }
}

impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Config").field(&self.settings()).finish()
    }
}

/// Returns true if the value of this directive, known or not, must not appear in logs and monitors.
pub fn is_secret(name: &[u8]) -> bool {
    DirectiveId::find(name).is_some_and(|id| id.directive().secrecy == Secrecy::Secret)
}

impl Settings {
    /// Returns the settings for the next start: directives for one start only are at their defaults.
    fn without_those_for_one_start(&self) -> Self {
        let mut settings = self.clone();
        let is_meant = |id: &DirectiveId| id.directive().mutability == Mutability::ForOneStart;
        for id in DirectiveId::all().filter(is_meant) {
            settings.replace(id, id.directive().default_value());
        }
        settings
    }

    /// Returns true if directives such as `enable-protected-configs` allow this to a client.
    pub fn allows(&self, id: DirectiveId, peer: Peer) -> bool {
        match self.word(id) {
            "yes" => true,
            "local" => peer == Peer::Local,
            _ => false,
        }
    }
}

/// Returns names and aliases that patterns find, in the order of the table.
fn listed_names() -> impl Iterator<Item = (&'static str, DirectiveId)> {
    DirectiveId::all()
        .filter(|id| id.directive().visibility == Visibility::Listed)
        .flat_map(|id| id.directive().names().map(move |name| (name, id)))
}

/// Finds the directives of all pairs. The first wrong pair determines the error.
fn find_targets(
    settings: &Settings,
    pairs: &[(&[u8], &[u8])],
    peer: Peer,
) -> Result<Vec<DirectiveId>, SetError> {
    let mut targets = Vec::with_capacity(pairs.len());
    for (name, _) in pairs {
        let id = DirectiveId::find(name)
            .ok_or_else(|| SetError::Unknown(String::from_utf8_lossy(name).into_owned()))?;
        if let Some(reason) = why_immutable(settings, id, peer) {
            return Err(refused(name, reason));
        }
        if targets.contains(&id) {
            return Err(refused(name, "duplicate parameter"));
        }
        targets.push(id);
    }
    Ok(targets)
}

fn why_immutable(settings: &Settings, id: DirectiveId, peer: Peer) -> Option<&'static str> {
    const PROTECTED: DirectiveId = DirectiveId::of("enable-protected-configs");
    match id.directive().mutability {
        Mutability::AtAnyTime => None,
        Mutability::BeforeStart | Mutability::ForOneStart => Some("can't set immutable config"),
        Mutability::IfUnprotected if settings.allows(PROTECTED, peer) => None,
        Mutability::IfUnprotected => Some("can't set protected config"),
    }
}

fn refused(name: &[u8], reason: impl Into<String>) -> SetError {
    SetError::Refused { name: String::from_utf8_lossy(name).into_owned(), reason: reason.into() }
}

/// Returns what differs or may differ, in the order of the pairs.
fn changes(old: &Settings, new: &Settings, targets: &[DirectiveId]) -> Vec<Change> {
    let change =
        |&id: &DirectiveId| Change { id, old: old.value(id).clone(), new: new.value(id).clone() };
    let may_differ = |change: &Change| {
        change.old != change.new || change.id.directive().meaning == Meaning::Contents
    };
    targets.iter().map(change).filter(may_differ).collect()
}

/// Calls all listeners. If one refuses, the earlier ones are called again with the old settings.
fn prepare_all(
    watchers: &[Watcher],
    old: &Settings,
    new: &Settings,
    changes: &[Change],
) -> Result<(), SetError> {
    let mut prepared: Vec<&Watcher> = Vec::new();
    for watcher in watchers {
        let concerned = changes.iter().find(|change| watcher.watched.contains(&change.id));
        let Some(change) = concerned else { continue };
        if let Err(reason) = (watcher.prepare)(new) {
            for watcher in prepared {
                // The old settings were possible a moment ago. If they no longer are, no listener can help, and the
                // first reason is the one to report.
                let _ = (watcher.prepare)(old);
            }
            return Err(refused(change.id.name().as_bytes(), reason));
        }
        prepared.push(watcher);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Config, DirectiveId, Peer, Settings, is_secret};
    use parking_lot::Mutex;
    use std::fs;
    use std::sync::Arc;
    use tierce_harness::TempDir;

    const PORT: DirectiveId = DirectiveId::of("port");
    const TIMEOUT: DirectiveId = DirectiveId::of("timeout");

    fn config() -> Config {
        Config::new(Settings::default())
    }

    /// Sets the pairs; names and values alternate, separated by `|`.
    fn set_from(config: &Config, pairs: &str, peer: Peer) -> Result<(), String> {
        let words: Vec<&[u8]> = pairs.split('|').map(str::as_bytes).collect();
        let pairs: Vec<(&[u8], &[u8])> =
            words.as_chunks().0.iter().map(|[a, b]| (*a, *b)).collect();
        config.set(&pairs, peer).map(drop).map_err(|error| error.to_string())
    }

    fn set(config: &Config, pairs: &str) -> Result<(), String> {
        set_from(config, pairs, Peer::Local)
    }

    /// Returns the answer as `name=value`, separated by blanks.
    fn get(config: &Config, patterns: &str) -> String {
        let patterns: Vec<&[u8]> = patterns.split(' ').map(str::as_bytes).collect();
        let show = |(name, value)| {
            let text = |bytes| String::from_utf8(bytes).expect("text");
            format!("{}={}", text(name), text(value))
        };
        config.get(&patterns).into_iter().map(show).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn get_finds_names_aliases_and_patterns_once() {
        let config = config();
        assert_eq!(get(&config, "nosuch"), "");
        assert_eq!(get(&config, "MaxClients maxclients"), "MaxClients=10000");
        assert_eq!(get(&config, "slave-priority"), "slave-priority=100");
        assert_eq!(
            get(&config, "replica-r* SLAVE-R*"),
            "replica-read-only=yes slave-read-only=yes"
        );
        assert_eq!(get(&config, "?ort [p]ort port"), "port=6379");
        assert_eq!(get(&config, "watchdog*"), "");
        assert_eq!(get(&config, "watchdog-period"), "watchdog-period=0");
    }

    #[test]
    fn what_is_for_one_start_does_not_get_into_the_file() {
        let dir = TempDir::new();
        dir.write("x.conf", "bucket-claim force\nbucket file:///x\n");
        let path = dir.path().join("x.conf");
        let mut settings = Settings::default();
        settings.set_file(Some(path.clone()));
        let set = |settings: &mut Settings, name: &str, text: &str| {
            let id = DirectiveId::find(name.as_bytes()).expect("known");
            let value = id.directive().parse(&[text.as_bytes()], None).expect("valid");
            settings.replace(id, value);
        };
        set(&mut settings, "bucket", "file:///x");
        set(&mut settings, "bucket-claim", "force");
        let config = Config::new(settings);
        config.rewrite(Vec::new).expect("written");
        let text = fs::read_to_string(&path).expect("readable");
        assert!(text.contains("bucket file:///x") && !text.contains("force"), "{text}");
        assert_eq!(get(&config, "bucket-claim"), "bucket-claim=force");
    }

    #[test]
    fn values_are_shown_as_redis_shows_them() {
        let config = config();
        for (name, given, shown) in [
            ("maxmemory", "1gb", "1073741824"),
            ("loglevel", "DEBUG", "debug"),
            ("save", "60 1 300 10", "60 1 300 10"),
            ("save", "", ""),
            ("latency-tracking-info-percentiles", "50 99.9990", "50 99.999"),
            ("hz", "1000", "500"),
            ("shutdown-on-sigint", "now force", "now force"),
            (
                "client-output-buffer-limit",
                "normal 0 0 0 replica 1g 1mb 3",
                "normal 0 0 0 slave 1000000000 1048576 3 pubsub 33554432 8388608 60",
            ),
        ] {
            set(&config, &format!("{name}|{given}")).expect(name);
            assert_eq!(get(&config, name), format!("{name}={shown}"));
        }
    }

    #[test]
    fn errors_have_the_words_of_redis() {
        let config = config();
        let check = |pairs: &str, expected: &str| {
            assert_eq!(set(&config, pairs), Err(expected.to_owned()), "{pairs}");
        };
        let unknown = "ERR Unknown option or number of arguments for CONFIG SET - 'NoSuch'";
        check("NoSuch|1", unknown);
        check("maxmemory|1gb|NoSuch|3|databases|1", unknown);
        let failed = |name: &str, reason: &str| {
            format!("ERR CONFIG SET failed (possibly related to argument '{name}') - {reason}")
        };
        check("databases|3|nosuch|1", &failed("databases", "can't set immutable config"));
        check("slaveof|a 1", &failed("slaveof", "can't set immutable config"));
        check("timeout|1|TimeOut|1", &failed("TimeOut", "duplicate parameter"));
        let memory = failed("maxmemory", "argument must be a memory value");
        check("MaxMemory|1x", &memory);
        let number = failed("slave-priority", "argument couldn't be parsed into an integer");
        check("slave-priority|x", &number);
        let range = failed("port", "argument must be between 0 and 65535 inclusive");
        check("port|99999", &range);
        let choice = "argument(s) must be one of the following: everysec, always, no, bucket";
        check("appendfsync|foo", &failed("appendfsync", choice));
    }

    #[test]
    fn a_failed_set_changes_nothing() {
        let config = config();
        let before = config.settings();
        assert!(set(&config, "timeout|5|maxclients|0").is_err());
        assert_eq!(config.settings(), before);
        assert_eq!(config.live().timeout_seconds(), 0);
        set(&config, "timeout|5|maxclients|1").expect("valid");
        assert_eq!((config.live().timeout_seconds(), config.live().maxclients()), (5, 1));
    }

    #[test]
    fn protected_directives_follow_enable_protected_configs() {
        let reason = "ERR CONFIG SET failed (possibly related to argument 'dir') - \
                      can't set protected config";
        for (allowed, local, remote) in
            [("no", false, false), ("local", true, false), ("yes", true, true)]
        {
            let mut settings = Settings::default();
            let id = DirectiveId::of("enable-protected-configs");
            let value = id.directive().parse(&[allowed.as_bytes()], None).expect("valid");
            settings.replace(id, value);
            let config = Config::new(settings);
            for (peer, may) in [(Peer::Local, local), (Peer::Remote, remote)] {
                let expected = if may { Ok(()) } else { Err(reason.to_owned()) };
                assert_eq!(set_from(&config, "dir|/tmp", peer), expected, "{allowed} {peer:?}");
            }
        }
    }

    #[test]
    fn watchers_hear_of_changes_to_what_they_watch() {
        let config = config();
        let heard = Arc::new(Mutex::new(Vec::new()));
        let sink = heard.clone();
        config.on_change([PORT, TIMEOUT], move |new: &Settings| {
            sink.lock().push((new.port(), new.number(TIMEOUT)));
            Ok(())
        });
        for pairs in ["maxclients|5", "port|6379", "port|1", "port|2|timeout|3"] {
            set(&config, pairs).expect("valid");
        }
        assert_eq!(*heard.lock(), [(1, 0), (2, 3)]);
    }

    #[test]
    fn directives_that_contradict_each_other_are_refused() {
        let config = Config::new(Settings::default());
        let error = config.set(&[(b"appendfsync", b"bucket")], Peer::Local).unwrap_err();
        assert!(error.to_string().contains("there is no bucket"), "{error}");
        config.set(&[(b"appendonly", b"no")], Peer::Local).unwrap();
    }

    #[test]
    fn one_watcher_can_refuse_for_all() {
        let config = config();
        let ports = Arc::new(Mutex::new(Vec::new()));
        let sink = ports.clone();
        config.on_change([PORT], move |new: &Settings| {
            sink.lock().push(new.port());
            Ok(())
        });
        config.on_change([TIMEOUT], |_: &Settings| Err("not today".to_owned()));
        let error = "ERR CONFIG SET failed (possibly related to argument 'timeout') - not today";
        assert_eq!(set(&config, "port|7000|timeout|5"), Err(error.to_owned()));
        assert_eq!(*ports.lock(), [7000, 6379]);
        assert_eq!(get(&config, "port timeout"), "port=6379 timeout=0");
    }

    #[test]
    fn a_set_tells_what_changed() {
        let config = config();
        let pairs: [(&[u8], &[u8]); 2] = [(b"port", b"6379"), (b"timeout", b"5")];
        let changes = config.set(&pairs, Peer::Local).expect("valid");
        assert_eq!(changes.len(), 1);
        assert_eq!(changes[0].id, TIMEOUT);
        assert_eq!((changes[0].old.text(), changes[0].new.text()), (b"0".into(), b"5".into()));
    }

    #[test]
    fn passwords_are_known_as_secrets() {
        let config = config();
        assert!(is_secret(b"RequirePass") && is_secret(b"masterauth"));
        assert!(!is_secret(b"port") && !is_secret(b"nosuch"));
        set(&config, "requirepass|hunter2").expect("valid");
        assert_eq!(get(&config, "requirepass"), "requirepass=hunter2");
        assert!(config.live().has_password());
        assert!(!format!("{config:?}").contains("hunter2"));
    }
}
