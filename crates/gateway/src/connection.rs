//! A client's connection, and its time limits.
//!
//! - The head of a request, and the idle time before it: `http-timeout`. So a client that sends a byte now and then
//!   occupies a connection for that long at most.
//! - Its body: `http-timeout` as well, in `routes`.
//! - The reply: `http-timeout` between two parts that the client reads.

use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tierce_commands::clients::{Client, Origin};
use tierce_engine::clock;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, Sleep, sleep, timeout};
use tokio_rustls::TlsAcceptor;

use crate::credentials::Proven;
use crate::routes::Routes;
use crate::shared::Shared;

/// Maximum size of the head of a request, and of the part of a body that is received at a time.
const HEAD_BYTES_MAX: usize = 64 * 1024;

/// Reply to a client for which there is no room.
const TOO_MANY: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

/// Closes a connection for which there is no room. An encrypted one gets no reply: that would need a handshake.
pub(crate) fn turn_away(stream: &TcpStream, is_encrypted: bool) {
    if !is_encrypted {
        let _ = stream.try_write(TOO_MANY);
    }
}

/// Serves a connection until it ends, encrypted if TLS is configured.
pub(crate) async fn serve(
    shared: &Shared,
    service: Routes,
    (stream, tls): (TcpStream, Option<TlsAcceptor>),
    peer: SocketAddr,
    is_ending: watch::Receiver<bool>,
) {
    let limit = shared.config.settings().http_timeout();
    let _ = stream.set_nodelay(true);
    let local = stream.local_addr().map(|address| address.to_string()).unwrap_or_default();
    let client = Arc::new(client(peer, local));
    let Some(tls) = tls else {
        return serve_http(shared, service, (stream, client), limit, is_ending).await;
    };
    match timeout(limit, tls.accept(stream)).await {
        Ok(Ok(stream)) => serve_http(shared, service, (stream, client), limit, is_ending).await,
        // A failed handshake ends only its own connection.
        _ => shared.figures.refuse(),
    }
}

async fn serve_http<S: AsyncRead + AsyncWrite + Unpin>(
    shared: &Shared,
    service: Routes,
    (stream, client): (S, Arc<Client>),
    limit: Duration,
    mut is_ending: watch::Receiver<bool>,
) {
    let service = TowerToHyperService::new(service);
    let (figures, proven) = (Arc::clone(&shared.figures), Proven::default());
    let service = service_fn(move |mut request: Request<Incoming>| {
        figures.request();
        request.extensions_mut().insert(Arc::clone(&client));
        request.extensions_mut().insert(proven.clone());
        service.call(request)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limit)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(Patient::new(stream, limit)), service);
    let mut connection = pin!(connection);
    let mut ending = pin!(is_ending.changed());
    // An error on a connection ends only that connection.
    let is_over = poll_fn(|cx| match connection.as_mut().poll(cx) {
        Poll::Ready(_) => Poll::Ready(true),
        Poll::Pending => ending.as_mut().poll(cx).map(|_| false),
    });
    if !is_over.await {
        connection.as_mut().graceful_shutdown();
        let _ = connection.await;
    }
}

/// Creates the client of a connection, which is in no list of clients.
fn client(peer: SocketAddr, laddr: String) -> Client {
    let local = peer.ip().to_canonical().is_loopback();
    let origin = Origin { addr: peer.to_string(), laddr, local, ..Origin::default() };
    Client::new(origin, clock::unix_ms())
}

/// Stream that fails if its peer reads nothing for too long.
struct Patient<S> {
    stream: S,
    limit: Duration,
    /// End of the wait, while something is to be sent.
    deadline: Option<Pin<Box<Sleep>>>,
}

impl<S> Patient<S> {
    fn new(stream: S, limit: Duration) -> Self {
        Self { stream, limit, deadline: None }
    }

    /// Passes on the result of an attempt to send.
    fn wait<T>(&mut self, sent: Poll<io::Result<T>>, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        if sent.is_ready() {
            self.deadline = None;
            return sent;
        }
        let until = Instant::now() + self.limit;
        let deadline = self.deadline.get_or_insert_with(|| {
            let mut deadline = Box::pin(sleep(Duration::ZERO));
            deadline.as_mut().reset(until);
            deadline
        });
        deadline.as_mut().poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let sent = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.wait(sent, cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let sent = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.wait(sent, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
