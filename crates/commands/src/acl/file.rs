//! Users in a file (`aclfile`): a line `user name rule ...` for each. Empty lines and lines that begin with `#` say
//! nothing.

use std::fs;
use std::io;
use std::path::Path;

use super::Acl;
use super::error::RulesError;
use super::user::{Terms, User};
use super::users::Users;
use crate::config::{Settings, replace_file};

/// Why a file is not loaded: all that is wrong with it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct FileError(String);

/// Makes the users of a configuration, or those of its `aclfile`.
///
/// # Errors
/// If a rule is none, or the file cannot be read.
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

/// The same while clients may have users saved.
///
/// # Errors
/// As [`load_configured`].
pub fn load(settings: &Settings, acl: &Acl, terms: Terms<'_>) -> Result<(), FileError> {
    let _alone = acl.file.lock();
    load_configured(settings, &acl.users, terms)
}

/// The users of a file, whose names are of no user before.
///
/// # Errors
/// If the file cannot be read, or has a line that is wrong.
fn read(path: &Path, users: &Users, terms: Terms<'_>) -> Result<Vec<User>, FileError> {
    let text = fs::read(path).map_err(|error| {
        let (path, reason) = (path.display(), crate::config::os_reason(&error));
        FileError(format!("Error loading ACLs, opening file '{path}': {reason}"))
    })?;
    parse(&text, path, users, terms)
}

/// The same of a text, which is said to be from there.
///
/// # Errors
/// If a line is wrong.
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
            // Not the rule itself if it is a password.
            let rule = match rule.first() {
                Some(b'>' | b'<') => "(redacted)".into(),
                _ => String::from_utf8_lossy(rule),
            };
            format!("Error in applying operation '{rule}': {error}.")
        }
    }
}

/// Writes all users, one writer at a time. After a crash there is the old file or the new one.
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
