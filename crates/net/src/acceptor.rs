//! The thread that accepts connections and hands them to workers.
//!
//! - A connection goes to the worker with the fewest connections, the lowest number first.
//! - The last descriptors are reserved for files of the process, so that many clients cannot keep it from writing
//!   ([`DESCRIPTORS_RESERVED`]). Sockets of all listeners count, lingering ones too: the check uses the number of the
//!   descriptor, because the system always assigns the lowest free one.
//! - An address that opens connections too fast is rejected here, before a worker or TLS spends time on it
//!   ([`Arrivals`]). Unix sockets have no addresses, and no such limit.
//! - When the process is out of file descriptors, waiting connections are accepted on a spare one and closed at once:
//!   their peers get an answer, and the thread does not spin on a listener that stays readable.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::Ordering;

use rustix::event::epoll::{self, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::sockopt::{
    set_socket_keepalive, set_tcp_keepcnt, set_tcp_keepidle, set_tcp_keepintvl, set_tcp_nodelay,
};
use rustix::net::{SocketAddrAny, SocketFlags, acceptfrom_with, getsockname};
use rustix::process::{Resource, getrlimit};
use std::time::Duration;

use crate::arrivals::Arrivals;
use crate::connection::{Endpoints, ListenerTag, WorkerId};
use crate::handle::{Accepted, AcceptorMail, Adopted, Handle, Mail};
use crate::listener::{Encryption, ListenAddress, Listener};
use crate::socket;
use crate::system_clock::monotonic_nanos;

/// Maximum number of connections accepted from one listener before the others are checked.
const ACCEPTS_PER_TURN_MAX: usize = 256;

/// Pause before the thread polls the listeners again when the system is out of resources and the spare descriptor did
/// not help.
const BACK_OFF: Duration = Duration::from_millis(20);

/// Number of unanswered probes after which a silent peer is considered dead.
const KEEPALIVE_PROBES: u32 = 3;

/// Number of descriptors below the process' limit that no connection gets: those of the files that a compaction, a
/// snapshot and a backup open at the same time, and some more.
pub const DESCRIPTORS_RESERVED: u64 = 16;

/// Token of the mailbox's events; listeners count from 0.
const MAILBOX_TOKEN: u64 = u64::MAX;

/// Reason why the acceptor closes a connection that it has just accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnedAway {
    /// The remaining descriptors are reserved for files.
    NoDescriptor,
    /// Its address opens more connections per second than allowed.
    TooFast,
}

/// State of the acceptor thread.
#[derive(Debug)]
pub(crate) struct Acceptor<M: Send + 'static> {
    epoll: OwnedFd,
    handle: Handle<M>,
    listeners: HashMap<u64, Listener>,
    next_token: u64,
    next_id: u64,
    spare: Option<OwnedFd>,
    /// Connection rates of addresses, while they are limited.
    arrivals: Arrivals,
    last_words: fn(ListenerTag, TurnedAway) -> &'static [u8],
}

/// Outcome of an attempt to accept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attempt {
    Accepted,
    NoneWaiting,
    /// This connection failed; others may succeed.
    Failed,
    OutOfResources,
}

