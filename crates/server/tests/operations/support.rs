//! A server of its own for each test, and a client that shows replies as text.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tierce_config::{Invocation, Settings, parse};
pub use tierce_harness::free_port;
use tierce_server::{Instance, Shards, Stopper, SyncClock};
use tierce_storage::ColdLimits;
use tierce_storage::disk::{Disk, OsDisk};
use tierce_wire::resp::{ReplyDecoder, Value};
use tierce_wire::words;

/// Long enough for any reply of a working server, on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Returns when other threads have made a condition true.
#[track_caller]
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    const PAUSE_MAX: Duration = Duration::from_millis(5);
    let begun = Instant::now();
    // Short at first, because most conditions become true in a moment.
    let mut pause = Duration::from_micros(100);
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "never: {what}");
        std::thread::sleep(pause);
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// Server on a port of its own, ended on drop.
pub struct TestServer {
    pub port: u16,
    /// Exists as long as the server.
    pub dir: PathBuf,
    /// Clock that decides if a sync takes too long.
    pub clock: SyncClock,
    /// Handle that locks shards as a long command does.
    pub shards: Shards,
    stopper: Stopper,
    thread: Option<JoinHandle<()>>,
}

impl TestServer {
    pub fn start() -> Self {
        Self::with("")
    }

    /// Starts with a command line, in which `{dir}` and `{port}` stand for those of the server.
    pub fn with(options: &str) -> Self {
        Self::on_disk(Arc::new(OsDisk), options)
    }

    /// Starts with the log on another disk.
    pub fn on_disk(disk: Arc<dyn Disk>, options: &str) -> Self {
        Self::limited(disk, options, ColdLimits::default())
    }

    /// Starts with other limits of values being spilled at once.
    pub fn limited(disk: Arc<dyn Disk>, options: &str, spilled: ColdLimits) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Relaxed);
        let dir = std::env::temp_dir().join(format!("tierce-ops-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let port = free_port();
        let path = dir.to_str().unwrap();
        let options = options.replace("{dir}", path).replace("{port}", &port.to_string());
        let line = format!(
            "--port {port} --bind 127.0.0.1 --dir {path} --threads 2 --loglevel nothing {options}"
        );
        let instance = Instance::start_limited(settings(&line), disk, spilled).unwrap();
        let (stopper, clock) = (instance.stopper(), instance.sync_clock());
        let shards = instance.shards();
        let thread = Some(std::thread::spawn(move || instance.wait()));
        Self { port, dir, clock, shards, stopper, thread }
    }

    pub fn client(&self) -> Client {
        Client::connect(self.port)
    }

    /// Waits for a server that a client has shut down.
    pub fn join(&mut self) {
        self.thread.take().unwrap().join().unwrap();
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.stopper.stop();
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            let _ = std::fs::remove_dir_all(&self.dir);
            assert!(ended.is_ok() || std::thread::panicking(), "the server panicked");
        }
    }
}

/// Parses a command line.
pub fn settings(line: &str) -> Settings {
    let args = words::split(line.as_bytes()).unwrap();
    let args = args.into_iter().map(|arg| String::from_utf8(arg).unwrap().into());
    let Invocation::Serve(sources) = parse(args, [], &[]).unwrap() else { panic!("a server") };
    sources.load(&mut std::io::empty()).unwrap().settings
}

/// Connection, by TCP or a Unix socket.
pub trait Stream: Read + Write {}
impl<S: Read + Write> Stream for S {}

pub struct Client {
    stream: Box<dyn Stream>,
    decoder: ReplyDecoder,
    input: Vec<u8>,
}

impl Client {
    pub fn connect(port: u16) -> Self {
        Self::try_connect(port).unwrap()
    }

    pub fn try_connect(port: u16) -> std::io::Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self::over(stream))
    }

    pub fn connect_unix(path: &Path) -> Self {
        let stream = std::os::unix::net::UnixStream::connect(path).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self::over(stream)
    }

    fn over(stream: impl Stream + 'static) -> Self {
        Self { stream: Box::new(stream), decoder: ReplyDecoder::new(), input: Vec::new() }
    }

    /// Sends a line of words, quoted as for redis-cli, without waiting for the reply.
    pub fn send(&mut self, line: &str) {
        let words = words::split(line.as_bytes()).unwrap();
        let mut request = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            request.extend(format!("${}\r\n", word.len()).bytes());
            request.extend(word);
            request.extend(b"\r\n");
        }
        self.send_raw(&request);
    }

    pub fn send_raw(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// Sends a line of words and returns the reply.
    pub fn value(&mut self, line: &str) -> Value {
        self.send(line);
        self.read().unwrap_or_else(|| panic!("{line}: the connection was closed"))
    }

    /// Sends a line of words and returns the reply as [`show`] shows it.
    pub fn call(&mut self, line: &str) -> String {
        show(&self.value(line))
    }

    /// Asks until the reply, as [`show`] shows it, satisfies `is_so`.
    #[track_caller]
    pub fn ask_until(&mut self, line: &str, is_so: impl Fn(&str) -> bool) {
        wait_until(line, || is_so(&self.call(line)));
    }

    /// Returns the next reply; `None` at the end of the connection.
    pub fn read(&mut self) -> Option<Value> {
        loop {
            let (value, used) = match self.decoder.decode(&self.input).unwrap() {
                Some((value, used)) => (value, used),
                None => {
                    let mut chunk = [0; 16 << 10];
                    match self.stream.read(&mut chunk) {
                        Ok(0) => return None,
                        Ok(len) => self.input.extend(&chunk[..len]),
                        Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {
                            return None;
                        }
                        Err(error) => panic!("no reply: {error}"),
                    }
                    continue;
                }
            };
            self.input.drain(..used);
            return Some(value);
        }
    }

    /// Returns the next reply, shown.
    pub fn next(&mut self) -> String {
        self.read().map_or("(closed)".to_owned(), |value| show(&value))
    }

    /// Checks the replies of several lines.
    #[track_caller]
    pub fn check(&mut self, cases: &[(&str, &str)]) {
        for (line, expected) in cases {
            assert_eq!(self.call(line), *expected, "{line}");
        }
    }
}

/// Shows a reply as text: errors begin with `-`, integers with `:`, null is `(nil)`.
pub fn show(value: &Value) -> String {
    let list = |values: &[Value]| values.iter().map(show).collect::<Vec<_>>().join(", ");
    match value {
        Value::Simple(text) | Value::Bulk(text) | Value::Verbatim { text, .. } => {
            String::from_utf8_lossy(text).into_owned()
        }
        Value::Error(text) => format!("-{}", String::from_utf8_lossy(text)),
        Value::Int(int) => format!(":{int}"),
        Value::Null => "(nil)".to_owned(),
        Value::Array(values) => format!("[{}]", list(values)),
        Value::Set(values) => format!("~[{}]", list(values)),
        Value::Push(values) => format!(">[{}]", list(values)),
        Value::Map(pairs) => {
            let pairs: Vec<_> =
                pairs.iter().map(|(key, value)| format!("{}={}", show(key), show(value))).collect();
            format!("{{{}}}", pairs.join(", "))
        }
        Value::Double(value) => format!("{value}"),
        Value::Bool(value) => format!("{value}"),
        Value::BigNumber(digits) => String::from_utf8_lossy(digits).into_owned(),
        Value::Attributed { value, .. } => show(value),
    }
}

/// Returns true if the port is free.
pub fn is_closed(port: u16) -> bool {
    TcpStream::connect(("127.0.0.1", port)).is_err()
}
