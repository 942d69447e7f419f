//! Publishers, subscribers and workers without threads and sockets.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tierce_harness::{Random, effort};
use tierce_output::Output;
use tierce_wire::resp::{Proto, ReplyDecoder};

use super::*;
use crate::clients::{Client, ClientFlags, Origin};

fn conn(worker: u16, id: u64) -> ConnAddress {
    ConnAddress { worker, slot: id as u32, id }
}

/// A connection, with the number of messages that it got for each subscription.
struct Subscriber {
    subscriptions: Subscriptions,
    output: Output,
}

impl Subscriber {
    fn new(pubsub: &PubSub, worker: u16, id: u64) -> Self {
        Self { subscriptions: pubsub.newcomer(conn(worker, id)), output: Output::new() }
    }

    fn subscribe(&mut self, pubsub: &PubSub, kind: Kind, name: &str) {
        let Self { subscriptions, output } = self;
        pubsub.subscribe(subscriptions, kind, name.as_bytes(), output, Proto::Resp3);
    }

    fn unsubscribe(&mut self, pubsub: &PubSub, kind: Kind, name: &str) {
        let Self { subscriptions, output } = self;
        pubsub.unsubscribe(subscriptions, kind, name.as_bytes(), output, Proto::Resp3);
    }

    /// Returns the payloads of all messages that it got since the last call.
    fn got(&mut self) -> Vec<String> {
        let output = std::mem::replace(&mut self.output, Output::new()).into_bytes();
        let (mut rest, mut payloads) = (&output[..], Vec::new());
        while let Some((value, used)) = ReplyDecoder::new().decode(rest).expect("a message") {
            let tierce_wire::resp::Value::Push(parts) = value else { panic!("{value:?}") };
            let payload = parts.last().and_then(|part| part.as_bytes()).expect("a payload");
            payloads.push(String::from_utf8_lossy(payload).into_owned());
            rest = &rest[used..];
        }
        payloads
    }
}

/// Delivers for one turn, and returns the number of visited connections.
fn turn(pubsub: &PubSub, worker: u16, budget: usize, all: &mut HashMap<u64, Subscriber>) -> usize {
    let mut visited = 0;
    pubsub.deliver(worker.into(), budget, |to, run| {
        let Some(Subscriber { subscriptions, output }) = all.get_mut(&to.id) else { return 1 };
        run.write(subscriptions, output, Proto::Resp3);
        visited += 1;
        1
    });
    visited
}

#[test]
fn each_gets_what_it_was_counted_for_whatever_happens_between_two_turns() {
    for seed in 0..effort(300) {
        let mut random = Random::new(seed);
        let pubsub = PubSub::new(1);
        let mut all: HashMap<u64, Subscriber> = HashMap::new();
        let (mut counted, mut got, mut next_id, mut last) = (0, 0, 0, HashMap::new());
        for number in 0..200 {
            let kind = *random.pick(&[&Kind::Channel, &Kind::Pattern]);
            let name = match kind {
                Kind::Pattern => *random.pick(&[&"a*", &"?"]),
                _ => *random.pick(&[&"a", &"b"]),
            };
            let id = random.u64_below(next_id.max(1));
            match random.below(6) {
                0 => {
                    let mut newcomer = Subscriber::new(&pubsub, 0, next_id);
                    newcomer.subscribe(&pubsub, kind, name);
                    all.insert(next_id, newcomer);
                    next_id += 1;
                }
                1 => {
                    if let Some(subscriber) = all.get_mut(&id) {
                        subscriber.subscribe(&pubsub, kind, name);
                    }
                }
                2 => {
                    if let Some(subscriber) = all.get_mut(&id) {
                        subscriber.unsubscribe(&pubsub, kind, name);
                    }
                }
                3 | 4 => {
                    let channel = random.pick(&[b"a", b"b"]);
                    counted += pubsub.publish(channel, number.to_string().as_bytes(), Some(0));
                }
                _ => drop(turn(&pubsub, 0, random.below(4), &mut all)),
            }
        }
        while pubsub.has_deliveries(0) {
            turn(&pubsub, 0, 3, &mut all);
        }
        for (id, subscriber) in &mut all {
            for payload in subscriber.got() {
                let number: i32 = payload.parse().expect("a number");
                let before = last.insert(*id, number).unwrap_or(0);
                assert!(before <= number, "seed {seed}: in order");
                got += 1;
            }
        }
        assert_eq!(got, counted, "seed {seed}");
    }
}

