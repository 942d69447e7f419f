//! Programs that run outside of the workers. Each can be killed at any time; meanwhile it keeps its keys locked.
//!
//! Programs on a worker are not listed here: they end within a millisecond, or move to another thread.
//!
//! **Invariant:** a program that is asked to end does so at the next check of its machine, and all of its effects are
//! undone. So every program can be killed.
//!
//! A transaction goes on after a program in it that was ended, so it would be cut in its middle: a shutdown gives such
//! a program [`GRACE`] to end by itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tierce_keyspace::interleaving;

use crate::error::CommandError;

/// Kind of a program, as clients see it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A script: EVAL and related commands.
    Script,
    /// A function: FCALL.
    Function,
}

impl Kind {
    /// Returns the reply to a client that needs a lock of such a program.
    #[must_use]
    pub fn busy(self) -> CommandError {
        CommandError::new(match self {
            Self::Script => {
                "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE."
            }
            Self::Function => {
                "BUSY Redis is busy running a script. You can only call FUNCTION KILL or SHUTDOWN NOSAVE."
            }
        })
    }
}

/// Reply of a program that was ended because the server shuts down.
pub const ENDED_BY_SHUTDOWN: &str =
    "ERR Script ended because the server shuts down; its writes were undone";

/// Time that a shutdown gives programs in transactions.
pub const GRACE: Duration = Duration::from_secs(5);

/// Reason to end a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Ending {
    /// SCRIPT KILL or FUNCTION KILL.
    Killed = 1,
    /// The server ends.
    Shutdown = 2,
}

/// Shards that a program has locked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Held {
    /// Shards with these numbers.
    Some(Box<[usize]>),
    /// All shards.
    All,
    /// All shards, by the transaction in which the program runs.
    AllByTransaction,
}

impl Held {
    fn contains(&self, shard: usize) -> bool {
        match self {
            Self::Some(shards) => shards.contains(&shard),
            Self::All | Self::AllByTransaction => true,
        }
    }
}

/// A running program.
#[derive(Debug)]
pub struct Run {
    kind: Kind,
    name: Vec<u8>,
    call: Vec<Vec<u8>>,
    held: Held,
    begun: Instant,
    /// Number of an [`Ending`]; 0 while it may continue.
    ending: AtomicU8,
    /// Run time in milliseconds after which a shutdown ends it.
    ends_after_ms: AtomicU64,
}

impl Run {
    /// Starts a program, called `name` by the client's `call`.
    #[must_use]
    pub fn new(kind: Kind, name: Vec<u8>, call: Vec<Vec<u8>>, held: Held) -> Self {
        let (ending, ends_after_ms) = (AtomicU8::new(0), AtomicU64::new(u64::MAX));
        Self { kind, name, call, held, begun: interleaving::now(), ending, ends_after_ms }
    }

    /// Returns its kind.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns its name.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// Returns the words of the client's call.
    #[must_use]
    pub fn call(&self) -> &[Vec<u8>] {
        &self.call
    }

    /// Returns its run time so far.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        interleaving::now().saturating_duration_since(self.begun)
    }

    /// Returns the reason to end it, if there is one.
    #[inline]
    #[must_use]
    pub fn ending(&self) -> Option<Ending> {
        match self.ending.load(Relaxed) {
            0 => match self.ends_after_ms.load(Relaxed) {
                u64::MAX => None,
                ms => (self.elapsed() >= Duration::from_millis(ms)).then_some(Ending::Shutdown),
            },
            2 => Some(Ending::Shutdown),
            _ => Some(Ending::Killed),
        }
    }

    /// Ends it because the server shuts down; a program in a transaction only at `latest`.
    fn end_by_shutdown(&self, latest: Instant) {
        match self.held {
            Held::AllByTransaction => {
                let after = latest.saturating_duration_since(self.begun).as_millis();
                self.ends_after_ms.store(after as u64, Relaxed);
            }
            Held::Some(_) | Held::All => self.end(Ending::Shutdown),
        }
    }

    fn end(&self, ending: Ending) {
        self.ending.store(ending as u8, Relaxed);
    }
}

/// Programs outside of the workers, in the order of their starts.
#[derive(Default)]
pub struct Running {
    state: Mutex<State>,
    /// Number of programs, readable without the lock.
    len: AtomicUsize,
}

