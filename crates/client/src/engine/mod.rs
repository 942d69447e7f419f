//! The state machine for requests, without sockets, threads and clocks.
//!
//! The engine is told of events: new requests, a connection established or lost, received bytes, elapsed time. It
//! returns the bytes to send, its wish for a connection, and the time of the next call. It calls the callbacks. Its
//! driver decides nothing.
//!
//! - A request is completed exactly once, at its deadline at the latest.
//! - A request of which a byte was sent is sent again only if that is allowed, and after a wait. A request of which
//!   nothing was sent is sent over the next connection in any case.
//! - A request that timed out before it was sent is never sent.
//! - An answer without a waiting caller is dropped. The connection is closed if there are too many of them, or if no
//!   byte arrives from the server for a whole timeout.

mod in_flight;
mod input;
mod output;
#[cfg(test)]
mod simulation;

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::mem;
use std::sync::Arc;

use crate::config::{Config, Offline, millis};
use crate::error::Error;
use crate::framing::Framing;
use crate::window::{LinkStatus, Repeat, Submission, Submitted, Window};
use in_flight::{ByteRange, InFlight, NEVER, Request};
pub(crate) use input::Input;
use output::{Output, Rest};

/// Bytes that a connection sends before requests.
#[derive(Clone, Debug, Default)]
pub(crate) struct Greeting {
    pub(crate) bytes: Vec<u8>,
    /// Number of answers to the greeting.
    pub(crate) answers: usize,
    pub(crate) refusal: Option<Refusal>,
}

/// Returns the reason if an answer to the greeting refuses the connection.
pub(crate) type Refusal = fn(&[u8]) -> Option<String>;

/// State of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    /// There is no connection. The next attempt is at this time.
    Idle { next_ms: u64 },
    /// An attempt is in progress; it fails at this time.
    Connecting { until_ms: u64 },
    /// Connected; the answers to the greeting are pending.
    Greeting { until_ms: u64, sent: usize, answers: usize },
    /// Requests can be sent.
    Ready,
    /// Closed for good.
    Closed,
}

/// A request that will be sent again.
struct Repetition {
    at_ms: u64,
    request: Request,
}

pub(crate) struct Engine<F> {
    framing: F,
    window: Arc<Window>,
    config: Config,
    greeting: Greeting,
    link: Link,
    /// Number of failed attempts to connect, and of connections lost before they were of any use.
    link_failures: u32,
    in_flight: InFlight,
    repetitions: Vec<Repetition>,
    /// Ids in the order of the answers, if the protocol has an order, each with its number of replies.
    order: VecDeque<(u32, u32)>,
    /// Number of answers without a waiting caller.
    abandoned: usize,
    output: Output,
    input: Input,
    received_ms: u64,
    random: u64,
}

impl<F: Framing> Engine<F> {
    /// Makes an engine that wants a connection. `random` is any number, for the backoff.
    pub(crate) fn new(
        framing: F,
        window: Arc<Window>,
        config: Config,
        greeting: Greeting,
        random: u64,
    ) -> Engine<F> {
        Engine {
            framing,
            window,
            in_flight: InFlight::new(config.window()),
            config,
            greeting,
            link: Link::Idle { next_ms: 0 },
            link_failures: 0,
            repetitions: Vec::new(),
            order: VecDeque::new(),
            abandoned: 0,
            output: Output::default(),
            input: Input::new(),
            received_ms: 0,
            random: random | 1,
        }
    }

