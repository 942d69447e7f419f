//! A row of the table: all that is known about one directive, apart from its value.

use super::kind::{Invalid, Kind};
use super::value::Value;

/// One directive.
#[derive(Clone, Copy, Debug)]
pub struct Directive {
    /// The name, in lower case.
    pub name: &'static str,
    /// The name of older days, which means the same everywhere.
    pub alias: Option<&'static str>,
    /// The chapter of the documentation it belongs to.
    pub group: Group,
    /// What values it takes.
    pub kind: Kind,
    /// The default, in the words of a user.
    pub default: &'static str,
    /// The default of Redis 7.2, where ours is another one.
    pub redis_default: Option<&'static str>,
    /// The version of Tierce that brought it, if Redis does not have it.
    pub own_since: Option<&'static str>,
    /// What it is good for, in a sentence or two.
    pub about: &'static str,
    /// When it may be changed.
    pub mutability: Mutability,
    /// Whether patterns find it.
    pub visibility: Visibility,
    /// What a value stands for.
    pub meaning: Meaning,
    /// Whether its values may be shown to others than its owner.
    pub secrecy: Secrecy,
    /// What becomes of values other than the default.
    pub effect: Effect,
    /// A rule beyond the kind.
    pub check: Option<Check>,
}

/// A rule beyond what a kind can say.
pub type Check = fn(&Value) -> Result<(), Invalid>;

/// When a directive may be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutability {
    /// By CONFIG SET at any time.
    AtAnyTime,
    /// By CONFIG SET if `enable-protected-configs` allows it: an attacker could do harm with it.
    IfUnprotected,
    /// Only before the start.
    BeforeStart,
    /// Only before the start, and for that start: CONFIG REWRITE leaves it at its default.
    ForOneStart,
}

/// Whether patterns of CONFIG GET and the documentation find the directive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visibility {
    /// It is public.
    Listed,
    /// For tests; one has to know its name.
    Hidden,
}

/// What a value stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// Itself.
    Itself,
    /// The contents of a file of this name, so that CONFIG SET to the same value can be a change.
    Contents,
}

/// Whether the directive's values are passwords and the like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Secrecy {
    /// May appear in logs and messages.
    Open,
    /// Appears in CONFIG GET and in the configuration file, nowhere else.
    Secret,
}

/// What becomes of values other than the default. No user may believe that something is in force
/// which is not: what would change security, durability, the role, or who is reached where, acts
/// or is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It does what it says.
    Acts,
    /// It tunes something that works differently here. Any value is checked, kept, shown and
    /// rewritten, and changes nothing, for this reason.
    Accepted(&'static str),
    /// The start and CONFIG SET fail.
    Refused {
        /// Values besides the default that are no reason to fail: they act, or ask for nothing.
        except: &'static [&'static str],
        /// The reason, and what to do instead.
        why: &'static str,
    },
}

/// The chapters of the documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Listening and connections.
    Network,
    /// The protocols of memcached.
    Memcached,
    /// The protocol of PedroKV.
    PedroKv,
    /// HTTP.
    Http,
    /// Limits of clients.
    Clients,
    /// Access control.
    Security,
    /// The process and its surroundings.
    Process,
    /// What is kept in memory, and for how long.
    Memory,
    /// What is kept on disk.
    Persistence,
    /// How collections are stored.
    Data,
    /// Slow log, latency and events.
    Observability,
    /// Copies on other machines.
    Replication,
    /// The log in object storage.
    Bucket,
    /// Many machines.
    Cluster,
    /// Encrypted connections.
    Tls,
    /// What tunes Redis and can have no effect here.
    Inert,
}

impl Group {
    /// All groups, in reading order.
    pub const ALL: [Self; 16] = [
        Self::Network,
        Self::Memcached,
        Self::PedroKv,
        Self::Http,
        Self::Clients,
        Self::Security,
        Self::Process,
        Self::Memory,
        Self::Persistence,
        Self::Data,
        Self::Observability,
        Self::Replication,
        Self::Bucket,
        Self::Cluster,
        Self::Tls,
        Self::Inert,
    ];

