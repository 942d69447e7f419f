//! The limits on what a request may announce.

/// A plain request has at most so many arguments, of at most so many bytes each. Clients may send these before they
/// authenticate as well.
pub(super) const PLAIN_COUNT_MAX: usize = 9;
pub(super) const PLAIN_LEN_MAX: usize = 9999;

const _: () = assert!(
    PLAIN_COUNT_MAX <= Limits::UNAUTHENTICATED_MULTIBULK_LEN_MAX
        && PLAIN_LEN_MAX <= Limits::UNAUTHENTICATED_BULK_LEN_MAX
);

/// Limits on requests, checked while they arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longest argument in bytes (`proto-max-bulk-len`). Above 4 GiB it has no effect.
    pub max_bulk_len: usize,
    /// Most arguments of a request, the command's name included.
    pub max_multibulk_len: usize,
    /// Longest inline request, and longest count or length line. Below
    /// [`Limits::INLINE_LEN_MIN`] it has no effect.
    pub max_inline_len: usize,
    /// How much longer a line may be whose end is there when the rest is looked at for the first time
    /// beyond the limit. Requests between the two limits depend on how they arrive.
    pub line_slack: usize,
    /// Whether the client may send what needs much memory already.
    pub auth: AuthState,
}

/// Whether a client has authenticated, where that is asked of it.
///
/// A client that has not may send only what `AUTH` and `HELLO` need, so that a stranger cannot make
/// the server hold memory. The limit applies to what is parsed, and a pipeline may contain the very
/// `AUTH` that lifts it: parse one request at a time as long as this is `Required`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AuthState {
    /// It has, or need not.
    #[default]
    Granted,
    /// It must, and has not.
    Required,
}

impl Limits {
    /// What a line may always have, so that plain counts and lengths need no look at the limit.
    pub const INLINE_LEN_MIN: usize = 16;
    /// Arguments of a request before authentication.
    pub const UNAUTHENTICATED_MULTIBULK_LEN_MAX: usize = 10;
    /// Bytes of an argument, and of an inline request, before authentication.
    pub const UNAUTHENTICATED_BULK_LEN_MAX: usize = 16 * 1024;

    /// True if plain requests need no look at these limits.
    #[inline]
    pub(super) fn allow_plain_requests(&self) -> bool {
        self.max_multibulk_len >= PLAIN_COUNT_MAX && self.max_bulk_len >= PLAIN_LEN_MAX
    }
}

impl Default for Limits {
    /// The defaults of Redis 7.2.
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
