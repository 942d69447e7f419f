//! Configuration files in the syntax of redis.conf.
//!
//! A line is empty, a comment that starts with `#`, or a name and its arguments (see [`tierce_wire::words`]).
//! `include` reads other files at its position. A path with `*`, `?` or `[` includes all matching files, ordered by
//! name, possibly none. As in Redis, a relative path starts at the working directory, not at the including file.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tierce_wire::glob::{self, Case};
use tierce_wire::words;

use super::error::{ConfigError, os_reason};
use super::origin::{Assignment, Origin};
use super::table::{FileLine, Handling};

/// Limit of a file's size. A larger file cannot be a configuration file.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// Limit of nested includes. A deeper chain must be circular.
const DEPTH_MAX: usize = 16;

/// Reads a file and all files that it includes.
///
/// # Errors
/// If a file cannot be read or understood.
pub(super) fn read(path: &Path) -> Result<Vec<Assignment>, ConfigError> {
    let mut assignments = Vec::new();
    read_into(path, 0, &mut assignments)?;
    Ok(assignments)
}

/// Reads from a stream, and all files that it includes. Messages call the stream `name`.
///
/// # Errors
/// If it or a file cannot be read or understood.
pub(super) fn read_stream(
    name: &Path,
    stream: &mut dyn Read,
) -> Result<Vec<Assignment>, ConfigError> {
    let text = read_bounded(stream, name)?;
    let mut assignments = Vec::new();
    expand(parse(&text, name)?, 0, &mut assignments)?;
    Ok(assignments)
}

fn read_into(path: &Path, depth: usize, out: &mut Vec<Assignment>) -> Result<(), ConfigError> {
    let mut file = File::open(path).map_err(|error| unreadable(path, &error))?;
    let text = read_bounded(&mut file, path)?;
    expand(parse(&text, path)?, depth, out)
}

fn read_bounded(stream: &mut dyn Read, path: &Path) -> Result<Vec<u8>, ConfigError> {
    let mut text = Vec::new();
    let mut bounded = stream.take(FILE_BYTES_MAX + 1);
    bounded.read_to_end(&mut text).map_err(|error| unreadable(path, &error))?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(ConfigError::TooLarge { path: path.to_owned(), limit: FILE_BYTES_MAX });
    }
    Ok(text)
}

fn unreadable(path: &Path, error: &io::Error) -> ConfigError {
    let hint = match error.kind() {
        io::ErrorKind::PermissionDenied => "; run as a user who may read it, or change its rights",
        io::ErrorKind::IsADirectory => "; name the file in it",
        _ => "",
    };
    ConfigError::Unreadable { path: path.to_owned(), reason: os_reason(error), hint: hint.into() }
}

/// Parses the lines of a text, without following `include`.
///
/// # Errors
/// If the quotes of a line are unbalanced.
pub(super) fn parse(text: &[u8], path: &Path) -> Result<Vec<Assignment>, ConfigError> {
    let path: Arc<Path> = path.into();
    let mut assignments = Vec::new();
    for (line, number) in text.split(|&byte| byte == b'\n').zip(1..) {
        let line = line.trim_ascii();
        if line.is_empty() || line.starts_with(b"#") {
            continue;
        }
        let mut words = words::split(line)
            .map_err(|_| ConfigError::UnbalancedQuotes { path: path.to_path_buf(), line: number })?
            .into_iter();
        let Some(name) = words.next() else { continue };
        let origin = Origin::File { path: path.clone(), line: number };
        assignments.push(Assignment { name, args: words.collect(), origin });
    }
    Ok(assignments)
}

/// Replaces each `include` by the contents of its files.
fn expand(
    lines: Vec<Assignment>,
    depth: usize,
    out: &mut Vec<Assignment>,
) -> Result<(), ConfigError> {
    for assignment in lines {
        let Some(pattern) = included(&assignment) else {
            out.push(assignment);
            continue;
        };
        if depth == DEPTH_MAX {
            return Err(ConfigError::TooDeep { assignment, limit: DEPTH_MAX });
        }
        let included = matching_files(pattern);
        let read = included
            .and_then(|paths| paths.iter().try_for_each(|path| read_into(path, depth + 1, out)));
        read.map_err(|error| included_by(&assignment, error))?;
    }
    Ok(())
}

/// Adds the including line to an error, unless the error already names a line.
fn included_by(assignment: &Assignment, error: ConfigError) -> ConfigError {
    match error {
        ConfigError::Unreadable { .. } | ConfigError::TooLarge { .. } => {
            ConfigError::Included { assignment: assignment.clone(), error: Box::new(error) }
        }
        other => other,
    }
}

/// Returns the argument of an `include` line. A wrong number of arguments is detected later.
fn included(assignment: &Assignment) -> Option<&[u8]> {
    let line = FileLine::find(&assignment.name)?;
    match assignment.args.as_slice() {
        [pattern] if line.handling == Handling::Include => Some(pattern),
        _ => None,
    }
}

