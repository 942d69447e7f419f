//! A user: its passwords and its rights.
//!
//! A user is immutable once others can see it. A change creates another `User` with the same identity, which replaces
//! it ([`Users`](super::Users)).

use std::borrow::Cow;
use std::fmt;

use super::error::{RuleError, RulesError};
use super::password::PasswordHash;
use super::selector::{ChannelDefault, Selector, has_spaces};
use super::shortcuts::Shortcuts;
use crate::command::{Command, Table};
use tierce_wire::resp::Args;
use tierce_wire::words;

/// The user of connections that have not authenticated.
pub const DEFAULT: &[u8] = b"default";

/// Identifies a user for the life of the server. A user that is removed and added again gets a new identity.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UserId(pub(super) u64);

/// See the module.
#[derive(Clone, Debug)]
pub struct User {
    id: UserId,
    name: Vec<u8>,
    is_on: bool,
    /// True if any password is accepted.
    needs_no_password: bool,
    /// Flag that `ACL GETUSER` reports about `RESTORE`. The server checks all payloads in any case.
    checks_payloads: bool,
    passwords: Vec<PasswordHash>,
    /// The first one is the root. A removed user has none.
    selectors: Vec<Selector>,
    is_unrestricted: bool,
    shortcuts: Shortcuts,
}

/// Context for applying rules: the command table, and the channel rights of a new selector.
#[derive(Clone, Copy)]
pub struct Terms<'a> {
    /// The commands.
    pub table: &'a Table,
    /// `acl-pubsub-default`.
    pub channels: ChannelDefault,
}

impl User {
    /// Creates a user that is off, has no password and no rights.
    #[must_use]
    pub fn new(id: UserId, name: &[u8], terms: Terms<'_>) -> Self {
        let mut user = Self {
            id,
            name: name.to_vec(),
            is_on: false,
            needs_no_password: false,
            checks_payloads: true,
            passwords: Vec::new(),
            selectors: vec![Selector::new(terms.table, terms.channels)],
            is_unrestricted: false,
            shortcuts: Shortcuts::none(),
        };
        user.compile(terms.table);
        user
    }

    /// Creates the default user of a server without a configuration, with all rights.
    #[must_use]
    pub fn default_user(id: UserId, terms: Terms<'_>) -> Self {
        let mut user = Self::new(id, DEFAULT, terms);
        let rules = [&b"+@all"[..], b"~*", b"&*", b"on", b"nopass"];
        user.apply_all(&rules, terms).expect("rules without names");
        user
    }

    /// Returns true if this is a valid name of a user.
    #[must_use]
    pub fn is_name(name: &[u8]) -> bool {
        !has_spaces(name)
    }

    /// Applies rules in their order.
    ///
    /// # Errors
    /// If a rule is invalid. The user must be discarded then.
    pub fn apply_all(&mut self, rules: &[&[u8]], terms: Terms<'_>) -> Result<(), RulesError> {
        for rule in merge_selectors(rules)? {
            self.apply(&rule, terms)
                .map_err(|error| RulesError::Rule { rule: rule.into_owned(), error })?;
        }
        self.compile(terms.table);
        Ok(())
    }

    fn apply(&mut self, rule: &[u8], terms: Terms<'_>) -> Result<(), RuleError> {
        match rule.to_ascii_lowercase().as_slice() {
            b"" => {}
            b"on" => self.is_on = true,
            b"off" => self.is_on = false,
            b"nopass" => {
                self.needs_no_password = true;
                self.passwords.clear();
            }
            b"resetpass" => {
                self.needs_no_password = false;
                self.passwords.clear();
            }
            b"sanitize-payload" => self.checks_payloads = true,
            b"skip-sanitize-payload" => self.checks_payloads = false,
            b"clearselectors" => self.selectors.truncate(1),
            b"reset" => *self = Self::new(self.id, &self.name, terms),
            _ => match rule {
                [b'>', password @ ..] => self.add_password(PasswordHash::of(password)),
                [b'#', hash @ ..] => {
                    self.add_password(PasswordHash::parse(hash).ok_or(RuleError::NotAHash)?);
                }
                [b'<', password @ ..] => self.remove_password(PasswordHash::of(password))?,
                [b'!', hash @ ..] => {
                    self.remove_password(PasswordHash::parse(hash).ok_or(RuleError::NotAHash)?)?;
                }
                [b'(', inner @ .., b')'] => self.selectors.push(selector_of(inner, terms)?),
                _ => self.selectors[0].apply(terms.table, rule)?,
            },
        }
        Ok(())
    }

    fn add_password(&mut self, hash: PasswordHash) {
        self.needs_no_password = false;
        if !self.passwords.contains(&hash) {
            self.passwords.push(hash);
        }
    }

    fn remove_password(&mut self, hash: PasswordHash) -> Result<(), RuleError> {
        let at = self.passwords.iter().position(|there| *there == hash);
        self.passwords.remove(at.ok_or(RuleError::NoSuchPassword)?);
        Ok(())
    }

    /// Precomputes the data that each request uses.
    fn compile(&mut self, table: &Table) {
        self.is_unrestricted = self.selectors.iter().any(Selector::is_unrestricted);
        self.shortcuts = Shortcuts::of(&self.selectors[0], table);
    }

