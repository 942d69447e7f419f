//! Hides passwords in requests that the slow log and monitors show.

use tierce_wire::resp::Args;

use crate::command::Table;
use crate::config;

/// The replacement for a password.
const REDACTED: &[u8] = b"(redacted)";

/// Returns the arguments of a request, including the name, with passwords replaced.
pub fn redacted<'a>(table: &Table, args: Args<'a>) -> impl Iterator<Item = &'a [u8]> + use<'a> {
    let inner = index_of_inner_call(table, args);
    let (request, inner_request) = (Request::of(table, args), Request::of(table, args.from(inner)));
    let is_secret = move |at: usize| match at.checked_sub(inner) {
        Some(within) => inner_request.is_secret(args.from(inner), within),
        None => request.is_secret(args, at),
    };
    (0..args.len()).map(move |at| if is_secret(at) { REDACTED } else { args.at(at) })
}

/// Returns the index of the call that a request inspects, or 0 if it inspects none.
fn index_of_inner_call(table: &Table, args: Args<'_>) -> usize {
    let is = |word: &[u8]| args.get(1).is_some_and(|arg| arg.eq_ignore_ascii_case(word));
    match args.get(0).and_then(|name| table.find(name)).map(|command| command.spec.name) {
        Some("acl") if is(b"dryrun") => 3,
        Some("command") if is(b"getkeys") || is(b"getkeysandflags") => 2,
        _ => 0,
    }
}

/// Requests with passwords, distinguished as far as redaction needs it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Request {
    Auth,
    Hello,
    ConfigSet,
    Users,
    Migrate,
    Harmless,
}

impl Request {
    fn of(table: &Table, args: Args<'_>) -> Self {
        let is = |word: &[u8]| args.get(1).is_some_and(|arg| arg.eq_ignore_ascii_case(word));
        match args.get(0).and_then(|name| table.find(name)).map(|command| command.spec.name) {
            Some("auth") => Self::Auth,
            Some("hello") => Self::Hello,
            Some("config") if is(b"set") => Self::ConfigSet,
            Some("acl") if is(b"setuser") || is(b"deluser") || is(b"getuser") || is(b"dryrun") => {
                Self::Users
            }
            Some("migrate") => Self::Migrate,
            _ => Self::Harmless,
        }
    }

    /// Returns true if the argument at `at` is a password, or may be one: a mistyped request may also contain one.
    fn is_secret(self, args: Args<'_>, at: usize) -> bool {
        match self {
            Self::Auth => at > 0,
            // `AUTH user password` follows the version.
            Self::Hello => {
                (2..at).rev().take(2).any(|before| args[before].eq_ignore_ascii_case(b"auth"))
            }
            // Names and values alternate from the third argument on.
            Self::ConfigSet => at >= 3 && at % 2 == 1 && config::is_secret(&args[at - 1]),
            // Names of users would help to guess passwords.
            Self::Users => at > 1,
            // `AUTH password` or `AUTH2 user password` are among the options, or before them in a mistyped call.
            Self::Migrate => {
                let is = |at: usize, word: &[u8]| args[at].eq_ignore_ascii_case(word);
                let follows_auth = |at: usize| {
                    (3..at).rev().take(2).any(|before| is(before, b"auth") || is(before, b"auth2"))
                };
                // A user may be called `keys`.
                let is_key = (6..at).any(|before| is(before, b"keys") && !follows_auth(before));
                !is_key && follows_auth(at)
            }
            Self::Harmless => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::redacted;
    use tierce_wire::resp::{Batch, Limits, Parser};

    #[track_caller]
    fn check(request: &str, expected: &str) {
        let (mut parser, mut batch) = (Parser::new(), Batch::new());
        let input = format!("{request}\r\n").into_bytes();
        parser.parse(&input, &Limits::default(), 1, &mut batch);
        let words: Vec<_> =
            redacted(&crate::table(), batch.get(0, &input)).map(String::from_utf8_lossy).collect();
        assert_eq!(words.join(" "), expected);
    }

    #[test]
    fn passwords_are_hidden() {
        check("AUTH secret", "AUTH (redacted)");
        check("migrate h 1 k 0 9 AUTH2 u p", "migrate h 1 k 0 9 AUTH2 (redacted) (redacted)");
        check("MIGRATE h 1 k 0 9 COPY auth p", "MIGRATE h 1 k 0 9 COPY auth (redacted)");
        check("MIGRATE h 1 k 0 AUTH p", "MIGRATE h 1 k 0 AUTH (redacted)");
        let of_keys = "MIGRATE h 1 k 0 9 AUTH2 (redacted) (redacted)";
        check("MIGRATE h 1 k 0 9 AUTH2 keys p", of_keys);
        check("MIGRATE h 1 e 0 9 KEYS auth a", "MIGRATE h 1 e 0 9 KEYS auth a");
        check("auth user secret", "auth (redacted) (redacted)");
        check("AUTH a b c", "AUTH (redacted) (redacted) (redacted)");
        check("HELLO 3 AUTH user secret", "HELLO 3 AUTH (redacted) (redacted)");
        check("HELLO 3 AUTH secret", "HELLO 3 AUTH (redacted)");
        check(
            "HELLO 2 SETNAME me auth user secret SETNAME you",
            "HELLO 2 SETNAME me auth (redacted) (redacted) SETNAME you",
        );
        check("ACL SetUser alice >secret on", "ACL SetUser (redacted) (redacted) (redacted)");
        check("acl deluser alice", "acl deluser (redacted)");
        check("acl dryrun alice auth secret", "acl dryrun (redacted) auth (redacted)");
        check("acl dryrun alice", "acl dryrun (redacted)");
        check(
            "ACL DRYRUN alice ACL SETUSER bob >secret",
            "ACL DRYRUN (redacted) ACL SETUSER (redacted) (redacted)",
        );
        check("COMMAND GETKEYS AUTH alice secret", "COMMAND GETKEYS AUTH (redacted) (redacted)");
        check(
            "CONFIG set timeout 5 RequirePass secret MASTERAUTH secret port 1",
            "CONFIG set timeout 5 RequirePass (redacted) MASTERAUTH (redacted) port 1",
        );
    }

    #[test]
    fn all_else_is_shown() {
        for request in [
            "AUTH",
            "HELLO 3",
            "CONFIG GET requirepass",
            "CONFIG SET requirepass",
            "SET auth secret",
            "ACL DRYRUN",
            "COMMAND GETKEYS SET auth secret",
            "COMMAND GETKEYS",
        ] {
            check(request, request);
        }
    }
}
