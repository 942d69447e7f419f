//! Connects to another server. Name resolution and an unresponsive host may take minutes; meanwhile the thread can
//! still give up.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketFlags, SocketType, bind, connect as begin, socket_with, sockopt,
};

use crate::commands::replication::role::Address;

/// Interval at which the thread checks if it should give up.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Connects to one of the addresses of a host, each of which gets this much time. `None` if the caller gives up, which
/// is checked every [`LOOK_EVERY`]. The connection is bound to `source`, if that is given and can be bound.
pub(crate) fn connect(
    address: &Address,
    source: Option<IpAddr>,
    at_most: Duration,
    gives_up: &dyn Fn() -> bool,
) -> io::Result<Option<TcpStream>> {
    let Some(addresses) = resolve(address, gives_up)? else { return Ok(None) };
    let mut failed = io::Error::new(ErrorKind::NotFound, "the name has no address");
    for address in addresses {
        match connect_to(address, source, at_most, gives_up) {
            Err(error) => failed = error,
            done => return done,
        }
    }
    Err(failed)
}

/// Resolves a name on a thread of its own. If the caller gives up, that thread is left alone, and ends with the answer.
fn resolve(address: &Address, gives_up: &dyn Fn() -> bool) -> io::Result<Option<Vec<SocketAddr>>> {
    let (host, port) = (String::from_utf8_lossy(&address.host).into_owned(), address.port);
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Ok(Some(vec![SocketAddr::new(ip, port)]));
    }
    let (answer, answered) = mpsc::channel();
    let ask = move || {
        let addresses = (&*host, port).to_socket_addrs().map(Iterator::collect);
        // The caller may have given up.
        let _ = answer.send(addresses);
    };
    thread::Builder::new().name("resolver".into()).spawn(ask)?;
    loop {
        match answered.recv_timeout(LOOK_EVERY) {
            Ok(addresses) => return addresses.map(Some),
            Err(RecvTimeoutError::Timeout) if gives_up() => return Ok(None),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Err(io::Error::other("the name could not be resolved"));
            }
        }
    }
}

fn connect_to(
    address: SocketAddr,
    source: Option<IpAddr>,
    at_most: Duration,
    gives_up: &dyn Fn() -> bool,
) -> io::Result<Option<TcpStream>> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    if let Some(source) = source.filter(|source| source.is_ipv4() == address.is_ipv4()) {
        // As in Redis, an address that this machine does not have keeps no replica from its primary.
        let _ = bind(&socket, &SocketAddr::new(source, 0));
    }
    let until = Instant::now() + at_most;
    match begin(&socket, &address) {
        Ok(()) => {}
        Err(Errno::INPROGRESS | Errno::INTR) => {
            while !is_writable(&socket)? {
                if gives_up() {
                    return Ok(None);
                }
                if Instant::now() >= until {
                    return Err(ErrorKind::TimedOut.into());
                }
            }
            sockopt::socket_error(&socket)??;
        }
        Err(error) => return Err(error.into()),
    }
    let stream = TcpStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(Some(stream))
}

/// Returns true if the connection is established, or has failed, within [`LOOK_EVERY`].
fn is_writable(socket: &impl std::os::fd::AsFd) -> io::Result<bool> {
    let patience = Timespec { tv_sec: 0, tv_nsec: i64::from(LOOK_EVERY.subsec_nanos()) };
    let mut polled = [PollFd::new(socket, PollFlags::OUT)];
    match poll(&mut polled, Some(&patience)) {
        Ok(ready) => Ok(ready > 0),
        Err(Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::net::TcpListener;

    use super::*;

    fn address(host: &str, port: u16) -> Address {
        Address { host: host.into(), port }
    }

    #[test]
    fn a_name_or_an_address_is_connected_to() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        for host in ["127.0.0.1", "localhost"] {
            let stream = connect(&address(host, port), None, Duration::from_secs(60), &|| false);
            assert_eq!(stream.unwrap().unwrap().peer_addr().unwrap().port(), port);
        }
        drop(listener);
        let refused =
            connect(&address("127.0.0.1", port), None, Duration::from_secs(60), &|| false);
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::ConnectionRefused);
    }

    #[test]
    fn it_comes_from_the_address_that_was_chosen() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        // The last ones cannot be used here: one is of the other family, one of another machine.
        for (source, seen) in
            [("127.0.0.9", "127.0.0.9"), ("::1", "127.0.0.1"), ("192.0.2.1", "127.0.0.1")]
        {
            let source = Some(source.parse().unwrap());
            let stream =
                connect(&address("127.0.0.1", port), source, Duration::from_secs(60), &|| false);
            let local = stream.unwrap().unwrap().local_addr().unwrap();
            assert_eq!(local.ip().to_string(), seen);
        }
    }

    #[test]
    fn it_gives_up_a_host_that_does_not_answer() {
        // A listener that accepts nothing, and whose queue is full.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let mut waiting = Vec::new();
        let asked = Cell::new(0);
        let gives_up = || asked.replace(asked.get() + 1) > 0;
        loop {
            match connect_to(address, None, Duration::from_secs(60), &gives_up).unwrap() {
                Some(stream) => waiting.push(stream),
                None => break,
            }
            asked.set(0);
        }
        assert_eq!(asked.get(), 2, "it is asked again and again");
        let late = connect_to(address, None, Duration::ZERO, &|| false);
        assert_eq!(late.unwrap_err().kind(), ErrorKind::TimedOut);
    }
}
