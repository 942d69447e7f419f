//! The arguments of one request, as slices of the received bytes.

use std::fmt;
use std::ops::{Index, Range};

use thiserror::Error;

/// Position of an argument in its bytes.
///
/// It takes 8 bytes instead of the 16 of a slice, which keeps the spans of a deep pipeline in the L1 cache. The
/// price is that one request cannot exceed 4 GiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) start: u32,
    pub(super) len: u32,
}

impl Span {
    /// Returns a span; the caller has checked that both numbers fit.
    #[inline]
    pub(super) fn new(start: usize, len: usize) -> Span {
        debug_assert!(start.checked_add(len).is_some_and(|end| end <= u32::MAX as usize));
        Span { start: start as u32, len: len as u32 }
    }

    /// Returns the bytes of this span in `bytes` followed by `side`; a span never crosses from one to the other.
    #[inline]
    fn slice<'a>(self, bytes: &'a [u8], side: &'a [u8]) -> &'a [u8] {
        let (start, len) = (self.start as usize, self.len as usize);
        match bytes.get(start..start + len) {
            Some(slice) => slice,
            None => slice_side(side, start - bytes.len(), len),
        }
    }
}

#[cold]
fn slice_side(side: &[u8], start: usize, len: usize) -> &[u8] {
    &side[start..][..len]
}

/// The arguments of one request, the command's name first. Cheap to copy: three slices.
#[derive(Clone, Copy)]
pub struct Args<'a> {
    bytes: &'a [u8],
    /// Side buffer, which counts as following `bytes`: a large argument with its own allocation. Usually empty.
    side: &'a [u8],
    spans: &'a [Span],
}

impl<'a> Args<'a> {
    /// Invariant: every span is inside `bytes`; access to a span outside panics.
    #[inline]
    pub(super) fn new(bytes: &'a [u8], spans: &'a [Span]) -> Args<'a> {
        Args { bytes, side: &[], spans }
    }

    /// Returns arguments whose spans may also refer to bytes in `side`, behind the end of `bytes`.
    #[inline]
    pub(super) fn in_two(bytes: &'a [u8], side: &'a [u8], spans: &'a [Span]) -> Args<'a> {
        Args { bytes, side, spans }
    }

    /// Returns the number of arguments, the command's name included.
    #[inline]
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Returns true if there are no arguments. That is possible only after [`Args::from`]: no request is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Returns the argument at `index`, or `None` behind the last one.
    #[inline]
    pub fn get(&self, index: usize) -> Option<&'a [u8]> {
        self.spans.get(index).map(|span| span.slice(self.bytes, self.side))
    }

    /// Returns the argument at `index` with the lifetime of the input; `args[index]` has the lifetime of `args`.
    ///
    /// # Panics
    /// Panics if there are not that many.
    #[inline]
    pub fn at(&self, index: usize) -> &'a [u8] {
        self.spans[index].slice(self.bytes, self.side)
    }

    /// Returns the arguments from `first` on; empty if there are fewer.
    #[inline]
    pub fn from(&self, first: usize) -> Args<'a> {
        Args { spans: self.spans.get(first..).unwrap_or_default(), ..*self }
    }

    /// Returns all arguments in order.
    #[inline]
    pub fn iter(self) -> impl DoubleEndedIterator<Item = &'a [u8]> + ExactSizeIterator + Clone {
        let Args { bytes, side, spans } = self;
        spans.iter().map(move |span| span.slice(bytes, side))
    }

    /// Returns the first `N` arguments and those behind them, if there are so many.
    #[inline]
    pub fn split_first_chunk<const N: usize>(&self) -> Option<([&'a [u8]; N], Args<'a>)> {
        let (first, rest) = self.spans.split_first_chunk::<N>()?;
        let Args { bytes, side, .. } = *self;
        Some((first.map(|span| span.slice(bytes, side)), Args { spans: rest, ..*self }))
    }

    /// Returns the first `count` arguments and those behind them, if there are so many.
    #[inline]
    pub(super) fn split_at_checked(&self, count: usize) -> Option<(Args<'a>, Args<'a>)> {
        let (left, right) = self.spans.split_at_checked(count)?;
        Some((Args { spans: left, ..*self }, Args { spans: right, ..*self }))
    }

    /// Returns the arguments in groups of `N`, without an incomplete last group.
    #[inline]
    pub(super) fn chunks<const N: usize>(
        self,
    ) -> impl ExactSizeIterator<Item = [&'a [u8]; N]> + DoubleEndedIterator + Clone {
        let Args { bytes, side, spans } = self;
        let (chunks, _) = spans.as_chunks::<N>();
        chunks.iter().map(move |chunk| chunk.map(|span| span.slice(bytes, side)))
    }

    /// Returns the total length of the arguments.
    #[inline]
    pub fn bytes_len(&self) -> usize {
        self.spans.iter().map(|span| span.len as usize).sum()
    }

    /// Returns the range of the bytes that contains all arguments and the bytes between them, if there is one.
    #[inline]
    pub(super) fn extent(&self) -> Option<Range<usize>> {
        let (first, last) = (self.spans.first()?, self.spans.last()?);
        let (start, end) = (first.start, last.start.checked_add(last.len)?);
        let is_inside = |span: &Span| span.start >= start && span.len <= end - span.start.min(end);
        let is_one = end as usize <= self.bytes.len() && self.spans.iter().all(is_inside);
        is_one.then_some(start as usize..end as usize)
    }

    /// Returns the bytes in `extent`, and the range of each argument in them.
    #[inline]
    pub(super) fn cut_out(
        self,
        extent: Range<usize>,
    ) -> (&'a [u8], impl ExactSizeIterator<Item = Range<usize>> + 'a) {
        let start = extent.start;
        let places = self.spans.iter().map(move |span| {
            let at = span.start as usize - start;
            at..at + span.len as usize
        });
        (&self.bytes[extent], places)
    }

    /// Copies the arguments out of the input, for a request that waits.
    pub fn to_owned(&self) -> OwnedArgs {
        let mut owned = OwnedArgs {
            bytes: Vec::with_capacity(self.bytes_len()),
            spans: Vec::with_capacity(self.len()),
        };
        for arg in self.iter() {
            // Cannot overflow: the arguments are parts of one addressable whole.
            owned.append(arg);
        }
        owned
    }
}