    /// Takes all requests of a batch and leaves it empty.
    pub(crate) fn take_up(&mut self, now_ms: u64, batch: &mut Submission) {
        if batch.requests.is_empty() {
            return;
        }
        if let Some(error) = self.why_refuse() {
            batch.bytes.clear();
            for Submitted { callback, .. } in batch.requests.drain(..) {
                self.window.complete_one();
                callback.call(Err(error.clone()));
            }
            return;
        }
        let bytes = mem::replace(&mut batch.bytes, self.output.buffer());
        let chunk = self.output.push(bytes, batch.requests.len());
        let deadline_ms = self.config.timeout.map_or(NEVER, |timeout| now_ms + millis(timeout));
        for Submitted { offset, len, repeat, replies, callback } in batch.requests.drain(..) {
            let range = ByteRange { chunk, offset, len };
            let attempt_until_ms = self.attempt_until_ms(now_ms, deadline_ms, repeat);
            self.insert(Request {
                callback,
                range,
                deadline_ms,
                attempt_until_ms,
                failures: 0,
                repeat,
                replies,
            });
        }
    }

    /// Returns the reason why requests fail at once, if there is one.
    fn why_refuse(&self) -> Option<Error> {
        match self.link {
            Link::Closed => Some(Error::Closed),
            Link::Ready => None,
            _ if self.config.offline == Offline::Wait => None,
            _ => match self.window.link() {
                LinkStatus::Down(error) => Some(error),
                LinkStatus::Connecting | LinkStatus::Up => None,
            },
        }
    }

    fn attempt_until_ms(&self, now_ms: u64, deadline_ms: u64, repeat: Repeat) -> u64 {
        match (self.config.attempt_timeout, repeat) {
            (Some(timeout), Repeat::Yes) => deadline_ms.min(now_ms + millis(timeout)),
            _ => deadline_ms,
        }
    }

    /// Gives the request an id and makes it the last in order.
    #[inline]
    fn insert(&mut self, request: Request) {
        let id = self.in_flight.next_id();
        F::set_id(self.output.bytes_mut(request.range), id);
        if F::ORDERED {
            self.order.push_back((id, request.replies));
        }
        self.in_flight.insert(request);
    }

    fn complete(&mut self, request: Request, error: Error) {
        self.output.unpin(request.range);
        self.window.complete_one();
        request.callback.call(Err(error));
    }

    /// Repeats a request later or fails it, after an attempt failed that had sent a part of it.
    fn attempt_failed(&mut self, now_ms: u64, mut request: Request, error: Error) {
        request.failures += 1;
        let may_repeat = request.repeat == Repeat::Yes
            && request.failures <= self.config.retries
            && now_ms < request.deadline_ms;
        if !may_repeat {
            return self.complete(request, error);
        }
        let random = self.next_random();
        let at_ms = now_ms + self.config.backoff.wait_ms(request.failures, random);
        self.repetitions.push(Repetition { at_ms, request });
    }

    /// Xorshift, by Marsaglia.
    fn next_random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }
}

/// Connection.
impl<F: Framing> Engine<F> {
    /// Returns true if a connection should be made now.
    pub(crate) fn wants_connection(&self, now_ms: u64) -> bool {
        matches!(self.link, Link::Idle { next_ms } if next_ms <= now_ms)
    }

    /// Returns true while the connection, or the attempt to connect, should go on.
    pub(crate) fn has_connection(&self) -> bool {
        matches!(self.link, Link::Connecting { .. } | Link::Greeting { .. } | Link::Ready)
    }

    /// Notes that an attempt to connect has begun.
    pub(crate) fn connecting(&mut self, now_ms: u64) {
        self.link = Link::Connecting { until_ms: now_ms + millis(self.config.connect_timeout) };
    }

    /// Returns true while an attempt to connect is in progress.
    pub(crate) fn is_connecting(&self) -> bool {
        matches!(self.link, Link::Connecting { .. })
    }

    /// Notes that the attempt has succeeded.
    pub(crate) fn connected(&mut self, now_ms: u64) {
        let Link::Connecting { until_ms } = self.link else { return };
        self.received_ms = now_ms;
        match self.greeting.answers {
            0 => self.ready(),
            answers => self.link = Link::Greeting { until_ms, sent: 0, answers },
        }
    }

    fn ready(&mut self) {
        self.link = Link::Ready;
        self.window.set_link(LinkStatus::Up);
    }