#[test]
fn a_message_to_many_takes_several_turns_and_reaches_all() {
    let pubsub = PubSub::new(1);
    let mut all: HashMap<u64, Subscriber> = (0..100)
        .map(|id| {
            let mut subscriber = Subscriber::new(&pubsub, 0, id);
            subscriber.subscribe(&pubsub, Kind::Channel, "a");
            (id, subscriber)
        })
        .collect();
    assert_eq!(pubsub.publish(b"a", b"1", Some(0)), 100);
    assert_eq!(turn(&pubsub, 0, 40, &mut all), 40);
    // Clients that leave and arrive meanwhile do not disturb others.
    for id in (0..100).step_by(3) {
        pubsub.leave(&mut all.remove(&id).expect("it is there").subscriptions);
    }
    let mut late = Subscriber::new(&pubsub, 0, 100);
    late.subscribe(&pubsub, Kind::Channel, "a");
    all.insert(100, late);
    while pubsub.has_deliveries(0) {
        assert!(turn(&pubsub, 0, 40, &mut all) <= 40);
    }
    for (id, subscriber) in &mut all {
        let expected: &[&str] = if *id == 100 { &[] } else { &["1"] };
        assert_eq!(subscriber.got(), expected, "{id}");
    }
}

#[test]
fn neighbouring_messages_are_one_run() {
    let pubsub = PubSub::new(1);
    let mut subscriber = Subscriber::new(&pubsub, 0, 0);
    subscriber.subscribe(&pubsub, Kind::Channel, "a");
    for number in 0..10 {
        pubsub.publish(b"a", format!("{number}").as_bytes(), Some(0));
    }
    let mut all = HashMap::from([(0, subscriber)]);
    assert_eq!(turn(&pubsub, 0, 100, &mut all), 1);
    let got = all.get_mut(&0).expect("it is there").got();
    assert_eq!(got, ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]);
}

#[test]
fn a_worker_is_woken_once_and_by_others_only() {
    let pubsub = PubSub::new(2);
    let woken = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&woken);
    pubsub.on_delivery(move |worker| {
        assert_eq!(worker, 1);
        counter.fetch_add(1, Ordering::Relaxed);
    });
    let mut subscriber = Subscriber::new(&pubsub, 1, 0);
    subscriber.subscribe(&pubsub, Kind::Channel, "a");
    pubsub.publish(b"a", b"1", Some(0));
    pubsub.publish(b"a", b"2", None);
    assert_eq!(woken.load(Ordering::Relaxed), 1);
    let mut all = HashMap::from([(0, subscriber)]);
    turn(&pubsub, 1, 100, &mut all);
    assert!(!pubsub.has_deliveries(1));
    pubsub.publish(b"a", b"3", Some(1));
    assert_eq!(woken.load(Ordering::Relaxed), 1, "it looks by itself");
    turn(&pubsub, 1, 100, &mut all);
    pubsub.publish(b"a", b"4", Some(0));
    assert_eq!(woken.load(Ordering::Relaxed), 2);
}

#[test]
fn publishers_are_told_when_a_worker_is_behind() {
    let pubsub = PubSub::new(1);
    let mut subscriber = Subscriber::new(&pubsub, 0, 0);
    subscriber.subscribe(&pubsub, Kind::Channel, "a");
    let message = vec![b'x'; 1 << 20];
    let mut count = 0;
    while !pubsub.is_congested() {
        pubsub.publish(b"a", &message, None);
        count += 1;
    }
    assert_eq!(count, 16, "16 MB");
    let mut all = HashMap::from([(0, subscriber)]);
    while pubsub.has_deliveries(0) {
        turn(&pubsub, 0, 1, &mut all);
    }
    assert!(!pubsub.is_congested());
    pubsub.publish(b"none", &message, None);
    assert!(!pubsub.has_deliveries(0));
}

