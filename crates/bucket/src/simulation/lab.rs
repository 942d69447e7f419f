//! A store whose requests proceed only when permitted, to try every order of the requests of two processes, and to
//! stop a process after each of its requests.
//!
//! A request waits before it takes effect, and once more before its answer arrives. Each process has a lane of its
//! own, in which requests pass freely or by permits, one at a time.

use std::collections::BTreeMap;
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Poll, Waker};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream::{self, BoxStream, StreamExt};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use tierce_harness::Random;
use tokio::time::{Instant, sleep};

use super::store::{failure, got, meta};
use crate::env::Env;
use crate::rules::Rule;
use crate::{Claim, Group, Item, Moment, Owner, Restore, Right, Store, Tuning};

pub(super) type Objects = BTreeMap<String, Bytes>;

/// Present and past objects of the store.
#[derive(Default)]
pub(super) struct Contents {
    pub now: Objects,
    /// First object under each name.
    pub past: Objects,
}

/// Effect of a request on the store when it lands.
type Effect<T> = Box<dyn FnOnce(&mut Contents) -> Result<T> + Send>;

/// Fault of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// 503 SlowDown: it has no effect.
    Throttled,
    /// It takes effect, and is answered with 500.
    Landed,
    /// It is answered with 500, and takes effect when [`Lab::land`] is called.
    Late,
}

#[derive(Default)]
struct State {
    contents: Contents,
    processes: Vec<ProcessState>,
    /// Requests in flight whose sender was dropped, or got an error before they took effect.
    on_the_way: Vec<Effect<()>>,
    randoms: u64,
    requests: usize,
    fault: Option<(usize, Fault)>,
    /// True if all requests fail: the credentials have expired.
    has_expired: bool,
    weather: Option<Weather>,
    /// True if lists come in a different order from that of the names.
    lists_backwards: bool,
    /// Object that no list shows.
    unlisted: Option<String>,
}

/// Latency of requests, and the rate of faults.
struct Weather {
    random: Random,
    way_ms: u64,
    faults: usize,
}

#[derive(Default)]
struct ProcessState {
    needs_permits: bool,
    permits: usize,
    waiting: Vec<Waker>,
}

/// The store, as one process sees it.
#[derive(Clone)]
pub(super) struct Lab {
    state: Arc<Mutex<State>>,
    process: usize,
    start: Instant,
}

