//! Section about the log in a bucket. Without one it is empty.

use super::facts::Facts;
use super::field::{Field, is, maybe};
use super::value::Value;
use crate::bucket::Figures;

#[rustfmt::skip]
pub(super) const BUCKET: &[Field] = &[
    is("bucket_enabled", |f| f.kernel.bucket.is_on().into(), "1 with the directive `bucket`.")
        .gauge("tierce_bucket_enabled"),
    maybe("bucket_url", |f| of(f, |figures| figures.url.clone().into()), "Location of the log."),
    maybe("bucket_state", |f| of(f, |figures| figures.state.name().into()),
        "`following`; `base` until a first snapshot is there; `away` while the store does not answer; `deposed` when \
         another server has claimed the log; `follower` on a server that applies what the owner writes."),
    maybe("bucket_owner", |f| of(f, |figures| figures.owner.clone().into()),
        "Name and port of the server that owns the log."),
    maybe("bucket_takeover", |f| of(f, |figures| figures.takeover.into()),
        "1 if another server takes over when the lease of the owner is over.")
        .gauge("tierce_bucket_takeover"),
    maybe("bucket_lease_seconds", |f| of_some(f, |figures| {
        figures.takeover.then(|| Value::Real(figures.lease_ms as f64 / 1000.0, 3))
    }), "Duration of the lease that each object of the log brings, with `bucket-takeover yes`.")
        .gauge("tierce_bucket_lease_seconds"),
    maybe("bucket_lease_left_seconds", |f| {
        let clock = f.kernel.bucket.lease.clock()?;
        Some(Value::Real(clock.left().as_secs_f64(), 3))
    }, "Remaining time of this server's lease. At 0, replies wait.")
        .gauge("tierce_bucket_lease_left_seconds"),
    maybe("bucket_renewals", |f| of(f, |figures| figures.renewals.into()),
        "Objects since the start that only renew the lease.")
        .counter("tierce_bucket_renewals_total"),
    maybe("bucket_epoch", |f| of(f, |figures| figures.epoch.into()), "Number of claims of the log.")
        .gauge("tierce_bucket_epoch"),
    maybe("bucket_last_object", |f| of(f, |figures| figures.number.into()), "Number of the last object of the log.")
        .counter("tierce_bucket_objects_total"),
    maybe("bucket_lag_bytes", |f| of(f, |_| f.kernel.bucket.lag_bytes(&f.kernel.feed).into()),
        "Bytes of changes that are not in the bucket yet.")
        .gauge("tierce_bucket_lag_bytes"),
    maybe("bucket_lag_seconds", |f| of(f, |_| {
        let lag_ms = f.kernel.bucket.lag_ms(f.now_ms.max(0).unsigned_abs());
        Value::Real(lag_ms as f64 / 1000.0, 3)
    }), "Age of the oldest change that is not in the bucket yet.")
        .gauge("tierce_bucket_lag_seconds"),
    maybe("bucket_snapshot_object", |f| of(f, |figures| figures.snapshot.into()),
        "The last object whose changes are in the newest snapshot; 0 without one.")
        .gauge("tierce_bucket_snapshot_object"),
    maybe("bucket_snapshot_time", |f| of(f, |figures| (figures.snapshot_ms / 1000).into()),
        "Unix time of the newest snapshot.")
        .gauge("tierce_bucket_snapshot_timestamp_seconds"),
    maybe("bucket_snapshot_bytes", |f| of(f, |figures| figures.snapshot_bytes.into()),
        "Bytes of the newest snapshot in the bucket.")
        .gauge("tierce_bucket_snapshot_bytes"),
    maybe("bucket_snapshot_uploading_bytes", |f| of_some(f, |figures| figures.uploading_bytes.map(Value::from)),
        "Bytes sent of a snapshot on its way.")
        .gauge("tierce_bucket_snapshot_uploading_bytes"),
    maybe("bucket_appends", |f| of(f, |figures| figures.appends.into()), "Objects of changes since the start.")
        .counter("tierce_bucket_appends_total"),
    maybe("bucket_append_bytes", |f| of(f, |figures| figures.append_bytes.into()),
        "Bytes of changes in them, before compression.")
        .counter("tierce_bucket_append_bytes_total"),
    maybe("bucket_put_requests", |f| of(f, |figures| figures.puts.into()), "Requests that put or list.")
        .counter("tierce_bucket_put_requests_total"),
    maybe("bucket_get_requests", |f| of(f, |figures| figures.gets.into()), "Requests that read.")
        .counter("tierce_bucket_get_requests_total"),
    maybe("bucket_failed_requests", |f| of(f, |figures| figures.failures.into()), "Requests that failed.")
        .counter("tierce_bucket_failed_requests_total"),
    maybe("bucket_bytes_sent", |f| of(f, |figures| figures.bytes_up.into()), "Bytes sent to the store.")
        .counter("tierce_bucket_sent_bytes_total"),
    maybe("bucket_bytes_received", |f| of(f, |figures| figures.bytes_down.into()), "Bytes received from the store.")
        .counter("tierce_bucket_received_bytes_total"),
    maybe("bucket_dollars_a_month", |f| of(f, |figures| Value::Real(figures.dollars_a_month, 2)),
        "Estimated cost of the requests, at the rate since the start and S3's prices.")
        .gauge("tierce_bucket_dollars_a_month"),
    maybe("bucket_last_error", |f| of_some(f, |figures| {
        (!figures.last_error.is_empty()).then(|| figures.last_error.clone().into())
    }), "The last failure."),
    maybe("bucket_last_error_time", |f| of_some(f, |figures| {
        (!figures.last_error.is_empty()).then(|| (figures.last_error_ms / 1000).into())
    }), "Unix time of that.")
        .gauge("tierce_bucket_last_error_timestamp_seconds"),
];

fn of(facts: &Facts<'_>, value: impl FnOnce(&Figures) -> Value) -> Option<Value> {
    facts.kernel.bucket.figures().as_ref().map(value)
}

fn of_some(facts: &Facts<'_>, value: impl FnOnce(&Figures) -> Option<Value>) -> Option<Value> {
    facts.kernel.bucket.figures().as_ref().and_then(value)
}
