//! One prefix of an object store: single requests, with a limit of time, counted, and repeated where that is harmless.
//!
//! Invariants:
//! - [`Store::create`] sends one request and reports anything but success as unknown.
//! - An answer "not found" is passed on; every other failure is repeated with growing pauses, and becomes an error
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

/// How long requests may take and are repeated, and how long objects get.
#[derive(Debug, Clone, Copy)]
pub struct Tuning {
    /// One attempt. It may still take effect later.
    pub attempt: Duration,
    /// The first pause after a failure; each is twice as long as the one before.
    pub pause_min: Duration,
    /// The longest pause.
    pub pause_max: Duration,
    /// For how long reads and idempotent writes are repeated before they fail. Appends are repeated forever.
    pub patience: Duration,
    /// Payloads longer than this, in bytes before compression, go to `blob/` first, in pieces that are as long. At
    /// most 16 MiB.
    pub piece_len: usize,
    /// Bytes of a part of a snapshot before compression. At most 16 MiB.
    pub part_len: usize,
    /// Records that a restore asks for ahead of the one it returns; at most 8 of the parts of a snapshot.
    pub read_ahead: usize,
    /// How often a follower looks for the next record when there was none.
    pub poll: Duration,
    /// How often a follower that finds no next record looks whether pruning has passed it by: that takes a list, which
    /// costs as much as a dozen reads.
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
    /// Of `file://`.
    directory: Option<Arc<Directory>>,
    #[cfg(test)]
    pub(crate) left_out: Option<Rule>,
}

/// An object that is longer than this, in bytes, is none of Tierce's, and is not read: a record has 16 MiB of payload,
/// or a list with 49 bytes for each piece, and a manifest as much for each part.
const OBJECT_LIMIT: u64 = 128 << 20;

/// What is compressed as a whole is no longer than this, in bytes; a longer declared length is not believed.
pub(crate) const WHOLE_LIMIT: usize = 16 << 20;

/// Why an object is missing in a directory.
pub(crate) const REMOVED: &str =
    ": something has removed it, or the directory is not the one it was";

/// Opens the store at another location: the parent of a branch.
pub type Siblings = Arc<dyn Fn(&str) -> Result<Store> + Send + Sync>;

/// What a conditional put came to.
#[derive(Debug)]
pub(crate) enum Put {
    /// The object is there, and from this attempt.
    Created,
    /// It may be there, from this attempt or another, or come later.
    Unknown(Error),
}

/// A name in a list, below the prefix, and the object's size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listed {
    pub name: String,
    pub size: u64,
}

/// Whether an object lies in a folder of a log itself, and not in a log that was begun in this folder.
fn is_own(name: &str) -> bool {
    name.split('/').count() == 2
}

impl Store {
    /// The store at a location, with the real clocks.
    pub fn new(location: &Location) -> Self {
        let (store, prefix) = (Arc::clone(&location.store), location.prefix.clone());
        let directory = location.directory.clone();
        let (env, tuning) = (Arc::new(System), Tuning::default());
        Self { directory, ..Self::with(store, prefix, location.url(), env, tuning) }
    }

    /// A store with its surroundings: for simulations.
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

    /// Opens other locations in this way: for simulations.
    #[must_use]
    pub fn with_siblings(mut self, siblings: Siblings) -> Self {
        self.siblings = siblings;
        self
    }

    /// The store at another location.
    pub(crate) fn sibling(&self, url: &str) -> Result<Self> {
        (self.siblings)(url)
    }

    /// The prefix of all names.
    pub(crate) fn prefix(&self) -> &Path {
        &self.prefix
    }

    /// Another prefix of the same store. Its objects are asked for alone: the location stays as it was given.
    pub(crate) fn at_prefix(&self, prefix: Path) -> Self {
        Self { prefix, ..self.clone() }
    }

    /// The store for a caller that asks again by itself, and tells of each failure: no request is repeated for long.
    pub(crate) fn impatient(&self) -> Self {
        let tuning = Tuning { patience: Duration::ZERO, ..self.tuning };
        Self { tuning, ..self.clone() }
    }

    /// Random bytes that make a record different from all others.
    pub(crate) fn nonce(&self) -> [u8; 16] {
        if self.keeps(Rule::Nonce) { self.env.random() } else { [0; 16] }
    }

    /// Whether a rule is kept.
    #[cfg(test)]
    pub(crate) fn keeps(&self, rule: Rule) -> bool {
        self.left_out != Some(rule)
    }

    #[cfg(not(test))]
    #[expect(clippy::unused_self, reason = "a simulation asks its own store")]
    pub(crate) fn keeps(&self, _: Rule) -> bool {
        true
    }

