//! Errors of operations on a bucket, by cause.

use crate::fields::hex;

/// The result of an operation on a bucket.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Cause of a failed operation. Texts name the object, by its key below the prefix.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The value of `--bucket` or the environment around it does not describe a usable store.
    #[error("bucket {url}: {reason}")]
    Location {
        /// The location as it was given.
        url: String,
        /// Description of the problem.
        reason: String,
    },
    /// No credentials were found, neither configured ones nor those of an instance.
    #[error("no credentials for {url}: {advice}{}", in_brackets(cause))]
    Credentials {
        /// The location as it was given.
        url: String,
        /// Settings to change.
        advice: &'static str,
        /// Message of the credential provider; empty if it does not help.
        cause: String,
    },
    /// The store failed the test of its conditional writes: a log in it could get two writers.
    #[error("this store cannot hold a log: {0}")]
    Unusable(String),
    /// The store answered with an error that a retry does not change, or gave no answer for too long.
    #[error("cannot {operation} {object}: {}", shorten(&source.to_string()))]
    Store {
        /// `get`, `put`, `list` or `delete`.
        operation: &'static str,
        /// The key below the prefix.
        object: String,
        /// The store's own error.
        source: Box<object_store::Error>,
    },
    /// The store did not answer in time.
    #[error("cannot {operation} {object}: no answer within {seconds} s")]
    Timeout {
        /// `get`, `put`, `list` or `delete`.
        operation: &'static str,
        /// The key below the prefix.
        object: String,
        /// Time limit of one attempt.
        seconds: u64,
    },
    /// The store refuses to create an object that it does not have. After a crash its own records may disagree.
    #[error("cannot put {object}: the store says that it is there, and does not find it")]
    Contradicts {
        /// The key below the prefix.
        object: String,
    },
    /// An object exists and is not valid.
    #[error("{object} is damaged: {reason}")]
    Damaged {
        /// The key below the prefix.
        object: String,
        /// The check that failed.
        reason: String,
    },
    /// A required object is missing.
    #[error("{object} is missing{because}")]
    Missing {
        /// The key below the prefix.
        object: String,
        /// Empty, or a comma and a possible cause.
        because: String,
    },
    /// An object of a later version of Tierce.
    #[error(
        "{object} has format version {version}; this program knows up to {known}. Use a newer Tierce"
    )]
    Newer {
        /// The key below the prefix.
        object: String,
        /// The version that the object names.
        version: u16,
        /// The newest version that this program knows.
        known: u16,
    },
    /// Another process owns the log, and may still be alive.
    #[error(
        "the log belongs to node {} ({address}) since its claim {claim} at {wall} ms, which has not released it. \
         If that process is dead for good, start with --bucket-claim force",
        hex(node)
    )]
    Owned {
        /// The node that claimed last.
        node: [u8; 16],
        /// Address that the node gives for itself.
        address: String,
        /// The number of its CLAIM.
        claim: u64,
        /// Wall clock of the CLAIM, in milliseconds since 1970.
        wall: u64,
    },
    /// The log was not claimed: it has records after the end that the CLAIM was to follow.
    #[error(
        "the log goes on behind object {position}: another server has written to it meanwhile; start again"
    )]
    WentOn {
        /// The end that the process knows.
        position: u64,
    },
    /// Another process has claimed the log. This one must not confirm anything any more.
    #[error("deposed: node {} wrote {object}", hex(node))]
    Deposed {
        /// Name of the object that another process wrote.
        object: String,
        /// The node that wrote it.
        node: [u8; 16],
    },
    /// The log was pruned past a follower's position.
    #[error(
        "the log begins at {floor} by now, and this follower is at {position}: it must restore anew"
    )]
    Overtaken {
        /// The last record that was followed.
        position: u64,
        /// First record that is certainly there.
        floor: u64,
    },
    /// The log does not have this position or time, or no longer has it.
    #[error("{0}")]
    History(String),
    /// A call with arguments that do not fit together.
    #[error("{0}")]
    Invalid(String),
}

/// Returns the code and message of a store's XML answer on one line. The rest does not help an operator, such as the
/// bytes to be signed, in hexadecimal.
fn shorten(text: &str) -> String {
    let (before, body) = text.find('<').map_or((text, ""), |at| text.split_at(at));
    let found = |tag: &str| {
        let (_, rest) = body.split_once(&format!("<{tag}>"))?;
        Some(rest.split_once('<')?.0)
    };
    let mut short = match (found("Code"), found("Message")) {
        (None, None) => text.to_owned(),
        (code, message) => {
            let parts: Vec<&str> = code.into_iter().chain(message).collect();
            before.to_owned() + &parts.join(": ")
        }
    };
    if let Some((at, _)) = short.char_indices().nth(TEXT_CHARS_MAX) {
        short.truncate(at);
        short += "...";
    }
    short.trim_end().replace(['\r', '\n'], " ")
}