impl Lab {
    /// Creates a store with these objects and a number of processes, whose requests pass freely.
    pub fn new(objects: Objects, processes: usize) -> Self {
        let processes = (0..processes).map(|_| ProcessState::default()).collect();
        let contents = Contents { past: objects.clone(), now: objects };
        // Differs from all numbers drawn when these objects were made.
        let randoms = (contents.now.len() as u64) << 32;
        let state = State { contents, processes, randoms, ..State::default() };
        Self { state: Arc::new(Mutex::new(state)), process: 0, start: Instant::now() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub fn objects(&self) -> Objects {
        self.lock().contents.now.clone()
    }

    /// Returns the first object under a name.
    pub fn past(&self, name: &str) -> Option<Bytes> {
        self.lock().contents.past.get(name).cloned()
    }

    /// From now on, requests have a latency, and some meet a fault. 0: none do.
    pub fn let_weather_in(&self, random: Random, way_ms: u64, faults: usize) {
        self.lock().weather = Some(Weather { random, way_ms, faults });
    }

    pub fn below(&self, end: usize) -> usize {
        self.lock().weather.as_mut().map_or(0, |weather| weather.random.below(end))
    }

    /// From now on, lists come in a different order from that of the names.
    pub fn list_backwards(&self) {
        self.lock().lists_backwards = true;
    }

    /// From now on, lists do not show this object.
    pub fn unlist(&self, name: &str) {
        self.lock().unlisted = Some(name.to_owned());
    }

    /// Returns the group at a prefix, as a process sees it.
    pub fn store(&self, process: usize, prefix: &str, left_out: Option<Rule>) -> Store {
        let lab = Self { process, ..self.clone() };
        let tuning = Tuning {
            attempt: Duration::from_secs(2),
            pause_min: Duration::from_millis(10),
            pause_max: Duration::from_millis(500),
            patience: Duration::from_secs(60),
            piece_len: 64,
            part_len: 48,
            read_ahead: 2,
            ..Tuning::default()
        };
        let sibling = lab.clone();
        let siblings: crate::Siblings =
            Arc::new(move |url| Ok(sibling.store(sibling.process, url, left_out)));
        let env = Arc::new(lab.clone());
        let mut store = Store::with(Arc::new(lab), Path::from(prefix), prefix, env, tuning)
            .with_siblings(siblings);
        store.left_out = left_out;
        store
    }

    /// From now on, requests of a process need permits.
    pub fn require_permits(&self, process: usize) {
        self.lock().processes[process].needs_permits = true;
    }

    /// From now on, requests pass.
    pub fn permit_all(&self) {
        for process in &mut self.lock().processes {
            process.needs_permits = false;
            process.waiting.drain(..).for_each(Waker::wake);
        }
    }

    fn permit(&self, process: usize) {
        let process = &mut self.lock().processes[process];
        process.permits += 1;
        process.waiting.drain(..).for_each(Waker::wake);
    }

    pub fn requests(&self) -> usize {
        self.lock().requests
    }

    /// Plans a fault for the request after so many others.
    pub fn plan(&self, after: usize, fault: Fault) {
        let at = self.requests() + after;
        self.lock().fault = Some((at, fault));
    }

    pub fn expire(&self, has_expired: bool) {
        self.lock().has_expired = has_expired;
    }

    /// Lets the requests in flight take effect now.
    pub fn land(&self) {
        let mut state = self.lock();
        for request in std::mem::take(&mut state.on_the_way) {
            // Its sender gets no answer any more.
            drop(request(&mut state.contents));
        }
    }

    /// Drops the requests in flight.
    pub fn lose(&self) {
        self.lock().on_the_way.clear();
    }

    /// Lets a process that needs permits pass `steps` points, or finish. `None`: it has not finished.
    pub async fn steps<F: Future>(
        &self,
        process: usize,
        mut work: Pin<&mut F>,
        steps: usize,
    ) -> Option<F::Output> {
        for left in (0..=steps).rev() {
            let polled = poll_fn(|context| Poll::Ready(work.as_mut().poll(context))).await;
            if let Poll::Ready(output) = polled {
                return Some(output);
            }
            if left > 0 {
                self.permit(process);
            }
        }
        None
    }

    async fn pass(&self) {
        poll_fn(|context| {
            let process = &mut self.lock().processes[self.process];
            if !process.needs_permits {
                return Poll::Ready(());
            }
            if process.permits > 0 {
                process.permits -= 1;
                return Poll::Ready(());
            }
            process.waiting.push(context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    async fn travel(&self) {
        self.pass().await;
        let way = self.lock().weather.as_mut().map(Weather::way);
        if let Some(way) = way {
            sleep(way).await;
        }
    }

    async fn request<T: 'static>(
        &self,
        effect: impl FnOnce(&mut Contents) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let fault = {
            let mut state = self.lock();
            state.requests += 1;
            if state.has_expired {
                return Err(failure("400 ExpiredToken"));
            }
            let number = state.requests;
            let planned = state.fault.take_if(|(at, _)| *at == number).map(|(_, fault)| fault);
            planned.or_else(|| state.weather.as_mut().and_then(Weather::fault))
        };
        let mut sent = Sent { lab: self, effect: Some(Box::new(effect)) };
        self.travel().await;
        match fault {
            Some(Fault::Throttled) => {
                sent.effect = None;
                return Err(failure("503 SlowDown"));
            }
            // The request is in flight.
            Some(Fault::Late) => return Err(failure("500 Internal Server Error")),
            Some(Fault::Landed) | None => {}
        }
        let effect = sent.effect.take().expect("it has not landed");
        let outcome = effect(&mut self.lock().contents);
        self.travel().await;
        if fault.is_some() {
            return Err(failure("500 Internal Server Error"));
        }
        outcome
    }
}

impl Weather {
    fn way(&mut self) -> Duration {
        Duration::from_millis(self.random.u64_below(self.way_ms))
    }

    fn fault(&mut self) -> Option<Fault> {
        let has_fault = self.faults > 0 && self.random.one_in(self.faults);
        has_fault.then(|| [Fault::Throttled, Fault::Landed, Fault::Late][self.random.below(3)])
    }
}

/// A request that has not taken effect. If its sender dies, it stays in flight.
struct Sent<'l, T: 'static> {
    lab: &'l Lab,
    effect: Option<Effect<T>>,
}

impl<T> Drop for Sent<'_, T> {
    fn drop(&mut self) {
        if let Some(effect) = self.effect.take() {
            self.lab.lock().on_the_way.push(Box::new(move |objects| effect(objects).map(drop)));
        }
    }
}

impl fmt::Debug for Lab {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("lab")
    }
}

impl fmt::Display for Lab {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("lab")
    }
}

impl Env for Lab {
    fn wall(&self) -> u64 {
        1_700_000_000_000 + u64::try_from(self.boottime().as_millis()).unwrap_or_default()
    }

    fn boottime(&self) -> Duration {
        self.start.elapsed()
    }

    fn random(&self) -> [u8; 16] {
        let mut state = self.lock();
        state.randoms += 1;
        u128::from(state.randoms).to_be_bytes()
    }
}

#[async_trait]
impl ObjectStore for Lab {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        opts: PutOptions,
    ) -> Result<PutResult> {
        let (path, bytes) = (location.to_string(), Bytes::from(payload));
        self.request(move |contents| {
            if opts.mode == PutMode::Create && contents.now.contains_key(&path) {
                return Err(Error::AlreadyExists { path, source: "412".into() });
            }
            contents.past.entry(path.clone()).or_insert_with(|| bytes.clone());
            contents.now.insert(path, bytes);
            Ok(PutResult { e_tag: None, version: None, extensions: Default::default() })
        })
        .await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let path = location.to_string();
        let found = self.request(move |contents| Ok(contents.now.get(&path).cloned())).await?;
        got(location, found, options.head)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let folder = Path::from(format!("{}/", prefix.cloned().unwrap_or_default()));
        self.list_with_offset(prefix, &folder)
    }

    /// Lists in one request, so that the list shows one moment.
    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        let (lab, after) = (self.clone(), offset.to_string());
        let (is_backwards, unlisted) = {
            let state = self.lock();
            (state.lists_backwards, state.unlisted.clone())
        };
        let folder = format!("{}/", prefix.cloned().unwrap_or_default());
        let list = async move {
            lab.request(move |contents| {
                let later = contents.now.range(after.clone()..).filter(|(name, _)| **name > after);
                let inside = later.filter(|(name, _)| {
                    name.starts_with(&folder) && Some(*name) != unlisted.as_ref()
                });
                let found = |(name, bytes): (&String, &Bytes)| {
                    meta(&Path::from(name.as_str()), bytes.len() as u64)
                };
                Ok(inside.map(found).collect::<Vec<_>>())
            })
            .await
            .map(|found| if is_backwards { found.into_iter().rev().collect() } else { found })
        };
        let found = stream::once(list).flat_map(|found| match found {
            Ok(found) => stream::iter(found.into_iter().map(Ok).collect::<Vec<_>>()),
            Err(error) => stream::iter(vec![Err(error)]),
        });
        found.boxed()
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let lab = self.clone();
        let delete = move |path: Result<Path>| {
            let lab = lab.clone();
            async move {
                let path = path?;
                let name = path.to_string();
                lab.request(move |contents| Ok(contents.now.remove(&name))).await?;
                Ok(path)
            }
        };
        locations.then(delete).boxed()
    }

