//! The names under which requests are counted, and under which MONITOR and the slow log show them.
//!
//! A request of either protocol is counted and shown as its equivalent in the text protocol.

use std::borrow::Cow;

use tierce_wire::memcached::meta::{self, Verb};
use tierce_wire::memcached::text::{Command, Mode};
use tierce_wire::memcached::{binary, text};

use crate::acl::Permission;
use crate::command::{Operation, Operations};
use crate::front_ends::Equivalent;

/// Defines the enum and the names.
macro_rules! names {
    ($($name:ident = $text:literal,)*) => {
        /// Name of a request.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u16)]
        pub enum Name {
            $($name,)*
        }

        /// All names.
        pub const NAMES: &[&str] = &[$(concat!("memcached|", $text),)*];
    };
}

names! {
    Get = "get",
    Gets = "gets",
    Gat = "gat",
    Gats = "gats",
    Set = "set",
    Add = "add",
    Replace = "replace",
    Append = "append",
    Prepend = "prepend",
    Cas = "cas",
    Delete = "delete",
    Incr = "incr",
    Decr = "decr",
    Touch = "touch",
    MetaGet = "mg",
    MetaSet = "ms",
    MetaDelete = "md",
    MetaArithmetic = "ma",
    MetaDebug = "me",
    MetaNoop = "mn",
    Version = "version",
    Verbosity = "verbosity",
    Quit = "quit",
    FlushAll = "flush_all",
    Stats = "stats",
    Admin = "admin",
    Sasl = "sasl",
}

impl Name {
    #[inline]
    pub fn operation(self, operations: Operations) -> Operation {
        // The others access more than some keys.
        let is_brief = (self as u16) < Self::FlushAll as u16;
        operations.get(self as u16, is_brief)
    }

    fn text(self) -> &'static str {
        let (_, name) = NAMES[self as usize].split_once('|').expect("the protocol stands in front");
        name
    }
}

fn of_mode(mode: Mode) -> Name {
    match mode {
        Mode::Set => Name::Set,
        Mode::Add => Name::Add,
        Mode::Replace => Name::Replace,
        Mode::Append => Name::Append,
        Mode::Prepend => Name::Prepend,
        Mode::Cas(_) => Name::Cas,
    }
}

/// Returns the command whose right a request needs; `None` if every user may make it.
fn equivalent_of(name: Name) -> Option<Equivalent> {
    Some(match name {
        Name::Get | Name::Gets | Name::MetaGet | Name::MetaDebug => Equivalent::GET,
        Name::Gat | Name::Gats => Equivalent::new("getex", Permission::ALL),
        Name::Set | Name::Add | Name::Replace | Name::Cas | Name::MetaSet => Equivalent::SET,
        Name::Append | Name::Prepend => Equivalent::new("append", Permission::WRITE),
        Name::Delete | Name::MetaDelete => Equivalent::DEL,
        Name::Incr | Name::MetaArithmetic => Equivalent::new("incrby", Permission::ALL),
        Name::Decr => Equivalent::new("decrby", Permission::ALL),
        Name::Touch => Equivalent::new("expire", Permission::WRITE),
        Name::FlushAll => Equivalent::new("flushdb", Permission::NONE),
        Name::Stats => Equivalent::new("info", Permission::NONE),
        Name::Admin => Equivalent::new("config|set", Permission::NONE),
        Name::MetaNoop | Name::Version | Name::Verbosity | Name::Quit | Name::Sasl => return None,
    })
}

/// Returns the equivalent of a text command.
pub fn equivalent_of_command(command: &Command<'_>) -> Option<Equivalent> {
    match command {
        // It stores a missing value, or changes an expiry time.
        Command::Meta(request) if request.verb == Verb::Get => {
            let options = &request.options;
            let changes = options.vivify.is_some() || options.ttl.is_some();
            Some(if changes { Equivalent::new("getex", Permission::ALL) } else { Equivalent::GET })
        }
        Command::Admin { name: b"lru_crawler", .. } => {
            Some(Equivalent::new("scan", Permission::NONE))
        }
        Command::Stats { what } if what.starts_with(b"reset") => {
            Some(Equivalent::new("config|resetstat", Permission::NONE))
        }
        command => equivalent_of(of_command(command)),
    }
}

/// Returns the equivalent of a frame.
pub fn equivalent_of_frame(request: &binary::Request<'_>) -> Option<Equivalent> {
    match of_opcode(request.opcode)? {
        Name::Stats if request.key.starts_with(b"reset") => {
            Some(Equivalent::new("config|resetstat", Permission::NONE))
        }
        name => equivalent_of(name),
    }
}

