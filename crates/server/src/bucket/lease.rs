//! The lease of an owner that another server may replace (`bucket-takeover yes`). It binds replies to the lease, and
//! renews the lease while data are loaded. Later the uploader renews it.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tierce_bucket::{Env, Error, Lease, Outcome, Owner, Runtime, System};
use tierce_commands::lease::LeaseClock;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::uploader::note_failure;
use crate::message::Notice;
use crate::server::Server;

/// Delay before a failed RENEW is repeated. It is less than a third of the shortest lease.
const RETRY_AFTER: Duration = Duration::from_millis(200);

/// Interval at which a RENEW in flight is checked.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Binds replies to the lease of this owner, if it has one. Must be called before this server executes anything as the
/// owner.
pub(super) fn bind(server: &Server, owner: &Owner) {
    let lease = owner.lease();
    if let Some(claim) = &owner.group().end().claim {
        server.bucket.update(|figures| {
            claim.address.clone_into(&mut figures.owner);
            (figures.takeover, figures.lease_ms) = (claim.takeover, claim.lease_ms);
        });
    }
    if lease.until().is_some() {
        server.bucket.lease.bind(Box::new(OwnLease(lease)));
    }
}

/// Returns the time until a RENEW is due; `None` without a lease.
pub(super) fn renew_in(owner: &Owner) -> Option<Duration> {
    owner.renew_due().map(|due| due.saturating_sub(System.boottime()))
}

struct OwnLease(Arc<Lease>);

impl LeaseClock for OwnLease {
    fn left(&self) -> Duration {
        self.0.until().map_or(Duration::MAX, |until| until.saturating_sub(System.boottime()))
    }

    /// True after a RELEASE as well: another process may claim at once.
    fn is_deposed(&self) -> bool {
        self.0.has_ended()
    }
}

impl fmt::Debug for OwnLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OwnLease").field(&self.0.until()).finish()
    }
}

/// Owner whose lease a task renews, while nothing else is done with it.
pub(super) struct KeptOwner {
    task: JoinHandle<Owner>,
    ends: Arc<Notify>,
}

impl KeptOwner {
    /// Renews the lease of `owner` from now on, and wakes the replies that wait for a proof of it.
    pub(super) fn new(runtime: &Runtime, server: &Arc<Server>, owner: Owner) -> Self {
        let ends = Arc::<Notify>::default();
        let task = runtime.spawn(keep(Arc::clone(server), owner, Arc::clone(&ends)));
        Self { task, ends }
    }

    /// Returns the owner. Its next append learns the outcome of its last RENEW.
    pub(super) fn take(self, runtime: &Runtime) -> Owner {
        self.ends.notify_one();
        // The task is never aborted.
        runtime.block_on(self.task).expect("the task ends with its owner")
    }
}

/// Renews the lease when due, until it is told to end or no renewal is needed.
async fn keep(server: Arc<Server>, mut owner: Owner, ends: Arc<Notify>) -> Owner {
    let mut told = Told { url: owner.group().store().url().to_owned(), since: None };
    while let Some(due) = renew_in(&owner) {
        // A RENEW that is dropped in flight is finished by the next append.
        if timeout(due, ends.notified()).await.is_ok() {
            break;
        }
        let proof = server.bucket.lease.note_begun();
        let progress = Arc::clone(owner.progress());
        let renewed = {
            let mut renew = std::pin::pin!(owner.renew());
            let mut ended = std::pin::pin!(ends.notified());
            loop {
                let first = std::future::poll_fn(|cx| match renew.as_mut().poll(cx) {
                    std::task::Poll::Ready(outcome) => std::task::Poll::Ready(Some(outcome)),
                    std::task::Poll::Pending => ended.as_mut().poll(cx).map(|()| None),
                });
                match timeout(LOOK_EVERY, first).await {
                    Ok(outcome) => break outcome,
                    // The RENEW is repeated for as long as the store fails.
                    Err(_) => told.look(&server, progress.trouble().map(|trouble| trouble.error)),
                }
            }
        };
        match renewed {
            Some(Ok(Outcome::Committed(_))) => {
                told.look(&server, None);
                if server.bucket.note_proven(proof) {
                    server.tell_all(&Notice::Durable);
                }
            }
            None | Some(Ok(Outcome::Deposed { .. }) | Err(Error::Deposed { .. })) => break,
            Some(Err(error)) => {
                told.look(&server, Some(error.to_string()));
                sleep(RETRY_AFTER).await;
            }
        }
    }
    owner
}

/// Last report to the operator about a lease that cannot be renewed.
struct Told {
    url: String,
    /// Time of the report, if there was one.
    since: Option<Instant>,
}

impl Told {
    /// Reports changes: that the store fails, or works again.
    fn look(&mut self, server: &Server, error: Option<String>) {
        match (error, self.since) {
            (Some(error), since) => {
                note_failure(server, &error);
                if since.is_none() {
                    self.since = Some(Instant::now());
                    server.log.warning(format_args!(
                        "The bucket {} does not take the log: {error}. Another server may take over once the lease is \
                         over. Check the network, the credentials and the rights of this server in the bucket",
                        self.url
                    ));
                }
            }
            (None, Some(since)) => {
                self.since = None;
                let seconds = since.elapsed().as_secs();
                server
                    .log
                    .notice(format_args!("The bucket takes the log again, after {seconds} s"));
            }
            (None, None) => {}
        }
    }
}
