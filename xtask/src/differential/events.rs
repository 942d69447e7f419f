//! Comparison of the events that both servers publish for the same commands, in name and order.
//!
//! `expired` is left out: a key whose deadline has passed when it is set is removed at once here, and in Redis when a
//! command accesses it. Misses are left out, because Redis counts them twice for some commands. So is the creation
//! and deletion of consumers: Redis 7.0 only creates a consumer that reads if there is something to read.

use tierce_harness::{Connection, Server};

use super::history;
use super::run::{DifferentialRun, Outcome, Side, differ};
use super::stream::Call;

/// Classes of published events.
const CLASSES: &str = "Eg$lshztdn";
/// Channel of the message after all events.
const END: &str = "end-of-events";
/// Events that are left out.
const LEFT_OUT: [&str; 2] = ["xgroup-createconsumer", "xgroup-delconsumer"];

/// A subscriber to all events of a server.
pub(super) struct Listener(Connection);

impl Listener {
    pub(super) fn of(server: &Server) -> Self {
        server.connect().check(&format!("CONFIG SET notify-keyspace-events {CLASSES}"), "+OK");
        let mut connection = server.connect();
        connection.ask("PSUBSCRIBE __keyevent@*");
        connection.ask(&format!("SUBSCRIBE {END}"));
        Self(connection)
    }

    /// Returns the next event with its channel and its key; `None` at the end.
    fn next(&mut self) -> Option<String> {
        let message = self.0.reply();
        match message.items() {
            [_, _, channel, key] => {
                Some(format!("{} {}", channel.text(), key.bytes().escape_ascii()))
            }
            _ => None,
        }
    }
}

impl Side {
    /// Returns the events since the last call.
    fn events(&mut self) -> Vec<String> {
        self.auditor.check(&format!("PUBLISH {END} ."), ":1");
        let events = std::iter::from_fn(|| self.listener.next());
        events.filter(|event| !LEFT_OUT.iter().any(|name| event.contains(name))).collect()
    }
}

impl DifferentialRun {
    /// Discards the events of commands that are not compared.
    pub(super) fn skip_events(&mut self) {
        self.tested.events();
        self.reference.events();
    }

    /// Compares the events of a pipeline.
    pub(super) fn compare_events(&mut self, calls: &[Call]) -> Outcome {
        let (tested, reference) = (self.tested.events(), self.reference.events());
        let same =
            tested.iter().zip(&reference).take_while(|(ours, theirs)| ours == theirs).count();
        if same == tested.len().max(reference.len()) {
            return Ok(());
        }
        let show = |events: &[String]| events[same..].join(", ").into_bytes();
        let call: Call = vec![format!("(event {} of this pipeline)", same + 1).into_bytes()];
        let before = calls.iter().map(history::line).collect();
        differ(&call, &show(&tested), &show(&reference), before)
    }
}
