//! Edits of sets as commands.

use tierce_keyspace::log::SetEdit;

use super::commands::{Arg, Commands, push};

pub(super) fn edit(key: &[u8], edit: &SetEdit<'_>, commands: &mut Commands<'_>) {
    match *edit {
        SetEdit::Members(members) => {
            let members = members.map(|member| [Arg::from(member)]);
            commands.push_chunks(&[Arg::from("SADD"), Arg::from(key)], members, &[]);
        }
        SetEdit::Remove(member) => push!(commands, "SREM", key, member),
    }
}
