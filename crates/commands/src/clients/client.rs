//! State of one client that other connections can see.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicI32, AtomicI64, AtomicU8, AtomicU16, AtomicU32, AtomicUsize, Ordering::Relaxed,
};

use parking_lot::Mutex;
use tierce_keyspace::{Waiter, WatchState};
use tierce_output::Output;
use tierce_wire::resp::Proto;

use super::memory::NO_BUCKET;
use super::{Protocol, Results};
use crate::acl::User;
use crate::clock;
use crate::command::CommandId;
use crate::command_log::{Entry, shorten_name};
use crate::config::Peer;
use crate::waiting::ConnAddress;

/// Bytes of replies that a socket takes at once, unless the client has stopped reading.
const OUTPUT_IN_PASSING_MAX: usize = 16 << 10;

/// State of a connected client that other threads can read.
///
/// The worker that owns the connection stores into the atomics, once a batch. All others only read them. So relaxed
/// order suffices, and a reader may see a slightly outdated state.
pub struct Client {
    /// Unique during the life of the server.
    pub id: u64,
    /// Address of the client.
    pub addr: String,
    /// Address of the server that it connected to.
    pub laddr: String,
    /// Its connection, used to close it.
    pub conn: ConnAddress,
    /// The descriptor of its socket.
    pub fd: i32,
    /// True if it uses the Unix socket.
    pub unix: bool,
    /// The protocol that it speaks.
    pub speaks: Protocol,
    /// True if it is on this machine: a loopback address, or the Unix socket.
    pub local: bool,
    /// Time of its connection, in Unix milliseconds.
    pub created_ms: i64,
    /// Names that it gave itself.
    pub identity: Mutex<Identity>,
    /// Its user; `None` for a caller that is no client.
    user: Mutex<Option<Arc<User>>>,
    /// Time of its last command, in Unix milliseconds.
    pub active_ms: AtomicI64,
    /// Its selected database.
    pub db: AtomicU16,
    /// 2 or 3.
    pub protocol: AtomicU8,
    /// [`ClientFlags`].
    pub flags: AtomicU32,
    /// Identity of its last command in the command table, plus one; zero before the first.
    last_command: AtomicU16,
    /// Numbers of its subscriptions: channels, patterns, shard channels and key prefixes.
    pub subscriptions: [AtomicU32; 4],
    /// Id of the client that gets its invalidations: 0 for itself, -1 if it tracks no keys.
    pub redirect: AtomicI64,
    /// The blocked command, if it waits.
    pub waiter: Mutex<Option<Arc<Waiter>>>,
    /// Deferred results that it waits for, or that others wait for on its behalf.
    pub results: Mutex<Results>,
    /// Its watched keys.
    pub watch: Mutex<Option<Arc<WatchState>>>,
    /// Number of requests queued since MULTI; -1 without MULTI.
    pub queued: AtomicI32,
    /// Memory of these requests.
    pub queued_bytes: AtomicUsize,
    /// Memory of its prepared lists of fields.
    pub fieldset_bytes: AtomicUsize,
    /// Received bytes of an incomplete command.
    pub input_bytes: AtomicUsize,
    /// Capacity of the buffer for them, when last looked at.
    pub input_capacity: AtomicUsize,
    /// Bytes of replies that it has not read yet.
    pub output_bytes: AtomicUsize,
    /// Memory of its connection besides its buffers: the state of an incomplete request.
    pub parser_bytes: AtomicUsize,
    /// Its memory, as last counted towards `maxmemory-clients`.
    pub(super) counted_bytes: AtomicUsize,
    /// Its bucket by size.
    pub(super) bucket: AtomicU8,
    /// Its bucket when it was chosen for eviction.
    pub(super) chosen_bucket: AtomicU8,
    connection_bytes: usize,
}

/// Approximate memory of a watched key with a short name.
const WATCHED_KEY_BYTES: usize = 150;

/// Approximate memory of a subscription to a channel with a short name.
const SUBSCRIPTION_BYTES: usize = 270;

/// Origin of a client. The default is a caller that is no client: the server itself.
#[derive(Debug, Default)]
pub struct Origin {
    /// Its connection.
    pub conn: ConnAddress,
    /// Address of the client.
    pub addr: String,
    /// Address of the server that it connected to.
    pub laddr: String,
    /// The descriptor of its socket.
    pub fd: i32,
    /// True if it uses the Unix socket.
    pub unix: bool,
    /// The protocol that it speaks.
    pub speaks: Protocol,
    /// True if it is on this machine.
    pub local: bool,
    /// Memory of an idle connection.
    pub connection_bytes: usize,
}

