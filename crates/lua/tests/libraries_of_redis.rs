//! Libraries return the same as in redis-server 7.0: results, errors and their positions.
//!
//! The fixture has pairs of lines, a script and its result, escaped as `escape_ascii` does it. It is made by
//! `scripts/lua-differential --record`.

use tierce_lua::fuzzing::State;

const FIXTURE: &str = include_str!("fixtures/redis-7.0-libraries.txt");

/// Reverses `escape_ascii`.
fn unescaped(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        bytes.push(match rest.next().expect("a letter") {
            b'x' => {
                let digits = [rest.next().unwrap(), rest.next().unwrap()];
                u8::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).expect("two digits")
            }
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            other => other,
        });
    }
    bytes
}

#[test]
fn scripts_return_what_they_return_in_redis() {
    let state = State::new();
    let mut lines = FIXTURE.lines().skip(1);
    let prelude = unescaped(lines.next().expect("the prelude"));
    let mut wrong = Vec::new();
    let mut count = 0;
    while let (Some(script), Some(expected)) = (lines.next(), lines.next()) {
        let mut source = if script.starts_with('+') { prelude.clone() } else { Vec::new() };
        source.extend(unescaped(&script[1..]));
        let results = state.run_bytes(&source, &[]);
        let found = results.map_or_else(|error| error, |results| results.concat());
        let found = found.escape_ascii().to_string();
        if found != expected {
            wrong.push(format!("{script}\n  redis: {expected}\n  here:  {found}"));
        }
        count += 1;
    }
    assert!(count > 1000, "{count} scripts");
    assert!(wrong.is_empty(), "{} of {count} differ:\n{}", wrong.len(), wrong.join("\n"));
}
