//! The lease of an owner that others may succeed (`bucket-takeover yes`): replies are bound to it, and it is kept while
//! data are loaded. Later the uploader keeps it.

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

/// A third of the shortest lease is more than this: after a failure, a RENEW is tried again not earlier.
const RETRY_AFTER: Duration = Duration::from_millis(200);

/// While a RENEW is on its way, it is looked at so often.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Binds replies to the lease of this owner, if it has one. To be called before this server executes anything as the
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

/// How long it is until a RENEW is due; `None` if none ever is.
pub(super) fn renew_in(owner: &Owner) -> Option<Duration> {
    owner.renew_due().map(|due| due.saturating_sub(System.boottime()))
}

struct OwnLease(Arc<Lease>);

impl LeaseClock for OwnLease {
    fn left(&self) -> Duration {
        self.0.until().map_or(Duration::MAX, |until| until.saturating_sub(System.boottime()))
    }

    /// After a RELEASE as well: another process may claim at once.
    fn is_deposed(&self) -> bool {
        self.0.has_ended()
    }
}

impl fmt::Debug for OwnLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OwnLease").field(&self.0.until()).finish()
    }
}

/// An owner whose lease is kept by a task, as long as nothing else is done with it.
pub(super) struct KeptOwner {
    task: JoinHandle<Owner>,
    ends: Arc<Notify>,
}

impl KeptOwner {
    /// Keeps the lease of `owner` from now on, and tells the replies that wait for a proof of it.
    pub(super) fn new(runtime: &Runtime, server: &Arc<Server>, owner: Owner) -> Self {
        let ends = Arc::<Notify>::default();
        let task = runtime.spawn(keep(Arc::clone(server), owner, Arc::clone(&ends)));
        Self { task, ends }
    }

    /// The owner. What its last RENEW has come to, its next append finds out.
    pub(super) fn take(self, runtime: &Runtime) -> Owner {
        self.ends.notify_one();
        // It is never aborted.
        runtime.block_on(self.task).expect("the task ends with its owner")
    }
}

/// Renews the lease when that is due, until it is told to end or there is no use.
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
                    // It is repeated for as long as the store fails.
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

/// What the operator was told of a lease that cannot be renewed.
struct Told {
    url: String,
    /// Since when, if it was told.
    since: Option<Instant>,
}

impl Told {
    /// Says that the store fails, or does not any more, when that changes.
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
