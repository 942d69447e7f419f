//! Lines of a configuration file that are not settings: they accumulate or have no effect.

/// First word of a line that is not a directive of CONFIG GET.
#[derive(Clone, Copy, Debug)]
pub struct FileLine {
    /// The first word of the line.
    pub name: &'static str,
    /// Minimum number of arguments.
    pub args_min: usize,
    /// Maximum number of arguments.
    pub args_max: usize,
    /// Handling of the line.
    pub handling: Handling,
    /// Purpose of the line.
    pub about: &'static str,
}

/// Handling of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handling {
    /// Other files are read at its position.
    Include,
    /// Defines a user.
    User,
    /// Renames a command.
    Rename,
    /// The start fails: the reason, and what to do instead.
    Refuse(&'static str),
    /// The line is ignored silently, because Redis has dropped it.
    Ignore,
}

/// All these lines.
pub static FILE_LINES: [FileLine; 7] = [
    FileLine {
        name: "include",
        args_min: 1,
        args_max: 1,
        handling: Handling::Include,
        about: "Read another file at this point. A pattern with `*`, `?` or `[...]` reads all matching files.",
    },
    FileLine {
        name: "user",
        args_min: 1,
        args_max: usize::MAX,
        handling: Handling::User,
        about: "A user and the user's rights, as rules of `ACL SETUSER`. See [acl.md](acl.md).",
    },
    FileLine {
        name: "rename-command",
        args_min: 2,
        args_max: 2,
        handling: Handling::Rename,
        about: "Give a command another name. With the empty name `\"\"` no client can use it.",
    },
    FileLine {
        name: "loadmodule",
        args_min: 1,
        args_max: usize::MAX,
        handling: Handling::Refuse("there are no modules; remove the line"),
        about: "Load a module of Redis.",
    },
    FileLine {
        name: "list-max-ziplist-entries",
        args_min: 1,
        args_max: 1,
        handling: Handling::Ignore,
        about: "Means nothing since Redis 3.2.",
    },
    FileLine {
        name: "list-max-ziplist-value",
        args_min: 1,
        args_max: 1,
        handling: Handling::Ignore,
        about: "Means nothing since Redis 3.2.",
    },
    FileLine {
        name: "lua-replicate-commands",
        args_min: 1,
        args_max: 1,
        handling: Handling::Ignore,
        about: "Means nothing since Redis 7.0.",
    },
];

impl FileLine {
    /// Finds a line by its first word, in either case.
    pub fn find(name: &[u8]) -> Option<&'static Self> {
        FILE_LINES.iter().find(|line| line.name.as_bytes().eq_ignore_ascii_case(name))
    }
}
