//! Common parts of the protocols other than RESP: the stages of a request, prefetching a batch, writing a value.

use std::borrow::Cow;

use tierce_keyspace::ShardLocks;
use tierce_keyspace::{Busy, DbIndex, Key, KeyHash, StrView};
use tierce_net::{Flow, Io};
use tierce_output::Output;

use crate::acl::{self, Denial, Permission, Rights};
use crate::admission::{Admission, Barred};
use crate::clients::Client;
use crate::command::{Access, Operation, Operations};
use crate::command_log::shorten_words;
use crate::commands::barrier::ReplyBarrier;
use crate::commands::replica_level::{HeldReplies, ReplicaLevel};
use crate::error::Interrupt;
use crate::fault::Fault;
use crate::fetch::{PendingRead, add_key, is_enough};
use crate::kernel::Kernel;
use crate::meter::{Meter, Timing, Words};
use crate::monitors;
use crate::pipeline::Guard;
use crate::stats::{Counters, Stat};
use crate::suspend::suspend_for_replicas;
use crate::waiting::{Deferral, Obstacle, Waits};

/// Request of a protocol other than RESP, as the stages see it.
pub trait Request {
    /// Returns its access to the data; `None` if it touches no data.
    fn access(&self) -> Option<Access>;

    /// Calls `each` with the keys whose values it reads.
    fn for_each_key_read(&self, each: impl FnMut(&[u8]));

    /// Returns the command whose right it needs; `None` if every user may make it.
    fn equivalent(&self) -> Option<Equivalent>;

    /// Calls `each` with the keys that this right is needed for.
    fn for_each_key(&self, each: impl FnMut(&[u8]));

    /// Returns the operation that it is counted as, if any.
    fn operation(&self, operations: Operations) -> Option<Operation>;

    /// Returns its words, as monitors and the slow log show them. Empty if they must not show it.
    fn words(&self) -> Vec<Cow<'_, [u8]>>;
}

/// RESP command that a request corresponds to, and its access to the keys. A user that may run this command on these
/// keys may make the request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Equivalent {
    /// Name of the command.
    pub command: &'static str,
    /// Permission needed for each key.
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

/// Executor of requests.
pub trait Runner<'a, 'k> {
    type Request: Request;

    /// Returns the stages, and the state that they work on.
    fn parts(&mut self) -> (&mut Stages<'k>, &mut Guard<'a, 'k>, &mut Waits, &Client);

    /// Returns true if the client may use the data. If not, no admission checks are made for it.
    fn may(&mut self) -> bool;

    /// Returns the client's rights on the data.
    fn rights(&self) -> &Rights;

    /// Returns true for a request that authenticates the client. Such a request is the last one of its batch.
    fn authenticates(&mut self, _request: &Self::Request) -> bool {
        false
    }

    /// Returns the time until which an authentication attempt is deferred, if it is.
    fn attempt_waits(&mut self, _request: &Self::Request) -> Option<i64> {
        None
    }

    /// Returns the key whose shard the request needs first, if it is about keys.
    fn first_key(&self, request: &Self::Request) -> Option<KeyHash>;

    /// Runs a request, and replies.
    ///
    /// # Errors
    /// [`Busy`] if it could not run; it has then done and replied nothing.
    fn run(&mut self, request: &Self::Request) -> Result<(), Busy>;

    /// Returns true if the connection ends after the last request.
    fn closing(&self) -> bool;
}

/// Outcome of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It ran, and replied.
    Done,
    /// It replied with an error.
    Failed,
    /// An admission check refused it.
    Refused,
    /// It was malformed, and is not counted.
    Malformed,
}

/// Reason why a batch stops before a request.
pub enum Stop {
    /// The request is deferred.
    Held(Deferral),
    /// It needs values that are on disk.
    Values(Vec<PendingRead>),
}

impl From<Busy> for Stop {
    fn from(busy: Busy) -> Self {
        Self::Held(busy.into())
    }
}

