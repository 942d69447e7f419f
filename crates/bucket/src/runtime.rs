//! The runtime for requests to a store, and its shutdown.

use std::ops::Deref;
use std::pin::{Pin, pin};
use std::time::Duration;

use tokio::runtime;

/// The shutdown waits this long for requests in flight.
const LAST_MAX: Duration = Duration::from_secs(1);

/// A tokio runtime whose shutdown does not delay that of the process. Requests to a file system run on threads, and
/// one that does not answer blocks its thread; tokio waits for these without limit when a runtime is dropped.
#[derive(Debug)]
pub struct Runtime(Option<runtime::Runtime>);

impl Runtime {
    /// Runs a future on this thread until it has ended. The tokio code around it is compiled once, not for each
    /// future.
    pub fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        let mut output = None;
        self.run(pin!(async { output = Some(future.await) }));
        output.expect("the future has ended")
    }

    fn run(&self, future: Pin<&mut dyn Future<Output = ()>>) {
        self.deref().block_on(future);
    }
}

impl From<runtime::Runtime> for Runtime {
    fn from(runtime: runtime::Runtime) -> Self {
        Self(Some(runtime))
    }
}

impl Deref for Runtime {
    type Target = runtime::Runtime;

    fn deref(&self) -> &runtime::Runtime {
        self.0.as_ref().expect("it is taken at the end")
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_timeout(LAST_MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread;

    use super::*;

    #[test]
    fn the_end_does_not_wait_for_a_request_without_an_answer() {
        let runtime = runtime::Builder::new_current_thread().build().unwrap();
        let runtime = Runtime::from(runtime);
        let (begin, has_begun) = channel();
        let (answer, answered) = channel::<()>();
        runtime.spawn_blocking(move || {
            begin.send(()).unwrap();
            let _ = answered.recv();
        });
        has_begun.recv().unwrap();
        let (end, has_ended) = channel();
        thread::spawn(move || {
            drop(runtime);
            end.send(()).unwrap();
        });
        assert_eq!(has_ended.recv_timeout(Duration::from_secs(20)), Ok(()));
        drop(answer);
    }
}