    /// Notes that the connection has ended, or an attempt to connect has failed. `reason` is `Unreachable` for errors
    /// of the operating system.
    pub(crate) fn lost(&mut self, now_ms: u64, reason: Error) {
        if !self.has_connection() {
            return;
        }
        let was_ready = self.link == Link::Ready;
        self.end_connection(now_ms, &reason);
        self.link_failures = self.link_failures.saturating_add(1);
        let wait_ms = match self.link_failures {
            // It worked until now, so there is no reason to wait.
            1 if was_ready => 0,
            failures => {
                let random = self.next_random();
                self.config.reconnect.wait_ms(failures, random)
            }
        };
        self.link = Link::Idle { next_ms: now_ms + wait_ms };
        if was_ready {
            self.window.set_link(LinkStatus::Connecting);
        } else {
            self.window.set_link(LinkStatus::Down(reason.clone()));
            if self.config.offline == Offline::Fail || matches!(reason, Error::Refused(_)) {
                self.fail_all(&reason);
            }
        }
    }

    /// Fails the requests that were sent. The others wait for the next connection.
    fn end_connection(&mut self, now_ms: u64, reason: &Error) {
        self.framing.reset();
        self.input.clear();
        self.order.clear();
        self.abandoned = 0;
        let unsent = self.in_flight.take_if(|request| self.output.is_unsent(request.range));
        let sent = self.in_flight.take_all();
        self.requeue(unsent, &[], Rest::Goes);
        let error = after_sending(reason);
        for (_, request) in sent {
            self.attempt_failed(now_ms, request, error.clone());
        }
    }

    /// Queues unsent requests again. `others` are not sent at all.
    fn requeue(&mut self, requests: Vec<(u32, Request)>, others: &[ByteRange], rest: Rest) {
        let mut ranges: Vec<ByteRange> =
            requests.iter().map(|(_, request)| request.range).collect();
        let requests = requests.into_iter().map(|(_, request)| request).collect();
        let (bytes, requests) = self.copy(requests);
        let olds = ranges.len();
        ranges.extend_from_slice(others);
        self.output.take_back(&ranges, rest);
        ranges[..olds].iter().for_each(|&range| self.output.unpin(range));
        self.queue(bytes, requests);
    }

    /// Copies the bytes of requests into one buffer, and returns it and the requests with their new offsets.
    fn copy(&mut self, mut requests: Vec<Request>) -> (Vec<u8>, Vec<Request>) {
        let mut bytes = self.output.buffer();
        for request in &mut requests {
            let offset = bytes.len();
            bytes.extend_from_slice(self.output.bytes_mut(request.range));
            request.range.offset = offset;
        }
        (bytes, requests)
    }

    /// Queues the result of [`Engine::copy`].
    fn queue(&mut self, bytes: Vec<u8>, requests: Vec<Request>) {
        if requests.is_empty() {
            return;
        }
        let chunk = self.output.push(bytes, requests.len());
        for mut request in requests {
            request.range.chunk = chunk;
            self.insert(request);
        }
    }

    /// Fails all requests.
    fn fail_all(&mut self, reason: &Error) {
        let unsent = self.in_flight.take_all();
        let ranges: Vec<ByteRange> = unsent.iter().map(|(_, request)| request.range).collect();
        self.output.take_back(&ranges, Rest::Goes);
        self.order.clear();
        let repetitions = mem::take(&mut self.repetitions);
        let requests = unsent.into_iter().map(|(_, request)| request);
        for request in requests.chain(repetitions.into_iter().map(|repetition| repetition.request))
        {
            let error = match request.failures {
                0 => reason.clone(),
                _ => after_sending(reason),
            };
            self.complete(request, error);
        }
    }

    /// Completes all requests with [`Error::Closed`] for good.
    pub(crate) fn close(&mut self) {
        self.link = Link::Closed;
        self.fail_all(&Error::Closed);
    }
}

