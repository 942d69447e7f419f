//! Edits of sets as commands.

use tierce_keyspace::log::SetEdit;

use super::Dialect;
use super::commands::{Arg, Commands, push, push_newer};

pub(super) fn edit(key: &[u8], edit: &SetEdit<'_>, dialect: Dialect, commands: &mut Commands<'_>) {
    match *edit {
        SetEdit::Members(members) => {
            let members = members.map(|member| [Arg::from(member)]);
            commands.push_chunks(&[Arg::from("SADD"), Arg::from(key)], members, &[]);
        }
        // The members exist there: an edit before this one has added them. Older servers keep them until they are
        // deleted here.
        SetEdit::TimedMembers(_) if dialect < Dialect::Tierce => {}
        SetEdit::TimedMembers(members) => {
            for (member, deadline) in members {
                match deadline.0 {
                    Some(at_ms) => {
                        push_newer!(
                            commands, "SADDEX", key, "PXAT", at_ms, "MEMBERS", 1_u64, member
                        );
                    }
                    None => push_newer!(commands, "SADDEX", key, "MEMBERS", 1_u64, member),
                }
            }
        }
        SetEdit::Remove(member) => push!(commands, "SREM", key, member),
    }
}
