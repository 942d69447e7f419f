//! GEOPOS, GEODIST and GEOHASH: reading single members.

use tierce_collections::SortedSet;
use tierce_wire::resp::Rest;

use super::distance::between;
use super::geohash::{Geohash, Point};
use super::options::metres;
use crate::command::{Flags, Group, KeyFlags, KeySpec};
use crate::error::CommandError;
use crate::pipeline::{Context, Defined, Done, at_least};
use crate::reply::Reply;

const KEY: &[KeySpec] = &[KeySpec::at(1, KeyFlags::READ)];

pub(super) static COMMANDS: &[Defined] = &[
    Defined::new("geopos", Group::Geo, at_least!(geopos))
        .flags(Flags::READONLY)
        .keys(KEY)
        .since("3.2.0", "O(N) where N is the number of members requested")
        .doc(
            "key [member [member ...]]",
            "Returns the longitude and latitude of members from a geospatial index.",
        )
        .example(
            r#"
            > GEOADD cities 13.405 52.52 Berlin
            (integer) 1
            > GEOPOS cities Berlin Paris
            1) 1) "13.40500205755233765"
               2) "52.51999907056681138"
            2) (nil)
            "#,
        ),
    Defined::new("geodist", Group::Geo, at_least!(geodist))
        .flags(Flags::READONLY)
        .keys(KEY)
        .since("3.2.0", "O(log(N))")
        .doc(
            "key member1 member2 [M | KM | FT | MI]",
            "Returns the distance between two members of a geospatial index.",
        )
        .example(
            r#"
            > GEOADD cities 13.405 52.52 Berlin 9.993 53.551 Hamburg
            (integer) 2
            > GEODIST cities Berlin Hamburg
            "255359.2973"
            > GEODIST cities Berlin Hamburg km
            "255.3593"
            > GEODIST cities Berlin Paris
            (nil)
            "#,
        ),
    Defined::new("geohash", Group::Geo, at_least!(geohash))
        .flags(Flags::READONLY)
        .keys(KEY)
        .since(
            "3.2.0",
            "O(log(N)) for each member requested, where N is the number of elements in the \
                 sorted set",
        )
        .doc(
            "key [member [member ...]]",
            "Returns members from a geospatial index as geohash strings.",
        )
        .example(
            r#"
            > GEOADD cities 13.405 52.52 Berlin
            (integer) 1
            > GEOHASH cities Berlin Paris
            1) "u33dc0cppj0"
            2) (nil)
            "#,
        ),
];

fn place(set: &SortedSet, member: &[u8]) -> Option<Geohash> {
    set.score(member).map(Geohash::of_score)
}

/// Replies with longitude and latitude.
pub(super) fn reply_point(reply: &mut Reply<'_>, point: Point) {
    reply.array(2);
    reply.double_text(&human(point.longitude));
    reply.double_text(&human(point.latitude));
}

/// Formats a number with up to 17 decimals.
fn human(number: f64) -> String {
    let text = format!("{number:.17}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

/// Replies with a distance, as text in either protocol version.
pub(super) fn reply_distance(reply: &mut Reply<'_>, distance: f64) {
    reply.bulk(format!("{distance:.4}").as_bytes());
}

fn geopos(ctx: &mut Context<'_, '_>, [key]: [&[u8]; 1], members: Rest<'_>) -> Done {
    let (mut db, key, reply) = ctx.open(key);
    let set = db.collection::<SortedSet>(key)?;
    reply.array(members.len());
    for member in members.iter() {
        match set.as_ref().and_then(|set| place(set, member)) {
            Some(place) => reply_point(reply, place.point()),
            None => reply.null_array(),
        }
    }
    Ok(())
}

fn geohash(ctx: &mut Context<'_, '_>, [key]: [&[u8]; 1], members: Rest<'_>) -> Done {
    let (mut db, key, reply) = ctx.open(key);
    let set = db.collection::<SortedSet>(key)?;
    reply.array(members.len());
    for member in members.iter() {
        match set.as_ref().and_then(|set| place(set, member)) {
            Some(place) => reply.bulk(&place.text()),
            None => reply.null(),
        }
    }
    Ok(())
}

fn geodist(
    ctx: &mut Context<'_, '_>,
    [key, member1, member2]: [&[u8]; 3],
    options: Rest<'_>,
) -> Done {
    if options.len() > 1 {
        return Err(CommandError::SYNTAX);
    }
    let unit = options.get(0).map_or(Ok(1.0), metres)?;
    let (mut db, key, reply) = ctx.open(key);
    let places = db
        .collection::<SortedSet>(key)?
        .and_then(|set| Some((place(&set, member1)?, place(&set, member2)?)));
    match places {
        Some((from, to)) => reply_distance(reply, between(from.point(), to.point()) / unit),
        None => reply.null(),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coordinates_have_up_to_17_decimals() {
        assert_eq!(human(13.361_389_338_970_184), "13.36138933897018433");
        assert_eq!(human(-2.5), "-2.5");
        assert_eq!(human(180.0), "180");
        assert_eq!(human(-1e-30), "0");
    }
}
