//! ZADD and ZINCRBY.

use tierce_collections::SortedSet;
use tierce_keyspace::{Editor, Missing};
use tierce_wire::number::parse_f64;
use tierce_wire::resp::Args;

use crate::command::{Flags, Group, KeyFlags, KeySpec, Spec};
use crate::error::CommandError;
use crate::execute::Context;

const ADD: Flags = Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST);

pub(super) static COMMANDS: &[Spec] = &[
    Spec::new("zadd", -4, Group::SortedSet, zadd)
        .flags(ADD)
        .keys(&[KeySpec::at(1, KeyFlags::UPDATE)])
        .doc(
            "1.2.0",
            "O(log(N)) for each item added, where N is the number of elements in the sorted set",
            "key [NX | XX] [GT | LT] [CH] [INCR] score member [score member ...]",
            "Adds one or more members to a sorted set, or updates their scores.",
        ),
    Spec::new("zincrby", 4, Group::SortedSet, zincrby)
        .flags(ADD)
        .keys(&[KeySpec::at(1, KeyFlags::READ_UPDATE)])
        .doc(
            "1.2.0",
            "O(log(N)) where N is the number of elements in the sorted set",
            "key increment member",
            "Increments the score of a member in a sorted set.",
        ),
];

type Done = Result<(), CommandError>;

fn zadd(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    add(ctx, args, Options::default())
}

fn zincrby(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    // Redis looks for the options of ZADD here, too, and so a wrong increment can be a wrong option.
    add(ctx, args, Options { increments: true, ..Options::default() })
}

/// What may happen to scores, and what is replied.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::commands) struct Options {
    /// NX: only new members.
    pub(in crate::commands) only_new: bool,
    /// XX: only members that are there.
    pub(in crate::commands) only_present: bool,
    /// GT: only greater scores.
    only_greater: bool,
    /// LT: only lower scores.
    only_lower: bool,
    /// CH: the reply counts changed members, too.
    pub(in crate::commands) counts_changed: bool,
    /// INCR: the number is added to the score.
    increments: bool,
}

/// What becomes of a member.
#[derive(Debug, Clone, Copy)]
enum Outcome {
    Skipped,
    Added(f64),
    Changed(f64),
    Same(f64),
}

impl Options {
    /// Takes in an option; `false` if it is none.
    fn take(&mut self, word: &[u8]) -> bool {
        // Scores begin like this nearly always, and no option does.
        if word.first().is_none_or(|first| first.is_ascii_digit() || *first == b'-') {
            return false;
        }
        let option = match word.to_ascii_lowercase().as_slice() {
            b"nx" => &mut self.only_new,
            b"xx" => &mut self.only_present,
            b"gt" => &mut self.only_greater,
            b"lt" => &mut self.only_lower,
            b"ch" => &mut self.counts_changed,
            b"incr" => &mut self.increments,
            _ => return false,
        };
        *option = true;
        true
    }

    fn check(self, members: usize) -> Done {
        if self.only_new && self.only_present {
            return Err(CommandError::new(
                "ERR XX and NX options at the same time are not compatible",
            ));
        }
        if [self.only_new, self.only_greater, self.only_lower].into_iter().filter(|is| *is).count()
            > 1
        {
            return Err(CommandError::new(
                "ERR GT, LT, and/or NX options at the same time are not compatible",
            ));
        }
        if self.increments && members > 1 {
            return Err(CommandError::new(
                "ERR INCR option supports a single increment-element pair",
            ));
        }
        Ok(())
    }

    /// What becomes of a member with this score or none, for which this number is given.
    #[inline]
    fn decide(self, old: Option<f64>, given: f64) -> Result<Outcome, CommandError> {
        let Some(old) = old else {
            return Ok(if self.only_present { Outcome::Skipped } else { Outcome::Added(given) });
        };
        if self.only_new {
            return Ok(Outcome::Skipped);
        }
        let score = if self.increments { old + given } else { given };
        if score.is_nan() {
            return Err(CommandError::new("ERR resulting score is not a number (NaN)"));
        }
        if self.only_lower && score >= old || self.only_greater && score <= old {
            return Ok(Outcome::Skipped);
        }
        Ok(if score == old { Outcome::Same(score) } else { Outcome::Changed(score) })
    }

    /// Does it.
    #[inline]
    fn apply(
        self,
        set: &mut Editor<'_, SortedSet>,
        member: &[u8],
        given: f64,
    ) -> Result<Outcome, CommandError> {
        let mut outcome = Ok(Outcome::Skipped);
        set.update(member, |old| {
            outcome = self.decide(old, given);
            match outcome {
                Ok(Outcome::Added(score) | Outcome::Changed(score)) => Some(score),
                _ => None,
            }
        });
        outcome
    }
}

fn add(ctx: &mut Context<'_, '_>, args: Args<'_>, mut options: Options) -> Done {
    let mut first = 2;
    while args.get(first).is_some_and(|word| options.take(word)) {
        first += 1;
    }
    let pairs = args.from(first);
    let members = pairs.len() / 2;
    if members == 0 || !pairs.len().is_multiple_of(2) {
        return Err(CommandError::SYNTAX);
    }
    options.check(members)?;
    let score = |at: usize| parse_f64(&pairs[2 * at]).ok_or(CommandError::NOT_A_FLOAT);
    // All scores have to be right before the first one is set.
    let scores = (0..members).map(score).collect::<Result<Vec<f64>, _>>()?;
    set_scores(ctx, args.at(1), options, &scores, |at| pairs.at(2 * at + 1))
}

/// Gives members of a key their scores and replies; `member` knows the member of each score.
pub(in crate::commands) fn set_scores<'m>(
    ctx: &mut Context<'_, '_>,
    key: &[u8],
    options: Options,
    scores: &[f64],
    member: impl Fn(usize) -> &'m [u8],
) -> Done {
    let missing = if options.only_present { Missing::Skip } else { Missing::Create };
    let (mut db, key, reply) = ctx.open(key);
    let (mut count, mut last) = (0, Outcome::Skipped);
    db.edit::<SortedSet, _, CommandError>(key, missing, |set| {
        for (at, score) in scores.iter().enumerate() {
            last = options.apply(set, member(at), *score)?;
            count += match last {
                Outcome::Added(_) => 1,
                Outcome::Changed(_) => usize::from(options.counts_changed),
                Outcome::Skipped | Outcome::Same(_) => 0,
            };
        }
        Ok(())
    })?;
    match last {
        _ if !options.increments => reply.count(count),
        Outcome::Skipped => reply.null(),
        Outcome::Added(score) | Outcome::Changed(score) | Outcome::Same(score) => {
            reply.double(score);
        }
    }
    Ok(())
}
