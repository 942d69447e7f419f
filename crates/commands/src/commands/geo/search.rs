//! GEOSEARCH, GEOSEARCHSTORE, and the older GEORADIUS commands.

use std::ops::Range;

use tierce_collections::{Collection, Element, IntText, PackedLimits, ScoreBound, SortedSet};
use tierce_keyspace::Event;
use tierce_wire::resp::Rest;

use super::area::{Area, Shape};
use super::geohash::{Geohash, Point};
use super::options::{length, metres, point};
use super::polygon::Polygon;
use super::read::{reply_distance, reply_point};
use crate::command::{Flags, Group, KeyFlags, KeySpec};
use crate::commands::cursor::Options;
use crate::commands::options::integer;
use crate::commands::store::store_result;
use crate::error::CommandError;
use crate::pipeline::{Context, Defined, Done, Scale, at_least};
use crate::reply::Reply;

const WRITE: Flags = Flags::WRITE.with(Flags::DENYOOM);
const KEY: &[KeySpec] = &[KeySpec::at(1, KeyFlags::READ)];
const SEARCH: &str = "O(N+log(M)) where N is the number of elements in the grid-aligned bounding box \
                      area around the shape provided as the filter and M is the number of items \
                      inside the shape";
const RADIUS: &str = "O(N+log(M)) where N is the number of elements inside the bounding box of the \
                      circular area delimited by center and radius and M is the number of items \
                      inside the index";

