//! What the server knows about one client.

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
use crate::command::CommandId;
use crate::config::Peer;
use crate::waiting::ConnAddress;

/// Bytes of replies that a socket takes at once, unless the client has stopped reading.
const OUTPUT_IN_PASSING_MAX: usize = 16 << 10;

/// A connected client, as others may read it.
///
/// The worker that owns the connection stores into the atomics, once a batch; all others only
/// read them, so relaxed order suffices and a reader may see the state of a moment ago.
pub struct Client {
    /// Never used twice in one life of the server.
    pub id: u64,
    /// Where it connects from.
    pub addr: String,
    /// Which of our addresses it connected to.
    pub laddr: String,
    /// Its connection, for closing it.
    pub conn: ConnAddress,
    /// The descriptor of its socket.
    pub fd: i32,
    /// Came through the Unix socket.
    pub unix: bool,
    /// The protocol that it speaks.
    pub speaks: Protocol,
    /// Is on this machine: a loopback address, or the Unix socket.
    pub local: bool,
    /// When it came, in Unix milliseconds.
    pub created_ms: i64,
    /// What it says of itself.
    pub identity: Mutex<Identity>,
    /// The user that it is; none for what is no client.
    user: Mutex<Option<Arc<User>>>,
    /// When it last sent a command, in Unix milliseconds.
    pub active_ms: AtomicI64,
    /// Its selected database.
    pub db: AtomicU16,
    /// 2 or 3.
    pub protocol: AtomicU8,
    /// [`ClientFlags`].
    pub flags: AtomicU32,
    /// Identity of its last command in the command table, plus one; zero before the first.
    last_command: AtomicU16,
    /// How many channels, patterns, channels of shards and prefixes of keys it subscribes to.
    pub subscriptions: [AtomicU32; 4],
    /// The client that gets its invalidations: 0 for itself, -1 if it tracks no keys.
    pub redirect: AtomicI64,
    /// What it waits for.
    pub waiter: Mutex<Option<Arc<Waiter>>>,
    /// Results that it, or another client for it, waits for.
    pub results: Mutex<Results>,
    /// What it watches.
    pub watch: Mutex<Option<Arc<WatchState>>>,
    /// How many requests it has queued since MULTI; -1 without MULTI.
    pub queued: AtomicI32,
    /// Memory that they occupy.
    pub queued_bytes: AtomicUsize,
    /// Bytes it sent that wait for the rest of their command.
    pub input_bytes: AtomicUsize,
    /// The memory that they were in when that was looked at last.
    pub input_capacity: AtomicUsize,
    /// Bytes that wait until it reads.
    pub output_bytes: AtomicUsize,
    /// Memory of its connection beside its buffers: the state of an incomplete request.
    pub parser_bytes: AtomicUsize,
    /// What it occupies, as it was counted last towards `maxmemory-clients`.
    pub(super) counted_bytes: AtomicUsize,
    /// Where it is among clients of its size.
    pub(super) bucket: AtomicU8,
    /// Where it was when it was chosen to be closed.
    pub(super) chosen_bucket: AtomicU8,
    connection_bytes: usize,
}

/// About what a watched key with a short name takes.
const WATCHED_KEY_BYTES: usize = 150;

/// About what a subscription to a channel with a short name takes.
const SUBSCRIPTION_BYTES: usize = 270;

/// Where a client comes from. The default is a caller that is no client: the server itself.
#[derive(Debug, Default)]
pub struct Origin {
    /// Its connection.
    pub conn: ConnAddress,
    /// Where it connects from.
    pub addr: String,
    /// Which of our addresses it connected to.
    pub laddr: String,
    /// The descriptor of its socket.
    pub fd: i32,
    /// Came through the Unix socket.
    pub unix: bool,
    /// The protocol that it speaks.
    pub speaks: Protocol,
    /// Is on this machine.
    pub local: bool,
    /// Memory of a connection that is idle.
    pub connection_bytes: usize,
}

/// What a client says of itself; none of it is checked.
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
    /// Waits for keys.
    pub const BLOCKED: Self = Self(1 << 4);
    /// Has subscriptions.
    pub const PUBSUB: Self = Self(1 << 5);
    /// Tracks keys.
    pub const TRACKING: Self = Self(1 << 6);
    /// Tracks keys, but the client that gets its invalidations has gone.
    pub const BROKEN_REDIRECT: Self = Self(1 << 7);
    /// Tracks all keys with some prefixes.
    pub const BROADCAST: Self = Self(1 << 8);
    /// Has ended.
    pub const GONE: Self = Self(1 << 9);
    /// Gets results of other clients' commands (`CLIENT ACCEPTNB`).
    pub const ACCEPTS_RESULTS: Self = Self(1 << 10);
    /// Has been chosen to be closed for `maxmemory-clients`.
    pub const EVICTED: Self = Self(1 << 12);
    /// Goes elsewhere when it is told to (`CLIENT CAPA redirect`).
    pub const REDIRECTS: Self = Self(1 << 13);
    /// Reads what a replica has all the same (`READONLY`).
    pub const READS_REPLICAS: Self = Self(1 << 14);

    /// Is a replica.
    pub const REPLICA: Self = Self(1 << 11);

    const LETTERS: [(Self, char); 11] = [
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
    ];
}

