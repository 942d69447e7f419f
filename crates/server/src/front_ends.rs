//! What the protocols other than RESP have in common: the stages of a request, prefetching a batch,
//! writing a value.

use std::borrow::Cow;

use tierce_keyspace::ShardLocks;
use tierce_keyspace::{Busy, DbIndex, Key, KeyHash, StrView};
use tierce_net::{Flow, Io};
use tierce_output::Output;

use crate::acl::{self, Denial, Permission, Rights};
use crate::clients::Client;
use crate::command::{Access, Operation, Operations};
use crate::commands::barrier::ReplyBarrier;
use crate::commands::replica_level::{HeldReplies, ReplicaLevel};
use crate::fault::Fault;
use crate::fetch::{PendingRead, add_key, is_enough};
use crate::gates::{Barred, Gates};
use crate::kernel::Kernel;
use crate::meter::{Meter, Timing, Words};
use crate::monitors;
use crate::pipeline::Guard;
use crate::slowlog::shorten_words;
use crate::stats::{Counters, Stat};
use crate::suspend::suspend_for_replicas;
use crate::waiting::{Deferral, Obstacle, Waits};

/// A request of a protocol beside RESP, as the stages know it.
pub trait Request {
    /// What it does to the data; `None` if it has nothing to do with them.
    fn access(&self) -> Option<Access>;

    /// Calls `each` with the keys whose values it looks at.
    fn for_each_key_read(&self, each: impl FnMut(&[u8]));

    /// What its user needs the right to; nothing for what every user may do.
    fn equivalent(&self) -> Option<Equivalent>;

    /// Calls `each` with the keys that it does that to.
    fn for_each_key(&self, each: impl FnMut(&[u8]));

    /// What it is accounted for as, if anything.
    fn operation(&self, operations: Operations) -> Option<Operation>;

    /// Its words, as monitors and the slow log show them. Empty for what they must not show.
    fn words(&self) -> Vec<Cow<'_, [u8]>>;
}

/// The command of RESP that a request stands for, and what that does with keys. Who may use the one on these keys may
/// use the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Equivalent {
    /// The name of the command.
    pub command: &'static str,
    /// What is done with each key.
    pub permission: Permission,
}

impl Equivalent {
    pub const GET: Self = Self::new("get", Permission::READ);
    pub const SET: Self = Self::new("set", Permission::WRITE);
    pub const DEL: Self = Self::new("del", Permission::WRITE);

    pub const fn new(command: &'static str, permission: Permission) -> Self {
        Self { command, permission }
    }
}

/// What runs requests.
pub trait Runner<'a, 'k> {
    type Request: Request;

    /// The stages, and what they lead through.
    fn parts(&mut self) -> (&mut Stages<'k>, &mut Guard<'a, 'k>, &mut Waits, &Client);

    /// Whether the client may use the data. To one that may not, no gate is closed.
    fn may(&mut self) -> bool;

    /// What the client may do with them.
    fn rights(&self) -> &Rights;

    /// Whether a request says who the client is. Such a request is the last one of its batch.
    fn authenticates(&mut self, _request: &Self::Request) -> bool {
        false
    }

    /// Until when a request that says who the client is waits, if it has to.
    fn attempt_waits(&mut self, _request: &Self::Request) -> Option<i64> {
        None
    }

    /// The key whose shard the request needs first, if it is about keys.
    fn first_key(&self, request: &Self::Request) -> Option<KeyHash>;

    /// Runs a request, and replies.
    ///
    /// # Errors
    /// [`Busy`] if it could not run, and has done and replied nothing.
    fn run(&mut self, request: &Self::Request) -> Result<(), Busy>;

    /// Whether the connection ends behind the last request.
    fn closing(&self) -> bool;
}

/// What came of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It ran, and replied.
    Done,
    /// Its reply is an error.
    Failed,
    /// The gates refused it.
    Refused,
    /// It was refused as it stands, and counts as nothing.
    Malformed,
}

/// Why a batch stops before a request.
pub enum Stop {
    /// The request has to wait.
    Held(Deferral),
    /// It needs values that are on disk.
    Values(Vec<PendingRead>),
}

impl From<Busy> for Stop {
    fn from(busy: Busy) -> Self {
        Self::Held(busy.into())
    }
}

/// What the requests of a batch pass, one after the other: the gates, the disk, a lock, the run, the accounts.
pub struct Stages<'k> {
    pub kernel: &'k Kernel,
    counters: &'k Counters,
    operations: Operations,
    pub gates: Gates,
    meter: Meter<'k>,
    /// The database that the protocol sees.
    pub db: DbIndex,
    pub now_ms: i64,
    /// What keeps the request that runs from changing data.
    pub fault: Option<Fault>,
    /// What has come of the request that runs.
    outcome: Outcome,
}

