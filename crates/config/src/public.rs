//! The command line without its passwords.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use super::directive::Secrecy;
use super::origin::{Assignment, Origin};
use super::sources::{FileSource, Sources};
use super::table::DirectiveId;

/// Command line and variables that together are equivalent to a command line with passwords.
#[derive(Debug, PartialEq, Eq)]
pub struct Public {
    /// The arguments, without the name of the program.
    pub arguments: Vec<OsString>,
    /// Passwords, as environment variables.
    pub environment: Vec<(OsString, OsString)>,
}

impl Sources {
    /// Moves all passwords from the command line to the environment. Returns `None` if there are none. A password
    /// that the environment already sets is only dropped, since the environment takes precedence.
    #[must_use]
    pub fn without_secrets(&self) -> Option<Public> {
        let (secret, open): (Vec<_>, Vec<_>) =
            self.arguments.iter().partition(|assignment| secret_of(assignment).is_some());
        if secret.is_empty() {
            return None;
        }
        let file = match &self.file {
            FileSource::None => None,
            FileSource::Stdin => Some(PathBuf::from("-")),
            FileSource::Path { path, .. } => Some(path.clone()),
        };
        let arguments = file.map(PathBuf::into_os_string).into_iter();
        let arguments = arguments.chain(open.into_iter().flat_map(words)).collect();
        let is_said =
            |id| self.environment.iter().any(|said| DirectiveId::find(&said.name) == Some(id));
        let variables = secret.into_iter().filter_map(|assignment| {
            let (id, password) = secret_of(assignment).filter(|(id, _)| !is_said(*id))?;
            let name = Assignment {
                name: id.name().into(),
                args: Vec::new(),
                origin: Origin::Environment,
            };
            Some((name.to_string().into(), OsString::from_vec(password.clone())))
        });
        Some(Public { arguments, environment: variables.collect() })
    }
}

/// Returns the directive and the password of an argument that sets one.
fn secret_of(assignment: &Assignment) -> Option<(DirectiveId, &Vec<u8>)> {
    let id = DirectiveId::find(&assignment.name)?;
    let is_secret = id.directive().secrecy == Secrecy::Secret;
    match assignment.args.as_slice() {
        [password] if is_secret => Some((id, password)),
        _ => None,
    }
}

/// Formats an option as it stands on the command line.
fn words(assignment: &Assignment) -> Vec<OsString> {
    let mut first = [b"--", assignment.name.as_slice()].concat();
    let mut values = assignment.args.as_slice();
    if let [value, rest @ ..] = values
        && value.starts_with(b"--")
    {
        first.extend([b"=", value.as_slice()].concat());
        values = rest;
    }
    std::iter::once(first).chain(values.iter().cloned()).map(OsString::from_vec).collect()
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::super::invocation::{Invocation, parse};
    use super::super::sources::Sources;
    use super::Public;

    fn sources(args: &[OsString], env: &[(OsString, OsString)]) -> Sources {
        match parse(args.to_vec(), env.to_vec(), &[]).expect("valid") {
            Invocation::Serve(sources) => sources,
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    fn check(line: &str, env: &[(&str, &str)], expected: Option<(&str, &[(&str, &str)])>) {
        let words = |line: &str| line.split_whitespace().map(OsString::from).collect::<Vec<_>>();
        let pairs = |env: &[(&str, &str)]| {
            env.iter().map(|(a, b)| (OsString::from(*a), OsString::from(*b))).collect::<Vec<_>>()
        };
        let before = sources(&words(line), &pairs(env));
        let public = before.without_secrets();
        let expected =
            expected.map(|(line, env)| Public { arguments: words(line), environment: pairs(env) });
        assert_eq!(public, expected, "{line}");
        let Some(Public { arguments, environment }) = public else { return };
        let after = sources(&arguments, &[environment, pairs(env)].concat());
        assert_eq!(after.without_secrets(), None);
        let load = |sources: &Sources| sources.load(&mut std::io::empty()).expect("valid").settings;
        assert_eq!(load(&after), load(&before), "{line}");
    }

    #[test]
    fn passwords_move_and_everything_stays_the_same() {
        check("--port 7000 --save", &[], None);
        check(
            "- --requirepass a --port 1",
            &[],
            Some(("- --port 1", &[("TIERCE_REQUIREPASS", "a")])),
        );
        check(
            "--RequirePass --x --bind 127.0.0.1 ::1 --requirepass=b --pidfile=--y",
            &[],
            Some((
                "--bind 127.0.0.1 ::1 --pidfile=--y",
                &[("TIERCE_REQUIREPASS", "--x"), ("TIERCE_REQUIREPASS", "b")],
            )),
        );
        check("--requirepass a", &[("TIERCE_REQUIREPASS", "b")], Some(("", &[])));
    }
}