    /// The heading of the chapter.
    pub fn title(self) -> &'static str {
        match self {
            Self::Network => "Network",
            Self::Memcached => "Memcached",
            Self::PedroKv => "PedroKV",
            Self::Http => "HTTP",
            Self::Clients => "Clients",
            Self::Security => "Security",
            Self::Process => "Process",
            Self::Memory => "Memory",
            Self::Persistence => "Persistence",
            Self::Data => "Data types",
            Self::Observability => "Observability",
            Self::Replication => "Replication",
            Self::Bucket => "Bucket",
            Self::Cluster => "Cluster",
            Self::Tls => "TLS",
            Self::Inert => "Without effect",
        }
    }
}

/// Starts a row: name, kind, default and description; the methods below say what is special.
pub(super) const fn row(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    about: &'static str,
) -> Directive {
    Directive {
        name,
        alias: None,
        group: Group::Process,
        kind,
        default,
        redis_default: None,
        own_since: None,
        about,
        mutability: Mutability::AtAnyTime,
        visibility: Visibility::Listed,
        meaning: Meaning::Itself,
        secrecy: Secrecy::Open,
        effect: Effect::Acts,
        check: None,
    }
}

/// Marks the rows without a mark of their own as accepted, for one reason.
pub(super) const fn accepted_unless_marked<const N: usize>(
    mut rows: [Directive; N],
    reason: &'static str,
) -> [Directive; N] {
    let mut at = 0;
    while at < N {
        if matches!(rows[at].effect, Effect::Acts) {
            rows[at] = rows[at].accepted(reason);
        }
        at += 1;
    }
    rows
}

impl Directive {
    pub(super) const fn alias(mut self, alias: &'static str) -> Self {
        self.alias = Some(alias);
        self
    }

    pub(super) const fn group(mut self, group: Group) -> Self {
        self.group = group;
        self
    }

    /// States the default of Redis, where ours differs.
    pub(super) const fn redis(mut self, default: &'static str) -> Self {
        self.redis_default = Some(default);
        self
    }

    /// States the version of Tierce that brought it, for Redis does not have it.
    pub(super) const fn own(mut self, since: &'static str) -> Self {
        self.own_since = Some(since);
        self
    }

    pub(super) const fn before_start(mut self) -> Self {
        self.mutability = Mutability::BeforeStart;
        self
    }

    pub(super) const fn for_one_start(mut self) -> Self {
        self.mutability = Mutability::ForOneStart;
        self
    }

    pub(super) const fn protected(mut self) -> Self {
        self.mutability = Mutability::IfUnprotected;
        self
    }

    pub(super) const fn hidden(mut self) -> Self {
        self.visibility = Visibility::Hidden;
        self
    }

    /// See [`Meaning::Contents`].
    pub(super) const fn stands_for_contents(mut self) -> Self {
        self.meaning = Meaning::Contents;
        self
    }

    pub(super) const fn secret(mut self) -> Self {
        self.secrecy = Secrecy::Secret;
        self
    }

    /// See [`Effect::Accepted`].
    pub(super) const fn accepted(mut self, reason: &'static str) -> Self {
        self.effect = Effect::Accepted(reason);
        self
    }

    /// See [`Effect::Refused`]; `except` lists the values that are not refused.
    pub(super) const fn refused(
        mut self,
        except: &'static [&'static str],
        why: &'static str,
    ) -> Self {
        self.effect = Effect::Refused { except, why };
        self
    }

    pub(super) const fn checked(mut self, check: Check) -> Self {
        self.check = Some(check);
        self
    }

    /// Reads the words given for this directive.
    ///
    /// # Errors
    /// If they are not of its kind, or break its rule.
    pub fn parse(&self, args: &[&[u8]], current: Option<&Value>) -> Result<Value, Invalid> {
        let value = self.kind.parse(args, current)?;
        if let Some(check) = self.check {
            check(&value)?;
        }
        Ok(value)
    }

    /// Why this value must not be in force, if it must not.
    pub fn objection(&self, value: &Value) -> Option<&'static str> {
        let Effect::Refused { except, why } = self.effect else { return None };
        let is_meant = |text: &&str| self.parse(&[text.as_bytes()], None).as_ref() == Ok(value);
        let may_be = *value == self.default_value() || except.iter().any(is_meant);
        (!may_be).then_some(why)
    }

    /// The default.
    ///
    /// # Panics
    /// If the table is wrong, which a test excludes.
    pub fn default_value(&self) -> Value {
        self.parse(&[self.default.as_bytes()], None)
            .unwrap_or_else(|reason| panic!("default of {}: {reason}", self.name))
    }

    /// Name and alias.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        std::iter::once(self.name).chain(self.alias)
    }
}