impl<'k> Stages<'k> {
    /// For a batch of a worker that counts in `counters`. In line, so that it is made where it stays.
    #[inline(always)]
    pub fn new(
        kernel: &'k Kernel,
        counters: &'k Counters,
        operations: Operations,
        db: DbIndex,
        now_ms: i64,
    ) -> Self {
        Self {
            kernel,
            counters,
            operations,
            gates: Gates::read_for_all(kernel, now_ms),
            meter: Meter::start(kernel, counters),
            db,
            now_ms,
            fault: None,
            outcome: Outcome::Done,
        }
    }

    /// The clock as it was read last: when the batch began, before its first request has run.
    #[inline]
    pub fn read_nanos(&self) -> u64 {
        self.meter.read_nanos()
    }

    /// Notes that the reply to the request that runs is an error of this kind.
    #[cold]
    pub fn note_error(&mut self, outcome: Outcome, kind: &str) {
        self.outcome = outcome;
        self.counters.add(Stat::Errors, 1);
        self.kernel.errors.count(kind);
    }

    /// Counts a request that is refused for its size.
    #[cold]
    pub fn note_too_large(&self) {
        self.counters.add(Stat::RequestSizeErrors, 1);
    }

    /// Notes that the request that runs is none.
    #[cold]
    pub fn note_malformed(&mut self) {
        self.outcome = Outcome::Malformed;
    }

    /// Whether a request with this access to the data may run now; if not, what it has to wait for. What must
    /// not be done at all is in [`fault`](Self::fault) then. To be asked while some gate is closed.
    #[cold]
    pub fn admit(
        &mut self,
        guard: &mut Guard<'_, '_>,
        access: Option<Access>,
    ) -> Result<(), Deferral> {
        match admit(&self.gates, self.kernel, guard, access) {
            Ok(()) => self.fault = None,
            Err(Barred::Refused(fault)) => self.fault = Some(fault),
            Err(Barred::Held(deferral)) => return Err(deferral),
        }
        Ok(())
    }

    /// The values on disk that a request needs, and if there are any, then also those of the requests behind it,
    /// so that the disk gets all of them at once.
    ///
    /// # Errors
    /// [`Busy`] if that is not known of the first one, because another thread holds its shard for long.
    #[cold]
    fn values<R: Request>(
        &self,
        guard: &mut Guard<'_, '_>,
        requests: &[R],
    ) -> Result<Vec<PendingRead>, Busy> {
        let mut pending_reads = Vec::new();
        let Some(locks) = guard.apart() else { return Ok(pending_reads) };
        for (index, request) in requests.iter().enumerate() {
            let mut added = Ok(());
            request.for_each_key_read(|key| {
                if added.is_ok() {
                    added = add_key(locks, self.db, key, self.now_ms, &mut pending_reads);
                }
            });
            if index == 0 {
                added?;
            }
            if added.is_err() || pending_reads.is_empty() || is_enough(&pending_reads) {
                break;
            }
        }
        locks.release();
        Ok(pending_reads)
    }

    /// Begins the account of a request, if it has one.
    #[inline(always)]
    fn begin(
        &mut self,
        request: &impl Request,
        client: &Client,
        last: impl FnOnce() -> Words,
    ) -> Option<Timing> {
        let operation = request.operation(self.operations)?;
        Some(self.meter.begin(&operation, client, last))
    }

    /// Ends the account of a request, if it has one. One of many of its kind that went well needs no more.
    #[inline(never)]
    fn account(&mut self, request: &impl Request, timing: Option<Timing>, client: &Client) {
        let Some(timing) = timing else { return };
        let Some(operation) = request.operation(self.operations) else { return };
        match self.outcome {
            Outcome::Done => {}
            Outcome::Failed => self.counters.failed(operation.id),
            Outcome::Refused => {
                self.counters.refused(operation.id);
                return self.meter.take_back(timing);
            }
            Outcome::Malformed => return self.meter.take_back(timing),
        }
        self.meter.end(timing, &operation, client, || shorten(request));
        if self.gates.watched {
            self.show(request, client);
        }
    }

    /// Shows monitors a request that ran.
    #[cold]
    fn show(&self, request: &impl Request, client: &Client) {
        let words = request.words();
        if !words.is_empty() {
            let words = words.iter().map(AsRef::as_ref);
            monitors::show_words(self.kernel, self.db, client, words);
        }
    }
}

