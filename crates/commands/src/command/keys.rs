//! Which arguments of a command are keys.

use tierce_wire::number::parse_i64;
use tierce_wire::resp::Args;

/// Options that have arguments, and how many.
pub type Options = &'static [(&'static str, usize)];

/// How the keys of a run are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeySearch {
    /// They stand from `first` on.
    Index,
    /// The argument at `first` gives their number, and they follow it.
    Count,
    /// The key stands behind this word, one of the options from `first` on. Arguments of other options may be
    /// called like the word.
    Word(&'static str, Options),
    /// The same. COMMAND says that clients have to ask (COMMAND GETKEYS).
    Option(&'static str, Options),
    /// The call does not say: their names are in the data. None can be found beforehand.
    Unknown,
    /// The first half of what stands behind this word, the last of the options from 1 on. Clients are told to
    /// look for it from `first` on.
    FirstHalf(&'static str, Options),
}

#[cfg(test)]
impl KeySearch {
    /// Whether the keys are found by looking for words.
    pub const fn goes_by_words(self) -> bool {
        matches!(self, Self::Word(..) | Self::Option(..) | Self::FirstHalf(..))
    }
}

/// One run of key arguments: from `first`, every `step`, to `last` (negative: from the end).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeySpec {
    /// How they are found.
    pub search: KeySearch,
    /// Index of the first key, or what `search` says; the command's name has index 0.
    pub first: i16,
    /// Index of the last key; -1 is the last argument.
    pub last: i16,
    /// Distance between keys.
    pub step: i16,
    /// What the command does with these keys.
    pub flags: KeyFlags,
    /// Why the flags are as they are, where that is not plain.
    pub note: Option<&'static str>,
}

/// What a command does with a key, in the words of `COMMAND INFO`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyFlags(pub &'static [&'static str]);

impl KeyFlags {
    /// Reads the value and returns it, or data made of it.
    pub const READ: Self = Self(&["RO", "access"]);
    /// Looks at the key but returns nothing of the value's content.
    pub const LOOK: Self = Self(&["RO"]);
    /// Changes what is there.
    pub const UPDATE: Self = Self(&["RW", "update"]);
    /// Changes what is there and returns content.
    pub const READ_UPDATE: Self = Self(&["RW", "access", "update"]);
    /// As [`Self::READ_UPDATE`], the exact access depending on options.
    pub const VARIABLE: Self = Self(&["RW", "access", "update", "variable_flags"]);
    /// Overwrites whatever is there.
    pub const OVERWRITE: Self = Self(&["OW", "update"]);
    /// Creates a key that was absent.
    pub const INSERT: Self = Self(&["OW", "insert"]);
    /// Removes a part of what is there.
    pub const SHRINK: Self = Self(&["RW", "delete"]);
    /// Removes the key without returning content.
    pub const REMOVE: Self = Self(&["RM", "delete"]);
    /// Returns content and removes the key.
    pub const READ_REMOVE: Self = Self(&["RW", "access", "delete"]);
    /// Is no key.
    pub const NOT_KEY: Self = Self(&["not_key"]);
}

impl KeyFlags {
    /// What a call of the command `name` does with the keys; only for [`Self::VARIABLE`] that depends on its arguments.
    pub fn of_call(self, name: &str, args: Args<'_>) -> Self {
        let says = |word: &str, from: usize| {
            args.iter().skip(from).any(|arg| arg.eq_ignore_ascii_case(word.as_bytes()))
        };
        match self {
            Self::VARIABLE if name == "bitfield" => {
                let writes = says("set", 2) || says("incrby", 2);
                if writes { Self::READ_UPDATE } else { Self::READ }
            }
            // SET reads the old value if it is asked to.
            Self::VARIABLE if says("get", 3) => Self::READ_UPDATE,
            Self::VARIABLE => Self::OVERWRITE,
            flags => flags,
        }
    }
}

impl KeyFlags {
    /// Whether the value has to be there before the command can do its work: not if it is overwritten or
    /// removed unread.
    pub fn needs_value(self) -> bool {
        !matches!(self.0.first(), Some(&"OW" | &"RM"))
    }
}

impl KeySpec {
    /// A single key at `index`.
    pub const fn at(index: i16, flags: KeyFlags) -> Self {
        Self { search: KeySearch::Index, first: index, last: index, step: 1, flags, note: None }
    }

    /// As many keys as the argument at `index` says, behind it.
    pub const fn counted(index: i16, flags: KeyFlags) -> Self {
        Self { search: KeySearch::Count, ..Self::at(index, flags) }
    }

    /// A single key behind `word`, which is one of the options from `index` on, like `others`.
    pub const fn behind(word: &'static str, others: Options, index: i16, flags: KeyFlags) -> Self {
        Self { search: KeySearch::Word(word, others), ..Self::at(index, flags) }
    }

    /// The same; COMMAND says that clients have to ask (COMMAND GETKEYS).
    pub const fn option(word: &'static str, others: Options, index: i16, flags: KeyFlags) -> Self {
        Self { search: KeySearch::Option(word, others), ..Self::at(index, flags) }
    }

    /// Keys that the arguments do not tell.
    pub const fn unknown(flags: KeyFlags) -> Self {
        Self { search: KeySearch::Unknown, ..Self::at(0, flags) }
    }

    /// As many keys behind `word`, which ends the options and which clients are to look for from `index` on,
    /// as other arguments follow.
    pub const fn first_half_behind(
        word: &'static str,
        others: Options,
        index: i16,
        flags: KeyFlags,
    ) -> Self {
        let (search, last) = (KeySearch::FirstHalf(word, others), -1);
        Self { search, first: index, last, step: 1, flags, note: None }
    }

    /// Keys from argument 1 to the last one, every `step` arguments.
    pub const fn all(step: i16, flags: KeyFlags) -> Self {
        Self { search: KeySearch::Index, first: 1, last: -1, step, flags, note: None }
    }

    /// Without the last argument, which is something else.
    pub const fn but_last(self) -> Self {
        Self { last: self.last - 1, ..self }
    }

    /// With a word on why the flags are as they are.
    pub const fn note(self, note: &'static str) -> Self {
        Self { note: Some(note), ..self }
    }

    /// The index of the first key in most calls, for guesses.
    #[inline]
    pub const fn first_guess(&self) -> usize {
        self.first as usize + !matches!(self.search, KeySearch::Index) as usize
    }

    /// The indexes of the keys in a call (its name included). None if it says that there are more keys
    /// than arguments.
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
                let end =
                    usize::try_from(count).ok().and_then(|count| (first + 1).checked_add(count));
                first + 1..end.filter(|end| *end <= argc).unwrap_or(0)
            }
            KeySearch::Unknown => 0..0,
            KeySearch::Word(word, others) | KeySearch::Option(word, others) => {
                let mut at = first;
                let mut places = std::iter::from_fn(|| option_place(call, &mut at, word, others));
                places.by_ref().last().map_or(0..0, |at| at + 1..at + 2)
            }
            KeySearch::FirstHalf(word, others) => {
                let place = option_place(call, &mut 1, word, others).unwrap_or(argc - 1);
                place + 1..place + 1 + (argc - place - 1) / 2
            }
        };
        range.step_by(self.step as usize)
    }
}

/// Where the next option `word` stands that has an argument, from `at` on, which is moved behind it.
fn option_place(
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
        let half = KeySpec::first_half_behind("STREAMS", &[("GROUP", 2)], 4, KeyFlags::READ);
        assert_eq!(all(half, "c count 1 streams a b 0 0"), [4, 5]);
        assert_eq!(all(half, "c count 1 group streams c streams a 0"), [7]);
        assert_eq!(all(half, "c group g streams streams a b 0 0"), [5, 6]);
        assert_eq!(all(half, "c count 1"), [] as [usize; 0]);
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
}
