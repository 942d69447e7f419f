//! Output under construction: a buffer to append to, and large values attached to it by reference.

use std::fmt;
use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;

use crate::limits::{OutputClass, OutputLimits};
use crate::owned::OwnedOutput;

/// Attached values below this size are copied instead: a copy of this many bytes costs less than
/// the reference count, the longer system call and the two more slices around the value.
pub const ATTACH_BYTES_MIN: usize = 4 * 1024;

/// Capacity above which the worker's buffer is given back after it was sent.
const SCRATCH_BYTES_MAX: usize = 1024 * 1024;

/// Output that will not be taken back is cut off the buffer when it has reached this size: so much
/// below a power of two that the last element seldom makes the buffer grow once more.
const CUT_BYTES: usize = SCRATCH_BYTES_MAX - 64 * 1024;

/// Capacity of the worker's buffer at the beginning.
const SCRATCH_BYTES_START: usize = 16 * 1024;

/// Bytes of someone else, sent without being copied.
#[derive(Clone)]
pub struct Attachment {
    owner: Arc<dyn AsRef<[u8]> + Send + Sync>,
    range: Range<usize>,
}

impl Attachment {
    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &(*self.owner).as_ref()[self.range.clone()]
    }

    /// Leaves out the first `count` bytes.
    pub fn skip(&mut self, count: usize) {
        self.range.start += count.min(self.range.len());
    }

    /// Leaves out the last `count` bytes.
    pub fn shorten(&mut self, count: usize) {
        self.range.end -= count.min(self.range.len());
    }
}

impl fmt::Debug for Attachment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attachment").field("range", &self.range).finish_non_exhaustive()
    }
}

/// An attachment and the place in the buffer before which it is sent.
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
    /// Bytes in all of `attached`.
    attached_bytes: usize,
    /// Up to here what follows may still be taken back, or it has been attached to: what is
    /// cut begins here.
    settled: usize,
    /// Where the output of the present call begins.
    start: Mark,
    /// Bytes that earlier calls left unsent.
    queued: usize,
    /// Those of them that only the peer keeps waiting.
    unread: usize,
    /// Limits of all classes.
    limits: OutputLimits,
    /// Bytes that the present call may write: `unread` and they are within the hard limit.
    room: usize,
    /// What the present call had written when it was found to be more than that; 0 as long as it is not.
    overrun: usize,
    held_for_turn: bool,
}

/// A place in the output to return to with [`Output::truncate`].
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
    /// Bytes, attached ones among them.
    #[expect(clippy::len_without_is_empty, reason = "only its length is asked for")]
    #[inline]
    pub fn len(&self) -> usize {
        self.end.buffer - self.start.buffer + self.end.attached_bytes - self.start.attached_bytes
    }
}

/// A run of bytes of a part, in order of sending.
pub enum Piece<'a> {
    /// Of the buffer.
    Bytes(&'a [u8]),
    /// By reference.
    Attached(&'a Attachment),
}

impl<'a> Piece<'a> {
    /// The bytes.
    pub fn bytes(&self) -> &'a [u8] {
        match self {
            Piece::Bytes(bytes) => bytes,
            Piece::Attached(attachment) => attachment.bytes(),
        }
    }
}

impl Output {
    /// Empty, and of no connection: for replies that are not read.
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