/// How the requests of a batch pass the gates.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Passage {
    /// The client may not use the data: no gate is closed to it, and nothing is accounted for. There is one request,
    /// as it may say the password.
    Unauthenticated,
    /// All gates are open.
    Open,
    /// Each request is looked at.
    Gated,
}

/// Leads the requests with these places through their stages, one after the other, until one has to wait or the
/// connection ends: how many are through, and why it stopped.
#[inline]
pub fn lead<'a, 'k: 'a, R: Runner<'a, 'k>>(
    runner: &mut R,
    requests: &[R::Request],
    places: impl Iterator<Item = usize>,
) -> (usize, Option<Stop>) {
    let authenticates = requests.last().is_some_and(|last| runner.authenticates(last));
    let passage = match runner.may() {
        false => Passage::Unauthenticated,
        true if !authenticates
            && !runner.rights().are_restricted()
            && runner.parts().0.gates.are_open_to_all() =>
        {
            Passage::Open
        }
        true => Passage::Gated,
    };
    let (mut through, mut last, mut stop) = (0, None, None);
    for place in places {
        if let Err(stops) = lead_one(runner, requests, place, last, passage) {
            stop = Some(stops);
            break;
        }
        (through, last) = (through + 1, Some(place));
        if runner.closing() {
            break;
        }
    }
    let (stages, _, _, client) = runner.parts();
    stages.meter.finish(client, || last_words(requests, last));
    (through, stop)
}

#[inline(always)]
fn lead_one<'a, 'k: 'a, R: Runner<'a, 'k>>(
    runner: &mut R,
    requests: &[R::Request],
    place: usize,
    last: Option<usize>,
    passage: Passage,
) -> Result<(), Stop> {
    let request = &requests[place];
    match passage {
        Passage::Open => {}
        Passage::Gated | Passage::Unauthenticated => {
            if runner.authenticates(request)
                && let Some(until_ms) = runner.attempt_waits(request)
            {
                return Err(Stop::Held(Deferral::At(Obstacle::Guesses, until_ms)));
            }
            if passage == Passage::Gated {
                pass_gates(runner, &requests[place..])?;
            }
        }
    }
    let first_key = runner.first_key(request);
    let (stages, guard, _, client) = runner.parts();
    if let Some(hash) = first_key {
        guard.reach(hash)?;
    }
    stages.outcome = Outcome::Done;
    let last = || last_words(requests, last);
    let timing = match passage {
        Passage::Unauthenticated => None,
        Passage::Open | Passage::Gated => stages.begin(request, client, last),
    };
    let done = runner.run(request);
    let (stages, _, waits, client) = runner.parts();
    if let Err(busy) = done {
        if let Some(timing) = timing {
            stages.meter.take_back(timing);
        }
        return Err(busy.into());
    }
    let is_plain = timing == Some(Timing::Run) && stages.outcome == Outcome::Done;
    if passage != Passage::Open || !is_plain {
        if passage == Passage::Gated {
            waits.has_run();
        }
        stages.account(request, timing, client);
    }
    Ok(())
}

/// Has the first of these requests pass the gates, and its values fetched from disk.
#[cold]
fn pass_gates<'a, 'k: 'a, R: Runner<'a, 'k>>(
    runner: &mut R,
    requests: &[R::Request],
) -> Result<(), Stop> {
    let is_restricted = runner.rights().are_restricted();
    if is_restricted && denies(runner, &requests[0]) {
        runner.parts().0.fault = Some(Fault::NoPermission);
        return Ok(());
    }
    let (stages, guard, waits, _) = runner.parts();
    stages.admit(guard, requests[0].access()).map_err(Stop::Held)?;
    if stages.gates.has_spilled && waits.may_fetch() {
        // What is behind the first request may be denied.
        let requests = if is_restricted { &requests[..1] } else { requests };
        let pending_reads = stages.values(guard, requests)?;
        if !pending_reads.is_empty() {
            return Err(Stop::Values(pending_reads));
        }
    }
    Ok(())
}

