//! A small server in the same process, for examples and tests. Not part of the interface.

use std::collections::HashMap;
use std::future::Future;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, JoinHandle, Thread};

use tierce_wire::pedrokv::{Failure, Kind, Request, Response, Status, Step};
use tierce_wire::resp::{Args, Batch, Encoder, Limits, Parser, Proto};

type Store = Mutex<HashMap<Vec<u8>, Vec<u8>>>;

/// Executes the received requests and appends the answers. Returns the number of bytes consumed.
type Serve = fn(&Shared, &[u8], &mut Vec<u8>) -> usize;

/// A server with a store, on a port of its own, until it is dropped.
pub struct FakeServer {
    shared: Arc<Shared>,
    address: SocketAddr,
    acceptor: Option<JoinHandle<()>>,
}

struct Shared {
    store: Store,
    serve: Serve,
    is_stopping: AtomicBool,
    connections: Mutex<Vec<TcpStream>>,
    /// Closes a connection at every n-th reception; 0 for never.
    dies_every: AtomicU64,
    receptions: AtomicU64,
    requests: AtomicU64,
}

impl FakeServer {
    /// Starts a server for PedroKV's protocol.
    pub fn pedrokv() -> FakeServer {
        FakeServer::start(serve_pedrokv)
    }

    /// Starts a server for RESP: GET, SET, DEL, STRLEN, PING, ECHO, AUTH with the password `secret`, and HANG, which
    /// is not answered.
    pub fn resp() -> FakeServer {
        FakeServer::start(serve_resp)
    }

    fn start(serve: Serve) -> FakeServer {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let shared = Arc::new(Shared {
            store: Mutex::default(),
            serve,
            is_stopping: AtomicBool::new(false),
            connections: Mutex::default(),
            dies_every: AtomicU64::new(0),
            receptions: AtomicU64::new(0),
            requests: AtomicU64::new(0),
        });
        let acceptor = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || accept(&listener, &shared))
        };
        FakeServer { shared, address, acceptor: Some(acceptor) }
    }

    /// Returns the listening address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on, closes the connection at every n-th reception, with answers still unsent. 0 means never.
    pub fn die_every(&self, receptions: u64) {
        self.shared.dies_every.store(receptions, Ordering::Relaxed);
    }

    /// Closes all connections.
    pub fn hang_up(&self) {
        let mut connections = lock(&self.shared.connections);
        for connection in connections.drain(..) {
            let _ = connection.shutdown(std::net::Shutdown::Both);
        }
    }

    /// Returns the number of executed requests.
    pub fn requests(&self) -> u64 {
        self.shared.requests.load(Ordering::Relaxed)
    }
}

impl Drop for FakeServer {
    fn drop(&mut self) {
        self.shared.is_stopping.store(true, Ordering::Relaxed);
        // Wakes the acceptor.
        let _ = TcpStream::connect(self.address);
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
        self.hang_up();
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for stream in listener.incoming().flatten() {
        if shared.is_stopping.load(Ordering::Relaxed) {
            return;
        }
        if let Ok(clone) = stream.try_clone() {
            lock(&shared.connections).push(clone);
        }
        let shared = Arc::clone(shared);
        thread::spawn(move || converse(stream, &shared));
    }
}

fn converse(mut stream: TcpStream, shared: &Shared) {
    let _ = stream.set_nodelay(true);
    let (mut input, mut output) = (Vec::new(), Vec::new());
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) | Err(_) => break,
            Ok(count) => input.extend_from_slice(&buffer[..count]),
        }
        let consumed = (shared.serve)(shared, &input, &mut output);
        input.drain(..consumed);
        let reception = shared.receptions.fetch_add(1, Ordering::Relaxed) + 1;
        let dies_every = shared.dies_every.load(Ordering::Relaxed);
        if dies_every > 0 && reception.is_multiple_of(dies_every) {
            // Half of the output is sent, so the last answer may be incomplete.
            let _ = stream.write_all(&output[..output.len() / 2]);
            break;
        }
        if stream.write_all(&output).is_err() {
            break;
        }
        output.clear();
    }
    let _ = stream.shutdown(std::net::Shutdown::Both);
}

fn serve_pedrokv(shared: &Shared, input: &[u8], output: &mut Vec<u8>) -> usize {
    let mut consumed = 0;
    let mut store = lock(&shared.store);
    while let Step::Frame { frame, len } = Request::read(&input[consumed..]) {
        consumed += len;
        shared.requests.fetch_add(1, Ordering::Relaxed);
        let found = match frame.kind {
            Kind::Get => store.get(frame.key).map(Vec::as_slice),
            Kind::Put => {
                store.insert(frame.key.to_vec(), frame.value.to_vec());
                Some(&b""[..])
            }
            Kind::Delete => store.remove(frame.key).map(|_| &b""[..]),
            Kind::Unknown(_) => None,
        };
        let (status, data) = match found {
            Some(data) => (Status::Ok, data),
            None => (Status::Error, Failure::NotFound.text().as_bytes()),
        };
        Response { status, id: frame.id, data }.write(output).expect("values fit, as they came");
    }
    consumed
}

fn serve_resp(shared: &Shared, input: &[u8], output: &mut Vec<u8>) -> usize {
    let (mut parser, mut batch) = (Parser::new(), Batch::new());
    let mut consumed = 0;
    let mut store = lock(&shared.store);
    loop {
        let parsed = parser.parse(&input[consumed..], &Limits::default(), 1_000, &mut batch);
        for args in batch.iter(&input[consumed..]) {
            shared.requests.fetch_add(1, Ordering::Relaxed);
            run_command(&mut store, args, &mut Encoder::new(output, Proto::Resp2));
        }
        if batch.is_empty() {
            return consumed;
        }
        consumed += parsed.consumed;
        parser = Parser::new();
    }
}

fn run_command(store: &mut HashMap<Vec<u8>, Vec<u8>>, args: Args<'_>, reply: &mut Encoder<'_>) {
    let words: Vec<&[u8]> = (0..args.len()).map(|index| &args[index]).collect();
    match words[..] {
        [b"GET", key] => match store.get(key) {
            Some(value) => reply.bulk(value),
            None => reply.null(),
        },
        [b"SET", key, value] => {
            store.insert(key.to_vec(), value.to_vec());
            reply.ok();
        }
        [b"DEL", key] => reply.int(store.remove(key).is_some().into()),
        [b"STRLEN", key] => reply.int(store.get(key).map_or(0, Vec::len) as i64),
        [b"PING"] => reply.simple("PONG"),
        [b"ECHO", text] => reply.bulk(text),
        [b"AUTH", b"secret"] => reply.ok(),
        [b"AUTH", ..] => reply.error("WRONGPASS invalid password"),
        [b"HANG", ..] => {}
        _ => reply.error("ERR unknown command"),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A minimal runtime: runs one future on this thread.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}
