//! The queue of a client's transaction, from MULTI on.
//!
//! Between MULTI and EXEC each request is checked and queued. If this check fails (an unknown command, a wrong number
//! of arguments, refused admission), EXEC replies with EXECABORT. Otherwise EXEC locks the shards of all requests and
//! runs them in order (`pipeline/transaction.rs`). If one fails, its result is the error, and the others still run, as
//! in Redis.

use tierce_keyspace::{KeyHash, Keyspace};
use tierce_wire::number;
use tierce_wire::resp::{Args, KeptRequests};

use crate::command::{Access, Command, Flags};

/// Initial capacity: requests, with a usual number of arguments and bytes.
const REQUESTS_MIN: usize = 16;
const ARGS_MIN: usize = 3 * REQUESTS_MIN;
const BYTES_MIN: usize = 64 * REQUESTS_MIN;

/// The requests between MULTI and EXEC, and their needs.
#[derive(Debug)]
pub struct Transaction {
    requests: KeptRequests,
    /// Facts about each request.
    known: Vec<Known>,
    /// The keys that all of them declare.
    keys: Vec<KeyHash>,
    /// True if a request needs all shards.
    needs_all: bool,
    access: Access,
    /// True if the values of some keys may use more memory than the requests themselves.
    pub(crate) may_be_heavy: bool,
    /// True if a request begins or ends subscriptions of the connection, or changes its key tracking.
    pub(crate) changes_subscriptions: bool,
    /// True if a request shows the key tracking of the connection.
    pub(crate) shows_tracking: bool,
    /// True if a request calls a script or a function.
    pub(crate) runs_programs: bool,
    /// True if a request makes the server a replica or a primary.
    pub(crate) changes_role: bool,
    /// True if a request shows data, or may do so.
    pub(crate) reads_data: bool,
    /// True if a replica that has lost its primary may serve all requests.
    pub(crate) runs_when_stale: bool,
    /// True if all requests may run while data are being loaded.
    pub(crate) runs_while_loading: bool,
    /// True if EXEC will be refused.
    pub(crate) is_doomed: bool,
}

/// Number of elements that a call works on, for each of its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Share {
    /// At most this number.
    AtMost(usize),
    /// Those in excess of this number.
    Beyond(usize),
}

impl Share {
    const ONE: Self = Self::AtMost(1);
    const ALL: Self = Self::AtMost(usize::MAX);

    /// Returns one element for commands that work briefly on one, unless the call has a count, as `LPOP key count`, or
    /// trims a stream.
    pub(crate) fn of(command: &Command, args: Args<'_>) -> Self {
        match command.spec.name {
            "xadd" | "xtrim" => return Self::trimmed(args),
            "xautoclaim" if args.len() > 7 => return Self::ALL,
            // Another request may access the values under other names.
            "renamenx" | "move" | "swapdb" => return Self::ALL,
            // A digest takes all bytes.
            "digest" => return Self::ALL,
            "set" | "delex" if Self::compares_digest(args) => return Self::ALL,
            _ if !command.is_brief => return Self::ALL,
            _ => {}
        }
        let may_count = command.has_one_key && command.spec.arity == -2 && args.len() == 3;
        let count = if may_count { number::parse_u64(args.at(2)) } else { None };
        count.map_or(Self::ONE, |count| Self::AtMost(count as usize))
    }

    fn compares_digest(args: Args<'_>) -> bool {
        let is_word =
            |arg: &[u8]| arg.eq_ignore_ascii_case(b"ifdeq") || arg.eq_ignore_ascii_case(b"ifdne");
        args.iter().skip(2).any(is_word)
    }

    /// Parses the options after the key. The number of entries before an identity is only known from the stream, and
    /// ACKED also visits entries that stay.
    fn trimmed(args: Args<'_>) -> Self {
        let (mut at, mut share) = (2, Self::ONE);
        loop {
            let is = |name: &[u8]| args.get(at).is_some_and(|arg| arg.eq_ignore_ascii_case(name));
            if is(b"nomkstream") || is(b"keepref") || is(b"delref") {
                at += 1;
            } else if is(b"limit") {
                at += 2;
            } else if is(b"maxlen") {
                // A `=` or `~` may precede the number.
                let number = [at + 1, at + 2].into_iter().find_map(|at| {
                    let arg = args.get(at)?;
                    Some((at + 1, number::parse_u64(arg)?))
                });
                let Some((next, len)) = number else { return Self::ALL };
                (at, share) = (next, Self::Beyond(len as usize));
            } else {
                return if is(b"minid") || is(b"acked") { Self::ALL } else { share };
            }
        }
    }

    /// Returns true if it is at most one element for any size.
    pub(crate) fn is_one(self) -> bool {
        matches!(self, Self::AtMost(..=1))
    }

    /// Returns the number of elements for a key that has `there` elements.
    pub(crate) fn elements(self, there: usize) -> usize {
        match self {
            Self::AtMost(count) => there.min(count),
            Self::Beyond(count) => there.saturating_sub(count),
        }
    }
}

