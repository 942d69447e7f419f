//! Common part of LMPOP, ZMPOP and their blocking forms: `numkeys key [key ...] END [COUNT count]`.

use tierce_keyspace::{CollectionType, Editor, Event, Missing};
use tierce_wire::resp::Rest;

use super::cursor::Options;
use super::options::count_from;
use crate::error::CommandError;
use crate::pipeline::Context;
use crate::pipeline::blocking::{Patience, first_of};
use crate::reply::Reply;

/// Arguments of such a command.
struct Request<'a, E> {
    /// Keys, in the order of the checks.
    keys: Vec<&'a [u8]>,
    /// End from which elements are taken.
    end: E,
    /// Maximum number of elements.
    count: usize,
}

impl<'a, E> Request<'a, E> {
    /// Parses the arguments from the number of keys on.
    fn parse(
        request: Rest<'a>,
        parse_end: fn(&[u8]) -> Result<E, CommandError>,
    ) -> Result<Self, CommandError> {
        let mut arguments = Options::of(request);
        let numkeys = count_from(arguments.value()?, 1, "ERR numkeys should be greater than 0")?;
        let (keys, options) = arguments.rest().split_at(numkeys).ok_or(CommandError::SYNTAX)?;
        let mut options = Options::of(options);
        let end = parse_end(options.value()?)?;
        let mut count = 1;
        if options.take("count") {
            count = count_from(options.value()?, 1, "ERR count should be greater than 0")?;
        }
        options.end()?;
        Ok(Self { keys: keys.iter().collect(), end, count })
    }
}

/// Pops from the first key that has anything, and replies with the key and the output of `pop`. If all keys are
/// empty, a command with a `timeout` waits; any other gets an empty reply. `request` begins with the number of keys.
pub(super) fn many_pop<T: CollectionType, E: Copy>(
    ctx: &mut Context<'_, '_>,
    request: Rest<'_>,
    timeout: Option<&[u8]>,
    parse_end: fn(&[u8]) -> Result<E, CommandError>,
    pop: fn(E, &mut Editor<'_, T>, usize, &mut Reply<'_>),
    event: fn(E) -> Event,
) -> Result<(), CommandError> {
    let Request { keys, end, count } = Request::parse(request, parse_end)?;
    // The timeout is the first argument, but it is checked last.
    let patience = timeout.map(Patience::from_seconds).transpose()?;
    let scale = ctx.scale();
    first_of(ctx, keys.into_iter(), patience, |db, key, reply| {
        scale.weigh_some(count, db, key)?;
        let popped = db.edit::<T, _, CommandError>(key, Missing::Skip, |elements| {
            reply.array(2);
            reply.bulk(key.bytes());
            pop(end, elements, count, reply);
            Ok(())
        })?;
        if popped.is_some() {
            db.event_of_edit(event(end), key);
        }
        Ok(popped.is_some())
    })
}
