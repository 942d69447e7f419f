//! The store as one machine sees it, with a connection that can be cut.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::{BoxStream, StreamExt};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use tokio::time::sleep;

use super::store::Shared;

/// Requests before a moment get no answer, and all requests have additional latency.
#[derive(Clone)]
pub(super) struct Cut {
    pub world: Shared,
    /// Milliseconds since the start of the life.
    pub until: Arc<AtomicU64>,
    /// Upper bound of the additional latency of this machine, in milliseconds.
    pub way: u64,
}

impl Cut {
    async fn pass(&self) -> Result<()> {
        let now = self.world.lock().start.elapsed().as_millis() as u64;
        if now >= self.until.load(Relaxed) {
            if self.way > 0 {
                let there = self.world.lock().random.u64_below(self.way);
                sleep(Duration::from_millis(there)).await;
            }
            return Ok(());
        }
        let error_after = self.world.lock().random.u64_below(500);
        sleep(Duration::from_millis(error_after)).await;
        Err(Error::Generic { store: "simulated", source: "no route to host".into() })
    }
}

impl fmt::Debug for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("simulated")
    }
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("simulated")
    }
}

#[async_trait]
impl ObjectStore for Cut {
    async fn put_opts(
        &self,
        path: &Path,
        bytes: PutPayload,
        opts: PutOptions,
    ) -> Result<PutResult> {
        self.pass().await?;
        self.world.put_opts(path, bytes, opts).await
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        self.pass().await?;
        self.world.get_opts(path, options).await
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let (cut, names) = (self.clone(), self.world.list(prefix));
        names.then(move |name| passed(cut.clone(), name)).boxed()
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        let (cut, names) = (self.clone(), self.world.list_with_offset(prefix, offset));
        names.then(move |name| passed(cut.clone(), name)).boxed()
    }

    fn delete_stream(
        &self,
        paths: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let cut = self.clone();
        self.world.delete_stream(paths.then(move |path| passed(cut.clone(), path)).boxed())
    }

    async fn put_multipart_opts(
        &self,
        path: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.world.put_multipart_opts(path, options).await
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.world.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.world.copy_opts(from, to, options).await
    }
}

async fn passed<T>(cut: Cut, item: Result<T>) -> Result<T> {
    cut.pass().await?;
    item
}
