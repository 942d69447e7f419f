//! The manifest of an append-only directory: its current files, in order.
//!
//! One line per file: `file <name> seq <number> type <b|i|h>`, for base, increment and history. Redis will delete
//! the history files. A name with special bytes is quoted. Lines that begin with `#` are comments. Other key-value
//! pairs come from later versions and are ignored.

use std::fmt::Write;

/// The files of an append-only directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manifest {
    /// Base: an RDB file or a file of commands.
    pub base: Option<Member>,
    /// Files of later commands, in ascending order.
    pub increments: Vec<Member>,
    /// Files that are no longer needed.
    pub history: Vec<Member>,
}

/// A file of an append-only directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its name in the directory, without any path.
    pub name: String,
    /// Sequence number.
    pub seq: u64,
}

/// Fault in a manifest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} of the manifest: expected {expected}")]
pub struct ManifestError {
    /// Line number, from 1.
    pub line: usize,
    /// Syntax expected in its place.
    pub expected: &'static str,
}

impl Manifest {
    /// Returns the manifest of a new directory: a base in RDB format and an empty increment. The prefix is the
    /// value of the directive `appendfilename`.
    pub fn fresh(prefix: &str) -> Self {
        let base = Member { name: format!("{prefix}.1.base.rdb"), seq: 1 };
        let increment = Member { name: format!("{prefix}.1.incr.aof"), seq: 1 };
        Manifest { base: Some(base), increments: vec![increment], history: Vec::new() }
    }

    /// Returns the name of the manifest itself.
    pub fn file_name(prefix: &str) -> String {
        format!("{prefix}.manifest")
    }

    /// Returns the files to read, in order.
    pub fn files(&self) -> impl Iterator<Item = &Member> {
        self.base.iter().chain(&self.increments)
    }

    /// Parses a manifest.
    ///
    /// # Errors
    /// Fails if there is no file, a line is invalid, a name points outside the directory, there are two bases, or
    /// increments do not ascend.
    pub fn parse(text: &[u8]) -> Result<Self, ManifestError> {
        let mut manifest = Manifest::default();
        let text = text.strip_suffix(b"\n").unwrap_or(text);
        let lines = text.split(|&byte| byte == b'\n');
        for (at, line) in lines.clone().enumerate() {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if line.first() != Some(&b'#') {
                let added = manifest.add(line);
                added.map_err(|expected| ManifestError { line: at + 1, expected })?;
            }
        }
        if manifest == Manifest::default() {
            return Err(ManifestError { line: lines.count(), expected: "a file" });
        }
        Ok(manifest)
    }

    fn add(&mut self, line: &[u8]) -> Result<(), &'static str> {
        let (member, kind) = parse_line(line)?;
        match kind {
            b'b' if self.base.is_some() => return Err("one base only"),
            b'b' => self.base = Some(member),
            b'h' => self.history.push(member),
            _ => {
                if self.increments.last().is_some_and(|last| last.seq >= member.seq) {
                    return Err("increments in ascending order");
                }
                self.increments.push(member);
            }
        }
        Ok(())
    }

    /// Returns the manifest as text.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        let mut put = |members: &[Member], kind: char| {
            for Member { name, seq } in members {
                let name = quote(name);
                let line = writeln!(text, "file {name} seq {seq} type {kind}");
                line.expect("a string takes everything");
            }
        };
        put(self.base.as_slice(), 'b');
        put(&self.history, 'h');
        put(&self.increments, 'i');
        text
    }
}

fn parse_line(line: &[u8]) -> Result<(Member, u8), &'static str> {
    let words = split(line).ok_or("words with closed quotes")?;
    let (mut name, mut seq, mut kind) = (None, None, None);
    let (pairs, odd) = words.as_chunks::<2>();
    if !odd.is_empty() {
        return Err("pairs of words");
    }
    for [key, value] in pairs {
        match key.to_ascii_lowercase().as_slice() {
            b"file" => name = Some(file_name(value)?),
            b"seq" => seq = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok()),
            b"type" => kind = value.first().copied().filter(|kind| b"bih".contains(kind)),
            _ => {}
        }
    }
    let name = name.ok_or("the name of a file")?;
    let seq = seq.ok_or("the number of a file")?;
    Ok((Member { name, seq }, kind.ok_or("a type b, i or h")?))
}

