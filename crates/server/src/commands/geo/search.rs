//! GEOSEARCH, GEOSEARCHSTORE, and the older GEORADIUS commands.

use tierce_collections::{Collection, Element, IntText, PackedLimits, ScoreBound, SortedSet};
use tierce_wire::resp::Args;

use super::area::{Area, Shape};
use super::geohash::{Geohash, Point};
use super::look::{reply_distance, reply_point};
use super::options::{length, metres, point};
use crate::command::{Flags, Group, KeyFlags, KeySpec, Spec};
use crate::commands::options::integer;
use crate::error::CommandError;
use crate::execute::Context;
use crate::reply::Reply;

const WRITE: Flags = Flags::WRITE.with(Flags::DENYOOM);
const KEY: &[KeySpec] = &[KeySpec::at(1, KeyFlags::READ)];
const SEARCH: &str = "O(N+log(M)) where N is the number of elements in the grid-aligned bounding box \
                      area around the shape provided as the filter and M is the number of items \
                      inside the shape";
const RADIUS: &str = "O(N+log(M)) where N is the number of elements inside the bounding box of the \
                      circular area delimited by center and radius and M is the number of items \
                      inside the index";

pub(super) static COMMANDS: &[Spec] = &[
    Spec::new("geosearch", -7, Group::Geo, geosearch).flags(Flags::READONLY).keys(KEY).doc(
        "6.2.0",
        SEARCH,
        "key <FROMMEMBER member | FROMLONLAT longitude latitude> <BYRADIUS radius <M | KM | FT | MI> \
         | BYBOX width height <M | KM | FT | MI>> [ASC | DESC] [COUNT count [ANY]] [WITHCOORD] \
         [WITHDIST] [WITHHASH]",
        "Queries a geospatial index for members inside an area of a box or a circle.",
    ),
    Spec::new("geosearchstore", -8, Group::Geo, geosearchstore)
        .flags(WRITE)
        .keys(&[KeySpec::at(1, KeyFlags::OVERWRITE), KeySpec::at(2, KeyFlags::READ)])
        .doc(
            "6.2.0",
            SEARCH,
            "destination source <FROMMEMBER member | FROMLONLAT longitude latitude> <BYRADIUS radius \
             <M | KM | FT | MI> | BYBOX width height <M | KM | FT | MI>> [ASC | DESC] [COUNT count \
             [ANY]] [STOREDIST]",
            "Queries a geospatial index for members inside an area of a box or a circle, and stores \
             the result.",
        ),
    Spec::new("georadius", -6, Group::Geo, georadius)
        .deprecated("6.2.0", "`GEOSEARCH` and `GEOSEARCHSTORE` with the `BYRADIUS` argument")
        .flags(WRITE)
        .keys(&[
            KeySpec::at(1, KeyFlags::READ),
            KeySpec::behind("STORE", &[("COUNT", 1), ("STOREDIST", 1)], 6, KeyFlags::OVERWRITE),
            KeySpec::behind("STOREDIST", &[("COUNT", 1), ("STORE", 1)], 6, KeyFlags::OVERWRITE),
        ])
        .doc(
            "3.2.0",
            RADIUS,
            "key longitude latitude radius <M | KM | FT | MI> [WITHCOORD] [WITHDIST] [WITHHASH] \
             [COUNT count [ANY]] [ASC | DESC] [STORE key | STOREDIST key]",
            "Queries a geospatial index for members within a distance from a coordinate, and \
             optionally stores the result.",
        ),
    Spec::new("georadius_ro", -6, Group::Geo, georadius_ro)
        .deprecated("6.2.0", "`GEOSEARCH` with the `BYRADIUS` argument")
        .flags(Flags::READONLY)
        .keys(KEY)
        .doc(
            "3.2.10",
            RADIUS,
            "key longitude latitude radius <M | KM | FT | MI> [WITHCOORD] [WITHDIST] [WITHHASH] \
             [COUNT count [ANY]] [ASC | DESC]",
            "Returns members from a geospatial index that are within a distance from a coordinate.",
        ),
    Spec::new("georadiusbymember", -5, Group::Geo, georadiusbymember)
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
        .doc(
            "3.2.0",
            RADIUS,
            "key member radius <M | KM | FT | MI> [WITHCOORD] [WITHDIST] [WITHHASH] [COUNT count \
             [ANY]] [ASC | DESC] [STORE key | STOREDIST key]",
            "Queries a geospatial index for members within a distance from a member, and optionally \
             stores the result.",
        ),
    Spec::new("georadiusbymember_ro", -5, Group::Geo, georadiusbymember_ro)
        .deprecated("6.2.0", "`GEOSEARCH` with the `BYRADIUS` and `FROMMEMBER` arguments")
        .flags(Flags::READONLY)
        .keys(KEY)
        .doc(
            "3.2.10",
            RADIUS,
            "key member radius <M | KM | FT | MI> [WITHCOORD] [WITHDIST] [WITHHASH] [COUNT count \
             [ANY]] [ASC | DESC]",
            "Returns members from a geospatial index that are within a distance from a member.",
        ),
];

