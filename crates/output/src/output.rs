//! Output under construction: a buffer to append to, and large values that are attached to it by reference.

use std::fmt;
use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;

use crate::limits::{OutputClass, OutputLimits};
use crate::owned::OwnedOutput;

/// Minimal size of a value that is attached; smaller ones are copied. A copy of this many bytes costs less than the
/// reference count, the longer system call and the two additional slices around the value.
pub const ATTACH_BYTES_MIN: usize = 4 * 1024;

/// Capacity above which the worker's buffer is freed after it was sent.
const SCRATCH_BYTES_MAX: usize = 1024 * 1024;

/// Size at which output that will not be taken back is split off the buffer. It is so far below a power of two that
/// the last element seldom makes the buffer grow once more.
const CUT_BYTES: usize = SCRATCH_BYTES_MAX - 64 * 1024;

/// Initial capacity of the worker's buffer.
const SCRATCH_BYTES_START: usize = 16 * 1024;

/// Bytes with a shared owner, sent without being copied.
#[derive(Clone)]
pub struct Attachment {
    owner: Arc<dyn AsRef<[u8]> + Send + Sync>,
    range: Range<usize>,
}

impl Attachment {
    /// Returns the bytes.
    pub fn bytes(&self) -> &[u8] {
        &(*self.owner).as_ref()[self.range.clone()]
    }

    /// Removes the first `count` bytes.
    pub fn skip(&mut self, count: usize) {
        self.range.start += count.min(self.range.len());
    }

    /// Removes the last `count` bytes.
    pub fn shorten(&mut self, count: usize) {
        self.range.end -= count.min(self.range.len());
    }
}

impl fmt::Debug for Attachment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attachment").field("range", &self.range).finish_non_exhaustive()
    }
}

/// An attachment and the offset in the buffer before which it is sent.
#[derive(Debug)]
pub(crate) struct Attached {
    pub(crate) at: usize,
    pub(crate) attachment: Attachment,
}

/// The output of one call to the service.
///
/// The buffer behind it may begin with output of other connections; a session only ever appends.
#[derive(Debug)]
pub struct Output {
    buffer: Vec<u8>,
    attached: Vec<Attached>,
    /// Total bytes of `attached`.
    attached_bytes: usize,
    /// Offset in the buffer up to which nothing is split off: that output may still be taken back, or something was
    /// attached to it. A piece that is split off begins here.
    settled: usize,
    /// Start of the output of the present call.
    start: Mark,
    /// Bytes that earlier calls left unsent.
    queued: usize,
    /// Bytes of `queued` that wait for nothing but the peer.
    unread: usize,
    /// Limits of all classes.
    limits: OutputLimits,
    /// Bytes that the present call may write: together with `unread` they are within the hard limit.
    room: usize,
    /// Bytes that the present call had written when they were found to exceed `room`; 0 before that.
    overrun: usize,
    held_for_turn: bool,
}

/// A position in the output to return to with [`Output::truncate`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Mark {
    buffer: usize,
    attached: usize,
    attached_bytes: usize,
    overrun: usize,
}

/// A connection's part of the worker's output.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    start: Mark,
    end: Mark,
}

impl Part {
    /// Returns the number of bytes, attached ones included.
    #[expect(clippy::len_without_is_empty, reason = "only its length is asked for")]
    #[inline]
    pub fn len(&self) -> usize {
        self.end.buffer - self.start.buffer + self.end.attached_bytes - self.start.attached_bytes
    }
}

/// A run of bytes of a part, in sending order.
pub enum Piece<'a> {
    /// Bytes in the buffer.
    Bytes(&'a [u8]),
    /// Bytes attached by reference.
    Attached(&'a Attachment),
}

impl<'a> Piece<'a> {
    /// Returns the bytes.
    pub fn bytes(&self) -> &'a [u8] {
        match self {
            Piece::Bytes(bytes) => bytes,
            Piece::Attached(attachment) => attachment.bytes(),
        }
    }
}

impl Output {
    /// Returns an empty output without a connection: for replies that nobody reads.
    #[expect(clippy::new_without_default, reason = "to be made on purpose only")]
    pub fn new() -> Output {
        Output {
            buffer: Vec::with_capacity(SCRATCH_BYTES_START),
            attached: Vec::new(),
            attached_bytes: 0,
            settled: 0,
            start: Mark::default(),
            queued: 0,
            unread: 0,
            limits: OutputLimits::default(),
            room: usize::MAX,
            overrun: 0,
            held_for_turn: false,
        }
    }