impl Client {
    /// A client that has just come from there.
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

    /// The user that it is; `None` for what is no client and has all rights.
    pub fn user(&self) -> Option<Arc<User>> {
        self.user.lock().clone()
    }

    /// Lets others see which user it is.
    pub fn set_user(&self, user: Option<&Arc<User>>) {
        *self.user.lock() = user.cloned();
    }

    /// Its address without the port, to tell machines apart.
    pub fn host(&self) -> &str {
        self.addr.rsplit_once(':').map_or(self.addr.as_str(), |(host, _)| host)
    }

    /// Whether it is on this machine.
    pub fn peer(&self) -> Peer {
        if self.local { Peer::Local } else { Peer::Remote }
    }

    /// Whether all of `flags` are set.
    pub fn has(&self, flags: ClientFlags) -> bool {
        self.flags.load(Relaxed) & flags.0 == flags.0
    }

    /// Sets or clears `flags`; called by the worker that owns the client, and to mark it as
    /// closing by anyone.
    pub fn set(&self, flags: ClientFlags, on: bool) {
        if on {
            self.flags.fetch_or(flags.0, Relaxed);
        } else {
            self.flags.fetch_and(!flags.0, Relaxed);
        }
    }

    /// Lets others see which command, or request of another protocol, came last.
    #[inline]
    pub fn note_command(&self, id: CommandId) {
        self.last_command.store(id.0 + 1, Relaxed);
    }

    /// Which one came last. For a client that waits, that is the one that waits.
    pub fn last_command(&self) -> Option<CommandId> {
        self.last_command.load(Relaxed).checked_sub(1).map(CommandId)
    }

    /// The protocol version that it has chosen.
    pub fn proto(&self) -> Proto {
        if self.protocol.load(Relaxed) == 3 { Proto::Resp3 } else { Proto::Resp2 }
    }

    /// Whether its connection has ended.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.has(ClientFlags::GONE)
    }

    /// Whether another client has killed it, or its connection ends.
    #[inline]
    pub fn is_closing(&self) -> bool {
        self.flags.load(Relaxed) & ClientFlags::CLOSING.0 != 0
    }

    /// Lets others see how many bytes wait for the rest of a request, and to be read by the client.
    #[inline]
    pub fn note_backlogs(&self, input: usize, output: usize) {
        self.input_bytes.store(input, Relaxed);
        self.note_output(output);
    }

    /// The same for output alone.
    #[inline]
    pub fn note_output(&self, output: usize) {
        self.output_bytes.store(output, Relaxed);
    }

    /// What to note of the output that waits behind a call. A few replies that are about to be sent are no backlog, if
    /// nothing was in front of them.
    #[inline]
    #[must_use]
    pub fn backlog_of(output: &Output) -> usize {
        let pending = output.pending();
        if pending > OUTPUT_IN_PASSING_MAX || output.follows_unsent() { pending } else { 0 }
    }

    /// Lets others see how many requests it has queued since MULTI, and the memory that they occupy.
    #[inline]
    pub fn note_transaction(&self, queued: Option<(usize, usize)>) {
        let (len, bytes) = queued.map_or((-1, 0), |(len, bytes)| (len as i32, bytes));
        self.queued.store(len, Relaxed);
        self.queued_bytes.store(bytes, Relaxed);
    }

    /// Memory that it occupies: its record and buffers, what it has queued, waits for, watches and subscribes to. That
    /// of watches and subscriptions is estimated, since they share it with those of other clients.
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
            + self.results.lock().memory_bytes()
            + watched * WATCHED_KEY_BYTES
            + subscriptions * SUBSCRIPTION_BYTES
    }

    /// Room behind the input that waits. When nothing is left of the input, there is no memory for it either.
    fn free_input_bytes(&self) -> usize {
        match self.input_bytes.load(Relaxed) {
            0 => 0,
            used => self.input_capacity.load(Relaxed).saturating_sub(used),
        }
    }

    /// The line of `CLIENT LIST`; `command` is the name of its last command.
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

    fn letters(&self) -> String {
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

// Printable, without spaces: allowed in a field of `CLIENT LIST`.
fn is_clean(text: &[u8]) -> bool {
    text.iter().all(|byte| (b'!'..=b'~').contains(byte))
}

impl Identity {
    /// `text` as a field of `CLIENT LIST`, when it may be one.
    pub fn clean(text: &[u8]) -> Option<String> {
        is_clean(text).then(|| String::from_utf8_lossy(text).into_owned())
    }
}
