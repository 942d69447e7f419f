//! INCREX: counting within bounds, and a deadline at the same time.

use std::mem;

use tierce_keyspace::{Event, Expiry, IntText, StrView, Ttl};
use tierce_wire::number::{LongDouble, parse_i64};
use tierce_wire::resp::Rest;

use crate::command::{Flags, Group, KeyFlags, KeySpec};
use crate::commands::cursor::Options;
use crate::commands::options::TimeForm;
use crate::error::CommandError;
use crate::pipeline::{Context, Defined, Done, at_least};
use crate::reply::Reply;

pub(super) static COMMANDS: &[Defined] =
    &[Defined::new("increx", Group::String, at_least!(incr_ex))
        .flags(Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST))
        .keys(&[KeySpec::at(1, KeyFlags::READ_UPDATE)])
        .since("8.8.0", "O(1)")
        .doc(
            "key [BYFLOAT float | BYINT integer] [SATURATE] [LBOUND lowerbound] [UBOUND upperbound] \
             [EX seconds | PX milliseconds | EXAT unix-time-seconds | \
             PXAT unix-time-milliseconds | PERSIST] [ENX]",
            "Increments the number stored at a key, which counts as 0 if the key does not exist, and \
             sets the expiration time of the key. Returns the new number and the increment. Nothing \
             happens if the number would be out of bounds, unless `SATURATE` makes it the bound. \
             `ENX` keeps an expiration time.",
        )
        .example(
            r#"
            > INCREX requests:7 UBOUND 2 EX 60 ENX
            1) (integer) 1
            2) (integer) 1
            > INCREX requests:7 UBOUND 2 EX 60 ENX
            1) (integer) 2
            2) (integer) 1
            > INCREX requests:7 UBOUND 2 EX 60 ENX
            1) (integer) 2
            2) (integer) 0
            > INCREX requests:7 BYINT -10 LBOUND 0 SATURATE
            1) (integer) 0
            2) (integer) -2
            "#,
        )];

/// Effect on the deadline.
#[derive(Clone, Copy)]
enum Deadline<'a> {
    Persist,
    At(TimeForm, &'a [u8]),
}

/// Options, each of which may be given once.
#[derive(Default)]
struct IncrExOptions<'a> {
    by_int: Option<&'a [u8]>,
    by_float: Option<&'a [u8]>,
    low: Option<&'a [u8]>,
    high: Option<&'a [u8]>,
    saturate: bool,
    deadline: Option<Deadline<'a>>,
    /// A deadline that the key has is kept.
    keep: bool,
}

impl<'a> IncrExOptions<'a> {
    fn parse(mut words: Options<'a>) -> Result<Self, CommandError> {
        let mut options = Self::default();
        while let Some(word) = words.next_word() {
            let is_repeated = match &*word {
                b"byint" => options.by_int.replace(words.value()?).is_some(),
                b"byfloat" => options.by_float.replace(words.value()?).is_some(),
                b"lbound" => options.low.replace(words.value()?).is_some(),
                b"ubound" => options.high.replace(words.value()?).is_some(),
                b"saturate" => mem::replace(&mut options.saturate, true),
                b"enx" => mem::replace(&mut options.keep, true),
                b"persist" => options.deadline.replace(Deadline::Persist).is_some(),
                other => {
                    let form = TimeForm::named(other).ok_or(CommandError::SYNTAX)?;
                    options.deadline.replace(Deadline::At(form, words.value()?)).is_some()
                }
            };
            if is_repeated {
                return Err(CommandError::SYNTAX);
            }
        }
        match (options.keep, options.deadline) {
            _ if options.by_int.is_some() && options.by_float.is_some() => {
                Err(CommandError::SYNTAX)
            }
            (true, Some(Deadline::Persist)) => Err(CommandError::SYNTAX),
            (true, None) => Err(CommandError::new("ERR ENX flag requires an expiration")),
            _ => Ok(options),
        }
    }

    /// Returns the expiry of the new value; `None` keeps the old one.
    fn expiry(&self, now_ms: i64, command: &str) -> Result<Option<Expiry>, CommandError> {
        match self.deadline {
            None => Ok(None),
            Some(Deadline::Persist) => Ok(Some(Expiry::Never)),
            Some(Deadline::At(form, time)) => {
                Ok(Some(Expiry::At(form.expiry(time, now_ms, command)?)))
            }
        }
    }
}

/// Numbers that are counted in.
trait Number: Copy + PartialOrd + From<i64> {
    const LEAST: Self;
    const GREATEST: Self;
    /// Text of the error for an argument that is no such number.
    const FAULT: &'static str;
    /// Error if the difference to the bound is no such number.
    const TOO_FAR: &'static str;
    const EVENT: Event;

