//! Lines: the classic commands and the meta commands.
//!
//! A line ends in LF or CR LF; spaces separate its words. Storage commands are followed by the value and CR LF.
//! Unlike memcached, the parser skips the value of a refused command whenever its length could be read, so it never
//! takes a value for commands.

use memchr::memchr;

use super::meta::{self, BAD_FORMAT, Verb};
use super::number::{flags as parse_flags, signed, unsigned};
use super::words::{first_word, words};
use super::{KEY_LEN_MAX, LINE_LEN_MAX, Limits};

/// Upper bound of the declared length of a value.
const DATA_LEN_MAX: u64 = i32::MAX as u64 - 2;

const UNKNOWN: &str = "ERROR";
const BAD_EXPTIME: &str = "CLIENT_ERROR invalid exptime argument";
/// Reply to a value that is not followed by CR LF.
pub const BAD_CHUNK: &str = "CLIENT_ERROR bad data chunk";
const BAD_DELTA: &str = "CLIENT_ERROR invalid numeric delta argument";
/// Reply to a value above [`Limits::value_len_max`].
pub const TOO_LARGE: &str = "SERVER_ERROR object too large for cache";

/// Reason for closing a connection whose line exceeds its limit.
pub const ENDLESS_LINE: &str = "a line without end";

/// The client's wish for a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The client wants a reply.
    Wanted,
    /// `noreply`
    Unwanted,
}

/// Condition and manner of storing a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Store always.
    Set,
    /// Store if there is no value.
    Add,
    /// Store if there is a value.
    Replace,
    /// Append to the present value.
    Append,
    /// Prepend to the present value.
    Prepend,
    /// Store if the present value has this version.
    Cas(u64),
}

/// A value to store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Store<'a> {
    /// Condition and manner of storing.
    pub mode: Mode,
    /// Key of the value.
    pub key: &'a [u8],
    /// Client flags, stored with the value and not interpreted.
    pub flags: u32,
    /// Seconds to live, or a Unix time in seconds.
    pub exptime: i64,
    /// The value.
    pub data: &'a [u8],
    /// The client's wish for a reply.
    pub reply: Reply,
}

/// Keys of a command. Most commands have one key, which is not searched for again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keys<'a> {
    first: Option<&'a [u8]>,
    /// The words that follow `first`.
    others: &'a [u8],
}

impl<'a> Keys<'a> {
    /// Iterates over the keys. None is longer than [`KEY_LEN_MAX`].
    #[inline]
    pub fn iter(self) -> impl Iterator<Item = &'a [u8]> {
        self.first.into_iter().chain(words(self.others))
    }

    /// Parses the words of `line`, all short enough for a key.
    #[inline]
    fn parse(line: &'a [u8]) -> Result<Self, &'static str> {
        let (first, others) = first_word(line);
        check_key(first)?;
        for key in words(others) {
            check_key(key)?;
        }
        Ok(Self { first: (!first.is_empty()).then_some(first), others })
    }
}

