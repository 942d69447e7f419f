//! Requests kept for later, in a buffer of their own.

use super::args::{Args, ArgsTooLarge, Span};

/// Upper bound of the total bytes of kept requests: offsets in their buffer are 32 bits wide.
const BYTES_MAX: usize = u32::MAX as usize;

/// Copies of requests that outlive the input they arrived in, such as those between MULTI and EXEC. They take three
/// allocations, whatever their number.
#[derive(Debug, Default)]
pub struct KeptRequests {
    /// Arguments of all requests, with the bytes between the arguments of one: a request is copied in one piece.
    bytes: Vec<u8>,
    spans: Vec<Span>,
    /// Index behind the last span of each request.
    ends: Vec<u32>,
}

impl KeptRequests {
    /// Returns an empty list, without an allocation.
    pub fn new() -> KeptRequests {
        KeptRequests::default()
    }

    /// Returns an empty list with room for this many requests, arguments and bytes.
    pub fn with_capacity(requests: usize, args: usize, bytes: usize) -> KeptRequests {
        KeptRequests {
            bytes: Vec::with_capacity(bytes),
            spans: Vec::with_capacity(args),
            ends: Vec::with_capacity(requests),
        }
    }

    /// Appends a copy of a request.
    ///
    /// # Errors
    /// Fails if all requests together would exceed 4 GiB; nothing has been appended then.
    pub fn push(&mut self, args: Args<'_>) -> Result<(), ArgsTooLarge> {
        match args.extent() {
            Some(extent) => {
                self.reserve(extent.len())?;
                let (bytes, places) = args.cut_out(extent);
                let begin = self.bytes.len();
                self.spans.extend(places.map(|place| Span::new(begin + place.start, place.len())));
                self.bytes.extend_from_slice(bytes);
            }
            None => self.push_each(args)?,
        }
        self.ends.push(self.spans.len() as u32);
        Ok(())
    }

    /// Appends the arguments of a request with one argument in a side buffer.
    #[cold]
    fn push_each(&mut self, args: Args<'_>) -> Result<(), ArgsTooLarge> {
        self.reserve(args.bytes_len())?;
        for arg in args.iter() {
            self.spans.push(Span::new(self.bytes.len(), arg.len()));
            self.bytes.extend_from_slice(arg);
        }
        Ok(())
    }

    /// Reserves memory for this many bytes more, within the limit.
    #[inline]
    fn reserve(&mut self, more: usize) -> Result<(), ArgsTooLarge> {
        let len = self.bytes.len().saturating_add(more);
        if len > BYTES_MAX {
            return Err(ArgsTooLarge { len });
        }
        self.bytes.reserve(more);
        Ok(())
    }

    /// Returns the number of requests.
    #[inline]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns true if there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Returns all requests in the order they were appended.
    #[inline]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Args<'_>> {
        let mut start = 0;
        self.ends.iter().map(move |&end| {
            let spans = &self.spans[start..end as usize];
            start = end as usize;
            Args::new(&self.bytes, spans)
        })
    }

    /// Returns the total number of arguments, command names included.
    #[inline]
    pub fn args_len(&self) -> usize {
        self.spans.len()
    }

    /// Returns the total length of all requests.
    #[inline]
    pub fn bytes_len(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the heap memory of the requests.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.capacity()
            + self.spans.capacity() * size_of::<Span>()
            + self.ends.capacity() * size_of::<u32>()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{AuthState, Batch, Limits, Parser};
    use super::*;

    #[test]
    fn kept_requests_are_those_that_came() {
        let input = b"SET key \"a value\"\r\nPING\r\n*2\r\n$3\r\nGET\r\n$0\r\n\r\n";
        let mut batch = Batch::new();
        let limits = Limits { auth: AuthState::Granted, ..Limits::default() };
        Parser::new().parse(input, &limits, 10, &mut batch);
        let mut kept = KeptRequests::new();
        assert!(kept.is_empty() && kept.memory_bytes() == 0);
        for args in batch.iter(input) {
            kept.push(args).expect("a few bytes");
        }
        assert_eq!((kept.len(), kept.iter().len()), (3, 3));
        for (kept, came) in kept.iter().zip(batch.iter(input)) {
            assert!(kept.iter().eq(came.iter()), "{kept:?}");
        }
        assert!(kept.memory_bytes() >= "SETkeya valuePINGGET".len() + 7 * size_of::<Span>());
    }

    #[test]
    fn arguments_in_any_order_are_kept() {
        let spans = [Span::new(4, 2), Span::new(0, 3), Span::new(6, 0), Span::new(6, 3)];
        let mut kept = KeptRequests::new();
        kept.push(Args::new(b"keyxGETend", &spans[..3])).expect("a few bytes");
        kept.push(Args::in_two(b"keyxGE", b"end", &spans)).expect("a few bytes");
        let kept: Vec<Vec<&[u8]>> = kept.iter().map(|args| args.iter().collect()).collect();
        assert_eq!(kept, [vec![&b"GE"[..], b"key", b""], vec![&b"GE"[..], b"key", b"", b"end"]]);
    }
}
