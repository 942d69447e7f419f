//! Selection of clients for `CLIENT LIST` and `CLIENT KILL`, with the conditions of Valkey 9.

use std::sync::atomic::Ordering::Relaxed;

use super::{Client, ClientFlags};
use crate::acl::{UserId, Users};
use crate::error::CommandError;
use tierce_wire::number;
use tierce_wire::resp::Rest;

/// Conditions, all of which a client must meet.
#[derive(Default)]
pub struct Filter {
    conditions: Vec<Condition>,
    /// Leaves out the client with this id.
    skip: Option<u64>,
}

/// Property of a client, or its absence.
struct Condition {
    name: Field,
    wanted: Wanted,
    /// False for names such as `NOT-ID`.
    is_wanted: bool,
}

/// Name of a property, and of its condition.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Field {
    Id,
    Type,
    User,
    Addr,
    Laddr,
    MaxAge,
    Name,
    Idle,
    Flags,
    LibName,
    LibVer,
    Db,
    Capa,
    Ip,
}

impl Field {
    const ALL: [(&str, Self); 14] = [
        ("id", Self::Id),
        ("type", Self::Type),
        ("user", Self::User),
        ("addr", Self::Addr),
        ("laddr", Self::Laddr),
        ("maxage", Self::MaxAge),
        ("name", Self::Name),
        ("idle", Self::Idle),
        ("flags", Self::Flags),
        ("lib-name", Self::LibName),
        ("lib-ver", Self::LibVer),
        ("db", Self::Db),
        ("capa", Self::Capa),
        ("ip", Self::Ip),
    ];

    /// Finds the name of a condition. The second value is false if it begins with `NOT-`.
    fn find(word: &[u8]) -> Option<(Self, bool)> {
        let word = word.to_ascii_lowercase();
        let (word, is_wanted) = match word.strip_prefix(b"not-") {
            Some(word) => (word, false),
            None => (&*word, true),
        };
        let (_, name) = Self::ALL.iter().find(|(text, _)| text.as_bytes() == word)?;
        // As in Valkey, these two have no opposite.
        let is_known = is_wanted || !matches!(name, Self::MaxAge | Self::Idle);
        is_known.then_some((*name, is_wanted))
    }
}

/// Value of a property.
enum Wanted {
    /// In ascending order.
    Ids(Vec<u64>),
    Kind(Kind),
    User(UserId),
    Number(i64),
    Text(String),
}

/// Types of clients. A primary that this server follows is no client.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Normal,
    PubSub,
    Replica,
    Primary,
}

impl Kind {
    fn of(client: &Client) -> Self {
        if client.has(ClientFlags::REPLICA) {
            Self::Replica
        } else if client.has(ClientFlags::PUBSUB) {
            Self::PubSub
        } else {
            Self::Normal
        }
    }
}

/// Command of a filter: the errors differ.
#[derive(Clone, Copy)]
enum For {
    List,
    Kill,
}

impl For {
    /// Parses ids: the first one, and those that `left` begins with.
    fn ids(self, first: &[u8], left: &mut Rest<'_>) -> Result<Vec<u64>, CommandError> {
        let invalid = || {
            CommandError::new(match self {
                Self::List => "ERR Invalid client ID",
                Self::Kill => "ERR client-id should be greater than 0",
            })
        };
        let mut ids = vec![self.id(first).ok_or_else(invalid)?];
        while let Some(([word], rest)) = left.split_first() {
            match self.id(word) {
                Some(id) => ids.push(id),
                // As in Redis 7.2, where nothing else could follow.
                None if matches!(self, Self::List)
                    && Field::find(word).is_none()
                    && !is_skipme(word) =>
                {
                    return Err(invalid());
                }
                None => break,
            }
            *left = rest;
        }
        Ok(ids)
    }

    /// Parses an id. No client has one below 1, but `CLIENT LIST` may be asked for it.
    fn id(self, word: &[u8]) -> Option<u64> {
        let id = number::parse_i64(word)?;
        (matches!(self, Self::List) || id > 0).then_some(id.max(0) as u64)
    }
}

fn is_skipme(word: &[u8]) -> bool {
    word.eq_ignore_ascii_case(b"skipme")
}

/// Letters of flags that a filter may ask for, including those of Redis that are never set here.
const FLAG_LETTERS: &str = "OSMxbdcuUAtRBrNPeTIEm";

impl Filter {
    /// Reads the arguments of `CLIENT LIST`.
    ///
    /// # Errors
    /// A syntax error or an invalid value.
    pub fn for_list(args: Rest<'_>, own_id: u64, users: &Users) -> Result<Self, CommandError> {
        Self::default().read(args, own_id, users, For::List)
    }

    /// Reads the conditions of `CLIENT KILL`; the caller `own_id` is left out unless they say `SKIPME no`.
    ///
    /// # Errors
    /// A syntax error or an invalid value.
    pub fn for_kill(args: Rest<'_>, own_id: u64, users: &Users) -> Result<Self, CommandError> {
        let filter = Self { skip: Some(own_id), ..Self::default() };
        filter.read(args, own_id, users, For::Kill)
    }

    fn read(
        mut self,
        args: Rest<'_>,
        own_id: u64,
        users: &Users,
        command: For,
    ) -> Result<Self, CommandError> {
        let mut left = args;
        while let Some(([word, value], rest)) = left.split_first() {
            left = rest;
            if is_skipme(word) {
                self.skip = yes_no(value)?.then_some(own_id);
                continue;
            }
            let (name, is_wanted) = Field::find(word).ok_or(CommandError::SYNTAX)?;
            let wanted = match name {
                Field::Id => Wanted::Ids(command.ids(value, &mut left)?),
                name => name.parse(value, users)?,
            };
            self.add(Condition { name, wanted, is_wanted });
        }
        for condition in &mut self.conditions {
            if let Wanted::Ids(ids) = &mut condition.wanted {
                ids.sort_unstable();
            }
        }
        if left.is_empty() { Ok(self) } else { Err(CommandError::SYNTAX) }
    }

