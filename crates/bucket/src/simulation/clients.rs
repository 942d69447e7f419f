//! Clients of a simulated server, and the rules for their history.
//!
//! Each key is a register. An operation reads it or swaps its value; a swap returns the value before. Every change is
//! an event with a number of its own, and the log holds the events of each key in order. So the order is known, and a
//! history is linearizable if
//!
//! - each event was written after its predecessor in the log, and the returned values agree with that;
//! - every change that was confirmed at level `bucket` is in the log;
//! - an operation that began after another was answered does not see, or become, an earlier event.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, timeout};

use super::store::Shared;

/// Longest period whose changes may be lost at level `local`, in the time of the owner.
pub(super) const INTERVAL: Duration = Duration::from_millis(400);

/// Lowest speed of a clock, compared with real time: see `lease.rs`.
const SLOWEST: f64 = 0.92;

/// A change of a key, as it is in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Event {
    pub key: u8,
    pub number: u64,
    /// Number of the event before it, 0 for none.
    pub before: u64,
    /// Expiry of the value. 0: the key does not exist.
    pub deadline: u64,
}

impl Event {
    pub fn encode(&self) -> String {
        let Self { key, number, before, deadline } = self;
        format!("{key} {number} {before} {deadline}")
    }

    pub fn decode(text: &str) -> Self {
        let mut fields = text.split(' ').map(|field| field.parse::<u64>().expect("a number"));
        let mut next = || fields.next().expect("four fields");
        Self { key: next() as u8, number: next(), before: next(), deadline: next() }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Level {
    Local,
    Bucket,
}

/// An operation on its way to a server.
pub(super) struct Request {
    pub key: u8,
    pub level: Level,
    /// Event that a swap makes, and the lifetime of its value in milliseconds.
    pub swap: Option<(u64, u64)>,
    /// Dropped without an answer: the outcome is unknown.
    pub answer: oneshot::Sender<Answer>,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Answer {
    /// Another server is the owner. Nothing was done.
    NotHere,
    Done {
        /// The newest event before a swap, or at a read.
        seen: u64,
        /// The deadline of the value that was returned. 0: none.
        shown: u64,
        /// The latest deadline that had passed for it. 0: none.
        expired: u64,
        /// Owner that executed it, and the time.
        owner: usize,
        at: Instant,
    },
}

/// An operation, as its client knows it.
#[derive(Debug, Clone, Copy)]
struct Operation {
    key: u8,
    level: Level,
    event: Option<u64>,
    began: Instant,
    answered: Option<(Instant, Answer)>,
}

/// Operations of all clients.
#[derive(Clone, Default)]
pub(super) struct History(Arc<Mutex<Past>>);

#[derive(Default)]
struct Past {
    events: u64,
    operations: Vec<Operation>,
}

/// Servers that a client may send to: some are dead, and not all are owners.
pub(super) type Servers = Arc<Mutex<Vec<mpsc::UnboundedSender<Request>>>>;

impl History {
    fn lock(&self) -> MutexGuard<'_, Past> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub fn next_event(&self) -> u64 {
        let mut past = self.lock();
        past.events += 1;
        past.events
    }

    /// Returns the number of answered operations at a level.
    pub fn answered(&self, level: Level) -> usize {
        let past = self.lock();
        past.operations.iter().filter(|o| o.level == level && o.answered.is_some()).count()
    }
}

/// Runs a client: one operation after the other, forever. One operation in `swaps` is a swap; 0: all are reads, from
/// any server.
pub(super) async fn client(world: Shared, servers: Servers, history: History, swaps: usize) {
    let below = |end: usize| world.lock().random.below(end);
    let mut server = 0;
    loop {
        sleep(Duration::from_millis(below(40) as u64)).await;
        let (key, level) = (below(6) as u8, [Level::Bucket, Level::Local][below(4) / 3]);
        let life = [100, 1_000, 1_000_000_000][below(3)];
        let swap = (swaps > 0 && below(swaps) == 0).then(|| (history.next_event(), life));
        let (answer, answered) = oneshot::channel();
        let began = Instant::now();
        sleep(Duration::from_millis(below(3) as u64)).await;
        let count = servers.lock().map_or(0, |servers| servers.len());
        if count == 0 {
            continue;
        }
        if swaps == 0 || below(10) == 0 || server >= count {
            // Most are dead after a while.
            server = count - 1 - below(count.min(4));
        }
        let sent = servers.lock().is_ok_and(|servers| {
            servers[server].send(Request { key, level, swap, answer }).is_ok()
        });
        let patience = Duration::from_millis([100, 200, 200, 600, 600, 10_000][below(6)]);
        let answer = match timeout(patience, answered).await {
            _ if !sent => None,
            Ok(Ok(answer)) => Some(answer),
            Ok(Err(_)) | Err(_) => None,
        };
        sleep(Duration::from_millis(below(3) as u64)).await;
        let event = swap.map(|(event, _)| event);
        match answer {
            Some(Answer::NotHere) => server = usize::MAX,
            answer => {
                if answer.is_none() {
                    server = usize::MAX;
                }
                let answered = answer.map(|answer| (Instant::now(), answer));
                let operation = Operation { key, level, event, began, answered };
                history.lock().operations.push(operation);
            }
        }
    }
}

impl History {
    /// Checks all operations against the log. Returns the number of confirmed changes that were lost.
    pub fn check(&self, world: &Shared) -> usize {
        let events: Vec<Event> = {
            let world = world.lock();
            world.log.values().flat_map(|l| &l.entries).map(|text| Event::decode(text)).collect()
        };
        let past = self.lock();
        let mut wrong = Vec::new();
        let places = places(&events, &mut wrong);
        let mut lost = Vec::new();
        let mut placed = Vec::new();
        for operation in &past.operations {
            match place(operation, &places, &mut wrong) {
                Some(place) => placed.push((operation, place)),
                None => lost.push(operation),
            }
        }
        check_times(&placed, &mut wrong);
        check_expiry(&placed, &mut wrong);
        let lost = check_lost(&lost, &mut wrong);
        wrong.into_iter().for_each(|wrong| world.lock().violation(wrong));
        lost
    }
}

/// Returns the position of each event among those of its key, from 1 on, with the event before.
fn places(events: &[Event], wrong: &mut Vec<String>) -> BTreeMap<u64, (usize, u64)> {
    let mut last = BTreeMap::<u8, (u64, usize)>::new();
    let mut places = BTreeMap::new();
    for event in events {
        let last = last.entry(event.key).or_default();
        if last.0 != event.before {
            wrong.push(format!("{event:?} was not written behind {}", last.0));
        }
        *last = (event.number, last.1 + 1);
        if places.insert(event.number, (last.1, event.before)).is_some() {
            wrong.push(format!("{event:?} is in the log twice"));
        }
    }
    places
}

/// Returns the position of the event that an operation made or saw. `None`: it is not in the log.
fn place(
    operation: &Operation,
    places: &BTreeMap<u64, (usize, u64)>,
    wrong: &mut Vec<String>,
) -> Option<usize> {
    let seen = match operation.answered {
        Some((_, Answer::Done { seen, .. })) => Some(seen),
        _ => None,
    };
    let place = match (operation.event, seen) {
        (Some(event), _) => places.get(&event).copied(),
        (None, Some(0)) => Some((0, 0)),
        (None, Some(seen)) => places.get(&seen).copied(),
        (None, None) => None,
    };
    if place.is_none() && operation.level == Level::Bucket && seen.is_some() {
        wrong.push(format!("what was answered at level bucket is not in the log: {operation:?}"));
    }
    if let (Some((_, before)), Some(_), Some(seen)) = (place, operation.event, seen)
        && before != seen
    {
        wrong.push(format!("{before} was before it: {operation:?}"));
    }
    place.map(|(place, _)| place)
}

/// Checks that an operation comes after every one that was answered before it began.
fn check_times(placed: &[(&Operation, usize)], wrong: &mut Vec<String>) {
    let mut by_begin = placed.to_vec();
    by_begin.sort_by_key(|(operation, _)| operation.began);
    let mut by_answer: Vec<_> =
        placed.iter().filter_map(|(o, place)| Some((o.answered?.0, o.key, *place, *o))).collect();
    by_answer.sort_by_key(|(at, ..)| *at);
    let mut answered = by_answer.into_iter().peekable();
    let mut newest = BTreeMap::<u8, (usize, &Operation)>::new();
    for (operation, place) in by_begin {
        while let Some((_, key, place, other)) = answered.next_if(|(at, ..)| *at < operation.began)
        {
            let entry = newest.entry(key).or_insert((place, other));
            if place > entry.0 {
                *entry = (place, other);
            }
        }
        let Some((least, other)) = newest.get(&operation.key) else { continue };
        if place < *least || (operation.event.is_some() && place == *least) {
            wrong.push(format!("{place} after {least}: {operation:?} began after {other:?}"));
        }
    }
}

/// Checks that a value is not shown once its deadline was seen to have passed, nor another with an earlier deadline.
fn check_expiry(placed: &[(&Operation, usize)], wrong: &mut Vec<String>) {
    for (operation, _) in placed {
        let Some((at, Answer::Done { expired, .. })) = operation.answered else { continue };
        if expired == 0 || operation.level == Level::Local {
            continue;
        }
        let back = placed.iter().find(|(other, _)| {
            matches!(other.answered, Some((_, Answer::Done { shown, .. })) if shown > 0 && shown <= expired)
                && other.began > at
        });
        if let Some((back, _)) = back {
            wrong.push(format!("{back:?} shows what had expired: {operation:?}"));
        }
    }
}

/// Checks that the changes an owner confirmed at level `local` and did not write to the log fall in one interval.
fn check_lost(lost: &[&Operation], wrong: &mut Vec<String>) -> usize {
    let mut owners = BTreeMap::<usize, (Instant, Instant)>::new();
    let mut count = 0;
    for operation in lost {
        let Some((_, Answer::Done { owner, at, .. })) = operation.answered else { continue };
        if operation.event.is_none() {
            continue;
        }
        count += 1;
        let span = owners.entry(owner).or_insert((at, at));
        *span = (span.0.min(at), span.1.max(at));
    }
    for (owner, (first, last)) in owners {
        if last - first > INTERVAL.div_f64(SLOWEST) {
            wrong.push(format!("owner {owner} has lost the changes of {:?}", last - first));
        }
    }
    count
}