/// Whether the user may not make this request. What is denied is logged.
#[cold]
fn denies<'a, 'k: 'a, R: Runner<'a, 'k>>(runner: &mut R, request: &R::Request) -> bool {
    let Some(Equivalent { command, permission }) = request.equivalent() else { return false };
    let kernel = runner.parts().0.kernel;
    let Some(command) = kernel.commands.find_original_full(command.as_bytes()) else { return true };
    let mut keys: Vec<Vec<u8>> = Vec::new();
    if permission != Permission::NONE {
        request.for_each_key(|key| keys.push(key.to_vec()));
    }
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let Err(denial) = runner.rights().check_equivalent(command, &keys, permission) else {
        return false;
    };
    let (stages, _, _, client) = runner.parts();
    let operation = request.operation(stages.operations);
    let name =
        operation.map_or(command.full_name.as_str(), |operation| kernel.command_name(operation.id));
    let object = match denial {
        Denial::Key { index } => keys[index],
        Denial::Command | Denial::Channel { .. } => name.as_bytes(),
    };
    let (log, reason) = (&kernel.acl.log, denial.into());
    kernel.log_denied_object(log, client, name, object, reason, acl::Origin::TopLevel);
    true
}

/// The words of the request that ran last.
fn last_words(requests: &[impl Request], last: Option<usize>) -> Words {
    last.map(|last| shorten(&requests[last])).unwrap_or_default()
}

fn shorten(request: &impl Request) -> Words {
    let words = request.words();
    shorten_words(words.len(), words.iter().map(AsRef::as_ref))
}

/// Admits a request, which has this access to the data, if any.
///
/// # Errors
/// When it is refused, or has to wait.
pub fn admit(
    gates: &Gates,
    kernel: &Kernel,
    guard: &mut Guard<'_, '_>,
    access: Option<Access>,
) -> Result<(), Barred<Fault>> {
    let Some(access) = access else { return Ok(()) };
    if let Some(fault) = gates.hide_data() {
        return Err(Barred::Refused(fault));
    }
    let locks = guard.apart().expect("only RESP locks shards for several requests");
    gates.admit(kernel, locks, access, || false)
}

/// Ends a batch: unlocks what is locked, and notes what the replies to its writes wait for. `None` if the log could not
/// take them, so that they must not be acknowledged.
#[inline]
pub fn commit(
    waits: &mut Waits,
    kernel: &Kernel,
    locks: &mut ShardLocks<'_>,
) -> Option<ReplyBarrier> {
    // Other threads must not wait for this shard while replies are sent.
    locks.release();
    if !locks.take_logged() {
        return Some(ReplyBarrier::default());
    }
    kernel.note_writes(&mut waits.logged, None, ReplicaLevel::of_server(kernel))
}

/// Has all replies of this call wait for replicas, if that is what they wait for (`durability-replicas`); `None` if not.
/// The rest of the input waits behind them.
#[inline]
pub fn confirm(
    waits: &mut Waits,
    kernel: &Kernel,
    client: &Client,
    io: &mut Io<'_>,
    barrier: ReplyBarrier,
    closes: bool,
) -> Option<Flow> {
    barrier.replicas.map(|level| {
        let held = HeldReplies::of_write(level, Some(io.output().take()));
        suspend_for_replicas(waits, kernel, client, io, HeldReplies { closes, ..held })
    })
}

/// Starts loading what the batch will look at, so that the waits for memory overlap.
#[inline]
pub fn prefetch<'k>(
    guard: &mut Guard<'_, '_>,
    db: DbIndex,
    keys: impl ExactSizeIterator<Item = Key<'k>> + Clone,
) {
    if keys.len() >= 2
        && guard.keyspace().gains_from_prefetch(db)
        && let Some(locks) = guard.apart()
    {
        locks.prefetch(keys.map(|key| (db, key.hash())));
    }
}

/// Appends a value, a large one by reference. In line wherever it is called: a call costs a read 20 instructions.
#[inline(always)]
pub fn write_value(value: StrView<'_>, output: &mut Output) {
    match value {
        StrView::Bytes(bytes) => output.buffer().extend_from_slice(bytes),
        StrView::Shared(blob) => output.attach(blob.to_arc()),
        StrView::Int(_) => value.write_to(output.buffer()),
    }
}

/// The memory of a vector for elements of another lifetime. The compiler sees that nothing is
/// converted, and keeps the allocation.
pub fn recycle<A, B>(mut vec: Vec<A>) -> Vec<B> {
    const { assert!(size_of::<A>() == size_of::<B>() && align_of::<A>() == align_of::<B>()) };
    vec.clear();
    vec.into_iter().map(|_| unreachable!("it is empty")).collect()
}

#[cfg(test)]
mod tests {
    use super::recycle;

    #[test]
    fn memory_is_kept() {
        let vec: Vec<&str> = Vec::with_capacity(100);
        let recycled: Vec<&[u8]> = recycle(vec);
        assert!(recycled.capacity() >= 100);
    }
}