/// A command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "fields are named as in the protocol")]
pub enum Command<'a> {
    /// `get`, `gets`, and with an expiry `gat`, `gats`.
    Get { keys: Keys<'a>, with_version: bool, touch: Option<i64> },
    /// `set`, `add`, `replace`, `append`, `prepend`, `cas`.
    Store(Store<'a>),
    /// `delete`
    Delete { key: &'a [u8], reply: Reply },
    /// `incr`, `decr`
    Adjust { key: &'a [u8], up: bool, delta: u64, reply: Reply },
    /// `touch`
    Touch { key: &'a [u8], exptime: i64, reply: Reply },
    /// `flush_all`
    FlushAll { delay: i64, reply: Reply },
    /// `stats`, with the rest of the line.
    Stats { what: &'a [u8] },
    /// A command for operators: its name, the rest of the line, and whether a reply is wanted.
    Admin { name: &'a [u8], rest: &'a [u8], reply: Reply },
    /// `version`
    Version,
    /// `verbosity`
    Verbosity { reply: Reply },
    /// `quit`
    Quit,
    /// `mn`
    MetaNoop,
    /// `mg`, `ms`, `md`, `ma`, `me`
    Meta(meta::Request<'a>),
}

impl Command<'_> {
    /// Returns the client's wish for a reply.
    pub fn reply(&self) -> Reply {
        match self {
            Self::Store(store) => store.reply,
            Self::Delete { reply, .. }
            | Self::Adjust { reply, .. }
            | Self::Touch { reply, .. }
            | Self::FlushAll { reply, .. }
            | Self::Admin { reply, .. }
            | Self::Verbosity { reply } => *reply,
            _ => Reply::Wanted,
        }
    }
}

/// A command that is answered with an error and not executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused<'a> {
    /// Line of the reply, without its line end.
    pub line: &'static str,
    /// The client's wish for this reply.
    pub reply: Reply,
    /// Reason for closing the connection without a reply, if it must close.
    pub fatal: Option<&'static str>,
    /// Key whose old value must be removed, because its new value was too large.
    pub outdated: Option<&'a [u8]>,
}

impl Refused<'_> {
    const fn new(line: &'static str) -> Self {
        Self { line, reply: Reply::Wanted, fatal: None, outdated: None }
    }

    /// Closes the connection without a reply, as memcached does.
    const fn fatal(why: &'static str) -> Self {
        Self { line: "", reply: Reply::Unwanted, fatal: Some(why), outdated: None }
    }
}

impl From<&'static str> for Refused<'_> {
    fn from(line: &'static str) -> Self {
        Self::new(line)
    }
}

/// The next item of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step<'a> {
    /// A whole command.
    Command(Command<'a>),
    /// An invalid command.
    Refused(Refused<'a>),
    /// The command is incomplete.
    NeedMore {
        /// Bytes that are missing for certain; 0 if that is unknown.
        hint: usize,
    },
}

/// Finds commands, one at a time.
#[derive(Clone, Debug, Default)]
pub struct Parser {
    /// Bytes of a discarded value that are still to be skipped.
    skip: usize,
    /// Bytes at the front of the next input that are known to have no LF.
    searched: usize,
    /// Minimal length of the next input; a shorter one is not examined.
    needed: usize,
}

/// Result of parsing a line.
enum Line<'a> {
    Command(Command<'a>),
    /// A value follows.
    Store(Announced<'a>),
}

/// A value that follows its line.
#[derive(Clone, Copy)]
struct Announced<'a> {
    len: usize,
    kind: Kind<'a>,
}

#[derive(Clone, Copy)]
enum Kind<'a> {
    Text(Store<'a>),
    /// A meta command; its verb does not have the value yet.
    Meta(meta::Request<'a>),
    /// The line is refused, and the value is skipped.
    Nothing(Refused<'a>),
}

impl Parser {
    /// Parses the command at the front of `input`, and returns how many bytes of it are consumed. The other bytes
    /// must be at the front of the next input.
    #[inline]
    pub fn next<'a>(&mut self, input: &'a [u8], limits: &Limits) -> (Step<'a>, usize) {
        if self.skip > 0 {
            return self.next_behind_skipped(input, limits);
        }
        if input.len() < self.needed {
            return (Step::NeedMore { hint: self.needed - input.len() }, 0);
        }
        self.needed = 0;
        // A step is large, so it is returned unchanged, without a copy.
        self.command(input, limits)
    }

    /// Does what [`Self::next`] does, inside a discarded value.
    #[cold]
    fn next_behind_skipped<'a>(&mut self, input: &'a [u8], limits: &Limits) -> (Step<'a>, usize) {
        let skipped = self.skip.min(input.len());
        self.skip -= skipped;
        if self.skip > 0 {
            return (Step::NeedMore { hint: 0 }, skipped);
        }
        let (step, len) = self.next(&input[skipped..], limits);
        (step, skipped + len)
    }

    #[inline]
    fn command<'a>(&mut self, input: &'a [u8], limits: &Limits) -> (Step<'a>, usize) {
        let Some(end) = memchr(b'\n', &input[self.searched..]) else {
            return self.unfinished_line(input, limits);
        };
        let end = self.searched + end;
        let line = &input[..end];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let after_line = end + 1;
        // The usual command is made where it is returned: a step is large.
        if let Some(keys) = line.strip_prefix(b"get ").and_then(|rest| Keys::parse(rest).ok())
            && keys.first.is_some()
        {
            self.searched = 0;
            let get = Command::Get { keys, with_version: false, touch: None };
            return (Step::Command(get), after_line);
        }
        let announced = match parse_line(line) {
            Ok(Line::Command(command)) => {
                self.searched = 0;
                return (Step::Command(command), after_line);
            }
            Err(refused) => {
                self.searched = 0;
                return (Step::Refused(refused), after_line);
            }
            Ok(Line::Store(announced)) => announced,
        };
        self.value(input, after_line, &announced, limits)
    }

    /// Finishes a command with a value that begins at `at`.
    fn value<'a>(
        &mut self,
        input: &'a [u8],
        at: usize,
        announced: &Announced<'a>,
        limits: &Limits,
    ) -> (Step<'a>, usize) {
        let Announced { len, ref kind } = *announced;
        let refused = match *kind {
            Kind::Nothing(refused) => Some(refused),
            Kind::Text(Store { key, reply, mode, .. }) if len > limits.value_len_max => {
                let outdated = (mode == Mode::Set).then_some(key);
                Some(Refused { reply, outdated, ..Refused::new(TOO_LARGE) })
            }
            Kind::Meta(ref request) if len > limits.value_len_max => {
                let outdated = Some(request.key_text);
                Some(Refused { outdated, ..Refused::new(TOO_LARGE) })
            }
            _ => None,
        };
        if let Some(refused) = refused {
            self.searched = 0;
            self.skip = len + 2;
            return (Step::Refused(refused), at);
        }
        let end = at + len + 2;
        if input.len() < end {
            self.searched = at - 1;
            self.needed = end;
            return (Step::NeedMore { hint: end - input.len() }, 0);
        }
        self.searched = 0;
        let data = &input[at..at + len];
        if &input[at + len..end] != b"\r\n" {
            let reply = if let Kind::Text(store) = kind { store.reply } else { Reply::Wanted };
            return (Step::Refused(Refused { reply, ..Refused::new(BAD_CHUNK) }), end);
        }
        let step = match *kind {
            Kind::Text(store) => Step::Command(Command::Store(Store { data, ..store })),
            Kind::Meta(request) => {
                Step::Command(Command::Meta(meta::Request { verb: Verb::Set(data), ..request }))
            }
            Kind::Nothing(refused) => Step::Refused(refused),
        };
        (step, end)
    }

    /// Handles an input without LF.
    fn unfinished_line<'a>(&mut self, input: &'a [u8], limits: &Limits) -> (Step<'a>, usize) {
        let reads_keys = [&b"get "[..], b"gets ", b"gat ", b"gats "];
        let reads_keys = reads_keys.iter().any(|name| input.starts_with(name));
        let max = if reads_keys { limits.keys_line_len_max } else { LINE_LEN_MAX };
        if input.len() > max {
            self.searched = 0;
            return (Step::Refused(Refused::fatal(ENDLESS_LINE)), input.len());
        }
        self.searched = input.len();
        (Step::NeedMore { hint: 0 }, 0)
    }
}

fn parse_line(line: &[u8]) -> Result<Line<'_>, Refused<'_>> {
    let (name, rest) = first_word(line);
    match name {
        b"get" | b"bget" => get(rest, false),
        b"gets" => get(rest, true),
        b"mg" => meta_command(Verb::Get, rest),
        b"ms" => meta_set(rest),
        b"set" => store(Mode::Set, rest),
        b"add" => store(Mode::Add, rest),
        b"replace" => store(Mode::Replace, rest),
        b"append" => store(Mode::Append, rest),
        b"prepend" => store(Mode::Prepend, rest),
        b"cas" => store(Mode::Cas(0), rest),
        b"delete" => delete(rest),
        b"incr" => adjust(true, rest),
        b"decr" => adjust(false, rest),
        b"touch" => touch(rest),
        b"gat" => get_and_touch(rest, false),
        b"gats" => get_and_touch(rest, true),
        b"md" => meta_command(Verb::Delete, rest),
        b"ma" => meta_command(Verb::Arithmetic, rest),
        b"me" => meta_command(Verb::Debug, rest),
        b"mn" => Ok(Line::Command(Command::MetaNoop)),
        b"version" => Ok(Line::Command(Command::Version)),
        b"quit" => Ok(Line::Command(Command::Quit)),
        b"stats" => Ok(Line::Command(Command::Stats { what: rest })),
        b"flush_all" => flush_all(rest),
        b"verbosity" => verbosity(rest),
        b"slabs" | b"lru" | b"lru_crawler" | b"cache_memlimit" | b"watch" | b"refresh_certs" => {
            Ok(Line::Command(Command::Admin { name, rest, reply: reply(last_word(rest)) }))
        }
        b"shutdown" => Err(Refused::new("SERVER_ERROR: shutdown not enabled")),
        // Headers and a body follow, which may contain any bytes.
        _ if last_word(rest).starts_with(b"HTTP/") => Err(Refused::fatal("a request of HTTP")),
        _ => Err(Refused::new(UNKNOWN)),
    }
}

fn last_word(line: &[u8]) -> &[u8] {
    words(line).last().unwrap_or_default()
}

/// Returns the first `N` words of a line; missing ones are empty.
fn split<const N: usize>(line: &[u8]) -> [&[u8]; N] {
    let mut words = words(line);
    std::array::from_fn(|_| words.next().unwrap_or_default())
}

fn reply(word: &[u8]) -> Reply {
    if word == b"noreply" { Reply::Unwanted } else { Reply::Wanted }
}

fn check_key(key: &[u8]) -> Result<(), &'static str> {
    if key.len() > KEY_LEN_MAX { Err(BAD_FORMAT) } else { Ok(()) }
}