type Done = Result<(), CommandError>;

fn geosearch(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    run(ctx, args.at(1), None, |set| Query::search(args.from(2), false, &args[0], set))
}

fn geosearchstore(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let to = Some(args.at(1));
    run(ctx, args.at(2), to, |set| Query::search(args.from(3), true, &args[0], set))
}

fn georadius(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let form = Form::Radius { may_store: true };
    run(ctx, args.at(1), None, |_| Query::around_point(args, form))
}

fn georadius_ro(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let form = Form::Radius { may_store: false };
    run(ctx, args.at(1), None, |_| Query::around_point(args, form))
}

fn georadiusbymember(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let form = Form::Radius { may_store: true };
    run(ctx, args.at(1), None, |set| Query::around_member(args, form, set))
}

fn georadiusbymember_ro(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let form = Form::Radius { may_store: false };
    run(ctx, args.at(1), None, |set| Query::around_member(args, form, set))
}

/// Which options a command has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Search { stores: bool },
    Radius { may_store: bool },
}

/// In which order places are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Nearest,
    Farthest,
}

/// The middle of what is searched.
#[derive(Debug, Clone, Copy)]
enum Centre {
    Point(Point),
    /// Where a member is; nowhere if there is no set.
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

/// What is to be found, and what is to be said of it.
#[derive(Debug, Clone, Copy, Default)]
struct Query<'a> {
    centre: Option<Centre>,
    shape: Option<Shape>,
    /// Metres of the unit of distances.
    unit: f64,
    with_distance: bool,
    with_hash: bool,
    with_point: bool,
    order: Option<Order>,
    /// Places at most; 0 for all.
    count: usize,
    /// Whether any places will do.
    any: bool,
    /// The key that a GEORADIUS command names.
    store: Option<&'a [u8]>,
    /// Whether distances are stored, and not places.
    stores_distances: bool,
}

