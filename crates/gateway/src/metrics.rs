//! `/metrics`: the kernel's statistics in the text format of Prometheus.

use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use prometheus::proto::{
    Bucket, Counter, Gauge, Histogram, LabelPair, Metric, MetricFamily, MetricType, Quantile,
    Summary,
};
use prometheus::{TEXT_FORMAT, TextEncoder};
use tierce_commands::acl::{self, Rights};
use tierce_commands::kernel::Kernel;
use tierce_commands::metrics::{Durations, Family, Kind, Labels, Samples};
use tierce_commands::read_metrics;
use tierce_engine::clock;
use tierce_wire::resp::OwnedArgs;

use crate::credentials;
use crate::failure::Failure;

/// Metrics before there is a kernel. They need no credentials, because they reveal no more than `/readyz`.
const LOADING: &str = "# HELP redis_up Always 1: the server answers.\n\
    # TYPE redis_up gauge\n\
    redis_up 1\n\
    # HELP redis_loading_dump_file 1 while the data are loaded.\n\
    # TYPE redis_loading_dump_file gauge\n\
    redis_loading_dump_file 1\n";

/// Returns true if a request has the token for metrics.
pub(crate) fn has_token(headers: &HeaderMap, token: &[u8]) -> bool {
    let given = credentials::bearer(headers);
    !token.is_empty() && given.is_some_and(|given| acl::are_same_secrets(given, token))
}

/// Checks that a user may see the metrics, which INFO shows as well.
pub(crate) fn check_rights(kernel: &Kernel, rights: &Rights) -> Result<(), Failure> {
    let mut call = OwnedArgs::new();
    let is_allowed = call.push(b"info").is_ok()
        && kernel.commands.find(b"info").is_some_and(|info| rights.allow(info, call.as_args()));
    let text = "NOPERM this user has no permissions to run the 'info' command";
    if is_allowed { Ok(()) } else { Err(Failure::new(StatusCode::FORBIDDEN, text)) }
}

/// Returns the response with all metrics.
pub(crate) fn response(kernel: Option<&Kernel>) -> Result<Response, Failure> {
    let text = match kernel {
        None => LOADING.to_owned(),
        Some(kernel) => text(read_metrics(kernel, clock::unix_ms()))?,
    };
    let mut response = text.into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(TEXT_FORMAT));
    Ok(response)
}

fn text(families: Vec<Family>) -> Result<String, Failure> {
    let families: Vec<_> = families.into_iter().filter_map(family).collect();
    let text = TextEncoder::new().encode_to_string(&families);
    text.map_err(|error| Failure::malformed(format!("ERR the metrics cannot be written: {error}")))
}

/// Converts a family; `None` if it has no samples, which the format does not allow.
fn family(family: Family) -> Option<MetricFamily> {
    let (kind, metrics): (_, Vec<Metric>) = match family.samples {
        Samples::Numbers(Kind::Counter, samples) => {
            (MetricType::COUNTER, samples.into_iter().map(counter).collect())
        }
        Samples::Numbers(Kind::Gauge, samples) => {
            (MetricType::GAUGE, samples.into_iter().map(gauge).collect())
        }
        Samples::Histograms(samples) => {
            (MetricType::HISTOGRAM, samples.into_iter().map(histogram).collect())
        }
        Samples::Summaries(samples) => {
            (MetricType::SUMMARY, samples.into_iter().map(summary).collect())
        }
    };
    if metrics.is_empty() {
        return None;
    }
    let mut of = MetricFamily::default();
    of.set_name(family.name.to_owned());
    of.set_help(family.help.to_owned());
    of.set_field_type(kind);
    of.set_metric(metrics);
    Some(of)
}

fn counter((labels, number): (Labels, f64)) -> Metric {
    let mut counter = Counter::default();
    counter.set_value(number);
    let mut metric = labelled(labels);
    metric.set_counter(counter);
    metric
}

fn gauge((labels, number): (Labels, f64)) -> Metric {
    let mut gauge = Gauge::default();
    gauge.set_value(number);
    let mut metric = labelled(labels);
    metric.set_gauge(gauge);
    metric
}

fn histogram((labels, durations): (Labels, Durations)) -> Metric {
    let bucket = |(bound, calls)| {
        let mut bucket = Bucket::default();
        bucket.set_upper_bound(bound);
        bucket.set_cumulative_count(calls as u64);
        bucket
    };
    let mut histogram = Histogram::default();
    histogram.set_sample_count(durations.count);
    histogram.set_sample_sum(durations.sum);
    histogram.set_bucket(durations.points.into_iter().map(bucket).collect());
    let mut metric = labelled(labels);
    metric.set_histogram(histogram);
    metric
}

fn summary((labels, durations): (Labels, Durations)) -> Metric {
    let quantile = |(percent, micros)| {
        let mut quantile = Quantile::default();
        quantile.set_quantile(percent);
        quantile.set_value(micros);
        quantile
    };
    let mut summary = Summary::default();
    summary.set_sample_count(durations.count);
    summary.set_sample_sum(durations.sum);
    summary.set_quantile(durations.points.into_iter().map(quantile).collect());
    let mut metric = labelled(labels);
    metric.set_summary(summary);
    metric
}

fn labelled(labels: Labels) -> Metric {
    let pair = |(name, value): (&str, String)| {
        let mut pair = LabelPair::default();
        pair.set_name(name.to_owned());
        pair.set_value(value);
        pair
    };
    let mut metric = Metric::default();
    metric.set_label(labels.into_iter().map(pair).collect());
    metric
}
