//! An assignment to a directive, and its source.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// A directive's name and its arguments, not parsed yet.
#[derive(Clone, PartialEq, Eq)]
pub struct Assignment {
    /// The name as it was written.
    pub name: Vec<u8>,
    /// Arguments.
    pub args: Vec<Vec<u8>>,
    /// Source of the assignment.
    pub origin: Origin,
}

/// Source of an assignment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// In a line of a file; lines are counted from 1.
    File {
        /// The file.
        path: Arc<Path>,
        /// The number of the line.
        line: usize,
    },
    /// On the command line.
    Argument,
    /// In the environment.
    Environment,
}

/// Prefix of variables that name directives.
pub(super) const VARIABLE_PREFIX: &str = "TIERCE_";

impl fmt::Debug for Assignment {
    /// Omits the arguments, which may be a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self} ({} words)", self.args.len())
    }
}

impl fmt::Display for Assignment {
    /// Formats position and name, in the form in which a user would look for them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = String::from_utf8_lossy(&self.name);
        match &self.origin {
            Origin::File { path, line } => write!(f, "{}:{line}: {name}", path.display()),
            Origin::Argument => write!(f, "--{name}"),
            Origin::Environment => {
                write!(f, "{VARIABLE_PREFIX}{}", name.to_uppercase().replace('-', "_"))
            }
        }
    }
}
