//! GEOADD.

use tierce_wire::resp::Rest;

use super::geohash::{Geohash, STEP_MAX};
use super::options::point;
use crate::command::{Flags, Group, KeyFlags, KeySpec};
use crate::commands::cursor::Options;
use crate::commands::sorted_sets::add::{AddOptions, set_scores};
use crate::error::CommandError;
use crate::pipeline::{Context, Defined, Done, at_least};

pub(super) static COMMANDS: &[Defined] = &[Defined::new("geoadd", Group::Geo, at_least!(geoadd))
    .flags(Flags::WRITE.with(Flags::DENYOOM))
    .keys(&[KeySpec::at(1, KeyFlags::UPDATE)])
    .since(
        "3.2.0",
        "O(log(N)) for each item added, where N is the number of elements in the sorted set",
    )
    .doc(
        "key [NX | XX] [CH] longitude latitude member [longitude latitude member ...]",
        "Adds one or more members to a geospatial index.",
    )
    .example(
        r#"
        > GEOADD cities 13.405 52.52 Berlin 9.993 53.551 Hamburg
        (integer) 2
        > GEOADD cities XX CH 13.4 52.5 Berlin
        (integer) 1
        > GEOADD cities 200 0 Nowhere
        (error) ERR invalid longitude,latitude pair 200.000000,0.000000
        "#,
    )];

fn geoadd(ctx: &mut Context<'_, '_>, [key]: [&[u8]; 1], arguments: Rest<'_, 3>) -> Done {
    let (mut options, mut arguments) = (AddOptions::default(), Options::of(arguments));
    while arguments.next_if(|word| take(&mut options, word)).is_some() {}
    let places = arguments.rest().groups().filter(|_| !(options.only_new && options.only_present));
    let scored = |[longitude, latitude, member]: [_; 3]| {
        Ok((Geohash::of(point([longitude, latitude])?, STEP_MAX).score(), member))
    };
    let places = places.ok_or(CommandError::SYNTAX)?;
    let scored = places.map(scored).collect::<Result<Vec<_>, CommandError>>()?;
    if scored.is_empty() {
        return Err(CommandError::SYNTAX);
    }
    set_scores(ctx, key, options, &scored)
}

/// Applies an option; returns `false` if the word is none.
fn take(options: &mut AddOptions, word: &[u8]) -> bool {
    match word.to_ascii_lowercase().as_slice() {
        b"nx" => options.only_new = true,
        b"xx" => options.only_present = true,
        b"ch" => options.counts_changed = true,
        _ => return false,
    }
    true
}