#[inline]
fn get(rest: &[u8], with_version: bool) -> Result<Line<'_>, Refused<'_>> {
    let keys = Keys::parse(rest)?;
    if keys.first.is_none() {
        return Err(Refused::new(BAD_FORMAT));
    }
    Ok(Line::Command(Command::Get { keys, with_version, touch: None }))
}

fn get_and_touch(rest: &[u8], with_version: bool) -> Result<Line<'_>, Refused<'_>> {
    let (exptime, keys) = first_word(rest);
    if first_word(keys).0.is_empty() {
        return Err(Refused::new(BAD_FORMAT));
    }
    let touch = Some(signed(exptime).ok_or(BAD_EXPTIME)?);
    let keys = Keys::parse(keys)?;
    Ok(Line::Command(Command::Get { keys, with_version, touch }))
}

fn store(mode: Mode, rest: &[u8]) -> Result<Line<'_>, Refused<'_>> {
    let [key, flags, exptime, len, version] = split(rest);
    let is_cas = matches!(mode, Mode::Cas(_));
    let reply = reply(last_word(rest));
    // A line that is too short has no length, so nothing can be skipped behind it.
    let bad = Refused { reply, ..Refused::new(BAD_FORMAT) };
    let len = unsigned(len).filter(|&len| len <= DATA_LEN_MAX).ok_or(bad)? as usize;
    let version = if is_cas { unsigned(version) } else { Some(0) };
    let kind = match (parse_flags(flags), signed(exptime), version, check_key(key)) {
        (Some(flags), Some(exptime), Some(version), Ok(())) => {
            let mode = if is_cas { Mode::Cas(version) } else { mode };
            Kind::Text(Store { mode, key, flags, exptime, data: b"", reply })
        }
        _ => Kind::Nothing(bad),
    };
    Ok(Line::Store(Announced { len, kind }))
}

