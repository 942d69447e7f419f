//! Requests.

use super::{Step, TooLong, announced_len, length_field, need_length};

/// Bytes before the key: length of the frame, length of the key, kind, id.
pub(super) const HEADER_LEN: usize = 8;

/// Operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Reads the value of a key.
    Get,
    /// Stores a value.
    Put,
    /// Deletes a key.
    Delete,
    /// An operation that this protocol does not have.
    Unknown(u8),
}

impl Kind {
    /// Returns the kind with this code.
    #[inline]
    pub const fn from_code(code: u8) -> Self {
        match code {
            1 => Self::Get,
            2 => Self::Put,
            3 => Self::Delete,
            _ => Self::Unknown(code),
        }
    }

    /// Returns its code.
    #[inline]
    pub const fn code(self) -> u8 {
        match self {
            Self::Get => 1,
            Self::Put => 2,
            Self::Delete => 3,
            Self::Unknown(code) => code,
        }
    }
}

/// A request; its parts are slices of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// Operation of the request.
    pub kind: Kind,
    /// Chosen by the client, and returned in the response.
    pub id: u32,
    /// At most [`KEY_LEN_MAX`](super::KEY_LEN_MAX) bytes; may be empty.
    pub key: &'a [u8],
    /// Used in a [`Kind::Put`] only.
    pub value: &'a [u8],
}

/// Returns true if an input begins an HTTP request. As a frame it would have an unknown kind and some 20,000 bytes,
/// with contents chosen by its sender.
#[cold]
pub fn is_http(input: &[u8]) -> bool {
    const METHODS: [&[u8]; 9] = [
        b"GET ",
        b"HEAD ",
        b"POST ",
        b"PUT ",
        b"PATCH ",
        b"DELETE ",
        b"OPTIONS ",
        b"TRACE ",
        b"CONNECT",
    ];
    METHODS.iter().any(|method| input.starts_with(method))
}

impl<'a> Request<'a> {
    /// Reads the request at the front of `input`.
    #[inline]
    pub fn read(input: &'a [u8]) -> Step<Self> {
        let Some(len) = announced_len(input) else { return need_length(input) };
        let Some((header, _)) = input.split_first_chunk::<HEADER_LEN>() else {
            let key_len = input.get(2).copied().map_or(0, usize::from);
            return match len < HEADER_LEN + key_len {
                true => Step::Broken,
                false => Step::NeedMore { hint: len - input.len() },
            };
        };
        let &[_, _, key_len, code, id @ ..] = header;
        if code > 3 && is_http(header) {
            return Step::Broken;
        }
        let key_end = HEADER_LEN + usize::from(key_len);
        if len < key_end {
            return Step::Broken;
        }
        let Some(frame) = input.get(..len) else {
            return Step::NeedMore { hint: len - input.len() };
        };
        let (key, value) = frame[HEADER_LEN..].split_at(key_end - HEADER_LEN);
        let id = u32::from_be_bytes(id);
        Step::Frame { frame: Self { kind: Kind::from_code(code), id, key, value }, len }
    }

    /// Appends the request.
    ///
    /// # Errors
    ///
    /// [`TooLong`]; nothing has been appended then.
    #[inline]
    pub fn write(&self, output: &mut Vec<u8>) -> Result<(), TooLong> {
        let key_len =
            u8::try_from(self.key.len()).map_err(|_| TooLong::Key { len: self.key.len() })?;
        let [high, low] = length_field(HEADER_LEN, self.key.len() + self.value.len())?;
        let [a, b, c, d] = self.id.to_be_bytes();
        output.reserve(HEADER_LEN + self.key.len() + self.value.len());
        output.extend_from_slice(&[high, low, key_len, self.kind.code(), a, b, c, d]);
        output.extend_from_slice(self.key);
        output.extend_from_slice(self.value);
        Ok(())
    }
}
