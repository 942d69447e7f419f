//! A selector: allowed commands, and the keys and channels on which they are allowed.
//!
//! A user may do everything that at least one of its selectors allows. The first selector, the root, consists of the
//! rules outside of parentheses.
//!
//! Rules on commands change a set of command identities at once. They are also kept as text, in the order that creates
//! this set from `+@all` or `-@all`: `ACL LIST` shows this text. A rule replaces an earlier rule about an equal command
//! or category. A rule about a command also replaces those about its subcommands.

use std::collections::BTreeMap;

use super::check::Denial;
use super::error::RuleError;
use super::pattern::{KeyPattern, Permission};
use crate::command::{ChannelUse, Command, CommandId, KeyFlags, Table, category};
use tierce_wire::glob::{self, Case};
use tierce_wire::resp::Args;

/// See the module.
#[derive(Clone, PartialEq, Debug)]
pub struct Selector {
    commands: CommandSet,
    /// True if commands of later versions are allowed: the rules begin with `+@all`.
    allows_by_default: bool,
    /// First arguments, in lower case, that make an otherwise denied command allowed.
    first_args: BTreeMap<u16, Vec<Vec<u8>>>,
    /// The rules on commands after `+@all` or `-@all`.
    command_rules: Vec<CommandRule>,
    keys: Patterns<KeyPattern>,
    channels: Patterns<Vec<u8>>,
}

/// `+name` or `-name`.
#[derive(Clone, PartialEq, Debug)]
struct CommandRule {
    allows: bool,
    /// A command, a subcommand, a command with a first argument, or a category with its sign.
    name: Vec<u8>,
}

/// All names, or those that match at least one pattern.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Patterns<P> {
    All,
    Some(Vec<P>),
}

impl<P> Patterns<P> {
    const NONE: Self = Self::Some(Vec::new());

    fn is_all(&self) -> bool {
        matches!(self, Self::All)
    }
}

/// A set of commands by their identities.
#[derive(Clone, PartialEq, Debug)]
struct CommandSet(Box<[u64]>);

impl CommandSet {
    fn none(table: &Table) -> Self {
        Self(vec![0; table.id_count().div_ceil(64)].into())
    }

    #[inline]
    fn contains(&self, id: CommandId) -> bool {
        let at = usize::from(id.0);
        self.0.get(at / 64).is_some_and(|word| word >> (at % 64) & 1 == 1)
    }

    fn set(&mut self, id: CommandId, on: bool) {
        let at = usize::from(id.0);
        let Some(word) = self.0.get_mut(at / 64) else { return };
        let bit = 1 << (at % 64);
        if on { *word |= bit } else { *word &= !bit }
    }

    fn set_all(&mut self, on: bool) {
        self.0.fill(if on { u64::MAX } else { 0 });
    }

    fn is_all(&self) -> bool {
        self.0.iter().all(|word| *word == u64::MAX)
    }
}

/// Channel rights of a new user or selector: `acl-pubsub-default`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChannelDefault {
    /// All channels.
    All,
    /// No channels.
    None,
}

impl Selector {
    /// Creates a selector that allows nothing, except channels as `channels` says.
    #[must_use]
    pub fn new(table: &Table, channels: ChannelDefault) -> Self {
        Self {
            commands: CommandSet::none(table),
            allows_by_default: false,
            first_args: BTreeMap::new(),
            command_rules: Vec::new(),
            keys: Patterns::NONE,
            channels: match channels {
                ChannelDefault::All => Patterns::All,
                ChannelDefault::None => Patterns::NONE,
            },
        }
    }

