//! Messages of channels, and MONITOR, as server-sent events.
//!
//! A subscriber is a RESP connection of its own to the server: the event loops serve one end of a socket pair like any
//! connection, and this module reads the other end while the HTTP client reads events. So subscribers over HTTP behave
//! like other subscribers: their permissions are checked when they subscribe and when rules change, they are in CLIENT
//! LIST, and client-output-buffer-limit closes slow ones. The gateway keeps only one read buffer for each, and no
//! messages: those of many slow readers are in memory once, in the output queue.
//!
//! An event has the parts of a message separated by commas, as Upstash writes them: `data: message,news,text`. Lines of
//! a text become lines of the event.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use hyper::body::Frame;
use tierce_commands::clients::Client;
use tierce_commands::kernel::Kernel;
use tierce_json::request;
use tierce_wire::number;
use tierce_wire::resp::{ReplyDecoder, Value};
use tokio::net::UnixStream;
use tokio::time::{Instant, Sleep, sleep};

use crate::failure::Failure;
use crate::shared::Shared;

/// Number of bytes that are read from the server at a time.
const READ_BYTES: usize = 32 * 1024;

/// Interval after which a comment is sent if there was no event, so that proxies and this server detect dead
/// connections.
const HEARTBEAT_EVERY: Duration = Duration::from_secs(15);
const HEARTBEAT: &[u8] = b":\n\n";

/// Subject of a stream of events.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Subject {
    /// Messages of the channels or patterns in the path.
    Channels,
    /// Commands of all clients (MONITOR).
    Commands,
}

impl Subject {
    /// Returns the subject of a request for events; `None` for other requests.
    pub(crate) fn of(request: &Request) -> Option<Self> {
        let path = request.uri().path().trim_start_matches('/');
        let subject = match path.split('/').next()?.to_ascii_lowercase().as_str() {
            "subscribe" | "psubscribe" | "ssubscribe" => Self::Channels,
            "monitor" => Self::Commands,
            _ => return None,
        };
        let accepts = request.headers().get_all(header::ACCEPT).iter();
        let wants_events = accepts
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split([',', ';']))
            .any(|kind| kind.trim().eq_ignore_ascii_case("text/event-stream"));
        wants_events.then_some(subject)
    }
}

/// Encoding of bytes in an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Encoding {
    /// Unchanged; invalid UTF-8 is replaced.
    Text,
    /// Base64, for channel and message each.
    Base64,
}

/// Call that begins a stream.
pub(crate) struct Call {
    subject: Subject,
    words: Vec<Vec<u8>>,
    encoding: Encoding,
}

impl Call {
    /// Parses a path. The query may be `encoding=base64`.
    pub(crate) fn of(subject: Subject, path: &str, query: &str) -> Result<Self, Failure> {
        let args = request::of_path(path, "", b"")?;
        let words = args.as_args().iter().map(<[u8]>::to_vec).collect();
        let encoding = match query {
            "" => Encoding::Text,
            "encoding=base64" => Encoding::Base64,
            _ => return Err(Failure::malformed("ERR the query can be encoding=base64 only")),
        };
        Ok(Self { subject, words, encoding })
    }
}

/// Connects to the server, and begins the stream when the server has accepted it.
pub(crate) async fn open(
    shared: &Arc<Shared>,
    kernel: &Kernel,
    client: &Client,
    auth: Option<[Vec<u8>; 2]>,
    call: Call,
) -> Result<Response, Failure> {
    let address = |text: &str| text.parse::<SocketAddr>().ok();
    let lost = || Failure::new(StatusCode::SERVICE_UNAVAILABLE, "ERR no connection to the server");
    let ends = address(&client.addr).zip(address(&client.laddr));
    let (peer, local) = ends.ok_or_else(lost)?;
    let socket = shared.dial(peer, local).and_then(UnixStream::from_std).map_err(|_| lost())?;
    let mut calls = Vec::new();
    if let Some([user, password]) = &auth {
        write_call(&mut calls, &[kernel.commands.name_of_auth(), user, password]);
    }
    write_call(&mut calls, &call.words.iter().map(Vec::as_slice).collect::<Vec<_>>());
    send(&socket, &calls).await.map_err(|_| lost())?;
    let mut source = Source { socket, input: Vec::new() };
    if auth.is_some() {
        let len = source.reply_len().await?.ok_or_else(lost)?;
        source.input.drain(..len);
    }
    let len = source.reply_len().await?.ok_or_else(lost)?;
    let mut begin = Vec::new();
    if call.subject == Subject::Commands {
        source.input.drain(..len);
        begin.extend_from_slice(b"data: \"OK\"\n\n");
    }
    let events = Events {
        source,
        begin,
        writer: EventWriter::new(call.encoding),
        heartbeat: Box::pin(sleep(HEARTBEAT_EVERY)),
        ending: Box::pin(shared.ends()),
    };
    let mut response = Body::new(events).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    Ok(response)
}

