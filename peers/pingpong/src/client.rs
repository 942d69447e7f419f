//! The client: one thread, one epoll instance, one message on each connection.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

/// What is received at once.
const PIECE_LEN: usize = 256 << 10;

/// Events taken at once.
const EVENTS_MAX: usize = 64;

pub struct Client {
    epoll: OwnedFd,
    connections: Vec<Connection>,
    message: Vec<u8>,
    piece: Vec<u8>,
}

struct Connection {
    stream: TcpStream,
    /// Bytes of the message that are still to be sent.
    to_send: usize,
    /// Bytes of the message that are still to come back.
    to_receive: usize,
}

impl Client {
    pub fn connect(address: SocketAddr, count: usize, message_len: usize) -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let mut connections = Vec::with_capacity(count);
        for number in 0..count {
            let stream = TcpStream::connect(address)?;
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            let flags = EventFlags::IN | EventFlags::OUT | EventFlags::ET;
            epoll::add(&epoll, &stream, EventData::new_u64(number as u64), flags)?;
            connections.push(Connection { stream, to_send: 0, to_receive: 0 });
        }
        let message = vec![b'x'; message_len];
        Ok(Self { epoll, connections, message, piece: vec![0; PIECE_LEN] })
    }

    /// Sends messages for so long, and returns how many came back and how long it took until the
    /// last of them did.
    pub fn run(&mut self, time: Duration) -> io::Result<(u64, Duration)> {
        let begun = Instant::now();
        let mut messages = 0;
        let mut active = self.connections.len();
        for connection in &mut self.connections {
            connection.begin(&self.message)?;
        }
        let mut events = Vec::with_capacity(EVENTS_MAX);
        while active > 0 {
            epoll::wait(&self.epoll, spare_capacity(&mut events), None)?;
            let is_over = begun.elapsed() >= time;
            for event in events.drain(..) {
                let connection = &mut self.connections[event.data.u64() as usize];
                connection.send(&self.message)?;
                while connection.receive(&mut self.piece)? {
                    messages += 1;
                    if is_over {
                        active -= 1;
                        break;
                    }
                    connection.begin(&self.message)?;
                }
            }
        }
        Ok((messages, begun.elapsed()))
    }
}

impl Connection {
    fn begin(&mut self, message: &[u8]) -> io::Result<()> {
        (self.to_send, self.to_receive) = (message.len(), message.len());
        self.send(message)
    }

    /// Sends what the socket takes.
    fn send(&mut self, message: &[u8]) -> io::Result<()> {
        while self.to_send > 0 {
            match send(&self.stream, &message[message.len() - self.to_send..], SendFlags::NOSIGNAL)
            {
                Ok(sent) => self.to_send -= sent,
                Err(Errno::AGAIN) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Receives what is there; whether the message is back with that.
    fn receive(&mut self, piece: &mut [u8]) -> io::Result<bool> {
        while self.to_receive > 0 {
            match recv(&self.stream, &mut *piece, RecvFlags::empty()) {
                Ok((_, 0)) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok((_, received)) => self.to_receive -= received,
                Err(Errno::AGAIN) => return Ok(false),
                Err(error) => return Err(error.into()),
            }
            if self.to_receive == 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
