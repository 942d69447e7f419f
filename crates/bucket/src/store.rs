//! One prefix of an object store: single requests, with a time limit, counted, and retried where that is harmless.
//!
//! Invariants:
//! - [`Store::create`] sends one request and reports anything but success as unknown.
//! - An answer "not found" is passed on. Every other failure is retried with growing pauses, and becomes an error
//!   after [`Tuning::patience`]. A failure never counts as "not found".

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use object_store::path::Path;
use object_store::{GetOptions, ObjectStore, PutMode, PutPayload};
use tokio::time::{sleep, timeout};

use crate::counters::Counters;
use crate::directory::Directory;
use crate::env::{Env, System};
use crate::error::{Error, Result};
use crate::location::Location;
use crate::record::LOG_FOLDER;
use crate::rules::Rule;

/// Time limits and retries of requests, and sizes of objects.
#[derive(Debug, Clone, Copy)]
pub struct Tuning {
    /// Time limit of one attempt. The request may still take effect later.
    pub attempt: Duration,
    /// The first pause after a failure; each is twice as long as the one before.
    pub pause_min: Duration,
    /// The longest pause.
    pub pause_max: Duration,
    /// Period for which reads and idempotent writes are retried before they fail. Appends are retried forever.
    pub patience: Duration,
    /// Payloads longer than this, in bytes before compression, are first uploaded to `blob/` in pieces of this length.
    /// At most 16 MiB.
    pub piece_len: usize,
    /// Bytes of a part of a snapshot before compression. At most 16 MiB.
    pub part_len: usize,
    /// Number of records that a restore requests ahead of the one it returns; at most 8 for the parts of a snapshot.
    pub read_ahead: usize,
    /// Interval at which a follower looks for the next record when there was none.
    pub poll: Duration,
    /// Interval at which a follower that finds no next record checks for pruning past it: that takes a list request,
    /// which costs as much as a dozen reads.
    pub floor_poll: Duration,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            attempt: Duration::from_secs(30),
            pause_min: Duration::from_millis(50),
            pause_max: Duration::from_secs(5),
            patience: Duration::from_secs(60),
            piece_len: 4 << 20,
            part_len: 8 << 20,
            read_ahead: 64,
            poll: Duration::from_millis(100),
            floor_poll: Duration::from_secs(10),
        }
    }
}

/// A prefix of an object store. Clones share the counters.
#[derive(Clone)]
pub struct Store {
    inner: Arc<dyn ObjectStore>,
    prefix: Path,
    url: Arc<str>,
    pub(crate) env: Arc<dyn Env>,
    counters: Arc<Counters>,
    pub(crate) tuning: Tuning,
    siblings: Siblings,
    /// Set for `file://` only.
    directory: Option<Arc<Directory>>,
    #[cfg(test)]
    pub(crate) left_out: Option<Rule>,
}

/// A longer object, in bytes, is not one of Tierce's, and is not read: a record has 16 MiB of payload or a list with
/// 49 bytes for each piece, and a manifest has as much for each part.
const OBJECT_LIMIT: u64 = 128 << 20;

/// Upper bound, in bytes, of data that is compressed as a whole; a longer declared length is rejected.
pub(crate) const WHOLE_LIMIT: usize = 16 << 20;

/// Possible cause of a missing object in a directory.
pub(crate) const REMOVED: &str =
    ": something has removed it, or the directory is not the one it was";

/// Function that opens the store at another location: the parent of a branch.
pub type Siblings = Arc<dyn Fn(&str) -> Result<Store> + Send + Sync>;

/// Outcome of a conditional put.
#[derive(Debug)]
pub(crate) enum Put {
    /// The object exists, and is from this attempt.
    Created,
    /// The object may exist, from this attempt or another, or appear later.
    Unknown(Error),
}

/// A name in a list, below the prefix, and the object's size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listed {
    pub name: String,
    pub size: u64,
}

/// Returns true if an object lies directly in a folder of a log, and not in a log that was begun inside this folder.
fn is_own(name: &str) -> bool {
    name.split('/').count() == 2
}

impl Store {
    /// Opens the store at a location, with the real clocks.
    pub fn new(location: &Location) -> Self {
        let (store, prefix) = (Arc::clone(&location.store), location.prefix.clone());
        let directory = location.directory.clone();
        let (env, tuning) = (Arc::new(System), Tuning::default());
        Self { directory, ..Self::with(store, prefix, location.url(), env, tuning) }
    }

