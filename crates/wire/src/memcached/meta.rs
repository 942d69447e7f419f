//! Meta commands: a verb, a key, and flags that select what to do and what to return.
//!
//! A flag is a letter; some have a token behind it. Return flags are answered in request order. Each flag may occur
//! once.

use std::num::NonZeroU64;

use super::number::{flags as parse_client_flags, signed, unsigned};
use super::words::words;
use super::{KEY_LEN_MAX, base64};

/// Upper bound of flags of one command.
const FLAGS_MAX: usize = 17;

/// The longest opaque token, its letter included.
const OPAQUE_LEN_MAX: usize = 32;

/// The longest key as written: base64 of the longest key.
pub(super) const KEY_TEXT_LEN_MAX: usize = KEY_LEN_MAX;

/// Action of a meta command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb<'a> {
    /// `mg`
    Get,
    /// `ms` with the value.
    Set(&'a [u8]),
    /// `md`
    Delete,
    /// `ma`
    Arithmetic,
    /// `me`
    Debug,
}

/// A meta command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// Action of the command.
    pub verb: Verb<'a>,
    /// Key as written; see [`Request::key`].
    pub key_text: &'a [u8],
    /// All flags as written, with spaces between them.
    pub flags: &'a [u8],
    /// Values of the flags that change what the command does.
    pub options: Options,
}

/// Values of the flags that change what a command does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// `b`: the key is written in base64.
    pub base64: bool,
    /// `q`: suppress the expected replies.
    pub quiet: bool,
    /// `v`: return the value.
    pub value: bool,
    /// `u`: do not count this as a use of the key.
    pub no_touch: bool,
    /// `h`: return whether the item was read before.
    pub hit: bool,
    /// `c`: return the version.
    pub version: bool,
    /// `I`: mark the item as stale.
    pub invalidate: bool,
    /// `x`: remove the value and keep the item.
    pub remove_value: bool,
    /// `T`: seconds to live from now on.
    pub ttl: Option<i64>,
    /// `N`: create a missing item, with this many seconds to live.
    pub vivify: Option<i64>,
    /// `R`: let one reader refresh an item that expires within this many seconds.
    pub recache: Option<i64>,
    /// `F`: client flags.
    pub client_flags: u32,
    /// `C`: version that the value must have; for `mg`, the version that the reader has.
    pub compare: Option<u64>,
    /// `E`: version that the value gets.
    pub given: Option<NonZeroU64>,
    /// `M`: the mode, a letter; 0 for none.
    pub mode: u8,
    /// `J`: initial value of a number.
    pub initial: u64,
    /// `D`: amount to add to a number.
    pub delta: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            base64: false,
            quiet: false,
            value: false,
            no_touch: false,
            hit: false,
            version: false,
            invalidate: false,
            remove_value: false,
            ttl: None,
            vivify: None,
            recache: None,
            client_flags: 0,
            compare: None,
            given: None,
            mode: 0,
            initial: 0,
            delta: 1,
        }
    }
}

pub(super) const BAD_FORMAT: &str = "CLIENT_ERROR bad command line format";
const BAD_FLAG: &str = "CLIENT_ERROR invalid or duplicate flag";
const INVALID_FLAG: &str = "CLIENT_ERROR invalid flag";
const TOO_MANY_FLAGS: &str = "CLIENT_ERROR options flags are too long";
const BAD_TOKEN: &str = "CLIENT_ERROR bad token in command line format";

impl<'a> Request<'a> {
    /// Returns the key, decoded into `room` if it is in base64.
    #[inline]
    pub fn key<'r>(&self, room: &'r mut [u8; KEY_LEN_MAX]) -> &'r [u8]
    where
        'a: 'r,
    {
        if !self.options.base64 {
            return self.key_text;
        }
        // Cannot fail: it was decoded once when the flags were read.
        base64::decode(self.key_text, room).unwrap_or_default()
    }

    /// Returns the flags with their tokens, in order.
    #[inline]
    pub fn flags(&self) -> impl Iterator<Item = (u8, &'a [u8])> + use<'a> {
        words(self.flags)
            .filter_map(|word| word.split_first().map(|(letter, rest)| (*letter, rest)))
    }
}

/// Error reply to an invalid command.
type Refused = &'static str;

/// Parses the key and the flags of a command.
pub(super) fn parse<'a>(
    verb: Verb<'a>,
    key_text: &'a [u8],
    flags: &'a [u8],
) -> Result<Request<'a>, Refused> {
    if key_text.len() > KEY_TEXT_LEN_MAX {
        return Err(BAD_FORMAT);
    }
    let mut request = Request { verb, key_text, flags, options: Options::default() };
    let options = &mut request.options;
    if let Err(error) = options.parse(flags).and_then(|()| check_base64(key_text, options)) {
        // `ma` does not report which flag is wrong.
        return Err(if verb == Verb::Arithmetic { BAD_FLAG } else { error });
    }
    check_mode(&request)?;
    Ok(request)
}

fn check_mode(request: &Request<'_>) -> Result<(), Refused> {
    let mode = request.options.mode;
    match request.verb {
        Verb::Set(_) if !b"\0EAPRS".contains(&mode) => {
            Err("CLIENT_ERROR invalid mode for ms M token")
        }
        Verb::Arithmetic if !b"\0ID+-".contains(&mode) => {
            Err("CLIENT_ERROR invalid mode for ma M token")
        }
        _ => Ok(()),
    }
}

fn check_base64(key_text: &[u8], options: &Options) -> Result<(), Refused> {
    if options.base64 && base64::decode(key_text, &mut [0; KEY_LEN_MAX]).is_none() {
        return Err("CLIENT_ERROR error decoding key");
    }
    Ok(())
}

