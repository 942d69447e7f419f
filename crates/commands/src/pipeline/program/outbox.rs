//! Effects of a program beyond keys: messages, lines of the log, and its calls for clients of MONITOR.
//!
//! They happen when the program has ended, so nothing of a rolled-back run is seen. Messages are interleaved with the
//! events of the program's changes in the order of its calls. If delivery takes long, they follow the events.

use tierce_keyspace::{ShardLocks, deliver_events};
use tierce_lua::LogLevel;
use tierce_wire::resp::Args;

use crate::caller::Caller;
use crate::kernel::Kernel;
use crate::message::Notice;
use crate::monitors;
use crate::pubsub::Kind;

use super::super::WEIGHT_MAX;

/// Upper bound of the outbox. A program that collects more is ended.
const BYTES_MAX: usize = 64 << 20;

/// Upper bound of the part for MONITOR. Its clients do not see the rest, since they must not make a program fail.
const SHOWN_BYTES_MAX: usize = 16 << 20;

/// Upper bound of the bytes delivered while the keys of the program are locked.
const DELIVERED_AT_ONCE_MAX: usize = 256 << 10;

/// Messages and lines of a program that has not ended.
///
/// **Invariant:** its size is at most the limit plus one item. Items beyond the limit are dropped, since the program
/// fails.
#[derive(Default)]
pub(super) struct Outbox {
    /// In order.
    messages: Vec<Message>,
    /// Work to find matching patterns. It is known on workers, which do at most [`WEIGHT_MAX`].
    pub(super) weight: usize,
    /// Lines for the server's log, in order.
    lines: Vec<(LogLevel, Vec<u8>)>,
    bytes: usize,
    /// For clients of MONITOR, in order.
    shown: Vec<Vec<u8>>,
    shown_bytes: usize,
    /// Number of calls beyond the limit for MONITOR.
    hidden: usize,
}

/// Delivery of messages that must be matched with many patterns.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Pace {
    /// Another thread publishes them, and all later messages, because others wait for the keys of the program, or for
    /// its thread.
    AtOnce,
    /// This thread waits until they are published.
    InTurn,
}

struct Message {
    kind: Kind,
    channel: Vec<u8>,
    text: Vec<u8>,
    /// Events before it.
    events: usize,
}

impl Outbox {
    /// Returns true if delivery takes long. Nothing can interrupt it.
    pub(super) fn takes_long(&self, kernel: &Kernel) -> bool {
        let mut weight = self.shown.len() + self.lines.len();
        let weigh = |message: &Message| {
            let patterns = kernel.pubsub.weight_of_patterns(&message.channel, WEIGHT_MAX);
            weight = weight.saturating_add(patterns).saturating_add(1);
            weight > WEIGHT_MAX
        };
        self.bytes > DELIVERED_AT_ONCE_MAX || self.messages.iter().any(weigh)
    }

    /// Returns true if there are messages.
    pub(super) fn has_messages(&self) -> bool {
        !self.messages.is_empty()
    }

    /// Returns true if the program has collected too much.
    pub(super) fn is_full(&self) -> bool {
        self.bytes > BYTES_MAX
    }

    /// Bytes that count against the memory limit of the program.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds a message for the subscribers of a channel, after this many events.
    pub(super) fn publish(&mut self, kind: Kind, channel: &[u8], text: &[u8], events: usize) {
        if !self.is_full() {
            self.bytes += size_of::<Message>() + channel.len() + text.len();
            let (channel, text) = (channel.to_vec(), text.to_vec());
            self.messages.push(Message { kind, channel, text, events });
        }
    }

    /// Adds a line for the server's log.
    pub(super) fn log(&mut self, level: LogLevel, text: &[u8]) {
        if !self.is_full() {
            self.bytes += size_of::<(LogLevel, Vec<u8>)>() + text.len();
            self.lines.push((level, text.to_vec()));
        }
    }

    /// Adds the call of the program itself, for clients of MONITOR.
    pub(super) fn show_call(&mut self, caller: &Caller, args: Args<'_>) {
        self.show(|| monitors::line_of_client(caller, args));
    }

    /// Adds a call made by the program, for clients of MONITOR.
    pub(super) fn show_inner(&mut self, caller: &Caller, args: Args<'_>) {
        self.show(|| monitors::line_of_program(caller, args.iter()));
    }

    fn show(&mut self, line: impl FnOnce() -> Vec<u8>) {
        if self.shown_bytes > SHOWN_BYTES_MAX {
            self.hidden += 1;
            return;
        }
        let line = line();
        self.shown_bytes += size_of::<Vec<u8>>() + line.len();
        self.shown.push(line);
    }

    /// Keeps only the calls, for a program whose writes were undone.
    pub(super) fn into_calls(self) -> Self {
        Self { messages: Vec::new(), lines: Vec::new(), ..self }
    }

    /// Puts the messages into the replication stream.
    pub(super) fn tell_replicas(&self, kernel: &Kernel, caller: &mut Caller) {
        for Message { kind, channel, text, .. } in &self.messages {
            let command: &[u8] = if *kind == Kind::ShardChannel { b"SPUBLISH" } else { b"PUBLISH" };
            caller.tell_replicas(&kernel.feed, command, channel, text);
        }
    }

    /// Delivers everything, with the events before each message.
    pub(super) fn deliver(
        &self,
        kernel: &Kernel,
        caller: &Caller,
        locks: &mut ShardLocks<'_>,
        pace: Pace,
    ) {
        let mut work = WEIGHT_MAX;
        for Message { kind, channel, text, events } in &self.messages {
            deliver_events(locks, *events);
            match (kind, pace) {
                (Kind::ShardChannel, _) => {
                    kernel.pubsub.publish_to_shard(channel, text, None);
                }
                (_, Pace::AtOnce) => work -= kernel.pubsub.notify(channel, text, work),
                (_, Pace::InTurn) => publish(kernel, channel, text),
            }
        }
        let rest = (self.hidden > 0).then(|| {
            let note = format!("# {} calls more", self.hidden);
            monitors::line_of_program(caller, [note.as_bytes()].into_iter())
        });
        for line in self.shown.iter().chain(&rest) {
            kernel.tell_all(&Notice::Monitor(line[..].into()));
        }
        self.lines.iter().for_each(|(level, text)| log(kernel, *level, text));
    }
}

fn publish(kernel: &Kernel, channel: &[u8], message: &[u8]) {
    let pubsub = &kernel.pubsub;
    if pubsub.weight_of_patterns(channel, WEIGHT_MAX) > WEIGHT_MAX {
        pubsub.publish_in_steps(channel, message);
    } else {
        pubsub.publish(channel, message, None);
    }
}

/// Returns true if lines of this level are written now.
pub(super) fn logs(kernel: &Kernel, level: LogLevel) -> bool {
    kernel.log.writes(match level {
        LogLevel::Debug => tierce_config::LogLevel::Debug,
        LogLevel::Verbose => tierce_config::LogLevel::Verbose,
        LogLevel::Notice => tierce_config::LogLevel::Notice,
        LogLevel::Warning => tierce_config::LogLevel::Warning,
    })
}

pub(super) fn log(kernel: &Kernel, level: LogLevel, text: &[u8]) {
    let (log, text) = (&kernel.log, String::from_utf8_lossy(text));
    match level {
        LogLevel::Debug => log.debug(text),
        LogLevel::Verbose => log.verbose(text),
        LogLevel::Notice => log.notice(text),
        LogLevel::Warning => log.warning(text),
    }
}
