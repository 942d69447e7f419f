//! A minimal server on epoll: wait, receive, answer, on one thread, level-triggered. The extra cost
//! of `echo` is the price of the crate.

use std::os::fd::{AsRawFd, OwnedFd};

use rustix::event::epoll::{self, Event, EventData, EventFlags};
use rustix::net::{RecvFlags, SendFlags, SocketFlags, acceptfrom_with, recv, send, sockopt};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:7202".into());
    let listener = std::net::TcpListener::bind(address)?;
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let listening = listener.as_raw_fd() as u64;
    epoll::add(&epoll, &listener, EventData::new_u64(listening), EventFlags::IN)?;
    let mut conns: Vec<Option<OwnedFd>> = Vec::new();
    let mut events = [Event { flags: EventFlags::empty(), data: EventData::new_u64(0) }; 256];
    let mut input = vec![0; 64 * 1024];
    let replies = b"+PONG\r\n".repeat(64 * 1024 / 14 + 1);
    loop {
        let count = epoll::wait(&epoll, &mut events, None)?;
        for event in &events[..count] {
            if event.data.u64() == listening {
                let (conn, _) = acceptfrom_with(&listener, SocketFlags::NONBLOCK)?;
                sockopt::set_tcp_nodelay(&conn, true)?;
                let fd = conn.as_raw_fd() as usize;
                epoll::add(&epoll, &conn, EventData::new_u64(fd as u64), EventFlags::IN)?;
                conns.resize_with(conns.len().max(fd + 1), || None);
                conns[fd] = Some(conn);
                continue;
            }
            let fd = event.data.u64() as usize;
            let Some(conn) = &conns[fd] else { continue };
            match recv(conn, &mut input[..], RecvFlags::empty()) {
                Ok((0, _)) | Err(_) => conns[fd] = None,
                Ok((len, _)) => {
                    let len = (len / 14).max(1) * 7;
                    let _ = send(conn, &replies[..len], SendFlags::NOSIGNAL);
                }
            }
        }
    }
}