/// Stages that the requests of a batch pass one after the other: admission, disk, lock, execution, accounting.
pub struct Stages<'k> {
    pub kernel: &'k Kernel,
    counters: &'k Counters,
    operations: Operations,
    pub admission: Admission,
    meter: Meter<'k>,
    /// Database that the protocol sees.
    pub db: DbIndex,
    pub now_ms: i64,
    /// Fault that keeps the current request from changing data.
    pub fault: Option<Fault>,
    /// Outcome of the current request.
    outcome: Outcome,
}

impl<'k> Stages<'k> {
    /// Creates the stages for a batch of a worker that counts in `counters`. Inlined, so that it is built in its final
    /// place.
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
            admission: Admission::read_for_all(kernel, now_ms),
            meter: Meter::start(kernel, counters),
            db,
            now_ms,
            fault: None,
            outcome: Outcome::Done,
        }
    }

    /// Returns the clock as last read: at the begin of the batch, until its first request has run.
    #[inline]
    pub fn read_nanos(&self) -> u64 {
        self.meter.read_nanos()
    }

    /// Notes that the current request replies with an error of this kind.
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

    /// Notes that the current request is malformed.
    #[cold]
    pub fn note_malformed(&mut self) {
        self.outcome = Outcome::Malformed;
    }

    /// Decides whether a request with this access to the data may run now; otherwise returns what it has to wait for.
    /// If it must not run at all, [`fault`](Self::fault) says why. Called only while some admission check is active.
    #[cold]
    pub fn admit(
        &mut self,
        guard: &mut Guard<'_, '_>,
        access: Option<Access>,
    ) -> Result<(), Deferral> {
        match admit(&self.admission, self.kernel, guard, access) {
            Ok(()) => self.fault = None,
            Err(Barred::Refused(fault)) => self.fault = Some(fault),
            Err(Barred::Held(deferral)) => return Err(deferral),
        }
        Ok(())
    }

    /// Returns the values on disk that a request needs. If there are any, it adds those of the requests behind it, so
    /// that the disk gets all reads at once.
    ///
    /// # Errors
    /// [`Busy`] if this is unknown for the first one, because another thread locks its shard for long.
    #[cold]
    fn values<R: Request>(
        &self,
        guard: &mut Guard<'_, '_>,
        requests: &[R],
    ) -> Result<Vec<PendingRead>, Busy> {
        let mut pending_reads = Vec::new();
        let Some(locks) = guard.unlocked() else { return Ok(pending_reads) };
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

    /// Ends the account of a request, if it has one. A successful one that repeats the last operation needs no more.
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
        if self.admission.watched {
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

/// Admission of the requests of a batch.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AdmissionMode {
    /// The client may not use the data: no admission checks are made, and nothing is accounted for. The batch has one
    /// request, as it may be the authentication.
    Unauthenticated,
    /// No check is active.
    Open,
    /// Each request is checked.
    Checked,
}

/// Runs the requests with these positions through their stages, one after the other, until one has to wait or the
/// connection ends. Returns how many are done, and why it stopped.
#[inline]
pub fn lead<'a, 'k: 'a, R: Runner<'a, 'k>>(
    runner: &mut R,
    requests: &[R::Request],
    places: impl Iterator<Item = usize>,
) -> (usize, Option<Stop>) {
    let authenticates = requests.last().is_some_and(|last| runner.authenticates(last));
    let mode = match runner.may() {
        false => AdmissionMode::Unauthenticated,
        true if !authenticates
            && !runner.rights().are_restricted()
            && runner.parts().0.admission.are_open_to_all() =>
        {
            AdmissionMode::Open
        }
        true => AdmissionMode::Checked,
    };
    let (mut through, mut last, mut stop) = (0, None, None);
    for place in places {
        if let Err(stops) = lead_one(runner, requests, place, last, mode)
            && let Some(stops) = refuse_busy(runner, &requests[place], stops)
        {
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
    mode: AdmissionMode,
) -> Result<(), Stop> {
    let request = &requests[place];
    match mode {
        AdmissionMode::Open => {}
        AdmissionMode::Checked | AdmissionMode::Unauthenticated => {
            if runner.authenticates(request)
                && let Some(until_ms) = runner.attempt_waits(request)
            {
                return Err(Stop::Held(Deferral::At(Obstacle::Guesses, until_ms)));
            }
            if mode == AdmissionMode::Checked {
                pass_admission(runner, &requests[place..])?;
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
    let timing = match mode {
        AdmissionMode::Unauthenticated => None,
        AdmissionMode::Open | AdmissionMode::Checked => stages.begin(request, client, last),
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
    if mode != AdmissionMode::Open || !is_plain {
        if mode == AdmissionMode::Checked {
            waits.has_run();
        }
        stages.account(request, timing, client);
    }
    Ok(())
}

/// Refuses a request that would have to wait for a script which has run for too long. Returns why the batch stops
/// otherwise.
#[cold]
fn refuse_busy<'a, 'k: 'a, R: Runner<'a, 'k>>(
    runner: &mut R,
    request: &R::Request,
    stop: Stop,
) -> Option<Stop> {
    let (stages, ..) = runner.parts();
    match stop {
        Stop::Held(Deferral::On(Obstacle::Shard(shard)))
            if is_held_by_program(stages.kernel, Busy { shard }) =>
        {
            stages.fault = Some(Fault::Busy);
        }
        stop => return Some(stop),
    }
    let done = runner.run(request);
    let (stages, _, waits, _) = runner.parts();
    stages.fault = None;
    waits.has_run();
    if let Some(operation) = request.operation(stages.operations) {
        stages.counters.refused(operation.id);
    }
    done.err().map(Stop::from)
}

/// Returns true if a script keeps what is busy for too long.
pub fn is_held_by_program(kernel: &Kernel, busy: Busy) -> bool {
    kernel.busy_with_program(Interrupt::Busy(busy)).is_some()
}

/// Runs the admission checks for the first of these requests, and has its values fetched from disk.
#[cold]
fn pass_admission<'a, 'k: 'a, R: Runner<'a, 'k>>(
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
    if stages.admission.has_spilled && waits.may_fetch() {
        // The requests behind the first one may be denied.
        let requests = if is_restricted { &requests[..1] } else { requests };
        let pending_reads = stages.values(guard, requests)?;
        if !pending_reads.is_empty() {
            return Err(Stop::Values(pending_reads));
        }
    }
    Ok(())
}

/// Returns true if the user may not make this request. A denial is logged.
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

/// Returns the words of the request that ran last.
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
/// If it is refused, or has to wait.
pub fn admit(
    admission: &Admission,
    kernel: &Kernel,
    guard: &mut Guard<'_, '_>,
    access: Option<Access>,
) -> Result<(), Barred<Fault>> {
    let Some(access) = access else { return Ok(()) };
    if let Some(fault) = admission.hide_data() {
        return Err(Barred::Refused(fault));
    }
    let locks = guard.unlocked().expect("only RESP locks shards for several requests");
    admission.admit(kernel, locks, access, || false)
}

/// Ends a batch: unlocks its shards, and returns what the replies to its writes wait for. `None` if the log failed to
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

/// Makes all replies of this call wait for replicas, if `durability-replicas` demands it; `None` if not. The rest of
/// the input waits behind them.
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

/// Prefetches what the batch will read, so that the memory latencies overlap.
#[inline]
pub fn prefetch<'k>(
    guard: &mut Guard<'_, '_>,
    db: DbIndex,
    keys: impl ExactSizeIterator<Item = Key<'k>> + Clone,
) {
    if keys.len() >= 2
        && guard.keyspace().gains_from_prefetch(db)
        && let Some(locks) = guard.unlocked()
    {
        locks.prefetch(keys.map(|key| (db, key.hash())));
    }
}

/// Appends a value, a large one by reference. Inlined at each call: a call costs a read 20 instructions.
#[inline(always)]
pub fn write_value(value: StrView<'_>, output: &mut Output) {
    match value {
        StrView::Bytes(bytes) => output.buffer().extend_from_slice(bytes),
        StrView::Shared(blob) => output.attach(blob.to_arc()),
        StrView::Int(_) => value.write_to(output.buffer()),
    }
}

/// Reuses the memory of a vector for elements of another lifetime. The compiler sees that nothing is converted, and
/// keeps the allocation.
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
