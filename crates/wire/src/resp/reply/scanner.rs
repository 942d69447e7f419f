//! Skips replies.

use super::error::ReplyError;
use super::token::{Aggregate, Blob, CRLF_LEN, Token, read_token};

/// Counts replies as they arrive, without storing any. The caller need not keep scanned bytes: an
/// input may end inside a string, and the next input continues there.
///
/// Nested replies need no stack: an aggregate only adds to the number of outstanding values. The
/// CRLF behind a string is skipped unchecked.
#[derive(Clone, Debug, Default)]
pub struct ReplyScanner {
    /// Values still missing from the reply; 0 between replies.
    outstanding: u64,
    /// Bytes still missing from the present string, CRLF included.
    skip: u64,
    /// Kind of the present reply.
    kind: Kind,
}

/// Kind of a top-level value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Kind {
    /// Nothing but attributes has arrived.
    #[default]
    Undecided,
    Reply,
    Error,
    Null,
    Push,
}

/// Counts of one input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scanned {
    /// Bytes that need not be passed again.
    pub consumed: usize,
    /// Replies that became complete, including errors and nulls.
    pub replies: usize,
    /// Replies that are errors; errors inside arrays are not counted.
    pub errors: usize,
    /// Null replies, such as those to GET of an absent key.
    pub nulls: usize,
    /// Push messages that became complete; they answer no request.
    pub pushes: usize,
}

impl Scanned {
    #[inline]
    fn count(&mut self, kind: Kind) {
        if kind == Kind::Push {
            self.pushes += 1;
            return;
        }
        self.replies += 1;
        self.errors += usize::from(kind == Kind::Error);
        self.nulls += usize::from(kind == Kind::Null);
    }
}

impl ReplyScanner {
    /// Returns a scanner at the start of a reply.
    pub fn new() -> ReplyScanner {
        ReplyScanner::default()
    }

    /// Scans `input` to its end, or until `max_replies` have become complete.
    ///
    /// # Errors
    /// Fails if the input is no sequence of replies. The counts of this call are lost; the
    /// connection cannot be used any more.
    pub fn scan(&mut self, input: &[u8], max_replies: usize) -> Result<Scanned, ReplyError> {
        let mut scanned = Scanned::default();
        while scanned.replies < max_replies {
            let (consumed, complete) = self.step(&input[scanned.consumed..])?;
            scanned.consumed += consumed;
            let Some(kind) = complete else { break };
            scanned.count(kind);
        }
        Ok(scanned)
    }

    /// Scans `input` to the end of the first reply or push, or of the input.
    ///
    /// # Errors
    /// Those of [`ReplyScanner::scan`].
    pub fn scan_one(&mut self, input: &[u8]) -> Result<Scanned, ReplyError> {
        let (consumed, complete) = self.step(input)?;
        let mut scanned = Scanned { consumed, ..Scanned::default() };
        complete.into_iter().for_each(|kind| scanned.count(kind));
        Ok(scanned)
    }

    /// Returns true if the last input ended inside a reply.
    pub fn is_inside_reply(&self) -> bool {
        self.outstanding > 0
    }

    /// Scans one reply or push, or the part that has arrived. Returns the consumed bytes, and the
    /// kind if it became complete.
    #[inline]
    pub(super) fn step(&mut self, input: &[u8]) -> Result<(usize, Option<Kind>), ReplyError> {
        let mut at = 0;
        if self.skip > 0 {
            at = self.skip_string(input);
            if self.skip > 0 {
                return Ok((at, None));
            }
            if self.outstanding == 0 {
                return Ok((at, Some(self.kind)));
            }
        }
        loop {
            let Some((token, len)) = read_token(&input[at..])? else {
                return Ok((at, None));
            };
            at += len;
            self.count(&token)?;
            if let Token::Blob { len, .. } = token {
                self.skip = len + CRLF_LEN as u64;
                at += self.skip_string(&input[at..]);
                if self.skip > 0 {
                    return Ok((at, None));
                }
            }
            if self.outstanding == 0 {
                return Ok((at, Some(self.kind)));
            }
        }
    }

    /// Skips the available part of the present string.
    #[inline]
    fn skip_string(&mut self, input: &[u8]) -> usize {
        let taken = self.skip.min(input.len() as u64);
        self.skip -= taken;
        taken as usize
    }

    /// Updates the outstanding values. A string counts as complete here; `skip` tracks its bytes.
    #[inline]
    fn count(&mut self, token: &Token<'_>) -> Result<(), ReplyError> {
        if self.outstanding == 0 {
            self.outstanding = 1;
            self.kind = Kind::Undecided;
        }
        // An attribute comes first and leaves one value outstanding: the one it belongs to.
        if self.kind == Kind::Undecided && self.outstanding == 1 {
            self.kind = Kind::of(token);
        }
        self.outstanding = match token {
            Token::Aggregate { kind, len } => {
                let itself = u64::from(*kind != Aggregate::Attribute);
                let announced = self.outstanding.checked_add(kind.values(*len)?);
                announced.ok_or(ReplyError::TooManyValues)? - itself
            }
            _ => self.outstanding - 1,
        };
        Ok(())
    }
}

impl Kind {
    fn of(token: &Token<'_>) -> Kind {
        match token {
            Token::Aggregate { kind: Aggregate::Attribute, .. } => Kind::Undecided,
            Token::Aggregate { kind: Aggregate::Push, .. } => Kind::Push,
            Token::Error(_) | Token::Blob { kind: Blob::Error, .. } => Kind::Error,
            Token::Null => Kind::Null,
            _ => Kind::Reply,
        }
    }
}
