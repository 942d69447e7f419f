//! Keyspace notifications: publishes events of keys, as `notify-keyspace-events` says.
//!
//! Events come here while the shards of their keys are locked, and are handed to the inboxes of workers without
//! waiting. So subscribers get the events of one key in the order of its changes, and what a client has changed
//! is published before it gets its reply. If there are so many patterns that matching them takes long
//! (`WORK_MAX`), events are published a little later, in the same order.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use tierce_keyspace::{EventBatch, EventClasses, EventSink, KeyEvent};

use crate::config::{DirectiveId, Events};
use crate::kernel::Kernel;
use crate::pubsub::PubSub;

/// Each class with its letter.
const CLASSES: [(char, EventClasses); 12] = [
    ('g', EventClasses::GENERIC),
    ('$', EventClasses::STRING),
    ('l', EventClasses::LIST),
    ('s', EventClasses::SET),
    ('h', EventClasses::HASH),
    ('z', EventClasses::SORTED_SET),
    ('x', EventClasses::EXPIRED),
    ('e', EventClasses::EVICTED),
    ('t', EventClasses::STREAM),
    ('d', EventClasses::MODULE),
    ('n', EventClasses::NEW),
    ('m', EventClasses::KEY_MISS),
];

/// Publishes to channels of keys.
const KEYSPACE: u8 = 1;
/// Publishes to channels of events.
const KEYEVENT: u8 = 2;

/// The most work that is done for the events of one command while their shards are locked, in patterns of usual length:
/// about a millisecond.
const WORK_MAX: usize = 10_000;

/// Publishes events.
struct Notifier {
    pubsub: Arc<PubSub>,
    /// To which channels.
    channels: AtomicU8,
}

impl Notifier {
    /// Adopts a setting, and returns the classes of events that it asks for.
    fn adopt(&self, events: Events) -> EventClasses {
        let bit = |letter, bit| if events.contains(letter) { bit } else { 0 };
        let channels = bit('K', KEYSPACE) | bit('E', KEYEVENT);
        self.channels.store(channels, Ordering::Relaxed);
        if channels == 0 {
            return EventClasses::NONE;
        }
        let wanted = CLASSES.iter().filter(|(letter, _)| events.contains(*letter));
        wanted.fold(EventClasses::NONE, |all, (_, class)| all | *class)
    }

    fn publish(&self, channels: u8, event: &KeyEvent<'_>, channel: &mut Vec<u8>, work: &mut usize) {
        let name = event.event.name().as_bytes();
        let mut publish = |kind: &str, of: &[u8], message: &[u8]| {
            channel.clear();
            channel.extend_from_slice(kind.as_bytes());
            channel.extend_from_slice(itoa::Buffer::new().format(event.db.get()).as_bytes());
            channel.extend_from_slice(b"__:");
            channel.extend_from_slice(of);
            *work -= self.pubsub.notify(channel, message, *work);
        };
        if channels & KEYSPACE != 0 {
            publish("__keyspace@", event.key, name);
        }
        if channels & KEYEVENT != 0 {
            publish("__keyevent@", name, event.key);
        }
    }
}

impl EventSink for Notifier {
    fn deliver(&self, events: &EventBatch<'_>) {
        let channels = self.channels.load(Ordering::Relaxed);
        let (mut channel, mut work) = (Vec::new(), WORK_MAX);
        // The setting may have changed since an event was collected.
        events.iter().for_each(|event| self.publish(channels, &event, &mut channel, &mut work));
    }
}

/// Publishes the events of a kernel's keys as its configuration says, now and later.
pub fn connect(kernel: &Kernel) {
    const EVENTS: DirectiveId = DirectiveId::of("notify-keyspace-events");
    let notifier =
        Arc::new(Notifier { pubsub: Arc::clone(&kernel.pubsub), channels: AtomicU8::new(0) });
    kernel.keyspace.set_event_sink(Arc::clone(&notifier));
    let keyspace = Arc::clone(&kernel.keyspace);
    let adopted = kernel.config.adopt([EVENTS], move |settings| {
        keyspace.set_event_classes(notifier.adopt(settings.events()));
        Ok(())
    });
    debug_assert!(adopted.is_ok(), "it refuses nothing");
}
