//! XNACK: gives pending entries back to their group.

use tierce_collections::Stream;
use tierce_keyspace::{Delivery, Editor, Event, Missing};
use tierce_wire::resp::Rest;

use super::common::no_group;
use super::id;
use crate::command::{Flags, Group, KeyFlags, KeySpec};
use crate::commands::cursor::Options;
use crate::commands::options::integer;
use crate::error::CommandError;
use crate::pipeline::{Context, Defined, Done, at_least};

pub(super) static COMMANDS: &[Defined] = &[Defined::new("xnack", Group::Stream, at_least!(xnack))
    .flags(Flags::WRITE.with(Flags::FAST))
    .keys(&[KeySpec::at(1, KeyFlags::UPDATE)])
    .since("8.8.0", "O(1) for each message ID processed.")
    .doc(
        "key group <SILENT | FAIL | FATAL> IDS numids id [id ...] [RETRYCOUNT count] [FORCE]",
        "Gives pending entries back to their group, so that others can claim them at once. SILENT \
             does not count the last delivery, FATAL sets the highest count. Returns the number of \
             entries.",
    )
    .example(
        r#"
        > XADD events 1-1 type login
        "1-1"
        > XGROUP CREATE events mailers 0
        OK
        > XREADGROUP GROUP mailers worker-1 STREAMS events >
        1) 1) "events"
           2) 1) 1) "1-1"
                 2) 1) "type"
                    2) "login"
        > XNACK events mailers SILENT IDS 1 1-1
        (integer) 1
        > XPENDING events mailers - + 10
        1) 1) "1-1"
           2) ""
           3) (integer) -1
           4) (integer) 0
        > XREADGROUP GROUP mailers worker-2 CLAIM 60000 STREAMS events >
        1) 1) "events"
           2) 1) 1) "1-1"
                 2) 1) "type"
                    2) "login"
                 3) (integer) ...
                 4) (integer) 0
        "#,
    )];

/// Effect on the number of deliveries.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Count {
    /// One less: SILENT.
    Less,
    /// Unchanged: FAIL.
    Kept,
    /// As given. FATAL gives the highest.
    Given(u32),
}

/// Parsed arguments.
struct Return<'a> {
    count: Count,
    /// True if entries that are not pending are given back, too.
    is_forced: bool,
    ids: Rest<'a>,
}

impl<'a> Return<'a> {
    fn parse(mode: &[u8], mut options: Options<'a>) -> Result<Self, CommandError> {
        const MODE: CommandError = CommandError::new("ERR mode must be SILENT, FAIL, or FATAL");
        const NO_IDS: CommandError = CommandError::new("ERR syntax error, expected IDS keyword");
        const NEGATIVE: CommandError =
            CommandError::new("ERR Invalid RETRYCOUNT value, must be >= 0");
        let modes =
            [("silent", Count::Less), ("fail", Count::Kept), ("fatal", Count::Given(u32::MAX))];
        let known = modes.into_iter().find(|(name, _)| mode.eq_ignore_ascii_case(name.as_bytes()));
        let (_, mut count) = known.ok_or(MODE)?;
        let (mut is_forced, mut ids) = (false, None);
        while options.left() > 0 {
            if options.take("force") {
                is_forced = true;
            } else if options.left() > 1 && options.take("ids") {
                ids = Some(id::counted(
                    &mut options,
                    "ERR numids must be a positive integer",
                    "ERR number of IDs doesn't match numids",
                )?);
            } else if options.left() > 1 && options.take("retrycount") {
                let given = u64::try_from(integer(options.value()?)?).map_err(|_| NEGATIVE)?;
                count = Count::Given(u32::try_from(given).unwrap_or(u32::MAX));
            } else {
                let option = String::from_utf8_lossy(options.value()?);
                let text = format!("ERR Unrecognized XNACK option '{option}'");
                return Err(CommandError::text(text));
            }
        }
        Ok(Self { count, is_forced, ids: ids.ok_or(NO_IDS)? })
    }

    /// Gives entries back, and returns their number.
    fn apply(&self, stream: &mut Editor<'_, Stream>, group: &[u8]) -> Result<usize, CommandError> {
        let mut given_back = 0;
        for id in id::all(self.ids)? {
            let pending = stream.group(group).and_then(|group| group.pending_entry(id));
            if stream.get(id).is_none() {
                // A deleted entry cannot be claimed, and no command leaves it without a consumer on replicas.
                given_back += stream.acknowledge(group, std::iter::once(id));
                continue;
            }
            let before = match pending {
                Some(pending) => pending.deliveries,
                None if self.is_forced => 0,
                None => continue,
            };
            let count = match self.count {
                Count::Less if before == u32::MAX => before,
                Count::Less => before.saturating_sub(1),
                Count::Kept => before,
                Count::Given(count) => count,
            };
            stream.deliver(group, b"", &[id], Delivery::given_back(count));
            given_back += 1;
        }
        Ok(given_back)
    }
}

fn xnack(ctx: &mut Context<'_, '_>, [key, group, mode]: [&[u8]; 3], options: Rest<'_, 3>) -> Done {
    let (mut db, key, reply) = ctx.open(key);
    let missing = || no_group(key.bytes(), group, "");
    let given_back = db.edit(key, Missing::Skip, |stream: &mut Editor<'_, Stream>| {
        if stream.group(group).is_none() {
            return Err(missing());
        }
        Return::parse(mode, Options::of(options))?.apply(stream, group)
    })?;
    let given_back = given_back.ok_or_else(missing)?;
    if given_back > 0 {
        db.event(Event::XNack, key);
    }
    reply.count(given_back);
    Ok(())
}
