//! Sends the same random commands of memcached's protocols to Tierce and to memcached, and compares the replies.
//!
//! Text, meta and binary requests use their own connections, in pipelines of random depth, with the same few keys.
//! Each server is asked for its own versions, so that stores by version succeed and fail on both servers alike.
//! Permitted differences are left out of the stream or masked, see [`compare`]; the reasons are in
//! `docs/differences.md`.
//!
//! Before that, cases that a random stream rarely hits are compared one by one ([`examples`]). The counters of both
//! servers are compared at intervals.
//!
//! Only the seed is random: an equal seed repeats a run.

mod compare;
mod examples;
mod stream;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use tierce_harness::{Launch, PATIENCE, Server, free_port};

use self::stream::{KEYS, Stream};

/// Maximum number of requests in a pipeline.
const DEPTH_MAX: usize = 30;
/// Number of connections for text and meta requests, and for binary requests, each.
const CONNECTIONS: usize = 2;
/// Number of pipelines between two comparisons of all values.
const PIPELINES_BETWEEN_AUDITS: usize = 100;

/// Counters that do not depend on the timing of background work. (Memcached counts a number that changes as a new
/// item if a reader holds the old one.)
const COUNTERS: &str = "cmd_get cmd_set cmd_flush cmd_touch cmd_meta get_hits get_misses delete_misses \
                        delete_hits incr_misses incr_hits decr_misses decr_hits cas_misses cas_hits \
                        cas_badval touch_hits touch_misses store_too_large store_no_memory auth_cmds \
                        auth_errors";

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Number of commands.
    #[arg(long, default_value_t = 100_000)]
    commands: usize,
    /// Seed to repeat a run. By default each run has another one.
    #[arg(long)]
    seed: Option<u64>,
    /// The server to test. By default the release build of this workspace.
    #[arg(long)]
    program: Option<PathBuf>,
    /// The reference server.
    #[arg(long, default_value = "memcached")]
    reference: PathBuf,
}

/// Runs until all commands were sent or the servers disagree.
pub(crate) fn run(options: &Options) -> Result<(), String> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let seed = options.seed.unwrap_or_else(|| now.map_or(0, |time| time.as_millis() as u64));
    let program = options.program.clone().unwrap_or_else(crate::differential::release_build);
    println!("seed {seed}, {} commands of memcached", options.commands);
    let started = Instant::now();
    let mut run = DifferentialRun {
        tested: Side::tierce(&program),
        reference: Side::memcached(&options.reference)?,
        stream: Stream::new(seed),
    };
    run.examples()?;
    run.execute(options.commands).map_err(|difference| {
        format!("{difference}\nrepeat with: cargo xtask differential-memcached --seed {seed}")
    })?;
    println!("no difference, {:.1?}", started.elapsed());
    Ok(())
}

struct DifferentialRun {
    tested: Side,
    reference: Side,
    stream: Stream,
}

/// A server and the connections to it.
struct Side {
    lines: Vec<TcpStream>,
    frames: Vec<TcpStream>,
    port: u16,
    _server: Running,
}

/// A server process that ends with its owner.
#[expect(dead_code, reason = "kept alive, not looked at")]
enum Running {
    Tierce(Server),
    Memcached(Ended),
}

