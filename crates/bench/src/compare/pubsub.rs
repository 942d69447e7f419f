//! Publish/subscribe: the server's cost of a delivered message, the cost of an idle subscriber, and the latency of
//! other clients while a message goes to thousands.
//!
//! One connection publishes, one message at a time or in batches. A thread of this process reads the messages of all
//! subscribers. The publisher waits while subscribers lag behind, so that no server closes them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::idle::{DESCRIPTORS_SPARE, allow_clients, raise_descriptor_limit};
use super::memory::settled;
use super::pair::{Pair, medians};
use super::readers::Readers;
use super::reaper::Reaper;
use super::servers::{Contender, Server};
use crate::cli::LoadArgs;
use crate::error::Error;
use crate::target::Control;

const CHANNEL: &str = "channel";
const PAYLOAD: &str = "a message of thirty-two bytes...";

/// Maximum number of messages that subscribers may lag behind.
const BEHIND_MAX: u64 = 1024;

/// Default number of deliveries of a run, about a second's worth.
const DELIVERIES: u64 = 400_000;

/// Number of messages to the crowd.
const CROWD_MESSAGES: u64 = 30;
const CROWD_EVERY: Duration = Duration::from_millis(100);

/// Pause between two PINGs of another client at that time.
const PING_PAUSE: Duration = Duration::from_millis(5);

/// Number of subscribers, and number of messages that are published together.
const CASES: [(u32, u32); 4] = [(1, 1), (1, 16), (100, 1), (100, 16)];

/// All rounds of both servers.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct PubSub {
    pub(crate) cases: Vec<Case>,
    pub(crate) crowd: Crowd,
}

/// One load.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Case {
    pub(crate) subscribers: u32,
    pub(crate) pipeline: u32,
    /// Medians of the rounds.
    pub(crate) cpu_us_per_delivery: Pair<f64>,
    pub(crate) deliveries_per_second: Pair<f64>,
}

/// Thousands of subscribers of one channel.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Crowd {
    pub(crate) subscribers: u32,
    /// Resident bytes of each idle subscriber, connection included.
    pub(crate) bytes_per_subscriber: Pair<f64>,
    /// Maximum latency of another client's PING while messages are delivered, in milliseconds.
    pub(crate) others_wait_max_ms: Pair<f64>,
    /// 99th percentile of that latency.
    pub(crate) others_wait_p99_ms: Pair<f64>,
}

#[derive(Clone, Copy)]
struct Sample {
    cpu_us: f64,
    per_second: f64,
}

struct CrowdSample {
    bytes: f64,
    wait_max_ms: f64,
    wait_p99_ms: f64,
}

/// Runs all rounds.
pub(crate) fn run(
    contenders: &Pair<Contender>,
    requested: &LoadArgs,
    crowd: u32,
    rounds: u32,
    reaper: &Reaper,
) -> Result<PubSub, Error> {
    raise_descriptor_limit(u64::from(crowd) + DESCRIPTORS_SPARE)?;
    let servers = contenders.as_ref().try_map(|contender| {
        contender.require_fresh("pubsub")?;
        contender.start(reaper)
    })?;
    let deliveries = requested.requests.unwrap_or(DELIVERIES);
    let mut cases = Vec::new();
    for (subscribers, pipeline) in CASES {
        let one = |server| deliver(server, subscribers, pipeline, deliveries);
        let samples =
            (0..rounds).map(|_| servers.as_ref().try_map(one)).collect::<Result<Vec<_>, _>>()?;
        let side = |figure: fn(&Sample) -> f64| medians(&samples, figure);
        cases.push(Case {
            subscribers,
            pipeline,
            cpu_us_per_delivery: side(|sample| sample.cpu_us),
            deliveries_per_second: side(|sample| sample.per_second),
        });
    }
    drop(servers);
    let samples = contenders.as_ref().try_map(|contender| {
        let server = contender.start(reaper)?;
        allow_clients(&server, crowd)?;
        crowd_of(&server, crowd)
    })?;
    let side = |figure: fn(&CrowdSample) -> f64| samples.as_ref().map(figure);
    let crowd = Crowd {
        subscribers: crowd,
        bytes_per_subscriber: side(|sample| sample.bytes),
        others_wait_max_ms: side(|sample| sample.wait_max_ms),
        others_wait_p99_ms: side(|sample| sample.wait_p99_ms),
    };
    Ok(PubSub { cases, crowd })
}

