//! Programs of a machine: scripts and functions of libraries.

use std::sync::Arc;

use memchr::memchr;
use tierce_wire::resp::Proto;

use crate::sha1::{Sha1, sha1};
use crate::shebang::{self, Flags};

/// A script of `EVAL` or `SCRIPT LOAD`.
#[derive(Clone, Debug)]
pub struct Script {
    sha: Sha1,
    source: Arc<[u8]>,
    flags: Flags,
    /// End of the first line, if that begins with `#!`; the code begins there, so that lines are counted from it.
    code_start: usize,
}

impl Script {
    /// Parses the first line, if it is `#!…`. Nothing is compiled yet: see [`Machine::check`](crate::Machine::check).
    ///
    /// # Errors
    ///
    /// The text for the client, kind first, if the first line is malformed.
    pub fn parse(source: impl Into<Arc<[u8]>>) -> Result<Script, String> {
        let source = source.into();
        let (flags, code_start) = shebang::of_script(&source)?;
        Ok(Script { sha: sha1(&source), source, flags, code_start })
    }

    /// Returns the SHA-1 of the source, which identifies the script.
    pub fn sha(&self) -> &Sha1 {
        &self.sha
    }

    /// Returns the whole source, its first line included.
    pub fn source(&self) -> &Arc<[u8]> {
        &self.source
    }

    /// Returns the flags of its first line.
    pub fn flags(&self) -> Flags {
        self.flags
    }

    /// Returns true if it begins with `#!`. A script without it may write, and may use keys of different slots.
    pub fn has_shebang(&self) -> bool {
        self.code_start > 0
    }

    pub(crate) fn code(&self) -> &[u8] {
        &self.source[self.code_start..]
    }
}

/// Identity of a library: a new number for each code that is loaded, never reused while the process runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LibraryId(pub u64);

/// The code of `FUNCTION LOAD`.
#[derive(Clone, Debug)]
pub struct Library {
    /// Identity for machines.
    pub id: LibraryId,
    /// The whole code, its first line included.
    pub code: Arc<[u8]>,
}

impl Library {
    /// Returns the code after the first line, including the end of that line, so that lines are counted from it.
    pub(crate) fn body(&self) -> &[u8] {
        &self.code[self.head().len()..]
    }

    /// Returns the first line, which has the name of the library.
    pub(crate) fn head(&self) -> &[u8] {
        &self.code[..memchr(b'\n', &self.code).unwrap_or(self.code.len())]
    }
}

/// A function that a library registers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Letters, digits and underscores.
    pub name: Vec<u8>,
    /// Description for `FUNCTION LIST`.
    pub description: Option<Vec<u8>>,
    /// Permissions, and where it may run.
    pub flags: Flags,
}

/// One execution of a script or function.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// `KEYS`
    pub keys: &'a [&'a [u8]],
    /// `ARGV`
    pub args: &'a [&'a [u8]],
    /// Protocol of the client, in which the result is written.
    pub proto: Proto,
}

/// Returns true if it is a valid name for a function or library.
pub(crate) fn is_name(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
}
