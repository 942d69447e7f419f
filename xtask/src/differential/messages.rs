//! Messages between several clients: who gets which, in what order, and what the servers say of subscriptions.

use tierce_harness::{Connection, Reply, words};

use super::run::{CONNECTIONS, DifferentialRun, Outcome, WAITERS, differ};
use super::stream::Call;

/// Connections to each server whose clients subscribe, of both protocol versions.
pub(super) const SUBSCRIBERS: usize = 4;

/// Steps of one scenario.
const STEPS: usize = 30;

const CHANNELS: &[&str] = &["a", "b", "ab", "abc", "a*", "a\\b", "x:1"];
const PATTERNS: &[&str] = &["a*", "*", "?", "[ab]*", "a?c", "\\a*", "abc", "b\\*", "*c", "x:[0-9]"];

/// What subscribers do.
const BY_SUBSCRIBERS: &[&str] = &[
    "SUBSCRIBE {channel}",
    "SUBSCRIBE {channel} {channel} {channel}",
    "PSUBSCRIBE {pattern}",
    "PSUBSCRIBE {pattern} {pattern}",
    "SSUBSCRIBE {channel} {channel}",
    "UNSUBSCRIBE {channel}",
    "UNSUBSCRIBE {channel} {channel}",
    "UNSUBSCRIBE",
    "PUNSUBSCRIBE {pattern}",
    "PUNSUBSCRIBE",
    "SUNSUBSCRIBE {channel}",
    "SUNSUBSCRIBE",
    "GET none",
    "PING",
    "PING a b",
    "SUBSCRIBE",
    "CLIENT GETNAME",
    "PUBLISH {channel} own",
];

/// What others do.
const BY_OTHERS: &[&str] = &[
    "PUBLISH {channel} message",
    "PUBLISH {channel} ''",
    "PUBLISH {channel} message",
    "PUBLISH none message",
    "SPUBLISH {channel} message",
    "PUBSUB CHANNELS",
    "PUBSUB CHANNELS {pattern}",
    "PUBSUB NUMSUB {channel} {channel}",
    "PUBSUB NUMSUB",
    "PUBSUB NUMPAT",
    "PUBSUB SHARDCHANNELS",
    "PUBSUB SHARDCHANNELS {pattern}",
    "PUBSUB SHARDNUMSUB {channel} {channel}",
    "PUBSUB CHANNELS a b",
    "PUBLISH a",
];

impl DifferentialRun {
    /// Subscribers come and go while others publish. After each step all of them show what they have got.
    pub(super) fn send_messages(&mut self) -> Outcome {
        for step in 0..STEPS {
            let actor = self.random.one_in(2).then(|| self.random.below(SUBSCRIBERS));
            let templates = if actor.is_some() { BY_SUBSCRIBERS } else { BY_OTHERS };
            let template = *self.random.pick(&templates.iter().collect::<Vec<_>>());
            let call = self.fill_in(template);
            let number = actor.map_or(CONNECTIONS, |n| CONNECTIONS + 1 + WAITERS + n);
            self.history.add(number, vec![call.clone()]);
            let [tested, reference] = [&mut self.tested, &mut self.reference].map(|side| {
                let mut shown = Vec::new();
                match actor {
                    Some(n) => side.subscribers[n].request(&call),
                    None => shown.push(in_order(side.auditor.call(&call)).to_string()),
                }
                let mark = format!("mark:{step}");
                let got = side.subscribers.iter_mut().map(|c| received(c, &mark));
                shown.extend(got.enumerate().map(|(n, replies)| {
                    let is_own = actor == Some(n) && call[0] == b"PUBLISH";
                    normal(replies, call.len() == 1, is_own).join(" ")
                }));
                shown.join("\n")
            });
            if tested != reference {
                return differ(&call, tested.as_bytes(), reference.as_bytes(), self.history.last());
            }
        }
        self.end_subscriptions();
        Ok(())
    }

    fn fill_in(&mut self, template: &str) -> Call {
        let mut line = template.to_owned();
        while let Some(at) = line.find('{') {
            let end = line.find('}').expect("a closing brace");
            let name = match &line[at..=end] {
                "{channel}" => self.random.pick(CHANNELS),
                _ => self.random.pick(PATTERNS),
            };
            line.replace_range(at..=end, name);
        }
        words(&line).into_iter().map(String::into_bytes).collect()
    }

    pub(super) fn end_subscriptions(&mut self) {
        for side in [&mut self.tested, &mut self.reference] {
            for (n, c) in side.subscribers.iter_mut().enumerate() {
                c.check("RESET", "+RESET");
                if n % 2 == 1 {
                    c.ask("HELLO 3");
                }
            }
        }
    }
}

/// What a client has got by now.
fn received(c: &mut Connection, mark: &str) -> Vec<Reply> {
    c.request(&["PING", mark]);
    let is_mark = |reply: &Reply| match reply {
        Reply::Bulk(text) => text == mark.as_bytes(),
        Reply::Array(parts) => parts.len() == 2 && parts[1] == Reply::Bulk(mark.into()),
        _ => false,
    };
    std::iter::from_fn(|| Some(c.reply()).filter(|reply| !is_mark(reply))).collect()
}

/// In the order of Redis where that has one. It has none for patterns, and for channels that all end at once.
/// A message to oneself follows the reply since 7.2.
fn normal(replies: Vec<Reply>, is_end_of_all: bool, is_own: bool) -> Vec<String> {
    if is_end_of_all {
        let parts = replies.iter().flat_map(|reply| match reply {
            Reply::Array(parts) | Reply::Push(parts) => parts.clone(),
            other => vec![other.clone()],
        });
        let mut parts: Vec<_> = parts.map(|part| part.to_string()).collect();
        parts.sort();
        return parts;
    }
    let mut lines: Vec<_> = replies.iter().map(Reply::to_string).collect();
    if is_own {
        lines.sort();
    }
    let is_of_pattern = |line: &String| line.contains("\"pmessage\"");
    lines.chunk_by_mut(|a, b| is_of_pattern(a) && is_of_pattern(b)).for_each(<[String]>::sort);
    lines
}

/// With the names of channels sorted: they have no order.
fn in_order(reply: Reply) -> Reply {
    match reply {
        Reply::Array(mut items) if items.iter().all(|item| matches!(item, Reply::Bulk(_))) => {
            items.sort();
            Reply::Array(items)
        }
        other => other,
    }
}
