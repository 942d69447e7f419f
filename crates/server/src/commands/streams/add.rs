//! XADD, XTRIM: adding entries, and removing the oldest.

use tierce_collections::Stream;
use tierce_collections::stream::{Keep, StreamId, Trim, TrimPrecision};
use tierce_keyspace::{Editor, Missing};
use tierce_wire::resp::Args;

use super::id::{self, NewId};
use super::{DELETE, reply, unsigned_ms};
use crate::command::{Flags, Group, KeyFlags, KeySpec, Spec};
use crate::commands::options::integer;
use crate::error::CommandError;
use crate::execute::Context;

pub(super) static COMMANDS: &[Spec] = &[
    Spec::new("xadd", -5, Group::Stream, xadd)
        .flags(Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST))
        .keys(&[KeySpec::at(1, KeyFlags::UPDATE)
            .note("UPDATE instead of INSERT because of the optional trimming feature")])
        .tips(&["nondeterministic_output"])
        .doc(
            "5.0.0",
            "O(1) when adding a new entry, O(N) when trimming where N being the number of entries \
             evicted.",
            "key [NOMKSTREAM] [<MAXLEN | MINID> [\"=\" | \"~\"] threshold [LIMIT count]] <\"*\" | id> \
             field value [field value ...]",
            "Appends an entry to a stream. The key is created if it does not exist.",
        ),
    Spec::new("xtrim", -4, Group::Stream, xtrim)
        .flags(Flags::WRITE)
        .keys(&[KeySpec::at(1, DELETE)])
        .tips(&["nondeterministic_output"])
        .doc(
            "5.0.0",
            "O(N), with N being the number of evicted entries. Constant times are very small however, \
             since entries are organized in blocks containing multiple entries that can be released \
             in a single deallocation.",
            "key <MAXLEN | MINID> [\"=\" | \"~\"] threshold [LIMIT count]",
            "Removes the oldest entries of a stream.",
        ),
];

type Done = Result<(), CommandError>;

/// What has been said about trimming.
#[derive(Default)]
struct Trimming {
    keep: Option<Keep>,
    is_approximate: bool,
    limit: Option<i64>,
}

impl Trimming {
    /// Takes an option at `at` with what belongs to it; returns where the next one is, or `None` if it
    /// is no option of these.
    fn take(&mut self, args: Args<'_>, at: usize) -> Result<Option<usize>, CommandError> {
        const TWICE: CommandError = CommandError::new(
            "ERR syntax error, MAXLEN and MINID options at the same time are not compatible",
        );
        const NEGATIVE_LEN: CommandError =
            CommandError::new("ERR The MAXLEN argument must be >= 0.");
        const NEGATIVE_LIMIT: CommandError =
            CommandError::new("ERR The LIMIT argument must be >= 0.");
        let is = |word: &str| args[at].eq_ignore_ascii_case(word.as_bytes());
        if at + 1 >= args.len() {
            return Ok(None);
        }
        if is("limit") {
            let limit = integer(&args[at + 1])?;
            if limit < 0 {
                return Err(NEGATIVE_LIMIT);
            }
            self.limit = Some(limit);
            return Ok(Some(at + 2));
        }
        let is_id = is("minid");
        if !is_id && !is("maxlen") {
            return Ok(None);
        }
        if self.keep.is_some() {
            return Err(TWICE);
        }
        let has_sign = at + 2 < args.len() && matches!(&args[at + 1], b"~" | b"=");
        self.is_approximate = has_sign && &args[at + 1] == b"~";
        let value_at = at + 1 + usize::from(has_sign);
        let value = &args[value_at];
        self.keep = Some(if is_id {
            Keep::From(id::strict(value, 0)?)
        } else {
            let len = u64::try_from(integer(value)?).map_err(|_| NEGATIVE_LEN)?;
            Keep::Newest(usize::try_from(len).unwrap_or(usize::MAX))
        });
        Ok(Some(value_at + 1))
    }

    /// What is to be done, if anything. `node_entries_max` is the limit of entries in a block.
    fn finish(self, node_entries_max: usize) -> Result<Option<Trim>, CommandError> {
        const NO_STRATEGY: CommandError = CommandError::new(
            "ERR syntax error, LIMIT cannot be used without specifying a trimming strategy",
        );
        const EXACT: CommandError = CommandError::new(
            "ERR syntax error, LIMIT cannot be used without the special ~ option",
        );
        if self.keep.is_none() && self.limit.is_some_and(|limit| limit != 0) {
            return Err(NO_STRATEGY);
        }
        if self.limit.is_some() && !self.is_approximate {
            return Err(EXACT);
        }
        let Some(keep) = self.keep else { return Ok(None) };
        let precision = if self.is_approximate {
            let limit = match self.limit {
                Some(limit) => usize::try_from(limit).unwrap_or(usize::MAX),
                None => default_limit(node_entries_max),
            };
            TrimPrecision::Blocks { limit }
        } else {
            TrimPrecision::Exact
        };
        Ok(Some(Trim { keep, precision }))
    }
}

