//! Selection of clients for `CLIENT LIST` and `CLIENT KILL`.

use super::{Client, ClientFlags};
use crate::acl::{UserId, Users};
use crate::error::CommandError;
use tierce_wire::number;
use tierce_wire::resp::Rest;

/// Conditions, all of which a client must meet.
#[derive(Default)]
pub struct Filter {
    ids: Option<Vec<u64>>,
    kind: Option<Kind>,
    addr: Option<String>,
    laddr: Option<String>,
    user: Option<UserId>,
    /// Connected for longer than this many seconds.
    older_than: Option<i64>,
    /// Leaves out the client with this id.
    skip: Option<u64>,
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

impl Filter {
    /// Reads the arguments of `CLIENT LIST`: `[TYPE type] [ID id ...]`.
    ///
    /// # Errors
    /// A syntax error, an unknown type or an invalid id.
    pub fn for_list(args: Rest<'_>) -> Result<Self, CommandError> {
        let mut filter = Self::default();
        let is = |word: &[u8], name: &[u8]| word.eq_ignore_ascii_case(name);
        match args.split_first() {
            None if args.is_empty() => {}
            Some(([word, name], rest)) if is(word, b"type") && rest.is_empty() => {
                filter.kind = Some(kind(name)?);
            }
            Some(([word, _], _)) if is(word, b"id") => {
                // No client has an id below 1, but such an id is valid in a request.
                let id = |arg: &[u8]| match number::parse_i64(arg) {
                    Some(id) => Ok(id.max(0) as u64),
                    None => Err(CommandError::new("ERR Invalid client ID")),
                };
                filter.ids = Some(args.iter().skip(1).map(id).collect::<Result<_, _>>()?);
            }
            _ => return Err(CommandError::SYNTAX),
        }
        Ok(filter)
    }

    /// Reads the conditions of `CLIENT KILL`, given in pairs; the caller `own_id` is left out
    /// unless they say `SKIPME no`.
    ///
    /// # Errors
    /// A syntax error or an invalid value.
    pub fn for_kill(args: Rest<'_>, own_id: u64, users: &Users) -> Result<Self, CommandError> {
        let mut filter = Self { skip: Some(own_id), ..Self::default() };
        let mut left = args;
        while let Some(([name, value], rest)) = left.split_first() {
            filter.add(name, value, own_id, users)?;
            left = rest;
        }
        if !left.is_empty() {
            return Err(CommandError::SYNTAX);
        }
        Ok(filter)
    }

    fn add(
        &mut self,
        name: &[u8],
        value: &[u8],
        own_id: u64,
        users: &Users,
    ) -> Result<(), CommandError> {
        let text = || String::from_utf8_lossy(value).into_owned();
        match name.to_ascii_lowercase().as_slice() {
            b"id" => {
                let error = CommandError::new("ERR client-id should be greater than 0");
                self.ids.get_or_insert_default().push(id(value).ok_or(error)?);
            }
            b"type" => self.kind = Some(kind(value)?),
            b"addr" => self.addr = Some(text()),
            b"laddr" => self.laddr = Some(text()),
            b"user" => {
                let error = || CommandError::text(format!("ERR No such user '{}'", text()));
                self.user = Some(users.get(value).ok_or_else(error)?.id());
            }
            b"maxage" => {
                let error = CommandError::new("ERR maxage is not an integer or out of range");
                self.older_than = Some(number::parse_i64(value).ok_or(error)?);
            }
            b"skipme" => match value.to_ascii_lowercase().as_slice() {
                b"yes" => self.skip = Some(own_id),
                b"no" => self.skip = None,
                _ => return Err(CommandError::SYNTAX),
            },
            _ => return Err(CommandError::SYNTAX),
        }
        Ok(())
    }

    /// Selects the client of `CLIENT KILL addr`.
    pub fn for_address(addr: &[u8]) -> Self {
        Self { addr: Some(String::from_utf8_lossy(addr).into_owned()), ..Self::default() }
    }

    /// Returns true if `client` meets all conditions.
    pub fn admits(&self, client: &Client, now_ms: i64) -> bool {
        let same = |wanted: &Option<String>, is: &str| wanted.as_ref().is_none_or(|w| w == is);
        self.skip != Some(client.id)
            && self.ids.as_ref().is_none_or(|ids| ids.contains(&client.id))
            && self.kind.is_none_or(|kind| kind == Kind::of(client))
            && same(&self.addr, &client.addr)
            && same(&self.laddr, &client.laddr)
            && self.user.is_none_or(|id| client.user().is_some_and(|user| user.id() == id))
            && self.older_than.is_none_or(|age| (now_ms - client.created_ms) / 1000 >= age)
            && !client.is_closing()
    }
}

fn id(text: &[u8]) -> Option<u64> {
    number::parse_i64(text).filter(|id| *id > 0).map(|id| id as u64)
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