/// A child process that is killed when dropped.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Side {
    fn tierce(program: &PathBuf) -> Self {
        let port = free_port();
        let server = Launch::new(program).with("memcached-port", &port.to_string()).start();
        Self::on(port, Running::Tierce(server)).expect("a server that is ready")
    }

    fn memcached(program: &PathBuf) -> Result<Self, String> {
        let port = free_port();
        let child = Command::new(program)
            .args(["-l", "127.0.0.1", "-U", "0", "-t", "2", "-u", "nobody", "-p"])
            .arg(port.to_string())
            .stdin(Stdio::null())
            .spawn()
            .map_err(|error| format!("{}: {error}", program.display()))?;
        let mut child = Some(Ended(child));
        let deadline = Instant::now() + PATIENCE;
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            if Instant::now() > deadline {
                return Err(format!("{} does not answer", program.display()));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let running = Running::Memcached(child.take().expect("just put there"));
        Self::on(port, running).map_err(|error| error.to_string())
    }

    fn on(port: u16, server: Running) -> std::io::Result<Self> {
        let connect = || -> std::io::Result<TcpStream> {
            let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            Ok(stream)
        };
        let all = || (0..CONNECTIONS).map(|_| connect()).collect::<Result<Vec<_>, _>>();
        Ok(Self { lines: all()?, frames: all()?, port, _server: server })
    }

    /// Sends bytes on a separate connection, and returns everything until its end.
    fn talk(&self, bytes: &[u8]) -> Vec<u8> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).expect("a listener");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        // A server that rejects the first bytes may close before it has read everything.
        let sent = stream.write_all(bytes).and_then(|()| stream.shutdown(Shutdown::Write));
        let mut answer = Vec::new();
        let _ = sent.and_then(|()| stream.read_to_end(&mut answer).map(drop));
        answer
    }

    /// Returns the values of [`COUNTERS`].
    fn counters(&mut self) -> Vec<String> {
        let answer = self.exchange_lines(0, b"stats\r\n");
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let is_compared = |line: &&str| {
            line.split(' ')
                .nth(1)
                .is_some_and(|name| COUNTERS.split(' ').any(|other| name == other))
        };
        answer.lines().filter(is_compared).map(str::to_owned).collect()
    }

    /// Sends lines and reads until the answer to the `mn` after them.
    fn exchange_lines(&mut self, connection: usize, lines: &[u8]) -> Vec<u8> {
        let stream = &mut self.lines[connection];
        stream.write_all(&[lines, b"mn\r\n"].concat()).expect("sent");
        // Values have no capital letters.
        read_until(stream, |answer| answer.ends_with(b"MN\r\n"))
    }

    /// Sends frames and reads until the answer to the no-operation after them.
    fn exchange_frames(&mut self, connection: usize, frames: &[u8]) -> Vec<u8> {
        let stream = &mut self.frames[connection];
        let noop = stream::frame(0x0a, 0, b"", b"", b"");
        stream.write_all(&[frames, &noop].concat()).expect("sent");
        read_until(stream, |answer| {
            compare::frames(answer).is_some_and(|all| all.last().is_some_and(|f| f.opcode == 0x0a))
        })
    }

    /// Returns this server's version of a key; 0 if it is absent.
    fn version(&mut self, key: &str) -> u64 {
        let answer = self.exchange_lines(0, format!("gets {key}\r\n").as_bytes());
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let line = answer.lines().next().unwrap_or_default().to_owned();
        line.split(' ').nth(4).and_then(|version| version.parse().ok()).unwrap_or(0)
    }
}

fn differing(tested: &str, reference: &str, sent: &[u8]) -> String {
    format!(
        "the replies differ\n  tierce:    {}\n  reference: {}\n  sent:      {}",
        tested.escape_debug(),
        reference.escape_debug(),
        sent.escape_ascii()
    )
}

/// Splits lines into pipelines of some commands each; no value in them looks like a command.
fn pieces(lines: &str) -> Vec<String> {
    const LINES: usize = 120;
    let mut pieces = vec![String::new()];
    for (count, line) in lines.split_inclusive("\r\n").enumerate() {
        let is_whole = line.starts_with("m") && line.contains(' ');
        if count / LINES > pieces.len() - 1 && is_whole {
            pieces.push(String::new());
        }
        pieces.last_mut().expect("one at least").push_str(line);
    }
    pieces
}

fn read_until(stream: &mut TcpStream, is_whole: impl Fn(&[u8]) -> bool) -> Vec<u8> {
    let mut answer = Vec::new();
    let mut piece = [0; 65536];
    while !is_whole(&answer) {
        match stream.read(&mut piece) {
            Ok(len) if len > 0 => answer.extend_from_slice(&piece[..len]),
            // The bytes received so far say more than a panic.
            _ => break,
        }
    }
    answer
}

impl DifferentialRun {
    /// Runs the comparisons that are identical in each run.
    fn examples(&mut self) -> Result<(), String> {
        for lines in examples::lines() {
            self.both(b"flush_all\r\n");
            let (a, b) = self.both(lines.as_bytes());
            let (a, b) = (compare::masked(&a), compare::masked(&b));
            if a != b {
                return Err(differing(&a, &b, lines.as_bytes()));
            }
        }
        for frames in examples::frames() {
            self.both(b"flush_all\r\n");
            let (a, b) = self.both(&frames);
            compare::same_frames(&a, &b)
                .map_err(|what| format!("{what}\n  sent: {}", frames.escape_ascii()))?;
        }
        for lines in examples::combinations() {
            // Few enough for the sockets of both servers to buffer, because replies are read only afterwards.
            for piece in pieces(&lines) {
                self.compare_lines(0, &piece, &piece)?;
            }
        }
        self.both(b"flush_all\r\nstats reset\r\n");
        Ok(())
    }

