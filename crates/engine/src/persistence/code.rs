//! Named libraries of functions and scripts in RDB files.
//!
//! Redis' format has an item for a library: its source, whose first line names it. Redis does not know scripts by
//! name: each is an auxiliary field, which Redis skips.

use std::io::Write;

use tierce_keyspace::{CODE_NAME_LEN_MAX, CodeKind, CodeSet};
use tierce_rdb::{Result, Writer};

use crate::library::Header;

/// Name of the auxiliary field of a script.
pub(super) const SCRIPT_REMARK: &[u8] = b"tierce-script";

/// The only supported engine.
const ENGINE: &[u8] = b"lua";

/// A named script, in a file: the length of its name in decimal digits, a colon, the name, and the source.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NamedScript<'a> {
    /// Its name.
    pub name: &'a [u8],
    /// Its source.
    pub source: &'a [u8],
}

impl<'a> NamedScript<'a> {
    /// Decodes the text of the auxiliary field. Returns `None` if it is malformed.
    pub(super) fn read(text: &'a [u8]) -> Option<Self> {
        let colon = text.iter().position(|byte| *byte == b':')?;
        let len: usize = std::str::from_utf8(&text[..colon]).ok()?.parse().ok()?;
        let (name, source) = text[colon + 1..].split_at_checked(len)?;
        (1..=CODE_NAME_LEN_MAX).contains(&len).then_some(Self { name, source })
    }

    fn text(&self) -> Vec<u8> {
        [format!("{}:", self.name.len()).as_bytes(), self.name, self.source].concat()
    }
}

/// Returns the name of a library in a file.
///
/// # Errors
/// A description of the source, if it is not a supported library.
pub fn library_name(source: &[u8]) -> std::result::Result<Vec<u8>, String> {
    match Header::parse(source) {
        Ok(Header { engine, name }) if engine.eq_ignore_ascii_case(ENGINE) => Ok(name),
        Ok(Header { engine, name }) => Err(format!(
            "the library of functions {} for the engine {}",
            name.escape_ascii(),
            engine.escape_ascii()
        )),
        Err(error) => Err(format!("a library of functions that is none ({error})")),
    }
}

/// Writes all code.
pub(super) fn write<W: Write>(writer: &mut Writer<W>, code: &CodeSet) -> Result<()> {
    for (name, source) in code.of(CodeKind::Script) {
        writer.aux(SCRIPT_REMARK, &NamedScript { name, source }.text())?;
    }
    code.of(CodeKind::Library).try_for_each(|(_, source)| writer.function(source))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_comes_back() {
        for (name, source) in [(&b"a"[..], &b""[..]), (b"a:b\0", b"return 1"), (b"12", b"3:4")] {
            let script = NamedScript { name, source };
            assert_eq!(NamedScript::read(&script.text()), Some(script));
        }
        for text in
            [&b""[..], b"1", b":a", b"0:a", b"2:a", b"-1:a", b"x:a", b"18446744073709551616:a"]
        {
            assert_eq!(NamedScript::read(text), None, "{}", text.escape_ascii());
        }
    }

    #[test]
    fn only_libraries_in_lua_are_known() {
        assert_eq!(library_name(b"#!LUA name=a\n").unwrap(), b"a");
        let what = library_name(b"#!js name=a\n").unwrap_err();
        assert_eq!(what, "the library of functions a for the engine js");
        let what = library_name(b"return 1").unwrap_err();
        assert_eq!(what, "a library of functions that is none (Missing library metadata)");
    }
}
