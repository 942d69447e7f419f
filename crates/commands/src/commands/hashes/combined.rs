//! HGETEX, HSETEX and HGETDEL: reading or setting fields, and changing their deadlines or deleting them at the same
//! time, as in Redis 8.

use tierce_collections::Hash;
use tierce_keyspace::{Editor, Event, Missing};
use tierce_wire::resp::Rest;

use super::deadline::{OF_HASH, deadline, edit_each, names_of};
use super::get::value_or_null;
use crate::command::{Flags, Group, KeyFlags, KeySpec};
use crate::commands::cursor::Options;
use crate::commands::options::{TimeForm, integer};
use crate::error::CommandError;
use crate::pipeline::{Context, Defined, Done, at_least};

const SINCE: &str = "8.0.0";
const COMPLEXITY: &str = "O(N) where N is the number of specified fields";

pub(super) static COMMANDS: &[Defined] = &[
    Defined::new("hgetex", Group::Hash, at_least!(hgetex))
        .flags(Flags::WRITE.with(Flags::FAST))
        .keys(&[KeySpec::at(1, KeyFlags::READ_UPDATE)
            .note("RW and update because the time to live may change")])
        .since(SINCE, COMPLEXITY)
        .doc(
            "key [EX seconds | PX milliseconds | EXAT unix-time-seconds | PXAT unix-time-milliseconds | \
             PERSIST] FIELDS numfields field [field ...]",
            "Returns the values of fields of a hash, and optionally sets their expiration time.",
        )
        .example(
            r#"
            > HSET user:1 name Ada token 8f3a
            (integer) 2
            > HGETEX user:1 EX 3600 FIELDS 2 token nosuch
            1) "8f3a"
            2) (nil)
            > HTTL user:1 FIELDS 2 token name
            1) (integer) 3...
            2) (integer) -1
            > HGETEX user:1 PERSIST FIELDS 1 token
            1) "8f3a"
            > HTTL user:1 FIELDS 1 token
            1) (integer) -1
            "#,
        ),
    Defined::new("hsetex", Group::Hash, at_least!(hsetex))
        .flags(Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST))
        .keys(&[KeySpec::at(1, KeyFlags::UPDATE)])
        .since(SINCE, "O(N) where N is the number of fields being set")
        .doc(
            "key [FNX | FXX] [EX seconds | PX milliseconds | EXAT unix-time-seconds | \
             PXAT unix-time-milliseconds | KEEPTTL] FIELDS numfields field value [field value ...]",
            "Sets fields of a hash and their expiration time, if none of them exists (FNX) or all exist (FXX).",
        )
        .example(
            r#"
            > HSETEX user:1 EX 3600 FIELDS 1 token 8f3a
            (integer) 1
            > HTTL user:1 FIELDS 1 token
            1) (integer) 3...
            > HSETEX user:1 FNX FIELDS 2 token 77 name Ada
            (integer) 0
            > HSETEX user:1 FXX KEEPTTL FIELDS 1 token 9b1c
            (integer) 1
            > HGETALL user:1
            1) "token"
            2) "9b1c"
            "#,
        ),
    Defined::new("hgetdel", Group::Hash, at_least!(hgetdel))
        .flags(Flags::WRITE.with(Flags::FAST))
        .keys(&[KeySpec::at(1, KeyFlags::READ_REMOVE)])
        .since(SINCE, COMPLEXITY)
        .doc(
            "key FIELDS numfields field [field ...]",
            "Returns the values of fields of a hash after deleting them. Deletes the hash if no fields remain.",
        )
        .example(
            r#"
            > HSET user:1 name Ada token 8f3a
            (integer) 2
            > HGETDEL user:1 FIELDS 2 token nosuch
            1) "8f3a"
            2) (nil)
            > HGETALL user:1
            1) "name"
            2) "Ada"
            "#,
        ),
];

/// Option of the command for the deadlines of the fields, as given.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::commands) enum Ttl {
    Unstated,
    At(i64),
    /// PERSIST or KEEPTTL.
    Word,
}

/// Fields that must exist before any is set.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::commands) enum Condition {
    None,
    All,
}

