//! MONITOR: the lines for its clients.

use tierce_keyspace::DbIndex;
use tierce_wire::resp::Args;
use tierce_wire::words;

use crate::caller::Caller;
use crate::clients::Client;
use crate::command::{Command, Flags};
use crate::kernel::Kernel;
use crate::message::Notice;
use crate::redaction;

/// Shows a command to the clients of MONITOR, without passwords.
#[cold]
pub fn show(kernel: &Kernel, command: &Command, caller: &Caller, args: Args<'_>) {
    let is = |flag| command.spec.flags.contains(flag);
    if is(Flags::ADMIN) || is(Flags::SKIP_MONITOR) {
        return;
    }
    show_words(kernel, caller.db, &caller.client, redaction::redacted(&kernel.commands, args));
}

/// Shows the words of a request of any protocol. They must not contain passwords.
#[cold]
pub fn show_words<'a>(
    kernel: &Kernel,
    db: DbIndex,
    client: &Client,
    words: impl Iterator<Item = &'a [u8]>,
) {
    let line = line(crate::clock::unix_micros(), db.get(), &client.addr, words);
    kernel.tell_all(&Notice::Monitor(line.into()));
}

/// Shows a call of a program, which has not run yet.
#[cold]
pub(crate) fn show_program(kernel: &Kernel, caller: &Caller, args: Args<'_>) {
    kernel.tell_all(&Notice::Monitor(line_of_client(caller, args).into()));
}

/// Returns the line for a request of a client, to be shown later.
pub(crate) fn line_of_client(caller: &Caller, args: Args<'_>) -> Vec<u8> {
    line(crate::clock::unix_micros(), caller.db.get(), &caller.client.addr, args.iter())
}

/// Returns the line for a call that a program makes for a client.
pub(crate) fn line_of_program<'a>(
    caller: &Caller,
    words: impl Iterator<Item = &'a [u8]>,
) -> Vec<u8> {
    line(crate::clock::unix_micros(), caller.db.get(), "lua", words)
}

/// Formats the line of a request for monitors: time, database, address, and the quoted words.
fn line<'a>(
    unix_micros: u64,
    db: usize,
    addr: &str,
    shown: impl Iterator<Item = &'a [u8]>,
) -> Vec<u8> {
    let (seconds, micros) = (unix_micros / 1_000_000, unix_micros % 1_000_000);
    let mut line = format!("+{seconds}.{micros:06} [{db} {addr}]").into_bytes();
    for arg in shown {
        line.push(b' ');
        words::quote_into(&mut line, arg);
    }
    line.extend(b"\r\n");
    line
}