impl<'a> Query<'a> {
    /// What stands behind the keys of GEOSEARCH and GEOSEARCHSTORE.
    fn search(
        options: Args<'a>,
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

    /// GEORADIUS and GEORADIUS_RO.
    fn around_point(args: Args<'a>, form: Form) -> Result<Self, CommandError> {
        let centre = Some(Centre::Point(point(args, 2)?));
        let mut query = Self { centre, ..Self::default() };
        query.set_circle(&args[4], &args[5])?;
        query.around(args.from(6), form)
    }

    /// GEORADIUSBYMEMBER and GEORADIUSBYMEMBER_RO.
    fn around_member(
        args: Args<'a>,
        form: Form,
        set: Option<&SortedSet>,
    ) -> Result<Self, CommandError> {
        let centre = Some(Centre::member(set, &args[2])?);
        let mut query = Self { centre, ..Self::default() };
        // Without a set nobody looks at the radius.
        if set.is_some() {
            query.set_circle(&args[3], &args[4])?;
        }
        query.around(args.from(5), form)
    }

    fn around(mut self, options: Args<'a>, form: Form) -> Result<Self, CommandError> {
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

    fn take_options(&mut self, options: Args<'a>, form: Form, set: Option<&SortedSet>) -> Done {
        let mut at = 0;
        while at < options.len() {
            at += 1 + match self.take_flag(&options[at]) {
                true => 0,
                false => self.take_option(options.from(at), form, set)?,
            };
        }
        Ok(())
    }

    /// Takes in an option of one word; `false` if it is none.
    fn take_flag(&mut self, word: &[u8]) -> bool {
        match word.to_ascii_lowercase().as_slice() {
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

    /// Takes in an option with arguments; how many.
    fn take_option(
        &mut self,
        option: Args<'a>,
        form: Form,
        set: Option<&SortedSet>,
    ) -> Result<usize, CommandError> {
        let word = option[0].to_ascii_lowercase();
        let arguments = option.len() - 1;
        let is_rectangle = matches!(self.shape, Some(Shape::Rectangle { .. }));
        let is_circle = matches!(self.shape, Some(Shape::Circle { .. }));
        match (word.as_slice(), form) {
            (b"count", _) if arguments >= 1 => {
                let count = integer(&option[1])?;
                if count <= 0 {
                    return Err(CommandError::new("ERR COUNT must be > 0"));
                }
                self.count = count as usize;
                Ok(1)
            }
            (b"store" | b"storedist", Form::Radius { may_store: true }) if arguments >= 1 => {
                self.store = Some(option.at(1));
                self.stores_distances = word == b"storedist";
                Ok(1)
            }
            (b"storedist", Form::Search { stores: true }) => {
                self.stores_distances = true;
                Ok(0)
            }
            (b"frommember", Form::Search { .. })
                if arguments >= 1 && !matches!(self.centre, Some(Centre::Point(_))) =>
            {
                self.centre = Some(Centre::member(set, &option[1])?);
                Ok(1)
            }
            (b"fromlonlat", Form::Search { .. })
                if arguments >= 2 && !matches!(self.centre, Some(Centre::Member(_))) =>
            {
                self.centre = Some(Centre::Point(point(option, 1)?));
                Ok(2)
            }
            (b"byradius", Form::Search { .. }) if arguments >= 2 && !is_rectangle => {
                self.set_circle(&option[1], &option[2])?;
                Ok(2)
            }
            (b"bybox", Form::Search { .. }) if arguments >= 3 && !is_circle => {
                self.set_rectangle(&option[1], &option[2], &option[3])?;
                Ok(3)
            }
            _ => Err(CommandError::SYNTAX),
        }
    }

    /// What is stored is places or distances, and no more.
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

    /// The places, in the order in which they are wanted, and not more of them than that.
    fn find<'s>(&self, set: &'s SortedSet) -> Vec<Found<'s>> {
        let (Some(centre), Some(shape)) = (self.centre.and_then(Centre::point), self.shape) else {
            return Vec::new();
        };
        let area = Area { centre, shape };
        let enough = if self.any { self.count } else { usize::MAX };
        let mut found = Vec::new();
        'cells: for cell in area.cells() {
            let (min, max) = cell.scores();
            let ranks = set.ranks_of_scores(ScoreBound::Included(min), ScoreBound::Excluded(max));
            for (member, score) in set.range(ranks) {
                let point = Geohash::of_score(score).point();
                if let Some(distance) = area.distance(point) {
                    found.push(Found { member, score, point, distance });
                    if found.len() >= enough {
                        break 'cells;
                    }
                }
            }
        }
        // Whoever wants some of many wants the nearest ones, unless any will do.
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

    /// A sorted set of what was found.
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

/// A place in the area.
struct Found<'a> {
    member: Element<'a>,
    score: f64,
    point: Point,
    /// From the centre, in metres.
    distance: f64,
}

/// Searches the set `from` for what `parse` says, and replies with what is found, or stores it in `to` or the key
/// that the options name.
fn run<'a>(
    ctx: &mut Context<'_, '_>,
    from: &[u8],
    to: Option<&'a [u8]>,
    parse: impl FnOnce(Option<&SortedSet>) -> Result<Query<'a>, CommandError>,
) -> Done {
    let server = ctx.server;
    let (to, made, len) = {
        let (mut db, key, reply) = ctx.open(from);
        let set = db.collection::<SortedSet>(key)?;
        let query = parse(set.as_deref())?;
        let found = set.as_ref().map(|set| query.find(set)).unwrap_or_default();
        let Some(to) = to.or(query.store) else {
            query.reply(reply, &found);
            return Ok(());
        };
        (to, query.stored(&found, &server.keyspace.limits().sorted_set), found.len())
    };
    let (mut db, key, reply) = ctx.open(to);
    db.put_collection(key, Collection::SortedSet(made), None)?;
    reply.count(len);
    Ok(())
}
