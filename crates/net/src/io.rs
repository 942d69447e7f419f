//! A session's view of its connection during a call: received bytes, output, and a few switches.

use crate::buffer::apart::Apart;
use crate::clock::Now;
use crate::connection::{ConnInfo, Control};
use crate::gates::Ticket;
use crate::timer::{TimerKind, Timers};
use tierce_output::{Output, OutputClass};

/// The input and output of one call to the service.
#[derive(Debug)]
pub struct Io<'a> {
    pub(crate) input: &'a [u8],
    pub(crate) consumed: usize,
    pub(crate) wanted: usize,
    /// A part of the input that is kept out of it.
    pub(crate) apart: &'a mut Option<Box<Apart>>,
    /// Whether that is to go back to its place.
    pub(crate) joined: bool,
    /// Whether the worker's mail goes before the output.
    pub(crate) mail_first: bool,
    pub(crate) output: &'a mut Output,
    pub(crate) control: &'a mut Control,
    pub(crate) info: &'a ConnInfo,
    pub(crate) timers: &'a mut Timers,
    pub(crate) now: Now,
}

impl<'a> Io<'a> {
    /// Of a call without input.
    pub(crate) fn without_input(
        output: &'a mut Output,
        control: &'a mut Control,
        info: &'a ConnInfo,
        apart: &'a mut Option<Box<Apart>>,
        timers: &'a mut Timers,
        now: Now,
    ) -> Self {
        let (consumed, wanted) = (0, 0);
        Self {
            input: &[],
            consumed,
            wanted,
            apart,
            joined: false,
            mail_first: false,
            output,
            control,
            info,
            timers,
            now,
        }
    }

    /// Bytes that have arrived and were not consumed.
    ///
    /// The slice lives as long as the call, so requests can point into it while replies are
    /// written.
    #[inline]
    pub fn input(&self) -> &'a [u8] {
        &self.input[self.consumed..]
    }

    /// Takes `count` bytes off the front of the input.
    ///
    /// # Panics
    ///
    /// If the input is shorter.
    #[inline]
    pub fn consume(&mut self, count: usize) {
        assert!(count <= self.input.len() - self.consumed, "consumed more than has arrived");
        self.consumed += count;
    }

    /// Tells that the request at the front of the input is `bytes` long altogether, so that room
    /// for it can be made in few steps. A hint: less or more may come, and no more than
    /// [`READ_AHEAD_BYTES_MAX`](crate::READ_AHEAD_BYTES_MAX) is reserved before bytes arrive.
    #[inline]
    pub fn expect(&mut self, bytes: usize) {
        self.wanted = bytes;
    }

    /// Tells that `len` bytes at `at` in [`Io::input`], of which some have yet to arrive, are one value.
    /// It is received into a vector of its own, and from the next call on the input is without it: while
    /// [`Io::is_receiving_apart`] it ends where the value begins, and later what stood behind the value follows.
    ///
    /// # Panics
    ///
    /// If all of the value is there, or another one is kept apart.
    pub fn set_apart(&mut self, at: usize, len: usize) {
        assert!(self.apart.is_none(), "one value of a connection at a time");
        assert!(self.input().get(at..).is_some_and(|begun| begun.len() < len), "it is incomplete");
        *self.apart = Some(Box::new(Apart::new(at, len)));
    }

    /// Where in the input the value was that is kept out of it, and how much of it has arrived.
    #[inline]
    pub fn apart(&self) -> Option<(usize, usize)> {
        self.apart.as_ref().map(|apart| (apart.at(), apart.bytes().len()))
    }

    /// Whether the value that is kept out of the input is incomplete.
    #[inline]
    pub fn is_receiving_apart(&self) -> bool {
        self.apart.as_ref().is_some_and(|apart| !apart.is_complete())
    }

    /// Takes the value that is kept out of the input.
    pub fn take_apart(&mut self) -> Option<Vec<u8>> {
        Some(self.apart.take()?.into_bytes())
    }

    /// Gives back what [`Io::take_apart`] returned in this call, for another time. `at` is where it was.
    pub fn put_back_apart(&mut self, at: usize, bytes: Vec<u8>) {
        *self.apart = Some(Box::new(Apart::from_bytes(at, bytes)));
    }

    /// Puts the value back to its place in the input, for the next call. This copies it.
    pub fn join_apart(&mut self) {
        self.joined = true;
    }

    /// Has the worker read its mail after this call, and send what that leads to, before the output of this call is
    /// sent. For a call that has posted mail to its own worker which others wait for more urgently.
    pub fn send_mail_first(&mut self) {
        self.mail_first = true;
    }

    /// Where replies go.
    #[inline]
    pub fn output(&mut self) -> &mut Output {
        self.output
    }

    /// Output and input in one go, for code that wants both in hand.
    #[inline]
    pub fn split(&mut self) -> (&'a [u8], &mut Output) {
        (&self.input[self.consumed..], self.output)
    }

    /// The moment of this turn.
    #[inline]
    pub fn now(&self) -> Now {
        self.now
    }

    /// Which connection this is.
    #[inline]
    pub fn info(&self) -> &'a ConnInfo {
        self.info
    }

    /// Sets the connection's one timer; it replaces the one set before.
    ///
    /// Moving the timer to a later moment costs nothing, so an idle timeout may be moved with
    /// every request.
    pub fn set_timer(&mut self, at_ms: u64) {
        // A timer that is due already fires in the next turn, or a session could keep this one from
        // ending.
        let at_ms = at_ms.max(self.now.monotonic_ms + 1);
        self.timers.set(self.info.key.slot, TimerKind::Session, at_ms);
    }

    /// Unsets the timer.
    pub fn clear_timer(&mut self) {
        self.timers.clear(self.info.key.slot, TimerKind::Session);
    }

    /// Chooses which of the configured output limits apply to this connection.
    pub fn set_output_class(&mut self, class: OutputClass) {
        self.control.class = class;
        self.output.set_class(class);
    }

    /// Has the session called again when the output that waited before this call is sent: for one that produces more
    /// as fast as the peer takes it. Only if there was some ([`Output::follows_unsent`]).
    pub fn call_when_sent(&mut self) {
        self.control.wants_call = true;
    }

    /// Keeps all output of this connection, from this call on, until
    /// [`ConnMut::release`](crate::ConnMut::release) has come to `ticket`, and to those of earlier calls: the replies
    /// tell of something that has yet to become durable. Output of earlier calls waits only for theirs.
    pub fn hold_output(&mut self, ticket: Ticket) {
        self.control.hold_for(ticket);
    }
}
