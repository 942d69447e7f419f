//! The first line of a script or library: `#!lua name=… flags=…`.

use std::fmt;

use memchr::memchr;
use tierce_wire::words;

/// Flags of a script or function.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Flags(u32);

impl Flags {
    /// It does not write; calls of write commands are errors.
    pub const NO_WRITES: Flags = Flags(1);
    /// It runs even if the memory limit is reached.
    pub const ALLOW_OOM: Flags = Flags(2);
    /// It runs even on a replica without its primary.
    pub const ALLOW_STALE: Flags = Flags(4);
    /// It does not run in cluster mode.
    pub const NO_CLUSTER: Flags = Flags(8);
    /// Its keys may be of different slots.
    pub const ALLOW_CROSS_SLOT_KEYS: Flags = Flags(16);
    /// If it fails, its writes are undone.
    pub const ATOMIC: Flags = Flags(32);

    /// All flags, by name.
    pub const NAMES: [(&'static str, Flags); 6] = [
        ("no-writes", Flags::NO_WRITES),
        ("allow-oom", Flags::ALLOW_OOM),
        ("allow-stale", Flags::ALLOW_STALE),
        ("no-cluster", Flags::NO_CLUSTER),
        ("allow-cross-slot-keys", Flags::ALLOW_CROSS_SLOT_KEYS),
        ("atomic", Flags::ATOMIC),
    ];

    /// Returns the flag of this name.
    pub fn by_name(name: &[u8]) -> Option<Flags> {
        let mut names = Flags::NAMES.iter();
        names.find(|(known, _)| known.as_bytes() == name).map(|(_, flag)| *flag)
    }

    /// Returns true if all of `flags` are set.
    pub fn contains(self, flags: Flags) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// Returns the union of both.
    #[must_use]
    pub fn with(self, flags: Flags) -> Flags {
        Flags(self.0 | flags.0)
    }

    /// Returns the flags of a script; `None` if its first line declares none, or is malformed.
    pub fn of_script(source: &[u8]) -> Option<Flags> {
        let (flags, code_start) = of_script(source).ok()?;
        (code_start > 0).then_some(flags)
    }

    /// Returns the names of these, in the order of [`NAMES`](Flags::NAMES).
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Flags::NAMES.iter().filter(move |(_, flag)| self.contains(*flag)).map(|(name, _)| *name)
    }
}

impl fmt::Debug for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}

/// Words of the first line, which begins with `#!`, and the end of the line. `None` if it does not end, or has an open
/// quote.
type FirstLine = (Option<Vec<Vec<u8>>>, usize);

fn first_line(code: &[u8]) -> Option<FirstLine> {
    let end = memchr(b'\n', code)?;
    Some((words::split(&code[..end]).ok(), end))
}

fn shown(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns the flags of a script, and the start of its code.
pub(crate) fn of_script(source: &[u8]) -> Result<(Flags, usize), String> {
    if !source.starts_with(b"#!") {
        return Ok((Flags::default(), 0));
    }
    let (words, end) = first_line(source).ok_or("ERR Invalid script shebang")?;
    let words =
        words.filter(|words| !words.is_empty()).ok_or("ERR Invalid engine in script shebang")?;
    if words[0] != b"#!lua" {
        return Err(format!("ERR Unexpected engine in script shebang: {}", shown(&words[0])));
    }
    let mut flags = Flags::default();
    for option in &words[1..] {
        let Some(names) = option.strip_prefix(b"flags=") else {
            return Err(format!("ERR Unknown lua shebang option: {}", shown(option)));
        };
        if names.is_empty() {
            continue;
        }
        for name in names.split(|byte| *byte == b',') {
            let flag = Flags::by_name(name)
                .ok_or_else(|| format!("ERR Unexpected flag in script shebang: {}", shown(name)))?;
            flags = flags.with(flag);
        }
    }
    Ok((flags, end))
}
