//! What a client has queued since MULTI.
//!
//! Between MULTI and EXEC a request is checked and queued. If it is refused at that point (an unknown command, a
//! wrong number of arguments, a closed gate), EXEC answers with EXECABORT. Otherwise EXEC locks what all
//! requests need, and runs them in order (`pipeline/transaction.rs`). If one fails, its error is its result, and
//! the others run all the same, as in Redis.

use tierce_keyspace::{KeyHash, Keyspace};
use tierce_wire::number;
use tierce_wire::resp::{Args, KeptRequests};

use crate::command::{Access, Command, Flags};

/// Requests for which there is room from the beginning, with arguments and bytes as are usual.
const REQUESTS_MIN: usize = 16;
const ARGS_MIN: usize = 3 * REQUESTS_MIN;
const BYTES_MIN: usize = 64 * REQUESTS_MIN;

/// The requests between MULTI and EXEC, and what they will need.
#[derive(Debug)]
pub struct Transaction {
    requests: KeptRequests,
    /// What is known of each.
    known: Vec<Known>,
    /// The keys that all of them declare.
    keys: Vec<KeyHash>,
    /// One of them needs all shards.
    needs_all: bool,
    access: Access,
    /// The values of some keys may weigh more than the requests themselves.
    pub(crate) may_be_heavy: bool,
    /// One of them begins or ends subscriptions of the connection, or changes how it tracks keys.
    pub(crate) changes_subscriptions: bool,
    /// One of them shows how the connection tracks keys.
    pub(crate) shows_tracking: bool,
    /// One of them calls a script or a function.
    pub(crate) runs_programs: bool,
    /// One of them makes the server a replica or a primary.
    pub(crate) changes_role: bool,
    /// One of them shows data, or may.
    pub(crate) reads_data: bool,
    /// A replica that has lost its primary answers all of them.
    pub(crate) runs_when_stale: bool,
    /// All of them run while data are being loaded.
    pub(crate) runs_while_loading: bool,
    /// EXEC will be refused.
    pub(crate) is_doomed: bool,
}

/// How many elements a call works on, of each of its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Share {
    /// So many.
    AtMost(usize),
    /// Those that are more than so many.
    Beyond(usize),
}

impl Share {
    const ONE: Self = Self::AtMost(1);
    const ALL: Self = Self::AtMost(usize::MAX);

    /// Commands that are brief work on one element, unless the call has a count, as `LPOP key count`, or trims a
    /// stream.
    pub(crate) fn of(command: &Command, args: Args<'_>) -> Self {
        match command.spec.name {
            "xadd" | "xtrim" => return Self::trimmed(args),
            "xautoclaim" if args.len() > 7 => return Self::ALL,
            // Another request may find the values under other names.
            "renamenx" | "move" | "swapdb" => return Self::ALL,
            _ if !command.is_brief => return Self::ALL,
            _ => {}
        }
        let may_count = command.has_one_key && command.spec.arity == -2 && args.len() == 3;
        let count = if may_count { number::parse_u64(args.at(2)) } else { None };
        count.map_or(Self::ONE, |count| Self::AtMost(count as usize))
    }

    /// By the options, which follow the key. How many entries are before an identity shows only in the stream.
    fn trimmed(args: Args<'_>) -> Self {
        let mut at = 2;
        loop {
            let is = |name: &[u8]| args.get(at).is_some_and(|arg| arg.eq_ignore_ascii_case(name));
            if is(b"nomkstream") {
                at += 1;
            } else if is(b"limit") {
                at += 2;
            } else if is(b"maxlen") {
                // A sign may stand before the number.
                let number = [at + 1, at + 2].into_iter().find_map(|at| {
                    let arg = args.get(at)?;
                    number::parse_u64(arg)
                });
                return number.map_or(Self::ALL, |len| Self::Beyond(len as usize));
            } else {
                return if is(b"minid") { Self::ALL } else { Self::ONE };
            }
        }
    }

    /// Whether it is no more than one, whatever there is.
    pub(crate) fn is_one(self) -> bool {
        matches!(self, Self::AtMost(..=1))
    }

    /// Of so many elements.
    pub(crate) fn elements(self, there: usize) -> usize {
        match self {
            Self::AtMost(count) => there.min(count),
            Self::Beyond(count) => there.saturating_sub(count),
        }
    }
}

/// What is known about a queued request.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// The hash of its key, if its command has exactly one.
    pub hash: Option<KeyHash>,
    /// The index of its command, unless that has to be looked up again.
    pub command: Option<u16>,
}

/// What a transaction has to lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs<'a> {
    /// The shards of these keys. Without any, the transaction needs no data.
    Keys(&'a [KeyHash]),
    /// All shards.
    All,
}

/// The queue would have more bytes than a client may have the server keep.
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
    /// How many requests are queued.
    #[must_use]
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// Whether nothing is queued.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// The requests.
    #[must_use]
    pub fn requests(&self) -> &KeptRequests {
        &self.requests
    }

    /// What is known of each request.
    #[must_use]
    pub fn known(&self) -> &[Known] {
        &self.known
    }

    /// The access of EXEC to the data: none if it will be refused.
    #[must_use]
    pub fn access(&self) -> Access {
        if self.is_doomed { Access::READ } else { self.access }
    }

    /// What EXEC has to lock.
    #[must_use]
    pub fn needs(&self) -> Needs<'_> {
        if self.needs_all { Needs::All } else { Needs::Keys(&self.keys) }
    }

    /// Has EXEC refused.
    pub fn doom(&mut self) {
        self.is_doomed = true;
    }

    /// Memory that the queue occupies.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>()
            + self.requests.memory_bytes()
            + self.known.capacity() * size_of::<Known>()
            + self.keys.capacity() * size_of::<KeyHash>()
    }

    /// Keeps a call of `command`. The hash of its first key may be known.
    ///
    /// # Errors
    /// When the queue would have more than `max` bytes.
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
        if !command.is_one_element {
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
            // A program may reach for keys that it has not declared, and what ran before it in the transaction cannot
            // be run again: it may have done more than to change keys.
            None => self.needs_all = true,
        }
    }
}
