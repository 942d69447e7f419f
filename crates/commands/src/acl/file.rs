//! The users in an `aclfile`, one line `user name rule ...` each. Empty lines and lines that begin with `#` are
//! ignored.

use std::fs;
use std::io;
use std::path::Path;

use super::Acl;
use super::error::RulesError;
use super::user::{Terms, User};
use super::users::Users;
use crate::config::{Settings, replace_file};

/// All errors in a file that could not be loaded.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct FileError(String);

/// Loads the users of the configuration, or those of its `aclfile`.
///
/// # Errors
/// If a rule is invalid, or the file cannot be read.
pub fn load_configured(
    settings: &Settings,
    users: &Users,
    terms: Terms<'_>,
) -> Result<(), FileError> {
    if let Some(path) = settings.acl_file() {
        users.replace(read(&path, users, terms)?, terms);
        return Ok(());
    }
    for user in settings.users() {
        if !User::is_name(&user.name) {
            let why = "Usernames can't contain spaces or null characters";
            return Err(FileError(format!("{}: {why}", user.place)));
        }
        let rules = std::iter::once(&b"reset"[..]).chain(user.rules.iter().map(Vec::as_slice));
        users
            .change(&user.name, &rules.collect::<Vec<_>>(), terms)
            .map_err(|error| FileError(format!("{}: {}", user.place, describe(&error))))?;
    }
    Ok(())
}

/// Like [`load_configured`], for a running server: waits while a client saves or loads users.
///
/// # Errors
/// As [`load_configured`].
pub fn load(settings: &Settings, acl: &Acl, terms: Terms<'_>) -> Result<(), FileError> {
    let _alone = acl.file.lock();
    load_configured(settings, &acl.users, terms)
}

/// Reads the users of a file. Each has a new identity.
///
/// # Errors
/// If the file cannot be read, or a line is invalid.
fn read(path: &Path, users: &Users, terms: Terms<'_>) -> Result<Vec<User>, FileError> {
    let text = fs::read(path).map_err(|error| {
        let (path, reason) = (path.display(), crate::config::os_reason(&error));
        FileError(format!("Error loading ACLs, opening file '{path}': {reason}"))
    })?;
    parse(&text, path, users, terms)
}

/// Parses the text of such a file. `path` only appears in error messages.
///
/// # Errors
/// If a line is invalid.
pub(super) fn parse(
    text: &[u8],
    path: &Path,
    users: &Users,
    terms: Terms<'_>,
) -> Result<Vec<User>, FileError> {
    let (mut found, mut errors): (Vec<User>, Vec<String>) = (Vec::new(), Vec::new());
    let place = |number: usize| format!("{}:{number}", path.display());
    for (line, number) in text.split(|byte| *byte == b'\n').zip(1..) {
        let line = line.trim_ascii();
        if line.is_empty() || line.starts_with(b"#") {
            continue;
        }
        let words: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
        let [b"user", name, rules @ ..] = words.as_slice() else {
            errors.push(format!(
                "{} should start with user keyword followed by the username.",
                place(number)
            ));
            continue;
        };
        if found.iter().any(|user| user.name() == *name) {
            let name = String::from_utf8_lossy(name);
            errors.push(format!("WARNING: Duplicate user '{name}' found on line {number}."));
            continue;
        }
        let mut user = users.new_user(name, terms);
        match user.apply_all(rules, terms) {
            Ok(()) => found.push(user),
            Err(error) => errors.push(format!("{}: {}", place(number), describe(&error))),
        }
    }
    if errors.is_empty() {
        return Ok(found);
    }
    errors.push(
        "WARNING: ACL errors detected, no change to the previously active ACL rules was performed"
            .to_owned(),
    );
    Err(FileError(errors.join(" ")))
}

fn describe(error: &RulesError) -> String {
    match error {
        RulesError::Unmatched(_) => "Unmatched parenthesis in selector definition.".to_owned(),
        RulesError::Rule { error: error @ super::RuleError::Syntax, .. } => format!("{error}."),
        RulesError::Rule { rule, error } => {
            // A rule with a password is not shown.
            let rule = match rule.first() {
                Some(b'>' | b'<') => "(redacted)".into(),
                _ => String::from_utf8_lossy(rule),
            };
            format!("Error in applying operation '{rule}': {error}.")
        }
    }
}

/// Writes all users; concurrent writers take turns. After a crash the file has either the old or the new content.
///
/// # Errors
/// If the file cannot be written.
pub fn save(path: &Path, acl: &Acl) -> io::Result<()> {
    let _alone = acl.file.lock();
    let lines = acl
        .users
        .all()
        .into_iter()
        .flat_map(|user| [b"user ", user.describe().as_slice(), b"\n"].concat());
    replace_file(path, &lines.collect::<Vec<u8>>())
}