/// Facts about a queued request.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// The hash of its key, if its command has exactly one.
    pub hash: Option<KeyHash>,
    /// The index of its command; `None` if EXEC has to look it up again.
    pub command: Option<u16>,
}

/// The locks that a transaction needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs<'a> {
    /// The shards of these keys. Without any, the transaction needs no data.
    Keys(&'a [KeyHash]),
    /// All shards.
    All,
}

/// Error: the queue would exceed the limit of bytes for a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueIsFull;

impl Default for Transaction {
    fn default() -> Self {
        Self {
            requests: KeptRequests::with_capacity(REQUESTS_MIN, ARGS_MIN, BYTES_MIN),
            known: Vec::with_capacity(REQUESTS_MIN),
            keys: Vec::with_capacity(REQUESTS_MIN),
            needs_all: false,
            access: Access::READ,
            may_be_heavy: false,
            changes_subscriptions: false,
            shows_tracking: false,
            runs_programs: false,
            changes_role: false,
            reads_data: false,
            runs_when_stale: true,
            runs_while_loading: true,
            is_doomed: false,
        }
    }
}

impl Transaction {
    /// Returns the number of queued requests.
    #[must_use]
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// Returns true if nothing is queued.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Returns the requests.
    #[must_use]
    pub fn requests(&self) -> &KeptRequests {
        &self.requests
    }

    /// Returns the facts about each request.
    #[must_use]
    pub fn known(&self) -> &[Known] {
        &self.known
    }

    /// Returns the access of EXEC to the data: none if it will be refused.
    #[must_use]
    pub fn access(&self) -> Access {
        if self.is_doomed { Access::READ } else { self.access }
    }

    /// Returns the locks that EXEC needs.
    #[must_use]
    pub fn needs(&self) -> Needs<'_> {
        if self.needs_all { Needs::All } else { Needs::Keys(&self.keys) }
    }

    /// Makes EXEC fail.
    pub fn doom(&mut self) {
        self.is_doomed = true;
    }

    /// Returns the memory of the queue.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>()
            + self.requests.memory_bytes()
            + self.known.capacity() * size_of::<Known>()
            + self.keys.capacity() * size_of::<KeyHash>()
    }

    /// Queues a call of `command`. `hash` is the hash of its first key, if known.
    ///
    /// # Errors
    /// If the queue would exceed `max` bytes.
    pub fn push(
        &mut self,
        keyspace: &Keyspace,
        command: &Command,
        args: Args<'_>,
        hash: Option<KeyHash>,
        max: u64,
    ) -> Result<(), QueueIsFull> {
        if (self.memory_bytes() + args.bytes_len()) as u64 > max {
            return Err(QueueIsFull);
        }
        self.requests.push(args).map_err(|_| QueueIsFull)?;
        let Access { writes, may_write, may_grow, publishes, grows, .. } =
            Access::of_call(command.spec, args);
        self.access.writes |= writes;
        self.access.may_write |= may_write;
        self.access.may_grow |= may_grow;
        self.access.publishes |= publishes;
        self.access.grows |= grows;
        self.access.brings += if grows { args.bytes_len() } else { 0 };
        let may_compare = args.len() > 4 && command.spec.name == "set";
        if !command.is_one_element || may_compare {
            let meets_patterns = command.spec.name == "publish";
            self.may_be_heavy |= meets_patterns || !Share::of(command, args).is_one();
        }
        let flags = command.spec.flags;
        self.changes_subscriptions |=
            flags.contains(Flags::SUBSCRIBING) || flags.contains(Flags::TRACKING);
        self.shows_tracking |= matches!(command.spec.name, "trackinginfo" | "getredir");
        self.changes_role |= matches!(command.spec.name, "replicaof" | "slaveof" | "failover");
        self.runs_programs |= flags.contains(Flags::PROGRAM);
        self.reads_data |= flags.reads_data();
        self.runs_when_stale &= command.spec.runs_when_stale();
        self.runs_while_loading &= command.spec.runs_while_loading();
        let hash = match hash {
            _ if !command.has_one_key => None,
            None => Some(keyspace.hash(args.at(command.first_key))),
            known => known,
        };
        self.known.push(Known { hash, command: command.is_plain.then_some(command.index) });
        self.add_needs(keyspace, command, args, hash);
        Ok(())
    }

    fn add_needs(
        &mut self,
        keyspace: &Keyspace,
        command: &Command,
        args: Args<'_>,
        hash: Option<KeyHash>,
    ) {
        if let Some(hash) = hash {
            return self.keys.push(hash);
        }
        match command.spec.needed_keys(args) {
            Some(keys) => self.keys.extend(keys.map(|index| keyspace.hash(&args[index]))),
            // A program may use keys that it has not declared. Earlier requests of the transaction cannot run again,
            // because they may have done more than change keys.
            None => self.needs_all = true,
        }
    }
}
