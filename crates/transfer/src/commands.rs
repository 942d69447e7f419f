//! Executes the commands of an append-only file, with the server's own command table.
//!
//! The clock is stopped before every deadline, because the commands ran while their keys still existed, and Redis
//! writes a DEL when a key has expired. Only relative times are added to the present time. Redis makes them
//! absolute before it writes them to a file.

use std::collections::HashMap;
use std::sync::Arc;

use tierce_commands::scripting::Code;
use tierce_commands::time_of_effect;
use tierce_engine::Engine;
use tierce_keyspace::{CodeKind, CodeSet, Keyspace};
use tierce_output::Output;
use tierce_wire::resp::OwnedArgs;

use super::error::TransferError;
use crate::caller::Caller;
use crate::clients::{Client, Origin};
use crate::clock::STOPPED_MS;
use crate::command::Flags;
use crate::config::{Config, LogLevel, Settings};
use crate::durability::Durability;
use crate::kernel::Kernel;
use crate::log::Log;
use crate::pipeline;

/// Reason why a command was not executed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The table has no such command, or it does not belong in a file of changes.
    Unknown,
    /// The command failed with this reply.
    Failed(String),
}

/// A kernel of its own, and the caller that executes commands with it.
pub(crate) struct Executor {
    kernel: Kernel,
    caller: Caller,
    output: Output,
}

impl Executor {
    pub(crate) fn new(keyspace: Arc<Keyspace>) -> Result<Self, TransferError> {
        let log = Log::open(None, LogLevel::Nothing).expect("nothing is opened");
        let config = Arc::new(Config::new(Settings::default()));
        let durability = Durability::without_log();
        let engine = Arc::new(Engine::new(config, keyspace, durability, log));
        let kernel = Kernel::new(engine, tierce_commands::table(), 1);
        let client = Client::new(Origin::default(), STOPPED_MS);
        let caller = Caller::new(Arc::new(client), true);
        Ok(Self { kernel, caller, output: Output::new() })
    }

    /// Selects the first database, in which the commands of each file begin.
    pub(super) fn begin_file(&mut self) {
        self.caller.select(tierce_keyspace::DbIndex::ZERO);
    }

    /// Returns a message about two of these libraries that cannot coexist because both have a function of the same
    /// name. `code` maps names to sources. The libraries of `former` have no such conflict among each other.
    pub(super) fn collision(&self, former: &CodeSet, code: &CodeSet) -> Option<String> {
        let is_former = |name: &[u8], source: &Arc<[u8]>| {
            former.get(CodeKind::Library, name).is_some_and(|it| Arc::ptr_eq(it, source))
        };
        let all = || code.of(CodeKind::Library);
        let added = all().filter(|(name, source)| !is_former(name, source));
        let kept = all().filter(|(name, source)| is_former(name, source));
        let mut owners = HashMap::new();
        for ((name, source), is_new) in added.map(|it| (it, true)).chain(kept.map(|it| (it, false)))
        {
            if !is_new && owners.is_empty() {
                break;
            }
            // A library that fails to load has no functions. The next start logs the failure.
            let libraries = &self.kernel.scripts.libraries;
            let loaded = libraries.load(&self.kernel, name, Arc::clone(source), Code::Accepted);
            for known in loaded.iter().flat_map(|library| &library.functions) {
                let function = known.function.name.to_ascii_lowercase();
                let function_shown = function.escape_ascii().to_string();
                let other = match is_new {
                    true => owners.insert(function, name),
                    false => owners.get(&function).copied(),
                };
                if let Some(other) = other {
                    let (name, other) = (name.escape_ascii(), other.escape_ascii());
                    return Some(format!(
                        "the libraries {name} and {other} both have a function {function_shown}"
                    ));
                }
            }
        }
        None
    }

    /// Executes one command.
    pub(crate) fn execute(&mut self, args: &[Vec<u8>]) -> Result<(), Refusal> {
        let mut owned = OwnedArgs::new();
        for arg in args {
            owned.push(arg).map_err(|error| Refusal::Failed(error.to_string()))?;
        }
        let args = owned.as_args();
        let command = match pipeline::resolve(&self.kernel, args) {
            Ok(command) => command,
            Err(refused) if refused.command.is_none() => return Err(Refusal::Unknown),
            Err(refused) => return Err(Refusal::Failed(refused.error.as_str().to_owned())),
        };
        if !command.spec.flags.contains(Flags::WRITE) && command.spec.name != "select" {
            return Err(Refusal::Unknown);
        }
        let now_ms = time_of_effect(command.spec.name);
        let begin = self.output.mark();
        self.kernel.run(command, &mut self.caller, args, &mut self.output, now_ms);
        let reply = self.output.buffer();
        let failed = reply.strip_prefix(b"-").map(|text| {
            Refusal::Failed(String::from_utf8_lossy(text.trim_ascii_end()).into_owned())
        });
        self.output.truncate(begin);
        failed.map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierce_collections::Stream;
    use tierce_collections::stream::StreamId;
    use tierce_keyspace::{Options, for_each_entry};

    fn execute(executor: &mut Executor, line: &str) -> Result<(), Refusal> {
        let args: Vec<Vec<u8>> = line.split(' ').map(|word| word.as_bytes().to_vec()).collect();
        executor.execute(&args)
    }

    #[test]
    fn writes_are_executed_and_nothing_else() {
        let keyspace = Arc::new(Keyspace::new(Options::default()).unwrap());
        let mut executor = Executor::new(Arc::clone(&keyspace)).unwrap();
        // The deadline is past, but the following commands were executed before it.
        for line in ["SET k 5 PXAT 1000", "INCR k", "PERSIST k", "SELECT 3", "SETEX t 100 v"] {
            assert_eq!(execute(&mut executor, line), Ok(()), "{line}");
        }
        for line in ["GET k", "NOSUCH l 1", "SHUTDOWN", "CONFIG SET maxmemory 1", "NO"] {
            assert_eq!(execute(&mut executor, line), Err(Refusal::Unknown), "{line}");
        }
        let refused = execute(&mut executor, "RENAME absent b");
        assert_eq!(refused, Err(Refusal::Failed("ERR no such key".to_owned())));
        let db = keyspace.db_index(0).unwrap();
        let mut values = Vec::new();
        for_each_entry(&mut keyspace.locks(), db, 2000, |entry| {
            values.push(entry.string().unwrap().to_vec());
        });
        assert_eq!(values, [b"6"]);
        assert_eq!(keyspace.len(keyspace.db_index(3).unwrap()), 1);
    }

    #[test]
    fn deliveries_keep_their_time_though_it_stands_still() {
        let keyspace = Arc::new(Keyspace::new(Options::default()).unwrap());
        let mut executor = Executor::new(Arc::clone(&keyspace)).unwrap();
        for line in [
            "XADD s 1-1 f v",
            "XGROUP CREATE s g 0",
            "XCLAIM s g ann 0 1-1 TIME 5000 RETRYCOUNT 2 FORCE JUSTID LASTID 1-1",
        ] {
            assert_eq!(execute(&mut executor, line), Ok(()), "{line}");
        }
        let key = keyspace.key(b"s");
        let mut locks = keyspace.locks();
        let mut db = locks.db(tierce_keyspace::DbIndex::ZERO, key.hash(), STOPPED_MS);
        let stream = db.collection::<Stream>(key).unwrap().expect("a stream");
        let group = stream.group(b"g").expect("a group");
        let pending = group.pending_entry(StreamId::new(1, 1)).expect("a pending entry");
        assert_eq!((pending.delivered_ms, pending.deliveries), (5000, 2));
    }
}
