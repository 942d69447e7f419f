//! Geospatial indexes. Positions are members of a sorted set, whose scores are geohashes of 52
//! bits: neighbours on earth are usually neighbours in the set.

mod add;
mod area;
mod distance;
mod geohash;
mod options;
mod polygon;
mod read;
mod search;

use crate::pipeline::Defined;

pub(super) static COMMANDS: &[&[Defined]] = &[add::COMMANDS, read::COMMANDS, search::COMMANDS];
