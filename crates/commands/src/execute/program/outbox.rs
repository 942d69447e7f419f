//! What a program does beyond keys: messages, lines of the log, and what clients of MONITOR see of its calls.
//!
//! It happens when the program has ended, behind the events of its changes. So nothing of a run is seen that was taken
//! back.

use tierce_lua::LogLevel;
use tierce_wire::resp::Args;

use crate::caller::Caller;
use crate::kernel::Kernel;
use crate::message::Notice;
use crate::monitors;
use crate::pubsub::Kind;

use super::super::WEIGHT_MAX;

/// What a program may have collected. One that collects more is ended.
const BYTES_MAX: usize = 64 << 20;

/// What is to happen, in order.
///
/// **Invariant:** it takes no more than the program may have collected, and one item: what comes when it is full is
/// dropped, since nothing of it will happen.
#[derive(Default)]
pub(super) struct Outbox {
    items: Vec<Item>,
    bytes: usize,
}

enum Item {
    Message {
        kind: Kind,
        channel: Vec<u8>,
        message: Vec<u8>,
    },
    Line {
        level: LogLevel,
        text: Vec<u8>,
    },
    /// A line for clients of MONITOR.
    Shown(Vec<u8>),
}

impl Item {
    fn len(&self) -> usize {
        size_of::<Self>()
            + match self {
                Self::Message { channel, message, .. } => channel.len() + message.len(),
                Self::Line { text, .. } => text.len(),
                Self::Shown(line) => line.len(),
            }
    }
}

impl Outbox {
    /// Whether it has collected more than it may.
    pub(super) fn is_full(&self) -> bool {
        self.bytes > BYTES_MAX
    }

    /// What it takes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    fn push(&mut self, item: Item) {
        if !self.is_full() {
            self.bytes += item.len();
            self.items.push(item);
        }
    }

    /// A message for the subscribers of a channel.
    pub(super) fn publish(&mut self, kind: Kind, channel: &[u8], message: &[u8]) {
        let (channel, message) = (channel.to_vec(), message.to_vec());
        self.push(Item::Message { kind, channel, message });
    }

    /// A line for the server's log.
    pub(super) fn log(&mut self, level: LogLevel, text: &[u8]) {
        self.push(Item::Line { level, text: text.to_vec() });
    }

    /// The call of the program itself, for clients of MONITOR.
    pub(super) fn show_call(&mut self, caller: &Caller, args: Args<'_>) {
        self.push(Item::Shown(monitors::line_of_client(caller, args)));
    }

    /// A call that the program makes.
    pub(super) fn show_inner(&mut self, caller: &Caller, args: Args<'_>) {
        self.push(Item::Shown(monitors::line_of_program(caller, args)));
    }

    /// Has all of it happen.
    pub(super) fn deliver(self, kernel: &Kernel, caller: &mut Caller) {
        for item in self.items {
            match item {
                Item::Message { kind: Kind::ShardChannel, channel, message } => {
                    caller.tell_replicas(&kernel.feed, b"SPUBLISH", &channel, &message);
                    kernel.pubsub.publish_to_shard(&channel, &message, None);
                }
                Item::Message { channel, message, .. } => {
                    caller.tell_replicas(&kernel.feed, b"PUBLISH", &channel, &message);
                    publish(kernel, &channel, &message);
                }
                Item::Line { level, text } => log(kernel, level, &text),
                Item::Shown(line) => kernel.tell_all(&Notice::Monitor(line.into())),
            }
        }
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

/// Whether lines of this level are written at present.
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
