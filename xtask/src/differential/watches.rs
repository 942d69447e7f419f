//! Clients that watch keys while another one changes some: EXEC has to fail on both servers, or on neither.

use tierce_harness::Connection;

use super::run::{CONNECTIONS, DifferentialRun, Outcome, Side, WAITERS, differ};
use super::stream::{Call, DATABASES};

/// Maximum number of commands between WATCH and EXEC.
const CALLS_MAX: usize = 3;

/// Commands that concern their connection. They are skipped, so that the auditor's connection stays as it is.
const OF_CONNECTIONS: [&str; 5] = ["auth", "client", "hello", "reset", "select"];

/// Commands that may change a watched key on one server only; see `docs/differences.md`.
const CHANGES_THAT_DIFFER: [&str; 7] =
    ["XACK", "XCLAIM", "XAUTOCLAIM", "XREADGROUP", "XSETID", "XGROUP", "LTRIM"];

impl DifferentialRun {
    /// Most watched keys are arguments of the commands that follow.
    pub(super) fn watch(&mut self) -> Outcome {
        let db = self.random.below(DATABASES);
        self.audit_call(&format!("SELECT {db}"))?;
        let calls = self.calls_on_data();
        let arguments: Vec<&Vec<u8>> = calls.iter().flat_map(|call| &call[1..]).collect();
        let mut watched = Vec::new();
        for waiter in 0..WAITERS {
            let db = if self.random.one_in(5) { self.random.below(DATABASES) } else { db };
            let key = match arguments.len() {
                0 => b"k".to_vec(),
                len => arguments[self.random.below(len)].clone(),
            };
            for side in [&mut self.tested, &mut self.reference] {
                let connection = &mut side.waiters[waiter].connection;
                connection.check(&format!("SELECT {db}"), "+OK");
                assert_eq!(connection.call(&[&b"WATCH"[..], &key]).to_string(), "+OK");
            }
            watched.push((db, key));
        }
        self.audit_all(&calls)?;
        for (waiter, (db, key)) in watched.into_iter().enumerate() {
            let [tested, reference] = [&mut self.tested, &mut self.reference]
                .map(|side: &mut Side| exec(&mut side.waiters[waiter].connection));
            let is_documented = calls
                .iter()
                .any(|call| is_one_of(call, &CHANGES_THAT_DIFFER) && call.contains(&key));
            if tested != reference && !is_documented {
                let call = vec![b"WATCH".to_vec(), key, format!("(db {db})").into_bytes()];
                let mut before = self.history.of_keys_in(&call, CONNECTIONS, &[]);
                before.push("between WATCH and EXEC:".to_owned());
                before.extend(calls.iter().map(super::history::line));
                return differ(&call, tested.as_bytes(), reference.as_bytes(), before);
            }
        }
        self.history.add(CONNECTIONS, calls);
        Ok(())
    }

    fn calls_on_data(&mut self) -> Vec<Call> {
        let count = 1 + self.random.below(CALLS_MAX);
        let calls = (0..count).map(|_| self.stream.next_call());
        calls.filter(|call| !is_one_of(call, &OF_CONNECTIONS)).collect()
    }
}

fn is_one_of(call: &Call, names: &[&str]) -> bool {
    names.iter().any(|name| call[0].eq_ignore_ascii_case(name.as_bytes()))
}

/// Returns the final reply of EXEC.
fn exec(connection: &mut Connection) -> String {
    connection.check("MULTI", "+OK");
    connection.check("PING", "+QUEUED");
    connection.ask("EXEC").to_string()
}