/// Bytes.
impl<F: Framing> Engine<F> {
    /// Returns the bytes to send next.
    pub(crate) fn to_send(&self) -> Option<&[u8]> {
        match self.link {
            Link::Ready => self.output.front(),
            Link::Greeting { sent, .. } => {
                self.greeting.bytes.get(sent..).filter(|bytes| !bytes.is_empty())
            }
            _ => None,
        }
    }

    /// Notes that this many of these bytes were sent.
    pub(crate) fn sent(&mut self, count: usize) {
        match &mut self.link {
            Link::Ready => self.output.advance(count),
            Link::Greeting { sent, .. } => *sent += count,
            _ => {}
        }
    }

    /// Returns the space for received bytes.
    pub(crate) fn space(&mut self) -> &mut [u8] {
        self.input.space()
    }

    /// Notes that this many bytes were written to that space.
    pub(crate) fn received(&mut self, now_ms: u64, count: usize) {
        self.received_ms = now_ms;
        self.input.received(count);
        if let Err(error) = self.read_answers() {
            self.lost(now_ms, error);
        }
    }

    fn read_answers(&mut self) -> Result<(), Error> {
        while !self.input.unread().is_empty() {
            let replies = match (F::ORDERED && self.link == Link::Ready, self.order.front()) {
                (true, Some(&(_, replies))) => replies as usize,
                _ => 1,
            };
            let Some(frame) = self.framing.next(self.input.unread(), replies)? else { break };
            if self.link == Link::Ready {
                let id = match F::ORDERED {
                    true => self.order.pop_front().ok_or_else(unasked)?.0,
                    false => frame.id,
                };
                self.answer(id, frame.start, frame.end)?;
            } else {
                self.greeted(frame.start, frame.end)?;
            }
            self.input.consume(frame.end);
            self.link_failures = 0;
        }
        Ok(())
    }

    /// Completes a request with its answer, a range of the input.
    #[inline]
    fn answer(&mut self, id: u32, start: usize, end: usize) -> Result<(), Error> {
        let Some(request) = self.in_flight.remove(id) else {
            self.abandoned = self.abandoned.saturating_sub(1);
            return Ok(());
        };
        let is_unsent = self.output.is_unsent(request.range);
        self.output.unpin(request.range);
        self.window.complete_one();
        if is_unsent {
            request.callback.call(Err(unasked()));
            return Err(unasked());
        }
        request.callback.call(Ok(&self.input.unread()[start..end]));
        Ok(())
    }

    fn greeted(&mut self, start: usize, end: usize) -> Result<(), Error> {
        let Link::Greeting { answers, .. } = &mut self.link else { return Err(unasked()) };
        *answers -= 1;
        let is_last = *answers == 0;
        let answer = &self.input.unread()[start..end];
        if let Some(text) = self.greeting.refusal.and_then(|refusal| refusal(answer)) {
            return Err(Error::Refused(text));
        }
        if is_last {
            self.ready();
        }
        Ok(())
    }
}

/// Returns the error of a partly sent request whose connection was lost.
fn after_sending(reason: &Error) -> Error {
    match reason {
        Error::Unreachable(kind) => Error::Disconnected(*kind),
        other => other.clone(),
    }
}

fn unasked() -> Error {
    Error::Protocol("an answer to nothing".to_owned())
}

/// Time.
impl<F: Framing> Engine<F> {
    /// Returns the time of the next [`Engine::tick`], if nothing else happens before.
    pub(crate) fn next_ms(&self) -> u64 {
        let link_ms = match self.link {
            Link::Idle { next_ms } => next_ms,
            Link::Connecting { until_ms } | Link::Greeting { until_ms, .. } => until_ms,
            Link::Ready | Link::Closed => NEVER,
        };
        let is_ready = self.link == Link::Ready;
        let repetitions =
            self.repetitions.iter().map(|Repetition { at_ms, request }| match is_ready {
                true => request.deadline_ms.min(*at_ms),
                false => request.deadline_ms,
            });
        repetitions.chain([link_ms, self.in_flight.earliest_ms()]).min().unwrap_or(NEVER)
    }

