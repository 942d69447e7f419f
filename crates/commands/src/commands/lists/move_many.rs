//! LMOVEM and BLMOVEM: move several elements to another list, or within their list, as in Redis 8.10.

use tierce_collections::List;
use tierce_keyspace::{Editor, Missing, Wakes};
use tierce_wire::resp::Rest;

use super::side::Side;
use crate::command::{Flags, Group, KeyFlags, KeySpec};
use crate::commands::cursor::Options;
use crate::commands::options::{check_len, count_from, is_of_type};
use crate::error::CommandError;
use crate::pipeline::blocking::{self, Patience, Wait};
use crate::pipeline::{Context, Defined, Done, at_least};

const FLAGS: Flags = Flags::WRITE.with(Flags::DENYOOM);
const KEYS: &[KeySpec] =
    &[KeySpec::at(1, KeyFlags::READ_REMOVE), KeySpec::at(2, KeyFlags(&["RW", "insert"]))];
const SINCE: &str = "8.10.0";
const COMPLEXITY: &str = "O(N) where N is the number of elements moved";

pub(super) static COMMANDS: &[Defined] = &[
    Defined::new("lmovem", Group::List, at_least!(lmovem))
        .flags(FLAGS)
        .keys(KEYS)
        .since(SINCE, COMPLEXITY)
        .doc(
            "source destination <LEFT | RIGHT> <LEFT | RIGHT> [<COUNT count | EXACTLY count> <OBO | BULK>]",
            "Moves up to a number of elements from one list to another, or exactly as many or none, one by one \
             (OBO) or as a block (BULK), and returns them.",
        )
        .example(
            r#"
            > RPUSH todo write test ship
            (integer) 3
            > LMOVEM todo doing LEFT LEFT COUNT 2 BULK
            1) "write"
            2) "test"
            > LMOVEM todo doing LEFT LEFT EXACTLY 2 BULK
            (nil)
            > LMOVEM doing done LEFT LEFT COUNT 2 OBO
            1) "test"
            2) "write"
            "#,
        ),
    Defined::new("blmovem", Group::List, at_least!(blmovem))
        .flags(FLAGS.with(Flags::BLOCKING))
        .keys(KEYS)
        .since(SINCE, COMPLEXITY)
        .doc(
            "source destination <LEFT | RIGHT> <LEFT | RIGHT> timeout [<COUNT count | EXACTLY count> <OBO | BULK>]",
            "Moves elements from one list to another as LMOVEM does; waits until there are enough.",
        )
        .example(
            r#"
            > RPUSH todo write test
            (integer) 2
            > BLMOVEM todo doing LEFT RIGHT 0.01 EXACTLY 3 BULK
            (nil)
            > BLMOVEM todo doing LEFT RIGHT 0.01 COUNT 3 BULK
            1) "write"
            2) "test"
            "#,
        ),
];

/// Number of elements to move, and their order.
#[derive(Clone, Copy)]
struct HowMany {
    count: usize,
    /// True if nothing is moved unless there are as many.
    is_exact: bool,
    is_one_by_one: bool,
}

impl HowMany {
    fn parse(mut options: Options<'_>) -> Result<Self, CommandError> {
        let Some(word) = options.next_word() else {
            return Ok(Self { count: 1, is_exact: false, is_one_by_one: true });
        };
        let is_exact = match &*word {
            b"count" => false,
            b"exactly" => true,
            _ => return Err(CommandError::SYNTAX),
        };
        let count = count_from(options.value()?, 1, "ERR count should be greater than 0")?;
        let is_one_by_one = options.take("obo");
        if !is_one_by_one && !options.take("bulk") {
            return Err(CommandError::SYNTAX);
        }
        options.end()?;
        Ok(Self { count, is_exact, is_one_by_one })
    }

    /// Returns the number of elements to take from a list of this length; `None` if it is too short.
    fn of(self, len: usize) -> Option<usize> {
        (!self.is_exact || self.count <= len).then(|| self.count.min(len))
    }
}

