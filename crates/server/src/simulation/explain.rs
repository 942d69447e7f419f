//! Searches for a sequential order of calls that explains all replies.
//!
//! A call takes effect between its sending and its answer. So a call that was sent after another one's answer takes
//! effect after it, and the calls of one client take effect in their order.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use super::clients::Record;
use super::messages::is_of_subscriber;
use super::model::{During, Model};
use super::requests::Deed;

/// Maximum number of calls tried in the search; few runs need a thousand.
const STEPS_MAX: usize = 400_000;

/// Errors of calls that have done nothing.
const IN_VAIN: [&str; 2] = ["-BUSY ", "-TRYAGAIN "];

/// Error of an EXEC that has only ended the transaction.
const ABORTED: &str = "-EXECABORT ";

struct Search<'r> {
    /// Calls of each client.
    clients: Vec<Vec<&'r Record>>,
    /// States that were tried without success: the positions of the clients, and the keys.
    tried: HashSet<u64>,
    steps: usize,
    /// Calls of the longest order that was found.
    furthest: Vec<&'r Record>,
}

/// # Errors
/// If there is no such order.
pub(super) fn explain(records: &[Record]) -> Result<(), String> {
    let count = records.iter().map(|record| record.call.client + 1).max().unwrap_or(0);
    let mut clients = vec![Vec::new(); count];
    for record in records {
        if has_effect(record)? {
            clients[record.call.client].push(record);
        }
    }
    let mut search = Search { clients, tried: HashSet::new(), steps: 0, furthest: Vec::new() };
    if search.go_on(&mut vec![0; count], &Model::default(), &mut Vec::new()) {
        return Ok(());
    }
    let explained: String =
        search.furthest.iter().map(|record| format!("  {}\n", record.describe())).collect();
    let why = if search.steps > STEPS_MAX { "too many orders" } else { "no order" };
    Err(format!(
        "the replies are those of {why} of calls; this far they can be explained:\n{explained}"
    ))
}

/// Returns true if a call may have changed or shown data.
fn has_effect(record: &Record) -> Result<bool, String> {
    let Some(answer) = &record.answered else { return Ok(false) };
    let is_error = answer.reply.starts_with('-');
    match &record.call.deed {
        Deed::Kill => Ok(false),
        deed if is_of_subscriber(deed) => Ok(false),
        Deed::ScriptInVain(_) if is_error => Ok(false),
        Deed::ScriptInVain(_) => Err(format!("a script in vain has ended: {}", record.describe())),
        _ if is_error && IN_VAIN.iter().any(|start| answer.reply.starts_with(start)) => Ok(false),
        _ => Ok(true),
    }
}

impl<'r> Search<'r> {
    /// Returns true if the remaining calls can be explained.
    fn go_on(&mut self, at: &mut [usize], model: &Model, order: &mut Vec<&'r Record>) -> bool {
        self.steps += 1;
        if order.len() > self.furthest.len() {
            self.furthest.clone_from(order);
        }
        let mut next: Vec<&'r Record> = self
            .clients
            .iter()
            .zip(at.iter())
            .filter_map(|(calls, at)| calls.get(*at).copied())
            .collect();
        // The call that was answered first has probably taken effect first.
        next.sort_by_key(|record| record.answered_at());
        let Some(first) = next.first() else { return true };
        let mut hasher = DefaultHasher::new();
        (&*at, model).hash(&mut hasher);
        if self.steps > STEPS_MAX || !self.tried.insert(hasher.finish()) {
            return false;
        }
        let (before, by_ms) = (first.answered_at(), first.during().answered_ms);
        for record in next.into_iter().filter(|record| record.sent_at() < before) {
            let mut then = model.clone();
            let during: During = record.during();
            if record.reply().starts_with(ABORTED) {
                then.abort(record.call.client);
            } else {
                let reply = then.act(record.call.client, &record.call.deed, record.reply(), during);
                if reply.as_deref() != Some(record.reply()) {
                    continue;
                }
            }
            at[record.call.client] += 1;
            order.push(record);
            let is_explained = self.go_on(at, &then, order);
            order.pop();
            at[record.call.client] -= 1;
            if is_explained {
                return true;
            }
        }
        let expired: Vec<Model> = model.expired_by(by_ms).collect();
        expired.into_iter().any(|then| self.go_on(at, &then, order))
    }
}