#[derive(Default)]
struct State {
    runs: Vec<Arc<Run>>,
    /// Time at which programs in transactions end, if the server shuts down. Other new programs end at once.
    latest: Option<Instant>,
}

/// Registration of a running program. Dropping it ends the registration.
pub struct Ticket<'r> {
    running: &'r Running,
    run: Arc<Run>,
}

impl Ticket<'_> {
    /// Returns the program.
    #[must_use]
    pub fn run(&self) -> &Arc<Run> {
        &self.run
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        let runs = &mut self.running.state.lock().runs;
        runs.retain(|run| !Arc::ptr_eq(run, &self.run));
        self.running.len.store(runs.len(), Relaxed);
    }
}

/// Reason why nothing was killed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotKilled {
    /// No program runs.
    NotBusy,
    /// Only programs of the other kind run.
    OtherKind(Kind),
}

impl From<NotKilled> for CommandError {
    fn from(reason: NotKilled) -> Self {
        match reason {
            NotKilled::NotBusy => Self::new("NOTBUSY No scripts in execution right now."),
            NotKilled::OtherKind(kind) => kind.busy(),
        }
    }
}

impl Running {
    /// Registers a program, after its shards were locked.
    pub fn begin(&self, run: Run) -> Ticket<'_> {
        let run = Arc::new(run);
        let state = &mut *self.state.lock();
        if let Some(latest) = state.latest {
            run.end_by_shutdown(latest);
        }
        state.runs.push(Arc::clone(&run));
        self.len.store(state.runs.len(), Relaxed);
        Ticket { running: self, run }
    }

    /// Returns all running programs, the oldest first.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<Run>> {
        if self.len.load(Relaxed) == 0 { Vec::new() } else { self.state.lock().runs.clone() }
    }

    /// Ends programs of a kind: the one that has run longest, and all others that have run for `threshold`.
    ///
    /// # Errors
    /// If there is none.
    pub fn kill(&self, kind: Kind, threshold: Duration) -> Result<(), NotKilled> {
        let runs = &self.state.lock().runs;
        let of_kind = || runs.iter().filter(|run| run.kind == kind);
        let Some(oldest) = of_kind().next() else {
            return Err(match runs.first() {
                Some(other) => NotKilled::OtherKind(other.kind),
                None => NotKilled::NotBusy,
            });
        };
        oldest.end(Ending::Killed);
        of_kind().filter(|run| run.elapsed() >= threshold).for_each(|run| run.end(Ending::Killed));
        Ok(())
    }

    /// Ends all programs, and those that start later, because the server shuts down. Those in transactions have until
    /// `GRACE` after the first call.
    pub fn end_all(&self) {
        let mut state = self.state.lock();
        let latest = *state.latest.get_or_insert_with(|| interleaving::now() + GRACE);
        state.runs.iter().for_each(|run| run.end_by_shutdown(latest));
    }

    /// Notes that the shutdown was cancelled.
    pub fn go_on(&self) {
        let mut state = self.state.lock();
        state.latest = None;
        state.runs.iter().for_each(|run| run.ends_after_ms.store(u64::MAX, Relaxed));
    }

    /// Returns the error for a client that needs this shard, if a program has had it locked for `threshold`.
    #[must_use]
    pub fn refusal(&self, shard: usize, threshold: Duration) -> Option<CommandError> {
        let run = self.holder(shard)?;
        (run.elapsed() >= threshold).then(|| run.kind.busy())
    }

    /// Returns the time until a program that has a shard locked has run for `threshold`.
    #[must_use]
    pub fn patience(&self, shard: usize, threshold: Duration) -> Duration {
        let elapsed = self.holder(shard).map_or(Duration::ZERO, |run| run.elapsed());
        threshold.saturating_sub(elapsed)
    }

    /// Returns some shard that a program has had locked for `threshold`, if there is one.
    #[must_use]
    pub fn any_held(&self, threshold: Duration) -> Option<usize> {
        let runs = self.all();
        let run = runs.iter().find(|run| run.elapsed() >= threshold)?;
        match &run.held {
            Held::Some(shards) => shards.first().copied(),
            Held::All | Held::AllByTransaction => Some(0),
        }
    }

    /// Returns the number of programs that have run for `threshold`.
    #[must_use]
    pub fn count_for(&self, threshold: Duration) -> usize {
        self.all().iter().filter(|run| run.elapsed() >= threshold).count()
    }

    fn holder(&self, shard: usize) -> Option<Arc<Run>> {
        if self.len.load(Relaxed) == 0 {
            return None;
        }
        self.state.lock().runs.iter().find(|run| run.held.contains(shard)).cloned()
    }

    /// Returns the error for clients if any program has run for `threshold`.
    #[must_use]
    pub fn any_for(&self, threshold: Duration) -> Option<CommandError> {
        let oldest = self.all().into_iter().next()?;
        (oldest.elapsed() >= threshold).then(|| oldest.kind.busy())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEVER: Duration = Duration::MAX;

    fn run(kind: Kind, shards: &[usize]) -> Run {
        Run::new(kind, b"name".to_vec(), Vec::new(), Held::Some(shards.into()))
    }

    #[test]
    fn programs_are_killed_by_kind() {
        let running = Running::default();
        assert_eq!(running.kill(Kind::Script, NEVER), Err(NotKilled::NotBusy));
        let function = running.begin(run(Kind::Function, &[1]));
        let other = NotKilled::OtherKind(Kind::Function);
        assert_eq!(running.kill(Kind::Script, NEVER), Err(other));
        let scripts = [2, 3].map(|shard| running.begin(run(Kind::Script, &[shard])));
        let endings = || [&function, &scripts[0], &scripts[1]].map(|ticket| ticket.run().ending());
        assert_eq!(running.kill(Kind::Script, NEVER), Ok(()));
        assert_eq!(endings(), [None, Some(Ending::Killed), None], "the oldest");
        assert_eq!(running.kill(Kind::Script, Duration::ZERO), Ok(()));
        assert_eq!(endings(), [None, Some(Ending::Killed), Some(Ending::Killed)], "all");
        running.end_all();
        assert_eq!(endings(), [Some(Ending::Shutdown); 3]);
        drop((function, scripts));
        assert!(running.all().is_empty());
    }

    #[test]
    fn a_shutdown_gives_programs_in_transactions_some_time() {
        let running = Running::default();
        let begin = |held| running.begin(Run::new(Kind::Script, b"s".to_vec(), Vec::new(), held));
        let (inside, outside) = (begin(Held::AllByTransaction), begin(Held::All));
        running.end_all();
        let later = begin(Held::AllByTransaction);
        let endings = || [&inside, &outside, &later].map(|ticket| ticket.run().ending());
        assert_eq!(endings(), [None, Some(Ending::Shutdown), None]);
        for run in [inside.run(), later.run()] {
            let after = run.ends_after_ms.load(Relaxed);
            assert!(u128::from(after) <= GRACE.as_millis(), "{after}");
            run.end_by_shutdown(run.begun);
        }
        assert_eq!(endings(), [Some(Ending::Shutdown); 3], "their time is over");
        running.go_on();
        assert_eq!(endings(), [None, Some(Ending::Shutdown), None]);
        running.kill(Kind::Script, Duration::ZERO).expect("some run");
        assert_eq!(endings(), [Some(Ending::Killed); 3]);
    }

    #[test]
    fn others_are_kept_from_what_a_program_holds() {
        let running = Running::default();
        let busy = |shard| running.refusal(shard, Duration::ZERO).is_some();
        assert!(!busy(1));
        let some = running.begin(run(Kind::Script, &[1, 4]));
        assert_eq!([0, 1, 4].map(busy), [false, true, true]);
        assert!(running.refusal(1, NEVER).is_none(), "not yet");
        assert!(running.patience(1, Duration::from_secs(9)) > Duration::from_secs(1));
        assert_eq!(running.patience(1, Duration::ZERO), Duration::ZERO);
        assert_eq!([Duration::ZERO, NEVER].map(|time| running.any_held(time)), [Some(1), None]);
        assert_eq!([Duration::ZERO, NEVER].map(|time| running.count_for(time)), [1, 0]);
        let all = Run::new(Kind::Function, b"f".to_vec(), Vec::new(), Held::All);
        let all = running.begin(all);
        assert!(busy(0));
        drop((some, all));
        running.end_all();
        assert_eq!(running.begin(run(Kind::Script, &[1])).run().ending(), Some(Ending::Shutdown));
        running.go_on();
        assert_eq!(running.begin(run(Kind::Script, &[1])).run().ending(), None);
        assert!(!busy(1) && running.any_for(Duration::ZERO).is_none());
    }
}
