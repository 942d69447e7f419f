//! A session's view of its connection during a call: received bytes, output, and a few switches.

use crate::buffer::side_buffer::SideBuffer;
use crate::clock::Now;
use crate::connection::{ConnInfo, Control};
use crate::send_barriers::Ticket;
use crate::timer::{TimerKind, Timers};
use tierce_output::{Output, OutputClass};

/// Input and output of one call to the service.
#[derive(Debug)]
pub struct Io<'a> {
    pub(crate) input: &'a [u8],
    pub(crate) consumed: usize,
    pub(crate) wanted: usize,
    /// Side buffer for a part of the input.
    pub(crate) side_buffer: &'a mut Option<Box<SideBuffer>>,
    /// True if that part is to return into the input.
    pub(crate) joined: bool,
    /// True if the worker's mail is handled before the output is sent.
    pub(crate) mail_first: bool,
    pub(crate) output: &'a mut Output,
    pub(crate) control: &'a mut Control,
    pub(crate) info: &'a ConnInfo,
    pub(crate) timers: &'a mut Timers,
    pub(crate) now: Now,
}

impl<'a> Io<'a> {
    /// Creates the view of a call without input.
    pub(crate) fn without_input(
        output: &'a mut Output,
        control: &'a mut Control,
        info: &'a ConnInfo,
        side_buffer: &'a mut Option<Box<SideBuffer>>,
        timers: &'a mut Timers,
        now: Now,
    ) -> Self {
        let (consumed, wanted) = (0, 0);
        Self {
            input: &[],
            consumed,
            wanted,
            side_buffer,
            joined: false,
            mail_first: false,
            output,
            control,
            info,
            timers,
            now,
        }
    }

    /// Returns the received bytes that were not consumed.
    ///
    /// The slice lives as long as the call, so requests can point into it while replies are written.
    #[inline]
    pub fn input(&self) -> &'a [u8] {
        &self.input[self.consumed..]
    }

    /// Consumes `count` bytes at the front of the input.
    ///
    /// # Panics
    ///
    /// If the input is shorter.
    #[inline]
    pub fn consume(&mut self, count: usize) {
        assert!(count <= self.input.len() - self.consumed, "consumed more than has arrived");
        self.consumed += count;
    }

    /// Declares that the request at the front of the input is `bytes` long in total, so that room for it is allocated
    /// in few steps. This is a hint: less or more may come, and no more than
    /// [`READ_AHEAD_BYTES_MAX`](crate::READ_AHEAD_BYTES_MAX) is reserved before bytes arrive.
    #[inline]
    pub fn expect(&mut self, bytes: usize) {
        self.wanted = bytes;
    }

    /// Declares that `len` bytes at `at` in [`Io::input`], of which some have yet to arrive, are one value. It is
    /// received into a side buffer, and from the next call on the input does not contain it. While
    /// [`Io::is_filling_side_buffer`], the input ends at the value; later the bytes behind the value follow.
    ///
    /// # Panics
    ///
    /// If the value is complete already, or there is a side buffer already.
    pub fn begin_side_buffer(&mut self, at: usize, len: usize) {
        assert!(self.side_buffer.is_none(), "one value of a connection at a time");
        assert!(self.input().get(at..).is_some_and(|begun| begun.len() < len), "it is incomplete");
        *self.side_buffer = Some(Box::new(SideBuffer::new(at, len)));
    }

    /// Returns the position in the input of the value in the side buffer, and how many of its bytes have arrived.
    #[inline]
    pub fn side_buffer(&self) -> Option<(usize, usize)> {
        self.side_buffer.as_ref().map(|side_buffer| (side_buffer.at(), side_buffer.bytes().len()))
    }

    /// Returns true if the value in the side buffer is incomplete.
    #[inline]
    pub fn is_filling_side_buffer(&self) -> bool {
        self.side_buffer.as_ref().is_some_and(|side_buffer| !side_buffer.is_complete())
    }

    /// Takes the value out of the side buffer.
    pub fn take_side_buffer(&mut self) -> Option<Vec<u8>> {
        Some(self.side_buffer.take()?.into_bytes())
    }

    /// Returns the value of [`Io::take_side_buffer`] to the side buffer, within the same call. `at` is its position.
    pub fn put_back_side_buffer(&mut self, at: usize, bytes: Vec<u8>) {
        *self.side_buffer = Some(Box::new(SideBuffer::from_bytes(at, bytes)));
    }

    /// Copies the value back into the input, for the next call.
    pub fn join_side_buffer(&mut self) {
        self.joined = true;
    }

    /// Makes the worker handle its mail after this call, and send the resulting output, before the output of this call.
    /// For a call that has posted more urgent mail to its own worker.
    pub fn send_mail_first(&mut self) {
        self.mail_first = true;
    }

    /// Returns the buffer for replies.
    #[inline]
    pub fn output(&mut self) -> &mut Output {
        self.output
    }

    /// Returns input and output together, for code that needs both.
    #[inline]
    pub fn split(&mut self) -> (&'a [u8], &mut Output) {
        (&self.input[self.consumed..], self.output)
    }

    /// Returns the time of this turn.
    #[inline]
    pub fn now(&self) -> Now {
        self.now
    }

    /// Returns the facts about this connection.
    #[inline]
    pub fn info(&self) -> &'a ConnInfo {
        self.info
    }

    /// Sets the connection's one timer, replacing the previous one.
    ///
    /// Moving the timer to a later time costs nothing, so an idle timeout may be moved with every request.
    pub fn set_timer(&mut self, at_ms: u64) {
        // A timer that is due already fires in the next turn. Otherwise a session could keep this turn from ending.
        let at_ms = at_ms.max(self.now.monotonic_ms + 1);
        self.timers.set(self.info.key.slot, TimerKind::Session, at_ms);
    }

    /// Clears the timer.
    pub fn clear_timer(&mut self) {
        self.timers.clear(self.info.key.slot, TimerKind::Session);
    }

    /// Selects the configured output limits that apply to this connection.
    pub fn set_output_class(&mut self, class: OutputClass) {
        self.control.class = class;
        self.output.set_class(class);
    }

    /// Makes the worker call the session again when the output from before this call is sent. For a session that
    /// produces output as fast as the peer reads it. Only valid if there was some ([`Output::follows_unsent`]).
    pub fn call_when_sent(&mut self) {
        self.control.wants_call = true;
    }

    /// Defers all output of this connection, from this call on, until [`ConnMut::release`](crate::ConnMut::release) has
    /// reached `ticket` and those of earlier calls: the replies report something that is not durable yet. Output of
    /// earlier calls waits only for their own tickets.
    pub fn hold_output(&mut self, ticket: Ticket) {
        self.control.hold_for(ticket);
    }
}