impl Index<usize> for Args<'_> {
    type Output = [u8];

    #[inline]
    fn index(&self, index: usize) -> &[u8] {
        self.at(index)
    }
}

impl fmt::Debug for Args<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter().map(|arg| arg.escape_ascii().to_string())).finish()
    }
}

/// Arguments that own their bytes, in two allocations whatever their number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnedArgs {
    bytes: Vec<u8>,
    spans: Vec<Span>,
}

impl OwnedArgs {
    /// Returns an empty list of arguments.
    pub fn new() -> OwnedArgs {
        OwnedArgs::default()
    }

    /// Appends one argument.
    ///
    /// # Errors
    /// Fails if all arguments together would exceed 4 GiB; nothing has been appended then.
    pub fn push(&mut self, arg: &[u8]) -> Result<(), ArgsTooLarge> {
        let len = self.bytes.len().saturating_add(arg.len());
        if len > u32::MAX as usize {
            return Err(ArgsTooLarge { len });
        }
        self.append(arg);
        Ok(())
    }

    /// Removes the arguments, and keeps their memory for others.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.spans.clear();
    }

    fn append(&mut self, arg: &[u8]) {
        self.spans.push(Span::new(self.bytes.len(), arg.len()));
        self.bytes.extend_from_slice(arg);
    }

    /// Returns the arguments in the form that commands take.
    #[inline]
    pub fn as_args(&self) -> Args<'_> {
        Args::new(&self.bytes, &self.spans)
    }

    /// Returns the heap memory of the arguments.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.capacity() + self.spans.capacity() * size_of::<Span>()
    }
}

/// The arguments together are longer than can be addressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("arguments of {len} bytes exceed the 4 GiB of one request")]
pub struct ArgsTooLarge {
    /// Total length that they would have.
    pub len: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owned_arguments_equal_their_source() {
        let spans = [Span::new(2, 3), Span::new(0, 1), Span::new(5, 0)];
        let args = Args::new(b"a-SET", &spans);
        let owned = args.to_owned();
        assert!(args.iter().eq([&b"SET"[..], b"a", b""]));
        assert!(args.iter().eq(owned.as_args().iter()));
        assert_eq!(owned.memory_bytes(), 4 + 3 * size_of::<Span>());
    }

    #[test]
    fn a_tail_may_be_empty() {
        let mut owned = OwnedArgs::new();
        owned.push(b"GET").unwrap();
        owned.push(b"key").unwrap();
        let args = owned.as_args();
        assert_eq!(&args.from(1)[0], b"key");
        assert!(args.from(2).is_empty());
        assert!(args.from(3).is_empty());
        assert_eq!(args.get(2), None);
        assert_eq!(format!("{args:?}"), r#"["GET", "key"]"#);
    }
}