/// Returns the files that match a path with wildcards, ordered by name. A path without wildcards stands for itself,
/// even if the file does not exist.
fn matching_files(pattern: &[u8]) -> Result<Vec<PathBuf>, ConfigError> {
    if !glob::is_pattern(pattern) {
        return Ok(vec![PathBuf::from(OsStr::from_bytes(pattern))]);
    }
    let root = if pattern.starts_with(b"/") { "/" } else { "" };
    let mut found = vec![PathBuf::from(root)];
    for component in pattern.split(|&byte| byte == b'/').filter(|part| !part.is_empty()) {
        found = if glob::is_pattern(component) {
            let mut next = Vec::new();
            for directory in &found {
                next.extend(matching_entries(directory, component)?);
            }
            next
        } else {
            found.into_iter().map(|path| path.join(OsStr::from_bytes(component))).collect()
        };
    }
    found.retain(|path| path.exists());
    found.sort();
    Ok(found)
}

/// Returns the matching entries of a directory; hidden ones only if the pattern starts with a dot.
fn matching_entries(directory: &Path, pattern: &[u8]) -> Result<Vec<PathBuf>, ConfigError> {
    let listed = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    let entries = match listed.read_dir() {
        Ok(entries) => entries,
        Err(error) if is_absence(&error) => return Ok(Vec::new()),
        Err(error) => return Err(unreadable(listed, &error)),
    };
    let mut found = Vec::new();
    for entry in entries {
        let name = entry.map_err(|error| unreadable(listed, &error))?.file_name();
        let bytes = name.as_bytes();
        let visible = !bytes.starts_with(b".") || pattern.starts_with(b".");
        if visible && glob::matches(pattern, bytes, Case::Sensitive) {
            found.push(directory.join(&name));
        }
    }
    Ok(found)
}

fn is_absence(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

#[cfg(test)]
mod tests {
    use super::{parse, read};
    use std::path::Path;
    use tierce_harness::TempDir;

    /// Formats the assignments as `name=arg,arg`, separated by blanks.
    fn shown(assignments: &[super::Assignment]) -> String {
        let text = |bytes: &Vec<u8>| String::from_utf8(bytes.clone()).expect("text");
        let show = |assignment: &super::Assignment| {
            let args: Vec<String> = assignment.args.iter().map(text).collect();
            format!("{}={}", text(&assignment.name), args.join(","))
        };
        assignments.iter().map(show).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn comments_and_blanks_are_skipped_and_lines_counted() {
        let text = b"# head\n\n  port 7000 \r\nsave \"\"\n\t#port 1\nBIND a b";
        let assignments = parse(text, Path::new("x.conf")).expect("valid");
        assert_eq!(shown(&assignments), "port=7000 save= BIND=a,b");
        let places: Vec<String> = assignments.iter().map(ToString::to_string).collect();
        assert_eq!(places, ["x.conf:3: port", "x.conf:4: save", "x.conf:6: BIND"]);
    }

    #[test]
    fn unbalanced_quotes_name_their_line() {
        let error = parse(b"\nport \"1\n", Path::new("x.conf")).expect_err("unbalanced");
        assert_eq!(error.to_string(), "x.conf:2: unbalanced quotes");
    }

    #[test]
    fn included_files_are_read_in_place_and_in_order() {
        let dir = TempDir::new();
        let inner = dir.write("conf.d/b.conf", "timeout 2\n");
        dir.write("conf.d/a.conf", "timeout 1\n");
        dir.write("conf.d/.hidden.conf", "timeout 3\n");
        dir.write("conf.d/c.txt", "timeout 4\n");
        let main = dir.write(
            "main.conf",
            &format!(
                "port 1\ninclude {0}/conf.d/*.conf\ninclude {0}/none/*.conf\n\
                 include {0}/*.d/[b]?conf\nport 2\n",
                dir.path().display()
            ),
        );
        let assignments = read(&main).expect("valid");
        assert_eq!(shown(&assignments), "port=1 timeout=1 timeout=2 timeout=2 port=2");
        assert_eq!(assignments[2].to_string(), format!("{}:1: timeout", inner.display()));
    }

    #[test]
    fn a_missing_file_is_an_error() {
        let dir = TempDir::new();
        let missing = dir.path().join("missing.conf");
        let main = dir.write("main.conf", &format!("port 1\ninclude {}\n", missing.display()));
        let outer = dir.write("outer.conf", &format!("include {}\n", main.display()));
        for path in [&main, &outer] {
            let error = read(path).expect_err("missing");
            let expected = format!(
                "{}:2: include: cannot read {}: No such file or directory",
                main.display(),
                missing.display()
            );
            assert_eq!(error.to_string(), expected);
        }
    }

    #[test]
    fn files_in_a_circle_are_an_error() {
        let dir = TempDir::new();
        let path = dir.path().join("circle.conf");
        dir.write("circle.conf", &format!("port 1\ninclude {}\n", path.display()));
        let error = read(&path).expect_err("endless");
        let expected =
            format!("{}:2: include: more than 16 files inside each other", path.display());
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn a_device_is_no_configuration() {
        let error = read(Path::new("/dev/zero")).expect_err("endless");
        assert!(error.to_string().starts_with("/dev/zero: larger than"), "{error}");
    }
}
