//! The one write primitive: puts `log/<n+1>` if it is absent, and determines the outcome.
//!
//! Only an explicit success is taken as success. After anything else (a conflict, an error, a timeout) the object is
//! read. The same bytes mean that an attempt landed. A valid object of another process means that this process is
//! deposed. If the object is absent, the **same bytes** are put again: absence is never final, since an earlier
//! attempt may still land, and other bytes under the same number could then be taken for this record.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::timeout;

use crate::counters::Counters;
use crate::error::{Error, Result};
use crate::record::{Id, Record, log_name};
use crate::rules::Rule;
use crate::store::{Backoff, Put, Store};

/// Outcome of appending a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The record is in the log for good, under this number.
    Committed(u64),
    /// Another process has claimed the log. This process must not confirm anything any more.
    Deposed {
        /// Name of the object that another process wrote.
        object: String,
        /// The node that wrote it.
        node: Id,
    },
}

/// State of the append in flight. Other threads may read it.
#[derive(Debug, Default)]
pub struct Progress {
    trouble: Mutex<Option<Trouble>>,
    is_blocked: AtomicBool,
}

/// An append that the store has not accepted yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// Time of the first failed attempt, by [`crate::Env::boottime`].
    pub since: Duration,
    /// Number of failed attempts.
    pub attempts: u64,
    /// Error of the last attempt.
    pub error: String,
}

impl Progress {
    /// Returns why the append in flight has to be repeated, if it has to.
    pub fn trouble(&self) -> Option<Trouble> {
        self.lock().clone()
    }

    /// Returns true if an object that is no record of this log lies under the number of the record. No attempt
    /// succeeds while it is there.
    pub fn is_blocked(&self) -> bool {
        self.is_blocked.load(Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Trouble>> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn failed(&self, now: Duration, error: &Error) {
        self.note(now, error, false);
    }

    fn note(&self, now: Duration, error: &Error, is_blocked: bool) {
        self.is_blocked.store(is_blocked, Relaxed);
        let mut trouble = self.lock();
        let (since, attempts) =
            trouble.as_ref().map_or((now, 0), |trouble| (trouble.since, trouble.attempts));
        *trouble = Some(Trouble { since, attempts: attempts + 1, error: error.to_string() });
    }

    fn succeeded(&self) {
        self.is_blocked.store(false, Relaxed);
        *self.lock() = None;
    }
}

/// A put or get of a record that gets no answer for this long is reported as trouble, although its attempt goes on:
/// observers must learn that the store does not answer before the attempt ends.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// Waits for a request, and reports it as trouble if it has no answer after `at_most`.
pub(crate) async fn told_when_slow<T>(
    store: &Store,
    progress: &Progress,
    object: &str,
    at_most: Duration,
    request: impl Future<Output = T>,
) -> T {
    let mut request = pin!(request);
    if let Ok(answer) = timeout(at_most, request.as_mut()).await {
        return answer;
    }
    let (operation, object, seconds) = ("put", object.into(), at_most.as_secs());
    progress.failed(store.env.boottime(), &Error::Timeout { operation, object, seconds });
    request.await
}

/// Appends an object under its number, and retries for as long as it takes.
///
/// # Errors
///
/// [`Error::Damaged`] and [`Error::Newer`] if the number is taken by an object that is no valid record. An earlier
/// attempt may still land once that is gone.
#[cfg_attr(not(test), expect(clippy::needless_pass_by_ref_mut, reason = "a simulation changes it"))]
pub(crate) async fn append(
    store: &Store,
    number: u64,
    cluster: Option<Id>,
    object: &mut Bytes,
    progress: &Progress,
) -> Result<Outcome> {
    let name = log_name(number);
    let mut backoff = Backoff::new(store);
    loop {
        let put = async {
            if number > 1
                && let Err(error) = store.check_before(&log_name(number - 1)).await
            {
                return Put::Unknown(error);
            }
            store.create(&name, object.clone()).await
        };
        let failure = match told_when_slow(store, progress, &name, ANSWER_MAX, put).await {
            Put::Created => break,
            Put::Unknown(error) if !store.keeps(Rule::ReadAfterConflict) && error.is_conflict() => {
                return Ok(Outcome::Deposed { object: name, node: [0; 16] });
            }
            Put::Unknown(error) => error,
        };
        let get = store.get_once(&name);
        match told_when_slow(store, progress, &name, ANSWER_MAX, get).await {
            Ok(Some(there)) if there == *object => break,
            Ok(Some(there)) => {
                let decoded = Record::decode(&there, number, cluster);
                // Observers must know of it: the caller can only try again.
                let blocked = |error: &Error| progress.note(store.env.boottime(), error, true);
                let record = decoded.inspect_err(blocked)?;
                progress.succeeded();
                return Ok(Outcome::Deposed { object: name, node: record.header.node });
            }
            // Another put may have been in flight and failed. If the contradiction stays, the operator must look at
            // the store.
            Ok(None) if failure.is_conflict() => {
                let contradiction = Error::Contradicts { object: name.clone() };
                store.counters().note_failure(&contradiction);
                progress.failed(store.env.boottime(), &contradiction);
            }
            Ok(None) => progress.failed(store.env.boottime(), &failure),
            Err(error) => progress.failed(store.env.boottime(), &error),
        }
        backoff.pause().await;
        #[cfg(test)]
        if !store.keeps(Rule::SameBytes) {
            *object = Record::with_nonce(object, store.env.random());
        }
    }
    progress.succeeded();
    Counters::add(&store.counters().records, 1);
    Ok(Outcome::Committed(number))
}

#[cfg(test)]
mod tests {
    use tierce_harness::TempDir;
    use tokio::time::sleep;

    use super::*;
    use crate::location::Location;

    #[test]
    fn what_has_no_answer_is_trouble_before_it_ends() {
        let dir = TempDir::new();
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_time().start_paused(true);
        runtime.build().expect("a runtime").block_on(async {
            let url = format!("file://{}", dir.path().display());
            let store = Store::new(&Location::parse(&url).expect("a location"));
            let progress = Progress::default();
            let request = async {
                sleep(ANSWER_MAX * 4).await;
                7
            };
            let mut told = pin!(told_when_slow(&store, &progress, "log/1", ANSWER_MAX, request));
            assert!(timeout(ANSWER_MAX / 2, told.as_mut()).await.is_err());
            assert_eq!(progress.trouble(), None);
            assert!(timeout(ANSWER_MAX, told.as_mut()).await.is_err());
            let trouble = progress.trouble().expect("it is slow");
            assert_eq!(trouble.error, "cannot put log/1: no answer within 5 s");
            assert_eq!(told.await, 7);
        });
    }
}
