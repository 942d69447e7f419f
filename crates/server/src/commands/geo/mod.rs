//! Commands on places on earth. They are members of a sorted set, whose scores are geohashes of 52
//! bits: neighbours on earth are mostly neighbours in the order of the set.

mod add;
mod area;
mod distance;
mod geohash;
mod look;
mod options;
mod search;

use crate::command::Spec;

pub(super) static COMMANDS: &[&[Spec]] = &[add::COMMANDS, look::COMMANDS, search::COMMANDS];