/// Measures the cost of a message for each of its receivers.
fn deliver(
    server: &Server,
    subscribers: u32,
    pipeline: u32,
    deliveries: u64,
) -> Result<Sample, Error> {
    let readers = Subscribers::start(server, subscribers)?;
    let mut publisher = server.target.connect()?;
    // With one subscriber, a publish costs more than a delivery.
    let messages = deliveries / u64::from(subscribers + 4) * u64::from(pipeline.min(4));
    publish(&mut publisher, &readers, messages / 10, pipeline)?;
    let process = server.own_process();
    let (before, begun) = (process.cpu()?, Instant::now());
    let messages = publish(&mut publisher, &readers, messages, pipeline)?;
    let (elapsed, spent) = (begun.elapsed(), process.cpu()?.since(&before).time);
    let deliveries = (messages * u64::from(subscribers)) as f64;
    Ok(Sample {
        cpu_us: spent.as_secs_f64() * 1e6 / deliveries,
        per_second: deliveries / elapsed.as_secs_f64(),
    })
}

/// Publishes so many messages, rounded up to whole batches, and waits until all have arrived.
fn publish(
    publisher: &mut Control,
    readers: &Subscribers,
    messages: u64,
    pipeline: u32,
) -> Result<u64, Error> {
    let from = readers.messages();
    let batch = vec![&["PUBLISH", CHANNEL, PAYLOAD][..]; pipeline as usize];
    let mut sent = 0;
    while sent < messages {
        publisher.must_all(&batch)?;
        sent += u64::from(pipeline);
        while from + sent > readers.messages() + BEHIND_MAX {
            thread::yield_now();
        }
    }
    while readers.messages() < from + sent {
        thread::sleep(Duration::from_micros(100));
    }
    Ok(sent)
}

/// Measures the cost of thousands of subscribers, and the latency of other clients during messages to them.
fn crowd_of(server: &Server, subscribers: u32) -> Result<CrowdSample, Error> {
    let process = server.own_process();
    let before = settled(process)?;
    let readers = Subscribers::start(server, subscribers)?;
    let bytes = settled(process)? as f64 - before as f64;
    let is_over = Arc::new(AtomicBool::new(false));
    let other = {
        let (mut control, is_over) = (server.target.connect()?, Arc::clone(&is_over));
        thread::spawn(move || {
            let mut waits = Vec::new();
            while !is_over.load(Ordering::Relaxed) {
                thread::sleep(PING_PAUSE);
                let begun = Instant::now();
                control.must(&["PING"])?;
                waits.push(begun.elapsed().as_secs_f64() * 1e3);
            }
            Ok::<_, Error>(waits)
        })
    };
    let mut publisher = server.target.connect()?;
    for _ in 0..CROWD_MESSAGES {
        publisher.must(&["PUBLISH", CHANNEL, PAYLOAD])?;
        thread::sleep(CROWD_EVERY);
    }
    while readers.messages() < CROWD_MESSAGES {
        thread::sleep(CROWD_EVERY);
    }
    is_over.store(true, Ordering::Relaxed);
    let mut waits = other.join().expect("a thread that does not panic")?;
    waits.sort_by(f64::total_cmp);
    Ok(CrowdSample {
        bytes: bytes / f64::from(subscribers),
        wait_max_ms: waits.last().copied().unwrap_or(f64::NAN),
        wait_p99_ms: waits.get(waits.len() * 99 / 100).copied().unwrap_or(f64::NAN),
    })
}

/// Connections that subscribe to the channel.
struct Subscribers {
    count: u64,
    readers: Readers,
    message_len: u64,
}

impl Subscribers {
    fn start(server: &Server, count: u32) -> Result<Self, Error> {
        let subscribe = |_| {
            let mut control = server.target.connect()?;
            control.must(&["SUBSCRIBE", CHANNEL])?;
            Ok(control)
        };
        let readers = Readers::start((0..count).map(subscribe))?;
        let bulk = |text: &str| format!("${}\r\n{text}\r\n", text.len());
        let message = format!("*3\r\n{}{}{}", bulk("message"), bulk(CHANNEL), bulk(PAYLOAD));
        Ok(Self { count: count.into(), readers, message_len: message.len() as u64 })
    }

    /// Returns the number of messages that have reached each subscriber, on average.
    fn messages(&self) -> u64 {
        self.readers.bytes() / self.message_len / self.count
    }
}
