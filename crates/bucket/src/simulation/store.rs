//! The simulated store as a client sees it: requests have a latency, and continue after their sender has died.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream::{self, BoxStream, StreamExt};
use object_store::path::Path;
use object_store::{
    Attributes, CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult,
    MultipartUpload, ObjectMeta, ObjectStore, PutMode, PutMultipartOptions, PutOptions, PutPayload,
    PutResult, Result,
};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

use super::world::{Fate, World};
use crate::env::Env;

/// A handle to the world. Every process has one.
#[derive(Clone)]
pub(super) struct Shared(pub Arc<Mutex<World>>);

impl Shared {
    pub fn lock(&self) -> MutexGuard<'_, World> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Sends a request, and waits for the answer unless it is lost.
    async fn request<T: Send + 'static>(
        &self,
        operation: impl Fn(&mut World) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let fate = self.lock().fate();
        let world = self.clone();
        let (answer, answered) = oneshot::channel();
        match fate {
            Fate::Throttled => Err(failure("503 SlowDown")),
            Fate::Lost { error_after } => {
                sleep(error_after).await;
                Err(failure("connection reset"))
            }
            Fate::Unanswered { there, error_after } => {
                tokio::spawn(async move {
                    sleep(there).await;
                    drop(operation(&mut world.lock()));
                });
                sleep(error_after).await;
                Err(failure("500 Internal Server Error"))
            }
            Fate::Fine { there, back } => {
                tokio::spawn(async move {
                    sleep(there).await;
                    let outcome = operation(&mut world.lock());
                    sleep(back).await;
                    drop(answer.send(outcome));
                });
                answered.await.map_err(|_| failure("the end"))?
            }
            Fate::Twice { there, again } => {
                tokio::spawn(async move {
                    sleep(there).await;
                    drop(answer.send(operation(&mut world.lock())));
                    sleep(again).await;
                    drop(operation(&mut world.lock()));
                });
                answered.await.map_err(|_| failure("the end"))?
            }
        }
    }
}

pub(super) fn failure(text: &str) -> Error {
    Error::Generic { store: "simulated", source: text.into() }
}

/// Returns the answer to a get.
pub(super) fn got(location: &Path, found: Option<Bytes>, is_head: bool) -> Result<GetResult> {
    let Some(bytes) = found else {
        return Err(Error::NotFound { path: location.to_string(), source: "404".into() });
    };
    let size = bytes.len() as u64;
    let bytes = if is_head { Bytes::new() } else { bytes };
    Ok(GetResult {
        payload: GetResultPayload::Stream(stream::iter([Ok(bytes)]).boxed()),
        meta: meta(location, size),
        range: 0..size,
        attributes: Attributes::new(),
        extensions: Default::default(),
    })
}

pub(super) fn meta(path: &Path, size: u64) -> ObjectMeta {
    ObjectMeta {
        location: path.clone(),
        last_modified: chrono::DateTime::UNIX_EPOCH,
        size,
        e_tag: None,
        version: None,
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("simulated")
    }
}

impl fmt::Display for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("simulated")
    }
}

#[async_trait]
impl ObjectStore for Shared {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        opts: PutOptions,
    ) -> Result<PutResult> {
        let (path, bytes) = (location.to_string(), payload.into());
        self.request(move |world| {
            match opts.mode {
                PutMode::Create => world.create(&path, &bytes)?,
                _ => world.overwrite(&path, &bytes),
            }
            Ok(PutResult { e_tag: None, version: None, extensions: Default::default() })
        })
        .await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let path = location.to_string();
        let found = self.request(move |world| Ok(world.objects.get(&path).cloned())).await?;
        got(location, found, options.head)
    }

    /// Reads one name after the other, each after the answer for the one before: the list shows no single moment.
    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let folder = Path::from(format!("{}/", prefix.cloned().unwrap_or_default()));
        self.list_with_offset(prefix, &folder)
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        let (world, folder) = (self.clone(), format!("{}/", prefix.cloned().unwrap_or_default()));
        let next = move |after: String| {
            let (world, folder) = (world.clone(), folder.clone());
            async move {
                let found = world
                    .request(move |world| {
                        let mut later = world.objects.range(after.clone()..);
                        let next = later.find(|(name, _)| **name > after);
                        Ok(next
                            .filter(|(name, _)| name.starts_with(&folder))
                            .map(|(name, bytes)| (name.clone(), bytes.len() as u64)))
                    })
                    .await;
                match found {
                    Ok(None) => None,
                    Ok(Some((name, size))) => {
                        Some((Ok(meta(&Path::from(name.as_str()), size)), name))
                    }
                    Err(error) => Some((Err(error), String::new())),
                }
            }
        };
        stream::unfold(offset.to_string(), next).boxed()
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let world = self.clone();
        let delete = move |path: Result<Path>| {
            let world = world.clone();
            async move {
                let path = path?;
                let name = path.to_string();
                world.request(move |world| Ok(world.objects.remove(&name))).await?;
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

/// The clocks of one machine: its wall clock is off, and ticks in steps.
pub(super) struct Machine {
    pub world: Shared,
    pub skew: i64,
}

impl Env for Machine {
    fn wall(&self) -> u64 {
        let step = self.world.lock().wall_step;
        let now = 1_700_000_000_000 + self.boottime().as_millis() as u64;
        now.saturating_add_signed(self.skew) / step * step
    }

    fn boottime(&self) -> Duration {
        Instant::now() - self.world.lock().start
    }

    fn random(&self) -> [u8; 16] {
        self.world.lock().random.bytes(16).try_into().expect("16 bytes")
    }
}
