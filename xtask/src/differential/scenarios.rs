//! Scenarios: comparisons that a pipeline cannot make. They need the reply of one server for the command to the
//! other, or they need time.

use std::time::Duration;

use tierce_harness::{Random, Reply, encode, wait_until};

use super::comparison::Comparison;
use super::run::{CONNECTIONS, DifferentialRun, Outcome, Side, differ};
use super::stream::{Call, DATABASES};

/// Time to wait for a reply before checking if the client is blocked.
const LOOK: Duration = Duration::from_millis(1);
/// Maximum number of keys in a scenario.
const KEYS_MAX: usize = 5;

/// Default sizes up to which collections are compact.
const USUAL_THRESHOLDS: [&str; 5] = [
    "hash-max-listpack-entries 512",
    "hash-max-listpack-value 64",
    "zset-max-listpack-entries 128",
    "zset-max-listpack-value 64",
    "set-max-intset-entries 512",
];

#[derive(Clone, Copy)]
pub(super) enum Scenario {
    /// Each server restores the dumps of the other one at the same keys.
    Exchange,
    /// Keys expire.
    Expiry,
    /// Sorted sets are sorted by other keys.
    Sort,
    /// One server pops random members, and the other one then removes them.
    Pop,
    /// Clients subscribe, and others publish.
    Messages,
    /// Clients wait for keys, until others change them or the wait is cancelled.
    Wait,
    /// Clients watch keys, and others change some.
    Watch,
    /// Clients track keys, and others change some.
    Track,
}

impl Scenario {
    pub(super) fn random(random: &mut Random) -> Self {
        match random.below(16) {
            0 | 1 => Self::Exchange,
            2 => Self::Expiry,
            3 => Self::Pop,
            4 => Self::Sort,
            5 => Self::Messages,
            6..=9 => Self::Wait,
            10 => Self::Track,
            _ => Self::Watch,
        }
    }
}

impl DifferentialRun {
    pub(super) fn play(&mut self, scenario: Scenario) -> Outcome {
        match scenario {
            Scenario::Messages => self.send_messages(),
            Scenario::Wait => self.wait(),
            Scenario::Watch => self.watch(),
            Scenario::Track => self.track_keys(),
            Scenario::Exchange => self.exchange(),
            Scenario::Expiry => self.expire(),
            Scenario::Pop => self.pop(),
            Scenario::Sort => self.sort(),
        }
    }

    /// Selects a database for the auditor and returns some of its keys.
    fn some_keys(&mut self) -> Outcome<Vec<Vec<u8>>> {
        let db = self.random.below(DATABASES);
        self.audit_call(&format!("SELECT {db}"))?;
        let keys = self.audit_call("KEYS *")?;
        let mut keys: Vec<_> = keys.items().iter().map(|key| key.bytes().to_vec()).collect();
        // The order of KEYS differs from run to run.
        keys.sort();
        let count = (1 + self.random.below(KEYS_MAX)).min(keys.len());
        let mut taken = Vec::new();
        for _ in 0..count {
            taken.push(keys.swap_remove(self.random.below(keys.len())));
        }
        Ok(taken)
    }

