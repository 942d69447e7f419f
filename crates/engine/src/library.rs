//! The first line of a library of functions: `#!` and the engine that runs it, and `name=` and its name.

use tierce_wire::words;

/// What the first line of a library says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Header {
    /// The engine that runs it, as it is written there. Case makes no difference to engines.
    pub engine: Vec<u8>,
    /// Its name.
    pub name: Vec<u8>,
}

/// Why code is no library. The texts are those that clients of Redis know.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HeaderError {
    /// It does not begin with `#!`.
    #[error("Missing library metadata")]
    Missing,
    /// The line does not end, or its quotes do not.
    #[error("Invalid library metadata")]
    Malformed,
    /// There is something else than a name.
    #[error("Invalid metadata value given: {}", String::from_utf8_lossy(.0))]
    Unknown(Vec<u8>),
    /// It has several names.
    #[error("Invalid metadata value, name argument was given multiple times")]
    TwoNames,
    /// It has none.
    #[error("Library name was not given")]
    NoName,
    /// A name has other characters.
    #[error(
        "Library names can only contain letters, numbers, or underscores(_) and must be at least one \
         character long"
    )]
    BadName,
}

impl Header {
    /// Reads the first line of `code`.
    ///
    /// # Errors
    /// If that is no first line of a library.
    pub fn parse(code: &[u8]) -> Result<Self, HeaderError> {
        let rest = code.strip_prefix(b"#!").ok_or(HeaderError::Missing)?;
        // Redis reads a string of C.
        let end = rest.iter().position(|byte| matches!(byte, b'\n' | 0));
        let end = end.filter(|end| rest[*end] == b'\n').ok_or(HeaderError::Malformed)?;
        let line = &code[..end + 2];
        let mut words = words::split(line).map_err(|_| HeaderError::Malformed)?.into_iter();
        let engine = words.next().ok_or(HeaderError::Malformed)?.split_off(2);
        let mut name = None;
        for word in words {
            match word.split_at_checked(NAME.len()) {
                Some((key, _)) if !key.eq_ignore_ascii_case(NAME) => {
                    return Err(HeaderError::Unknown(word));
                }
                None => return Err(HeaderError::Unknown(word)),
                Some(_) if name.is_some() => return Err(HeaderError::TwoNames),
                Some((_, value)) => name = Some(value.to_vec()),
            }
        }
        let name = name.ok_or(HeaderError::NoName)?;
        if is_name(&name) { Ok(Self { engine, name }) } else { Err(HeaderError::BadName) }
    }
}

const NAME: &[u8] = b"name=";

fn is_name(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_names_engine_and_library() {
        let header = |code: &str| Header::parse(code.as_bytes());
        let of = |engine: &[u8], name: &[u8]| Header { engine: engine.into(), name: name.into() };
        assert_eq!(header("#!lua name=a_1\nreturn 1"), Ok(of(b"lua", b"a_1")));
        assert_eq!(header("#!Lua  NAME=b\r\n"), Ok(of(b"Lua", b"b")));
        assert_eq!(header("#!lua \"name=c\"\n"), Ok(of(b"lua", b"c")));
        assert_eq!(header("#! name=d\n"), Ok(of(b"", b"d")));
    }

    #[test]
    fn what_is_wrong_is_told_as_redis_does() {
        let text = |code: &str| Header::parse(code.as_bytes()).unwrap_err().to_string();
        for (code, expected) in [
            ("", "Missing library metadata"),
            ("return 1\n", "Missing library metadata"),
            ("#!lua name=a", "Invalid library metadata"),
            ("#!lua name=a\0\n", "Invalid library metadata"),
            ("#!lua \"name=a\n", "Invalid library metadata"),
            ("#!lua\n", "Library name was not given"),
            ("#!lua name=a b\n", "Invalid metadata value given: b"),
            ("#!lua name=a flags=x\n", "Invalid metadata value given: flags=x"),
            (
                "#!lua name=a name=b\n",
                "Invalid metadata value, name argument was given multiple times",
            ),
        ] {
            assert_eq!(text(code), expected, "{code}");
        }
        for code in ["#!lua name=\n", "#!lua name=a-b\n", "#!lua name=é\n"] {
            assert!(text(code).starts_with("Library names can only contain"), "{code}");
        }
    }
}
