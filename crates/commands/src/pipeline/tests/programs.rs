//! A script that is ended at any of its calls changes nothing; a complete one has the effects of its calls.

use std::sync::Arc;

use parking_lot::Mutex;
use tierce_harness::effort;
use tierce_output::Output;
use tierce_wire::resp::{Proto, Value};

use super::bench::{Bench, Way};
use super::calls::{Call, Calls};
use super::within::{chance_decides, is_run, line};
use crate::command::{Command, Flags};
use crate::commands;
use crate::error::Interrupt;
use crate::pubsub::{Kind, Subscriptions};
use crate::waiting::ConnAddress;

const SEEDS: u64 = 15;

/// Calls of one script.
const CALLS: usize = 8;

/// Makes the calls in its arguments; each follows the number of its words.
const ALL: &str = "
    local at = 1
    while ARGV[at] do
        local words = tonumber(ARGV[at])
        redis.pcall(unpack(ARGV, at + 1, at + words))
        at = at + words + 1
    end
";

/// Returns true for commands on keys alone that scripts may call.
fn is_called(command: &Command) -> bool {
    let flags = command.spec.flags;
    is_run(command)
        && flags.intersects(Flags::WRITE.with(Flags::READONLY))
        && !flags.intersects(Flags::NOSCRIPT.with(Flags::NONBLOCKING))
        // Its random effect differs each time.
        && command.spec.name != "spop"
        // Scripts do not see what the connection has prepared.
        && command.full_name != "himport|set"
}

/// Returns the call of a script that makes these calls and then runs `end`. Keys are not declared: some runs begin
/// with one shard locked, and start again with all.
fn script(calls: &[Call], end: &str) -> Call {
    let head = if end.is_empty() { "" } else { "#!lua flags=atomic\n" };
    let mut call: Call = vec![b"EVAL".to_vec(), format!("{head}{ALL}{end}").into(), b"0".to_vec()];
    for words in calls {
        call.push(words.len().to_string().into());
        call.extend(words.iter().cloned());
    }
    call
}

fn some(calls: &mut Calls, of: &[&Command]) -> Vec<Call> {
    let count = 1 + calls.random.below(CALLS);
    let mut one = || {
        let command = of[calls.random.below(of.len())];
        calls.fitting(command)
    };
    (0..count).map(|_| one()).collect()
}

fn lines(calls: &[Call]) -> String {
    calls.iter().map(|call| line(call) + "; ").collect()
}

/// Compares two benches: one has scripts that are ended after each of their calls, the other has none.
fn compare(seed: u64) -> usize {
    let table = commands::table();
    let of: Vec<&Command> = table.all().filter(|command| is_called(command)).collect();
    let mut benches = [(); 2].map(|()| Bench::new(Proto::Resp2));
    let mut calls = Calls::new(seed, Bench::new(Proto::Resp2).payload("list0"));
    let mut ended = 0;
    for _ in 0..4 {
        let together = some(&mut calls, &of);
        let [scripts, plain] = &mut benches;
        let before = scripts.contents();
        let figures = scripts.kernel.keyspace.stats();
        for count in 0..=together.len() {
            let made = &together[..count];
            for end in ["error('at any call')", "while true do end"] {
                if end.starts_with("while") {
                    scripts.set("script-time-limit", "1");
                }
                let reply = scripts.run(Way::Alone, &[script(made, end)]).remove(0);
                scripts.set("script-time-limit", "0");
                assert!(reply.is_error(), "seed {seed}: {reply:?}");
                let stats = scripts.kernel.keyspace.stats();
                assert_eq!(stats.changes, figures.changes, "seed {seed}: {}", lines(made));
                assert_eq!(scripts.contents(), before, "seed {seed}: {}", lines(made));
                scripts.check_memory(&lines(made));
                ended += 1;
            }
        }
        let reply = scripts.run(Way::Alone, &[script(&together, "")]).remove(0);
        assert_eq!(reply, Value::Null, "seed {seed}: {}", lines(&together));
        plain.run(Way::All, &together);
        let made = lines(&together);
        assert_eq!(scripts.contents(), plain.contents(), "seed {seed}: {made}");
    }
    ended
}

#[test]
fn a_script_that_is_ended_at_any_call_was_never_there() {
    let seeds = effort(SEEDS);
    let ended: usize = (0..seeds).map(compare).sum();
    assert!(ended > 20 * seeds as usize, "{ended} scripts");
}

/// Only declared keys are locked, and the script starts again when it needs others.
#[test]
fn the_same_calls_lead_to_the_same_whatever_is_declared() {
    let table = commands::table();
    let of: Vec<&Command> = table.all().filter(|command| is_called(command)).collect();
    let mut calls = Calls::new(7, Bench::new(Proto::Resp2).payload("list0"));
    let mut benches = [(); 2].map(|()| Bench::new(Proto::Resp2));
    for _ in 0..60 {
        let together = some(&mut calls, &of);
        if together.iter().any(chance_decides) {
            continue;
        }
        let mut declaring = script(&together, "");
        declaring[2] = b"1".to_vec();
        declaring.insert(3, b"string0".to_vec());
        for (bench, call) in benches.iter_mut().zip([script(&together, ""), declaring]) {
            bench.run(Way::Alone, &[call]);
        }
        let [all, some] = &mut benches;
        assert_eq!(all.contents(), some.contents(), "{}", lines(&together));
    }
}