fn in_brackets(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(" ({})", shorten(text)) }
}

/// Maximum length of a store's own text.
const TEXT_CHARS_MAX: usize = 500;

/// Returns true if a store rejects a request as malformed, such as one with a name that no bucket can have. Stores use
/// the same status for a body that came late or damaged, which does not count.
fn is_refused(text: &str) -> bool {
    const PASSING: [&str; 5] =
        ["RequestTimeout", "IncompleteBody", "BadDigest", "XAmzContentSHA256Mismatch", "SlowDown"];
    text.contains(" 400 Bad Request") && !PASSING.iter().any(|code| text.contains(code))
}

impl Error {
    pub(crate) fn damaged(object: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Damaged { object: object.into(), reason: reason.into() }
    }

    pub(crate) fn missing(object: impl Into<String>) -> Self {
        Self::Missing { object: object.into(), because: String::new() }
    }
}

impl Error {
    pub(crate) fn store(
        operation: &'static str,
        object: &str,
        source: object_store::Error,
    ) -> Self {
        Self::Store { operation, object: object.into(), source: Box::new(source) }
    }

    /// Returns true if the same request would fail in the same way again.
    pub(crate) fn is_lasting(&self) -> bool {
        use object_store::Error as E;
        // The client library has no error kind for these.
        const LASTING: [&str; 7] = [
            // The bucket is in another region, and the answer does not say which.
            "redirect without LOCATION",
            "NoSuchBucket",
            "InvalidAccessKeyId",
            "SignatureDoesNotMatch",
            "AccessDenied",
            "ExpiredToken",
            "InvalidToken",
        ];
        match self {
            Self::Timeout { .. } | Self::Contradicts { .. } => false,
            Self::Store { source, .. } if matches!(**source, E::Generic { .. }) => {
                let text = source.to_string();
                LASTING.iter().any(|code| text.contains(code)) || is_refused(&text)
            }
            Self::Store { source, .. } => matches!(
                **source,
                E::NotFound { .. }
                    | E::PermissionDenied { .. }
                    | E::Unauthenticated { .. }
                    | E::InvalidPath { .. }
                    | E::NotSupported { .. }
                    | E::NotImplemented { .. }
            ),
            _ => true,
        }
    }

    /// Returns true if the store says that the object exists, or that another put is in flight.
    pub(crate) fn is_conflict(&self) -> bool {
        use object_store::Error as E;
        matches!(self, Self::Store { source, .. }
            if matches!(**source, E::AlreadyExists { .. } | E::Precondition { .. }))
    }

    /// Returns true if the store denies this process the operation.
    pub(crate) fn is_refusal(&self) -> bool {
        use object_store::Error as E;
        matches!(self, Self::Store { source, .. }
            if matches!(**source, E::PermissionDenied { .. } | E::Unauthenticated { .. }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_malformed_request_is_not_repeated_and_one_that_was_cut_off_is() {
        for (answer, is_lasting) in [
            ("400 Bad Request: <Error><Code>InvalidBucketName</Code></Error>", true),
            ("400 Bad Request: <Error><Code>AuthorizationHeaderMalformed</Code></Error>", true),
            ("400 Bad Request: <Error><Code>RequestTimeout</Code></Error>", false),
            ("503 Service Unavailable: <Error><Code>SlowDown</Code></Error>", false),
            ("500 Internal Server Error", false),
        ] {
            let text = format!("Server returned non-2xx status code: {answer}");
            let source = object_store::Error::Generic { store: "S3", source: text.into() };
            let error = Error::store("put", "probe/1", source);
            assert_eq!(error.is_lasting(), is_lasting, "{answer}");
        }
    }

    #[test]
    fn what_a_store_says_is_told_in_one_line() {
        let head = "status code: 403 Forbidden: ";
        let xml = "<?xml version=\"1.0\"?>\n<Error><Code>SignatureDoesNotMatch</Code><Message>Check your key.</Message>\
                   <CanonicalRequestBytes>39 31</CanonicalRequestBytes></Error>";
        for (text, expected) in [
            (format!("{head}{xml}"), format!("{head}SignatureDoesNotMatch: Check your key.")),
            (format!("{head}<Error><Code>SlowDown</Code></Error>"), format!("{head}SlowDown")),
            ("two\nlines\r\n".to_owned(), "two lines".to_owned()),
            ("cut off <Err".to_owned(), "cut off <Err".to_owned()),
            ("é".repeat(501), "é".repeat(500) + "..."),
        ] {
            assert_eq!(shorten(&text), expected);
        }
    }
}