impl Options {
    #[inline]
    fn parse(&mut self, flags: &[u8]) -> Result<(), Refused> {
        self.take_all(flags).map_err(|error| {
            // Too many flags are reported before an error in one of them.
            if words(flags).count() > FLAGS_MAX { TOO_MANY_FLAGS } else { error }
        })
    }

    #[inline]
    fn take_all(&mut self, flags: &[u8]) -> Result<(), Refused> {
        // One bit for each byte from 64 to 126. Lower bytes are no flags, higher ones count as seen.
        let mut seen = 1u64 << 63;
        for (count, word) in words(flags).enumerate() {
            let Some((&letter, token)) = word.split_first() else { continue };
            if count == FLAGS_MAX {
                return Err(TOO_MANY_FLAGS);
            }
            let bit = u64::from(letter >= 64) << (letter.min(127) & 63);
            if seen & bit != 0 {
                return Err("CLIENT_ERROR duplicate flag");
            }
            seen |= bit;
            self.take(letter, token)?;
        }
        Ok(())
    }

    fn take(&mut self, letter: u8, token: &[u8]) -> Result<(), Refused> {
        let seconds = || signed(token).map(Some).ok_or(BAD_TOKEN);
        match letter {
            b'b' => self.base64 = true,
            b'q' => self.quiet = true,
            b'v' => self.value = true,
            b'u' => self.no_touch = true,
            b'h' => self.hit = true,
            b'c' => self.version = true,
            b'I' => self.invalidate = true,
            b'x' => self.remove_value = true,
            b'T' => self.ttl = seconds()?,
            b'N' => self.vivify = seconds()?,
            b'R' => self.recache = seconds()?,
            b'F' => self.client_flags = parse_client_flags(token).ok_or(BAD_FORMAT)?,
            b'E' => {
                let given = unsigned(token).and_then(NonZeroU64::new);
                self.given = Some(given.ok_or(BAD_TOKEN)?);
            }
            b'C' => self.compare = Some(unsigned(token).ok_or(BAD_TOKEN)?),
            // Only the first byte counts. An empty token gives a mode that does not exist.
            b'M' => self.mode = token.first().copied().unwrap_or(b' '),
            b'J' => {
                let initial = unsigned(token);
                self.initial = initial.ok_or("CLIENT_ERROR invalid numeric initial value")?;
            }
            b'D' => {
                let delta = unsigned(token);
                self.delta = delta.ok_or("CLIENT_ERROR invalid numeric delta value")?;
            }
            b'O' if token.len() >= OPAQUE_LEN_MAX => {
                return Err("CLIENT_ERROR opaque token too long");
            }
            // P and L are for proxies.
            b'O' | b'P' | b'L' | b'k' | b's' | b't' | b'f' | b'l' => {}
            _ => return Err(INVALID_FLAG),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_read_and_kept_in_order() {
        let request = parse(Verb::Get, b"key", b" v  t Oabc T-5 k").expect("valid");
        assert!(request.options.value && !request.options.base64);
        assert_eq!(request.options.ttl, Some(-5));
        let flags: Vec<_> = request.flags().collect();
        let none = &b""[..];
        let expected = [(b'v', none), (b't', none), (b'O', b"abc"), (b'T', b"-5"), (b'k', none)];
        assert_eq!(flags, expected);
    }

    #[test]
    fn keys_are_decoded() {
        let request = parse(Verb::Get, b"Zm9v", b"b v").expect("valid");
        assert_eq!(request.key(&mut [0; KEY_LEN_MAX]), b"foo");
        let request = parse(Verb::Get, b"Zm9v", b"v").expect("valid");
        assert_eq!(request.key(&mut [0; KEY_LEN_MAX]), b"Zm9v");
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let refused = |verb, flags: &[u8]| parse(verb, b"key", flags).expect_err("refused");
        assert_eq!(refused(Verb::Get, b"v v"), "CLIENT_ERROR duplicate flag");
        assert_eq!(refused(Verb::Get, b"\xff"), "CLIENT_ERROR duplicate flag");
        assert_eq!(refused(Verb::Get, b"\x7f"), "CLIENT_ERROR duplicate flag");
        assert_eq!(refused(Verb::Get, b"h ("), INVALID_FLAG);
        assert_eq!(refused(Verb::Get, &b"v ".repeat(18)), TOO_MANY_FLAGS);
        assert_eq!(refused(Verb::Set(b""), b"E0"), BAD_TOKEN);
        assert_eq!(refused(Verb::Set(b""), b"Fx"), BAD_FORMAT);
        assert_eq!(refused(Verb::Get, b"!"), "CLIENT_ERROR invalid flag");
        assert_eq!(refused(Verb::Get, b"Tx"), BAD_TOKEN);
        assert_eq!(refused(Verb::Get, b"C-1"), BAD_TOKEN);
        assert_eq!(refused(Verb::Get, b"b"), "CLIENT_ERROR error decoding key");
        assert_eq!(refused(Verb::Set(b""), b"MX"), "CLIENT_ERROR invalid mode for ms M token");
        assert_eq!(refused(Verb::Set(b""), b"M"), "CLIENT_ERROR invalid mode for ms M token");
        let opaque = [&b"O"[..], &[b'x'; 32]].concat();
        assert_eq!(refused(Verb::Get, &opaque), "CLIENT_ERROR opaque token too long");
        assert_eq!(refused(Verb::Delete, b"!"), INVALID_FLAG);
        assert_eq!(refused(Verb::Arithmetic, b"!"), BAD_FLAG);
        let line = "CLIENT_ERROR invalid mode for ma M token";
        assert_eq!(refused(Verb::Arithmetic, b"MX"), line);
        assert_eq!(parse(Verb::Get, &[b'k'; 251], b""), Err(BAD_FORMAT));
    }
}