/// Returns the key of a command, its argument, and whether a reply is wanted. Ignores further words.
fn key_and_argument(rest: &[u8]) -> Result<(&[u8], &[u8], Reply), Refused<'_>> {
    let [key, argument] = split(rest);
    let reply = reply(last_word(rest));
    if argument.is_empty() {
        return Err(Refused { reply, ..Refused::new(BAD_FORMAT) });
    }
    check_key(key)?;
    Ok((key, argument, reply))
}

fn delete(rest: &[u8]) -> Result<Line<'_>, Refused<'_>> {
    let [key, second, third, fourth] = split(rest);
    // Reply with an error to a client that names several keys: it must not take the reply for success.
    let reply = match (second, third, fourth) {
        (b"" | b"0", b"", _) => Reply::Wanted,
        (b"noreply", b"", _) | (b"0", b"noreply", b"") => Reply::Unwanted,
        _ => {
            let line = "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]";
            return Err(Refused { reply: reply(last_word(rest)), ..Refused::new(line) });
        }
    };
    if key.is_empty() {
        return Err(Refused::new(BAD_FORMAT));
    }
    check_key(key)?;
    Ok(Line::Command(Command::Delete { key, reply }))
}

fn adjust(up: bool, rest: &[u8]) -> Result<Line<'_>, Refused<'_>> {
    let (key, delta, reply) = key_and_argument(rest)?;
    let delta = unsigned(delta).ok_or(Refused { reply, ..Refused::new(BAD_DELTA) })?;
    Ok(Line::Command(Command::Adjust { key, up, delta, reply }))
}

