//! Which clients `CLIENT LIST` shows and `CLIENT KILL` ends.

use std::sync::atomic::Ordering::Relaxed;

use super::{Client, ClientFlags};
use crate::error::CommandError;
use tierce_wire::number;
use tierce_wire::resp::Args;

/// Conditions, all of which a client must meet.
#[derive(Default)]
pub struct Filter {
    ids: Option<Vec<u64>>,
    kind: Option<Kind>,
    addr: Option<String>,
    laddr: Option<String>,
    user: Option<String>,
    /// Connected for longer than so many seconds.
    older_than: Option<i64>,
    /// Leaves out the client with this id.
    skip: Option<u64>,
}

/// Types of clients; only normal ones exist as long as there is neither pub/sub nor replication.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Normal,
    Other,
}

impl Filter {
    /// Reads the arguments of `CLIENT LIST`: `[TYPE type] [ID id ...]`.
    ///
    /// # Errors
    /// A syntax error, an unknown type or an id that is none.
    pub fn for_list(args: Args<'_>) -> Result<Self, CommandError> {
        let mut filter = Self::default();
        match args.len() {
            0 => {}
            2 if args[0].eq_ignore_ascii_case(b"type") => filter.kind = Some(kind(&args[1])?),
            n if n >= 2 && args[0].eq_ignore_ascii_case(b"id") => {
                // No client has an id below 1, but it may be asked for.
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
    /// A syntax error or a value that cannot be.
    pub fn for_kill(args: Args<'_>, own_id: u64) -> Result<Self, CommandError> {
        let mut filter = Self { skip: Some(own_id), ..Self::default() };
        for pair in (0..args.len()).step_by(2) {
            let value = args.get(pair + 1).ok_or(CommandError::SYNTAX)?;
            filter.add(&args[pair], value, own_id)?;
        }
        Ok(filter)
    }

    fn add(&mut self, name: &[u8], value: &[u8], own_id: u64) -> Result<(), CommandError> {
        let text = || String::from_utf8_lossy(value).into_owned();
        match name.to_ascii_lowercase().as_slice() {
            b"id" => {
                let error = CommandError::new("ERR client-id should be greater than 0");
                self.ids.get_or_insert_default().push(id(value).ok_or(error)?);
            }
            b"type" => self.kind = Some(kind(value)?),
            b"addr" => self.addr = Some(text()),
            b"laddr" => self.laddr = Some(text()),
            b"user" if value == b"default" => self.user = Some(text()),
            b"user" => {
                return Err(CommandError::text(format!("ERR No such user '{}'", text())));
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

    /// The client that `CLIENT KILL addr` means.
    #[must_use]
    pub fn for_address(addr: &[u8]) -> Self {
        Self { addr: Some(String::from_utf8_lossy(addr).into_owned()), ..Self::default() }
    }

    /// Whether `client` meets all conditions.
    #[must_use]
    pub fn admits(&self, client: &Client, now_ms: i64) -> bool {
        let same = |wanted: &Option<String>, is: &str| wanted.as_ref().is_none_or(|w| w == is);
        self.skip != Some(client.id)
            && self.ids.as_ref().is_none_or(|ids| ids.contains(&client.id))
            && self.kind.is_none_or(|kind| kind == Kind::Normal)
            && same(&self.addr, &client.addr)
            && same(&self.laddr, &client.laddr)
            && self.older_than.is_none_or(|age| (now_ms - client.created_ms) / 1000 >= age)
            && client.flags.load(Relaxed) & ClientFlags::CLOSING.0 == 0
    }
}

fn id(text: &[u8]) -> Option<u64> {
    number::parse_i64(text).filter(|id| *id > 0).map(|id| id as u64)
}

fn kind(name: &[u8]) -> Result<Kind, CommandError> {
    match name.to_ascii_lowercase().as_slice() {
        b"normal" => Ok(Kind::Normal),
        b"master" | b"replica" | b"slave" | b"pubsub" => Ok(Kind::Other),
        _ => Err(CommandError::text(format!(
            "ERR Unknown client type '{}'",
            String::from_utf8_lossy(name)
        ))),
    }
}
