//! Parser of the first line of a library of functions: `#!` and its engine, then `name=` and its name.

use tierce_wire::words;

/// First line of a library.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Header {
    /// Name of its engine, as written. Engine names are case-insensitive.
    pub engine: Vec<u8>,
    /// Name of the library.
    pub name: Vec<u8>,
}

/// Reason why code is not a library. The texts are those that Redis' clients know.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HeaderError {
    /// The code does not begin with `#!`.
    #[error("Missing library metadata")]
    Missing,
    /// The line, or a quoted string in it, has no end.
    #[error("Invalid library metadata")]
    Malformed,
    /// There is an argument other than the name.
    #[error("Invalid metadata value given: {}", String::from_utf8_lossy(.0))]
    Unknown(Vec<u8>),
    /// There are several names.
    #[error("Invalid metadata value, name argument was given multiple times")]
    TwoNames,
    /// There is no name.
    #[error("Library name was not given")]
    NoName,
    /// The name has invalid characters or is empty.
    #[error(
        "Library names can only contain letters, numbers, or underscores(_) and must be at least one \
         character long"
    )]
    BadName,
}

impl Header {
    /// Parses the first line of `code`.
    ///
    /// # Errors
    /// If it is not the first line of a library.
    pub fn parse(code: &[u8]) -> Result<Self, HeaderError> {
        let rest = code.strip_prefix(b"#!").ok_or(HeaderError::Missing)?;
        // Redis reads a C string, which ends at a zero byte.
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