fn touch(rest: &[u8]) -> Result<Line<'_>, Refused<'_>> {
    let (key, exptime, reply) = key_and_argument(rest)?;
    let exptime = signed(exptime).ok_or(Refused { reply, ..Refused::new(BAD_EXPTIME) })?;
    Ok(Line::Command(Command::Touch { key, exptime, reply }))
}

fn flush_all(rest: &[u8]) -> Result<Line<'_>, Refused<'_>> {
    let [first, second] = split(rest);
    let reply = reply(last_word(rest));
    // `noreply` is no delay.
    let has_delay = !second.is_empty() || !first.is_empty() && reply == Reply::Wanted;
    let delay = if has_delay { signed(first) } else { Some(0) };
    let delay = delay.ok_or(Refused { reply, ..Refused::new(BAD_EXPTIME) })?;
    Ok(Line::Command(Command::FlushAll { delay, reply }))
}

fn verbosity(rest: &[u8]) -> Result<Line<'_>, Refused<'_>> {
    let reply = reply(last_word(rest));
    match unsigned(first_word(rest).0) {
        Some(_) => Ok(Line::Command(Command::Verbosity { reply })),
        None => Err(Refused { reply, ..Refused::new(BAD_FORMAT) }),
    }
}

#[inline]
fn meta_command<'a>(verb: Verb<'a>, rest: &'a [u8]) -> Result<Line<'a>, Refused<'a>> {
    let (key, flags) = first_word(rest);
    if key.is_empty() {
        return Err(Refused::new(BAD_FORMAT));
    }
    let request = meta::parse(verb, key, flags)?;
    Ok(Line::Command(Command::Meta(request)))
}

fn meta_set(rest: &[u8]) -> Result<Line<'_>, Refused<'_>> {
    let (key, rest) = first_word(rest);
    let (len, flags) = first_word(rest);
    let len = unsigned(len).filter(|&len| len <= DATA_LEN_MAX).ok_or(BAD_FORMAT)? as usize;
    // An error in the flags is found before the value has arrived.
    let kind = match meta::parse(Verb::Set(b""), key, flags) {
        Ok(request) => Kind::Meta(request),
        Err(line) => Kind::Nothing(Refused::new(line)),
    };
    Ok(Line::Store(Announced { len, kind }))
}