pub(super) static COMMANDS: &[Defined] = &[
    Defined::new("geosearch", Group::Geo, at_least!(geosearch))
        .flags(Flags::READONLY)
        .keys(KEY)
        .since("6.2.0", SEARCH)
        .doc(
            "key <<FROMMEMBER member | FROMLONLAT longitude latitude> <BYRADIUS radius <M | KM \
                 | FT | MI> | BYBOX width height <M | KM | FT | MI>> | BYPOLYGON num-vertices \
                 longitude latitude longitude latitude longitude latitude [longitude latitude \
                 ...]> [ASC | DESC] [COUNT count [ANY]] \
                 [WITHCOORD] [WITHDIST] [WITHHASH]",
            "Queries a geospatial index for members inside an area of a box, a circle or a polygon.",
        )
        .example(
            r#"
            > GEOADD cities 13.405 52.52 Berlin 9.993 53.551 Hamburg 11.582 48.135 Munich
            (integer) 3
            > GEOSEARCH cities FROMMEMBER Berlin BYRADIUS 300 km ASC
            1) "Berlin"
            2) "Hamburg"
            > GEOSEARCH cities FROMLONLAT 10 50 BYBOX 500 500 km ASC COUNT 1 WITHDIST
            1) 1) "Munich"
               2) "237.3060"
            > GEOSEARCH cities BYPOLYGON 3 10 47 15 47 12 50
            1) "Munich"
            "#,
        ),
    Defined::new("geosearchstore", Group::Geo, at_least!(geosearchstore))
        .flags(WRITE)
        .keys(&[KeySpec::at(1, KeyFlags::OVERWRITE), KeySpec::at(2, KeyFlags::READ)])
        .since("6.2.0", SEARCH)
        .doc(
            "destination source <<FROMMEMBER member | FROMLONLAT longitude latitude> <BYRADIUS \
                 radius <M | KM | FT | MI> | BYBOX width height <M | KM | FT | MI>> | BYPOLYGON \
                 num-vertices longitude latitude longitude latitude longitude latitude \
                 [longitude latitude ...]> [ASC | DESC] [COUNT \
                 count [ANY]] [STOREDIST]",
            "Queries a geospatial index for members inside an area of a box, a circle or a polygon, \
                 and stores the result.",
        )
        .example(
            r#"
            > GEOADD cities 13.405 52.52 Berlin 9.993 53.551 Hamburg 11.582 48.135 Munich
            (integer) 3
            > GEOSEARCHSTORE near cities FROMMEMBER Berlin BYRADIUS 300 km
            (integer) 2
            > GEOSEARCHSTORE distances cities FROMMEMBER Berlin BYRADIUS 300 km STOREDIST
            (integer) 2
            > ZRANGE distances 0 -1
            1) "Berlin"
            2) "Hamburg"
            "#,
        ),
    Defined::new(
        "georadius",
        Group::Geo,
        at_least!(|ctx, args, rest| around_point(ctx, args, rest, true)),
    )
    .deprecated("6.2.0", "`GEOSEARCH` and `GEOSEARCHSTORE` with the `BYRADIUS` argument")
    .flags(WRITE)
    .keys(&[
        KeySpec::at(1, KeyFlags::READ),
        KeySpec::behind("STORE", &[("COUNT", 1), ("STOREDIST", 1)], 6, KeyFlags::OVERWRITE),
        KeySpec::behind("STOREDIST", &[("COUNT", 1), ("STORE", 1)], 6, KeyFlags::OVERWRITE),
    ])
    .since("3.2.0", RADIUS)
    .doc(
        "key longitude latitude radius <M | KM | FT | MI> [WITHCOORD] [WITHDIST] \
                 [WITHHASH] [COUNT count [ANY]] [ASC | DESC] [STORE key | STOREDIST key]",
        "Queries a geospatial index for members within a distance from a coordinate, and \
                 optionally stores the result.",
    )
    .example(
        r#"
            > GEOADD cities 13.405 52.52 Berlin 9.993 53.551 Hamburg 11.582 48.135 Munich
            (integer) 3
            > GEORADIUS cities 13 52 200 km
            1) "Berlin"
            > GEORADIUS cities 10 50 500 km WITHDIST DESC COUNT 1
            1) 1) "Hamburg"
               2) "394.9648"
            > GEORADIUS cities 13 52 500 km STORE near
            (integer) 3
            "#,
    ),
    Defined::new(
        "georadius_ro",
        Group::Geo,
        at_least!(|ctx, args, rest| around_point(ctx, args, rest, false)),
    )
    .deprecated("6.2.0", "`GEOSEARCH` with the `BYRADIUS` argument")
    .flags(Flags::READONLY)
    .keys(KEY)
    .since("3.2.10", RADIUS)
    .doc(
        "key longitude latitude radius <M | KM | FT | MI> [WITHCOORD] [WITHDIST] \
                 [WITHHASH] [COUNT count [ANY]] [ASC | DESC]",
        "Returns members from a geospatial index that are within a distance from a \
                 coordinate.",
    )
    .example(
        r#"
            > GEOADD cities 13.405 52.52 Berlin 9.993 53.551 Hamburg 11.582 48.135 Munich
            (integer) 3
            > GEORADIUS_RO cities 13 52 200 km
            1) "Berlin"
            "#,
    ),
    Defined::new(
        "georadiusbymember",
        Group::Geo,
        at_least!(|ctx, args, rest| around_member(ctx, args, rest, true)),
    )
    .deprecated(
        "6.2.0",
        "`GEOSEARCH` and `GEOSEARCHSTORE` with the `BYRADIUS` and `FROMMEMBER` arguments",
    )
    .flags(WRITE)
    .keys(&[
        KeySpec::at(1, KeyFlags::READ),
        KeySpec::behind("STORE", &[("COUNT", 1), ("STOREDIST", 1)], 5, KeyFlags::OVERWRITE),
        KeySpec::behind("STOREDIST", &[("COUNT", 1), ("STORE", 1)], 5, KeyFlags::OVERWRITE),
    ])
    .since("3.2.0", RADIUS)
    .doc(
        "key member radius <M | KM | FT | MI> [WITHCOORD] [WITHDIST] [WITHHASH] [COUNT \
                 count [ANY]] [ASC | DESC] [STORE key | STOREDIST key]",
        "Queries a geospatial index for members within a distance from a member, and \
                 optionally stores the result.",
    )
    .example(
        r#"
            > GEOADD cities 13.405 52.52 Berlin 9.993 53.551 Hamburg 11.582 48.135 Munich
            (integer) 3
            > GEORADIUSBYMEMBER cities Berlin 300 km ASC
            1) "Berlin"
            2) "Hamburg"
            > GEORADIUSBYMEMBER cities Berlin 300 km STORE near
            (integer) 2
            "#,
    ),
    Defined::new(
        "georadiusbymember_ro",
        Group::Geo,
        at_least!(|ctx, args, rest| around_member(ctx, args, rest, false)),
    )
    .deprecated("6.2.0", "`GEOSEARCH` with the `BYRADIUS` and `FROMMEMBER` arguments")
    .flags(Flags::READONLY)
    .keys(KEY)
    .since("3.2.10", RADIUS)
    .doc(
        "key member radius <M | KM | FT | MI> [WITHCOORD] [WITHDIST] [WITHHASH] [COUNT \
                 count [ANY]] [ASC | DESC]",
        "Returns members from a geospatial index that are within a distance from a \
                 member.",
    )
    .example(
        r#"
            > GEOADD cities 13.405 52.52 Berlin 9.993 53.551 Hamburg 11.582 48.135 Munich
            (integer) 3
            > GEORADIUSBYMEMBER_RO cities Berlin 300 km WITHDIST ASC
            1) 1) "Berlin"
               2) "0.0000"
            2) 1) "Hamburg"
               2) "255.3593"
            "#,
    ),
];