    fn of_argument(text: &[u8]) -> Option<Self>;
    fn of_value(value: StrView<'_>) -> Result<Self, CommandError>;
    fn plus(self, other: Self) -> Option<Self>;
    fn minus(self, other: Self) -> Option<Self>;
    fn to_text(self) -> String;
    fn reply(self, reply: &mut Reply<'_>);
}

impl Number for i64 {
    const LEAST: Self = Self::MIN;
    const GREATEST: Self = Self::MAX;
    const FAULT: &'static str = "is not an integer or out of range";
    const TOO_FAR: &'static str = "ERR applied increment would overflow";
    const EVENT: Event = Event::IncrBy;

    fn of_argument(text: &[u8]) -> Option<Self> {
        parse_i64(text)
    }

    fn of_value(value: StrView<'_>) -> Result<Self, CommandError> {
        value.as_int().ok_or(CommandError::NOT_AN_INTEGER)
    }

    fn plus(self, other: Self) -> Option<Self> {
        self.checked_add(other)
    }

    fn minus(self, other: Self) -> Option<Self> {
        self.checked_sub(other)
    }

    fn to_text(self) -> String {
        self.to_string()
    }

    fn reply(self, reply: &mut Reply<'_>) {
        reply.int(self);
    }
}

impl Number for LongDouble {
    const LEAST: Self = Self::LEAST;
    const GREATEST: Self = Self::GREATEST;
    const FAULT: &'static str = "is not a valid float";
    const TOO_FAR: &'static str = "ERR applied increment would be Infinity";
    const EVENT: Event = Event::IncrByFloat;

    fn of_argument(text: &[u8]) -> Option<Self> {
        Self::parse(text)
    }

    fn of_value(value: StrView<'_>) -> Result<Self, CommandError> {
        let number = Self::parse(value.bytes(&mut IntText::new()));
        let number = number.ok_or(CommandError::NOT_A_FLOAT)?;
        let is_finite = number.is_finite();
        is_finite.then_some(number).ok_or(CommandError::new("ERR value cannot be Infinity"))
    }

    fn plus(self, other: Self) -> Option<Self> {
        self.checked_add(other)
    }

    fn minus(self, other: Self) -> Option<Self> {
        self.checked_add(other.negated())
    }

    fn to_text(self) -> String {
        LongDouble::to_text(self)
    }

    fn reply(self, reply: &mut Reply<'_>) {
        reply.double_text(&self.to_text());
    }
}

/// An increment with its bounds.
struct Step<N> {
    by: N,
    low: N,
    high: N,
    saturate: bool,
}

impl<N: Number> Step<N> {
    fn parse(by: N, options: &IncrExOptions<'_>) -> Result<Self, CommandError> {
        let bound =
            |text, name, default| argument(text, name).map(|bound| bound.unwrap_or(default));
        let low = bound(options.low, "LBOUND", N::LEAST)?;
        let high = bound(options.high, "UBOUND", N::GREATEST)?;
        if low > high {
            return Err(CommandError::new("ERR LBOUND can't be greater than UBOUND"));
        }
        Ok(Self { by, low, high, saturate: options.saturate })
    }

    /// Returns the new number and its difference to the old one; `None` if the new one would be out of bounds.
    fn take(&self, old: N) -> Result<Option<(N, N)>, CommandError> {
        let sum = old.plus(self.by);
        let is_too_low = match sum {
            Some(sum) if sum > self.high => false,
            Some(sum) if sum < self.low => true,
            Some(sum) => return Ok(Some((sum, self.by))),
            None => self.by < N::from(0),
        };
        if !self.saturate {
            return Ok(None);
        }
        let new = if is_too_low { self.low } else { self.high };
        let applied = new.minus(old).ok_or(CommandError::new(N::TOO_FAR))?;
        Ok(Some((new, applied)))
    }
}

fn argument<N: Number>(text: Option<&[u8]>, name: &str) -> Result<Option<N>, CommandError> {
    let Some(text) = text else { return Ok(None) };
    let wrong = || CommandError::text(format!("ERR {name} {}", N::FAULT));
    N::of_argument(text).ok_or_else(wrong).map(Some)
}

fn incr_ex(ctx: &mut Context<'_, '_>, [key]: [&[u8]; 1], options: Rest<'_>) -> Done {
    let options = IncrExOptions::parse(Options::of(options))?;
    match argument::<LongDouble>(options.by_float, "Increment")? {
        None => {
            let by = argument(options.by_int, "Increment")?.unwrap_or(1);
            count(ctx, key, &Step::<i64>::parse(by, &options)?, &options)
        }
        Some(by) if by.is_finite() => count(ctx, key, &Step::parse(by, &options)?, &options),
        Some(_) => Err(CommandError::new("ERR BYFLOAT increment cannot be Infinity")),
    }
}

fn count<N: Number>(
    ctx: &mut Context<'_, '_>,
    key: &[u8],
    step: &Step<N>,
    options: &IncrExOptions<'_>,
) -> Done {
    let expiry = options.expiry(ctx.moment_ms(), ctx.name())?;
    let (mut db, key, reply) = ctx.open(key);
    let old = db.string_to_change(key)?.map_or(Ok(N::from(0)), N::of_value)?;
    let Some((new, applied)) = step.take(old)? else {
        reply.array(2);
        old.reply(reply);
        N::from(0).reply(reply);
        return Ok(());
    };
    let is_mortal = matches!(db.ttl(key), Ttl::Until(_));
    let expiry = expiry.filter(|_| !(options.keep && is_mortal)).unwrap_or(Expiry::Keep);
    match expiry {
        // The number is stored nowhere, so its event is left out.
        Expiry::At(at_ms) if at_ms <= db.now_ms() => {
            if db.remove(key) {
                db.event(Event::Del, key);
            }
        }
        _ => {
            db.set(key, new.to_text().as_bytes(), expiry)?;
            db.event(N::EVENT, key);
            match expiry {
                Expiry::At(_) => db.event(Event::Expire, key),
                Expiry::Never if is_mortal => db.event(Event::Persist, key),
                Expiry::Never | Expiry::Keep => {}
            }
        }
    }
    reply.array(2);
    new.reply(reply);
    applied.reply(reply);
    Ok(())
}