#[test]
fn many_patterns_are_matched_in_steps() {
    let pubsub = PubSub::new(1);
    let mut subscriber = Subscriber::new(&pubsub, 0, 0);
    for number in 0..3500 {
        subscriber.subscribe(&pubsub, Kind::Pattern, &format!("*{number}"));
    }
    subscriber.subscribe(&pubsub, Kind::Channel, "x7");
    assert!(pubsub.weight_of_patterns(b"x7", 1000) > 1000);
    assert_eq!(pubsub.weight_of_patterns(b"x7", 10_000), 3500, "as much as it may be");
    assert_eq!(pubsub.publish_in_steps(b"x7", b"m"), 2);
    assert_eq!(pubsub.publish_in_steps(b"x1234", b"m"), 4, "4, 34, 234 and 1234");
    assert_eq!(pubsub.publish(b"x1234", b"m", None), 4);
    let mut all = HashMap::from([(0, subscriber)]);
    turn(&pubsub, 0, 100, &mut all);
    assert_eq!(all.get_mut(&0).expect("it is there").got().len(), 10);
}

fn tracker(mode: TrackingMode, redirect: Option<Redirect>) -> Tracker {
    Tracker { mode, skips_own: false, redirect, caching: false, is_broken: false }
}

fn client(conn: ConnAddress) -> Arc<Client> {
    Arc::new(Client::new(Origin { conn, ..Origin::default() }, 0))
}

/// Makes a worker deliver its messages, to connections with subscriptions and, according to the map, to others.
fn turn_with_others(
    pubsub: &PubSub,
    worker: u16,
    all: &mut HashMap<u64, (Option<Subscriptions>, Output)>,
) {
    pubsub.deliver(worker.into(), usize::MAX, |to, run| {
        let Some((subscriptions, output)) = all.get_mut(&to.id) else { return 1 };
        pubsub.receive(run, subscriptions.as_mut(), output, Proto::Resp3);
        1
    });
}

fn taken(output: &mut Output) -> String {
    let bytes = std::mem::replace(output, Output::new()).into_bytes();
    String::from_utf8(bytes).expect("a text").replace("\r\n", " ")
}

const ALL: &str = ">2 $10 invalidate _ ";

#[test]
fn what_is_redirected_comes_to_a_connection_with_and_without_subscriptions() {
    let pubsub = PubSub::new(2);
    let (from, to) = (conn(0, 1), conn(1, 2));
    let receiver = client(to);
    let mut sender = pubsub.newcomer(from);
    pubsub.track(&mut sender, tracker(TrackingMode::Read, Some(Redirect::to(&receiver))));
    let mut all = HashMap::from([(1, (Some(sender), Output::new())), (2, (None, Output::new()))]);
    pubsub.invalidate_all();
    turn_with_others(&pubsub, 0, &mut all);
    turn_with_others(&pubsub, 1, &mut all);
    let got = |all: &mut HashMap<u64, (_, Output)>, id| taken(&mut all.get_mut(&id).unwrap().1);
    assert_eq!((got(&mut all, 1), got(&mut all, 2)), (String::new(), ALL.to_owned()));
    // It is on its way when the receiver subscribes to something. Then it arrives before the confirmation.
    pubsub.invalidate_all();
    turn_with_others(&pubsub, 0, &mut all);
    let (subscriptions, output) = all.get_mut(&2).unwrap();
    let newcomer = subscriptions.insert(pubsub.newcomer(to));
    pubsub.subscribe(newcomer, Kind::Channel, b"news", output, Proto::Resp3);
    assert_eq!(got(&mut all, 2), ALL);
    turn_with_others(&pubsub, 1, &mut all);
    assert_eq!(got(&mut all, 2), "");
    receiver.set(ClientFlags::GONE, true);
    pubsub.invalidate_all();
    turn_with_others(&pubsub, 0, &mut all);
    assert_eq!(got(&mut all, 1), ">2 $21 tracking-redir-broken :2 ");
    let sender = all.get_mut(&1).unwrap().0.as_mut().unwrap();
    assert!(sender.tracker().unwrap().is_broken);
    pubsub.leave(sender);
    assert_eq!(pubsub.tracker_count(), 0);
}