fn write_call(out: &mut Vec<u8>, words: &[&[u8]]) {
    out.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}

async fn send(socket: &UnixStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        socket.writable().await?;
        match socket.try_write(bytes) {
            Ok(sent) => bytes = &bytes[sent..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Input from the server.
struct Source {
    socket: UnixStream,
    /// Bytes that are not in an event yet.
    input: Vec<u8>,
}

impl Source {
    /// Waits for more input. Returns true if some arrived, false at the end.
    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        loop {
            ready!(self.socket.poll_read_ready(cx))?;
            let begin = self.input.len();
            self.input.resize(begin + READ_BYTES, 0);
            let read = self.socket.try_read(&mut self.input[begin..]);
            self.input.truncate(begin + *read.as_ref().unwrap_or(&0));
            match read {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return Poll::Ready(read.map(|count| count > 0)),
            }
        }
    }

    /// Returns the length of the next complete reply; an error reply becomes the request's error. `None` at the end.
    async fn reply_len(&mut self) -> Result<Option<usize>, Failure> {
        let mut decoder = ReplyDecoder::new();
        loop {
            if let Ok(Some((value, len))) = decoder.decode(&self.input) {
                return match value {
                    Value::Error(text) => Err(Failure::of_command(&String::from_utf8_lossy(&text))),
                    _ => Ok(Some(len)),
                };
            }
            if !matches!(std::future::poll_fn(|cx| self.poll_more(cx)).await, Ok(true)) {
                return Ok(None);
            }
        }
    }
}

/// Body of a response.
struct Events {
    source: Source,
    /// Bytes that come before the output of `writer`.
    begin: Vec<u8>,
    writer: EventWriter,
    heartbeat: Pin<Box<Sleep>>,
    /// Completes when the server shuts down.
    ending: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl hyper::body::Body for Events {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let this = &mut *self;
        // An incomplete event must not be taken for a complete one.
        let end = |is_inside: bool| {
            Poll::Ready(is_inside.then(|| Err(io::ErrorKind::UnexpectedEof.into())))
        };
        if this.ending.as_mut().poll(cx).is_ready() {
            return end(this.writer.is_inside());
        }
        let mut events = std::mem::take(&mut this.begin);
        loop {
            this.writer.write(&mut events, &this.source.input)?;
            this.source.input.clear();
            if !events.is_empty() {
                break;
            }
            match this.source.poll_more(cx)? {
                Poll::Ready(true) => {}
                // The server has closed the connection: the client has lost its rights, or read too slowly.
                Poll::Ready(false) => return end(this.writer.is_inside()),
                // The rest of an event comes without a heartbeat.
                Poll::Pending if this.writer.is_inside() => return Poll::Pending,
                Poll::Pending => {
                    ready!(this.heartbeat.as_mut().poll(cx));
                    events.extend_from_slice(HEARTBEAT);
                    break;
                }
            }
        }
        this.heartbeat.as_mut().reset(Instant::now() + HEARTBEAT_EVERY);
        Poll::Ready(Some(Ok(Frame::data(events.into()))))
    }
}

/// Writer of an event for each reply, as its bytes arrive.
struct EventWriter {
    encoding: Encoding,
    next: Next,
    /// Number of parts of the current event, and of those that are written or begun.
    parts: usize,
    begun: usize,
    /// Beginning of a protocol line, of a character, or of a group of base64.
    kept: Vec<u8>,
}

/// Next part of a reply.
#[derive(PartialEq, Eq)]
enum Next {
    /// A line of the protocol.
    Line,
    /// A number, or a text that ends with its line.
    Number,
    Text,
    /// This many bytes of a string.
    Bytes(usize),
}

impl EventWriter {
    fn new(encoding: Encoding) -> Self {
        Self { encoding, next: Next::Line, parts: 0, begun: 0, kept: Vec::new() }
    }

    /// Returns true if an event is incomplete.
    fn is_inside(&self) -> bool {
        self.parts > 0
    }

    /// Appends the events of this input.
    fn write(&mut self, out: &mut Vec<u8>, mut input: &[u8]) -> io::Result<()> {
        while let Some(first) = input.first() {
            let is_text = self.kept.is_empty() && matches!(first, b'+' | b'-' | b':');
            let (taken, is_end) = match self.next {
                Next::Line if is_text => {
                    self.begin_part(out);
                    self.next = if *first == b':' { Next::Number } else { Next::Text };
                    input = &input[1..];
                    continue;
                }
                Next::Line | Next::Number | Next::Text => {
                    match input.iter().position(|byte| *byte == b'\n') {
                        Some(end) => (end + 1, true),
                        None => (input.len(), false),
                    }
                }
                Next::Bytes(left) => (left.min(input.len()), left <= input.len()),
            };
            let (bytes, rest) = input.split_at(taken);
            input = rest;
            match self.next {
                Next::Line => {
                    self.kept.extend_from_slice(bytes);
                    if is_end {
                        self.read_line(out)?;
                    }
                    continue;
                }
                Next::Number | Next::Text => {
                    let text = bytes.strip_suffix(b"\n").unwrap_or(bytes);
                    self.write_bytes(out, text.strip_suffix(b"\r").unwrap_or(text), is_end);
                }
                Next::Bytes(left) => {
                    self.write_bytes(out, bytes, is_end);
                    self.next = Next::Bytes(left - taken);
                }
            }
            if is_end {
                self.end_part(out);
            }
        }
        Ok(())
    }

    /// Reads the kept line. An empty one is the rest of a string.
    fn read_line(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        let line = std::mem::take(&mut self.kept);
        let Some((kind, number)) = line.trim_ascii_end().split_first() else { return Ok(()) };
        let number = number::parse_i64(number).ok_or(io::ErrorKind::InvalidData)?;
        let number = usize::try_from(number);
        match (kind, number) {
            (b'*' | b'>', Ok(parts)) if self.parts == 0 && parts > 0 => self.parts = parts,
            (b'$', Ok(len @ 1..)) => {
                self.begin_part(out);
                self.next = Next::Bytes(len);
            }
            // An empty string, or null.
            (b'$', _) => {
                self.begin_part(out);
                self.end_part(out);
            }
            _ => return Err(io::ErrorKind::InvalidData.into()),
        }
        Ok(())
    }

    fn begin_part(&mut self, out: &mut Vec<u8>) {
        // A reply that is no array is the only one.
        self.parts = self.parts.max(1);
        out.extend_from_slice(if self.begun == 0 { b"data: " } else { b"," });
        self.begun += 1;
    }

    fn end_part(&mut self, out: &mut Vec<u8>) {
        self.next = Next::Line;
        if self.begun == self.parts {
            out.extend_from_slice(b"\n\n");
            (self.parts, self.begun) = (0, 0);
        }
    }

    /// Appends bytes of a part, as far as they make up characters, or groups of base64.
    fn write_bytes(&mut self, out: &mut Vec<u8>, bytes: &[u8], is_end: bool) {
        // The kind of the event comes first, and counts are no strings.
        let is_text = self.begun == 1 && self.parts > 1 || self.next == Next::Number;
        let encoding = if is_text { Encoding::Text } else { self.encoding };
        self.kept.extend_from_slice(bytes);
        let len = self.kept.len();
        let whole = match encoding {
            _ if is_end => len,
            Encoding::Base64 => len - len % 3,
            Encoding::Text => {
                // Splits before the first byte of the last character, unless that has four.
                let begin = len.saturating_sub(3);
                let first = self.kept[begin..].iter().rposition(|byte| *byte >= 0xc0);
                first.map_or(len, |first| begin + first)
            }
        };
        let whole = self.kept.drain(..whole).collect::<Vec<_>>();
        match encoding {
            Encoding::Base64 => tierce_json::append_base64(out, &whole),
            Encoding::Text => {
                for (index, line) in String::from_utf8_lossy(&whole).split(['\r', '\n']).enumerate()
                {
                    out.extend_from_slice(if index > 0 { b"\ndata: " } else { b"" });
                    out.extend_from_slice(line.as_bytes());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks a reply for all sizes of input pieces.
    #[track_caller]
    fn check(reply: &[u8], encoding: Encoding, expected: &str) {
        for size in 1..=reply.len() {
            let (mut writer, mut out) = (EventWriter::new(encoding), Vec::new());
            for piece in reply.chunks(size) {
                writer.write(&mut out, piece).expect("a reply");
            }
            assert!(!writer.is_inside());
            assert_eq!(String::from_utf8(out).expect("text"), expected, "{size}");
        }
    }

    #[test]
    fn messages_are_events() {
        let check = |reply: &[u8], expected: &str| check(reply, Encoding::Text, expected);
        check(b"*3\r\n$9\r\nsubscribe\r\n$2\r\nch\r\n:1\r\n", "data: subscribe,ch,1\n\n");
        check(b"*3\r\n$7\r\nmessage\r\n$2\r\nch\r\n$3\r\na,b\r\n", "data: message,ch,a,b\n\n");
        check(
            b"*4\r\n$8\r\npmessage\r\n$2\r\nc*\r\n$2\r\nch\r\n$1\r\nx\r\n",
            "data: pmessage,c*,ch,x\n\n",
        );
        check(
            b"*3\r\n$11\r\nunsubscribe\r\n$-1\r\n:0\r\n*3\r\n$7\r\nmessage\r\n$0\r\n\r\n$0\r\n\r\n",
            "data: unsubscribe,,0\n\ndata: message,,\n\n",
        );
        // Any of these ends a line of an event, so a message cannot forge another event.
        check(
            b"*3\r\n$7\r\nmessage\r\n$2\r\nch\r\n$13\r\n1\n\ndata: 2\r\n3\r\n",
            "data: message,ch,1\ndata: \ndata: data: 2\ndata: \ndata: 3\n\n",
        );
        check(
            b"*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$2\r\n\xff\x00\r\n",
            "data: message,c,\u{fffd}\0\n\n",
        );
        for text in [
            &b"\xf0\x9f\xa6\x80\xe2\x82\xac\xc3\xa9"[..],
            b"\xf0\x9f\xa6a\xe2\x82",
            b"\x80\x80\x80\x80\xc3",
        ] {
            let head = format!("*2\r\n$7\r\nmessage\r\n${}\r\n", text.len());
            let expected = format!("data: message,{}\n\n", String::from_utf8_lossy(text));
            check(&[head.as_bytes(), text, b"\r\n"].concat(), &expected);
        }
    }

    #[test]
    fn bytes_are_base64_on_request() {
        let message =
            b"*3\r\n$7\r\nmessage\r\n$2\r\nch\r\n$5\r\n\xff\x00\n\r\n\r\n*2\r\n$1\r\nx\r\n:17\r\n";
        let events = "data: message,Y2g=,/wAKDQo=\n\ndata: x,17\n\n";
        check(message, Encoding::Base64, events);
    }

    #[test]
    fn commands_of_clients_are_events() {
        check(
            b"+1.5 [0 127.0.0.1:1] \"GET\" \"k\"\r\n+2 x\r\n",
            Encoding::Text,
            "data: 1.5 [0 127.0.0.1:1] \"GET\" \"k\"\n\ndata: 2 x\n\n",
        );
    }

    #[test]
    fn other_replies_are_none() {
        for reply in [&b"*0\r\n"[..], b"x1\r\n", b"$x\r\n", b"*1\r\n*1\r\n"] {
            let mut writer = EventWriter::new(Encoding::Text);
            assert!(writer.write(&mut Vec::new(), reply).is_err(), "{}", reply.escape_ascii());
        }
    }

    #[test]
    fn only_a_request_that_accepts_events_wants_some() {
        let subject = |path: &str, accept: &str| {
            let request = Request::builder().uri(path).header(header::ACCEPT, accept);
            Subject::of(&request.body(Body::empty()).expect("a request"))
        };
        assert_eq!(subject("/subscribe/a", "text/event-stream"), Some(Subject::Channels));
        assert_eq!(
            subject("/PSUBSCRIBE/a", "text/html, text/event-stream;q=1"),
            Some(Subject::Channels)
        );
        assert_eq!(subject("/monitor", "Text/Event-Stream"), Some(Subject::Commands));
        assert_eq!(subject("/subscribe/a", "*/*"), None);
        assert_eq!(subject("/get/a", "text/event-stream"), None);
    }
}
