//! Turns bodies and paths into commands.
//!
//! A body is a JSON array of strings, numbers and booleans; a number keeps exactly the digits that the client sent.
//! A path is `/name/argument/...`, percent-encoded. The body follows as one more argument, then the query:
//! `?EX=100` is `EX 100`, `?NX` is `NX`.

use std::borrow::Cow;

use percent_encoding::percent_decode;
use serde_json::value::RawValue;
use tierce_wire::resp::OwnedArgs;

use crate::Error;

/// Upper bound of commands in a pipeline or a transaction: about a megabyte of the shortest ones.
const COMMANDS_MAX: usize = 100_000;

/// Parses a body with one command.
pub fn command(body: &[u8]) -> Result<OwnedArgs, Error> {
    let args: Vec<&RawValue> = parse(body, "a JSON array of arguments")?;
    owned(&args)
}

/// Parses a body with several commands.
pub fn commands(body: &[u8]) -> Result<Vec<OwnedArgs>, Error> {
    let commands: Vec<Vec<&RawValue>> = parse(body, "a JSON array of arrays of arguments")?;
    if commands.is_empty() {
        return Err(malformed("ERR empty pipeline"));
    }
    if commands.len() > COMMANDS_MAX {
        return Err(malformed(format!("ERR more than {COMMANDS_MAX} commands")));
    }
    commands.iter().map(|args| owned(args)).collect()
}

/// Builds the command of a path, a query and a body.
pub fn of_path(path: &str, query: &str, body: &[u8]) -> Result<OwnedArgs, Error> {
    let mut args = OwnedArgs::new();
    for segment in path.trim_start_matches('/').split('/') {
        push(&mut args, &Cow::from(percent_decode(segment.as_bytes())))?;
    }
    if !body.is_empty() {
        push(&mut args, body)?;
    }
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        if name == "_token" {
            let text = "ERR the token belongs into the header Authorization: addresses are logged";
            return Err(malformed(text));
        }
        push(&mut args, &decoded(name))?;
        if !value.is_empty() {
            push(&mut args, &decoded(value))?;
        }
    }
    check(args)
}

/// Decodes a part of a query, in which `+` is a space.
fn decoded(part: &str) -> Vec<u8> {
    let part: Vec<u8> = part.bytes().map(|byte| if byte == b'+' { b' ' } else { byte }).collect();
    percent_decode(&part).collect()
}

fn parse<'a, T: serde::Deserialize<'a>>(body: &'a [u8], what: &str) -> Result<T, Error> {
    serde_json::from_slice(body)
        .map_err(|error| malformed(format!("ERR the body is not {what}: {error}")))
}

fn owned(raw: &[&RawValue]) -> Result<OwnedArgs, Error> {
    let mut args = OwnedArgs::new();
    for raw in raw {
        let text = raw.get();
        match text.as_bytes().first() {
            Some(b'"') => {
                let text: String = serde_json::from_str(text)
                    .map_err(|error| malformed(format!("ERR bad string: {error}")))?;
                push(&mut args, text.as_bytes())?;
            }
            Some(b'[' | b'{' | b'n') => {
                let text = "ERR an argument is a string, a number or a boolean";
                return Err(malformed(text));
            }
            _ => push(&mut args, text.as_bytes())?,
        }
    }
    check(args)
}

fn push(args: &mut OwnedArgs, arg: &[u8]) -> Result<(), Error> {
    args.push(arg).map_err(|error| malformed(format!("ERR {error}")))
}

fn malformed(text: impl Into<String>) -> Error {
    Error::Malformed(text.into())
}

/// Checks that the command has a name.
fn check(args: OwnedArgs) -> Result<OwnedArgs, Error> {
    match args.as_args().get(0) {
        Some([_, ..]) => Ok(args),
        _ => Err(malformed("ERR empty command")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(args: Result<OwnedArgs, Error>) -> Option<String> {
        let args = args.ok()?;
        let words: Vec<_> =
            args.as_args().iter().map(|arg| arg.escape_ascii().to_string()).collect();
        Some(words.join(" "))
    }

    #[test]
    fn arguments_are_taken_as_they_were_sent() {
        let check =
            |body: &str, expected| assert_eq!(shown(command(body.as_bytes())).as_deref(), expected);
        check(r#"["SET","k","v\u0000\n\""]"#, Some(r#"SET k v\x00\n\""#));
        check(
            r#"[ "SET" , "k", 12345678901234567890123, -0.10e5, true ]"#,
            Some("SET k 12345678901234567890123 -0.10e5 true"),
        );
        check(r#"["GET",""]"#, Some("GET "));
        for bad in [
            "",
            "[]",
            r#"[""]"#,
            "{}",
            r#""GET""#,
            r#"["GET",null]"#,
            r#"["GET",[1]]"#,
            r#"["GET",{}]"#,
            r#"["GET","a""#,
            r#"["GET","\ud800"]"#,
            r#"["GET"] x"#,
            "[1,]",
        ] {
            check(bad, None);
        }
    }

    #[test]
    fn nesting_costs_no_stack() {
        let deep = format!("[\"GET\",{}", "[".repeat(100_000));
        assert_eq!(shown(command(deep.as_bytes())), None);
        assert!(commands(deep.as_bytes()).is_err());
    }

    #[test]
    fn paths_are_commands_with_the_body_before_the_query() {
        let check = |path: &str, query: &str, body: &[u8], expected| {
            assert_eq!(shown(of_path(path, query, body)).as_deref(), expected);
        };
        check("/get/a%20b%2Fc%FF", "", b"", Some(r"get a b/c\xff"));
        check("/set/k", "EX=100&NX", b"\xff\0", Some(r"set k \xff\x00 EX 100 NX"));
        check("/set/k/", "", b"", Some("set k "));
        check("/ping", "a+b", b"", Some("ping a b"));
        check("/", "", b"", None);
        check("/get/k", "_token=x", b"", None);
    }

    #[test]
    fn pipelines_have_commands() {
        let count = |body: &str| commands(body.as_bytes()).ok().map(|commands| commands.len());
        assert_eq!(count(r#"[["GET","a"],["PING"]]"#), Some(2));
        for bad in ["[]", "[[]]", r#"["GET"]"#, r#"[["GET"],1]"#] {
            assert_eq!(count(bad), None, "{bad}");
        }
    }
}
