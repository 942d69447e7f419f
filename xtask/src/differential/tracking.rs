//! Clients that track keys while others change them: both servers have to send the same invalidations to each client.

use std::collections::BTreeSet;

use tierce_harness::{Connection, Reply, words};

use super::messages::SUBSCRIBERS;
use super::run::{CONNECTIONS, DifferentialRun, Outcome, Side, WAITERS, differ};

/// Number of steps of one scenario.
const STEPS: usize = 25;

/// Name of each client, and the text that listeners get back.
const MARK: &str = "mark";

const KEYS: &[&str] = &["t:1", "t:2", "t:12", "u:1", "v"];
const PREFIXES: &[&str] = &["", "t:", "t:1", "u", "v", "w"];

/// Commands of clients that track keys.
const BY_TRACKERS: &[&str] = &[
    "CLIENT TRACKING ON",
    "CLIENT TRACKING ON NOLOOP",
    "CLIENT TRACKING ON OPTIN",
    "CLIENT TRACKING ON OPTOUT NOLOOP",
    "CLIENT TRACKING ON BCAST",
    "CLIENT TRACKING ON BCAST PREFIX {prefix}",
    "CLIENT TRACKING ON BCAST NOLOOP PREFIX {prefix} PREFIX {prefix}",
    "CLIENT TRACKING ON PREFIX {prefix}",
    "CLIENT TRACKING ON OPTIN OPTOUT",
    "CLIENT TRACKING OFF",
    "CLIENT TRACKING OFF",
    "CLIENT CACHING YES",
    "CLIENT CACHING NO",
    "CLIENT TRACKINGINFO",
    "GET {key}",
    "GET {key}",
    "GET {key}",
    "MGET {key} {key} {key}",
    "EXISTS {key} {key}",
    "STRLEN {key}",
    "OBJECT ENCODING {key}",
    "TYPE {key}",
    "SET {key} own",
];

/// Commands of clients that track keys for another client to be told.
const WITH_REDIRECT: &[&str] = &[
    "CLIENT TRACKING ON REDIRECT {listener}",
    "CLIENT TRACKING ON BCAST REDIRECT {listener}",
    "CLIENT TRACKING ON OPTOUT REDIRECT {listener}",
    "CLIENT GETREDIR",
];

/// Commands of other clients.
const BY_OTHERS: &[&str] = &[
    "SET {key} value",
    "SET {key} value",
    "SET {key} value NX",
    "APPEND {key} more",
    "DEL {key} {key}",
    "GETDEL {key}",
    "MSET {key} 1 {key} 2 {key} 3",
    "INCR {key}",
    "EXPIRE {key} 1000",
    "PERSIST {key}",
    "GETEX {key} EX 1000",
    "RENAME {key} {key}",
    "COPY {key} {key}",
    "GET {key}",
];

/// Commands that tell all clients about all keys. Redis encodes that message in the protocol version of the tracking
/// connection. The connection that is told may have another version.
const WITHOUT_REDIRECT: &[&str] = &["FLUSHDB", "FLUSHALL"];

