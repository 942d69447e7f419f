//! What a machine runs: scripts and functions of libraries.

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
    /// Where the end of the first line is, if that begins with `#!`; the code begins there, so that lines count from
    /// it.
    code_start: usize,
}

impl Script {
    /// Reads the first line, if it is `#!…`. Nothing is compiled yet: see [`Machine::check`](crate::Machine::check).
    ///
    /// # Errors
    ///
    /// The text for the client, kind first, if the first line is not as it must be.
    pub fn parse(source: impl Into<Arc<[u8]>>) -> Result<Script, String> {
        let source = source.into();
        let (flags, code_start) = shebang::of_script(&source)?;
        Ok(Script { sha: sha1(&source), source, flags, code_start })
    }

    /// SHA-1 of the source, which is what a script is known by.
    pub fn sha(&self) -> &Sha1 {
        &self.sha
    }

    /// The whole source, its first line included.
    pub fn source(&self) -> &Arc<[u8]> {
        &self.source
    }

    /// What its first line says.
    pub fn flags(&self) -> Flags {
        self.flags
    }

    /// Whether it begins with `#!`. A script that does not may write, and may use keys of different slots.
    pub fn has_shebang(&self) -> bool {
        self.code_start > 0
    }

    pub(crate) fn code(&self) -> &[u8] {
        &self.source[self.code_start..]
    }
}

/// What tells libraries apart: another number for each code that is loaded, and not used again in this run of the
/// process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LibraryId(pub u64);

/// The code of `FUNCTION LOAD`.
#[derive(Clone, Debug)]
pub struct Library {
    /// What machines know it by.
    pub id: LibraryId,
    /// The whole code, its first line included.
    pub code: Arc<[u8]>,
}

impl Library {
    /// What follows the first line, the end of that line included, so that lines count from it.
    pub(crate) fn body(&self) -> &[u8] {
        &self.code[self.head().len()..]
    }

    /// The first line, which names the library.
    pub(crate) fn head(&self) -> &[u8] {
        &self.code[..memchr(b'\n', &self.code).unwrap_or(self.code.len())]
    }
}

/// A function that a library registers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Letters, digits and underscores.
    pub name: Vec<u8>,
    /// What `FUNCTION LIST` shows.
    pub description: Option<Vec<u8>>,
    /// What it may do, and where it runs.
    pub flags: Flags,
}

/// One execution of a script or function.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// `KEYS`
    pub keys: &'a [&'a [u8]],
    /// `ARGV`
    pub args: &'a [&'a [u8]],
    /// The protocol of the client, in which the result is written.
    pub proto: Proto,
}

/// Whether it may be the name of a function or library.
pub(crate) fn is_name(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
}