    /// Creates a store with the given clocks and client: for simulations.
    pub fn with(
        inner: Arc<dyn ObjectStore>,
        prefix: Path,
        url: &str,
        env: Arc<dyn Env>,
        tuning: Tuning,
    ) -> Self {
        let tuning = Tuning {
            piece_len: tuning.piece_len.clamp(1, WHOLE_LIMIT),
            part_len: tuning.part_len.clamp(1, WHOLE_LIMIT),
            read_ahead: tuning.read_ahead.max(1),
            ..tuning
        };
        let siblings: Siblings = Arc::new(|url| Ok(Self::new(&Location::parse(url)?)));
        Self {
            inner,
            prefix,
            url: url.into(),
            env,
            counters: Arc::default(),
            tuning,
            siblings,
            directory: None,
            #[cfg(test)]
            left_out: None,
        }
    }

    /// Opens other locations with this function: for simulations.
    #[must_use]
    pub fn with_siblings(mut self, siblings: Siblings) -> Self {
        self.siblings = siblings;
        self
    }

    /// Opens the store at another location.
    pub(crate) fn sibling(&self, url: &str) -> Result<Self> {
        (self.siblings)(url)
    }

    /// Returns the prefix of all names.
    pub(crate) fn prefix(&self) -> &Path {
        &self.prefix
    }

    /// Returns another prefix of the same store, for reading objects only: the location stays as it was given.
    pub(crate) fn at_prefix(&self, prefix: Path) -> Self {
        Self { prefix, ..self.clone() }
    }

    /// Returns the store for a caller that retries by itself, and reports each failure: requests are not retried for
    /// long.
    pub(crate) fn impatient(&self) -> Self {
        let tuning = Tuning { patience: Duration::ZERO, ..self.tuning };
        Self { tuning, ..self.clone() }
    }

    /// Returns random bytes that make a record different from all others.
    pub(crate) fn nonce(&self) -> [u8; 16] {
        if self.keeps(Rule::Nonce) { self.env.random() } else { [0; 16] }
    }

    /// Returns true if a rule is kept.
    #[cfg(test)]
    pub(crate) fn keeps(&self, rule: Rule) -> bool {
        self.left_out != Some(rule)
    }

    #[cfg(not(test))]
    #[expect(clippy::unused_self, reason = "a simulation asks its own store")]
    pub(crate) fn keeps(&self, _: Rule) -> bool {
        true
    }

    /// Returns the counters of requests and bytes so far.
    pub fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    /// Returns the store with another polling interval for followers.
    #[must_use]
    pub fn with_poll(mut self, poll: Duration) -> Self {
        self.tuning.poll = poll;
        self
    }

    /// Returns the location as it was given.
    pub fn url(&self) -> &str {
        &self.url
    }

    fn path(&self, name: &str) -> Path {
        name.split('/').fold(self.prefix.clone(), |path, part| path.join(part))
    }

    /// Tries once to put an object that must not exist yet.
    pub(crate) async fn create(&self, name: &str, bytes: Bytes) -> Put {
        match self.put(name, bytes, PutMode::Create).await {
            Ok(()) => Put::Created,
            Err(error) => Put::Unknown(error),
        }
    }

    /// Puts an object whose name determines its content, so that repeating the put is harmless.
    pub(crate) async fn ensure(&self, name: &str, bytes: Bytes) -> Result<()> {
        self.patiently(|| self.put(name, bytes.clone(), PutMode::Overwrite)).await
    }

    /// As [`Store::ensure`], and calls `failed` for each attempt that did not succeed.
    pub(crate) async fn ensure_told(
        &self,
        name: &str,
        bytes: Bytes,
        failed: impl Fn(&Error),
    ) -> Result<()> {
        self.patiently(|| async {
            let put = self.put(name, bytes.clone(), PutMode::Overwrite).await;
            put.inspect_err(&failed)
        })
        .await
    }

    async fn put(&self, name: &str, bytes: Bytes, mode: PutMode) -> Result<()> {
        Counters::add(&self.counters.puts, 1);
        Counters::add(&self.counters.bytes_up, bytes.len());
        let path = self.path(name);
        let put = self.inner.put_opts(&path, PutPayload::from_bytes(bytes), mode.into());
        self.limited("put", name, put).await.map(drop)
    }

    /// Returns the object's bytes, or `None` if it does not exist.
    pub(crate) async fn get(&self, name: &str) -> Result<Option<Bytes>> {
        self.patiently(|| self.get_once(name)).await
    }