/// How many entries go at most if nobody says: those of a hundred blocks, so that no call takes long.
fn default_limit(node_entries_max: usize) -> usize {
    const BLOCKS: usize = 100;
    const WITHOUT_LIMIT: usize = 10_000;
    const MAX: usize = 1_000_000;
    if node_entries_max == 0 {
        return WITHOUT_LIMIT;
    }
    node_entries_max.saturating_mul(BLOCKS).min(MAX)
}

/// The arguments of XADD before the fields.
struct Addition {
    missing: Missing,
    trim: Option<Trim>,
    id: NewId,
    /// Where the fields begin.
    fields_at: usize,
}

impl Addition {
    fn parse(ctx: &Context<'_, '_>, args: Args<'_>) -> Result<Self, CommandError> {
        let (mut missing, mut trimming, mut id) = (Missing::Create, Trimming::default(), None);
        let mut at = 2;
        while at < args.len() && id.is_none() {
            if let Some(next) = trimming.take(args, at)? {
                at = next;
            } else if args[at].eq_ignore_ascii_case(b"nomkstream") {
                missing = Missing::Skip;
                at += 1;
            } else {
                id = Some(NewId::parse(&args[at])?);
                at += 1;
            }
        }
        let trim = trimming.finish(ctx.server.keyspace.limits().stream.node_entries_max)?;
        let fields = args.len().saturating_sub(at);
        let Some(id) = id.filter(|_| fields >= 2 && fields.is_multiple_of(2)) else {
            return Err(CommandError::arity(ctx.name()));
        };
        Ok(Self { missing, trim, id, fields_at: at })
    }
}

fn xadd(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    const ZERO: CommandError =
        CommandError::new("ERR The ID specified in XADD must be greater than 0-0");
    let addition = Addition::parse(ctx, args)?;
    if addition.id == NewId::Given(StreamId::MIN) {
        return Err(ZERO);
    }
    let fields = args.from(addition.fields_at);
    let now_ms = unsigned_ms(ctx.now_ms);
    let (mut db, key, reply) = ctx.open(args.at(1));
    let added = db.edit(key, addition.missing, |stream: &mut Editor<'_, Stream>| {
        let id = new_id(stream, addition.id, now_ms)?;
        let pairs = (0..fields.len() / 2).map(|at| (fields.at(2 * at), fields.at(2 * at + 1)));
        stream.add(id, pairs);
        if let Some(trim) = addition.trim {
            stream.trim(trim);
        }
        Ok::<_, CommandError>(id)
    })?;
    match added {
        Some(id) => reply::id(reply, id),
        None => reply.null(),
    }
    Ok(())
}

fn new_id(stream: &Stream, id: NewId, now_ms: u64) -> Result<StreamId, CommandError> {
    const EXHAUSTED: CommandError = CommandError::new(
        "ERR The stream has exhausted the last possible ID, unable to add more items",
    );
    const NOT_ABOVE: CommandError = CommandError::new(
        "ERR The ID specified in XADD is equal or smaller than the target stream top item",
    );
    let last = stream.state().last_id;
    if last == StreamId::MAX {
        return Err(EXHAUSTED);
    }
    id.after(last, now_ms).ok_or(NOT_ABOVE)
}

fn xtrim(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    const NO_STRATEGY: CommandError =
        CommandError::new("ERR syntax error, XTRIM must be called with a trimming strategy");
    let mut trimming = Trimming::default();
    let mut at = 2;
    while at < args.len() {
        at = trimming.take(args, at)?.ok_or(CommandError::SYNTAX)?;
    }
    let trim = trimming.finish(ctx.server.keyspace.limits().stream.node_entries_max)?;
    let trim = trim.ok_or(NO_STRATEGY)?;
    let (mut db, key, reply) = ctx.open(args.at(1));
    let trimmed = db.edit(key, Missing::Skip, |stream: &mut Editor<'_, Stream>| {
        Ok::<_, CommandError>(stream.trim(trim))
    })?;
    reply.count(trimmed.unwrap_or(0));
    Ok(())
}
