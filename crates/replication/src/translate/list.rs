//! Edits of lists as commands.

use tierce_keyspace::ListSide;
use tierce_keyspace::log::{Edit, Edits, ListEdit, Malformed};
use tierce_keyspace::planted::{self, Fault};

use super::commands::{Arg, Commands, push};

/// Error for a change in the middle of a list: no command can address it, as it names no element there.
const NAMELESS: Malformed =
    Malformed { offset: 0, what: "a change in the middle of a list that names no element there" };

/// Translates an edit. With `is_new` the list is empty before it.
pub(super) fn edit(
    key: &[u8],
    edit: &ListEdit<'_>,
    is_new: bool,
    commands: &mut Commands<'_>,
) -> Result<(), Malformed> {
    match *edit {
        ListEdit::PushBack(elements) => push_back(key, elements, commands),
        ListEdit::Insert { index: 0, elements } if is_new => push_back(key, elements, commands),
        ListEdit::Insert { index: 0, elements } => {
            let mut elements: Vec<_> = elements.collect();
            if planted::is(Fault::TranslationOfHeads) {
                elements.reverse();
            }
            let head = [Arg::from("LPUSH"), Arg::from(key)];
            let from_last = elements.iter().rev().map(|element| [Arg::from(*element)]);
            commands.push_chunks(&head, from_last, &[]);
        }
        ListEdit::Remove { index: 0, count: 1 } => push!(commands, "LPOP", key),
        ListEdit::Remove { index: 0, count } => push!(commands, "LTRIM", key, count, -1_i64),
        ListEdit::PopBack { count: 1, .. } => push!(commands, "RPOP", key),
        ListEdit::PopBack { index, .. } => {
            push!(commands, "LTRIM", key, 0_u64, index.saturating_sub(1));
        }
        ListEdit::Set { index, element } => push!(commands, "LSET", key, index, element),
        ListEdit::Adjacent { side, neighbour, element, .. } => {
            let side = if side == ListSide::Front { "BEFORE" } else { "AFTER" };
            push!(commands, "LINSERT", key, side, neighbour, element);
        }
        ListEdit::Equal { from, element, indexes } => {
            let count = indexes.len() as i64;
            let count = if from == ListSide::Front { count } else { -count };
            push!(commands, "LREM", key, count, element);
        }
        ListEdit::Insert { .. } | ListEdit::Remove { .. } => return Err(NAMELESS),
        // Parts of a checkpoint, which change nothing.
        ListEdit::Part { .. } | ListEdit::Adopt => {}
    }
    Ok(())
}

/// Returns the ends from and to which the edits of one operation move an element, if they do only that. They become
/// one command: between two commands a list of one element would be gone, and its deadline with it.
pub(super) fn rotation(first: &ListEdit<'_>, mut others: Edits<'_>) -> Option<[&'static str; 2]> {
    let from = match first {
        ListEdit::Remove { index: 0, count: 1 } => "LEFT",
        ListEdit::PopBack { count: 1, .. } => "RIGHT",
        _ => return None,
    };
    let to = match others.next()?.ok()? {
        Edit::List(ListEdit::Insert { index: 0, elements }) if elements.len() == 1 => "LEFT",
        Edit::List(ListEdit::PushBack(elements)) if elements.len() == 1 => "RIGHT",
        _ => return None,
    };
    others.next().is_none().then_some([from, to])
}

fn push_back<'a>(
    key: &'a [u8],
    elements: impl Iterator<Item = &'a [u8]>,
    commands: &mut Commands<'_>,
) {
    let elements = elements.map(|element| [Arg::from(element)]);
    commands.push_chunks(&[Arg::from("RPUSH"), Arg::from(key)], elements, &[]);
}
