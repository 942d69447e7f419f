//! GEOADD.

use tierce_wire::resp::Args;

use super::geohash::{Geohash, STEP_MAX};
use super::options::point;
use crate::command::{Flags, Group, KeyFlags, KeySpec, Spec};
use crate::commands::sorted_sets::add::{Options, set_scores};
use crate::error::CommandError;
use crate::execute::Context;

pub(super) static COMMANDS: &[Spec] = &[Spec::new("geoadd", -5, Group::Geo, geoadd)
    .flags(Flags::WRITE.with(Flags::DENYOOM))
    .keys(&[KeySpec::at(1, KeyFlags::UPDATE)])
    .doc(
        "3.2.0",
        "O(log(N)) for each item added, where N is the number of elements in the sorted set",
        "key [NX | XX] [CH] longitude latitude member [longitude latitude member ...]",
        "Adds one or more members to a geospatial index.",
    )];

fn geoadd(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let mut options = Options::default();
    let mut first = 2;
    while let Some(word) = args.get(first) {
        match word.to_ascii_lowercase().as_slice() {
            b"nx" => options.only_new = true,
            b"xx" => options.only_present = true,
            b"ch" => options.counts_changed = true,
            _ => break,
        }
        first += 1;
    }
    let places = args.from(first);
    if !places.len().is_multiple_of(3) || options.only_new && options.only_present {
        return Err(CommandError::SYNTAX);
    }
    let score = |at| Ok(Geohash::of(point(places, 3 * at)?, STEP_MAX).score());
    let scores = (0..places.len() / 3).map(score).collect::<Result<Vec<f64>, CommandError>>()?;
    if scores.is_empty() {
        return Err(CommandError::SYNTAX);
    }
    set_scores(ctx, args.at(1), options, &scores, |at| places.at(3 * at + 2))
}