/// Names that a client gives itself. None of them is checked.
#[derive(Default, Clone)]
pub struct Identity {
    /// `CLIENT SETNAME`.
    pub name: String,
    /// `CLIENT SETINFO LIB-NAME`.
    pub library: String,
    /// `CLIENT SETINFO LIB-VER`.
    pub library_version: String,
}

/// Properties of a client, as letters in the `flags` field of `CLIENT LIST`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClientFlags(pub u32);

impl ClientFlags {
    /// Watches all commands (`MONITOR`).
    pub const MONITOR: Self = Self(1);
    /// Is exempt from client eviction.
    pub const NO_EVICT: Self = Self(1 << 1);
    /// Does not renew access times.
    pub const NO_TOUCH: Self = Self(1 << 2);
    /// Is going to be closed.
    pub const CLOSING: Self = Self(1 << 3);
    /// Is blocked on keys.
    pub const BLOCKED: Self = Self(1 << 4);
    /// Has subscriptions.
    pub const PUBSUB: Self = Self(1 << 5);
    /// Tracks keys.
    pub const TRACKING: Self = Self(1 << 6);
    /// Tracks keys, but the client that gets its invalidations has disconnected.
    pub const BROKEN_REDIRECT: Self = Self(1 << 7);
    /// Tracks all keys with some prefixes.
    pub const BROADCAST: Self = Self(1 << 8);
    /// Has disconnected.
    pub const GONE: Self = Self(1 << 9);
    /// Accepts results of other clients' commands (`CLIENT ACCEPTNB`).
    pub const ACCEPTS_RESULTS: Self = Self(1 << 10);
    /// Has been chosen for eviction (`maxmemory-clients`).
    pub const EVICTED: Self = Self(1 << 12);
    /// Follows redirections (`CLIENT CAPA redirect`).
    pub const REDIRECTS: Self = Self(1 << 13);
    /// Reads possibly stale data of a replica (`READONLY`).
    pub const READS_REPLICAS: Self = Self(1 << 14);
    /// Gets notifications of maintenance (`CLIENT MAINT_NOTIFICATIONS`).
    pub const MAINTENANCE: Self = Self(1 << 15);
    /// Is told no address in them: it connects again to the one that it has.
    pub const KEEPS_ENDPOINT: Self = Self(1 << 16);
    /// Was told to move, as the last one of them.
    pub const MOVED: Self = Self(1 << 17);
    /// Waits behind requests of the same pipeline that have run.
    pub const WAITS_IN_PIPELINE: Self = Self(1 << 18);

    /// Is a replica.
    pub const REPLICA: Self = Self(1 << 11);

    const LETTERS: [(Self, char); 12] = [
        (Self::REPLICA, 'S'),
        (Self::MONITOR, 'O'),
        (Self::PUBSUB, 'P'),
        (Self::BLOCKED, 'b'),
        (Self::TRACKING, 't'),
        (Self::BROKEN_REDIRECT, 'R'),
        (Self::BROADCAST, 'B'),
        (Self::NO_EVICT, 'e'),
        (Self::NO_TOUCH, 'T'),
        (Self::CLOSING, 'A'),
        (Self::READS_REPLICAS, 'r'),
        (Self::MAINTENANCE, 'm'),
    ];
}

impl Client {
    /// Returns an entry of a log of commands about a call of this client.
    pub(crate) fn log_entry(&self, amount: u64, args: Vec<Vec<u8>>) -> Entry {
        Entry {
            id: 0,
            unix_seconds: clock::unix_ms() / 1000,
            amount,
            args,
            client_addr: self.addr.clone(),
            client_name: shorten_name(&self.identity.lock().name),
        }
    }

