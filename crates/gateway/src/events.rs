//! Messages of channels, and MONITOR, as server-sent events.
//!
//! A subscriber is a RESP connection of its own to the server: the event loops serve one end of a socket pair like any
//! connection, and this module reads the other end while the HTTP client reads events. So subscribers over HTTP have
//! all properties of other subscribers: their permissions are checked when they subscribe and when rules change, they
//! are in CLIENT LIST, and client-output-buffer-limit closes slow ones. The gateway itself keeps one read and one
//! incomplete message for each.
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
use tierce_config::ClientClass;
use tierce_json::request;
use tierce_wire::resp::{ReplyDecoder, ReplyError, Value};
use tokio::net::UnixStream;
use tokio::time::{Instant, Sleep, sleep};

use crate::failure::Failure;
use crate::gateway::{AT_ONCE_BYTES, Shared};

/// Bytes that are read from the server at a time.
const READ_BYTES: usize = 32 * 1024;

/// A comment is sent after so long without an event, so that neither proxies nor this server keep what is gone.
const HEARTBEAT_EVERY: Duration = Duration::from_secs(15);
const HEARTBEAT: &[u8] = b":\n\n";

/// What the events of a stream are about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Subject {
    /// Messages of channels or patterns, which the path names.
    Channels,
    /// The commands of all clients.
    Commands,
}

impl Subject {
    /// That of a request that wants events, if it does.
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

/// How bytes are written into an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Encoding {
    /// As they are; what is not UTF-8 is replaced.
    Text,
    /// Channel and message in base64 each.
    Base64,
}

/// The call that begins a stream.
pub(crate) struct Call {
    subject: Subject,
    words: Vec<Vec<u8>>,
    encoding: Encoding,
}

