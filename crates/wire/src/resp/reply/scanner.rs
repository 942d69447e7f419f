//! Skipping replies.

use super::error::ReplyError;
use super::token::{Aggregate, Blob, CRLF_LEN, Token, read_token};

/// Counts replies as they arrive, without storing any. What it has passed over need not be kept:
/// an input may end inside a string, and the next one goes on there.
///
/// No stack is needed for nested replies: an aggregate only adds to the values that are to come.
/// The CRLF behind a string is skipped unseen.
#[derive(Clone, Debug, Default)]
pub struct ReplyScanner {
    /// Values to come until the reply is complete; 0 between replies.
    outstanding: u64,
    /// Bytes to come of the string begun, CRLF included.
    skip: u64,
    /// What the reply begun is.
    kind: Kind,
}

/// What can be at the top level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Kind {
    /// Nothing of it has arrived, or attributes only.
    #[default]
    Undecided,
    Reply,
    Error,
    Null,
    Push,
}

/// What was in an input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scanned {
    /// Bytes that need not be shown again.
    pub consumed: usize,
    /// Replies that became complete, errors and nulls among them.
    pub replies: usize,
    /// Replies that are errors; errors inside arrays are not counted.
    pub errors: usize,
    /// Replies that are null, such as those to GET of an absent key.
    pub nulls: usize,
    /// Messages that became complete and answer no request.
    pub pushes: usize,
}

impl ReplyScanner {
    /// A scanner at the start of a reply.
    pub fn new() -> ReplyScanner {
        ReplyScanner::default()
    }

    /// Passes over `input` until it ends, or until `max_replies` have become complete.
    ///
    /// # Errors
    /// If the input is no sequence of replies. What was counted before is lost; the connection is
    /// of no use any more.
    pub fn scan(&mut self, input: &[u8], max_replies: usize) -> Result<Scanned, ReplyError> {
        let mut scanned = Scanned::default();
        while scanned.replies < max_replies {
            let (consumed, complete) = self.step(&input[scanned.consumed..])?;
            scanned.consumed += consumed;
            match complete {
                None => break,
                Some(Kind::Push) => scanned.pushes += 1,
                Some(kind) => {
                    scanned.replies += 1;
                    scanned.errors += usize::from(kind == Kind::Error);
                    scanned.nulls += usize::from(kind == Kind::Null);
                }
            }
        }
        Ok(scanned)
    }

    /// Whether the last input ended inside a reply it had begun to pass over.
    pub fn is_inside_reply(&self) -> bool {
        self.outstanding > 0
    }

    /// Passes over one reply or push, or what has arrived of it: the bytes taken, and what became
    /// complete.
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

    /// Takes the available part of the string begun.
    #[inline]
    fn skip_string(&mut self, input: &[u8]) -> usize {
        let taken = self.skip.min(input.len() as u64);
        self.skip -= taken;
        taken as usize
    }

    /// Updates what is to come. A string counts as complete here; `skip` knows better.
    #[inline]
    fn count(&mut self, token: &Token<'_>) -> Result<(), ReplyError> {
        if self.outstanding == 0 {
            self.outstanding = 1;
            self.kind = Kind::Undecided;
        }
        // Attributes come first, and leave one value: the one they belong to.
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
