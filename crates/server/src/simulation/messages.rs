//! Checks the messages of subscribers: each message of their channels arrives once, in an order that the publishers can
//! explain.
//!
//! A message is sent between the sending of its call and the answer. So the order of two messages is known in three
//! cases: one call was sent after the other's answer, they are of one client, or both calls count with a key (messages
//! follow the order of changes). PUBLISH returns exactly how many get its message.

use super::clients::Record;
use super::requests::{ALL_CHANNELS, COUNTER, Deed};

/// Message of a channel.
struct Message<'r> {
    record: &'r Record,
    /// Number among all records; those of a client are in its order.
    number: usize,
    channel: &'r str,
    text: &'r str,
    /// Count that its call has reached.
    count: Option<u64>,
}

impl Message<'_> {
    fn is_before(&self, other: &Self) -> bool {
        let of_one = self.record.call.client == other.record.call.client;
        let counted = self.count.zip(other.count);
        of_one && self.number < other.number
            || self.record.answered_at() < other.record.sent_at()
            || counted.is_some_and(|(count, other)| count < other)
    }
}

/// Time of a subscription.
struct Subscription<'r> {
    channel: &'r str,
    begins: &'r Record,
    ends: Option<&'r Record>,
}

impl Subscription<'_> {
    fn is_to(&self, message: &Message<'_>) -> bool {
        self.channel == message.channel || self.channel == ALL_CHANNELS
    }

    fn must_get(&self, message: &Message<'_>) -> bool {
        let ends_at = self.ends.map_or(usize::MAX, Record::sent_at);
        let call = message.record;
        self.begins.answered_at() < call.sent_at() && call.answered_at() < ends_at
    }

    fn may_get(&self, message: &Message<'_>) -> bool {
        let ends_at = self.ends.map_or(usize::MAX, Record::answered_at);
        let call = message.record;
        self.begins.sent_at() < call.answered_at() && call.sent_at() < ends_at
    }
}

/// Returns true for a call that begins or ends a subscription.
pub(super) fn is_of_subscriber(deed: &Deed) -> bool {
    matches!(deed, Deed::Command(call) if call[0].ends_with("SUBSCRIBE"))
}

/// Returns the messages of a call, if it has done something.
fn messages_of(number: usize, record: &Record) -> Vec<Message<'_>> {
    let reply = record.reply();
    let commands = match &record.call.deed {
        Deed::Command(call) => std::slice::from_ref(call),
        Deed::Exec(commands) if reply.starts_with('[') => commands,
        Deed::Script { does, .. } => does,
        _ => &[],
    };
    if record.answered.is_none() || reply.starts_with('-') {
        return Vec::new();
    }
    let counts = commands.iter().any(|call| call[0] == "INCR" && call[1] == COUNTER);
    let count = reply.trim_start_matches('[').split(' ').next().filter(|_| counts);
    let count = count.map(|count| count.parse().expect("it is the first reply"));
    let published = commands.iter().filter(|call| call[0] == "PUBLISH");
    let message = |(channel, text)| Message { record, number, channel, text, count };
    published.map(|call| message((call[1].as_str(), call[2].as_str()))).collect()
}

fn subscriptions(records: &[Record], client: usize) -> Vec<Subscription<'_>> {
    let mut of_client = records.iter().filter(|record| record.call.client == client);
    let mut all = Vec::new();
    while let Some(begins) = of_client.next() {
        if let Deed::Command(call) = &begins.call.deed
            && is_of_subscriber(&begins.call.deed)
        {
            all.push(Subscription { channel: &call[1], begins, ends: of_client.next() });
        }
    }
    all
}

/// Checks the messages. `heard` has the texts that arrived at clients, in their order.
///
/// # Errors
/// If a subscriber lacks a message that it must get.
pub(super) fn check(records: &[Record], heard: &[(usize, String)]) -> Result<(), String> {
    let messages: Vec<Message<'_>> = records
        .iter()
        .enumerate()
        .flat_map(|(number, record)| messages_of(number, record))
        .collect();
    let clients = records.iter().map(|record| record.call.client + 1).max().unwrap_or(0);
    for client in 0..clients {
        let subscriptions = subscriptions(records, client);
        let texts: Vec<&str> =
            heard.iter().filter(|(of, _)| *of == client).map(|(_, text)| text.as_str()).collect();
        check_client(&messages, &subscriptions, &texts)
            .map_err(|failure| format!("client {client} {failure}; it heard {texts:?}"))?;
    }
    for message in &messages {
        let heard = heard.iter().filter(|(_, text)| text == message.text).count();
        let count = message.record.receivers().unwrap_or(heard as i64);
        if heard as i64 != count {
            let call = message.record.describe();
            return Err(format!(
                "{heard} subscribers hear of {}, not {count}: {call}",
                message.text
            ));
        }
    }
    Ok(())
}

fn check_client(
    messages: &[Message<'_>],
    subscriptions: &[Subscription<'_>],
    texts: &[&str],
) -> Result<(), String> {
    let mut in_order: Vec<&Message<'_>> = Vec::new();
    for text in texts {
        let message = messages.iter().find(|message| message.text == *text);
        let message = message.ok_or_else(|| format!("hears of {text}, which nobody has sent"))?;
        let mut its = subscriptions.iter().filter(|subscription| subscription.is_to(message));
        if !its.any(|subscription| subscription.may_get(message)) {
            return Err(format!("hears of {text} without a subscription"));
        }
        if in_order.iter().any(|before| before.text == *text) {
            return Err(format!("hears of {text} twice"));
        }
        if let Some(before) = in_order.iter().find(|before| message.is_before(before)) {
            return Err(format!("hears of {text} after {}, out of order", before.text));
        }
        in_order.push(message);
    }
    let must = |message: &&Message<'_>| {
        subscriptions.iter().any(|it| it.is_to(message) && it.must_get(message))
    };
    let missing = messages.iter().filter(must).find(|message| !texts.contains(&message.text));
    missing.map_or(Ok(()), |message| {
        Err(format!("never hears of {}: {}", message.text, message.record.describe()))
    })
}
