//! Connections whose input a thread reads and counts, so that a server that sends to them never has to wait.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

use crate::error::Error;
use crate::socket::Socket;
use crate::target::Control;

/// The connections and their thread. Dropping it closes them.
pub(super) struct Readers {
    received: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Readers {
    pub(super) fn start(
        connections: impl Iterator<Item = Result<Control, Error>>,
    ) -> Result<Self, Error> {
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(Error::io("creating epoll"))?;
        let mut sockets = Vec::new();
        for connection in connections {
            let socket = connection?.into_nonblocking()?;
            let number = EventData::new_u64(sockets.len() as u64);
            epoll::add(&epoll, &socket, number, EventFlags::IN)
                .map_err(Error::io("adding to epoll"))?;
            sockets.push(socket);
        }
        let (received, is_over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let thread = {
            let (received, is_over) = (Arc::clone(&received), Arc::clone(&is_over));
            thread::spawn(move || read_all(epoll.as_fd(), &mut sockets, &received, &is_over))
        };
        Ok(Self { received, is_over, thread: Some(thread) })
    }

    /// Returns the number of bytes that all of them have received.
    pub(super) fn bytes(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Reads and counts bytes as they arrive.
fn read_all(
    epoll: BorrowedFd<'_>,
    sockets: &mut [Socket],
    received: &AtomicU64,
    is_over: &AtomicBool,
) {
    let (mut events, mut buffer) = (Vec::with_capacity(1024), vec![0; 64 * 1024]);
    let timeout = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
    while !is_over.load(Ordering::Relaxed) {
        events.clear();
        if epoll::wait(epoll, spare_capacity(&mut events), Some(&timeout)).is_err() {
            continue;
        }
        for event in &events {
            let socket = &mut sockets[event.data.u64() as usize];
            if let Ok(len) = socket.receive_all(&mut buffer) {
                received.fetch_add(len as u64, Ordering::Relaxed);
            }
        }
    }
}
