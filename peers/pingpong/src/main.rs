//! Messages there and back on loopback, answered by an echo over `tierce-net` and by one in tokio:
//! Pedronet's ping-pong.
//!
//! ```text
//! cargo run --release --manifest-path peers/pingpong/Cargo.toml -- [--seconds N] [--rounds N]
//! ```
//!
//! Each echo is a process of its own with one thread, so that its processor time is known to the
//! nanosecond. The client is the same for all: one thread, and on each connection one message that
//! is sent again as soon as it has come back. Echoes take turns; medians of the rounds are printed.

mod bare;
mod client;
mod echo;

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use echo::Echo;

const MESSAGE_LENS: [usize; 3] = [1 << 10, 64 << 10, 1 << 20];

/// Connections of the client: one, as in a plain ping-pong, and as many as keep an event loop busy.
const CONNECTIONS: [usize; 2] = [1, 16];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [word, name] = &args[..]
        && word == "serve"
    {
        return Echo::named(name).ok_or("an echo of no known name")?.serve();
    }
    let seconds = option(&args, "--seconds")?.unwrap_or(1.0);
    let rounds = option(&args, "--rounds")?.unwrap_or(3.0) as usize;
    println!(
        "| message | connections | echo | messages/s | MiB/s | CPU µs a message | messages a CPU second, by tokio's |"
    );
    println!("|---|--:|---|--:|--:|--:|--:|");
    for message_len in MESSAGE_LENS {
        for connections in CONNECTIONS {
            compare(message_len, connections, seconds, rounds.max(1))?;
        }
    }
    Ok(())
}

/// The number behind an option, if the option is there.
fn option(args: &[String], name: &str) -> Result<Option<f64>, Box<dyn std::error::Error>> {
    let Some(at) = args.iter().position(|arg| arg == name) else { return Ok(None) };
    let value = args.get(at + 1).ok_or_else(|| format!("{name} needs a number"))?;
    Ok(Some(value.parse()?))
}

/// What one echo did in one round.
#[derive(Clone, Copy)]
struct Figures {
    messages_per_second: f64,
    cpu_us: f64,
}

fn compare(
    message_len: usize,
    connections: usize,
    seconds: f64,
    rounds: usize,
) -> Result<(), Box<dyn std::error::Error>> {
    let mut figures: Vec<Vec<Figures>> = vec![Vec::new(); Echo::ALL.len()];
    for _ in 0..rounds {
        for (echo, figures) in Echo::ALL.into_iter().zip(&mut figures) {
            figures.push(measure(echo, message_len, connections, seconds)?);
        }
    }
    let medians: Vec<Figures> = figures
        .iter()
        .map(|rounds| Figures {
            messages_per_second: median(rounds.iter().map(|round| round.messages_per_second)),
            cpu_us: median(rounds.iter().map(|round| round.cpu_us)),
        })
        .collect();
    let baseline = medians[Echo::BASELINE].cpu_us;
    for (echo, median) in Echo::ALL.into_iter().zip(&medians) {
        println!(
            "| {} KiB | {connections} | {} | {:.0} | {:.0} | {:.2} | {:.2} |",
            message_len >> 10,
            echo.name(),
            median.messages_per_second,
            median.messages_per_second * message_len as f64 / f64::from(1 << 20),
            median.cpu_us,
            baseline / median.cpu_us,
        );
    }
    Ok(())
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// An echo in a process of its own, which ends with this.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn measure(
    echo: Echo,
    message_len: usize,
    connections: usize,
    seconds: f64,
) -> Result<Figures, Box<dyn std::error::Error>> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["serve", echo.name()]).stdout(Stdio::piped());
    let mut server = Server(command.spawn()?);
    let mut line = String::new();
    let output = server.0.stdout.take().expect("it is piped");
    BufReader::new(output).read_line(&mut line)?;
    let address = line.trim().parse()?;
    let mut client = client::Client::connect(address, connections, message_len)?;
    client.run(Duration::from_millis(100))?;
    let before = cpu_time(server.0.id())?;
    let (messages, elapsed) = client.run(Duration::from_secs_f64(seconds))?;
    let cpu = cpu_time(server.0.id())? - before;
    Ok(Figures {
        messages_per_second: messages as f64 / elapsed.as_secs_f64(),
        cpu_us: cpu.as_secs_f64() * 1e6 / messages as f64,
    })
}

/// What all threads of a process have used, by the scheduler's account.
fn cpu_time(pid: u32) -> std::io::Result<Duration> {
    let mut total = Duration::ZERO;
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let text = fs::read_to_string(task?.path().join("schedstat"))?;
        let nanoseconds = text.split_ascii_whitespace().next().and_then(|word| word.parse().ok());
        total += Duration::from_nanos(nanoseconds.unwrap_or(0));
    }
    Ok(total)
}
