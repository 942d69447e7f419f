//! Writing replies.

use tierce_collections::Element;
use tierce_keyspace::{Blob, IntText, StrView, range_of};
use tierce_output::{Mark, Output};
use tierce_wire::resp::{Encoder, Proto};

use crate::error::CommandError;

/// The reply under construction. It is written directly into the connection's output, in the
/// client's protocol version.
pub struct Reply<'a> {
    output: &'a mut Output,
    proto: Proto,
}

impl<'a> Reply<'a> {
    /// Creates a reply that is appended to `output`.
    pub fn new(output: &'a mut Output, proto: Proto) -> Self {
        Self { output, proto }
    }

    /// Borrows this reply. A change of the protocol version there is lost afterwards.
    pub fn reborrow(&mut self) -> Reply<'_> {
        Reply { output: self.output, proto: self.proto }
    }

    /// Returns the output and the protocol version, for other encoders.
    pub fn parts(&mut self) -> (&mut Output, Proto) {
        (self.output, self.proto)
    }

    /// Borrows this reply, with another protocol version.
    pub fn in_proto(&mut self, proto: Proto) -> Reply<'_> {
        Reply { output: self.output, proto }
    }

    /// Marks the current position for [`Reply::truncate`].
    pub fn mark(&mut self) -> Mark {
        self.output.mark()
    }

    /// Removes everything written since `mark` was taken.
    pub fn truncate(&mut self, mark: Mark) {
        self.output.truncate(mark);
    }

    /// Returns the protocol version.
    pub fn proto(&self) -> Proto {
        self.proto
    }

    /// Switches the protocol version for later output.
    pub fn set_proto(&mut self, proto: Proto) {
        self.proto = proto;
    }

    /// Returns the encoder for the next value, or for the header of an aggregate.
    #[inline]
    fn encoder(&mut self) -> Encoder<'_> {
        self.output.cut_if_long();
        Encoder::new(self.output.buffer(), self.proto)
    }

    /// `+OK`.
    #[inline]
    pub fn ok(&mut self) {
        self.output.buffer().extend_from_slice(b"+OK\r\n");
    }

    /// `+QUEUED`.
    #[inline]
    pub fn queued(&mut self) {
        self.output.buffer().extend_from_slice(b"+QUEUED\r\n");
    }

    /// A simple string, which must not contain line breaks.
    pub fn simple(&mut self, text: &str) {
        self.encoder().simple(text);
    }

    /// An error.
    pub fn error(&mut self, error: &CommandError) {
        self.encoder().error(error.as_str());
    }

    /// An integer.
    #[inline]
    pub fn int(&mut self, value: i64) {
        self.encoder().int(value);
    }

    /// A number of items.
    #[inline]
    pub fn count(&mut self, value: usize) {
        self.encoder().int(value as i64);
    }

    /// A bulk string.
    #[inline]
    pub fn bulk(&mut self, bytes: &[u8]) {
        self.encoder().bulk(bytes);
    }

    /// An element of a collection.
    #[inline]
    pub fn element(&mut self, element: Element<'_>) {
        self.bulk(element.bytes(&mut IntText::new()));
    }

    /// Elements of a collection, after a header with their number.
    #[inline]
    pub fn elements<'e>(&mut self, elements: impl Iterator<Item = Element<'e>>) {
        for element in elements {
            if !self.output.cut_if_long() {
                return;
            }
            Encoder::new(self.output.buffer(), self.proto).bulk(element.bytes(&mut IntText::new()));
        }
    }

    /// Returns true if the client has too many unread bytes, and gets no more replies.
    #[inline]
    pub fn is_in_vain(&self) -> bool {
        self.output.is_condemned()
    }

    /// The value of a string key. A large one is sent by reference.
    #[inline(always)]
    pub fn value(&mut self, value: StrView<'_>) {
        match value {
            StrView::Bytes(bytes) => self.bulk(bytes),
            StrView::Int(int) => {
                let mut digits = itoa::Buffer::new();
                self.bulk(digits.format(int).as_bytes());
            }
            StrView::Shared(blob) => self.shared(blob),
        }
    }

    fn shared(&mut self, blob: Blob<'_>) {
        self.encoder().bulk_header(blob.len());
        self.output.attach(blob.to_arc());
        self.encoder().crlf();
    }

    /// The bytes of a string from `start` to `end`, counted as in GETRANGE.
    pub fn range_of(&mut self, value: StrView<'_>, start: i64, end: i64) {
        let range = range_of(value.len(), start, end);
        if let StrView::Shared(blob) = value {
            self.encoder().bulk_header(range.len());
            self.output.attach_range(blob.to_arc(), range);
            self.encoder().crlf();
        } else {
            self.bulk(&value.bytes(&mut IntText::new())[range]);
        }
    }

    /// A value, or null.
    #[inline]
    pub fn value_or_null(&mut self, value: Option<StrView<'_>>) {
        match value {
            Some(value) => self.value(value),
            None => self.null(),
        }
    }

    /// The absence of a value.
    #[inline]
    pub fn null(&mut self) {
        self.encoder().null();
    }

    /// The absence of an array.
    pub fn null_array(&mut self) {
        self.encoder().null_array();
    }

    /// Header of an array of `len` elements.
    #[inline]
    pub fn array(&mut self, len: usize) {
        self.encoder().array(len);
    }

    /// Header of a map of `len` pairs.
    pub fn map(&mut self, len: usize) {
        self.encoder().map(len);
    }

    /// Header of a set of `len` elements.
    pub fn set(&mut self, len: usize) {
        self.encoder().set(len);
    }

    /// A floating point number.
    pub fn double(&mut self, value: f64) {
        self.encoder().double(value);
    }

    /// A floating point number with a given spelling.
    pub fn double_text(&mut self, text: &str) {
        self.encoder().double_text(text.as_bytes());
    }

    /// Text for people.
    pub fn verbatim(&mut self, text: &str) {
        self.encoder().verbatim(b"txt", text.as_bytes());
    }

    /// An array of bulk strings.
    pub fn bulks<B: AsRef<[u8]>>(
        &mut self,
        items: impl IntoIterator<Item = B, IntoIter: ExactSizeIterator>,
    ) {
        let items = items.into_iter();
        self.array(items.len());
        for item in items {
            if !self.output.cut_if_long() {
                return;
            }
            Encoder::new(self.output.buffer(), self.proto).bulk(item.as_ref());
        }
    }

    /// A set of simple strings, as in `COMMAND INFO`.
    pub fn simple_set(&mut self, items: &[&str]) {
        self.set(items.len());
        items.iter().for_each(|item| self.simple(item));
    }

    /// A truth value.
    pub fn boolean(&mut self, value: bool) {
        self.encoder().boolean(value);
    }

    /// An attribute of the following reply, such as the popularity of `key`.
    pub fn attribute(&mut self, name: &str, key: &str, value: i64) {
        self.encoder().attribute(1, |encoder| {
            encoder.bulk(name.as_bytes());
            encoder.array(2);
            encoder.bulk(key.as_bytes());
            encoder.int(value);
        });
    }

    /// A number of any size, given by its digits.
    pub fn big_number(&mut self, digits: &str) {
        self.encoder().big_number(digits);
    }

    /// Header of a push message of `len` elements.
    pub fn push(&mut self, len: usize) {
        self.encoder().push(len);
    }
}