impl Call {
    /// That of a path. The query may have `encoding=base64`.
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

/// Connects to the server, and begins the stream when it has agreed.
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
    let mut source = Source::new(socket);
    if auth.is_some() {
        source.reply().await?.ok_or_else(lost)?;
    }
    let first = source.reply().await?.ok_or_else(lost)?;
    let mut begin = Vec::new();
    write_event(&mut begin, call.subject, &first, call.encoding);
    let events = Events {
        shared: Arc::clone(shared),
        source,
        converting: None,
        subject: call.subject,
        encoding: call.encoding,
        begin: Some(begin.into()),
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

/// What comes from the server.
struct Source {
    socket: UnixStream,
    received: Received,
}

fn malformed(_: ReplyError) -> io::Error {
    io::ErrorKind::InvalidData.into()
}

/// Input that is not decoded.
#[derive(Default)]
struct Received {
    decoder: ReplyDecoder,
    input: Vec<u8>,
}

impl Received {
    /// The events of all complete replies.
    fn take_events(&mut self, subject: Subject, encoding: Encoding) -> io::Result<Vec<u8>> {
        let (mut at, mut events) = (0, Vec::new());
        while let Some((value, len)) = self.decoder.decode(&self.input[at..]).map_err(malformed)? {
            at += len;
            write_event(&mut events, subject, &value, encoding);
        }
        self.input.drain(..at);
        Ok(events)
    }
}

impl Source {
    fn new(socket: UnixStream) -> Self {
        Self { socket, received: Received::default() }
    }

    /// Waits for more input. Whether some came, and not the end.
    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        loop {
            ready!(self.socket.poll_read_ready(cx))?;
            let input = &mut self.received.input;
            let begin = input.len();
            input.resize(begin + READ_BYTES, 0);
            let read = self.socket.try_read(&mut input[begin..]);
            input.truncate(begin + *read.as_ref().unwrap_or(&0));
            match read {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return Poll::Ready(read.map(|count| count > 0)),
            }
        }
    }

    /// The next reply alone; an error is one of the request. None at the end.
    async fn reply(&mut self) -> Result<Option<Value>, Failure> {
        loop {
            let Received { decoder, input } = &mut self.received;
            if let Ok(Some((value, len))) = decoder.decode(input) {
                input.drain(..len);
                return match value {
                    Value::Error(text) => Err(Failure::of_command(&String::from_utf8_lossy(&text))),
                    value => Ok(Some(value)),
                };
            }
            if !matches!(std::future::poll_fn(|cx| self.poll_more(cx)).await, Ok(true)) {
                return Ok(None);
            }
        }
    }
}

/// The input that is left, and the events made of the rest.
type Converted = io::Result<(Received, Vec<u8>)>;

/// The body of a response.
struct Events {
    shared: Arc<Shared>,
    source: Source,
    /// Makes events of what has come, which is not there until it has ended.
    converting: Option<Pin<Box<dyn Future<Output = Converted> + Send>>>,
    subject: Subject,
    encoding: Encoding,
    /// The first event, which came before there was a body.
    begin: Option<Bytes>,
    heartbeat: Pin<Box<Sleep>>,
    /// The end of the server.
    ending: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl Events {
    /// True if a subscriber over RESP would be closed with so many bytes pending. A reader that does not keep up holds
    /// what was read for it, which the server does not see: the message, or the event made of it, which is longer.
    fn is_too_much(&self, bytes: usize) -> bool {
        let hard_bytes = || {
            let limits = self.shared.config.settings().output_limits();
            usize::try_from(limits.of(ClientClass::Pubsub).hard_bytes).unwrap_or(usize::MAX)
        };
        bytes > AT_ONCE_BYTES && (1..bytes).contains(&hard_bytes())
    }

    /// Events of what has come.
    fn poll_events(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Vec<u8>>> {
        let (subject, encoding) = (self.subject, self.encoding);
        let received = &mut self.source.received;
        if self.converting.is_none() {
            if received.input.len() <= AT_ONCE_BYTES {
                return Poll::Ready(received.take_events(subject, encoding));
            }
            // A long message comes in many parts, and is converted once.
            if received.decoder.reply_len(&received.input).map_err(malformed)?.is_none() {
                return Poll::Ready(Ok(Vec::new()));
            }
        }
        let converting = self.converting.get_or_insert_with(|| {
            let (shared, mut received) = (Arc::clone(&self.shared), std::mem::take(received));
            Box::pin(async move {
                let convert = move || {
                    let events = received.take_events(subject, encoding)?;
                    Ok((received, events))
                };
                let converted = shared.waiting.convert_beside(convert).await;
                converted.unwrap_or_else(|_| Err(io::ErrorKind::ConnectionAborted.into()))
            })
        });
        let converted = ready!(converting.as_mut().poll(cx));
        self.converting = None;
        let (received, events) = converted?;
        self.source.received = received;
        Poll::Ready(Ok(events))
    }
}

impl hyper::body::Body for Events {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let this = &mut *self;
        if let Some(begin) = this.begin.take() {
            return Poll::Ready(Some(Ok(Frame::data(begin))));
        }
        if this.ending.as_mut().poll(cx).is_ready() {
            return Poll::Ready(None);
        }
        let events = loop {
            let events = ready!(this.poll_events(cx))?;
            if this.is_too_much(events.len()) || this.is_too_much(this.source.received.input.len())
            {
                return Poll::Ready(None);
            }
            if !events.is_empty() {
                break events;
            }
            match this.source.poll_more(cx)? {
                Poll::Ready(true) => {}
                // The server has closed the connection: the client has lost its rights, or read too slowly.
                Poll::Ready(false) => return Poll::Ready(None),
                Poll::Pending => {
                    ready!(this.heartbeat.as_mut().poll(cx));
                    break HEARTBEAT.to_vec();
                }
            }
        };
        this.heartbeat.as_mut().reset(Instant::now() + HEARTBEAT_EVERY);
        Poll::Ready(Some(Ok(Frame::data(events.into()))))
    }
}

/// Appends the event of a reply, whatever it is.
fn write_event(out: &mut Vec<u8>, subject: Subject, value: &Value, encoding: Encoding) {
    let mut text = Vec::new();
    match (subject, value) {
        (Subject::Channels, Value::Array(parts) | Value::Push(parts)) => {
            for (index, part) in parts.iter().enumerate() {
                if index > 0 {
                    text.push(b',');
                }
                // The kind of the event comes first, and counts are no strings.
                write_part(&mut text, part, if index == 0 { Encoding::Text } else { encoding });
            }
        }
        (Subject::Commands, Value::Simple(status)) if status == b"OK" => {
            text.extend_from_slice(b"\"OK\"");
        }
        (_, value) => write_part(&mut text, value, encoding),
    }
    let text = String::from_utf8_lossy(&text);
    for line in text.split(['\r', '\n']) {
        out.extend_from_slice(b"data: ");
        out.extend_from_slice(line.as_bytes());
        out.push(b'\n');
    }
    out.push(b'\n');
}

fn write_part(text: &mut Vec<u8>, part: &Value, encoding: Encoding) {
    match part {
        Value::Int(number) => text.extend_from_slice(number.to_string().as_bytes()),
        Value::Simple(bytes) | Value::Bulk(bytes) | Value::Error(bytes) => match encoding {
            Encoding::Text => text.extend_from_slice(bytes),
            Encoding::Base64 => tierce_json::append_base64(text, bytes),
        },
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(subject: Subject, reply: &[u8], encoding: Encoding) -> String {
        let (value, _) = ReplyDecoder::new().decode(reply).expect("a reply").expect("all of it");
        let mut out = Vec::new();
        write_event(&mut out, subject, &value, encoding);
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn messages_are_events() {
        let check = |reply: &[u8], expected| {
            assert_eq!(event(Subject::Channels, reply, Encoding::Text), expected);
        };
        check(b"*3\r\n$9\r\nsubscribe\r\n$2\r\nch\r\n:1\r\n", "data: subscribe,ch,1\n\n");
        check(b"*3\r\n$7\r\nmessage\r\n$2\r\nch\r\n$3\r\na,b\r\n", "data: message,ch,a,b\n\n");
        check(
            b"*4\r\n$8\r\npmessage\r\n$2\r\nc*\r\n$2\r\nch\r\n$1\r\nx\r\n",
            "data: pmessage,c*,ch,x\n\n",
        );
        // A line of an event ends with any of these, so a message cannot forge another one.
        check(
            b"*3\r\n$7\r\nmessage\r\n$2\r\nch\r\n$13\r\n1\n\ndata: 2\r\n3\r\n",
            "data: message,ch,1\ndata: \ndata: data: 2\ndata: \ndata: 3\n\n",
        );
        check(
            b"*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$2\r\n\xff\x00\r\n",
            "data: message,c,\u{fffd}\0\n\n",
        );
    }

    #[test]
    fn bytes_are_base64_on_request() {
        let message = b"*3\r\n$7\r\nmessage\r\n$2\r\nch\r\n$2\r\n\xff\x00\r\n";
        let event = event(Subject::Channels, message, Encoding::Base64);
        assert_eq!(event, "data: message,Y2g=,/wA=\n\n");
    }

    #[test]
    fn commands_of_clients_are_events() {
        let check = |reply: &[u8], expected| {
            assert_eq!(event(Subject::Commands, reply, Encoding::Text), expected);
        };
        check(b"+OK\r\n", "data: \"OK\"\n\n");
        check(
            b"+1.5 [0 127.0.0.1:1] \"GET\" \"k\"\r\n",
            "data: 1.5 [0 127.0.0.1:1] \"GET\" \"k\"\n\n",
        );
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