    /// The buffer to append to. Bytes that were there before must stay as they are.
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.buffer
    }

    /// Appends a shared value without copying it, unless it is small.
    pub fn attach<T: AsRef<[u8]> + Send + Sync + 'static>(&mut self, value: Arc<T>) {
        let range = 0..(*value).as_ref().len();
        self.attach_range(value, range);
    }

    /// Appends a part of a shared value without copying it, unless it is small. `as_ref` must
    /// return the same bytes every time.
    ///
    /// # Panics
    ///
    /// If the range is not inside the value.
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

    /// Of no connection, for a reply of at most so many bytes; see [`Output::room`].
    pub fn with_room(room: usize) -> Output {
        Output { room, ..Output::new() }
    }

    /// Begins a call without a connection that may write so many bytes.
    pub fn set_room(&mut self, room: usize) {
        (self.room, self.overrun) = (room, 0);
    }

    /// Bytes that may still be written in this call.
    pub fn room(&self) -> usize {
        self.room.saturating_sub(self.written())
    }

    /// Takes out what was written in this call, to be appended elsewhere. What is attached stays a
    /// reference. What is more than there was room for condemns the connection that it is appended for.
    #[must_use]
    pub fn take(&mut self) -> OwnedOutput {
        self.take_since(self.start)
    }

    /// Takes out what was written since `mark` was taken in the same call.
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

    /// Appends what was written elsewhere, within the limit of this call.
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

    /// To be called between two elements of a reply: cuts off what has become long, down to the latest
    /// mark. Writers of replies of any length call this. `false` says that the connection is condemned
    /// and more elements are written in vain; `true` may say nothing.
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

    /// Whether more was attached or cut off in this call than the peer may leave unread. Then the
    /// connection is closed after the call, and whatever is written is thrown away.
    #[inline]
    pub fn is_condemned(&self) -> bool {
        self.overrun > 0
    }

    /// Whether earlier calls have left output unsent.
    #[inline]
    pub fn follows_unsent(&self) -> bool {
        self.queued > 0
    }

    /// Whether more was written in this call than the peer may leave unread, which condemns the
    /// connection. To be asked between two batches of requests.
    #[inline]
    pub fn exceeds_limit(&mut self) -> bool {
        if !self.is_condemned() && self.written() > self.room {
            self.overrun = self.written();
        }
        self.is_condemned()
    }

    /// What would wait for the peer of a condemned connection.
    pub fn condemned_bytes(&self) -> usize {
        self.unread + self.overrun
    }

    /// The output of a call without a connection, in one piece.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        if self.attached.is_empty() {
            return self.buffer;
        }
        let pieces: Vec<&[u8]> = self.pieces(self.part()).map(|piece| piece.bytes()).collect();
        pieces.concat()
    }

    /// Appends the output of a call without a connection to `bytes`, and forgets it. Cheap if `bytes` is empty.
    pub fn drain_into(&mut self, bytes: &mut Vec<u8>) {
        if self.attached.is_empty() && bytes.is_empty() {
            std::mem::swap(&mut self.buffer, bytes);
        } else {
            self.pieces(self.part()).for_each(|piece| bytes.extend_from_slice(piece.bytes()));
        }
        self.reset();
    }

    /// Bytes written in this call.
    #[inline]
    pub fn written(&self) -> usize {
        self.part().len()
    }

    /// Bytes on their way to the peer: written in this call, or left unsent before.
    #[inline]
    pub fn pending(&self) -> usize {
        self.queued + self.written()
    }

    /// The place reached, for [`truncate`](Output::truncate).
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

    /// Takes back everything written since `mark` was taken in the same call.
    pub fn truncate(&mut self, mark: Mark) {
        debug_assert!(mark.buffer >= self.start.buffer && mark.attached >= self.start.attached);
        self.buffer.truncate(mark.buffer);
        self.attached.truncate(mark.attached);
        self.attached_bytes = mark.attached_bytes;
        self.settled = mark.buffer;
        // All that was not kept is behind the first mark that says so.
        self.overrun = mark.overrun;
    }

    /// Sends the output of this call only after the end of the turn.
    pub fn hold_for_turn(&mut self) {
        self.held_for_turn = true;
    }

    /// Begins a call for a connection of this class that has `queued` bytes unsent, of which `unread` wait
    /// for the peer alone.
    #[inline]
    pub fn begin(&mut self, queued: usize, unread: usize, class: OutputClass) {
        self.overrun = 0;
        self.start = self.mark();
        self.queued = queued;
        self.unread = unread;
        self.set_class(class);
        self.held_for_turn = false;
    }

    /// Has the limits of this class apply to the present call.
    #[inline]
    pub fn set_class(&mut self, class: OutputClass) {
        self.room = match self.limits.get(class).hard_bytes {
            0 => usize::MAX,
            hard_bytes => hard_bytes.saturating_sub(self.unread),
        };
    }

    /// The limits of all classes.
    pub fn limits(&self) -> &OutputLimits {
        &self.limits
    }

    /// Replaces the limits, from the next call on.
    pub fn set_limits(&mut self, limits: OutputLimits) {
        self.limits = limits;
    }

    /// Whether [`Output::hold_for_turn`] was called.
    pub fn is_held_for_turn(&self) -> bool {
        self.held_for_turn
    }

    /// The output of the present call, if that is plain bytes which may be sent now.
    #[inline]
    pub fn plain_call(&self) -> Option<&[u8]> {
        let is_plain = self.attached.len() == self.start.attached
            && !self.is_condemned()
            && !self.held_for_turn;
        if is_plain { self.buffer.get(self.start.buffer..) } else { None }
    }

    /// Takes back what [`Output::plain_call`] has returned, for it was sent.
    #[inline]
    pub fn take_back_plain(&mut self) {
        self.buffer.truncate(self.start.buffer);
        self.settled = self.start.buffer;
    }

    /// The output of the present call.
    #[inline]
    pub fn part(&self) -> Part {
        assert!(self.buffer.len() >= self.start.buffer, "output of another connection was removed");
        Part { start: self.start, end: self.place() }
    }

    /// Takes back the present call's output, for it was sent or copied.
    pub fn discard_part(&mut self) {
        self.truncate(self.start);
    }

    /// Forgets everything, at the end of a turn, and gives back the memory of an unusual one.
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

    /// The bytes of a part, if nothing is attached to it.
    pub fn plain_bytes(&self, part: Part) -> Option<&[u8]> {
        (part.start.attached == part.end.attached)
            .then(|| &self.buffer[part.start.buffer..part.end.buffer])
    }

    /// The runs of a part in order.
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

    /// The first slices of a part, for one system call.
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

    /// An output whose peer has left `unread` bytes of the 10 MiB that it may leave.
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
        // Going on regardless takes no more memory.
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