    /// Applies a rule on commands, keys or channels.
    ///
    /// # Errors
    /// If the rule is invalid. The selector is unchanged then.
    pub fn apply(&mut self, table: &Table, rule: &[u8]) -> Result<(), RuleError> {
        match rule.to_ascii_lowercase().as_slice() {
            b"allkeys" | b"~*" => self.keys = Patterns::All,
            b"resetkeys" => self.keys = Patterns::NONE,
            b"allchannels" | b"&*" => self.channels = Patterns::All,
            b"resetchannels" => self.channels = Patterns::NONE,
            b"allcommands" | b"+@all" => self.reset_commands(true),
            b"nocommands" | b"-@all" => self.reset_commands(false),
            _ => match rule {
                [b'~' | b'%', ..] => self.add_key_pattern(rule)?,
                [b'&', pattern @ ..] => self.add_channel_pattern(pattern)?,
                [sign @ (b'+' | b'-'), b'@', name @ ..] => {
                    self.set_category(table, name, *sign == b'+')?;
                }
                [b'+', name @ ..] => self.allow(table, name)?,
                [b'-', name @ ..] => {
                    let command = table.find_original_full(name).ok_or(RuleError::Unknown)?;
                    self.set_command(command, false);
                    self.note_rule(command.full_name.as_bytes(), false);
                }
                _ => return Err(RuleError::Syntax),
            },
        }
        Ok(())
    }

    fn add_key_pattern(&mut self, rule: &[u8]) -> Result<(), RuleError> {
        let Patterns::Some(patterns) = &mut self.keys else { return Err(RuleError::AfterAllKeys) };
        let (permission, text) = split_key_rule(rule).ok_or(RuleError::Syntax)?;
        match patterns.iter_mut().find(|pattern| pattern.text == text) {
            Some(there) => there.permission = there.permission.with(permission),
            None => patterns.push(KeyPattern::new(text, permission)),
        }
        // Otherwise the description would be that of a selector that accepts further patterns.
        let is_all =
            |pattern: &KeyPattern| pattern.is_any() && pattern.permission == Permission::ALL;
        if patterns.iter().any(is_all) {
            self.keys = Patterns::All;
        }
        Ok(())
    }

    fn add_channel_pattern(&mut self, text: &[u8]) -> Result<(), RuleError> {
        let Patterns::Some(patterns) = &mut self.channels else {
            return Err(RuleError::AfterAllChannels);
        };
        if has_spaces(text) {
            return Err(RuleError::Syntax);
        }
        if !patterns.iter().any(|pattern| pattern == text) {
            patterns.push(text.to_vec());
        }
        Ok(())
    }

    fn reset_commands(&mut self, allow: bool) {
        self.commands.set_all(allow);
        self.allows_by_default = allow;
        self.first_args.clear();
        self.command_rules.clear();
    }

    /// A rule about a container applies to all its subcommands.
    fn set_command(&mut self, command: &Command, allow: bool) {
        self.commands.set(command.id, allow);
        self.first_args.remove(&command.id.0);
        command.subcommands.iter().for_each(|sub| self.commands.set(sub.id, allow));
    }

    fn set_category(&mut self, table: &Table, name: &[u8], allow: bool) -> Result<(), RuleError> {
        let name = category::find(name).ok_or(RuleError::Unknown)?;
        self.note_rule(format!("@{name}").as_bytes(), allow);
        for command in table.all().filter(|command| command.spec.is_in(name)) {
            self.set_command(command, allow);
        }
        Ok(())
    }

    /// Allows `+command`, `+command|subcommand`, or `+command|argument` of a command without subcommands.
    fn allow(&mut self, table: &Table, name: &[u8]) -> Result<(), RuleError> {
        let Some(bar) = name.iter().rposition(|byte| *byte == b'|') else {
            let command = table.find_original_full(name).ok_or(RuleError::Unknown)?;
            self.set_command(command, true);
            self.note_rule(command.full_name.as_bytes(), true);
            return Ok(());
        };
        let (container, last) = (&name[..bar], &name[bar + 1..]);
        let command = table.find_original_full(container).ok_or(RuleError::Unknown)?;
        if command.is_subcommand() {
            return Err(RuleError::ArgumentOfSubcommand);
        }
        if last.is_empty() || has_spaces(last) {
            return Err(RuleError::Syntax);
        }
        if command.subcommands.is_empty() {
            let args = self.first_args.entry(command.id.0).or_default();
            let last = last.to_ascii_lowercase();
            // The list is sorted, so that the order of rules does not matter for equality.
            if let Err(at) = args.binary_search(&last) {
                args.insert(at, last);
            }
        } else {
            let sub = command.subcommand(last).ok_or(RuleError::Unknown)?;
            self.set_command(sub, true);
        }
        self.note_rule(name, true);
        Ok(())
    }

