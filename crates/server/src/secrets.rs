//! Passwords among the arguments of commands, which neither monitors nor the slow log may show.

use tierce_wire::resp::Args;

use crate::config;

/// What is shown in place of a secret, in the words of Redis.
const REDACTED: &[u8] = b"(redacted)";

/// The arguments of a call, with [`REDACTED`] in the places of secrets.
pub fn redacted<'a>(args: Args<'a>) -> impl ExactSizeIterator<Item = &'a [u8]> {
    let secrets = Secrets::of(args);
    (0..args.len()).map(
        move |index| {
            if secrets.include(args, index) { REDACTED } else { args.at(index) }
        },
    )
}

/// Where the secrets of a call are.
#[derive(Clone, Copy)]
enum Secrets {
    None,
    /// AUTH: user and password.
    AllArguments,
    /// HELLO: the two arguments that follow an AUTH.
    BehindAuth,
    /// CONFIG SET: the values of some directives.
    ValuesOfDirectives,
}

impl Secrets {
    fn of(args: Args<'_>) -> Self {
        let word = |index: usize| args.get(index).unwrap_or_default().to_ascii_lowercase();
        match word(0).as_slice() {
            b"auth" => Self::AllArguments,
            b"hello" => Self::BehindAuth,
            b"config" if word(1) == b"set" => Self::ValuesOfDirectives,
            _ => Self::None,
        }
    }

    fn include(self, args: Args<'_>, index: usize) -> bool {
        match self {
            Self::None => false,
            Self::AllArguments => index >= 1,
            Self::BehindAuth => {
                let is_auth = |at: usize| at >= 2 && args[at].eq_ignore_ascii_case(b"auth");
                index >= 3 && (is_auth(index - 1) || (index >= 4 && is_auth(index - 2)))
            }
            Self::ValuesOfDirectives => {
                index >= 3 && index % 2 == 1 && config::is_secret(&args[index - 1])
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tierce_wire::resp::{Batch, Limits, Parser};

    use super::*;

    fn check(line: &str, expected: &str) {
        let (mut parser, mut batch) = (Parser::new(), Batch::default());
        let input = format!("{line}\n");
        parser.parse(input.as_bytes(), &Limits::default(), 1, &mut batch);
        let args = batch.get(0, input.as_bytes());
        let shown: Vec<_> = redacted(args).map(String::from_utf8_lossy).collect();
        assert_eq!(shown.join(" "), expected);
    }

    #[test]
    fn passwords_are_not_shown() {
        check("AUTH secret", "AUTH (redacted)");
        check("auth default secret", "auth (redacted) (redacted)");
        check(
            "HELLO 3 AUTH default secret SETNAME me",
            "HELLO 3 AUTH (redacted) (redacted) SETNAME me",
        );
        check("HELLO 3 SETNAME me AUTH a b", "HELLO 3 SETNAME me AUTH (redacted) (redacted)");
        check(
            "CONFIG SET timeout 5 requirepass secret",
            "CONFIG SET timeout 5 requirepass (redacted)",
        );
    }

    #[test]
    fn everything_else_is() {
        for line in ["GET auth", "SET a b", "CONFIG GET requirepass", "HELLO 3", "ECHO auth x y"] {
            check(line, line);
        }
    }
}