    /// Tries once to read an object.
    pub(crate) async fn get_once(&self, name: &str) -> Result<Option<Bytes>> {
        Counters::add(&self.counters.gets, 1);
        let path = self.path(name);
        let get = async {
            let found = self.inner.get_opts(&path, GetOptions::default()).await?;
            if found.meta.size > OBJECT_LIMIT {
                return Ok(Err(found.meta.size));
            }
            found.bytes().await.map(Ok)
        };
        let bytes = match found(self.limited("get", name, get).await)?.transpose() {
            Ok(bytes) => bytes,
            Err(size) => {
                return Err(Error::damaged(name, format!("{size} bytes are too many")));
            }
        };
        if bytes.is_some()
            && let Some(directory) = &self.directory
            && name.starts_with(LOG_FOLDER)
        {
            directory.note_anchor(name);
        }
        Counters::add(&self.counters.bytes_down, bytes.as_ref().map_or(0, Bytes::len));
        Ok(bytes)
    }

    /// Returns true if the object exists.
    pub(crate) async fn exists(&self, name: &str) -> Result<bool> {
        self.patiently(|| self.exists_once(name)).await
    }

    /// Tries once to find out whether the object exists.
    pub(crate) async fn exists_once(&self, name: &str) -> Result<bool> {
        Counters::add(&self.counters.heads, 1);
        let path = self.path(name);
        let head = self.inner.get_opts(&path, GetOptions::new().with_head(true));
        Ok(found(self.limited("get", name, head).await)?.is_some())
    }

    /// Lists the objects in a folder with names before `folder/until`, sorted by name.
    pub(crate) async fn list(&self, folder: &str, until: Option<&str>) -> Result<Vec<Listed>> {
        self.patiently(|| self.list_once(folder, until)).await
    }

    /// Lists all objects directly in a folder, without those of a log that was begun inside this folder.
    pub(crate) async fn list_own(&self, folder: &str) -> Result<Vec<Listed>> {
        let mut listed = self.list(folder, None).await?;
        listed.retain(|item| is_own(&item.name));
        Ok(listed)
    }

    async fn list_once(&self, folder: &str, until: Option<&str>) -> Result<Vec<Listed>> {
        Counters::add(&self.counters.lists, 1);
        let path = self.path(folder);
        let until = until.map(|until| format!("{folder}/{until}"));
        let mut names = self.inner.list(Some(&path));
        let mut listed = Vec::new();
        while let Some(meta) =
            self.limited("list", folder, async { names.next().await.transpose() }).await?
        {
            let name = self.below_prefix(&meta.location);
            if until.as_ref().is_some_and(|until| &name >= until) && self.is_sorted() {
                break;
            }
            listed.push(Listed { name, size: meta.size });
            if listed.len() % 1000 == 0 {
                Counters::add(&self.counters.lists, 1);
            }
        }
        // Some stores list in any order.
        listed.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        if let Some(until) = until {
            listed.truncate(listed.partition_point(|item| item.name < until));
        }
        Ok(listed)
    }

    /// Returns the first name directly in a folder after `name`, which need not exist.
    pub(crate) async fn first_after(&self, folder: &str, name: &str) -> Result<Option<String>> {
        self.patiently(|| async {
            Counters::add(&self.counters.lists, 1);
            let (path, offset) = (self.path(folder), self.path(name));
            let mut names = self.inner.list_with_offset(Some(&path), &offset);
            let mut first = None;
            while let Some(meta) =
                self.limited("list", folder, async { names.next().await.transpose() }).await?
            {
                let name = self.below_prefix(&meta.location);
                if !is_own(&name) {
                    continue;
                }
                first = Some(first.map_or(name.clone(), |first: String| first.min(name)));
                if self.is_sorted() {
                    break;
                }
            }
            Ok(first)
        })
        .await
    }

    /// Returns true for a log in a directory, where nobody but an operator removes objects.
    pub(crate) fn is_directory(&self) -> bool {
        self.directory.is_some()
    }

    /// Checks once, in a directory, that the object before the next one in the log exists: records after a hole are
    /// lost.
    pub(crate) async fn check_before(&self, name: &str) -> Result<()> {
        let Some(directory) = &self.directory else { return Ok(()) };
        directory.note_anchor(name);
        match self.exists_once(name).await? {
            true => Ok(()),
            false => Err(Error::Missing { object: name.into(), because: REMOVED.into() }),
        }
    }

    /// Returns true if lists are sorted by name: those of stores are, those of directories and of S3 Express are not.
    fn is_sorted(&self) -> bool {
        !self.url.get(..5).is_some_and(|scheme| scheme.eq_ignore_ascii_case("file:"))
            && !is_express(&self.url)
    }

    fn below_prefix(&self, path: &Path) -> String {
        let mut parts = path.prefix_match(&self.prefix).into_iter().flatten();
        let first = parts.next().map(|part| part.as_ref().to_owned()).unwrap_or_default();
        parts.fold(first, |name, part| name + "/" + part.as_ref())
    }