    async fn put_multipart_opts(
        &self,
        _: &Path,
        _: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        Err(failure("not simulated"))
    }

    async fn list_with_delimiter(&self, _: Option<&Path>) -> Result<ListResult> {
        Err(failure("not simulated"))
    }

    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> Result<()> {
        Err(failure("not simulated"))
    }
}

/// Runs a scenario in virtual time.
pub(super) fn run<T>(scenario: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    runtime.block_on(scenario)
}

pub(super) fn claim(node: u8, right: Right) -> Claim {
    Claim {
        node: [node; 16],
        address: format!("node {node}"),
        takeover: false,
        lease: Duration::ZERO,
        margin: Duration::ZERO,
        right,
    }
}

/// Appends entries, each a batch.
pub(super) async fn append(owner: &mut Owner, entries: &[&str]) -> crate::Result<crate::Outcome> {
    let batches: Vec<&[u8]> = entries.iter().map(|entry| entry.as_bytes()).collect();
    owner.append(&batches).await
}

/// Takes a snapshot of the end, which holds these entries, and makes it count.
pub(super) async fn snapshot(owner: &mut Owner, state: &[String]) -> crate::Result<crate::Outcome> {
    let mut upload = owner.begin_snapshot(owner.group().end().number).await?;
    for entry in state {
        upload.write(entry.as_bytes()).await?;
        upload.write(b"\n").await?;
    }
    let uploaded = upload.finish(b"entries").await?;
    owner.snapshot(uploaded).await
}

/// Prunes everything that may be pruned, at once.
pub(super) async fn prune(store: &Store) -> crate::Result<u64> {
    let mut group = Group::open(store).await?;
    match group.prune(crate::Retention { keep: Duration::ZERO }).await? {
        Some(deletion) => group.delete(&deletion).await,
        None => Ok(0),
    }
}

/// Returns all entries at a moment, from the snapshot and the batches after it.
pub(super) async fn entries(group: &Group, moment: Moment) -> crate::Result<Vec<String>> {
    let mut restore = Restore::at(group, moment).await?;
    let mut read = Entries::default();
    while let Some(item) = restore.next().await? {
        read.take(item);
    }
    restore.finish().await?;
    Ok(read.finish())
}

/// Collects the entries of a restore.
#[derive(Default)]
pub(super) struct Entries {
    text: Vec<u8>,
    entries: Vec<String>,
}

impl Entries {
    pub fn take(&mut self, item: Item) {
        match item {
            Item::Snapshot { .. } => {}
            Item::Part(part) => self.text.extend_from_slice(&part),
            Item::Batches { batches, .. } => {
                self.end_snapshot();
                let texts = batches.iter().map(|batch| String::from_utf8_lossy(batch).into_owned());
                self.entries.extend(texts);
            }
        }
    }

    fn end_snapshot(&mut self) {
        let text = std::mem::take(&mut self.text);
        self.entries.extend(String::from_utf8_lossy(&text).lines().map(str::to_owned));
    }

    pub fn finish(mut self) -> Vec<String> {
        self.end_snapshot();
        self.entries
    }
}