    /// Handles the passing of time.
    pub(crate) fn tick(&mut self, now_ms: u64) {
        if let Link::Connecting { until_ms } | Link::Greeting { until_ms, .. } = self.link
            && until_ms <= now_ms
        {
            self.lost(now_ms, Error::Unreachable(ErrorKind::TimedOut));
        }
        if self.in_flight.earliest_ms() <= now_ms {
            self.end_attempts(now_ms);
        }
        if !self.repetitions.is_empty() {
            self.repeat_due(now_ms);
        }
    }

    /// Ends the attempts whose time is over.
    fn end_attempts(&mut self, now_ms: u64) {
        let due = self.in_flight.take_due(now_ms);
        let (unsent, sent): (Vec<_>, Vec<_>) =
            due.into_iter().partition(|(_, request)| self.output.is_unsent(request.range));
        if !unsent.is_empty() {
            self.end_unsent(now_ms, unsent);
        }
        if sent.is_empty() {
            return;
        }
        self.abandoned += sent.len();
        for (_, request) in sent {
            self.attempt_failed(now_ms, request, Error::TimedOut { sent: true });
        }
        if self.is_silent(now_ms) || self.abandoned > self.config.window() {
            self.lost(now_ms, Error::Unreachable(ErrorKind::TimedOut));
        }
    }

    /// Ends attempts without a byte sent. Requests whose deadline has not passed go on.
    fn end_unsent(&mut self, now_ms: u64, due: Vec<(u32, Request)>) {
        let mut unsent = self.in_flight.take_if(|request| self.output.is_unsent(request.range));
        if F::ORDERED {
            let begun = self.order.len().saturating_sub(unsent.len() + due.len());
            self.order.truncate(begun);
        }
        let (late, early): (Vec<_>, Vec<_>) =
            due.into_iter().partition(|(_, request)| request.deadline_ms <= now_ms);
        unsent.extend(early);
        let next_id = self.in_flight.next_id();
        unsent.sort_unstable_by_key(|(id, _)| id.wrapping_sub(next_id));
        for (_, request) in &mut unsent {
            request.attempt_until_ms =
                self.attempt_until_ms(now_ms, request.deadline_ms, request.repeat);
        }
        let ranges: Vec<ByteRange> = late.iter().map(|(_, request)| request.range).collect();
        self.requeue(unsent, &ranges, Rest::Stays);
        for (_, request) in late {
            let was_sent = request.failures > 0;
            self.complete(request, Error::TimedOut { sent: was_sent });
        }
    }

    /// Returns true if the server has sent nothing for a whole timeout.
    fn is_silent(&self, now_ms: u64) -> bool {
        let timeouts = [self.config.timeout, self.config.attempt_timeout];
        let shortest = timeouts.into_iter().flatten().map(millis).min();
        self.link == Link::Ready && shortest.is_some_and(|ms| self.received_ms + ms <= now_ms)
    }

    /// Repeats the requests that are due, and fails those whose deadline has passed.
    fn repeat_due(&mut self, now_ms: u64) {
        let is_ready = self.link == Link::Ready;
        let mut due = Vec::new();
        for Repetition { at_ms, mut request } in mem::take(&mut self.repetitions) {
            if request.deadline_ms <= now_ms {
                self.complete(request, Error::TimedOut { sent: true });
            } else if is_ready && at_ms <= now_ms {
                request.attempt_until_ms =
                    self.attempt_until_ms(now_ms, request.deadline_ms, request.repeat);
                due.push(request);
            } else {
                self.repetitions.push(Repetition { at_ms, request });
            }
        }
        let ranges: Vec<ByteRange> = due.iter().map(|request| request.range).collect();
        let (bytes, due) = self.copy(due);
        ranges.into_iter().for_each(|range| self.output.unpin(range));
        self.queue(bytes, due);
    }
}
