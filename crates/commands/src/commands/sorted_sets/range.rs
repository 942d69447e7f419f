//! ZRANGE in all its forms, and the older commands, each of which is one of these forms.

use std::ops::Range;

use tierce_collections::{
    Collection, IntText, MemberBound, PackedLimits, ScoreBound, SortedSet, Walk,
};
use tierce_keyspace::Event;
use tierce_wire::resp::Rest;

use super::bounds;
use super::scored::Scores;
use crate::command::{Flags, Group, KeyFlags, KeySpec};
use crate::commands::cursor::Options;
use crate::commands::options::{index_range, integer};
use crate::commands::store::store_result;
use crate::error::CommandError;
use crate::pipeline::{Body, Context, Defined, Done, at_least};
use crate::reply::Reply;

const COMPLEXITY: &str = "O(log(N)+M) with N being the number of elements in the sorted set and M the \
                          number of elements returned";

const fn reader(name: &'static str, body: Body) -> Defined {
    Defined::new(name, Group::SortedSet, body)
        .flags(Flags::READONLY)
        .keys(const { &[KeySpec::at(1, KeyFlags::READ)] })
}

pub(super) static COMMANDS: &[Defined] = &[
    reader("zrange", at_least!(|ctx, args, rest| reply_with(ctx, args, rest, Form::ANY)))
        .since("1.2.0", COMPLEXITY)
        .doc(
            "key start stop [BYSCORE | BYLEX] [REV] [LIMIT offset count] [WITHSCORES]",
            "Returns members in a sorted set within a range of indexes, scores or members.",
        )
        .example(
            r#"
            > ZADD scores 10 Ada 20 Grace 30 Hedy
            (integer) 3
            > ZRANGE scores 0 1
            1) "Ada"
            2) "Grace"
            > ZRANGE scores 15 +inf BYSCORE WITHSCORES
            1) "Grace"
            2) "20"
            3) "Hedy"
            4) "30"
            RESP3:
            1) 1) "Grace"
               2) (double) 20
            2) 1) "Hedy"
               2) (double) 30
            > ZRANGE scores 0 0 REV
            1) "Hedy"
            "#,
        ),
    reader(
        "zrevrange",
        at_least!(|ctx, args, rest| reply_with(ctx, args, rest, Form::of(By::Rank, true))),
    )
    .deprecated("6.2.0", "`ZRANGE` with the `REV` argument")
    .since("1.2.0", COMPLEXITY)
    .doc(
        "key start stop [WITHSCORES]",
        "Returns members in a sorted set within a range of indexes in reverse order.",
    )
    .example(
        r#"
            > ZADD scores 10 Ada 20 Grace 30 Hedy
            (integer) 3
            > ZREVRANGE scores 0 1
            1) "Hedy"
            2) "Grace"
            > ZREVRANGE scores 0 0 WITHSCORES
            1) "Hedy"
            2) "30"
            RESP3:
            1) 1) "Hedy"
               2) (double) 30
            "#,
    ),
    reader(
        "zrangebyscore",
        at_least!(|ctx, args, rest| reply_with(ctx, args, rest, Form::of(By::Score, false))),
    )
    .deprecated("6.2.0", "`ZRANGE` with the `BYSCORE` argument")
    .since("1.0.5", COMPLEXITY)
    .doc(
        "key min max [WITHSCORES] [LIMIT offset count]",
        "Returns members in a sorted set within a range of scores.",
    )
    .example(
        r#"
            > ZADD scores 10 Ada 20 Grace 30 Hedy
            (integer) 3
            > ZRANGEBYSCORE scores (10 30
            1) "Grace"
            2) "Hedy"
            > ZRANGEBYSCORE scores -inf +inf LIMIT 1 1
            1) "Grace"
            "#,
    ),
    reader(
        "zrevrangebyscore",
        at_least!(|ctx, args, rest| reply_with(ctx, args, rest, Form::of(By::Score, true))),
    )
    .deprecated("6.2.0", "`ZRANGE` with the `REV` and `BYSCORE` arguments")
    .since("2.2.0", COMPLEXITY)
    .doc(
        "key max min [WITHSCORES] [LIMIT offset count]",
        "Returns members in a sorted set within a range of scores in reverse order.",
    )
    .example(
        r#"
            > ZADD scores 10 Ada 20 Grace 30 Hedy
            (integer) 3
            > ZREVRANGEBYSCORE scores +inf 20
            1) "Hedy"
            2) "Grace"
            "#,
    ),
    reader(
        "zrangebylex",
        at_least!(|ctx, args, rest| reply_with(ctx, args, rest, Form::of(By::Member, false))),
    )
    .deprecated("6.2.0", "`ZRANGE` with the `BYLEX` argument")
    .since("2.8.9", COMPLEXITY)
    .doc(
        "key min max [LIMIT offset count]",
        "Returns members in a sorted set within a lexicographical range.",
    )
    .example(
        r#"
            > ZADD names 0 Ada 0 Grace 0 Hedy
            (integer) 3
            > ZRANGEBYLEX names - (Hedy
            1) "Ada"
            2) "Grace"
            > ZRANGEBYLEX names [G +
            1) "Grace"
            2) "Hedy"
            "#,
    ),
    reader(
        "zrevrangebylex",
        at_least!(|ctx, args, rest| reply_with(ctx, args, rest, Form::of(By::Member, true))),
    )
    .deprecated("6.2.0", "`ZRANGE` with the `REV` and `BYLEX` arguments")
    .since("2.8.9", COMPLEXITY)
    .doc(
        "key max min [LIMIT offset count]",
        "Returns members in a sorted set within a lexicographical range in reverse order.",
    )
    .example(
        r#"
            > ZADD names 0 Ada 0 Grace 0 Hedy
            (integer) 3
            > ZREVRANGEBYLEX names + [G
            1) "Hedy"
            2) "Grace"
            "#,
    ),
    Defined::new("zrangestore", Group::SortedSet, at_least!(zrangestore))
        .flags(Flags::WRITE.with(Flags::DENYOOM))
        .keys(&[KeySpec::at(1, KeyFlags::OVERWRITE), KeySpec::at(2, KeyFlags::READ)])
        .since(
            "6.2.0",
            "O(log(N)+M) with N being the number of elements in the sorted set and M the number of \
             elements stored into the destination key",
        )
        .doc(
            "dst src min max [BYSCORE | BYLEX] [REV] [LIMIT offset count]",
            "Stores a range of members from a sorted set in a key.",
        )
        .example(
            r#"
            > ZADD scores 10 Ada 20 Grace 30 Hedy
            (integer) 3
            > ZRANGESTORE best scores 0 1 REV
            (integer) 2
            > ZRANGE best 0 -1
            1) "Grace"
            2) "Hedy"
            "#,
        ),
];

