//! The arguments of one request, as slices of the bytes they arrived in.

use std::fmt;
use std::ops::{Index, Range};

use thiserror::Error;

/// Where an argument is in its bytes.
///
/// Four bytes each instead of a slice's eight keep the spans of a deep pipeline in the L1 cache;
/// the price is that one request cannot exceed 4 GiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) start: u32,
    pub(super) len: u32,
}

impl Span {
    /// The caller has checked that both fit.
    #[inline]
    pub(super) fn new(start: usize, len: usize) -> Span {
        debug_assert!(start.checked_add(len).is_some_and(|end| end <= u32::MAX as usize));
        Span { start: start as u32, len: len as u32 }
    }

    /// The bytes at this place in `bytes` with `apart` behind them; a span never crosses from one to the
    /// other.
    #[inline]
    fn slice<'a>(self, bytes: &'a [u8], apart: &'a [u8]) -> &'a [u8] {
        let (start, len) = (self.start as usize, self.len as usize);
        match bytes.get(start..start + len) {
            Some(slice) => slice,
            None => slice_apart(apart, start - bytes.len(), len),
        }
    }
}

#[cold]
fn slice_apart(apart: &[u8], start: usize, len: usize) -> &[u8] {
    &apart[start..][..len]
}

/// The arguments of one request, the command's name first. A cheap copy: three slices.
#[derive(Clone, Copy)]
pub struct Args<'a> {
    bytes: &'a [u8],
    /// What is not in `bytes`, and counts as standing behind them: a large argument that has an allocation
    /// of its own. Empty as a rule.
    apart: &'a [u8],
    spans: &'a [Span],
}

impl<'a> Args<'a> {
    /// Invariant: every span lies inside `bytes`; a wrong one would panic when it is looked at.
    #[inline]
    pub(super) fn new(bytes: &'a [u8], spans: &'a [Span]) -> Args<'a> {
        Args { bytes, apart: &[], spans }
    }

    /// The same for spans that may refer to bytes in `apart`, behind the end of `bytes`.
    #[inline]
    pub(super) fn in_two(bytes: &'a [u8], apart: &'a [u8], spans: &'a [Span]) -> Args<'a> {
        Args { bytes, apart, spans }
    }

    /// How many arguments there are, the command's name included.
    #[inline]
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Whether nothing is left, as happens after [`Args::from`] only: no request is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// The argument at `index`, or `None` behind the last one.
    #[inline]
    pub fn get(&self, index: usize) -> Option<&'a [u8]> {
        self.spans.get(index).map(|span| span.slice(self.bytes, self.apart))
    }

    /// The argument at `index`, living as long as the input; `args[index]` lives as long as `args`.
    ///
    /// # Panics
    /// If there are not that many.
    #[inline]
    pub fn at(&self, index: usize) -> &'a [u8] {
        self.spans[index].slice(self.bytes, self.apart)
    }

    /// The arguments from `first` on; none of them if there are fewer.
    #[inline]
    pub fn from(&self, first: usize) -> Args<'a> {
        Args { spans: self.spans.get(first..).unwrap_or_default(), ..*self }
    }

    /// All arguments in order.
    #[inline]
    pub fn iter(self) -> impl DoubleEndedIterator<Item = &'a [u8]> + ExactSizeIterator + Clone {
        let Args { bytes, apart, spans } = self;
        spans.iter().map(move |span| span.slice(bytes, apart))
    }

    /// The first `N` arguments and those behind them, if there are so many.
    #[inline]
    pub fn split_first_chunk<const N: usize>(&self) -> Option<([&'a [u8]; N], Args<'a>)> {
        let (first, rest) = self.spans.split_first_chunk::<N>()?;
        let Args { bytes, apart, .. } = *self;
        Some((first.map(|span| span.slice(bytes, apart)), Args { spans: rest, ..*self }))
    }

    /// The first `count` arguments and those behind them, if there are so many.
    #[inline]
    pub(super) fn split_at_checked(&self, count: usize) -> Option<(Args<'a>, Args<'a>)> {
        let (left, right) = self.spans.split_at_checked(count)?;
        Some((Args { spans: left, ..*self }, Args { spans: right, ..*self }))
    }

    /// The arguments in groups of `N`, without what is left over.
    #[inline]
    pub(super) fn chunks<const N: usize>(
        self,
    ) -> impl ExactSizeIterator<Item = [&'a [u8]; N]> + DoubleEndedIterator + Clone {
        let Args { bytes, apart, spans } = self;
        let (chunks, _) = spans.as_chunks::<N>();
        chunks.iter().map(move |chunk| chunk.map(|span| span.slice(bytes, apart)))
    }

    /// How many bytes they have together.
    #[inline]
    pub fn bytes_len(&self) -> usize {
        self.spans.iter().map(|span| span.len as usize).sum()
    }

    /// Where all arguments are together, with what stands between them, if that is one piece of the bytes.
    #[inline]
    pub(super) fn extent(&self) -> Option<Range<usize>> {
        let (first, last) = (self.spans.first()?, self.spans.last()?);
        let (start, end) = (first.start, last.start.checked_add(last.len)?);
        let is_inside = |span: &Span| span.start >= start && span.len <= end - span.start.min(end);
        let is_one = end as usize <= self.bytes.len() && self.spans.iter().all(is_inside);
        is_one.then_some(start as usize..end as usize)
    }

    /// The bytes in `extent`, and each argument's place in these.
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
            // The parts of one addressable whole are addressable.
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
    /// No arguments yet.
    pub fn new() -> OwnedArgs {
        OwnedArgs::default()
    }

    /// Appends one argument.
    ///
    /// # Errors
    /// If all arguments together would exceed 4 GiB; nothing has been appended then.
    pub fn push(&mut self, arg: &[u8]) -> Result<(), ArgsTooLarge> {
        let len = self.bytes.len().saturating_add(arg.len());
        if len > u32::MAX as usize {
            return Err(ArgsTooLarge { len });
        }
        self.append(arg);
        Ok(())
    }

    /// Forgets the arguments, and keeps their memory for others.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.spans.clear();
    }

    fn append(&mut self, arg: &[u8]) {
        self.spans.push(Span::new(self.bytes.len(), arg.len()));
        self.bytes.extend_from_slice(arg);
    }

    /// The arguments in the form commands take them.
    #[inline]
    pub fn as_args(&self) -> Args<'_> {
        Args::new(&self.bytes, &self.spans)
    }

    /// What the arguments occupy on the heap.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.capacity() + self.spans.capacity() * size_of::<Span>()
    }
}

/// Arguments together longer than can be addressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("arguments of {len} bytes exceed the 4 GiB of one request")]
pub struct ArgsTooLarge {
    /// What they would have come to.
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
