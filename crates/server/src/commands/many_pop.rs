//! What LMPOP, ZMPOP and their forms that wait have in common: `numkeys key [key ...] END [COUNT count]`.

use tierce_keyspace::{CollectionType, Editor, Missing};
use tierce_wire::resp::Args;

use super::options::at_least;
use crate::blocking::{Patience, Terms, first_of};
use crate::error::CommandError;
use crate::execute::Context;
use crate::reply::Reply;

/// What such a command asks for.
struct Request<'a, E> {
    /// The keys, in the order in which they are looked at.
    keys: Vec<&'a [u8]>,
    /// From which end elements are taken.
    end: E,
    /// How many at most.
    count: usize,
}

impl<'a, E> Request<'a, E> {
    /// Reads what stands from the number of keys on.
    fn parse(
        args: Args<'a>,
        parse_end: fn(&[u8]) -> Result<E, CommandError>,
    ) -> Result<Self, CommandError> {
        let numkeys = at_least(&args[0], 1, "ERR numkeys should be greater than 0")?;
        let Some(end) = numkeys.checked_add(1).and_then(|at| args.get(at)) else {
            return Err(CommandError::SYNTAX);
        };
        let end = parse_end(end)?;
        let (mut count, mut rest) = (1, args.from(numkeys + 2));
        if rest.len() >= 2 && rest[0].eq_ignore_ascii_case(b"count") {
            count = at_least(&rest[1], 1, "ERR count should be greater than 0")?;
            rest = rest.from(2);
        }
        if !rest.is_empty() {
            return Err(CommandError::SYNTAX);
        }
        Ok(Self { keys: args.iter().skip(1).take(numkeys).collect(), end, count })
    }
}

/// Pops from the first of the keys that has anything, and replies with the key and what `pop` says. A
/// command with a `timeout` waits for it, any other replies that there is nothing. `request` are the
/// arguments of `command` from the number of keys on.
pub(super) fn many_pop<T: CollectionType, E: Copy>(
    ctx: &mut Context<'_, '_>,
    command: Args<'_>,
    request: Args<'_>,
    timeout: Option<&[u8]>,
    parse_end: fn(&[u8]) -> Result<E, CommandError>,
    pop: fn(E, &mut Editor<'_, T>, usize, &mut Reply<'_>),
) -> Result<(), CommandError> {
    let Request { keys, end, count } = Request::parse(request, parse_end)?;
    // The first of the arguments is the last one to be looked at.
    let patience = timeout.map(Patience::from_seconds).transpose()?;
    first_of(ctx, keys.into_iter(), Terms { command, patience }, |db, key, reply| {
        let popped = db.edit::<T, _, CommandError>(key, Missing::Skip, |elements| {
            reply.array(2);
            reply.bulk(key.bytes());
            pop(end, elements, count, reply);
            Ok(())
        })?;
        Ok(popped.is_some())
    })
}