fn file_name(name: &[u8]) -> Result<String, &'static str> {
    let name = std::str::from_utf8(name).map_err(|_| "a file name in UTF-8")?;
    let leads_out = name.is_empty() || name == "." || name == ".." || name.contains(['/', '\0']);
    if leads_out { Err("the name of a file in this directory") } else { Ok(name.to_owned()) }
}

/// Splits a line into words, which may be in double quotes; `None` if a quote is not closed.
fn split(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut words = Vec::new();
    let mut rest = line.trim_ascii();
    while !rest.is_empty() {
        let word = if let Some(quoted) = rest.strip_prefix(b"\"") {
            let (word, after) = unquote(quoted)?;
            rest = after;
            word
        } else {
            let end = rest.iter().position(u8::is_ascii_whitespace).unwrap_or(rest.len());
            let (word, after) = rest.split_at(end);
            rest = after;
            word.to_vec()
        };
        words.push(word);
        rest = rest.trim_ascii_start();
    }
    Some(words)
}

/// Returns the text before the closing quote, and the bytes behind it.
fn unquote(mut rest: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut word = Vec::new();
    loop {
        match rest {
            [b'"', after @ ..] => return Some((word, after)),
            [b'\\', b'x', high, low, after @ ..] => {
                let digits = [*high, *low];
                let digits = std::str::from_utf8(&digits).ok()?;
                word.push(u8::from_str_radix(digits, 16).ok()?);
                rest = after;
            }
            [b'\\', escaped, after @ ..] => {
                word.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'a' => 7,
                    b'b' => 8,
                    other => *other,
                });
                rest = after;
            }
            [byte, after @ ..] => {
                word.push(*byte);
                rest = after;
            }
            [] => return None,
        }
    }
}

/// Returns a name as a word, in quotes if it needs them.
fn quote(name: &str) -> String {
    let special = |byte: u8| !byte.is_ascii_graphic() || matches!(byte, b'"' | b'\\' | b'\'');
    if !name.bytes().any(special) {
        return name.to_owned();
    }
    let mut quoted = String::from("\"");
    for byte in name.bytes() {
        if byte == b' ' || !special(byte) {
            quoted.push(char::from(byte));
        } else {
            write!(quoted, "\\x{byte:02x}").expect("a string takes everything");
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tierce_harness::effort;

    #[test]
    fn reads_what_redis_wrote() {
        let text = b"file appendonly.aof.2.base.rdb seq 2 type b\n\
            file appendonly.aof.1.incr.aof seq 1 type h\n\
            # a remark\n\
            file appendonly.aof.2.incr.aof seq 2 type i\n\
            file \"with space.3.incr.aof\" seq 3 type i startoffset 7\n";
        let manifest = Manifest::parse(text).unwrap();
        let names: Vec<_> = manifest.files().map(|member| member.name.as_str()).collect();
        let expected =
            ["appendonly.aof.2.base.rdb", "appendonly.aof.2.incr.aof", "with space.3.incr.aof"];
        assert_eq!(names, expected);
        assert_eq!(manifest.history[0].seq, 1);
    }

    #[test]
    fn refuses_what_redis_refuses() {
        for (text, line) in [
            (&b"file a seq 1 type b\nfile b seq 1 type b\n"[..], 2),
            (b"file a seq 2 type i\nfile b seq 1 type i", 2),
            (b"file ../a seq 1 type b", 1),
            (b"file a seq 1", 1),
            (b"file a seq x type b", 1),
            (b"file a seq 1 type q", 1),
            (b"file \"a seq 1 type b", 1),
            (b"file a seq 1 type b\n\nfile b seq 1 type i", 2),
            (b"", 1),
            (b"# a remark\n# another\n", 2),
        ] {
            let error = Manifest::parse(text).unwrap_err();
            assert_eq!(error.line, line, "{}", String::from_utf8_lossy(text));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(effort(256)))]

        #[test]
        fn a_manifest_comes_back(prefix in "[^/\0]{1,20}") {
            let manifest = Manifest::fresh(&prefix);
            prop_assert_eq!(Manifest::parse(manifest.to_text().as_bytes()), Ok(manifest));
        }

        #[test]
        fn any_bytes_are_read_or_refused(text: Vec<u8>) {
            if let Ok(manifest) = Manifest::parse(&text) {
                prop_assert!(manifest.files().count() + manifest.history.len() <= text.len());
            }
        }
    }
}
