//! The I/O thread: moves bytes between a socket and the engine, and tells the engine the time.
//!
//! In one turn, the engine gets the received bytes and calls callbacks, while nothing is locked. Then, under one lock,
//! their slots are returned and all new requests taken; one `send` sends these. The thread then sleeps until bytes
//! arrive, a new request wakes it, or a deadline comes.

use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use rustix::event::Timespec;
use rustix::event::epoll::{self, Event, EventData, EventFlags};

use crate::address::Address;
use crate::config::Config;
use crate::engine::Engine;
use crate::error::Error;
use crate::framing::Framing;
use crate::socket::Socket;
use crate::window::{Submission, Window};

/// Token of the wakeup's events. Sockets are numbered from 1.
const WAKEUP_TOKEN: u64 = 0;

/// Longest sleep. Keeps far deadlines inside the range of the system call.
const SLEEP_MS_MAX: u64 = 24 * 3600 * 1000;

pub(crate) struct Driver<F> {
    engine: Engine<F>,
    window: Arc<Window>,
    address: Address,
    config: Config,
    epoll: OwnedFd,
    socket: Option<Socket>,
    /// Token of the socket. Events of an older socket have another token.
    token: u64,
    is_readable: bool,
    is_writable: bool,
    /// True if the peer has closed the connection. The kernel reports that only once.
    has_ended: bool,
    batch: Submission,
    start: Instant,
}

impl<F: Framing> Driver<F> {
    /// Does everything that can fail, before the thread is started.
    pub(crate) fn new(
        engine: Engine<F>,
        window: Arc<Window>,
        address: Address,
        config: Config,
    ) -> io::Result<Driver<F>> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let flags = EventFlags::IN | EventFlags::ET;
        epoll::add(&epoll, window.wakeup().fd(), EventData::new_u64(WAKEUP_TOKEN), flags)?;
        Ok(Driver {
            engine,
            window,
            address,
            config,
            epoll,
            socket: None,
            token: WAKEUP_TOKEN,
            is_readable: false,
            is_writable: false,
            has_ended: false,
            batch: Submission::default(),
            start: Instant::now(),
        })
    }

    /// Runs until the window is closed.
    pub(crate) fn run(mut self) {
        self.window.adopt_io_thread();
        loop {
            let now_ms = self.now_ms();
            self.receive(now_ms);
            self.engine.tick(now_ms);
            self.follow_link(now_ms);
            let exchanged = self.window.exchange(&mut self.batch);
            self.engine.take_up(now_ms, &mut self.batch);
            if exchanged.is_closed {
                break;
            }
            self.send(now_ms);
            // Requests completed after the exchange must first return their slots.
            if exchanged.is_asleep && !self.window.has_credits() && !self.is_readable {
                self.sleep();
            }
        }
        self.engine.close();
        self.window.exchange(&mut self.batch);
    }

    fn now_ms(&self) -> u64 {
        self.start.elapsed().as_millis() as u64
    }

    /// Passes the received bytes to the engine.
    fn receive(&mut self, now_ms: u64) {
        while let Some(socket) = self.socket.as_mut().filter(|_| self.is_readable) {
            let was_handshaking = socket.is_handshaking();
            let space = self.engine.space();
            let room = space.len();
            let received = socket.receive(space);
            // Bytes that the handshake delayed can be sent now.
            self.is_writable |= was_handshaking && !socket.is_handshaking();
            match received {
                Ok(0) => {
                    self.is_readable = false;
                    self.lost(now_ms, ErrorKind::UnexpectedEof);
                }
                Ok(count) => {
                    // Otherwise the socket is empty, and later bytes are reported again. An end that was already
                    // reported comes after the last byte.
                    self.is_readable = count == room || self.has_ended;
                    self.engine.received(now_ms, count);
                    if !self.engine.has_connection() {
                        self.is_readable = false;
                    }
                }
                Err(error) => {
                    self.is_readable = false;
                    if error.kind() != ErrorKind::WouldBlock {
                        self.lost(now_ms, error.kind());
                    }
                }
            }
        }
    }

    /// Sends until nothing is left or the socket is full.
    fn send(&mut self, now_ms: u64) {
        while let Some(socket) = self.socket.as_mut().filter(|_| self.is_writable) {
            let Some(bytes) = self.engine.to_send() else { return };
            match socket.send(bytes) {
                Ok(count) => {
                    self.is_writable = count == bytes.len();
                    self.engine.sent(count);
                }
                Err(error) => self.lost(now_ms, error.kind()),
            }
        }
    }

    fn lost(&mut self, now_ms: u64, kind: ErrorKind) {
        self.socket = None;
        self.engine.lost(now_ms, Error::Unreachable(kind));
    }

    /// Connects and disconnects as the engine requests.
    fn follow_link(&mut self, now_ms: u64) {
        if !self.engine.has_connection() {
            self.socket = None;
        }
        if self.engine.wants_connection(now_ms) {
            self.engine.connecting(now_ms);
            match self.connect() {
                Ok(socket) => self.socket = Some(socket),
                Err(error) => self.lost(now_ms, error.kind()),
            }
        }
    }

    fn connect(&mut self) -> io::Result<Socket> {
        let socket = Socket::connect(&self.address, &self.config)?;
        self.token += 1;
        (self.is_readable, self.is_writable, self.has_ended) = (false, false, false);
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        epoll::add(&self.epoll, socket.fd(), EventData::new_u64(self.token), flags)?;
        Ok(socket)
    }

    /// Waits until something happens or a deadline comes.
    fn sleep(&mut self) {
        let left_ms = self.engine.next_ms().saturating_sub(self.now_ms()).min(SLEEP_MS_MAX);
        let timeout = Timespec {
            tv_sec: (left_ms / 1000) as i64,
            tv_nsec: (left_ms % 1000 * 1_000_000) as i64,
        };
        let mut events = [Event { flags: EventFlags::empty(), data: EventData::new_u64(0) }; 4];
        let count = match epoll::wait(&self.epoll, &mut events, Some(&timeout)) {
            Ok(count) => count,
            Err(rustix::io::Errno::INTR) => 0,
            // The descriptor is ours and open, and the buffer is valid.
            Err(errno) => panic!("epoll_wait failed: {errno}"),
        };
        self.window.wake_up();
        for event in &events[..count] {
            if event.data.u64() == self.token && self.socket.is_some() {
                self.on_event(event.flags);
            }
        }
    }

    fn on_event(&mut self, flags: EventFlags) {
        let hung_up = flags.intersects(EventFlags::ERR | EventFlags::HUP | EventFlags::RDHUP);
        if self.engine.is_connecting() {
            if !hung_up && !flags.intersects(EventFlags::IN | EventFlags::OUT) {
                return;
            }
            let now_ms = self.now_ms();
            let finished = self.socket.as_ref().map(Socket::finish_connect);
            match finished {
                Some(Ok(())) => self.engine.connected(now_ms),
                Some(Err(error)) => return self.lost(now_ms, error.kind()),
                None => return,
            }
        }
        self.has_ended |= hung_up;
        self.is_readable |= hung_up || flags.contains(EventFlags::IN);
        self.is_writable |= flags.contains(EventFlags::OUT);
    }
}
