//! The directives of a bucket, and their values.

use std::time::Duration;

use tierce_bucket::{Claim, Id, Right};

use crate::config::{DirectiveId, Settings};

const BUCKET: DirectiveId = DirectiveId::of("bucket");
pub(super) const CLAIM: DirectiveId = DirectiveId::of("bucket-claim");
pub(super) const TAKEOVER: DirectiveId = DirectiveId::of("bucket-takeover");
pub(super) const LEASE: DirectiveId = DirectiveId::of("bucket-lease");
pub(super) const INTERVAL: DirectiveId = DirectiveId::of("bucket-interval");
pub(super) const LOG_MAX: DirectiveId = DirectiveId::of("bucket-log-max");

/// Divisor of the lease: other servers wait for a lease and this part of it.
const MARGIN_PART: u32 = 5;

/// Bytes that an admitted writer may add beyond `bucket-log-max` at once: some of the longest values.
const OVERSHOOT_BYTES: usize = 1 << 30;

/// Returns the URL of the log, if there is one.
pub(super) fn url(settings: &Settings) -> Option<String> {
    let url = String::from_utf8_lossy(settings.text(BUCKET)).into_owned();
    Some(url).filter(|url| !url.is_empty())
}

/// Returns the maximum of pending bytes in the feed.
pub(super) fn bytes_max(settings: &Settings) -> usize {
    usize::try_from(settings.bytes(LOG_MAX)).unwrap_or(usize::MAX).saturating_add(OVERSHOOT_BYTES)
}

/// Returns the claim with which this server claims a log.
pub(super) fn claim_of(settings: &Settings, node: Id, right: Right) -> Claim {
    let lease = Duration::from_secs(settings.count(LEASE));
    let takeover = settings.is_on(TAKEOVER);
    let address = address(settings);
    Claim { node, address, takeover, lease, margin: lease / MARGIN_PART, right }
}

/// Returns the address of this server for others.
pub(super) fn address(settings: &Settings) -> String {
    const HOST: DirectiveId = DirectiveId::of("replica-announce-ip");
    const PORT: DirectiveId = DirectiveId::of("replica-announce-port");
    let host = match settings.text(HOST) {
        b"" => std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default(),
        announced => String::from_utf8_lossy(announced).into_owned(),
    };
    let announced = settings.count(PORT);
    let port = if announced == 0 { settings.port().into() } else { announced };
    format!("{}:{port}", host.trim())
}