    /// Adds a condition. Ids are added to those named before; otherwise the last value counts.
    fn add(&mut self, condition: Condition) {
        let is_same = |other: &&mut Condition| {
            (other.name, other.is_wanted) == (condition.name, condition.is_wanted)
        };
        match (self.conditions.iter_mut().find(is_same), condition) {
            (None, condition) => self.conditions.push(condition),
            (Some(before), mut condition) => {
                if let (Wanted::Ids(ids), Wanted::Ids(more)) =
                    (&mut before.wanted, &mut condition.wanted)
                {
                    ids.append(more);
                } else {
                    *before = condition;
                }
            }
        }
    }

    /// Selects the client of `CLIENT KILL addr`.
    pub fn for_address(addr: &[u8]) -> Self {
        let wanted = Wanted::Text(String::from_utf8_lossy(addr).into_owned());
        let conditions = vec![Condition { name: Field::Addr, wanted, is_wanted: true }];
        Self { conditions, skip: None }
    }

    /// Returns true if `client` meets all conditions.
    pub fn admits(&self, client: &Client, now_ms: i64) -> bool {
        let admits = |one: &Condition| one.name.holds(&one.wanted, client, now_ms) == one.is_wanted;
        self.skip != Some(client.id) && self.conditions.iter().all(admits) && !client.is_closing()
    }
}

impl Field {
    /// Parses the value of a condition other than [`Self::Id`].
    fn parse(self, value: &[u8], users: &Users) -> Result<Wanted, CommandError> {
        let text = || String::from_utf8_lossy(value).into_owned();
        let letters = |what: &str, known: &str| match text() {
            // An empty one would hold for everybody.
            text if text.is_empty() => Err(CommandError::SYNTAX),
            text if text.chars().all(|letter| known.contains(letter)) => Ok(Wanted::Text(text)),
            text => Err(CommandError::text(format!(
                "ERR Unknown {what} found in the provided filter: {text}"
            ))),
        };
        let number =
            |error| number::parse_i64(value).map(Wanted::Number).ok_or(CommandError::new(error));
        match self {
            Self::Type => Ok(Wanted::Kind(kind(value)?)),
            Self::User => {
                let error = || CommandError::text(format!("ERR No such user '{}'", text()));
                Ok(Wanted::User(users.get(value).ok_or_else(error)?.id()))
            }
            Self::MaxAge => number("ERR maxage is not an integer or out of range"),
            Self::Idle => match number("ERR idle is not an integer or out of range")? {
                Wanted::Number(..0) => Err(CommandError::SYNTAX),
                idle => Ok(idle),
            },
            Self::Db => number("ERR DB is not an integer or out of range"),
            Self::Flags => letters("flags", FLAG_LETTERS),
            Self::Capa => letters("capa", "r"),
            _ => Ok(Wanted::Text(text())),
        }
    }

    /// Returns true if a client has the property.
    fn holds(self, wanted: &Wanted, client: &Client, now_ms: i64) -> bool {
        let seconds_since = |ms: i64| (now_ms - ms) / 1000;
        match wanted {
            Wanted::Ids(ids) => ids.binary_search(&client.id).is_ok(),
            Wanted::Kind(kind) => *kind == Kind::of(client),
            Wanted::User(id) => client.user().is_some_and(|user| user.id() == *id),
            Wanted::Number(number) => match self {
                Self::MaxAge => seconds_since(client.created_ms) >= *number,
                Self::Idle => seconds_since(client.active_ms.load(Relaxed)) >= *number,
                _ => i64::from(client.db.load(Relaxed)) == *number,
            },
            Wanted::Text(text) => match self {
                Self::Addr => client.addr == *text,
                Self::Laddr => client.laddr == *text,
                Self::Name => client.identity.lock().name == *text,
                Self::LibName => client.identity.lock().library == *text,
                Self::LibVer => client.identity.lock().library_version == *text,
                Self::Flags => {
                    let letters = client.letters();
                    text.chars().all(|letter| letters.contains(letter))
                }
                Self::Capa => client.has(ClientFlags::REDIRECTS),
                _ => ip_of(&client.addr) == text,
            },
        }
    }
}

/// Returns the IP address of `ip:port`, without brackets.
fn ip_of(addr: &str) -> &str {
    let ip = addr.rsplit_once(':').map_or(addr, |(ip, _)| ip);
    ip.strip_prefix('[').and_then(|ip| ip.strip_suffix(']')).unwrap_or(ip)
}

fn yes_no(word: &[u8]) -> Result<bool, CommandError> {
    match word.to_ascii_lowercase().as_slice() {
        b"yes" => Ok(true),
        b"no" => Ok(false),
        _ => Err(CommandError::SYNTAX),
    }
}

fn kind(name: &[u8]) -> Result<Kind, CommandError> {
    match name.to_ascii_lowercase().as_slice() {
        b"normal" => Ok(Kind::Normal),
        b"pubsub" => Ok(Kind::PubSub),
        b"replica" | b"slave" => Ok(Kind::Replica),
        b"master" => Ok(Kind::Primary),
        _ => Err(CommandError::text(format!(
            "ERR Unknown client type '{}'",
            String::from_utf8_lossy(name)
        ))),
    }
}