/// Options of a command, and their errors.
pub(in crate::commands) struct Grammar {
    /// Word before the fields and their number, and errors about it.
    pub(in crate::commands) elements: &'static [u8],
    pub(in crate::commands) twice: CommandError,
    pub(in crate::commands) missing: CommandError,
    pub(in crate::commands) bad_count: CommandError,
    /// Number of arguments for each field.
    pub(in crate::commands) per_field: usize,
    /// The option for deadlines that states no time.
    pub(in crate::commands) word: &'static [u8],
    pub(in crate::commands) conditions: &'static [(&'static [u8], Condition)],
    pub(in crate::commands) two_times: CommandError,
    pub(in crate::commands) two_conditions: CommandError,
}

const GETTER: Grammar = Grammar {
    elements: b"fields",
    twice: CommandError::new("ERR FIELDS keyword specified multiple times"),
    missing: CommandError::new("ERR missing FIELDS argument"),
    bad_count: CommandError::new("ERR invalid number of fields"),
    two_conditions: CommandError::new("ERR Only one of FXX or FNX arguments can be specified"),
    per_field: 1,
    word: b"persist",
    conditions: &[],
    two_times: CommandError::new(
        "ERR Only one of EX, PX, EXAT, PXAT or PERSIST arguments can be specified",
    ),
};

const SETTER: Grammar = Grammar {
    per_field: 2,
    word: b"keepttl",
    conditions: &[(b"fnx", Condition::None), (b"fxx", Condition::All)],
    two_times: CommandError::new(
        "ERR Only one of EX, PX, EXAT, PXAT or KEEPTTL arguments can be specified",
    ),
    elements: b"fields",
    twice: CommandError::new("ERR FIELDS keyword specified multiple times"),
    missing: CommandError::new("ERR missing FIELDS argument"),
    bad_count: CommandError::new("ERR invalid number of fields"),
    two_conditions: CommandError::new("ERR Only one of FXX or FNX arguments can be specified"),
};

/// Arguments after the key.
pub(in crate::commands) struct Request<'a> {
    pub(in crate::commands) ttl: Ttl,
    pub(in crate::commands) condition: Option<Condition>,
    pub(in crate::commands) fields: Rest<'a>,
}

impl<'a> Request<'a> {
    /// Parses the arguments, which may be in any order.
    pub(in crate::commands) fn parse(
        ctx: &Context<'_, '_>,
        mut options: Options<'a>,
        grammar: &Grammar,
    ) -> Result<Self, CommandError> {
        let (mut ttl, mut condition, mut fields) = (None, None, None);
        while let Some(word) = options.next_word() {
            let form = TimeForm::named(&word);
            let named = grammar.conditions.iter().find(|(name, _)| *name == &*word);
            if *word == *grammar.elements {
                if fields.is_some() {
                    return Err(grammar.twice.clone());
                }
                fields = Some(fields_of(ctx, &mut options, grammar)?);
            } else if form.is_some() || *word == *grammar.word {
                if ttl.is_some() {
                    return Err(grammar.two_times.clone());
                }
                let time = |form| {
                    let missing = CommandError::new("ERR missing expire time");
                    let time = options.next_value().ok_or(missing)?;
                    deadline(time, form, ctx.moment_ms(), ctx.name()).map(Ttl::At)
                };
                ttl = Some(form.map_or(Ok(Ttl::Word), time)?);
            } else if let Some((_, named)) = named {
                if condition.replace(*named).is_some() {
                    return Err(grammar.two_conditions.clone());
                }
            } else {
                return Err(CommandError::unknown_argument(word.spelled));
            }
        }
        let fields = fields.ok_or_else(|| grammar.missing.clone())?;
        Ok(Self { ttl: ttl.unwrap_or(Ttl::Unstated), condition, fields })
    }
}

/// Takes the number of fields, and their arguments.
fn fields_of<'a>(
    ctx: &Context<'_, '_>,
    options: &mut Options<'a>,
    grammar: &Grammar,
) -> Result<Rest<'a>, CommandError> {
    let count = options.next_value().ok_or_else(|| CommandError::arity(ctx.name()))?;
    let count = integer(count).ok().filter(|count| (1..=i64::from(i32::MAX)).contains(count));
    let count = count.ok_or_else(|| grammar.bad_count.clone())?;
    let fields = options.many_values(count as usize * grammar.per_field);
    fields.map_err(|_| CommandError::new("ERR wrong number of arguments"))
}