fn geosearch(ctx: &mut Context<'_, '_>, [key]: [&[u8]; 1], options: Rest<'_, 5>) -> Done {
    let (name, options) = (ctx.spelled_name(), Options::of(options));
    run(ctx, key, None, |set| Query::search(options, false, name, set))
}

fn geosearchstore(
    ctx: &mut Context<'_, '_>,
    [destination, source]: [&[u8]; 2],
    options: Rest<'_, 5>,
) -> Done {
    let (name, options) = (ctx.spelled_name(), Options::of(options));
    run(ctx, source, Some(destination), |set| Query::search(options, true, name, set))
}

fn around_point(
    ctx: &mut Context<'_, '_>,
    [key, longitude, latitude, radius, unit]: [&[u8]; 5],
    options: Rest<'_>,
    may_store: bool,
) -> Done {
    let form = Form::Radius { may_store };
    let place = [longitude, latitude, radius, unit];
    run(ctx, key, None, |_| Query::around_point(place, Options::of(options), form))
}

fn around_member(
    ctx: &mut Context<'_, '_>,
    [key, member, radius, unit]: [&[u8]; 4],
    options: Rest<'_>,
    may_store: bool,
) -> Done {
    let form = Form::Radius { may_store };
    let place = [member, radius, unit];
    run(ctx, key, None, |set| Query::around_member(place, Options::of(options), form, set))
}

/// Sides of a polygon that take as long as a visit of a member.
const SIDES_A_STEP: usize = 16;

/// Form of a command, which determines its options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Search { stores: bool },
    Radius { may_store: bool },
}

/// Order of the results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Nearest,
    Farthest,
}

/// Centre of the search.
#[derive(Debug, Clone, Copy)]
enum Centre {
    Point(Point),
    /// Position of a member; none if there is no set.
    Member(Option<Point>),
}

impl Centre {
    fn member(set: Option<&SortedSet>, member: &[u8]) -> Result<Self, CommandError> {
        const NO_MEMBER: CommandError =
            CommandError::new("ERR could not decode requested zset member");
        let Some(set) = set else { return Ok(Self::Member(None)) };
        let score = set.score(member).ok_or(NO_MEMBER)?;
        Ok(Self::Member(Some(Geohash::of_score(score).point())))
    }

    fn point(self) -> Option<Point> {
        match self {
            Self::Point(point) => Some(point),
            Self::Member(point) => point,
        }
    }
}

/// Search and reply options.
#[derive(Debug, Clone, Default)]
struct Query<'a> {
    centre: Option<Centre>,
    shape: Option<Shape>,
    /// Metres of the unit of distances.
    unit: f64,
    with_distance: bool,
    with_hash: bool,
    with_point: bool,
    order: Option<Order>,
    /// Maximum number of results; 0 for all.
    count: usize,
    /// True if any results will do, not only the nearest ones.
    any: bool,
    /// Destination key of a GEORADIUS command.
    store: Option<&'a [u8]>,
    /// True if distances are stored instead of positions.
    stores_distances: bool,
}