/// Appends the line that precedes a value.
#[inline]
pub fn value_head(key: &[u8], flags: u32, len: usize, version: Option<u64>, out: &mut Vec<u8>) {
    out.extend_from_slice(b"VALUE ");
    out.extend_from_slice(key);
    if flags == 0 {
        out.extend_from_slice(b" 0 ");
    } else {
        out.push(b' ');
        number(flags.into(), out);
        out.push(b' ');
    }
    number(len as u64, out);
    if let Some(version) = version {
        out.push(b' ');
        number(version, out);
    }
    out.extend_from_slice(b"\r\n");
}

/// Appends a number.
#[inline]
pub fn number(number: u64, out: &mut Vec<u8>) {
    if number < 10 {
        out.push(b'0' + number as u8);
    } else {
        out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(input: &[u8]) -> Vec<Step<'_>> {
        let (mut parser, mut steps, mut at) = (Parser::default(), Vec::new(), 0);
        loop {
            let (step, len) = parser.next(&input[at..], &Limits::default());
            at += len;
            steps.push(step);
            if matches!(step, Step::NeedMore { .. }) {
                return steps;
            }
        }
    }

    fn refusals(input: &[u8]) -> Vec<&'static str> {
        let line = |step: &Step<'_>| match step {
            Step::Refused(refused) => Some(refused.line),
            _ => None,
        };
        all(input).iter().filter_map(line).collect()
    }

    #[test]
    fn commands_are_read() {
        let steps = all(b"set k 5 60 3 noreply\r\na\nb\r\nget k other\nquit\r\n");
        let store = Store {
            mode: Mode::Set,
            key: b"k",
            flags: 5,
            exptime: 60,
            data: b"a\nb",
            reply: Reply::Unwanted,
        };
        assert_eq!(steps[0], Step::Command(Command::Store(store)));
        let Step::Command(Command::Get { keys, with_version: false, touch: None }) = steps[1]
        else {
            panic!("{:?}", steps[1]);
        };
        assert_eq!(keys.iter().collect::<Vec<_>>(), [&b"k"[..], b"other"]);
        assert_eq!(steps[2..], [Step::Command(Command::Quit), Step::NeedMore { hint: 0 }]);
    }

    #[test]
    fn a_value_is_never_taken_for_commands() {
        let long = [b"set ".as_slice(), &[b'k'; 251], b" 0 0 9\r\nflush_all\r\n"].concat();
        assert_eq!(refusals(&long), [BAD_FORMAT]);
        assert_eq!(refusals(b"set k x 0 9\r\nflush_all\r\n"), [BAD_FORMAT]);
        assert_eq!(refusals(b"cas k 0 0 9 x\r\nflush_all\r\n"), [BAD_FORMAT]);
        assert_eq!(refusals(b"ms k 9 !\r\nflush_all\r\n"), ["CLIENT_ERROR invalid flag"]);
        let large = Limits { value_len_max: 8, ..Limits::default() };
        let mut parser = Parser::default();
        let input = b"set k 0 0 9\r\nflush_all\r\nmn\r\n";
        let (step, len) = parser.next(input, &large);
        let Step::Refused(refused) = step else { panic!("{step:?}") };
        assert_eq!((refused.line, refused.outdated), (TOO_LARGE, Some(&b"k"[..])));
        let (step, _) = parser.next(&input[len..], &large);
        assert_eq!(step, Step::Command(Command::MetaNoop));
    }

    #[test]
    fn the_value_of_a_meta_command_may_come_in_pieces() {
        let input = b"ms key 3 T5 c\r\nabc\r\n";
        for cut in 0..input.len() {
            let mut parser = Parser::default();
            let (step, consumed) = parser.next(&input[..cut], &Limits::default());
            assert!(matches!(step, Step::NeedMore { .. }), "{cut}");
            assert_eq!(consumed, 0);
            let (step, consumed) = parser.next(input, &Limits::default());
            let Step::Command(Command::Meta(request)) = step else { panic!("{step:?}") };
            assert_eq!((request.verb, request.key_text), (Verb::Set(b"abc"), &b"key"[..]));
            assert_eq!((request.options.ttl, request.options.version), (Some(5), true));
            assert_eq!(consumed, input.len());
        }
    }

    #[test]
    fn the_first_key_is_among_all_keys() {
        for (input, expected) in [
            ("get  a\r\n", &["a"][..]),
            ("gets a  b c \r\n", &["a", "b", "c"]),
            ("gat 5 a b\r\n", &["a", "b"]),
        ] {
            let Step::Command(Command::Get { keys, .. }) = all(input.as_bytes())[0] else {
                panic!("{input}")
            };
            let keys: Vec<_> = keys.iter().map(|key| str::from_utf8(key).expect("text")).collect();
            assert_eq!(keys, expected, "{input}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (input, line) in [
            ("\r\n", UNKNOWN),
            ("GET k\r\n", UNKNOWN),
            ("get\r\n", BAD_FORMAT),
            ("gat 0\r\n", BAD_FORMAT),
            ("gat 0x k\r\n", BAD_EXPTIME),
            ("set k 0 0\r\n", BAD_FORMAT),
            ("set k 0 0 -1\r\n", BAD_FORMAT),
            ("set k 0 0 99999999999999999999\r\n", BAD_FORMAT),
            ("set k 0 0 2147483647\r\n", BAD_FORMAT),
            ("set k 0 0 2\r\nabc\r\n", BAD_CHUNK),
            ("incr k x\r\n", BAD_DELTA),
            ("incr k -1\r\n", BAD_DELTA),
            ("touch k x\r\n", BAD_EXPTIME),
            ("flush_all x\r\n", BAD_EXPTIME),
            ("delete\r\n", BAD_FORMAT),
            ("incr k\r\n", BAD_FORMAT),
            ("touch k\r\n", BAD_FORMAT),
            ("verbosity\r\n", BAD_FORMAT),
            ("mg\r\n", BAD_FORMAT),
            ("ms k\r\n", BAD_FORMAT),
        ] {
            assert_eq!(refusals(input.as_bytes()).first(), Some(&line), "{input:?}");
        }
    }

    #[test]
    fn a_line_without_end_is_not_kept_for_ever() {
        let mut parser = Parser::default();
        let line = vec![b'x'; LINE_LEN_MAX];
        assert_eq!(parser.next(&line, &Limits::default()), (Step::NeedMore { hint: 0 }, 0));
        let line = vec![b'x'; LINE_LEN_MAX + 1];
        let (step, _) = parser.next(&line, &Limits::default());
        assert!(matches!(
            step,
            Step::Refused(Refused { fatal: Some(_), reply: Reply::Unwanted, .. })
        ));
        let keys = [b"get ".as_slice(), &b"key ".repeat(10_000)].concat();
        assert_eq!(parser.next(&keys, &Limits::default()), (Step::NeedMore { hint: 0 }, 0));
        let limits = Limits { keys_line_len_max: LINE_LEN_MAX, ..Limits::default() };
        let (step, _) = Parser::default().next(&keys, &limits);
        assert!(matches!(step, Step::Refused(Refused { fatal: Some(_), .. })));
    }

    #[test]
    fn a_request_of_http_ends_the_connection() {
        for input in ["GET / HTTP/1.1\r\n", "POST /x HTTP/1.0\r\n", "OPTIONS * HTTP/1.1\n"] {
            let Step::Refused(refused) = all(input.as_bytes())[0] else { panic!("{input}") };
            assert_eq!(
                (refused.fatal, refused.reply),
                (Some("a request of HTTP"), Reply::Unwanted)
            );
        }
        // A command of memcached stays one, whatever follows.
        assert!(matches!(all(b"get / HTTP/1.1\r\n")[0], Step::Command(Command::Get { .. })));
        assert_eq!(refusals(b"Host: x\r\n"), [UNKNOWN]);
    }

    #[test]
    fn heads_are_written() {
        let mut out = Vec::new();
        value_head(b"k", 0, 10, None, &mut out);
        value_head(b"k", u32::MAX, 0, Some(u64::MAX), &mut out);
        assert_eq!(out, b"VALUE k 0 10\r\nVALUE k 4294967295 0 18446744073709551615\r\n");
    }
}