    /// Copies values in both directions, with their deadlines.
    ///
    /// The encoding of a restored value depends on its size and on the current thresholds and, in Redis, on its
    /// earlier encoding. With the default thresholds both servers agree.
    fn exchange(&mut self) -> Outcome {
        for threshold in USUAL_THRESHOLDS {
            let call: Call =
                format!("CONFIG SET {threshold}").split(' ').map(|word| word.into()).collect();
            self.audit_all(std::slice::from_ref(&call))?;
            self.history.add(CONNECTIONS, vec![call]);
        }
        let keys = self.some_keys()?;
        for key in &keys {
            let dump = |side: &mut Side| {
                let payload = side.auditor.call(&[&b"DUMP"[..], key]);
                let deadline = side.auditor.call(&[&b"PEXPIRETIME"[..], key]).int().max(0);
                (payload.bytes().to_vec(), deadline.to_string().into_bytes())
            };
            let (ours, theirs) = (dump(&mut self.tested), dump(&mut self.reference));
            let restore = |(payload, deadline): &(Vec<u8>, Vec<u8>)| {
                let words: [&[u8]; 6] = [b"RESTORE", key, deadline, payload, b"REPLACE", b"ABSTTL"];
                words.map(<[u8]>::to_vec).to_vec()
            };
            let (into_tested, into_reference) = (restore(&theirs), restore(&ours));
            let tested = self.tested.auditor.call(&into_tested).to_string();
            let reference = self.reference.auditor.call(&into_reference).to_string();
            if tested != "+OK" || reference != "+OK" {
                let before = self.history.of_keys_in(&into_tested, CONNECTIONS, &[]);
                return differ(&into_reference, tested.as_bytes(), reference.as_bytes(), before);
            }
            self.history.add(CONNECTIONS, vec![into_tested]);
        }
        self.audit_keys(&keys)?;
        self.drop_streams(&keys)
    }

    /// Deletes restored streams. They are equal, but their blocks are those of the other server without the deleted
    /// entries, so approximate trimming would remove different entries.
    fn drop_streams(&mut self, keys: &[Vec<u8>]) -> Outcome {
        let types: Vec<Call> = keys.iter().map(|key| vec![b"TYPE".to_vec(), key.clone()]).collect();
        let types = self.audit_all(&types)?;
        let streams = keys.iter().zip(types).filter(|(_, kind)| kind.text() == "stream");
        let drops: Vec<Call> = streams.map(|(key, _)| vec![b"DEL".to_vec(), key.clone()]).collect();
        self.audit_all(&drops).map(drop)
    }

    /// Lets keys expire. Both servers then no longer count them.
    fn expire(&mut self) -> Outcome {
        let keys = self.some_keys()?;
        let words = |words: [&[u8]; 3]| words.map(<[u8]>::to_vec).to_vec();
        let calls: Vec<Call> = keys.iter().map(|key| words([b"PEXPIRE", key, b"1"])).collect();
        self.audit_all(&calls)?;
        self.history.add(CONNECTIONS, calls);
        for key in &keys {
            for side in [&mut self.tested, &mut self.reference] {
                wait_until("a key expires", || {
                    side.auditor.call(&[&b"EXISTS"[..], key]) == Reply::Int(0)
                });
            }
        }
        self.audit_call("DBSIZE")?;
        self.audit_keys(&keys)
    }

    /// Sorts copies of sorted sets, because Redis changes the encoding of a sorted set that it has sorted.
    fn sort(&mut self) -> Outcome {
        for key in self.some_keys()? {
            let line = |line: &str| -> Call {
                let words = line.split(' ').map(|word| match word {
                    "KEY" => key.clone(),
                    word => word.as_bytes().to_vec(),
                });
                words.collect()
            };
            if self.audit_all(&[line("TYPE KEY")])?[0].text() != "zset" {
                continue;
            }
            let calls = [
                "COPY KEY copy REPLACE",
                "SORT copy",
                "SORT copy DESC LIMIT 1 4",
                "SORT copy BY nosort",
                "SORT copy BY nosort DESC LIMIT 2 5 GET # GET k:*",
                // Not BY: equal elements come in the order of Redis' table.
                "SORT_RO copy ALPHA DESC GET k:*->f1",
                "SORT copy ALPHA STORE copy",
                "LRANGE copy 0 -1",
                "DEL copy",
            ];
            self.audit_all(&calls.map(line))?;
        }
        Ok(())
    }