impl<'a> Query<'a> {
    /// Parses the arguments after the keys of GEOSEARCH and GEOSEARCHSTORE.
    fn search(
        options: Options<'a>,
        stores: bool,
        name: &[u8],
        set: Option<&SortedSet>,
    ) -> Result<Self, CommandError> {
        let mut query = Self::default();
        query.take_options(options, Form::Search { stores }, set)?;
        if stores {
            query.refuse_details("GEOSEARCHSTORE")?;
        }
        let one_of = |what: &str| {
            let name = String::from_utf8_lossy(name);
            CommandError::text(format!("ERR exactly one of {what} for {name}"))
        };
        if query.centre.is_none() {
            return Err(one_of("FROMMEMBER or FROMLONLAT can be specified"));
        }
        if query.shape.is_none() {
            return Err(one_of("BYRADIUS and BYBOX can be specified"));
        }
        query.check_any()
    }

    /// Parses GEORADIUS and GEORADIUS_RO.
    fn around_point(
        [longitude, latitude, radius, unit]: [&[u8]; 4],
        options: Options<'a>,
        form: Form,
    ) -> Result<Self, CommandError> {
        let centre = Some(Centre::Point(point([longitude, latitude])?));
        let mut query = Self { centre, ..Self::default() };
        query.set_circle(radius, unit)?;
        query.around(options, form)
    }

    /// Parses GEORADIUSBYMEMBER and GEORADIUSBYMEMBER_RO.
    fn around_member(
        [member, radius, unit]: [&[u8]; 3],
        options: Options<'a>,
        form: Form,
        set: Option<&SortedSet>,
    ) -> Result<Self, CommandError> {
        let centre = Some(Centre::member(set, member)?);
        let mut query = Self { centre, ..Self::default() };
        // Without a set the radius is not checked.
        if set.is_some() {
            query.set_circle(radius, unit)?;
        }
        query.around(options, form)
    }

    fn around(mut self, options: Options<'a>, form: Form) -> Result<Self, CommandError> {
        self.take_options(options, form, None)?;
        if self.store.is_some() {
            self.refuse_details("STORE option in GEORADIUS")?;
        }
        self.check_any()
    }

    fn set_circle(&mut self, radius: &[u8], unit: &[u8]) -> Done {
        let radius = length(radius, "radius")?;
        if radius < 0.0 {
            return Err(CommandError::new("ERR radius cannot be negative"));
        }
        self.unit = metres(unit)?;
        self.shape = Some(Shape::Circle { radius: radius * self.unit });
        Ok(())
    }

    fn set_rectangle(&mut self, width: &[u8], height: &[u8], unit: &[u8]) -> Done {
        let (width, height) = (length(width, "width")?, length(height, "height")?);
        if width < 0.0 || height < 0.0 {
            return Err(CommandError::new("ERR height or width cannot be negative"));
        }
        self.unit = metres(unit)?;
        self.shape =
            Some(Shape::Rectangle { width: width * self.unit, height: height * self.unit });
        Ok(())
    }

    fn set_polygon(&mut self, options: &mut Options<'a>) -> Done {
        let count = integer(options.value()?)?;
        let too_few = |count| {
            let text = format!("ERR GEOSEARCH BYPOLYGON must have at least {count} vertices");
            Err(CommandError::text(text))
        };
        if count < 3 {
            return too_few(3);
        }
        if options.left() as i64 / 2 < count {
            return too_few(count);
        }
        let corner = |_| point(options.values()?);
        let polygon = Polygon::of((0..count).map(corner).collect::<Result<_, _>>()?);
        self.unit = 1.0;
        self.centre = Some(Centre::Point(polygon.centre()));
        self.shape = Some(Shape::Polygon(polygon));
        Ok(())
    }

