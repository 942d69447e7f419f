//! What is known of one client.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicI64, AtomicU8, AtomicU16, AtomicU32, AtomicUsize, Ordering::Relaxed,
};

use parking_lot::Mutex;
use tierce_keyspace::Waiter;
use tierce_net::{ConnInfo, ConnKey, Endpoints};

use crate::config::Peer;

/// Bytes of replies that a socket takes at once, unless the client has stopped reading.
const OUTPUT_IN_PASSING_MAX: usize = 16 << 10;

/// A connected client, as everybody may read it.
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
    /// Its connection, for those who want to end it.
    pub conn: ConnKey,
    /// The descriptor of its socket.
    pub fd: i32,
    /// Came through the Unix socket.
    pub unix: bool,
    /// Is on this machine: a loopback address, or the Unix socket.
    pub local: bool,
    /// When it came, in Unix milliseconds.
    pub created_ms: i64,
    /// What it says of itself.
    pub identity: Mutex<Identity>,
    /// When it last sent a command, in Unix milliseconds.
    pub active_ms: AtomicI64,
    /// Its selected database.
    pub db: AtomicU16,
    /// 2 or 3.
    pub protocol: AtomicU8,
    /// [`ClientFlags`].
    pub flags: AtomicU32,
    /// Identity of its last command in the command table, plus one; zero before the first.
    pub last_command: AtomicU16,
    /// What it waits for.
    pub waiter: Mutex<Option<Arc<Waiter>>>,
    /// Bytes it sent that wait for the rest of their command.
    pub input_bytes: AtomicUsize,
    /// Bytes that wait until it reads.
    pub output_bytes: AtomicUsize,
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

    const LETTERS: [(Self, char); 5] = [
        (Self::MONITOR, 'O'),
        (Self::BLOCKED, 'b'),
        (Self::NO_EVICT, 'e'),
        (Self::NO_TOUCH, 'T'),
        (Self::CLOSING, 'A'),
    ];
}

impl Client {
    /// A client that has just connected; `unix_path` is where the Unix socket is, if there is one.
    #[must_use]
    pub fn new(info: &ConnInfo, unix_path: &str, now_ms: i64) -> Self {
        let unix_path = || format!("{unix_path}:0");
        let (addr, laddr, unix, local) = match info.endpoints {
            Endpoints::Tcp { peer, local } => {
                (peer.to_string(), local.to_string(), false, peer.ip().is_loopback())
            }
            Endpoints::Unix => (unix_path(), unix_path(), true, true),
        };
        Self {
            id: info.key.id,
            addr,
            laddr,
            conn: info.key,
            fd: info.fd,
            unix,
            local,
            created_ms: now_ms,
            identity: Mutex::default(),
            active_ms: AtomicI64::new(now_ms),
            db: AtomicU16::new(0),
            protocol: AtomicU8::new(2),
            flags: AtomicU32::new(0),
            last_command: AtomicU16::new(0),
            waiter: Mutex::default(),
            input_bytes: AtomicUsize::new(0),
            output_bytes: AtomicUsize::new(0),
        }
    }

    /// Whether it is on this machine.
    #[must_use]
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

    /// Lets others see how many bytes wait for the rest of a request, and to be read by the client.
    /// A few replies that are about to be sent are no backlog.
    #[inline]
    pub fn note_backlogs(&self, input: usize, output: usize) {
        let output = if output > OUTPUT_IN_PASSING_MAX { output } else { 0 };
        self.input_bytes.store(input, Relaxed);
        self.output_bytes.store(output, Relaxed);
    }

    /// The line of `CLIENT LIST`; `command` is the name of its last command.
    #[must_use]
    pub fn describe(&self, now_ms: i64, command: &str) -> String {
        let identity = self.identity.lock().clone();
        let qbuf = self.input_bytes.load(Relaxed);
        let omem = self.output_bytes.load(Relaxed);
        let mut line = String::with_capacity(320);
        let age = (now_ms - self.created_ms).max(0) / 1000;
        let idle = (now_ms - self.active_ms.load(Relaxed)).max(0) / 1000;
        let _ = write!(
            line,
            "id={} addr={} laddr={} fd={} name={} age={age} idle={idle} flags={} db={} sub=0 psub=0 \
             ssub=0 multi=-1 qbuf={qbuf} qbuf-free=0 argv-mem=0 multi-mem=0 rbs=0 rbp=0 obl=0 \
             oll={} omem={omem} tot-mem={} events={} cmd={command} user=default redir=-1 resp={} \
             lib-name={} lib-ver={}",
            self.id,
            self.addr,
            self.laddr,
            self.fd,
            identity.name,
            self.letters(),
            self.db.load(Relaxed),
            usize::from(omem > 0),
            size_of::<Self>() + qbuf + omem,
            if omem > 0 { "rw" } else { "r" },
            self.protocol.load(Relaxed),
            identity.library,
            identity.library_version,
        );
        line
    }

    fn letters(&self) -> String {
        let set = ClientFlags::LETTERS.iter().filter(|(flag, _)| self.has(*flag));
        let unix = self.unix.then_some('U');
        let letters: String = unix.into_iter().chain(set.map(|(_, letter)| *letter)).collect();
        if letters.is_empty() { "N".to_owned() } else { letters }
    }
}

// Printable, without spaces: what may stand in a field of `CLIENT LIST`.
fn is_clean(text: &[u8]) -> bool {
    text.iter().all(|byte| (b'!'..=b'~').contains(byte))
}

impl Identity {
    /// `text` as a field of `CLIENT LIST`, when it may be one.
    #[must_use]
    pub fn clean(text: &[u8]) -> Option<String> {
        is_clean(text).then(|| String::from_utf8_lossy(text).into_owned())
    }
}