impl<M: Send + 'static> Acceptor<M> {
    pub(crate) fn new(
        handle: Handle<M>,
        listeners: Vec<Listener>,
        last_words: fn(ListenerTag, TurnedAway) -> &'static [u8],
    ) -> rustix::io::Result<Acceptor<M>> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let wake = handle.acceptor_mailbox().wake_fd();
        epoll::add(&epoll, wake, EventData::new_u64(MAILBOX_TOKEN), EventFlags::IN)?;
        let mut acceptor = Acceptor {
            epoll,
            handle,
            listeners: HashMap::new(),
            next_token: 0,
            next_id: 1,
            spare: spare_fd(),
            arrivals: Arrivals::default(),
            last_words,
        };
        for listener in listeners {
            acceptor.add(listener)?;
        }
        Ok(acceptor)
    }

    /// Accepts until told to stop.
    pub(crate) fn run(mut self) {
        let none = Event { flags: EventFlags::empty(), data: EventData::new_u64(0) };
        let mut events = [none; 16];
        let mut mail = Vec::new();
        loop {
            // The mailbox is checked after every wait, so a post before it is not missed.
            let timeout = (!self.handle.acceptor_mailbox().fall_asleep()).then(Default::default);
            let count = match epoll::wait(&self.epoll, &mut events, timeout.as_ref()) {
                Ok(count) => count,
                Err(Errno::INTR) => 0,
                // The descriptor is ours and open, and the buffer is valid.
                Err(errno) => panic!("epoll_wait failed: {errno}"),
            };
            self.handle.acceptor_mailbox().wake_up();
            for event in &events[..count] {
                match event.data.u64() {
                    MAILBOX_TOKEN => self.handle.acceptor_mailbox().reset_wake_fd(),
                    token => self.accept_all(token),
                }
            }
            self.handle.acceptor_mailbox().take(&mut mail);
            for mail in mail.drain(..) {
                match mail {
                    AcceptorMail::Listen(listeners) => self.replace(listeners),
                    AcceptorMail::Adopt(adopted) => self.adopt(adopted),
                    AcceptorMail::Stop => return,
                }
            }
        }
    }

    fn add(&mut self, listener: Listener) -> rustix::io::Result<()> {
        let data = EventData::new_u64(self.next_token);
        epoll::add(&self.epoll, listener.socket(), data, EventFlags::IN)?;
        self.listeners.insert(self.next_token, listener);
        self.next_token += 1;
        Ok(())
    }

    /// Replaces the listeners; those present before and after miss no connection.
    fn replace(&mut self, listeners: Vec<Listener>) {
        let epoll = &self.epoll;
        self.listeners.retain(|_, present| {
            let stays = listeners.iter().any(|listener| listener.is_clone_of(present));
            if !stays {
                // A clone may keep the socket open. If this fails, the socket is closed already.
                let _ = epoll::delete(epoll, present.socket());
            }
            stays
        });
        for listener in listeners {
            let is_there = self.listeners.values().any(|present| present.is_clone_of(&listener));
            if !is_there && self.add(listener).is_err() {
                self.handle.count_dropped();
            }
        }
    }

    fn accept_all(&mut self, token: u64) {
        for _ in 0..ACCEPTS_PER_TURN_MAX {
            match self.accept(token) {
                Attempt::Accepted | Attempt::Failed => {}
                Attempt::NoneWaiting => return,
                Attempt::OutOfResources => return self.refuse_one(token),
            }
        }
    }

    fn accept(&mut self, token: u64) -> Attempt {
        let Some(listener) = self.listeners.get(&token) else { return Attempt::NoneWaiting };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let (socket, peer) = match acceptfrom_with(listener.socket(), flags) {
            Ok(accepted) => accepted,
            Err(Errno::AGAIN) => return Attempt::NoneWaiting,
            Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                return Attempt::OutOfResources;
            }
            // The peer gave up before the accept, or the network reports an error of its own.
            Err(_) => return Attempt::Failed,
        };
        let endpoints = match listener.address() {
            ListenAddress::Unix(_) => Endpoints::Unix,
            ListenAddress::Tcp(bound) => tcp_endpoints(&socket, peer, *bound),
        };
        if let Some(why) = check(&self.handle, &mut self.arrivals, &socket, endpoints) {
            if listener.encryption == Encryption::None {
                // It fits into an empty socket. It does not matter if the peer is gone.
                let _ = socket::send(socket.as_fd(), (self.last_words)(listener.tag, why));
            }
            return Attempt::Failed;
        }
        if matches!(endpoints, Endpoints::Tcp { .. }) {
            set_tcp_options(&socket, self.handle.keepalive_s());
        }
        let (listener, encryption) = (listener.tag, listener.encryption);
        self.hand_over(socket, endpoints, listener, encryption);
        Attempt::Accepted
    }

    fn adopt(&mut self, adopted: Adopted) {
        let Adopted { socket, endpoints, listener } = adopted;
        if is_reserved(&socket) {
            return self.handle.count_dropped();
        }
        self.hand_over(socket, endpoints, listener, Encryption::None);
    }

    fn hand_over(
        &mut self,
        socket: OwnedFd,
        endpoints: Endpoints,
        listener: ListenerTag,
        encryption: Encryption,
    ) {
        let accepted = Accepted { id: self.next_id, socket, endpoints, listener, encryption };
        self.next_id += 1;
        let worker = (0..self.handle.workers() as u16)
            .map(WorkerId)
            .min_by_key(|&id| self.handle.connections(id).load(Ordering::Relaxed))
            .expect("a runtime has workers");
        // Counted here, because the worker may read it only after many more were handed over.
        self.handle.connections(worker).fetch_add(1, Ordering::Relaxed);
        self.handle.mailbox(worker).post(Mail::Accepted(accepted));
    }

    /// Rejects one waiting connection with the help of the spare descriptor.
    fn refuse_one(&mut self, token: u64) {
        let Some(listener) = self.listeners.get(&token) else { return };
        let had_spare = self.spare.take().is_some();
        let refused = acceptfrom_with(listener.socket(), SocketFlags::CLOEXEC).is_ok();
        if refused {
            self.handle.count_dropped();
        }
        self.spare = spare_fd();
        if !had_spare || !refused {
            std::thread::sleep(BACK_OFF);
        }
    }
}