impl DifferentialRun {
    /// The clients of RESP3 track, and those of RESP2 listen for them. After each step, all messages are compared.
    pub(super) fn track_keys(&mut self) -> Outcome {
        self.audit_call("SELECT 0")?;
        // Forgets the keys read in earlier scenarios: SWAPDB may have come in between, and differs.
        for key in KEYS {
            self.audit_call(&format!("SET {key} value"))?;
        }
        let ids = self.begin_to_listen();
        let redirects = self.random.one_in(2);
        for _ in 0..STEPS {
            let actor = self.random.one_in(2).then(|| 1 + 2 * self.random.below(SUBSCRIBERS / 2));
            let more = match (actor, redirects) {
                (Some(_), true) => WITH_REDIRECT,
                (None, false) => WITHOUT_REDIRECT,
                _ => &[],
            };
            let templates = if actor.is_some() { BY_TRACKERS } else { BY_OTHERS };
            let all: Vec<&&str> = templates.iter().chain(more).collect();
            let template = *self.random.pick(&all);
            let listener = 2 * self.random.below(SUBSCRIBERS / 2);
            let line = self.fill_in_keys(template);
            let call = words(&line).into_iter().map(String::into_bytes).collect::<Vec<_>>();
            let number = actor.map_or(CONNECTIONS, |n| CONNECTIONS + 1 + WAITERS + n);
            self.history.add(number, vec![call.clone()]);
            let sides = [(&mut self.tested, &ids[0]), (&mut self.reference, &ids[1])];
            let [tested, reference] = sides.map(|(side, ids)| {
                let line = line.replace("{listener}", &ids[listener].to_string());
                let mut shown = Vec::new();
                match actor {
                    Some(n) => side.subscribers[n].request(&words(&line)),
                    None => shown.push(side.auditor.ask(&line).to_string()),
                }
                shown.extend(
                    told(side).into_iter().map(|all| all.into_iter().collect::<Vec<_>>().join(" ")),
                );
                let shown = shown.join("\n");
                if !line.starts_with("CLIENT") {
                    return shown;
                }
                // The ids of clients differ.
                ids.iter().fold(shown, |shown, id| shown.replace(&format!(":{id}"), ":id"))
            });
            if tested != reference {
                return differ(&call, tested.as_bytes(), reference.as_bytes(), self.history.last());
            }
        }
        self.end_subscriptions();
        Ok(())
    }

    /// Returns the ids of all connections to both servers.
    fn begin_to_listen(&mut self) -> [Vec<i64>; 2] {
        [&mut self.tested, &mut self.reference].map(|side| {
            let mut ids = Vec::new();
            for (n, c) in side.subscribers.iter_mut().enumerate() {
                ids.push(c.ask("CLIENT ID").int());
                match n % 2 {
                    0 => _ = c.ask("SUBSCRIBE __redis__:invalidate"),
                    _ => c.check(&format!("CLIENT SETNAME {MARK}"), "+OK"),
                }
            }
            ids
        })
    }

    fn fill_in_keys(&mut self, template: &str) -> String {
        let mut line = template.to_owned();
        for (name, choices) in [("{key}", KEYS), ("{prefix}", PREFIXES)] {
            while line.contains(name) {
                let choice = match self.random.pick(choices) {
                    "" => "''",
                    choice => choice,
                };
                line = line.replacen(name, choice, 1);
            }
        }
        line
    }
}

/// Returns the messages of each client without order: keys that change together have a different order on each
/// server. A connection that redirects does so at its next turn, so all of them are asked twice.
fn told(side: &mut Side) -> Vec<BTreeSet<String>> {
    let mut all = vec![BTreeSet::new(); side.subscribers.len()];
    for _ in 0..2 {
        for (n, c) in side.subscribers.iter_mut().enumerate() {
            match n % 2 {
                0 => c.request(&["PING", MARK]),
                // CLIENT CACHING applies until the next command other than CLIENT.
                _ => c.request(&["CLIENT", "GETNAME"]),
            }
            all[n].extend(received(c));
        }
    }
    all
}

fn received(c: &mut Connection) -> Vec<String> {
    let mark = Reply::Bulk(MARK.into());
    let mut shown = Vec::new();
    loop {
        let reply = c.reply();
        match &reply {
            Reply::Bulk(_) if reply == mark => return shown,
            Reply::Array(parts) if parts.len() == 2 && parts[1] == mark => return shown,
            Reply::Push(parts) | Reply::Array(parts) if is_invalidation(parts) => {
                match &parts[parts.len() - 1] {
                    Reply::Array(keys) => {
                        shown.extend(keys.iter().map(|key| format!("invalidate {key}")));
                    }
                    other => shown.push(format!("invalidate {other}")),
                }
            }
            _ => shown.push(reply.to_string()),
        }
    }
}

fn is_invalidation(parts: &[Reply]) -> bool {
    let is = |at: usize, word: &str| parts.get(at) == Some(&Reply::Bulk(word.into()));
    is(0, "invalidate") || (is(0, "message") && is(1, "__redis__:invalidate"))
}
