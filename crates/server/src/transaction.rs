//! Transactions, which there are none of yet.
//!
//! MULTI is answered with an error, and clients send on regardless: what they meant to happen together or
//! not at all must not happen then, command by command. Everything is refused until the transaction
//! would end: with EXEC, DISCARD, RESET, or the connection.

use tierce_wire::resp::Args;

use crate::error::CommandError;
use crate::session::Session;

const REFUSED: CommandError =
    CommandError::new("ERR refused, as MULTI was: EXEC, DISCARD or RESET ends this");
const ABORTED: CommandError =
    CommandError::new("EXECABORT Transaction discarded because of previous errors.");

/// Notes that a transaction begins which can only fail, if this unknown command means that.
#[cold]
pub fn note_unknown(session: &mut Session, args: Args<'_>) {
    let begins = args.len() == 1 && args[0].eq_ignore_ascii_case(b"multi");
    session.transaction_fails |= begins && session.authenticated;
}

/// What a request of such a transaction is answered with; `None` if it is to be executed.
#[cold]
pub fn answer(session: &mut Session, args: Args<'_>) -> Option<Result<(), CommandError>> {
    let name = args[0].to_ascii_lowercase();
    session.transaction_fails = !matches!(name.as_slice(), b"exec" | b"discard" | b"reset");
    match name.as_slice() {
        b"exec" => Some(Err(ABORTED)),
        b"discard" => Some(Ok(())),
        b"reset" | b"quit" => None,
        _ => Some(Err(REFUSED)),
    }
}
