//! A row of the table: everything known about one directive except its value.

use super::kind::{Invalid, Kind};
use super::value::Value;

/// One directive.
#[derive(Clone, Copy, Debug)]
pub struct Directive {
    /// The name, in lower case.
    pub name: &'static str,
    /// Older name with the same meaning everywhere.
    pub alias: Option<&'static str>,
    /// Documentation group of the directive.
    pub group: Group,
    /// Kind of values that the directive takes.
    pub kind: Kind,
    /// Default, as a user would write it.
    pub default: &'static str,
    /// Default of Redis 7.2, if ours differs.
    pub redis_default: Option<&'static str>,
    /// Version of Tierce that introduced the directive, if Redis does not have it.
    pub own_since: Option<&'static str>,
    /// Purpose, in a sentence or two.
    pub about: &'static str,
    /// When the directive may be changed.
    pub mutability: Mutability,
    /// Visible or hidden in patterns and documentation.
    pub visibility: Visibility,
    /// Meaning of a value: itself, or the contents of a file.
    pub meaning: Meaning,
    /// Secret or public values.
    pub secrecy: Secrecy,
    /// Effect of values other than the default.
    pub effect: Effect,
    /// Rule in addition to the kind.
    pub check: Option<Check>,
}

/// Rule that a kind cannot express.
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
    /// Only before the start, and only for that start: CONFIG REWRITE leaves it at its default.
    ForOneStart,
}

/// Visibility of a directive in patterns of CONFIG GET and in the documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visibility {
    /// Public.
    Listed,
    /// For tests; hidden unless asked for by name.
    Hidden,
}

/// Meaning of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// The value itself.
    Itself,
    /// The contents of a file of this name, so that CONFIG SET to the same value can be a change.
    Contents,
}

/// Secrecy of a directive's values, such as passwords.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Secrecy {
    /// May appear in logs and messages.
    Open,
    /// Appears in CONFIG GET and in the configuration file, nowhere else.
    Secret,
}

/// Effect of values other than the default. Users must not believe that a setting is in force if it
/// is not. Therefore a directive about security, durability, the role or network addresses either
/// acts or is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The value acts as documented.
    Acts,
    /// The value tunes a mechanism that works differently here. Any value is checked, kept, shown
    /// and rewritten, but changes nothing, for this reason.
    Accepted(&'static str),
    /// The start and CONFIG SET fail.
    Refused {
        /// Further values that are not refused: they act, or ask for nothing.
        except: &'static [&'static str],
        /// The reason, and what to do instead.
        why: &'static str,
    },
}

/// Groups of the documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Listening and connections.
    Network,
    /// The protocols of memcached.
    Memcached,
    /// The protocol of PedroKV.
    PedroKv,
    /// HTTP listener.
    Http,
    /// Limits of clients.
    Clients,
    /// Access control.
    Security,
    /// Process and environment.
    Process,
    /// Memory limits and eviction.
    Memory,
    /// Persistence.
    Persistence,
    /// Encodings of collections.
    Data,
    /// Slow log, latency and events.
    Observability,
    /// Replication.
    Replication,
    /// The log in object storage.
    Bucket,
    /// Clustering.
    Cluster,
    /// Encrypted connections.
    Tls,
    /// Directives that tune Redis and have no effect here.
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

    /// Returns the heading of the group.
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

/// Starts a row with name, kind, default and description. The methods below add the rest.
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

/// Marks every row without a mark of its own as accepted, all with one reason.
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

    /// Sets the default of Redis, if ours differs.
    pub(super) const fn redis(mut self, default: &'static str) -> Self {
        self.redis_default = Some(default);
        self
    }

    /// Sets the version of Tierce that introduced a directive that Redis does not have.
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

    /// Parses the arguments of this directive.
    ///
    /// # Errors
    /// If the arguments are not of its kind or break its rule.
    pub fn parse(&self, args: &[&[u8]], current: Option<&Value>) -> Result<Value, Invalid> {
        let value = self.kind.parse(args, current)?;
        if let Some(check) = self.check {
            check(&value)?;
        }
        Ok(value)
    }

    /// Returns the reason why this value must not be in force, if there is one.
    pub fn objection(&self, value: &Value) -> Option<&'static str> {
        let Effect::Refused { except, why } = self.effect else { return None };
        let is_meant = |text: &&str| self.parse(&[text.as_bytes()], None).as_ref() == Ok(value);
        let may_be = *value == self.default_value() || except.iter().any(is_meant);
        (!may_be).then_some(why)
    }

    /// Returns the default.
    ///
    /// # Panics
    /// If the table is wrong. A test rules this out.
    pub fn default_value(&self) -> Value {
        self.parse(&[self.default.as_bytes()], None)
            .unwrap_or_else(|reason| panic!("default of {}: {reason}", self.name))
    }

    /// Returns name and alias.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        std::iter::once(self.name).chain(self.alias)
    }
}
