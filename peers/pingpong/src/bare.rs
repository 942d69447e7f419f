//! The least that an echo can do: one thread, one epoll instance, one buffer, no library. What the
//! system calls alone cost, and so the bound for all others.

use std::collections::HashMap;
use std::error::Error;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

const PIECE_LEN: usize = 64 << 10;

/// Stands for the listener among the numbers of descriptors.
const LISTENER: u64 = u64::MAX;

struct Connection {
    stream: TcpStream,
    /// What the socket did not take.
    unsent: Vec<u8>,
}

/// Echoes until the process ends.
pub fn serve(listener: &TcpListener) -> Result<(), Box<dyn Error>> {
    let epoll = epoll::create(CreateFlags::CLOEXEC)?;
    epoll::add(&epoll, listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
    let mut connections = HashMap::new();
    let mut piece = vec![0; PIECE_LEN];
    let mut events = Vec::with_capacity(64);
    loop {
        epoll::wait(&epoll, spare_capacity(&mut events), None)?;
        for event in events.drain(..) {
            let number = event.data.u64();
            if number == LISTENER {
                let (stream, _) = listener.accept()?;
                stream.set_nodelay(true)?;
                stream.set_nonblocking(true)?;
                let number = stream.as_raw_fd() as u64;
                let flags = EventFlags::IN | EventFlags::OUT | EventFlags::ET;
                epoll::add(&epoll, &stream, EventData::new_u64(number), flags)?;
                connections.insert(number, Connection { stream, unsent: Vec::new() });
            } else if let Some(connection) = connections.get_mut(&number)
                && !connection.echo(&mut piece)?
            {
                connections.remove(&number);
            }
        }
    }
}

impl Connection {
    /// Sends back what is there, as far as the socket takes it; `false` at the end.
    fn echo(&mut self, piece: &mut [u8]) -> Result<bool, Errno> {
        loop {
            if !self.unsent.is_empty() {
                let unsent = std::mem::take(&mut self.unsent);
                self.send(&unsent)?;
                if !self.unsent.is_empty() {
                    return Ok(true);
                }
            }
            match recv(&self.stream, &mut *piece, RecvFlags::empty()) {
                Ok((_, 0)) | Err(Errno::CONNRESET) => return Ok(false),
                Ok((_, len)) => {
                    self.send(&piece[..len])?;
                    // A short piece is the last one, of which the next event tells.
                    if len < piece.len() {
                        return Ok(true);
                    }
                }
                Err(Errno::AGAIN) => return Ok(true),
                Err(error) => return Err(error),
            }
        }
    }

    fn send(&mut self, bytes: &[u8]) -> Result<(), Errno> {
        let sent = match send(&self.stream, bytes, SendFlags::NOSIGNAL) {
            Err(Errno::AGAIN) => 0,
            // The client has gone, which the next receive tells.
            Err(Errno::PIPE | Errno::CONNRESET) => bytes.len(),
            sent => sent?,
        };
        self.unsent.extend_from_slice(&bytes[sent..]);
        Ok(())
    }
}