    /// Returns a user with these rules and another identity.
    #[must_use]
    pub(super) fn with_id(self, id: UserId) -> Self {
        Self { id, ..self }
    }

    /// Returns this user without any rights, for connections that outlive its removal.
    #[must_use]
    pub(super) fn without_rights(&self) -> Self {
        Self {
            selectors: Vec::new(),
            is_unrestricted: false,
            shortcuts: Shortcuts::none(),
            ..self.clone()
        }
    }

    /// Returns its identity.
    #[must_use]
    pub fn id(&self) -> UserId {
        self.id
    }

    /// Returns its name.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// Returns its name for messages.
    #[must_use]
    pub fn display_name(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.name)
    }

    /// Returns true if it may authenticate.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.is_on
    }

    /// Returns true if it accepts any password.
    #[must_use]
    pub fn needs_no_password(&self) -> bool {
        self.needs_no_password
    }

    /// Returns true if connections need not authenticate, for the default user.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.is_on && self.needs_no_password
    }

    /// Returns true if it may do everything.
    #[must_use]
    #[inline]
    pub fn is_unrestricted(&self) -> bool {
        self.is_unrestricted
    }

    /// Returns true if this is its password. The time does not depend on the position of the first difference.
    #[must_use]
    pub fn accepts(&self, password: &[u8]) -> bool {
        let candidate = PasswordHash::of(password);
        let is_one = self.passwords.iter().fold(false, |seen, hash| seen | (*hash == candidate));
        self.is_on && (self.needs_no_password | is_one)
    }

    /// Returns its selectors, the root first.
    #[must_use]
    pub fn selectors(&self) -> &[Selector] {
        &self.selectors
    }

    /// Returns true if a fast check suffices to allow a call. Otherwise see [`User::check`].
    #[must_use]
    #[inline(always)]
    pub fn allows_at_once(&self, command: &Command, args: Args<'_>) -> bool {
        self.shortcuts.allow(command, args)
    }

    /// Returns the flags that `ACL GETUSER` reports.
    pub fn flags(&self) -> impl Iterator<Item = &'static str> {
        let on = if self.is_on { "on" } else { "off" };
        let payloads =
            if self.checks_payloads { "sanitize-payload" } else { "skip-sanitize-payload" };
        [Some(on), self.needs_no_password.then_some("nopass"), Some(payloads)].into_iter().flatten()
    }

    /// Returns the hashes of its passwords.
    #[must_use]
    pub fn passwords(&self) -> &[PasswordHash] {
        &self.passwords
    }

    /// Returns its name and rules. They recreate this user: `user` and this text form a line of a configuration.
    #[must_use]
    pub fn describe(&self) -> Vec<u8> {
        let mut line = self.name.clone();
        for flag in self.flags() {
            line.push(b' ');
            line.extend(flag.as_bytes());
        }
        for hash in &self.passwords {
            line.extend(format!(" #{hash}").as_bytes());
        }
        for (at, selector) in self.selectors.iter().enumerate() {
            let rules = selector.describe();
            match at {
                0 => line.extend([b" ", rules.as_slice()].concat()),
                _ => line.extend([b" (", in_parentheses(&rules).as_slice(), b")"].concat()),
            }
        }
        line
    }
}

/// Users are equal if their descriptions are.
impl PartialEq for User {
    fn eq(&self, other: &Self) -> bool {
        self.describe() == other.describe()
    }
}

impl fmt::Display for UserId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Creates a selector from the rules between parentheses.
fn selector_of(rules: &[u8], terms: Terms<'_>) -> Result<Selector, RuleError> {
    let mut selector = Selector::new(terms.table, terms.channels);
    for rule in words::split(rules).map_err(|_| RuleError::Syntax)? {
        selector.apply(terms.table, &rule)?;
    }
    Ok(selector)
}

/// Formats rules for [`selector_of`]. Quotes those that end with a parenthesis, which would end the selector.
fn in_parentheses(rules: &[u8]) -> Vec<u8> {
    let quoted = rules.split(|byte| *byte == b' ').map(|rule| match rule {
        [.., b')'] => Cow::Owned(words::quote(rule)),
        _ => words::quote_if_needed(rule),
    });
    quoted.collect::<Vec<_>>().join(&b' ')
}

/// Joins the rules of each selector. A selector may span several arguments: from the one that begins with a parenthesis
/// to the one that ends with a parenthesis.
fn merge_selectors<'a>(rules: &[&'a [u8]]) -> Result<Vec<Cow<'a, [u8]>>, RulesError> {
    let mut merged = Vec::with_capacity(rules.len());
    let mut rules = rules.iter();
    while let Some(&first) = rules.next() {
        if !first.starts_with(b"(") || first.ends_with(b")") {
            merged.push(Cow::Borrowed(first));
            continue;
        }
        let mut selector = first.to_vec();
        while !selector.ends_with(b")") {
            let next = rules.next().ok_or_else(|| RulesError::Unmatched(first.to_vec()))?;
            selector.push(b' ');
            selector.extend(*next);
        }
        merged.push(Cow::Owned(selector));
    }
    Ok(merged)
}
