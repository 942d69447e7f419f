//! The limits on the declared sizes of a request.

/// Upper bounds of the number and the length of the arguments of a plain request. Clients may send plain requests
/// before they authenticate as well.
pub(super) const PLAIN_COUNT_MAX: usize = 9;
pub(super) const PLAIN_LEN_MAX: usize = 9999;

const _: () = assert!(
    PLAIN_COUNT_MAX <= Limits::UNAUTHENTICATED_MULTIBULK_LEN_MAX
        && PLAIN_LEN_MAX <= Limits::UNAUTHENTICATED_BULK_LEN_MAX
);

/// Limits on requests, checked while they arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longest argument in bytes (`proto-max-bulk-len`). Values above 4 GiB have no effect.
    pub max_bulk_len: usize,
    /// Upper bound of arguments of a request, the command's name included.
    pub max_multibulk_len: usize,
    /// Longest inline request, and longest line with a count or length. Values below [`Limits::INLINE_LEN_MIN`]
    /// have no effect.
    pub max_inline_len: usize,
    /// Extra length of a line whose end has already arrived when the part beyond the limit is first examined.
    /// Acceptance of a request between the two limits depends on how it arrives.
    pub line_slack: usize,
    /// State of authentication; it decides if the client may send requests that need much memory.
    pub auth: AuthState,
}

/// State of a client's authentication.
///
/// A client that has not authenticated may send only what `AUTH` and `HELLO` need, so that a stranger cannot make
/// the server hold memory. The limit applies while parsing, and a pipeline may contain the very `AUTH` that lifts
/// it: parse one request at a time while this is `Required`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AuthState {
    /// The client has authenticated, or need not.
    #[default]
    Granted,
    /// The client must authenticate, and has not.
    Required,
}

impl Limits {
    /// Line length that is always allowed, so that plain counts and lengths need no check of the limit.
    pub const INLINE_LEN_MIN: usize = 16;
    /// Upper bound of arguments of a request before authentication.
    pub const UNAUTHENTICATED_MULTIBULK_LEN_MAX: usize = 10;
    /// Upper bound of bytes of an argument, and of an inline request, before authentication.
    pub const UNAUTHENTICATED_BULK_LEN_MAX: usize = 16 * 1024;

    /// Returns true if plain requests need no check of these limits.
    #[inline]
    pub(super) fn allow_plain_requests(&self) -> bool {
        self.max_multibulk_len >= PLAIN_COUNT_MAX && self.max_bulk_len >= PLAIN_LEN_MAX
    }
}

impl Default for Limits {
    /// Returns the defaults of Redis 7.2.
    fn default() -> Limits {
        Limits {
            max_bulk_len: 512 * 1024 * 1024,
            max_multibulk_len: i32::MAX as usize,
            max_inline_len: 64 * 1024,
            line_slack: 0,
            auth: AuthState::Granted,
        }
    }
}