/// Sending many may take long, and cannot be interrupted. A few follow the order of the changes.
#[test]
fn messages_of_a_program_are_sent_while_its_key_is_free() {
    assert!(are_sent_with_their_keys_busy(1, &["string0"]));
    assert!(are_sent_with_their_keys_busy(1, &["string0", "string1", "string2", "string3"]));
    assert!(!are_sent_with_their_keys_busy(20_000, &["string0"]));
}

fn are_sent_with_their_keys_busy(count: usize, keys: &[&str]) -> bool {
    let mut bench = Bench::new(Proto::Resp2);
    let told = Arc::new(Mutex::new(Vec::new()));
    let (keyspace, seen) = (Arc::clone(&bench.kernel.keyspace), Arc::clone(&told));
    bench.kernel.pubsub.on_delivery(move |_| seen.lock().push(keyspace.any_busy()));
    let mut subscriptions = bench.kernel.pubsub.newcomer(ConnAddress::default());
    let mut output = Output::new();
    let pubsub = &bench.kernel.pubsub;
    pubsub.subscribe(&mut subscriptions, Kind::Channel, b"c", &mut output, Proto::Resp2);
    let script = format!(
        "redis.call('incr', KEYS[1]) for _ = 1, {count} do redis.call('publish', 'c', 'm') end"
    );
    let key_count = keys.len().to_string();
    let call = ["EVAL", &script, &key_count].into_iter().chain(keys.iter().copied());
    bench.run(Way::Long, &[call.map(|word| word.into()).collect()]);
    let told = told.lock();
    assert_eq!(told.len(), 1, "what waits to be delivered is told once");
    told[0]
}

/// Patterns that a message to `c` is compared with; none matches. Three such messages are as many as a worker matches
/// in one turn.
const PATTERNS: usize = 3000;

/// Creates a bench with these patterns and a subscriber to `c`.
fn with_many_patterns() -> (Bench, Subscriptions) {
    let bench = Bench::new(Proto::Resp2);
    let pubsub = &bench.kernel.pubsub;
    let mut subscriptions = pubsub.newcomer(ConnAddress::default());
    let mut subscribe = |kind, name: &[u8]| {
        pubsub.subscribe(&mut subscriptions, kind, name, &mut Output::new(), Proto::Resp2);
    };
    (0..PATTERNS).for_each(|number| subscribe(Kind::Pattern, format!("*{number}").as_bytes()));
    subscribe(Kind::Channel, b"c");
    (bench, subscriptions)
}

/// Returns a script that sends this many messages to `c`.
fn sends(count: usize) -> Call {
    let script = format!("for n = 1, {count} do redis.call('publish', 'c', '<' .. n .. '>') end");
    ["EVAL", &script, "1", "string0"].map(|word| word.as_bytes().to_vec()).into()
}

/// Returns the messages that have reached the subscriber.
fn received(bench: &Bench, subscriptions: &mut Subscriptions) -> Vec<usize> {
    let (pubsub, mut output) = (&bench.kernel.pubsub, Output::new());
    pubsub.deliver(0, usize::MAX, |_, run| {
        pubsub.receive(run, Some(&mut *subscriptions), &mut output, Proto::Resp2)
    });
    let text = String::from_utf8(output.into_bytes()).expect("messages");
    let numbers = text.split('<').skip(1).map(|rest| rest.split('>').next());
    numbers.map(|number| number.and_then(|it| it.parse().ok()).expect("a number")).collect()
}

#[test]
fn a_script_publishes_on_a_worker_what_is_matched_in_a_moment() {
    let (mut bench, mut subscriptions) = with_many_patterns();
    bench.kernel.scripts.offload.open();
    assert_eq!(bench.on_worker(&sends(4)).0, Some(Interrupt::Long), "it has not run");
    assert!(received(&bench, &mut subscriptions).is_empty());
    let (mut bench, mut subscriptions) = with_many_patterns();
    bench.kernel.scripts.offload.open();
    assert_eq!(bench.on_worker(&sends(3)).0, None);
    assert_eq!(received(&bench, &mut subscriptions), [1, 2, 3]);
}

/// A transaction keeps its keys locked meanwhile, and a worker delays other clients: both leave the rest to the
/// publishing thread. A thread of its own has sent all before its client has the reply.
#[test]
fn messages_for_many_patterns_wait_for_the_thread_for_that_where_others_would_wait() {
    send_ten(3, |bench| drop(bench.run(Way::All, &[sends(10)])));
    // Without threads for scripts it runs on the worker to its end.
    send_ten(3, |bench| assert_eq!(bench.on_worker(&sends(10)).0, None));
    send_ten(10, |bench| drop(bench.run(Way::Long, &[sends(10)])));
}

/// Sends ten messages. `at_once` of them must arrive at once, and the others later, in order.
#[track_caller]
fn send_ten(at_once: usize, send: impl FnOnce(&mut Bench)) {
    let (mut bench, mut subscriptions) = with_many_patterns();
    bench.kernel.pubsub.set_publisher(true);
    send(&mut bench);
    let mut all = received(&bench, &mut subscriptions);
    assert_eq!(all.len(), at_once);
    for _ in at_once..10 {
        assert!(bench.kernel.pubsub.publish_next());
        all.extend(received(&bench, &mut subscriptions));
    }
    assert!(all.into_iter().eq(1..=10), "in order");
}