    fn note_rule(&mut self, name: &[u8], allows: bool) {
        let name = name.to_ascii_lowercase();
        let is_about = |rule: &CommandRule| {
            rule.name
                .strip_prefix(name.as_slice())
                .is_some_and(|rest| matches!(rest, [] | [b'|', ..]))
        };
        self.command_rules.retain(|rule| !is_about(rule));
        self.command_rules.push(CommandRule { allows, name });
    }

    /// Returns true if it allows everything.
    #[must_use]
    pub fn is_unrestricted(&self) -> bool {
        self.commands.is_all() && self.keys.is_all() && self.channels.is_all()
    }

    /// Checks a call, including the name of its command.
    ///
    /// # Errors
    /// The first denied part.
    pub fn check(&self, command: &Command, args: Args<'_>) -> Result<(), Denial> {
        if !self.allows_command(command, args) {
            return Err(Denial::Command);
        }
        self.check_keys(command, args)?;
        self.check_channels(command, args)
    }

    pub(super) fn allows_command(&self, command: &Command, args: Args<'_>) -> bool {
        let is_first_arg = || {
            let allowed = self.first_args.get(&command.id.0)?;
            let first = args.get(1)?;
            Some(allowed.iter().any(|arg| arg.eq_ignore_ascii_case(first)))
        };
        self.allows_any_call(command) || is_first_arg() == Some(true)
    }

    /// Returns true if it allows a command for all arguments. Keys and channels are checked elsewhere.
    pub(super) fn allows_any_call(&self, command: &Command) -> bool {
        command.may_precede_auth() || self.commands.contains(command.id)
    }

    fn check_keys(&self, command: &Command, args: Args<'_>) -> Result<(), Denial> {
        if self.keys.is_all() {
            return Ok(());
        }
        for keys in command.spec.keys {
            let needed = Permission::for_use(keys.flags.of_call(command.spec.name, args));
            for index in keys.indexes(args) {
                if !self.allows_key(args.at(index), needed) {
                    return Err(Denial::Key { index });
                }
            }
        }
        Ok(())
    }

    /// Returns true if it allows such a use of a key.
    #[must_use]
    pub fn allows_key(&self, key: &[u8], needed: Permission) -> bool {
        match &self.keys {
            Patterns::All => true,
            Patterns::Some(patterns) => patterns
                .iter()
                .any(|pattern| pattern.permission.includes(needed) && pattern.matches(key)),
        }
    }

    /// Returns true if it allows such a use of all keys.
    #[must_use]
    pub fn allows_all_keys(&self, flags: KeyFlags) -> bool {
        let needed = Permission::for_use(flags);
        match &self.keys {
            Patterns::All => true,
            Patterns::Some(patterns) => patterns
                .iter()
                .any(|pattern| pattern.permission.includes(needed) && pattern.is_any()),
        }
    }

    pub(super) fn keys(&self) -> &Patterns<KeyPattern> {
        &self.keys
    }

    fn check_channels(&self, command: &Command, args: Args<'_>) -> Result<(), Denial> {
        let Some(channels) = command.spec.channels else { return Ok(()) };
        let denied =
            channels.indexes(args).find(|at| !self.allows_channel(args.at(*at), channels.named_by));
        denied.map_or(Ok(()), |index| Err(Denial::Channel { index }))
    }

