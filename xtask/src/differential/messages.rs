//! Messages between several clients: their receivers, their order, and the servers' replies about subscriptions.

use tierce_harness::{Connection, Reply, words};

use super::run::{CONNECTIONS, DifferentialRun, Outcome, WAITERS, differ};
use super::stream::Call;

/// Number of subscribing connections to each server, in both protocol versions.
pub(super) const SUBSCRIBERS: usize = 4;

/// Number of steps of one scenario.
const STEPS: usize = 30;

const CHANNELS: &[&str] = &["a", "b", "ab", "abc", "a*", "a\\b", "x:1"];
const PATTERNS: &[&str] = &["a*", "*", "?", "[ab]*", "a?c", "\\a*", "abc", "b\\*", "*c", "x:[0-9]"];

/// Commands of subscribers.
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

/// Commands of other clients.
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
    /// Subscribers come and go while others publish. After each step, the messages of all subscribers are compared.
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

/// Returns everything that a client has received so far.
fn received(c: &mut Connection, mark: &str) -> Vec<Reply> {
    c.request(&["PING", mark]);
    let is_mark = |reply: &Reply| match reply {
        Reply::Bulk(text) => text == mark.as_bytes(),
        Reply::Array(parts) => parts.len() == 2 && parts[1] == Reply::Bulk(mark.into()),
        _ => false,
    };
    std::iter::from_fn(|| Some(c.reply()).filter(|reply| !is_mark(reply))).collect()
}

/// Restores the order of Redis where there is one. There is none for patterns, and for channels that all end at once.
/// Since 7.2, a message to the publisher itself follows the reply.
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

/// Sorts the names of channels, because they have no order.
fn in_order(reply: Reply) -> Reply {
    match reply {
        Reply::Array(mut items) if items.iter().all(|item| matches!(item, Reply::Bulk(_))) => {
            items.sort();
            Reply::Array(items)
        }
        other => other,
    }
}