/// Kind of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    Rank,
    Score,
    Member,
}

/// Parts of a query that the command's name fixes. Options decide the rest.
#[derive(Debug, Clone, Copy)]
struct Form {
    by: Option<By>,
    reversed: Option<bool>,
    stores: bool,
}

impl Form {
    /// Leaves everything to the options.
    const ANY: Self = Self { by: None, reversed: None, stores: false };

    /// Creates the form of an older command.
    const fn of(by: By, is_reversed: bool) -> Self {
        Self { by: Some(by), reversed: Some(is_reversed), stores: false }
    }
}

/// Ends of a range.
#[derive(Debug, Clone, Copy)]
enum Ends<'a> {
    Ranks(i64, i64),
    Scores(ScoreBound, ScoreBound),
    Members(MemberBound<'a>, MemberBound<'a>),
}

/// A requested range.
#[derive(Debug, Clone, Copy)]
struct Query<'a> {
    ends: Ends<'a>,
    is_reversed: bool,
    offset: i64,
    /// Maximum number of members; negative for any number.
    count: i64,
    with_scores: bool,
}

impl<'a> Query<'a> {
    /// Parses the two ends and the options after them.
    fn parse(
        ends: [&'a [u8]; 2],
        mut options: Options<'_>,
        form: Form,
    ) -> Result<Self, CommandError> {
        let (mut by, mut reversed) = (form.by, form.reversed);
        let (mut offset, mut count, mut with_scores) = (0, -1, false);
        while let Some(word) = options.next_word() {
            match &*word {
                b"withscores" if !form.stores => with_scores = true,
                b"limit" => {
                    let [first, second] = options.values()?;
                    (offset, count) = (integer(first)?, integer(second)?);
                }
                b"rev" if reversed.is_none() => reversed = Some(true),
                b"bylex" if by.is_none() => by = Some(By::Member),
                b"byscore" if by.is_none() => by = Some(By::Score),
                _ => return Err(CommandError::SYNTAX),
            }
        }
        let (by, is_reversed) = (by.unwrap_or(By::Rank), reversed.unwrap_or(false));
        if count != -1 && by == By::Rank {
            return Err(CommandError::new(
                "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or \
                 BYLEX",
            ));
        }
        if with_scores && by == By::Member {
            return Err(CommandError::new(
                "ERR syntax error, WITHSCORES not supported in combination with BYLEX",
            ));
        }
        // A descending range names the higher end first.
        let [first, second] = ends;
        let (min, max) = if is_reversed { (second, first) } else { (first, second) };
        let ends = match by {
            By::Rank => Ends::Ranks(integer(first)?, integer(second)?),
            By::Score => Ends::Scores(bounds::score(min)?, bounds::score(max)?),
            By::Member => Ends::Members(bounds::member(min)?, bounds::member(max)?),
        };
        Ok(Self { ends, is_reversed, offset, count, with_scores })
    }

    /// Returns the ranks of the requested members, in ascending order.
    fn ranks(&self, set: &SortedSet) -> Range<usize> {
        // A negative offset is beyond every end.
        let [offset, count] =
            [self.offset, self.count].map(|number| usize::try_from(number).unwrap_or(usize::MAX));
        let ranks = match self.ends {
            Ends::Ranks(start, stop) => {
                let ranks = index_range(set.len(), start, stop);
                return if self.is_reversed {
                    set.len() - ranks.end..set.len() - ranks.start
                } else {
                    ranks
                };
            }
            Ends::Scores(min, max) => set.ranks_of_scores(min, max),
            Ends::Members(min, max) => {
                let walk = if self.is_reversed { Walk::Downwards } else { Walk::Upwards };
                return set.page_of_members(min, max, walk, offset, count);
            }
        };
        let offset = offset.min(ranks.len());
        let count = count.min(ranks.len() - offset);
        if self.is_reversed {
            ranks.end - offset - count..ranks.end - offset
        } else {
            ranks.start + offset..ranks.start + offset + count
        }
    }

    fn reply(&self, set: &SortedSet, reply: &mut Reply<'_>) {
        let scores = Scores::wanted(self.with_scores, reply);
        let entries = set.range(self.ranks(set));
        if self.is_reversed {
            scores.all(reply, entries.rev());
        } else {
            scores.all(reply, entries);
        }
    }

    /// Creates a set of the members.
    fn copy(&self, set: &SortedSet, limits: &PackedLimits) -> SortedSet {
        let mut copy = SortedSet::new();
        let mut text = IntText::new();
        for (member, score) in set.range(self.ranks(set)) {
            copy.insert(member.bytes(&mut text), score, limits);
        }
        copy
    }
}

fn reply_with(
    ctx: &mut Context<'_, '_>,
    [key, first, second]: [&[u8]; 3],
    options: Rest<'_>,
    form: Form,
) -> Done {
    let query = Query::parse([first, second], Options::of(options), form)?;
    let scale = ctx.scale();
    let (mut db, key, reply) = ctx.open(key);
    match db.collection::<SortedSet>(key)? {
        Some(set) => {
            scale.weigh(query.ranks(&set).len())?;
            query.reply(&set, reply);
        }
        None => reply.array(0),
    }
    Ok(())
}

fn zrangestore(
    ctx: &mut Context<'_, '_>,
    [destination, source, first, second]: [&[u8]; 4],
    options: Rest<'_>,
) -> Done {
    let form = Form { stores: true, ..Form::ANY };
    let query = Query::parse([first, second], Options::of(options), form)?;
    let [to, from] = [destination, source].map(|key| ctx.kernel.keyspace.key(key));
    let limits = ctx.kernel.keyspace.limits().sorted_set;
    let scale = ctx.scale();
    let copy =
        match ctx.guard.db(ctx.caller.db, from.hash(), ctx.now_ms).collection::<SortedSet>(from)? {
            Some(set) => {
                scale.weigh(query.ranks(&set).len())?;
                query.copy(&set, &limits)
            }
            None => SortedSet::new(),
        };
    let len = copy.len();
    let mut db = ctx.guard.db(ctx.caller.db, to.hash(), ctx.now_ms);
    store_result(&mut db, to, Collection::SortedSet(copy), Event::ZRangeStore)?;
    ctx.reply.count(len);
    Ok(())
}