/// Returns why a connection is rejected, and counts it; `None` if it is accepted.
fn check<M: Send>(
    handle: &Handle<M>,
    arrivals: &mut Arrivals,
    socket: &OwnedFd,
    endpoints: Endpoints,
) -> Option<TurnedAway> {
    if is_reserved(socket) {
        handle.count_dropped();
        return Some(TurnedAway::NoDescriptor);
    }
    let per_second = handle.arrivals_per_second();
    if per_second == 0 {
        arrivals.forget();
        return None;
    }
    let Endpoints::Tcp { peer, .. } = endpoints else { return None };
    if arrivals.admits(peer.ip(), monotonic_nanos(), per_second) {
        return None;
    }
    handle.count_too_fast();
    Some(TurnedAway::TooFast)
}

/// Returns true if the descriptor is one of those reserved for files.
fn is_reserved(socket: &OwnedFd) -> bool {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    socket.as_raw_fd() as u64 >= limit.saturating_sub(DESCRIPTORS_RESERVED)
}

/// Opens a descriptor to give up when no other is left.
fn spare_fd() -> Option<OwnedFd> {
    std::fs::File::open("/dev/null").ok().map(OwnedFd::from)
}

fn tcp_endpoints(socket: &OwnedFd, peer: Option<SocketAddrAny>, bound: SocketAddr) -> Endpoints {
    let parse = |any: SocketAddrAny| SocketAddr::try_from(any).ok();
    // A socket that was already reset has no addresses; it is closed at its first read.
    let peer = peer.and_then(parse).unwrap_or(bound);
    let local = if bound.ip().is_unspecified() {
        getsockname(socket).ok().and_then(parse).unwrap_or(bound)
    } else {
        bound
    };
    Endpoints::Tcp { peer, local }
}

/// Sets the options. Failures are ignored: they come only from broken sockets.
fn set_tcp_options(socket: &OwnedFd, keepalive_s: u32) {
    let socket = socket.as_fd();
    let _ = set_tcp_nodelay(socket, true);
    if keepalive_s > 0 {
        let interval_s = (keepalive_s / KEEPALIVE_PROBES).max(1);
        let _ = set_socket_keepalive(socket, true);
        let _ = set_tcp_keepidle(socket, Duration::from_secs(keepalive_s.into()));
        let _ = set_tcp_keepintvl(socket, Duration::from_secs(interval_s.into()));
        let _ = set_tcp_keepcnt(socket, KEEPALIVE_PROBES);
    }
}
