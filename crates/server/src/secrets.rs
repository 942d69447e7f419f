//! What the slow log and monitors may show of a request: all but passwords.

use tierce_wire::resp::Args;

use crate::config;

/// What stands in the place of a password.
const REDACTED: &[u8] = b"(redacted)";

/// The arguments of a request, the name included, as others than its sender may see them.
pub fn shown<'a>(args: Args<'a>) -> impl Iterator<Item = &'a [u8]> {
    let request = Request::of(args);
    (0..args.len()).map(move |at| if request.is_secret(args, at) { REDACTED } else { args.at(at) })
}

/// Requests that carry passwords, as far as their arguments have to be told apart.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Request {
    Auth,
    Hello,
    ConfigSet,
    Harmless,
}

impl Request {
    fn of(args: Args<'_>) -> Self {
        let is =
            |at: usize, word: &[u8]| args.get(at).is_some_and(|arg| arg.eq_ignore_ascii_case(word));
        if is(0, b"auth") {
            Self::Auth
        } else if is(0, b"hello") {
            Self::Hello
        } else if is(0, b"config") && is(1, b"set") {
            Self::ConfigSet
        } else {
            Self::Harmless
        }
    }

    /// Whether the argument at `at` is a password, or may be one: whoever mistypes a request still
    /// typed a password.
    fn is_secret(self, args: Args<'_>, at: usize) -> bool {
        match self {
            Self::Auth => at > 0,
            // `AUTH user password` behind the version.
            Self::Hello => {
                (2..at).rev().take(2).any(|before| args[before].eq_ignore_ascii_case(b"auth"))
            }
            // Names and values alternate from the third argument on.
            Self::ConfigSet => at >= 3 && at % 2 == 1 && config::is_secret(&args[at - 1]),
            Self::Harmless => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::shown;
    use tierce_wire::resp::{Batch, Limits, Parser};

    #[track_caller]
    fn check(request: &str, expected: &str) {
        let (mut parser, mut batch) = (Parser::new(), Batch::new());
        let input = format!("{request}\r\n").into_bytes();
        parser.parse(&input, &Limits::default(), 1, &mut batch);
        let words: Vec<_> = shown(batch.get(0, &input)).map(String::from_utf8_lossy).collect();
        assert_eq!(words.join(" "), expected);
    }

    #[test]
    fn passwords_are_hidden() {
        check("AUTH secret", "AUTH (redacted)");
        check("auth user secret", "auth (redacted) (redacted)");
        check("AUTH a b c", "AUTH (redacted) (redacted) (redacted)");
        check("HELLO 3 AUTH user secret", "HELLO 3 AUTH (redacted) (redacted)");
        check("HELLO 3 AUTH secret", "HELLO 3 AUTH (redacted)");
        check(
            "HELLO 2 SETNAME me auth user secret SETNAME you",
            "HELLO 2 SETNAME me auth (redacted) (redacted) SETNAME you",
        );
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
        ] {
            check(request, request);
        }
    }
}