    /// Returns the buffer to append to. The bytes that are in it must not change.
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.buffer
    }

    /// Appends a shared value without copying it, unless it is small.
    pub fn attach<T: AsRef<[u8]> + Send + Sync + 'static>(&mut self, value: Arc<T>) {
        let range = 0..(*value).as_ref().len();
        self.attach_range(value, range);
    }

    /// Appends a part of a shared value without copying it, unless it is small. `as_ref` must return the same bytes
    /// every time.
    ///
    /// # Panics
    ///
    /// Panics if the range is not inside the value.
    pub fn attach_range<T: AsRef<[u8]> + Send + Sync + 'static>(
        &mut self,
        value: Arc<T>,
        range: Range<usize>,
    ) {
        let bytes = &(*value).as_ref()[range.clone()];
        if bytes.len() < ATTACH_BYTES_MIN {
            self.buffer.extend_from_slice(bytes);
        } else {
            self.push(Attachment { owner: value, range });
        }
    }

    fn push(&mut self, attachment: Attachment) {
        if self.is_condemned() {
            return;
        }
        let len = attachment.range.len();
        let written = self.written().saturating_add(len);
        if written > self.room {
            self.overrun = written;
            return;
        }
        self.attached_bytes += len;
        self.settled = self.buffer.len();
        self.attached.push(Attached { at: self.settled, attachment });
    }

    /// Returns an output without a connection, for a reply of at most `room` bytes; see [`Output::room`].
    pub fn with_room(room: usize) -> Output {
        Output { room, ..Output::new() }
    }

    /// Begins a call without a connection that may write `room` bytes.
    pub fn set_room(&mut self, room: usize) {
        (self.room, self.overrun) = (room, 0);
    }

    /// Returns how many bytes may still be written in this call.
    pub fn room(&self) -> usize {
        self.room.saturating_sub(self.written())
    }

    /// Takes out the output of this call, to be appended elsewhere. Attachments stay references. If the output
    /// exceeds the room of this call, it condemns the connection that it is appended to.
    #[must_use]
    pub fn take(&mut self) -> OwnedOutput {
        self.take_since(self.start)
    }

    /// Takes out the output since `mark`, which was taken in the same call.
    #[must_use]
    pub fn take_since(&mut self, start: Mark) -> OwnedOutput {
        if self.exceeds_limit() {
            let overrun = self.overrun;
            self.truncate(start);
            return OwnedOutput { overrun, ..OwnedOutput::default() };
        }
        let bytes = self.buffer[start.buffer..].into();
        let attached = self.attached.drain(start.attached..);
        let attached = attached
            .map(|Attached { at, attachment }| Attached { at: at - start.buffer, attachment });
        let owned = OwnedOutput { bytes, attached: attached.collect(), overrun: 0 };
        self.truncate(start);
        owned
    }

    /// Appends output that was written elsewhere, within the limit of this call.
    pub fn append(&mut self, owned: OwnedOutput) {
        let OwnedOutput { bytes, attached, overrun } = owned;
        self.overrun = self.overrun.max(overrun);
        let mut from = 0;
        for Attached { at, attachment } in attached {
            self.buffer.extend_from_slice(&bytes[from..at]);
            self.push(attachment);
            from = at;
        }
        self.buffer.extend_from_slice(&bytes[from..]);
    }

    /// Splits off a long run of output, down to the latest mark. Writers of replies of any length call this between
    /// two elements. Returns false if the connection is condemned and further elements would be discarded. It may
    /// return true for a condemned connection.
    #[inline]
    pub fn cut_if_long(&mut self) -> bool {
        self.buffer.len() - self.settled < CUT_BYTES || self.cut()
    }

    #[cold]
    fn cut(&mut self) -> bool {
        if self.exceeds_limit() {
            self.buffer.truncate(self.settled);
            return false;
        }
        let mut rest = Vec::with_capacity(self.settled + SCRATCH_BYTES_MAX);
        rest.extend_from_slice(&self.buffer[..self.settled]);
        let long = std::mem::replace(&mut self.buffer, rest);
        let range = self.settled..long.len();
        self.attach_range(Arc::new(long), range);
        true
    }

    /// Returns true if a check found more output in this call than the peer may leave unread. The connection is
    /// closed after the call, and all further output is discarded.
    #[inline]
    pub fn is_condemned(&self) -> bool {
        self.overrun > 0
    }

    /// Returns true if earlier calls left output unsent.
    #[inline]
    pub fn follows_unsent(&self) -> bool {
        self.queued > 0
    }

    /// Returns true if this call has written more than the peer may leave unread, which condemns the connection. To
    /// be called between two batches of requests.
    #[inline]
    pub fn exceeds_limit(&mut self) -> bool {
        if !self.is_condemned() && self.written() > self.room {
            self.overrun = self.written();
        }
        self.is_condemned()
    }

    /// Returns the number of bytes that would be pending for the peer of a condemned connection.
    pub fn condemned_bytes(&self) -> usize {
        self.unread + self.overrun
    }

    /// Returns the output of a call without a connection, in one piece.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        if self.attached.is_empty() {
            return self.buffer;
        }
        let pieces: Vec<&[u8]> = self.pieces(self.part()).map(|piece| piece.bytes()).collect();
        pieces.concat()
    }

    /// Moves the output of a call without a connection to the end of `bytes`. Cheap if `bytes` is empty.
    pub fn drain_into(&mut self, bytes: &mut Vec<u8>) {
        if self.attached.is_empty() && bytes.is_empty() {
            std::mem::swap(&mut self.buffer, bytes);
        } else {
            self.pieces(self.part()).for_each(|piece| bytes.extend_from_slice(piece.bytes()));
        }
        self.reset();
    }

    /// Returns the number of bytes written in this call.
    #[inline]
    pub fn written(&self) -> usize {
        self.part().len()
    }

    /// Returns the number of unsent bytes, of this call and of earlier ones.
    #[inline]
    pub fn pending(&self) -> usize {
        self.queued + self.written()
    }

    /// Returns the present position, for [`truncate`](Output::truncate).
    #[inline]
    pub fn mark(&mut self) -> Mark {
        self.settled = self.buffer.len();
        self.place()
    }

    #[inline]
    fn place(&self) -> Mark {
        Mark {
            buffer: self.buffer.len(),
            attached: self.attached.len(),
            attached_bytes: self.attached_bytes,
            overrun: self.overrun,
        }
    }

    /// Removes everything written since `mark` was taken in the same call.
    pub fn truncate(&mut self, mark: Mark) {
        debug_assert!(mark.buffer >= self.start.buffer && mark.attached >= self.start.attached);
        self.buffer.truncate(mark.buffer);
        self.attached.truncate(mark.attached);
        self.attached_bytes = mark.attached_bytes;
        self.settled = mark.buffer;
        // Output is discarded only behind the last mark with a zero `overrun`, so that value is right again.
        self.overrun = mark.overrun;
    }

    /// Defers sending the output of this call to the end of the turn.
    pub fn hold_for_turn(&mut self) {
        self.held_for_turn = true;
    }

    /// Begins a call for a connection of this class. It has `queued` bytes unsent, of which `unread` wait for
    /// nothing but the peer.
    #[inline]
    pub fn begin(&mut self, queued: usize, unread: usize, class: OutputClass) {
        self.overrun = 0;
        self.start = self.mark();
        self.queued = queued;
        self.unread = unread;
        self.set_class(class);
        self.held_for_turn = false;
    }

    /// Applies the limits of this class to the present call.
    #[inline]
    pub fn set_class(&mut self, class: OutputClass) {
        self.room = match self.limits.get(class).hard_bytes {
            0 => usize::MAX,
            hard_bytes => hard_bytes.saturating_sub(self.unread),
        };
    }

    /// Returns the limits of all classes.
    pub fn limits(&self) -> &OutputLimits {
        &self.limits
    }

    /// Replaces the limits, from the next call on.
    pub fn set_limits(&mut self, limits: OutputLimits) {
        self.limits = limits;
    }

    /// Returns true if [`Output::hold_for_turn`] was called.
    pub fn is_held_for_turn(&self) -> bool {
        self.held_for_turn
    }

    /// Returns the output of the present call, if it is plain bytes that may be sent now.
    #[inline]
    pub fn plain_call(&self) -> Option<&[u8]> {
        let is_plain = self.attached.len() == self.start.attached
            && !self.is_condemned()
            && !self.held_for_turn;
        if is_plain { self.buffer.get(self.start.buffer..) } else { None }
    }

    /// Removes the bytes that [`Output::plain_call`] returned, after they were sent.
    #[inline]
    pub fn take_back_plain(&mut self) {
        self.buffer.truncate(self.start.buffer);
        self.settled = self.start.buffer;
    }

    /// Returns the output of the present call.
    #[inline]
    pub fn part(&self) -> Part {
        assert!(self.buffer.len() >= self.start.buffer, "output of another connection was removed");
        Part { start: self.start, end: self.place() }
    }

    /// Returns the output since `mark`, which was taken in the same call.
    #[inline]
    pub fn part_since(&self, mark: Mark) -> Part {
        Part { start: mark, end: self.place() }
    }

    /// Removes the output of the present call, after it was sent or copied.
    pub fn discard_part(&mut self) {
        self.truncate(self.start);
    }

    /// Clears everything at the end of a turn, and frees an unusually large buffer.
    pub fn reset(&mut self) {
        self.buffer.clear();
        self.attached.clear();
        self.attached_bytes = 0;
        self.settled = 0;
        self.start = Mark::default();
        if self.buffer.capacity() > SCRATCH_BYTES_MAX {
            self.buffer = Vec::with_capacity(SCRATCH_BYTES_START);
        }
    }

    /// Returns the bytes of a part, if nothing is attached to it.
    pub fn plain_bytes(&self, part: Part) -> Option<&[u8]> {
        (part.start.attached == part.end.attached)
            .then(|| &self.buffer[part.start.buffer..part.end.buffer])
    }

    /// Returns the runs of a part in order.
    pub fn pieces(&self, part: Part) -> impl Iterator<Item = Piece<'_>> {
        let attached = &self.attached[part.start.attached..part.end.attached];
        let starts = std::iter::once(part.start.buffer).chain(attached.iter().map(|a| a.at));
        let ends = attached.iter().map(|a| a.at).chain(std::iter::once(part.end.buffer));
        let attachments = attached.iter().map(Some).chain(std::iter::once(None));
        starts.zip(ends).zip(attachments).flat_map(|((start, end), attached)| {
            let bytes = (start < end).then(|| Piece::Bytes(&self.buffer[start..end]));
            let attachment = attached.map(|a| Piece::Attached(&a.attachment));
            bytes.into_iter().chain(attachment)
        })
    }

    /// Fills `slices` with the first runs of a part, for one system call. Returns how many were filled.
    pub fn slices<'a>(&'a self, part: Part, slices: &mut [IoSlice<'a>]) -> usize {
        let mut count = 0;
        for (slice, piece) in slices.iter_mut().zip(self.pieces(part)) {
            *slice = IoSlice::new(piece.bytes());
            count += 1;
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truncate_takes_back_bytes_and_attachments() {
        let mut output = Output::new();
        output.buffer().extend_from_slice(b"other");
        output.begin(10, 10, OutputClass::default());
        output.buffer().extend_from_slice(b"kept");
        let mark = output.mark();
        output.attach(Arc::new(vec![1; ATTACH_BYTES_MIN]));
        output.buffer().extend_from_slice(b"dropped");
        assert_eq!(output.written(), 4 + ATTACH_BYTES_MIN + 7);
        output.truncate(mark);
        assert_eq!((output.written(), output.pending()), (4, 14));
        assert_eq!(output.plain_bytes(output.part()), Some(&b"kept"[..]));
    }

    #[test]
    fn a_long_reply_is_cut_behind_the_latest_mark() {
        let mut output = Output::new();
        output.buffer().extend_from_slice(b"other");
        output.begin(0, 0, OutputClass::default());
        let mut expected = b"earlier".to_vec();
        output.buffer().extend_from_slice(b"earlier");
        let mark = output.mark();
        for number in 0..700_000_u32 {
            output.buffer().extend_from_slice(&number.to_le_bytes());
            expected.extend_from_slice(&number.to_le_bytes());
            output.cut_if_long();
        }
        assert_eq!(output.written(), expected.len());
        assert_eq!(output.attached.len(), expected.len() / CUT_BYTES);
        assert!(output.buffer.capacity() <= 2 * SCRATCH_BYTES_MAX);
        let pieces: Vec<_> = output.pieces(output.part()).map(|piece| piece.bytes()).collect();
        assert_eq!(pieces.concat(), expected);
        output.truncate(mark);
        assert_eq!(output.plain_bytes(output.part()), Some(&b"earlier"[..]));
        output.buffer().resize(12 + CUT_BYTES, b'x');
        output.cut_if_long();
        assert_eq!(output.written(), 7 + CUT_BYTES);
        output.truncate(mark);
        assert_eq!(output.into_bytes(), b"otherearlier");
    }

    /// Returns an output whose peer has left `unread` bytes of the 10 MiB that it may leave.
    fn limited(unread: usize) -> Output {
        let mut output = Output::new();
        let mut limits = OutputLimits::default();
        let limit = crate::limits::OutputLimit { hard_bytes: 10 << 20, ..Default::default() };
        limits.set(OutputClass::default(), limit);
        output.set_limits(limits);
        output.begin(unread, unread, OutputClass::default());
        output
    }

    #[test]
    fn nothing_is_kept_beyond_the_hard_limit() {
        let value = Arc::new(vec![1; 3 << 20]);
        let mut output = limited(2 << 20);
        for fitting in [1, 2, 2, 2] {
            output.attach(Arc::clone(&value));
            assert_eq!(output.attached.len(), fitting);
        }
        assert!(output.is_condemned());
        assert_eq!(output.condemned_bytes(), (2 + 9) << 20);
        assert_eq!(Arc::strong_count(&value), 3);
    }

    #[test]
    fn a_long_reply_ends_at_the_hard_limit() {
        let mut output = limited(2 << 20);
        let elements = (0..1_000_000).take_while(|_| {
            output.buffer().extend_from_slice(&[7; 100]);
            output.cut_if_long()
        });
        let kept = elements.count() * 100;
        assert!((8 << 20..(8 << 20) + 2 * CUT_BYTES).contains(&kept), "{kept}");
        assert!(output.is_condemned());
        // Further writes take no more memory.
        let most = (0..1_000_000).map(|_| {
            output.buffer().extend_from_slice(&[7; 100]);
            output.cut_if_long();
            output.written()
        });
        assert!(most.max() <= Some((8 << 20) + 2 * CUT_BYTES));
    }

    #[test]
    fn what_is_taken_back_condemns_nobody() {
        let value = Arc::new(vec![1; 6 << 20]);
        let mut output = limited(0);
        output.attach(Arc::clone(&value));
        let before = output.mark();
        output.attach(Arc::clone(&value));
        let after = output.mark();
        output.buffer().extend_from_slice(b"more");
        output.truncate(after);
        assert!(output.is_condemned(), "a part of what is left was not kept");
        output.truncate(before);
        assert!(!output.is_condemned());
        assert_eq!(output.written(), 6 << 20);
        output.buffer().resize(5 << 20, 0);
        assert!(!output.is_condemned(), "appending is free");
        assert!(output.exceeds_limit() && output.is_condemned());
        output.begin(0, 0, OutputClass::default());
        assert!(!output.is_condemned(), "another connection");
    }

    #[test]
    fn output_without_a_connection_is_put_together() {
        let mut output = Output::new();
        let mut expected = Vec::new();
        for text in [b"ab", b"cd"] {
            output.buffer().extend_from_slice(text);
            output.attach(Arc::new(text.repeat(ATTACH_BYTES_MIN)));
            expected.extend(text.repeat(1 + ATTACH_BYTES_MIN));
        }
        assert_eq!(output.into_bytes(), expected);
    }

    #[test]
    fn an_unusually_large_buffer_is_given_back() {
        let mut output = Output::new();
        output.buffer().resize(SCRATCH_BYTES_MAX + 1, 0);
        output.reset();
        assert_eq!(output.buffer().capacity(), SCRATCH_BYTES_START);
        output.buffer().resize(SCRATCH_BYTES_MAX / 2, 0);
        output.reset();
        assert!(output.buffer().capacity() >= SCRATCH_BYTES_MAX / 2);
    }

    #[test]
    #[should_panic(expected = "output of another connection was removed")]
    fn output_of_others_is_protected() {
        let mut output = Output::new();
        output.buffer().extend_from_slice(b"other");
        output.begin(0, 0, OutputClass::default());
        output.buffer().clear();
        output.part();
    }
}