#[test]
fn prefixes_of_a_key_are_found_and_told_apart() {
    let pubsub = PubSub::new(1);
    let mut subscriptions = pubsub.newcomer(conn(0, 1));
    let mut output = Output::new();
    pubsub.track(&mut subscriptions, tracker(TrackingMode::Broadcast, None));
    for prefix in ["user:", "order:", "item:1"] {
        let prefix = prefix.as_bytes();
        pubsub.subscribe(&mut subscriptions, Kind::Prefix, prefix, &mut output, Proto::Resp3);
    }
    let of = |key: &str| {
        let prefixes = pubsub.trackers.prefixes().read();
        let found: Vec<Name> = prefixes.of(key.as_bytes()).cloned().collect();
        found.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect::<Vec<_>>()
    };
    assert_eq!(
        (of("user:1"), of("order:"), of("user")),
        (vec!["user:".to_owned()], vec!["order:".to_owned()], vec![])
    );
    for (prefix, other) in [
        ("user:1", "user:"),
        ("us", "user:"),
        ("item:1", "item:1"),
        ("item:12", "item:1"),
        ("", "item:1"),
    ] {
        let found = subscriptions.overlapping_prefix(prefix.as_bytes());
        assert_eq!(found.map(|name| name.to_vec()), Some(other.as_bytes().to_vec()), "{prefix}");
    }
    for prefix in ["item:2", "user", "users", "a", "z"] {
        let is_there = subscriptions.overlapping_prefix(prefix.as_bytes()).is_some();
        assert_eq!(is_there, "user:".starts_with(prefix), "{prefix}");
    }
    pubsub.leave(&mut subscriptions);
    assert_eq!((pubsub.count(Kind::Prefix), of("user:1")), (0, vec![]));
}

/// Patterns that do not match `a`, more than a publisher matches in one step.
fn many_patterns(pubsub: &PubSub) -> Subscriber {
    let mut filler = Subscriber::new(pubsub, 0, 1000);
    for number in 0..2 * PATTERNS_PER_STEP {
        filler.subscribe(pubsub, Kind::Pattern, &format!("*{number}"));
    }
    filler
}

