//! The formats of the log.

/// How a line of the log looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// As in Redis.
    Redis,
    /// A JSON object.
    Json,
}
