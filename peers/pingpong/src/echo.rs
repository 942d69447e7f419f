//! The echoes. Each sends back what has arrived as soon as it has, whatever a message is.

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use tierce_net::{
    Config, ConnInfo, Conns, Flow, Handle, Io, ListenAddress, Listener, ListenerTag, Now, Refusal,
    Runtime, Service, WorkerId,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::bare;

/// What tokio's echo receives at once.
const PIECE_LEN: usize = 64 << 10;

const LOOPBACK: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// Who echoes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Echo {
    /// `tierce-net` with one worker.
    Net,
    /// tokio on one thread.
    Tokio,
    /// tokio's work-stealing runtime with one worker, as `#[tokio::main]` would start.
    TokioStealing,
    /// System calls and nothing else.
    BareEpoll,
}

impl Echo {
    pub const ALL: [Self; 4] = [Self::Net, Self::Tokio, Self::TokioStealing, Self::BareEpoll];

    /// The one that the others are compared with.
    pub const BASELINE: usize = 1;

    pub fn name(self) -> &'static str {
        match self {
            Self::Net => "tierce-net",
            Self::Tokio => "tokio",
            Self::TokioStealing => "tokio-multi-thread",
            Self::BareEpoll => "bare epoll",
        }
    }

    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|echo| echo.name() == name)
    }

    /// Echoes until the process ends, and says where on the standard output.
    pub fn serve(self) -> Result<(), Box<dyn Error>> {
        match self {
            Self::Net => serve_net(),
            Self::BareEpoll => {
                let listener = std::net::TcpListener::bind(LOOPBACK)?;
                println!("{}", listener.local_addr()?);
                bare::serve(&listener)
            }
            Self::Tokio => tokio::runtime::Builder::new_current_thread()
                .enable_io()
                .build()?
                .block_on(serve_tokio()),
            Self::TokioStealing => tokio::runtime::Builder::new_multi_thread()
                .worker_threads(1)
                .enable_io()
                .build()?
                // On a worker: the thread that blocks here is none.
                .block_on(async { tokio::spawn(async { serve_tokio().await.is_ok() }).await })
                .map_err(Into::into)
                .map(|_| ()),
        }
    }
}

struct Repeat;

impl Service for Repeat {
    type Worker = ();
    type Session = ();
    type Message = ();

    fn worker(&self, _: WorkerId, _: &Handle<()>) {}

    fn open(&self, (): &mut (), _: &ConnInfo, _: Option<&[u8]>, _: Now) -> Result<(), Refusal> {
        Ok(())
    }

    fn input(&self, (): &mut (), (): &mut (), io: &mut Io<'_>) -> Flow {
        let (input, output) = io.split();
        output.buffer().extend_from_slice(input);
        io.consume(input.len());
        Flow::Continue
    }

    fn message(&self, (): &mut (), (): (), _: &mut Conns<'_, ()>) {}
}

fn serve_net() -> Result<(), Box<dyn Error>> {
    let listener = Listener::tcp(LOOPBACK, 511, ListenerTag::default())?;
    if let ListenAddress::Tcp(address) = listener.address() {
        println!("{address}");
    }
    let config = Config { workers: 1, ..Config::default() };
    Runtime::start(config, vec![listener], Arc::new(Repeat))?.join();
    Ok(())
}

async fn serve_tokio() -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::bind(LOOPBACK).await?;
    println!("{}", listener.local_addr()?);
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        // A client that goes away is the normal end of an echo.
        tokio::spawn(async move { repeat(stream).await.is_ok() });
    }
}

async fn repeat(mut stream: TcpStream) -> std::io::Result<()> {
    let mut piece = vec![0; PIECE_LEN];
    loop {
        let len = stream.read(&mut piece).await?;
        if len == 0 {
            return Ok(());
        }
        stream.write_all(&piece[..len]).await?;
    }
}
