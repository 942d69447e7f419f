//! Key arguments of commands.

use tierce_wire::number::parse_i64;
use tierce_wire::resp::Args;

/// Options with arguments, and the number of these.
pub type Options = &'static [(&'static str, usize)];

/// The way the keys of a run are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeySearch {
    /// The keys begin at `first`.
    Index,
    /// Like `Index`, but there is no key if this word is among the options from the given index on.
    IndexUnless(&'static str, Options, i16),
    /// The argument at `first` gives their number, and they follow it, every `step` arguments.
    Count,
    /// The key follows this word, one of the options from `first` on. Arguments of other options may be equal to the
    /// word.
    Word(&'static str, Options),
    /// Like `Word`, but COMMAND tells clients to use COMMAND GETKEYS.
    Option(&'static str, Options),
    /// The names of the keys are in the data, not in the call. None can be found beforehand.
    Unknown,
    /// The first half of the arguments after this word, the last of the options from 1 on. COMMAND tells clients to
    /// search it from `first` on.
    FirstHalf(&'static str, Options),
    /// All arguments after this word, the last of the options from `first` on. COMMAND tells clients to search it from
    /// the end on.
    Rest(&'static str, Options),
}

#[cfg(test)]
impl KeySearch {
    /// Returns true if the keys are found by searching for words.
    pub const fn goes_by_words(self) -> bool {
        !matches!(self, Self::Index | Self::Count | Self::Unknown)
    }
}

/// One run of key arguments: from `first`, every `step`, to `last` (negative: from the end).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeySpec {
    /// The way they are found.
    pub search: KeySearch,
    /// Index of the first key, or as `search` defines it; the command's name has index 0.
    pub first: i16,
    /// Index of the last key; -1 is the last argument.
    pub last: i16,
    /// Distance between keys.
    pub step: i16,
    /// Use of these keys by the command.
    pub flags: KeyFlags,
    /// Reason for the flags, if it is not obvious.
    pub note: Option<&'static str>,
}

/// Use of a key by a command, in the words of `COMMAND INFO`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyFlags(pub &'static [&'static str]);

impl KeyFlags {
    /// Reads the value and returns it, or data made of it.
    pub const READ: Self = Self(&["RO", "access"]);
    /// Looks at the key but returns no content of the value.
    pub const LOOK: Self = Self(&["RO"]);
    /// Changes the existing value.
    pub const UPDATE: Self = Self(&["RW", "update"]);
    /// Changes the existing value and returns content.
    pub const READ_UPDATE: Self = Self(&["RW", "access", "update"]);
    /// Like [`Self::READ_UPDATE`], but the exact access depends on options.
    pub const VARIABLE: Self = Self(&["RW", "access", "update", "variable_flags"]);
    /// Overwrites any existing value.
    pub const OVERWRITE: Self = Self(&["OW", "update"]);
    /// Creates a key that was absent.
    pub const INSERT: Self = Self(&["OW", "insert"]);
    /// Removes a part of the existing value.
    pub const SHRINK: Self = Self(&["RW", "delete"]);
    /// Removes the key without returning content.
    pub const REMOVE: Self = Self(&["RM", "delete"]);
    /// Returns content and removes the key.
    pub const READ_REMOVE: Self = Self(&["RW", "access", "delete"]);
    /// Removes the key; reads the value if there is a condition on it.
    pub const VARIABLE_REMOVE: Self = Self(&["RW", "delete", "variable_flags"]);
    /// Is not a key.
    pub const NOT_KEY: Self = Self(&["not_key"]);
}

impl KeyFlags {
    /// Returns true if the flags depend on the arguments.
    pub fn is_variable(self) -> bool {
        matches!(self, Self::VARIABLE | Self::VARIABLE_REMOVE)
    }

    /// Returns the flags for one call of the command `name`. Only those that are variable depend on its arguments.
    pub fn of_call(self, name: &str, args: Args<'_>) -> Self {
        let says = |words: &[&str], from: usize| {
            let is_one =
                |arg: &[u8]| words.iter().any(|word| arg.eq_ignore_ascii_case(word.as_bytes()));
            args.iter().skip(from).any(is_one)
        };
        match self {
            Self::VARIABLE if name == "bitfield" => {
                if says(&["set", "incrby"], 2) {
                    Self::READ_UPDATE
                } else {
                    Self::READ
                }
            }
            // SET reads the old value to return it, or to compare it.
            Self::VARIABLE if says(&["get", "ifeq", "ifne", "ifdeq", "ifdne"], 3) => {
                Self::READ_UPDATE
            }
            Self::VARIABLE => Self::OVERWRITE,
            // DELEX with a condition.
            Self::VARIABLE_REMOVE if args.len() > 2 => Self::READ_REMOVE,
            Self::VARIABLE_REMOVE => Self::REMOVE,
            flags => flags,
        }
    }
}

impl KeyFlags {
    /// Returns true if the command needs the value to do its work. It does not if it overwrites the value, or removes
    /// it unread.
    pub fn needs_value(self) -> bool {
        !matches!(self.0.first(), Some(&"OW" | &"RM"))
    }
}

impl KeySpec {
    /// A single key at `index`.
    pub const fn at(index: i16, flags: KeyFlags) -> Self {
        Self { search: KeySearch::Index, first: index, last: index, step: 1, flags, note: None }
    }

    /// Keys after the argument at `index`, which is their number.
    pub const fn counted(index: i16, flags: KeyFlags) -> Self {
        Self { search: KeySearch::Count, ..Self::at(index, flags) }
    }

    /// A single key after `word`, which is one of the options from `index` on, like `others`.
    pub const fn behind(word: &'static str, others: Options, index: i16, flags: KeyFlags) -> Self {
        Self { search: KeySearch::Word(word, others), ..Self::at(index, flags) }
    }

    /// Like [`Self::behind`], but COMMAND tells clients to use COMMAND GETKEYS.
    pub const fn option(word: &'static str, others: Options, index: i16, flags: KeyFlags) -> Self {
        Self { search: KeySearch::Option(word, others), ..Self::at(index, flags) }
    }

    /// Keys that are not among the arguments.
    pub const fn unknown(flags: KeyFlags) -> Self {
        Self { search: KeySearch::Unknown, ..Self::at(0, flags) }
    }

    /// Keys after `word`, the first half of the arguments there. The word ends the options; COMMAND tells clients to
    /// search it from `index` on.
    pub const fn first_half_behind(
        word: &'static str,
        others: Options,
        index: i16,
        flags: KeyFlags,
    ) -> Self {
        let (search, last) = (KeySearch::FirstHalf(word, others), -1);
        Self { search, first: index, last, step: 1, flags, note: None }
    }

    /// Keys after `word`, all arguments there. The word ends the options from `index` on.
    pub const fn rest_behind(
        word: &'static str,
        others: Options,
        index: i16,
        flags: KeyFlags,
    ) -> Self {
        let (search, last) = (KeySearch::Rest(word, others), -1);
        Self { search, first: index, last, step: 1, flags, note: None }
    }

    /// Leaves the key out if `word` is among the options from `index` on.
    pub const fn unless_word(self, word: &'static str, others: Options, index: i16) -> Self {
        Self { search: KeySearch::IndexUnless(word, others, index), ..self }
    }

    /// Keys from argument 1 to the last one, every `step` arguments.
    pub const fn all(step: i16, flags: KeyFlags) -> Self {
        Self { search: KeySearch::Index, first: 1, last: -1, step, flags, note: None }
    }

    /// Leaves out the last argument, which is something else.
    pub const fn but_last(self) -> Self {
        Self { last: self.last - 1, ..self }
    }

    /// Adds a reason for the flags.
    pub const fn note(self, note: &'static str) -> Self {
        Self { note: Some(note), ..self }
    }

    /// Returns true if COMMAND reports fixed indexes.
    pub const fn is_at_index(&self) -> bool {
        matches!(self.search, KeySearch::Index | KeySearch::IndexUnless(..))
    }

    /// Returns the index of the first key in most calls, as a guess.
    #[inline]
    pub const fn first_guess(&self) -> usize {
        self.first as usize + !self.is_at_index() as usize
    }

    /// Returns the indexes of the keys in a call; the name has index 0. Returns none if the call gives a number of keys
    /// that exceeds its arguments.
    pub fn indexes(self, call: Args<'_>) -> impl Iterator<Item = usize> {
        let (argc, first) = (call.len(), self.first as usize);
        let range = match self.search {
            KeySearch::Index => {
                let last = if self.last < 0 {
                    argc as isize + self.last as isize
                } else {
                    self.last.into()
                };
                first..(last + 1).clamp(0, argc as isize) as usize
            }
            KeySearch::Count => {
                let count = call.get(first).and_then(parse_i64).unwrap_or(0);
                let len = usize::try_from(count)
                    .ok()
                    .and_then(|count| count.checked_mul(self.step as usize));
                let end = len.and_then(|len| (first + 1).checked_add(len));
                first + 1..end.filter(|end| *end <= argc).unwrap_or(0)
            }
            KeySearch::IndexUnless(word, others, from) => {
                match option_index(call, &mut { from as usize }, word, others) {
                    None if first < argc => first..first + 1,
                    _ => 0..0,
                }
            }
            KeySearch::Rest(word, others) => {
                let place = option_index(call, &mut { first }, word, others);
                place.map_or(0..0, |place| place + 1..argc)
            }
            KeySearch::Unknown => 0..0,
            KeySearch::Word(word, others) | KeySearch::Option(word, others) => {
                let mut at = first;
                let mut places = std::iter::from_fn(|| option_index(call, &mut at, word, others));
                places.by_ref().last().map_or(0..0, |at| at + 1..at + 2)
            }
            KeySearch::FirstHalf(word, others) => {
                let place = option_index(call, &mut 1, word, others).unwrap_or(argc - 1);
                place + 1..place + 1 + (argc - place - 1) / 2
            }
        };
        range.step_by(self.step as usize)
    }
}

/// Returns the position of the next option `word` with an argument, from `at` on, and moves `at` after that argument.
fn option_index(
    call: Args<'_>,
    at: &mut usize,
    word: &str,
    others: &[(&str, usize)],
) -> Option<usize> {
    while *at + 1 < call.len() {
        let here = *at;
        let is = |name: &str| call[here].eq_ignore_ascii_case(name.as_bytes());
        if is(word) {
            *at += 2;
            return Some(here);
        }
        let arguments = others.iter().find(|(name, _)| is(name)).map_or(0, |(_, count)| *count);
        *at += 1 + arguments;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierce_wire::resp::OwnedArgs;

    #[test]
    fn indexes_follow_first_last_and_step() {
        let all = |spec: KeySpec, call: &str| {
            let mut args = OwnedArgs::new();
            call.split(' ').for_each(|arg| args.push(arg.as_bytes()).expect("a short call"));
            spec.indexes(args.as_args()).collect::<Vec<_>>()
        };
        assert_eq!(all(KeySpec::at(1, KeyFlags::READ), "c k"), [1]);
        assert_eq!(all(KeySpec::at(2, KeyFlags::READ), "c k"), [] as [usize; 0]);
        assert_eq!(all(KeySpec::all(1, KeyFlags::READ), "c k k k"), [1, 2, 3]);
        assert_eq!(all(KeySpec::all(2, KeyFlags::OVERWRITE), "c k v k v"), [1, 3]);
        let counted = KeySpec::counted(1, KeyFlags::READ);
        assert_eq!(all(counted, "c 2 k k more"), [2, 3]);
        for wrong in ["c", "c 3 k k", "c x k", "c -1 k", "c 9223372036854775807 k"] {
            assert_eq!(all(counted, wrong), [] as [usize; 0]);
        }
        let pairs = KeySpec { step: 2, ..KeySpec::counted(1, KeyFlags::OVERWRITE) };
        assert_eq!(all(pairs, "c 2 k v k v more"), [2, 4]);
        for wrong in ["c 2 k v k", "c 9223372036854775807 k v"] {
            assert_eq!(all(pairs, wrong), [] as [usize; 0]);
        }
        let half = KeySpec::first_half_behind("STREAMS", &[("GROUP", 2)], 4, KeyFlags::READ);
        assert_eq!(all(half, "c count 1 streams a b 0 0"), [4, 5]);
        assert_eq!(all(half, "c count 1 group streams c streams a 0"), [7]);
        assert_eq!(all(half, "c group g streams streams a b 0 0"), [5, 6]);
        assert_eq!(all(half, "c count 1"), [] as [usize; 0]);
        let rest = KeySpec::rest_behind("KEYS", &[("AUTH", 1)], 2, KeyFlags::READ);
        assert_eq!(all(rest, "c k copy keys keys b"), [4, 5]);
        assert_eq!(all(rest, "c k auth keys"), [] as [usize; 0]);
        assert_eq!(all(rest, "c k keys"), [] as [usize; 0]);
        let one = KeySpec::at(1, KeyFlags::READ).unless_word("KEYS", &[("AUTH", 1)], 2);
        assert_eq!(all(one, "c k auth keys"), [1]);
        assert_eq!(all(one, "c k copy keys a"), [] as [usize; 0]);
        let behind = KeySpec::behind("STORE", &[("STOREDIST", 1)], 2, KeyFlags::READ);
        assert_eq!(all(behind, "c store x store k"), [4]);
        assert_eq!(all(behind, "c k x store"), [] as [usize; 0]);
        assert_eq!(all(behind, "c k store store asc"), [3]);
        assert_eq!(all(behind, "c k storedist store asc"), [] as [usize; 0]);
        let option = KeySpec::option("STORE", &[("BY", 1), ("LIMIT", 2)], 2, KeyFlags::READ);
        assert_eq!(all(option, "c k store x by store store y"), [7]);
        assert_eq!(all(option, "c k limit 0 store store y"), [6]);
        assert_eq!(all(option, "c k by store x"), [] as [usize; 0]);
        assert_eq!(all(option, "c k alpha store"), [] as [usize; 0]);
        assert_eq!(all(KeySpec::unknown(KeyFlags::READ), "c k"), [] as [usize; 0]);
    }

    #[test]
    fn what_reads_the_old_value_needs_it() {
        for (flags, call, expected) in [
            (KeyFlags::VARIABLE, "set k get", KeyFlags::OVERWRITE),
            (KeyFlags::VARIABLE, "set k v ex 1", KeyFlags::OVERWRITE),
            (KeyFlags::VARIABLE, "set k v ex 1 GET", KeyFlags::READ_UPDATE),
            (KeyFlags::VARIABLE, "set k v IfDeq x", KeyFlags::READ_UPDATE),
            (KeyFlags::VARIABLE, "bitfield k get u8 0", KeyFlags::READ),
            (KeyFlags::VARIABLE, "bitfield k SET u8 0 1", KeyFlags::READ_UPDATE),
            (KeyFlags::VARIABLE_REMOVE, "delex k", KeyFlags::REMOVE),
            (KeyFlags::VARIABLE_REMOVE, "delex k ifne x", KeyFlags::READ_REMOVE),
            (KeyFlags::LOOK, "strlen k", KeyFlags::LOOK),
        ] {
            let mut args = OwnedArgs::new();
            call.split(' ').for_each(|arg| args.push(arg.as_bytes()).expect("a short call"));
            let name = call.split(' ').next().expect("a name");
            assert_eq!(flags.of_call(name, args.as_args()), expected, "{call}");
        }
    }
}