    /// Creates a client that has just connected.
    pub fn new(origin: Origin, now_ms: i64) -> Self {
        let Origin { conn, addr, laddr, fd, unix, speaks, local, connection_bytes } = origin;
        Self {
            id: conn.id,
            addr,
            laddr,
            conn,
            fd,
            unix,
            speaks,
            local,
            created_ms: now_ms,
            identity: Mutex::default(),
            user: Mutex::default(),
            active_ms: AtomicI64::new(now_ms),
            db: AtomicU16::new(0),
            protocol: AtomicU8::new(2),
            flags: AtomicU32::new(0),
            last_command: AtomicU16::new(0),
            subscriptions: Default::default(),
            redirect: AtomicI64::new(-1),
            waiter: Mutex::default(),
            results: Mutex::default(),
            watch: Mutex::default(),
            queued: AtomicI32::new(-1),
            queued_bytes: AtomicUsize::new(0),
            fieldset_bytes: AtomicUsize::new(0),
            input_bytes: AtomicUsize::new(0),
            input_capacity: AtomicUsize::new(0),
            output_bytes: AtomicUsize::new(0),
            parser_bytes: AtomicUsize::new(0),
            counted_bytes: AtomicUsize::new(0),
            bucket: AtomicU8::new(NO_BUCKET),
            chosen_bucket: AtomicU8::new(0),
            connection_bytes,
        }
    }

    /// Returns its user; `None` for a caller that is no client and has all rights.
    pub fn user(&self) -> Option<Arc<User>> {
        self.user.lock().clone()
    }

    /// Publishes its user.
    pub fn set_user(&self, user: Option<&Arc<User>>) {
        *self.user.lock() = user.cloned();
    }

    /// Returns its address without the port, which identifies the machine.
    pub fn host(&self) -> &str {
        self.addr.rsplit_once(':').map_or(self.addr.as_str(), |(host, _)| host)
    }

    /// Returns whether it is on this machine.
    pub fn peer(&self) -> Peer {
        if self.local { Peer::Local } else { Peer::Remote }
    }

    /// Returns true if all of `flags` are set.
    pub fn has(&self, flags: ClientFlags) -> bool {
        self.flags.load(Relaxed) & flags.0 == flags.0
    }

    /// Sets or clears `flags`. Only the worker that owns the client calls it, except that any thread may mark it as
    /// closing.
    pub fn set(&self, flags: ClientFlags, on: bool) {
        if on {
            self.flags.fetch_or(flags.0, Relaxed);
        } else {
            self.flags.fetch_and(!flags.0, Relaxed);
        }
    }

    /// Publishes the last command, or the last request of another protocol.
    #[inline]
    pub fn note_command(&self, id: CommandId) {
        self.last_command.store(id.0 + 1, Relaxed);
    }

    /// Returns the last command. For a blocked client, this is the command that is blocked.
    pub fn last_command(&self) -> Option<CommandId> {
        self.last_command.load(Relaxed).checked_sub(1).map(CommandId)
    }

    /// Returns the protocol version that it has chosen.
    pub fn proto(&self) -> Proto {
        if self.protocol.load(Relaxed) == 3 { Proto::Resp3 } else { Proto::Resp2 }
    }

