//! Edits of sorted sets as commands.

use tierce_keyspace::log::SortedSetEdit;

use super::commands::{Arg, Commands, push};

pub(super) fn edit(key: &[u8], edit: &SortedSetEdit<'_>, commands: &mut Commands<'_>) {
    match *edit {
        SortedSetEdit::Scores(members) => {
            let members = members.map(|(score, member)| [Arg::from(score), Arg::from(member)]);
            commands.push_chunks(&[Arg::from("ZADD"), Arg::from(key)], members, &[]);
        }
        SortedSetEdit::Remove(member) => push!(commands, "ZREM", key, member),
    }
}