    /// Requests and bytes so far.
    pub fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    /// The store with another pause between two looks of a follower.
    #[must_use]
    pub fn with_poll(mut self, poll: Duration) -> Self {
        self.tuning.poll = poll;
        self
    }

    /// The location as it was given.
    pub fn url(&self) -> &str {
        &self.url
    }

    fn path(&self, name: &str) -> Path {
        name.split('/').fold(self.prefix.clone(), |path, part| path.join(part))
    }

    /// One attempt to put an object that must not be there yet.
    pub(crate) async fn create(&self, name: &str, bytes: Bytes) -> Put {
        match self.put(name, bytes, PutMode::Create).await {
            Ok(()) => Put::Created,
            Err(error) => Put::Unknown(error),
        }
    }

    /// Puts an object whose name fixes its content, so that doing it twice is harmless.
    pub(crate) async fn ensure(&self, name: &str, bytes: Bytes) -> Result<()> {
        self.patiently(|| self.put(name, bytes.clone(), PutMode::Overwrite)).await
    }

    /// The same, and `failed` hears of each attempt that did not succeed.
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

    /// The object's bytes, or `None` if it is not there.
    pub(crate) async fn get(&self, name: &str) -> Result<Option<Bytes>> {
        self.patiently(|| self.get_once(name)).await
    }

    /// One attempt to read an object.
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

    /// Whether the object is there.
    pub(crate) async fn exists(&self, name: &str) -> Result<bool> {
        self.patiently(|| self.exists_once(name)).await
    }

    /// One attempt to find out whether the object is there.
    pub(crate) async fn exists_once(&self, name: &str) -> Result<bool> {
        Counters::add(&self.counters.heads, 1);
        let path = self.path(name);
        let head = self.inner.get_opts(&path, GetOptions::new().with_head(true));
        Ok(found(self.limited("get", name, head).await)?.is_some())
    }

    /// The objects in a folder with names before `folder/until`, in order of their names.
    pub(crate) async fn list(&self, folder: &str, until: Option<&str>) -> Result<Vec<Listed>> {
        self.patiently(|| self.list_once(folder, until)).await
    }

    /// All objects in a folder itself, and none of a log that was begun in this folder.
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
        // Some come in any order.
        listed.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        if let Some(until) = until {
            listed.truncate(listed.partition_point(|item| item.name < until));
        }
        Ok(listed)
    }

    /// The first name in a folder itself after `name`, which need not be there.
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

    /// True for a log in a directory, where nobody but an operator removes objects.
    pub(crate) fn is_directory(&self) -> bool {
        self.directory.is_some()
    }

    /// In a directory, the object of the log that the next one follows has to be there: what follows a hole is lost.
    /// One attempt to find out.
    pub(crate) async fn check_before(&self, name: &str) -> Result<()> {
        let Some(directory) = &self.directory else { return Ok(()) };
        directory.note_anchor(name);
        match self.exists_once(name).await? {
            true => Ok(()),
            false => Err(Error::Missing { object: name.into(), because: REMOVED.into() }),
        }
    }

    /// Whether lists come in order of their names: those of stores do, those of directories and of S3 Express do not.
    fn is_sorted(&self) -> bool {
        !self.url.get(..5).is_some_and(|scheme| scheme.eq_ignore_ascii_case("file:"))
            && !is_express(&self.url)
    }

    fn below_prefix(&self, path: &Path) -> String {
        let mut parts = path.prefix_match(&self.prefix).into_iter().flatten();
        let first = parts.next().map(|part| part.as_ref().to_owned()).unwrap_or_default();
        parts.fold(first, |name, part| name + "/" + part.as_ref())
    }

    /// Deletes objects. That one is not there any more is as well.
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

    /// Gives a request the time that one attempt may take.
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
            // An object that was put into another directory meanwhile is not in the log.
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

    /// Repeats a request that may be repeated until it succeeds or patience ends.
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

/// Whether this is a directory bucket, as those of S3 Express are called: by the end that S3 asks of their names, and
/// of no others'.
fn is_express(url: &str) -> bool {
    let name = url.split_once("://").map_or("", |(_, rest)| rest);
    name.split('/').next().is_some_and(|name| name.ends_with("--x-s3"))
}

fn is_absence<T>(answer: &Result<T>) -> bool {
    matches!(answer, Err(Error::Store { source, .. }) if matches!(**source, object_store::Error::NotFound { .. }))
}

/// Makes `None` of the answer that an object is not there.
fn found<T>(answer: Result<T>) -> Result<Option<T>> {
    if is_absence(&answer) { Ok(None) } else { answer.map(Some) }
}

/// Pauses that double, each cut by a random part so that many clients do not come back together.
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

    /// As when a file system is unmounted between the look before a request and the request itself.
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
            // It was put, and not into the log.
            assert!(root.join("log/2").exists() && !aside.join("log/2").exists());
        });
    }
}
