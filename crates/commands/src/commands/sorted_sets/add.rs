//! ZADD and ZINCRBY.

use tierce_collections::SortedSet;
use tierce_keyspace::{Editor, Event, Missing};
use tierce_wire::number::parse_f64;
use tierce_wire::resp::Rest;

use crate::command::{Flags, Group, KeyFlags, KeySpec};
use crate::commands::cursor::Options;
use crate::error::CommandError;
use crate::pipeline::{Context, Defined, Done, at_least, exactly};

const ADD: Flags = Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST);

pub(super) static COMMANDS: &[Defined] = &[
    Defined::new("zadd", Group::SortedSet, at_least!(zadd))
        .flags(ADD)
        .keys(&[KeySpec::at(1, KeyFlags::UPDATE)])
        .since(
            "1.2.0",
            "O(log(N)) for each item added, where N is the number of elements in the sorted set",
        )
        .doc(
            "key [NX | XX] [GT | LT] [CH] [INCR] score member [score member ...]",
            "Adds one or more members to a sorted set, or updates their scores.",
        )
        .example(
            r#"
            > ZADD scores 10 Ada 20 Grace
            (integer) 2
            > ZADD scores XX CH 25 Ada 30 Hedy
            (integer) 1
            > ZADD scores INCR 5 Grace
            "25"
            > ZRANGE scores 0 -1 WITHSCORES
            1) "Ada"
            2) "25"
            3) "Grace"
            4) "25"
            RESP3:
            1) 1) "Ada"
               2) (double) 25
            2) 1) "Grace"
               2) (double) 25
            "#,
        ),
    Defined::new("zincrby", Group::SortedSet, exactly!(zincrby))
        .flags(ADD)
        .keys(&[KeySpec::at(1, KeyFlags::READ_UPDATE)])
        .since("1.2.0", "O(log(N)) where N is the number of elements in the sorted set")
        .doc("key increment member", "Increments the score of a member in a sorted set.")
        .example(
            r#"
            > ZADD scores 10 Ada
            (integer) 1
            > ZINCRBY scores 2.5 Ada
            "12.5"
            "#,
        ),
];

fn zadd(ctx: &mut Context<'_, '_>, [key]: [&[u8]; 1], arguments: Rest<'_, 2>) -> Done {
    let mut options = AddOptions::default();
    let mut arguments = Options::of(arguments);
    while arguments.next_if(|word| options.take(word)).is_some() {}
    let pairs = arguments.rest().groups().filter(|pairs| pairs.len() > 0);
    let pairs = pairs.ok_or(CommandError::SYNTAX)?;
    options.check(pairs.len())?;
    // All scores must be valid before the first one is set.
    let scored = |[score, member]: [_; 2]| match parse_f64(score) {
        Some(score) => Ok((score, member)),
        None => Err(CommandError::NOT_A_FLOAT),
    };
    let scored = pairs.map(scored).collect::<Result<Vec<_>, _>>()?;
    if ctx.caller.is_primary() {
        options.zero = -0.0;
    }
    set_scores(ctx, key, options, &scored)
}

fn zincrby(ctx: &mut Context<'_, '_>, [key, increment, member]: [&[u8]; 3]) -> Done {
    // Redis parses options of ZADD here, too, so a wrong increment can be a wrong option.
    let mut options = AddOptions { increments: true, ..AddOptions::default() };
    if options.take(increment) {
        return Err(CommandError::SYNTAX);
    }
    let increment = parse_f64(increment).ok_or(CommandError::NOT_A_FLOAT)?;
    set_scores(ctx, key, options, &[(increment, member)])
}

/// Options: conditions for changes, and the kind of reply.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::commands) struct AddOptions {
    /// NX: only new members.
    pub(in crate::commands) only_new: bool,
    /// XX: only existing members.
    pub(in crate::commands) only_present: bool,
    /// GT: only greater scores.
    only_greater: bool,
    /// LT: only lower scores.
    only_lower: bool,
    /// CH: the reply counts changed members, too.
    pub(in crate::commands) counts_changed: bool,
    /// INCR: adds the number to the score.
    increments: bool,
    /// Zero that is added to scores in a small set, where negative zero becomes zero, as in Redis. A primary sends what
    /// it has stored, maybe in a large set: then this is negative zero, which keeps every score.
    zero: f64,
}

/// Effect on a member.
#[derive(Debug, Clone, Copy)]
enum Outcome {
    Skipped,
    Added(f64),
    Changed(f64),
    Same(f64),
}

impl AddOptions {
    /// Applies an option; returns `false` if the word is none.
    fn take(&mut self, word: &[u8]) -> bool {
        // Nearly all scores begin like this, and no option does.
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

    /// Decides the effect on a member. `old` is its score, if any, `given` the argument.
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

    /// Applies the effect.
    #[inline]
    fn apply(
        self,
        set: &mut Editor<'_, SortedSet>,
        member: &[u8],
        given: f64,
    ) -> Result<Outcome, CommandError> {
        let mut outcome = Ok(Outcome::Skipped);
        set.update_adding(self.zero, member, |old| {
            outcome = self.decide(old, given);
            match outcome {
                Ok(Outcome::Added(score) | Outcome::Changed(score)) => Some(score),
                _ => None,
            }
        });
        outcome
    }
}

/// Sets the scores of members of a key and replies.
pub(in crate::commands) fn set_scores(
    ctx: &mut Context<'_, '_>,
    key: &[u8],
    options: AddOptions,
    scored: &[(f64, &[u8])],
) -> Done {
    let missing = if options.only_present { Missing::Skip } else { Missing::Create };
    let (mut db, key, reply) = ctx.open(key);
    let (mut count, mut has_changed, mut last) = (0, false, Outcome::Skipped);
    db.edit::<SortedSet, _, CommandError>(key, missing, |set| {
        for (score, member) in scored {
            last = options.apply(set, member, *score)?;
            has_changed |= matches!(last, Outcome::Added(_) | Outcome::Changed(_));
            count += match last {
                Outcome::Added(_) => 1,
                Outcome::Changed(_) => usize::from(options.counts_changed),
                Outcome::Skipped | Outcome::Same(_) => 0,
            };
        }
        Ok(())
    })?;
    if has_changed {
        db.event(if options.increments { Event::ZIncr } else { Event::ZAdd }, key);
    }
    match last {
        _ if !options.increments => reply.count(count),
        Outcome::Skipped => reply.null(),
        Outcome::Added(score) | Outcome::Changed(score) | Outcome::Same(score) => {
            reply.double(score);
        }
    }
    Ok(())
}
