//! Responses.

use super::{Step, TooLong, announced_len, length_field, need_length};

/// Bytes before the data: length of the frame, status, id.
pub(super) const HEADER_LEN: usize = 7;

/// Outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Status {
    /// Success. The data of a Get is the value; other responses have no data.
    Ok = 0,
    /// Failure. The data is the reason, for instance one of the texts of
    /// [`Failure`](super::Failure).
    Error = 1,
}

/// A response; its data is a slice of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Response<'a> {
    /// Outcome of the request.
    pub status: Status,
    /// Id of the request.
    pub id: u32,
    /// A value, or the text of an error. At most [`DATA_LEN_MAX`](super::DATA_LEN_MAX) bytes.
    pub data: &'a [u8],
}

impl<'a> Response<'a> {
    /// Reads the response at the front of `input`. An unknown status is as broken as a length that
    /// is too short: the peer speaks another protocol.
    #[inline]
    pub fn read(input: &'a [u8]) -> Step<Self> {
        let Some(len) = announced_len(input) else { return need_length(input) };
        let status = match input.get(2) {
            None | Some(0) => Status::Ok,
            Some(1) => Status::Error,
            Some(_) => return Step::Broken,
        };
        if len < HEADER_LEN {
            return Step::Broken;
        }
        let frame = input.get(..len).and_then(<[u8]>::split_first_chunk::<HEADER_LEN>);
        let Some((&[_, _, _, id @ ..], data)) = frame else {
            return Step::NeedMore { hint: len - input.len() };
        };
        Step::Frame { frame: Self { status, id: u32::from_be_bytes(id), data }, len }
    }

    /// Returns the bytes that precede data of this length, for callers that append it themselves.
    ///
    /// # Errors
    ///
    /// [`TooLong::Frame`].
    #[inline]
    pub fn header(status: Status, id: u32, data_len: usize) -> Result<[u8; 7], TooLong> {
        let [high, low] = length_field(HEADER_LEN, data_len)?;
        let [a, b, c, d] = id.to_be_bytes();
        Ok([high, low, status as u8, a, b, c, d])
    }

    /// Appends the response.
    ///
    /// # Errors
    ///
    /// [`TooLong::Frame`]; nothing has been appended then.
    #[inline]
    pub fn write(&self, output: &mut Vec<u8>) -> Result<(), TooLong> {
        let header = Self::header(self.status, self.id, self.data.len())?;
        output.reserve(header.len() + self.data.len());
        output.extend_from_slice(&header);
        output.extend_from_slice(self.data);
        Ok(())
    }
}
