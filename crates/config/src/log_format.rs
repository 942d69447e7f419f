//! The formats of the log.

/// Format of the log's lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// As in Redis.
    Redis,
    /// A JSON object.
    Json,
}