    /// Returns true if it has disconnected.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.has(ClientFlags::GONE)
    }

    /// Returns true if another client has killed it, or if its connection is being closed.
    #[inline]
    pub fn is_closing(&self) -> bool {
        self.flags.load(Relaxed) & ClientFlags::CLOSING.0 != 0
    }

    /// Publishes the number of bytes of an incomplete request, and of replies that the client has not read.
    #[inline]
    pub fn note_backlogs(&self, input: usize, output: usize) {
        self.input_bytes.store(input, Relaxed);
        self.note_output(output);
    }

    /// Publishes the number of bytes of replies that the client has not read.
    #[inline]
    pub fn note_output(&self, output: usize) {
        self.output_bytes.store(output, Relaxed);
    }

    /// Returns the output backlog to publish after a call. A few replies that are about to be sent are no backlog, if
    /// nothing waited before them.
    #[inline]
    #[must_use]
    pub fn backlog_of(output: &Output) -> usize {
        let pending = output.pending();
        if pending > OUTPUT_IN_PASSING_MAX || output.follows_unsent() { pending } else { 0 }
    }

    /// Publishes the number of requests queued since MULTI, and their memory.
    #[inline]
    pub fn note_transaction(&self, queued: Option<(usize, usize)>) {
        let (len, bytes) = queued.map_or((-1, 0), |(len, bytes)| (len as i32, bytes));
        self.queued.store(len, Relaxed);
        self.queued_bytes.store(bytes, Relaxed);
    }

    /// Returns its memory: its record, its buffers, its queued requests, deferred results, prepared lists of
    /// fields, watched keys and subscriptions. The last two are estimated, since their memory is shared with those of other clients.
    pub fn memory_bytes(&self) -> usize {
        let input = self.input_bytes.load(Relaxed) + self.free_input_bytes();
        let watched = self.watch.lock().as_ref().map_or(0, |watch| watch.keys());
        let subscriptions: usize =
            self.subscriptions.iter().map(|count| count.load(Relaxed) as usize).sum();
        size_of::<Self>()
            + self.connection_bytes
            + input
            + self.parser_bytes.load(Relaxed)
            + self.output_bytes.load(Relaxed)
            + self.queued_bytes.load(Relaxed)
            + self.fieldset_bytes.load(Relaxed)
            + self.results.lock().memory_bytes()
            + watched * WATCHED_KEY_BYTES
            + subscriptions * SUBSCRIPTION_BYTES
    }

    /// Returns the free room after the pending input. Without pending input there is no buffer.
    fn free_input_bytes(&self) -> usize {
        match self.input_bytes.load(Relaxed) {
            0 => 0,
            used => self.input_capacity.load(Relaxed).saturating_sub(used),
        }
    }

    /// Returns its line of `CLIENT LIST`; `command` is the name of its last command.
    pub fn describe(&self, now_ms: i64, command: &str) -> String {
        let identity = self.identity.lock().clone();
        let qbuf = self.input_bytes.load(Relaxed);
        let qbuf_free = self.free_input_bytes();
        let omem = self.output_bytes.load(Relaxed);
        let multi = self.queued.load(Relaxed);
        let multi_mem = self.queued_bytes.load(Relaxed);
        let watch = self.watch.lock().as_ref().map_or(0, |watch| watch.keys());
        let user = self.user();
        let user = user.as_ref().map_or("(superuser)".into(), |user| user.display_name());
        let mut line = String::with_capacity(320);
        let age = (now_ms - self.created_ms).max(0) / 1000;
        let idle = (now_ms - self.active_ms.load(Relaxed)).max(0) / 1000;
        let _ = write!(
            line,
            "id={} addr={} laddr={} fd={} name={} age={age} idle={idle} flags={} db={} sub={} psub={} \
             ssub={} multi={multi} watch={watch} qbuf={qbuf} qbuf-free={qbuf_free} argv-mem=0 multi-mem={multi_mem} rbs=0 rbp=0 obl=0 \
             oll={} omem={omem} tot-mem={} events={} cmd={command} user={user} redir={} resp={} \
             lib-name={} lib-ver={}",
            self.id,
            self.addr,
            self.laddr,
            self.fd,
            identity.name,
            self.letters(),
            self.db.load(Relaxed),
            self.subscriptions[0].load(Relaxed),
            self.subscriptions[1].load(Relaxed),
            self.subscriptions[2].load(Relaxed),
            usize::from(omem > 0),
            self.memory_bytes(),
            if omem > 0 { "rw" } else { "r" },
            self.redirect.load(Relaxed),
            self.protocol.load(Relaxed),
            identity.library,
            identity.library_version,
        );
        line
    }

    /// Returns the letters of its flags, as `CLIENT LIST` shows them.
    pub(super) fn letters(&self) -> String {
        let set = ClientFlags::LETTERS.iter().filter(|(flag, _)| self.has(*flag));
        let unix = self.unix.then_some('U');
        let multi = (self.queued.load(Relaxed) >= 0).then_some('x');
        let is_dirty = self.watch.lock().as_ref().is_some_and(|watch| watch.is_dirty());
        let dirty = is_dirty.then_some('d');
        let own = unix.into_iter().chain(multi).chain(dirty);
        let letters: String = own.chain(set.map(|(_, letter)| *letter)).collect();
        if letters.is_empty() { "N".to_owned() } else { letters }
    }
}

// Returns true if the text is printable without spaces, as a field of `CLIENT LIST` must be.
fn is_clean(text: &[u8]) -> bool {
    text.iter().all(|byte| (b'!'..=b'~').contains(byte))
}

impl Identity {
    /// Returns `text` as a field of `CLIENT LIST`, if it is a valid one.
    pub fn clean(text: &[u8]) -> Option<String> {
        is_clean(text).then(|| String::from_utf8_lossy(text).into_owned())
    }
}
