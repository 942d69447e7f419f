//! Threads for requests that may wait, and for long bodies and replies.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::http::StatusCode;
use tierce_commands::Effort;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::failure::Failure;

/// Number of threads for long commands. More such commands wait for one of these.
const LONG_THREADS: usize = 4;

/// Number of threads for requests that take little, but wait: for the bucket, the device, memory. So many share a put
/// of the bucket. Idle threads end.
const BRIEF_THREADS: usize = 128;

/// Time that a brief request waits for a thread: as long as it would wait for the bucket.
const THREAD_PATIENCE: Duration = Duration::from_secs(10);

/// Number of threads for requests that need no data. They are available while all others wait.
const THREADS_WITHOUT_DATA: usize = 4;

/// Number of threads for bodies and replies of more than [`AT_ONCE_BYTES`].
const CONVERTING_THREADS: usize = 4;

/// Total of these threads.
pub(crate) const THREADS: usize =
    LONG_THREADS + BRIEF_THREADS + THREADS_WITHOUT_DATA + CONVERTING_THREADS;

/// Number of these threads that convert bodies and replies of at least [`LARGE_BYTES`].
const CONVERTING_LARGE_THREADS: usize = CONVERTING_THREADS - 1;

/// Number of large replies that wait for conversion without occupying a thread for commands.
const LARGE_WAITING_MAX: usize = 8;

/// Size below which bodies and replies are converted in some milliseconds, and wait for nothing longer.
const LARGE_BYTES: usize = 1 << 20;

/// Number of bytes that the runtime's thread parses or encodes itself, in less than a millisecond. More would delay all
/// other requests.
pub(crate) const AT_ONCE_BYTES: usize = 64 * 1024;

/// Usage of the threads that may wait.
pub(crate) struct Waiting {
    long: Threads,
    brief: Threads,
    without_data: Threads,
    converting: Arc<Semaphore>,
    converting_large: Arc<Semaphore>,
    /// Permits for large replies to wait for conversion without a thread for commands.
    may_wait: Arc<Semaphore>,
}

/// Threads for requests of one kind.
struct Threads {
    free: Arc<Semaphore>,
    /// Number of requests that wait for a thread.
    wanted: AtomicUsize,
}

impl Threads {
    fn new(count: usize) -> Self {
        Self { free: Arc::new(Semaphore::new(count)), wanted: AtomicUsize::new(0) }
    }
}

/// Counter entry, removed when the request has its thread, or is gone.
struct Wanted<'a>(&'a AtomicUsize);

impl<'a> Wanted<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Wanted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Returns the error if the runtime has ended before the work.
pub(crate) fn ending() -> Failure {
    Failure::new(StatusCode::SERVICE_UNAVAILABLE, "ERR the server is shutting down")
}

/// Returns the error if no thread was free in time.
pub(crate) fn busy() -> Failure {
    let text =
        "TRYAGAIN too many requests run, or wait for keys, the bucket, memory or a slow disk";
    Failure::new(StatusCode::SERVICE_UNAVAILABLE, text)
}

impl Waiting {
    pub(crate) fn new() -> Self {
        Self {
            long: Threads::new(LONG_THREADS),
            brief: Threads::new(BRIEF_THREADS),
            without_data: Threads::new(THREADS_WITHOUT_DATA),
            converting: Arc::new(Semaphore::new(CONVERTING_THREADS)),
            converting_large: Arc::new(Semaphore::new(CONVERTING_LARGE_THREADS)),
            may_wait: Arc::new(Semaphore::new(LARGE_WAITING_MAX)),
        }
    }

    /// Parses or encodes this many bytes: at once if they are few, otherwise on another thread. `convert` never waits,
    /// so its thread is soon free again. `behind` is released when this request is one of the few that may wait for a
    /// thread without it: otherwise any number of large replies could wait.
    pub(crate) async fn convert<T: Send + 'static>(
        &self,
        bytes: usize,
        convert: impl FnOnce() -> T + Send + 'static,
        behind: Option<OwnedSemaphorePermit>,
    ) -> Result<T, Failure> {
        if bytes <= AT_ONCE_BYTES {
            return Ok(convert());
        }
        let large = match bytes >= LARGE_BYTES {
            true => {
                let _waits = self.may_wait.acquire().await;
                drop(behind);
                Some(Arc::clone(&self.converting_large).acquire_owned().await)
            }
            false => None,
        };
        let permit = Arc::clone(&self.converting).acquire_owned().await;
        let converted = spawn_blocking(move || {
            let _permits = (permit, large);
            convert()
        });
        converted.await.map_err(|_| ending())
    }

    fn threads(&self, effort: Effort) -> &Threads {
        match effort {
            Effort::NoData => &self.without_data,
            Effort::Little => &self.brief,
            Effort::Long => &self.long,
        }
    }

    /// Returns true if a request waits for a thread of this kind.
    pub(crate) fn is_thread_wanted(&self, effort: Effort) -> bool {
        self.threads(effort).wanted.load(Ordering::Relaxed) > 0
    }

    /// Waits for a thread for a request of this effort.
    pub(crate) async fn permit(&self, effort: Effort) -> Result<OwnedSemaphorePermit, Failure> {
        let threads = self.threads(effort);
        let _wanted = Wanted::new(&threads.wanted);
        let permit = Arc::clone(&threads.free).acquire_owned();
        let permit = match effort {
            Effort::Long => permit.await,
            _ => timeout(THREAD_PATIENCE, permit).await.map_err(|_| busy())?,
        };
        // The semaphores are never closed.
        permit.map_err(|_| busy())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use parking_lot::Mutex;
    use tokio::runtime::Builder;
    use tokio::task::JoinSet;

    use super::*;

    /// This thread must not be delayed, because it answers `/healthz`.
    #[test]
    fn only_what_is_short_is_converted_on_the_thread_of_the_runtime() {
        let runtime = Builder::new_current_thread().build().expect("a runtime");
        let (waiting, here) = (Waiting::new(), thread::current().id());
        for (bytes, is_here) in [(0, true), (AT_ONCE_BYTES, true), (AT_ONCE_BYTES + 1, false)] {
            let converted = waiting.convert(bytes, || thread::current().id(), None);
            let thread = runtime.block_on(converted).expect("a thread");
            assert_eq!(thread == here, is_here, "{bytes}");
        }
    }
    #[test]
    fn long_conversions_leave_a_thread_to_shorter_ones() {
        let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
        let waiting = Arc::new(Waiting::new());
        let (release, released) = mpsc::channel::<()>();
        let released = Arc::new(Mutex::new(released));
        let converted = runtime.block_on(async {
            let mut long = JoinSet::new();
            for _ in 0..2 * CONVERTING_THREADS {
                let (waiting, released) = (Arc::clone(&waiting), Arc::clone(&released));
                let convert = move || released.lock().recv().is_err();
                long.spawn(async move { waiting.convert(LARGE_BYTES, convert, None).await });
            }
            while waiting.converting_large.available_permits() > 0 {
                tokio::task::yield_now().await;
            }
            let converted =
                timeout(THREAD_PATIENCE, waiting.convert(LARGE_BYTES - 1, || (), None)).await;
            drop(release);
            while let Some(done) = long.join_next().await {
                assert!(done.expect("no panic").expect("a thread"));
            }
            converted
        });
        converted.expect("in time").expect("a thread");
    }
}
