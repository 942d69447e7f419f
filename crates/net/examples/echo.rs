//! Answers every request of redis-benchmark's PING and inline tests with `+PONG`. It does nothing
//! else, to measure the cost of the event loop.
//!
//! ```text
//! cargo run --release -p tierce-net --example echo -- 127.0.0.1:7201 2
//! redis-benchmark -p 7201 -t ping_mbulk -n 1000000 -P 16
//! ```
//!
//! The second argument is the number of workers. `bare_epoll` does this without the crate.

use std::sync::Arc;

use tierce_net::{
    Config, ConnInfo, Conns, Flow, Handle, Io, Listener, ListenerTag, Now, Refusal, Runtime,
    Service, WorkerId,
};

/// One request of `-t ping_mbulk`.
const REQUEST: &[u8] = b"*1\r\n$4\r\nPING\r\n";

struct Pong {
    hold: bool,
}

impl Service for Pong {
    type Worker = ();
    type Session = ();
    type Message = ();

    fn worker(&self, _: WorkerId, _: &Handle<()>) {}

    fn open(&self, (): &mut (), _: &ConnInfo, _: Option<&[u8]>, _: Now) -> Result<(), Refusal> {
        Ok(())
    }

    fn input(&self, (): &mut (), (): &mut (), io: &mut Io<'_>) -> Flow {
        // redis-benchmark begins with `CONFIG GET`, which any reply satisfies.
        let requests = io.input().len() / REQUEST.len();
        let consumed = if io.input().starts_with(REQUEST) {
            requests * REQUEST.len()
        } else {
            io.input().len()
        };
        for _ in 0..requests.max(1) {
            io.output().buffer().extend_from_slice(b"+PONG\r\n");
        }
        if self.hold {
            io.output().hold_for_turn();
        }
        io.consume(consumed);
        Flow::Continue
    }

    fn message(&self, (): &mut (), (): (), _: &mut Conns<'_, ()>) {}
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let address = args.next().unwrap_or_else(|| "127.0.0.1:7201".into()).parse()?;
    let workers = args.next().map_or(Ok(1), |text| text.parse())?;
    let hold = args.next().is_some();
    let listener = Listener::tcp(address, 511, ListenerTag::default())?;
    println!("{:?}, {workers} workers", listener.address());
    let config = Config { workers, ..Config::default() };
    Runtime::start(config, vec![listener], Arc::new(Pong { hold }))?.join();
    Ok(())
}