/// Change of each field that is read.
#[derive(Clone, Copy)]
enum Change {
    Nothing,
    Deadline(Option<i64>),
    Removal,
}

fn hgetex(ctx: &mut Context<'_, '_>, [key]: [&[u8]; 1], options: Rest<'_, 3>) -> Done {
    let Request { ttl, fields, .. } = Request::parse(ctx, Options::of(options), &GETTER)?;
    let (change, event) = match ttl {
        Ttl::Unstated => (Change::Nothing, Event::HExpire),
        Ttl::At(at_ms) if at_ms <= ctx.now_ms => (Change::Removal, Event::HDel),
        Ttl::At(at_ms) => (Change::Deadline(Some(at_ms)), Event::HExpire),
        Ttl::Word => (Change::Deadline(None), Event::HPersist),
    };
    get_and_change(ctx, key, fields, change, event)
}

fn hgetdel(ctx: &mut Context<'_, '_>, [key]: [&[u8]; 1], fields: Rest<'_, 3>) -> Done {
    let names = names_of(&OF_HASH, Options::of(fields))?;
    get_and_change(ctx, key, names, Change::Removal, Event::HDel)
}

/// Replies with the value of each field, and changes those that exist.
fn get_and_change(
    ctx: &mut Context<'_, '_>,
    key: &[u8],
    names: Rest<'_>,
    change: Change,
    event: Event,
) -> Done {
    edit_each::<Hash>(ctx, key, names, event, |reply, now_ms, found| {
        let Some((hash, name)) = found else {
            reply.null();
            return false;
        };
        let field = hash.get(name, now_ms);
        value_or_null(reply, field);
        match (field.map(|field| field.deadline_ms), change) {
            (None, _) | (_, Change::Nothing) | (Some(None), Change::Deadline(None)) => {
                return false;
            }
            (_, Change::Deadline(deadline_ms)) => hash.set_deadline(name, deadline_ms),
            (_, Change::Removal) => hash.remove(name),
        };
        true
    })
}

fn hsetex(ctx: &mut Context<'_, '_>, [key]: [&[u8]; 1], options: Rest<'_, 4>) -> Done {
    let Request { ttl, condition, fields } = Request::parse(ctx, Options::of(options), &SETTER)?;
    let Some(pairs) = fields.groups() else { return Err(CommandError::arity(ctx.name())) };
    let now_ms = ctx.now_ms;
    let is_due = matches!(ttl, Ttl::At(at_ms) if at_ms <= now_ms);
    let (mut db, key, reply) = ctx.open(key);
    let missing = if condition == Some(Condition::All) { Missing::Skip } else { Missing::Create };
    let edit = |hash: &mut Editor<'_, Hash>| {
        if let Some(condition) = condition {
            let exists = |[name, _]: [&[u8]; 2]| hash.get(name, now_ms).is_some();
            if pairs.clone().any(|pair| exists(pair) != (condition == Condition::All)) {
                return Ok(false);
            }
        }
        for [name, value] in pairs {
            let deadline_ms = match ttl {
                Ttl::At(at_ms) => Some(at_ms).filter(|_| !is_due),
                Ttl::Word => hash.get(name, now_ms).and_then(|field| field.deadline_ms),
                Ttl::Unstated => None,
            };
            hash.put(name, value, deadline_ms);
            if is_due {
                hash.remove(name);
            }
        }
        Ok(true)
    };
    let is_set = db.edit::<Hash, _, CommandError>(key, missing, edit)? == Some(true);
    if is_set {
        db.event(Event::HSet, key);
        match ttl {
            Ttl::At(_) if is_due => db.event_of_edit(Event::HDel, key),
            Ttl::At(_) => db.event(Event::HExpire, key),
            Ttl::Unstated | Ttl::Word => {}
        }
    }
    reply.int(is_set.into());
    Ok(())
}
