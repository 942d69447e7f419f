//! Errors that prevent a start, and notes about ignored settings.

use std::path::PathBuf;

use super::kind::Invalid;
use super::log_format::LogFormat;
use super::origin::{Assignment, Origin};
use super::suggest::suggest;
use super::table::DirectiveId;
use super::table::FILE_LINES;

/// Reason why the server cannot start. One line each, without the program's name.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A file cannot be read.
    #[error("cannot read {}: {reason}{hint}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Reason that the operating system gives.
        reason: String,
        /// Suggestion of what the user may have meant.
        hint: String,
    },
    /// A file that another one includes cannot be read.
    #[error("{assignment}: {error}")]
    Included {
        /// The line that includes it.
        assignment: Assignment,
        /// Error in the included file.
        error: Box<Self>,
    },
    /// A file is too large to be a configuration file.
    #[error("{}: larger than {limit} bytes, hardly a configuration", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The limit.
        limit: u64,
    },
    /// Files include each other, or the chain of includes is too long.
    #[error("{assignment}: more than {limit} files inside each other")]
    TooDeep {
        /// Line that exceeds the limit.
        assignment: Assignment,
        /// Limit.
        limit: usize,
    },
    /// A quote is not closed, or closed in the middle of a word.
    #[error("{}:{line}: unbalanced quotes", path.display())]
    UnbalancedQuotes {
        /// The file.
        path: PathBuf,
        /// The number of the line.
        line: usize,
    },
    /// Several mistakes, a line each.
    #[error("{}", .0.iter().map(Self::to_string).collect::<Vec<_>>().join("\n"))]
    Several(Vec<Self>),
    /// A value is refused.
    #[error("{assignment}: {}{}", reason.explained(), help_hint(assignment))]
    Invalid {
        /// Refused assignment.
        assignment: Assignment,
        /// Reason for the refusal.
        reason: Invalid,
    },
    /// Values that have no effect although users may rely on them. One line for each.
    #[error("{}", lines(.objections))]
    Refused {
        /// Refused assignments, each with its reason.
        objections: Vec<(Assignment, &'static str)>,
        /// File that the server would have logged to.
        logfile: Option<PathBuf>,
        /// Format of the lines in that file.
        log_format: LogFormat,
    },
    /// A directive that does not exist, in a file.
    #[error("{assignment}: unknown directive{}", directive_hint(&assignment.name, &assignment.origin))]
    UnknownDirective {
        /// Assignment with the unknown name.
        assignment: Assignment,
    },
    /// An option on the command line that does not exist.
    #[error("{option}: unknown option{hint}; see tierce --help")]
    UnknownOption {
        /// Unknown option.
        option: String,
        /// Suggestion of what the user may have meant.
        hint: String,
    },
    /// A first word that is no tool, where a file is not possible.
    #[error("{word}: there is no such tool{hint}; see tierce --help")]
    UnknownTool {
        /// The word.
        word: String,
        /// Suggestion of what the user may have meant.
        hint: String,
    },
    /// An argument that makes no sense at its position.
    #[error("{0}: unexpected argument; see tierce --help")]
    UnexpectedArgument(String),
}

impl ConfigError {
    /// # Errors
    /// One or several of these, if there are any.
    pub(crate) fn all(mut errors: Vec<Self>) -> Result<(), Self> {
        match errors.len() {
            0 => Ok(()),
            1 => Err(errors.remove(0)),
            _ => Err(Self::Several(errors)),
        }
    }
}

/// A note for the user at the start, one line each.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Note {
    /// Unknown directive in the environment.
    Unknown(Assignment),
    /// Directive without effect, and the reason.
    NoEffect(Assignment, &'static str),
    /// Variable that Kubernetes sets for a service called tierce.
    ServiceLink(Assignment),
}

/// Severity of a note.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// Something was ignored.
    Warning,
    /// Something behaves differently than one might expect.
    Notice,
}

impl Note {
    /// Returns the severity.
    pub fn severity(&self) -> Severity {
        match self {
            Self::Unknown(_) | Self::ServiceLink(_) => Severity::Warning,
            Self::NoEffect(..) => Severity::Notice,
        }
    }
}

impl std::fmt::Display for Note {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unknown(assignment) => {
                let hint = directive_hint(&assignment.name, &assignment.origin);
                write!(f, "{assignment}: unknown directive, ignored{hint}")
            }
            Self::NoEffect(assignment, reason) => {
                write!(f, "{assignment}: accepted without effect. {reason}")
            }
            Self::ServiceLink(assignment) => {
                write!(f, "{assignment}: ignored, it describes a service and not this server")
            }
        }
    }
}

fn lines(objections: &[(Assignment, &str)]) -> String {
    let lines: Vec<_> =
        objections.iter().map(|(said, why)| format!("{said}: refused, {why}")).collect();
    lines.join("\n")
}

/// Returns a pointer to the help text of an option or a variable.
fn help_hint(assignment: &Assignment) -> String {
    let is_directive = FILE_LINES.iter().all(|line| line.name.as_bytes() != &*assignment.name);
    match assignment.origin {
        Origin::Argument | Origin::Environment if is_directive => {
            format!("; see tierce --help {}", String::from_utf8_lossy(&assignment.name))
        }
        _ => String::new(),
    }
}

/// Returns `; did you mean …?` with the directive most like `name`, spelled for its origin.
pub(super) fn directive_hint(name: &[u8], origin: &Origin) -> String {
    let directives = DirectiveId::all().flat_map(|id| id.directive().names());
    let names = directives.chain(FILE_LINES.iter().map(|line| line.name));
    let Some(similar) = suggest(name, names) else { return String::new() };
    match origin {
        Origin::File { .. } => format!("; did you mean {similar}?"),
        Origin::Argument => format!("; did you mean --{similar}?"),
        Origin::Environment => {
            let assignment =
                Assignment { name: similar.into(), args: Vec::new(), origin: Origin::Environment };
            format!("; did you mean {assignment}?")
        }
    }
}

/// Returns the operating system's message for an error, without its number.
#[must_use]
pub fn os_reason(error: &std::io::Error) -> String {
    let text = error.to_string();
    match text.rfind(" (os error ") {
        Some(end) if error.raw_os_error().is_some() => text[..end].to_owned(),
        _ => text,
    }
}