#[test]
fn all_subscribers_get_the_messages_of_a_channel_in_one_order() {
    let pubsub = PubSub::new(1);
    let _filler = many_patterns(&pubsub);
    let mut of_channel = Subscriber::new(&pubsub, 0, 0);
    let mut of_pattern = Subscriber::new(&pubsub, 0, 1);
    of_channel.subscribe(&pubsub, Kind::Channel, "a");
    of_pattern.subscribe(&pubsub, Kind::Pattern, "?");
    pubsub.set_publisher(true);
    let counted = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| while pubsub.publish_next() {});
        let publishers: Vec<_> = (0..3)
            .map(|thread| {
                let (pubsub, counted) = (&pubsub, &counted);
                scope.spawn(move || {
                    for number in 0..60 {
                        let message = format!("{thread}:{number}");
                        let count = match (thread + number) % 3 {
                            0 => pubsub.publish_in_steps(b"a", message.as_bytes()),
                            1 => pubsub.publish(b"a", message.as_bytes(), None),
                            _ => {
                                pubsub.notify(b"a", message.as_bytes(), 100);
                                2
                            }
                        };
                        counted.fetch_add(count, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        publishers.into_iter().for_each(|publisher| publisher.join().expect("it ends"));
        // After all deferred messages.
        counted.fetch_add(pubsub.publish_in_steps(b"a", b"3:0"), Ordering::Relaxed);
        pubsub.set_publisher(false);
    });
    let mut all = HashMap::from([(0, of_channel), (1, of_pattern)]);
    while pubsub.has_deliveries(0) {
        turn(&pubsub, 0, 100, &mut all);
    }
    let [first, second] = [0, 1].map(|id| all.get_mut(&id).expect("it is there").got());
    assert_eq!(first, second);
    assert_eq!((first.len(), counted.into_inner()), (181, 362));
    for thread in 0..4 {
        let prefix = format!("{thread}:");
        let numbers = first.iter().filter_map(|message| message.strip_prefix(&prefix));
        let numbers: Vec<usize> = numbers.map(|number| number.parse().expect("it")).collect();
        assert!(numbers.is_sorted(), "{thread}: {numbers:?}");
    }
}

#[test]
fn notifications_keep_their_order_when_some_are_put_off() {
    let pubsub = PubSub::new(1);
    let mut subscriber = Subscriber::new(&pubsub, 0, 0);
    subscriber.subscribe(&pubsub, Kind::Pattern, "*");
    let mut all = HashMap::from([(0, subscriber)]);
    assert_eq!(pubsub.notify(b"x", b"0", 0), 0, "no thread would do it later");
    pubsub.set_publisher(true);
    assert_eq!(pubsub.notify(b"x", b"1", 0), 0);
    assert_eq!(pubsub.notify(b"y", b"2", 1000), 0, "behind the other");
    assert_eq!(pubsub.weight_of_patterns(b"x", 1000), usize::MAX);
    assert_eq!(pubsub.weight_of_patterns(b"z", 1000), 1);
    assert_eq!(pubsub.publish(b"z", b"at once", None), 1);
    // It publishes earlier messages first, because there is no publishing thread.
    assert_eq!(pubsub.publish(b"y", b"3", None), 1);
    assert_eq!(pubsub.notify(b"x", b"4", 1000), 1);
    turn(&pubsub, 0, 100, &mut all);
    let got = all.get_mut(&0).expect("it is there").got();
    assert_eq!(got, ["0", "at once", "1", "2", "3", "4"]);
    pubsub.set_publisher(false);
    assert!(!pubsub.publish_next());
}

#[test]
fn publishers_are_told_when_too_much_waits_to_be_matched() {
    let pubsub = PubSub::new(1);
    let _filler = many_patterns(&pubsub);
    pubsub.set_publisher(true);
    let mut count = 0;
    while !pubsub.is_congested() {
        pubsub.notify(b"a", b"m", 0);
        count += 1;
    }
    assert_eq!(count, 10_000_000 / (2 * PATTERNS_PER_STEP) + 1);
    pubsub.publish_next();
    assert!(!pubsub.is_congested());
}

#[test]
fn a_long_pattern_weighs_as_long_as_it_is_there() {
    let pubsub = PubSub::new(1);
    let mut subscriber = Subscriber::new(&pubsub, 0, 0);
    subscriber.subscribe(&pubsub, Kind::Pattern, "a*");
    let channel = b"a channel of some length";
    let before = pubsub.weight_bound(channel);
    let long = format!("a{}", "*".repeat(10_000));
    subscriber.subscribe(&pubsub, Kind::Pattern, &long);
    assert!(pubsub.weight_bound(channel) > 100 * before);
    subscriber.unsubscribe(&pubsub, Kind::Pattern, &long);
    assert_eq!(pubsub.weight_bound(channel), before);
}

/// Names count once for all their subscribers; messages count until they are delivered.
#[test]
fn memory_is_counted_as_long_as_it_is_used() {
    let pubsub = PubSub::new(2);
    let subscribers = (0..4).map(|id| (id, Subscriber::new(&pubsub, (id % 2) as u16, id)));
    let mut all: HashMap<_, _> = subscribers.collect();
    for subscriber in all.values_mut() {
        for kind in Kind::ALL {
            subscriber.subscribe(&pubsub, kind, "ten bytes!");
            subscriber.subscribe(&pubsub, kind, "ten bytes!");
        }
    }
    let names = 10 * Kind::ALL.len();
    assert_eq!(pubsub.memory_bytes(), names);
    let message = [0; 10_000];
    pubsub.publish(b"ten bytes!", &message, None);
    assert!(pubsub.memory_bytes() > names + 2 * 2 * message.len());
    for worker in [0, 1] {
        turn(&pubsub, worker, 100, &mut all);
    }
    assert_eq!(pubsub.memory_bytes(), names);
    pubsub.set_publisher(true);
    pubsub.notify(b"ten bytes!", &message, 0);
    assert!(pubsub.memory_bytes() > names + message.len());
    pubsub.publish_next();
    pubsub.set_publisher(false);
    for worker in [0, 1] {
        turn(&pubsub, worker, 100, &mut all);
    }
    let (mut one, rest): (Vec<_>, Vec<_>) =
        all.into_values().partition(|one| one.subscriptions.conn.id == 0);
    for mut subscriber in rest {
        pubsub.leave(&mut subscriber.subscriptions);
    }
    assert_eq!(pubsub.memory_bytes(), names);
    one[0].unsubscribe(&pubsub, Kind::Channel, "ten bytes!");
    assert_eq!(pubsub.memory_bytes(), names - 10);
    pubsub.leave(&mut one[0].subscriptions);
    assert_eq!(pubsub.memory_bytes(), 0);
}