    /// Returns true if it allows a channel. A pattern is allowed only if it equals one of its own patterns.
    #[must_use]
    pub fn allows_channel(&self, name: &[u8], named_by: ChannelUse) -> bool {
        match (&self.channels, named_by) {
            (Patterns::All, _) => true,
            (Patterns::Some(patterns), ChannelUse::Pattern) => {
                patterns.iter().any(|pattern| pattern == name)
            }
            (Patterns::Some(patterns), ChannelUse::Name) => {
                patterns.iter().any(|pattern| glob::matches(pattern, name, Case::Sensitive))
            }
        }
    }
}

/// Description as text.
impl Selector {
    /// Returns all rules. They recreate an equal selector.
    #[must_use]
    pub fn describe(&self) -> Vec<u8> {
        let mut text = self.describe_keys();
        let channels = match &self.channels {
            Patterns::All => b"&*".to_vec(),
            Patterns::Some(patterns) if patterns.is_empty() => b"resetchannels".to_vec(),
            Patterns::Some(_) => [b"resetchannels ", self.describe_channels().as_slice()].concat(),
        };
        for part in [channels, self.describe_commands()] {
            if !text.is_empty() {
                text.push(b' ');
            }
            text.extend(part);
        }
        text
    }

    /// Returns the rules on commands.
    #[must_use]
    pub fn describe_commands(&self) -> Vec<u8> {
        let mut text = if self.allows_by_default { b"+@all".to_vec() } else { b"-@all".to_vec() };
        for rule in &self.command_rules {
            text.extend(if rule.allows { b" +" } else { b" -" });
            text.extend(&rule.name);
        }
        text
    }

    /// Returns the patterns of keys.
    #[must_use]
    pub fn describe_keys(&self) -> Vec<u8> {
        match &self.keys {
            Patterns::All => b"~*".to_vec(),
            Patterns::Some(patterns) => joined(patterns, KeyPattern::describe_into),
        }
    }

    /// Returns the patterns of channels.
    #[must_use]
    pub fn describe_channels(&self) -> Vec<u8> {
        match &self.channels {
            Patterns::All => b"&*".to_vec(),
            Patterns::Some(patterns) => joined(patterns, |pattern, text| {
                text.push(b'&');
                text.extend(pattern);
            }),
        }
    }
}

fn joined<T>(items: &[T], describe_into: impl Fn(&T, &mut Vec<u8>)) -> Vec<u8> {
    let mut text = Vec::new();
    for item in items {
        if !text.is_empty() {
            text.push(b' ');
        }
        describe_into(item, &mut text);
    }
    text
}

/// Splits `~pattern` or `%RW~pattern` into permission and pattern.
fn split_key_rule(rule: &[u8]) -> Option<(Permission, &[u8])> {
    let (permission, text) = match rule {
        [b'~', text @ ..] => (Permission::ALL, text),
        [b'%', rest @ ..] => {
            // Without a tilde the pattern is empty, as in Redis.
            let tilde = rest.iter().position(|byte| *byte == b'~');
            let (letters, text) = match tilde {
                Some(tilde) => (&rest[..tilde], &rest[tilde + 1..]),
                None => (rest, &rest[rest.len()..]),
            };
            (parse_permission(letters)?, text)
        }
        _ => return None,
    };
    (!has_spaces(text)).then_some((permission, text))
}

/// Parses `R`, `W` or both, each at most once.
fn parse_permission(letters: &[u8]) -> Option<Permission> {
    match letters.to_ascii_uppercase().as_slice() {
        b"R" => Some(Permission::READ),
        b"W" => Some(Permission::WRITE),
        b"RW" | b"WR" => Some(Permission::ALL),
        _ => None,
    }
}

/// Returns true if a text is not a single word of a line.
pub(super) fn has_spaces(text: &[u8]) -> bool {
    text.iter().any(|byte| matches!(byte, 0 | b'\t'..=b'\r' | b' '))
}