/// Returns the name of a text command.
#[inline]
pub fn of_command(command: &Command<'_>) -> Name {
    match *command {
        Command::Get { with_version, touch, .. } => match (with_version, touch) {
            (false, None) => Name::Get,
            (true, None) => Name::Gets,
            (false, Some(_)) => Name::Gat,
            (true, Some(_)) => Name::Gats,
        },
        Command::Store(ref store) => of_mode(store.mode),
        Command::Delete { .. } => Name::Delete,
        Command::Adjust { up: true, .. } => Name::Incr,
        Command::Adjust { up: false, .. } => Name::Decr,
        Command::Touch { .. } => Name::Touch,
        Command::FlushAll { .. } => Name::FlushAll,
        Command::Stats { .. } => Name::Stats,
        Command::Admin { .. } => Name::Admin,
        Command::Version => Name::Version,
        Command::Verbosity { .. } => Name::Verbosity,
        Command::Quit => Name::Quit,
        Command::MetaNoop => Name::MetaNoop,
        Command::Meta(ref request) => match request.verb {
            Verb::Get => Name::MetaGet,
            Verb::Set(_) => Name::MetaSet,
            Verb::Delete => Name::MetaDelete,
            Verb::Arithmetic => Name::MetaArithmetic,
            Verb::Debug => Name::MetaDebug,
        },
    }
}

/// Returns the name of a frame with this code; `None` for an unknown one.
#[inline]
pub fn of_opcode(opcode: u8) -> Option<Name> {
    use binary::opcode as op;
    Some(match opcode {
        op::GET | op::GETQ | op::GETK | op::GETKQ => Name::Get,
        op::GAT | op::GATQ | op::GATK | op::GATKQ => Name::Gat,
        op::TOUCH => Name::Touch,
        op::SET | op::SETQ => Name::Set,
        op::ADD | op::ADDQ => Name::Add,
        op::REPLACE | op::REPLACEQ => Name::Replace,
        op::APPEND | op::APPENDQ => Name::Append,
        op::PREPEND | op::PREPENDQ => Name::Prepend,
        op::DELETE | op::DELETEQ => Name::Delete,
        op::INCREMENT | op::INCREMENTQ => Name::Incr,
        op::DECREMENT | op::DECREMENTQ => Name::Decr,
        op::FLUSH | op::FLUSHQ => Name::FlushAll,
        op::NOOP => Name::MetaNoop,
        op::VERSION => Name::Version,
        op::STAT => Name::Stats,
        op::QUIT | op::QUITQ => Name::Quit,
        op::SASL_LIST | op::SASL_AUTH | op::SASL_STEP => Name::Sasl,
        _ => return None,
    })
}

type Words<'a> = Vec<Cow<'a, [u8]>>;

fn number<'a>(number: impl ToString) -> Cow<'a, [u8]> {
    Cow::Owned(number.to_string().into_bytes())
}

/// Returns the words of a text command; none for an operator's command, which Redis' monitors do not show either.
pub fn words_of_command<'a>(command: &Command<'a>) -> Words<'a> {
    let mut words: Words<'a> = vec![of_command(command).text().as_bytes().into()];
    match *command {
        Command::Get { keys, touch, .. } => {
            words.extend(touch.map(number));
            words.extend(keys.iter().map(Cow::Borrowed));
        }
        Command::Store(text::Store { mode, key, flags, exptime, data, .. }) => {
            words.extend([key.into(), number(flags), number(exptime)]);
            if let Mode::Cas(version) = mode {
                words.push(number(version));
            }
            words.push(data.into());
        }
        Command::Delete { key, .. } => words.push(key.into()),
        Command::Adjust { key, delta, .. } => words.extend([key.into(), number(delta)]),
        Command::Touch { key, exptime, .. } => words.extend([key.into(), number(exptime)]),
        Command::FlushAll { delay, .. } => words.push(number(delay)),
        Command::Stats { what } => words.push(what.into()),
        Command::Meta(meta::Request { verb, key_text, flags, .. }) => {
            words.push(key_text.into());
            let flags = flags.split(|byte| *byte == b' ').filter(|flag| !flag.is_empty());
            words.extend(flags.map(Cow::Borrowed));
            if let Verb::Set(value) = verb {
                words.push(value.into());
            }
        }
        Command::Admin { .. } => words.clear(),
        Command::Version | Command::Verbosity { .. } | Command::Quit | Command::MetaNoop => {}
    }
    words
}

/// Returns the words of a frame; none if it deals with passwords.
pub fn words_of_frame<'a>(request: &binary::Request<'a>) -> Words<'a> {
    use binary::Operation as Op;
    let Some(name) = of_opcode(request.opcode) else { return Words::new() };
    if name == Name::Sasl {
        return Words::new();
    }
    let mut words: Words<'a> = vec![name.text().as_bytes().into()];
    words.extend((!request.key.is_empty()).then_some(Cow::Borrowed(request.key)));
    match request.operation() {
        Ok(Op::Get { touch: Some(expiry), .. } | Op::Touch { expiry }) => {
            words.push(number(expiry));
        }
        Ok(Op::Store { flags, expiry, .. }) => {
            words.extend([number(flags), number(expiry), request.value.into()]);
        }
        Ok(Op::Extend { .. }) => words.push(request.value.into()),
        Ok(Op::Adjust { delta, .. }) => words.push(number(delta)),
        Ok(Op::Flush { delay }) => words.push(number(delay)),
        _ => {}
    }
    words
}