fn lmovem(
    ctx: &mut Context<'_, '_>,
    [source, destination, from, to]: [&[u8]; 4],
    options: Rest<'_>,
) -> Done {
    let ends = [Side::parse(from)?, Side::parse(to)?];
    let how_many = HowMany::parse(Options::of(options))?;
    move_or_wait(ctx, [source, destination], ends, how_many, None)
}

fn blmovem(
    ctx: &mut Context<'_, '_>,
    [source, destination, from, to, timeout]: [&[u8]; 5],
    options: Rest<'_>,
) -> Done {
    let ends = [Side::parse(from)?, Side::parse(to)?];
    let how_many = HowMany::parse(Options::of(options))?;
    let patience = Some(Patience::from_seconds(timeout)?);
    move_or_wait(ctx, [source, destination], ends, how_many, patience)
}

/// Moves elements. If there are too few, the client waits for `patience`, or a command without `patience` gets an empty
/// reply.
fn move_or_wait(
    ctx: &mut Context<'_, '_>,
    keys: [&[u8]; 2],
    [from, to]: [Side; 2],
    how_many: HowMany,
    patience: Option<Patience>,
) -> Done {
    let [source, destination] = keys.map(|key| ctx.kernel.keyspace.key(key));
    check_len(destination)?;
    let (db, now_ms, scale) = (ctx.caller.db, ctx.now_ms, ctx.scale());
    // Only the source determines if a waiting client can be served.
    let mut at_source = ctx.guard.db(db, source.hash(), now_ms);
    let len =
        match at_source.edit::<List, _, CommandError>(source, Missing::Skip, |it| Ok(it.len())) {
            Err(error) if ctx.mode.passes_over(&error) => None,
            len => len?,
        };
    let Some(count) = len.and_then(|len| how_many.of(len)) else {
        match patience {
            Some(patience) => {
                let wakes = if how_many.is_exact { Wakes::Edit } else { Wakes::Creation };
                let (keys, command) = (&[source], ctx.call.to_owned());
                let (group, claims) = (None, None);
                blocking::wait(ctx, Wait { keys, command, patience, group, wakes, claims });
            }
            None => ctx.reply.null_array(),
        }
        return Ok(());
    };
    is_of_type::<List>(&mut ctx.guard.db(db, destination.hash(), now_ms), destination)?;
    scale.weigh(count)?;
    let (is_rotation, is_same_end) = (source.bytes() == destination.bytes(), from == to);
    let is_reversed = how_many.is_one_by_one && is_same_end;
    let mut at_source = ctx.guard.db(db, source.hash(), now_ms);
    let moved = at_source.edit::<List, _, CommandError>(source, Missing::Skip, |list| {
        let start = from.start(list, count);
        let mut moved: Vec<_> = list.iter_from(start).take(count).map(|it| it.to_vec()).collect();
        if is_reversed {
            moved.reverse();
        }
        match is_rotation {
            // The elements stay where they are.
            true if !is_reversed && (is_same_end || count == list.len()) => {}
            true => rotate(list, start, &moved, to),
            false => _ = list.remove(start, count),
        }
        Ok(moved)
    })?;
    let moved = moved.unwrap_or_default();
    if is_rotation {
        at_source.touch_watchers(source);
    }
    let mut at_destination = ctx.guard.db(db, destination.hash(), now_ms);
    if !is_rotation {
        at_destination.edit::<List, _, CommandError>(destination, Missing::Create, |list| {
            to.push_all(list, &moved);
            Ok(())
        })?;
    }
    at_destination.event(to.push_event(), destination);
    ctx.guard.db(db, source.hash(), now_ms).event_of_edit(from.pop_event(), source);
    ctx.reply.bulks(&moved);
    Ok(())
}

/// Moves the elements from `start` on to an end, in the order of `moved`. The list is never empty meanwhile: otherwise
/// a replica would forget its deadline.
fn rotate(list: &mut Editor<'_, List>, start: usize, moved: &[Vec<u8>], to: Side) {
    match moved {
        // All are reversed: the last one becomes the first.
        [_, others @ ..] if moved.len() == list.len() => {
            list.remove(0, others.len());
            Side::Right.push_all(list, others);
        }
        _ => {
            list.remove(start, moved.len());
            to.push_all(list, moved);
        }
    }
}