    fn take_options(
        &mut self,
        mut options: Options<'a>,
        form: Form,
        set: Option<&SortedSet>,
    ) -> Done {
        while let Some(word) = options.next_word() {
            if !self.take_flag(&word) {
                self.take_option(&word, &mut options, form, set)?;
            }
        }
        Ok(())
    }

    /// Applies an option of one word; returns `false` if it is none.
    fn take_flag(&mut self, word: &[u8]) -> bool {
        match word {
            b"withdist" => self.with_distance = true,
            b"withhash" => self.with_hash = true,
            b"withcoord" => self.with_point = true,
            b"any" => self.any = true,
            b"asc" => self.order = Some(Order::Nearest),
            b"desc" => self.order = Some(Order::Farthest),
            _ => return false,
        }
        true
    }

    /// Applies an option with its values.
    fn take_option(
        &mut self,
        word: &[u8],
        values: &mut Options<'a>,
        form: Form,
        set: Option<&SortedSet>,
    ) -> Done {
        let is_rectangle = matches!(self.shape, Some(Shape::Rectangle { .. }));
        let is_circle = matches!(self.shape, Some(Shape::Circle { .. }));
        let is_polygon = matches!(self.shape, Some(Shape::Polygon(_)));
        match (word, form) {
            (b"count", _) => {
                let count = integer(values.value()?)?;
                if count <= 0 {
                    return Err(CommandError::new("ERR COUNT must be > 0"));
                }
                self.count = count as usize;
            }
            (b"store" | b"storedist", Form::Radius { may_store: true }) => {
                self.store = Some(values.value()?);
                self.stores_distances = word == b"storedist";
            }
            (b"storedist", Form::Search { stores: true }) => self.stores_distances = true,
            (b"frommember", Form::Search { .. })
                if !is_polygon && !matches!(self.centre, Some(Centre::Point(_))) =>
            {
                self.centre = Some(Centre::member(set, values.value()?)?);
            }
            (b"fromlonlat", Form::Search { .. })
                if !is_polygon && !matches!(self.centre, Some(Centre::Member(_))) =>
            {
                self.centre = Some(Centre::Point(point(values.values()?)?));
            }
            (b"byradius", Form::Search { .. }) if !is_rectangle && !is_polygon => {
                let [radius, unit] = values.values()?;
                self.set_circle(radius, unit)?;
            }
            (b"bybox", Form::Search { .. }) if !is_circle && !is_polygon => {
                let [width, height, unit] = values.values()?;
                self.set_rectangle(width, height, unit)?;
            }
            (b"bypolygon", Form::Search { .. })
                if self.centre.is_none() && self.shape.is_none() =>
            {
                self.set_polygon(values)?;
            }
            _ => return Err(CommandError::SYNTAX),
        }
        Ok(())
    }

    /// Refuses options for reply details: only positions or distances can be stored.
    fn refuse_details(&self, what: &str) -> Done {
        if self.with_distance || self.with_hash || self.with_point {
            return Err(CommandError::text(format!(
                "ERR {what} is not compatible with WITHDIST, WITHHASH and WITHCOORD options"
            )));
        }
        Ok(())
    }

    fn check_any(self) -> Result<Self, CommandError> {
        if self.any && self.count == 0 {
            return Err(CommandError::new("ERR the ANY argument requires COUNT argument"));
        }
        Ok(self)
    }

    /// Returns the search area, if centre and shape are known.
    fn area(&self) -> Option<Area> {
        Some(Area { centre: self.centre.and_then(Centre::point)?, shape: self.shape.clone()? })
    }

    /// Weighs the members that [`Query::find`] visits.
    fn weigh(&self, scale: Scale, set: &SortedSet) -> Done {
        let Some(area) = self.area() else { return Ok(()) };
        let visited: usize = area.cells().into_iter().map(|cell| ranks_of(set, cell).len()).sum();
        // Each member inside of the rectangle around a polygon is compared with all of its sides.
        let each = match &area.shape {
            Shape::Polygon(polygon) => polygon.len().div_ceil(SIDES_A_STEP),
            _ => 1,
        };
        scale.weigh(visited.saturating_mul(each))
    }