    /// Pops members of sets by SPOP that leaves some.
    fn pop(&mut self) -> Outcome {
        let keys = self.some_keys()?;
        let types: Vec<Call> = keys.iter().map(|key| vec![b"TYPE".to_vec(), key.clone()]).collect();
        let types = self.audit_all(&types)?;
        let sets = keys.iter().zip(types).filter(|(_, kind)| kind.text() == "set");
        let sets: Vec<Vec<u8>> = sets.map(|(key, _)| key.clone()).collect();
        for key in &sets {
            let count = 1 + self.random.below(10);
            let size = self.audit_all(&[vec![b"SCARD".to_vec(), key.clone()]])?[0].int();
            let pop = vec![b"SPOP".to_vec(), key.clone(), count.to_string().into_bytes()];
            let popped = self.tested.auditor.call(&pop);
            let mut remove = vec![b"SREM".to_vec(), key.clone()];
            remove.extend(popped.items().iter().map(|member| member.bytes().to_vec()));
            self.history.add(CONNECTIONS, vec![remove.clone()]);
            let removed = self.reference.auditor.call(&remove);
            if removed != Reply::Int(size.min(count as i64))
                || removed.int() as usize != popped.items().len()
            {
                let before = self.history.of_keys_in(&pop, CONNECTIONS, &[]);
                let (tested, reference) = (popped.to_string(), removed.to_string());
                return differ(&pop, tested.as_bytes(), reference.as_bytes(), before);
            }
        }
        self.audit_keys(&sets)
    }

    /// Blocks clients, runs commands that may serve them, and cancels the remaining waits.
    fn wait(&mut self) -> Outcome {
        let db = self.random.below(DATABASES);
        let count = 1 + self.random.below(self.tested.waiters.len());
        let mut waiting = Vec::new();
        for n in 0..count {
            let call = self.stream.waiting_call();
            let select = vec![b"SELECT".to_vec(), db.to_string().into_bytes()];
            let request = [encode(&select), encode(&call)].concat();
            for side in [&mut self.tested, &mut self.reference] {
                side.waiters[n].connection.send(&request);
                side.waiters[n].connection.expect("+OK");
                side.settle(n);
            }
            self.history.add(CONNECTIONS + 1 + n, vec![select, call.clone()]);
            waiting.push(call);
        }
        let calls = self.stream.calls_for_waiting_clients(db, &waiting);
        self.pipeline(calls)?;
        for (n, call) in waiting.iter().enumerate() {
            let how = self.random.pick(&["TIMEOUT", "ERROR"]);
            self.call_off(n, how)?;
            let tested = self.tested.waiters[n].connection.reply_bytes();
            let reference = self.reference.waiters[n].connection.reply_bytes();
            // In this case 7.2 replies as if the command were executed again.
            let has_gone = (reference.starts_with(b"-UNBLOCKED the stream key")
                || reference.starts_with(b"-NOGROUP the consumer group this client"))
                && (tested.starts_with(b"-NOGROUP") || tested.starts_with(b"-WRONGTYPE"));
            if !has_gone && !Comparison::of(call).accepts(call, &tested, &reference) {
                let before = self.history.of_keys_in(call, CONNECTIONS + 1 + n, &[]);
                return differ(call, &tested, &reference, before);
            }
        }
        Ok(())
    }

    /// Calls CLIENT UNBLOCK, whose reply shows if the client was still blocked.
    fn call_off(&mut self, n: usize, how: &str) -> Outcome {
        let unblock = |side: &mut Side| {
            let id = side.waiters[n].id;
            side.auditor.ask(&format!("CLIENT UNBLOCK {id} {how}"))
        };
        let (tested, reference) = (unblock(&mut self.tested), unblock(&mut self.reference));
        if tested == reference {
            return Ok(());
        }
        let call = ["CLIENT", "UNBLOCK", &n.to_string(), how].map(|word| word.as_bytes().to_vec());
        let before = self.history.last();
        differ(
            &call.to_vec(),
            tested.to_string().as_bytes(),
            reference.to_string().as_bytes(),
            before,
        )
    }
}

impl Side {
    /// Waits until the request of this waiter was executed, so that it is blocked or has its reply.
    fn settle(&mut self, n: usize) {
        let Self { auditor, waiters, .. } = self;
        let waiter = &mut waiters[n];
        wait_until("a client waits", || {
            let shown = auditor.ask(&format!("CLIENT LIST ID {}", waiter.id));
            shown.text().contains(" flags=b") || !waiter.connection.is_silent_for(LOOK)
        });
    }
}