    /// Deletes objects. An object that is already gone is not an error.
    pub(crate) async fn delete(&self, names: &[String]) -> Result<()> {
        Counters::add(&self.counters.deletes, names.len());
        self.patiently(|| async {
            let paths: Vec<_> = names.iter().map(|name| Ok(self.path(name))).collect();
            let mut deleted = self.inner.delete_stream(stream::iter(paths).boxed());
            let first = names.first().map_or("", String::as_str);
            while let Some(answer) =
                self.limited("delete", first, async { Ok(deleted.next().await) }).await?
            {
                found(answer.map_err(|source| Error::store("delete", first, source)))?;
            }
            Ok(())
        })
        .await
    }

    /// Limits a request to the time of one attempt.
    async fn limited<T>(
        &self,
        operation: &'static str,
        name: &str,
        request: impl Future<Output = object_store::Result<T>>,
    ) -> Result<T> {
        let request = async {
            let Some(directory) = &self.directory else { return request.await };
            directory.check().await?;
            let answer = request.await?;
            // An object that was put into a replaced directory meanwhile is not in the log.
            directory.check().await?;
            Ok(answer)
        };
        let answer = match timeout(self.tuning.attempt, request).await {
            Ok(answer) => answer.map_err(|source| Error::store(operation, name, source)),
            Err(_) => Err(Error::Timeout {
                operation,
                object: name.into(),
                seconds: self.tuning.attempt.as_secs(),
            }),
        };
        if let Err(error) = &answer
            && !is_absence(&answer)
        {
            self.counters.note_failure(error);
        }
        answer
    }

    /// Retries a repeatable request until it succeeds or patience ends.
    async fn patiently<T, F: Future<Output = Result<T>>>(
        &self,
        mut request: impl FnMut() -> F,
    ) -> Result<T> {
        let start = self.env.boottime();
        let mut backoff = Backoff::new(self);
        loop {
            match request().await {
                Ok(value) => return Ok(value),
                Err(error) if error.is_lasting() => return Err(error),
                Err(error) if self.env.boottime().saturating_sub(start) > self.tuning.patience => {
                    return Err(error);
                }
                Err(_) => backoff.pause().await,
            }
        }
    }
}

/// Returns true for a directory bucket of S3 Express: S3 requires this ending of their names, and of no others.
fn is_express(url: &str) -> bool {
    let name = url.split_once("://").map_or("", |(_, rest)| rest);
    name.split('/').next().is_some_and(|name| name.ends_with("--x-s3"))
}

fn is_absence<T>(answer: &Result<T>) -> bool {
    matches!(answer, Err(Error::Store { source, .. }) if matches!(**source, object_store::Error::NotFound { .. }))
}

/// Turns the answer that an object does not exist into `None`.
fn found<T>(answer: Result<T>) -> Result<Option<T>> {
    if is_absence(&answer) { Ok(None) } else { answer.map(Some) }
}

/// Pauses that double, each shortened by a random part so that many clients do not return together.
pub(crate) struct Backoff<'a> {
    store: &'a Store,
    next: Duration,
}

impl<'a> Backoff<'a> {
    pub(crate) fn new(store: &'a Store) -> Self {
        Self { store, next: store.tuning.pause_min }
    }

    pub(crate) async fn pause(&mut self) {
        let part = f64::from(self.store.env.random()[0]) / 255.0;
        sleep(self.next.mul_f64(0.5 + part / 2.0)).await;
        self.next = (self.next * 2).min(self.store.tuning.pause_max);
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{create_dir, rename};

    use tierce_harness::TempDir;

    use super::*;

    /// As when a file system is unmounted between the check before a request and the request itself.
    #[test]
    fn what_was_put_into_another_directory_meanwhile_is_not_there() {
        let dir = TempDir::new();
        let (root, aside) = (dir.path().join("root"), dir.path().join("aside"));
        let url = format!("file://{}", root.display());
        let store = Store::new(&Location::parse(&url).unwrap());
        let object = || PutPayload::from_bytes(Bytes::from_static(b"object"));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let first = store.create("log/1", Bytes::new()).await;
            assert!(matches!(first, Put::Created), "{first:?}");
            let put = async {
                rename(&root, &aside).unwrap();
                create_dir(&root).unwrap();
                store.inner.put_opts(&store.path("log/2"), object(), PutMode::Create.into()).await
            };
            let error = store.limited("put", "log/2", put).await.map(drop).unwrap_err();
            assert!(error.to_string().contains("is another directory than before"), "{error}");
            // It was put, but not into the log.
            assert!(root.join("log/2").exists() && !aside.join("log/2").exists());
        });
    }
}