    fn find<'s>(&self, set: &'s SortedSet) -> Vec<Found<'s>> {
        let Some(area) = self.area() else { return Vec::new() };
        let enough = if self.any { self.count } else { usize::MAX };
        let mut found = Vec::new();
        'cells: for cell in area.cells() {
            for (member, score) in set.range(ranks_of(set, cell)) {
                let point = Geohash::of_score(score).point();
                if let Some(distance) = area.distance(point) {
                    found.push(Found { member, score, point, distance });
                    if found.len() >= enough {
                        break 'cells;
                    }
                }
            }
        }
        // With COUNT, the nearest ones come first, unless ANY is given.
        let default = (self.count > 0 && !self.any).then_some(Order::Nearest);
        match self.order.or(default) {
            Some(Order::Nearest) => found.sort_by(|a, b| a.distance.total_cmp(&b.distance)),
            Some(Order::Farthest) => found.sort_by(|a, b| b.distance.total_cmp(&a.distance)),
            None => {}
        }
        if self.count > 0 {
            found.truncate(self.count);
        }
        found
    }

    fn reply(&self, reply: &mut Reply<'_>, found: &[Found<'_>]) {
        let details = [self.with_distance, self.with_hash, self.with_point];
        let details = details.into_iter().filter(|is_wanted| *is_wanted).count();
        reply.array(found.len());
        for place in found {
            if details > 0 {
                reply.array(details + 1);
            }
            reply.element(place.member);
            if self.with_distance {
                reply_distance(reply, place.distance / self.unit);
            }
            if self.with_hash {
                reply.int(place.score as i64);
            }
            if self.with_point {
                reply_point(reply, place.point);
            }
        }
    }

    /// Creates a sorted set of the results.
    fn stored(&self, found: &[Found<'_>], limits: &PackedLimits) -> SortedSet {
        let mut made = SortedSet::new();
        let mut text = IntText::new();
        for place in found {
            let distance = place.distance / self.unit;
            let score = if self.stores_distances { distance } else { place.score };
            made.insert(place.member.bytes(&mut text), score, limits);
        }
        made
    }
}

/// A result in the area.
struct Found<'a> {
    member: Element<'a>,
    score: f64,
    point: Point,
    /// Distance from the centre, in metres.
    distance: f64,
}

/// Returns the ranks of the members in a cell.
fn ranks_of(set: &SortedSet, cell: Geohash) -> Range<usize> {
    let (min, max) = cell.scores();
    set.ranks_of_scores(ScoreBound::Included(min), ScoreBound::Excluded(max))
}

/// Searches the set `from` with the query of `parse`. Replies with the results, or stores them in `to` or the key of
/// the options.
fn run<'a>(
    ctx: &mut Context<'_, '_>,
    from: &[u8],
    to: Option<&'a [u8]>,
    parse: impl FnOnce(Option<&SortedSet>) -> Result<Query<'a>, CommandError>,
) -> Done {
    let (kernel, scale) = (ctx.kernel, ctx.scale());
    let (to, event, made, len) = {
        let (mut db, key, reply) = ctx.open(from);
        let set = db.collection::<SortedSet>(key)?;
        let query = parse(set.as_deref())?;
        if let Some(set) = &set {
            query.weigh(scale, set)?;
        }
        let found = set.as_ref().map(|set| query.find(set)).unwrap_or_default();
        let (to, event) = match (to, query.store) {
            (Some(to), _) => (to, Event::GeoSearchStore),
            (None, Some(to)) => (to, Event::GeoRadiusStore),
            (None, None) => {
                query.reply(reply, &found);
                return Ok(());
            }
        };
        (to, event, query.stored(&found, &kernel.keyspace.limits().sorted_set), found.len())
    };
    let (mut db, key, reply) = ctx.open(to);
    store_result(&mut db, key, Collection::SortedSet(made), event)?;
    reply.count(len);
    Ok(())
}