    fn both(&self, bytes: &[u8]) -> (Vec<u8>, Vec<u8>) {
        (self.tested.talk(bytes), self.reference.talk(bytes))
    }

    /// Checks that the counters of both servers are equal.
    fn compare_counters(&mut self) -> Result<(), String> {
        let (a, b) = (self.tested.counters(), self.reference.counters());
        let different = a.iter().zip(&b).find(|(a, b)| a != b);
        match different {
            Some((a, b)) => Err(format!("counters differ\n  tierce:    {a}\n  reference: {b}")),
            None if a.len() != b.len() => Err("a counter is missing".to_owned()),
            None => Ok(()),
        }
    }

    fn execute(&mut self, commands: usize) -> Result<(), String> {
        let (mut sent, mut pipelines) = (0, 0);
        while sent < commands {
            let depth = 1 + self.stream.random.below(DEPTH_MAX);
            match self.stream.random.below(8) {
                0 => self.by_version()?,
                1..=4 => self.lines(depth)?,
                _ => self.frames(depth)?,
            }
            sent += depth;
            pipelines += 1;
            if pipelines % PIPELINES_BETWEEN_AUDITS == 0 {
                let keys = KEYS.join(" ");
                self.compare_lines(0, &format!("get {keys}\r\n"), &format!("get {keys}\r\n"))?;
                self.compare_counters()?;
            }
        }
        Ok(())
    }

    fn lines(&mut self, depth: usize) -> Result<(), String> {
        let lines: String = (0..depth).map(|_| self.stream.line()).collect();
        let connection = self.stream.random.below(CONNECTIONS);
        self.compare_lines(connection, &lines, &lines)
    }

    fn frames(&mut self, depth: usize) -> Result<(), String> {
        let frames: Vec<Vec<u8>> = (0..depth).map(|n| self.stream.frame(n as u32)).collect();
        let connection = self.stream.random.below(CONNECTIONS);
        let bytes = frames.concat();
        let tested = self.tested.exchange_frames(connection, &bytes);
        let reference = self.reference.exchange_frames(connection, &bytes);
        compare::same_frames(&tested, &reference)
            .map_err(|what| format!("{what}\n  sent: {}", frames.concat().escape_ascii()))
    }

    /// Makes a store by the version that each server has returned, or by one that it never had.
    fn by_version(&mut self) -> Result<(), String> {
        let key = self.stream.key();
        let (a, b) = (self.tested.version(key), self.reference.version(key));
        if (a == 0) != (b == 0) {
            return Err(format!("{key} is there on one side only: versions {a} and {b}"));
        }
        if self.stream.random.one_in(3) {
            let change = self.stream.line();
            self.compare_lines(1, &change, &change)?;
        }
        let line = self.stream.line_by_version(key);
        let with = |version: u64| line.replace("VERSION", &version.to_string());
        self.compare_lines(0, &with(a), &with(b))
    }

    fn compare_lines(
        &mut self,
        connection: usize,
        tested: &str,
        reference: &str,
    ) -> Result<(), String> {
        let a = self.tested.exchange_lines(connection, tested.as_bytes());
        let b = self.reference.exchange_lines(connection, reference.as_bytes());
        let (a, b) = (compare::masked(&a), compare::masked(&b));
        if a == b {
            return Ok(());
        }
        let first = a.lines().zip(b.lines()).position(|(a, b)| a != b);
        let at = first.unwrap_or(a.lines().count().min(b.lines().count()));
        let line = |text: &str| text.lines().nth(at).unwrap_or("(nothing)").to_owned();
        Err(format!(
            "the replies differ in line {at}\n  tierce:    {}\n  reference: {}\n  sent:      {}\n  \
             all of tierce:    {}\n  all of reference: {}",
            line(&a),
            line(&b),
            reference.escape_debug(),
            a.escape_debug(),
            b.escape_debug()
        ))
    }
}
