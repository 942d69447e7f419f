//! The table by `tierce-client`: what an application pays that uses it, and not the least that a
//! client can do, which is what the load generator's engine costs.
//!
//! As in the original, asynchronous clients are as many threads, which share a few connections; each
//! waits when the window of its connection is full.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use tierce_client::pedrokv::{Client, SyncClient};
use tierce_client::{Config, Error as ClientError};

use super::{KEY_PREFIX, Manner, Outcome, PedroKvArgs, Work};
use crate::digits::{self, DIGITS_LEN};
use crate::distribution::{Distribution, KeyPicker};
use crate::error::Error;
use crate::random::Random;
use crate::target::Target;
use crate::template::Request;

const KEY_LEN: usize = KEY_PREFIX.len() + DIGITS_LEN;

/// A run whose last replies take longer has failed.
const FINISH_MAX: Duration = Duration::from_secs(60);

/// The first failure of a run.
#[derive(Clone, Default)]
struct Failure {
    is_there: Arc<AtomicBool>,
    text: Arc<Mutex<Option<String>>>,
}

impl Failure {
    fn note<T>(&self, result: Result<T, ClientError>) {
        if let Err(error) = result
            && !self.is_there.swap(true, Relaxed)
        {
            *self.text.lock().expect("no thread panics while it holds the lock") =
                Some(error.to_string());
        }
    }
}

/// One client's part of the work.
struct Part<'a> {
    args: &'a PedroKvArgs,
    work: Work,
    /// Operations of all clients before it, and its own.
    first: u64,
    count: u64,
    failure: Failure,
}

/// Has `clients` do so many operations together.
pub(super) fn load(
    args: &PedroKvArgs,
    target: &Target,
    manner: Manner,
    work: Work,
    clients: usize,
    operations: u64,
) -> Result<Outcome, Error> {
    let failure = Failure::default();
    let parts = (0..clients as u64).map(|index| {
        let begin = |index| operations * index / clients as u64;
        let (first, count) = (begin(index), begin(index + 1) - begin(index));
        Part { args, work, first, count, failure: failure.clone() }
    });
    let address = target.address.to_string();
    let (cpu_before, begun) = (cpu_time(), Instant::now());
    match manner {
        Manner::Asynchronous => {
            let connections = connect(&address, args, clients)?;
            thread::scope(|scope| {
                for (index, part) in parts.enumerate() {
                    let client = &connections[index % connections.len()];
                    scope.spawn(move || part.run_asynchronously(client));
                }
            });
            for client in &connections {
                if !client.finish(FINISH_MAX) {
                    return Err(Error::Stalled {
                        seconds: FINISH_MAX.as_secs(),
                        outstanding: client.outstanding(),
                    });
                }
            }
        }
        Manner::Synchronous => thread::scope(|scope| {
            for part in parts {
                let mut client = SyncClient::new(address.as_str(), Config::default());
                scope.spawn(move || part.run_synchronously(&mut client));
            }
        }),
    }
    let first_error = failure.text.lock().expect("no thread panics while it holds the lock").take();
    let own_cpu = cpu_time().saturating_sub(cpu_before);
    Ok(Outcome { elapsed: begun.elapsed(), own_cpu, first_error })
}

fn connect(address: &str, args: &PedroKvArgs, clients: usize) -> Result<Vec<Client>, Error> {
    let config = Config { max_inflight: args.window as usize, ..Config::default() };
    let count = clients.min(args.connections as usize);
    let client = |_| Client::connect(address, config.clone());
    let connected = (0..count).map(client).collect::<Result<_, _>>();
    connected.map_err(|error| Error::Connect {
        address: address.to_owned(),
        source: std::io::Error::other(error),
    })
}

impl Part<'_> {
    fn run_asynchronously(self, client: &Client) {
        let value = self.value();
        self.each_key(|key| match self.work {
            Work::Write => {
                let failure = self.failure.clone();
                client.put_with(key, &value, move |stored| failure.note(stored));
            }
            Work::Read => {
                let failure = self.failure.clone();
                client.get_with(key, move |found| failure.note(found));
            }
        });
    }

    fn run_synchronously(self, client: &mut SyncClient) {
        let value = self.value();
        self.each_key(|key| match self.work {
            Work::Write => self.failure.note(client.put(key, &value)),
            Work::Read => self.failure.note(client.get(key)),
        });
    }

    fn each_key(&self, mut act: impl FnMut(&[u8])) {
        let shape = match self.work {
            Work::Write => Distribution::Sequential,
            Work::Read => Distribution::Uniform,
        };
        let mut picker = KeyPicker::new(shape, self.args.records, self.first);
        picker.seek(self.first);
        let mut key = [0; KEY_LEN];
        key[..KEY_PREFIX.len()].copy_from_slice(KEY_PREFIX.as_bytes());
        for _ in 0..self.count {
            if self.failure.is_there.load(Relaxed) {
                return;
            }
            if let Some(digits) = key.last_chunk_mut() {
                digits::write(digits, picker.key());
            }
            act(&key);
        }
    }

    fn value(&self) -> Vec<u8> {
        let mut value = Request::default();
        value.data(self.args.data_size as usize, &mut Random::new(self.first));
        value.bytes
    }
}

/// CPU time of this process, of threads that have ended, too.
fn cpu_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap_or_default()
}
