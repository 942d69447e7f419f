//! Edits of streams as commands.

use tierce_collections::stream::{State, StreamId, deliveries_in_redis};
use tierce_keyspace::log::StreamEdit;
use tierce_keyspace::planted::{self, Fault};
use tierce_keyspace::{Delivery, StreamFields};

use super::Dialect;
use super::commands::{Arg, Commands, push, push_newer};

/// Translator for the edits of one stream.
///
/// A stream that begins anew is given as its final state, and commands have to build it: first its groups, then the
/// entries in their order, and last the metadata, which an `XADD` would change. Pending entries are claimed, which
/// is possible only for existing entries. An entry that was deleted or trimmed while it was pending is added,
/// claimed and deleted. Messages that are not added twice come last.
#[derive(Debug)]
pub(super) struct StreamCommands<'a> {
    key: &'a [u8],
    dialect: Dialect,
    rebuild: Option<Rebuild>,
    /// Group and consumer of the last `XCLAIM` that creates the consumer if it does not exist. One that gives entries
    /// back may create none.
    claimed: Option<(&'a [u8], &'a [u8])>,
    /// Edits about messages of a stream that begins anew.
    messages: Vec<StreamEdit<'a>>,
}

/// Progress in building a stream that begins anew.
#[derive(Debug)]
struct Rebuild {
    /// Final state.
    state: State,
    /// State after the commands so far.
    made: State,
    /// True if there is an entry that stays.
    has_entry: bool,
    is_there: bool,
}

/// A range of entries and their pending deliveries.
#[derive(Debug, Default)]
struct Range<'a> {
    /// Entries; without fields if the entry exists only as pending.
    entries: Vec<(StreamId, Option<StreamFields<'a>>)>,
    pending: Vec<StreamEdit<'a>>,
}

const NOTHING: State =
    State { last_id: StreamId::MIN, max_deleted_id: StreamId::MIN, entries_added: 0 };

impl<'a> StreamCommands<'a> {
    /// Returns a translator. With `is_whole` the stream does not exist, and the first edits create it.
    pub(super) fn new(key: &'a [u8], is_whole: bool, dialect: Dialect) -> Self {
        let rebuild = Rebuild { state: NOTHING, made: NOTHING, has_entry: false, is_there: false };
        let rebuild = is_whole.then_some(rebuild);
        Self { key, dialect, rebuild, claimed: None, messages: Vec::new() }
    }

    /// Translates the edits of one operation: those that begin the stream anew, more of them, or changes.
    pub(super) fn edits<E>(
        &mut self,
        edits: impl Iterator<Item = Result<StreamEdit<'a>, E>>,
        is_whole: bool,
        commands: &mut Commands<'_>,
    ) -> Result<(), E> {
        let mut range = Range::default();
        for edit in edits {
            let edit = edit?;
            match (edit, &mut self.rebuild) {
                (StreamEdit::Entry { id, fields }, Some(_)) => {
                    range.entries.push((id, Some(fields)));
                }
                (StreamEdit::Pending { .. }, Some(_)) => range.pending.push(edit),
                (StreamEdit::Messages { .. } | StreamEdit::Remember { .. }, Some(_)) => {
                    self.messages.push(edit);
                }
                // Metadata are in the first operation. Later ones change the existing stream.
                (StreamEdit::State(state), Some(rebuild)) if is_whole => rebuild.state = state,
                (StreamEdit::Group { name, last_delivered, entries_read, .. }, Some(rebuild))
                    if is_whole =>
                {
                    rebuild.is_there = true;
                    let is_new = true;
                    let group = StreamEdit::Group { name, last_delivered, entries_read, is_new };
                    self.change(group, commands);
                }
                (StreamEdit::Consumer { .. }, Some(_)) if is_whole => self.change(edit, commands),
                _ => {
                    self.range(std::mem::take(&mut range), commands);
                    self.finish(commands);
                    self.change(edit, commands);
                }
            }
        }
        self.range(range, commands);
        Ok(())
    }

    /// Appends entries and their pending deliveries.
    fn range(&mut self, mut range: Range<'a>, commands: &mut Commands<'_>) {
        let Some(rebuild) = &mut self.rebuild else { return };
        let before = rebuild.made.last_id;
        if !planted::is(Fault::TranslationOfPending) {
            range.add_absent(before);
        }
        let (mut trimmed, mut deleted) = (None, Vec::new());
        for (id, fields) in &range.entries {
            add(self.key, *id, *fields, commands);
            match fields {
                Some(_) => rebuild.has_entry = true,
                None if rebuild.has_entry => deleted.push(*id),
                None => trimmed = Some(*id),
            }
            rebuild.is_there = true;
            rebuild.made.last_id = *id;
            rebuild.made.entries_added += 1;
        }
        for edit in range.pending {
            self.change(edit, commands);
        }
        if let Some(through) = trimmed {
            trim(self.key, through, commands);
        }
        for id in deleted {
            self.rebuild.iter_mut().for_each(|rebuild| rebuild.made.max_deleted_id = id);
            push!(commands, "XDEL", self.key, id);
        }
    }

    /// Appends the final metadata of a stream that began anew.
    pub(super) fn finish(&mut self, commands: &mut Commands<'_>) {
        let Some(rebuild) = self.rebuild.take() else { return };
        if !rebuild.is_there {
            // Only this creates a stream without entries and groups.
            let id = StreamId::new(0, 1);
            push!(commands, "XADD", self.key, "MAXLEN", 0_u64, id, "", "");
        }
        if !rebuild.is_there || rebuild.made != rebuild.state {
            self.set_state(rebuild.state, commands);
        }
        for edit in std::mem::take(&mut self.messages) {
            self.change(edit, commands);
        }
    }

    fn set_state(&self, state: State, commands: &mut Commands<'_>) {
        let State { last_id, max_deleted_id, entries_added } = state;
        if self.dialect < Dialect::Redis7_0 {
            return push!(commands, "XSETID", self.key, last_id);
        }
        // A primary of version 7.0 may have a last ID below the highest deleted one, which newer servers refuse.
        let max_deleted_id = max_deleted_id.min(last_id);
        push_newer!(
            commands,
            "XSETID",
            self.key,
            last_id,
            "ENTRIESADDED",
            entries_added,
            "MAXDELETEDID",
            max_deleted_id,
        );
    }

    /// Translates an edit of an existing stream.
    fn change(&mut self, edit: StreamEdit<'a>, commands: &mut Commands<'_>) {
        let key = self.key;
        match edit {
            StreamEdit::State(state) => self.set_state(state, commands),
            StreamEdit::Add { id, fields, .. } | StreamEdit::Entry { id, fields } => {
                add(key, id, Some(fields), commands);
            }
            StreamEdit::Delete(id) => push!(commands, "XDEL", key, id),
            StreamEdit::Through(id) => trim(key, id, commands),
            StreamEdit::Group { name, last_delivered, entries_read, is_new } => {
                let mut args =
                    ["XGROUP", if is_new { "CREATE" } else { "SETID" }].map(Arg::from).to_vec();
                args.extend([Arg::from(key), Arg::from(name), Arg::from(last_delivered)]);
                args.extend(is_new.then_some(Arg::from("MKSTREAM")));
                if let Some(read) = entries_read.filter(|_| self.dialect >= Dialect::Redis7_0) {
                    args.extend([Arg::from("ENTRIESREAD"), Arg::from(read)]);
                }
                commands.push(&args);
            }
            StreamEdit::NoGroup(name) => {
                self.claimed = None;
                push!(commands, "XGROUP", "DESTROY", key, name);
            }
            StreamEdit::Consumer { group, name, .. } if self.claimed == Some((group, name)) => {}
            StreamEdit::Consumer { group, name, .. } => {
                push!(commands, "XGROUP", "CREATECONSUMER", key, group, name);
            }
            StreamEdit::NoConsumer { group, name } => {
                self.claimed = None;
                push!(commands, "XGROUP", "DELCONSUMER", key, group, name);
            }
            StreamEdit::Pending { group, consumer, delivery, ids } => {
                let Delivery { at_ms, count } = delivery;
                let head = [
                    Arg::from("XCLAIM"),
                    Arg::from(key),
                    Arg::from(group),
                    Arg::from(consumer),
                    Arg::from(0_u64),
                ];
                let tail = [
                    Arg::from("TIME"),
                    Arg::from(at_ms),
                    Arg::from("RETRYCOUNT"),
                    Arg::from(deliveries_in_redis(count)),
                    Arg::from("FORCE"),
                    Arg::from("JUSTID"),
                ];
                commands.push_chunks(&head, ids.map(|id| [Arg::from(id)]), &tail);
                if !delivery.is_given_back(consumer) {
                    self.claimed = Some((group, consumer));
                }
            }
            StreamEdit::Acknowledge { group, ids } => {
                let head = [Arg::from("XACK"), Arg::from(key), Arg::from(group)];
                commands.push_chunks(&head, ids.map(|id| [Arg::from(id)]), &[]);
            }
            StreamEdit::Messages { .. } | StreamEdit::Remember { .. }
                if self.dialect < Dialect::Tierce => {}
            StreamEdit::Messages { limits, counts } => {
                push_newer!(
                    commands,
                    "XCFGSET",
                    key,
                    "IDMP-DURATION",
                    limits.duration_s,
                    "IDMP-MAXSIZE",
                    limits.messages_max,
                    "COUNTS",
                    counts.added,
                    counts.duplicates,
                );
            }
            // A replica that has the entry without its message may add it again. The other way round, it would lose one.
            StreamEdit::Remember { counts, at_ms, id, producer, message } => {
                push_newer!(
                    commands,
                    "XIDMPRECORD",
                    key,
                    producer,
                    message,
                    id,
                    at_ms,
                    counts.added,
                    counts.duplicates,
                );
            }
            StreamEdit::Withdraw(_) | StreamEdit::Forget { .. } => {}
        }
    }
}

impl Range<'_> {
    /// Adds IDs that are pending but no longer entries. IDs up to `before` were all added.
    fn add_absent(&mut self, before: StreamId) {
        let mut absent: Vec<StreamId> = Vec::new();
        for edit in &self.pending {
            if let StreamEdit::Pending { ids, .. } = edit {
                let is_there = |id: &StreamId| {
                    *id <= before || self.entries.binary_search_by_key(id, |(id, _)| *id).is_ok()
                };
                absent.extend(ids.filter(|id| !is_there(id)));
            }
        }
        absent.sort_unstable();
        absent.dedup();
        self.entries.extend(absent.into_iter().map(|id| (id, None)));
        self.entries.sort_by_key(|(id, _)| *id);
    }
}

/// Appends an entry, or a placeholder for one.
fn add(key: &[u8], id: StreamId, fields: Option<StreamFields<'_>>, commands: &mut Commands<'_>) {
    let mut args = vec![Arg::from("XADD"), Arg::from(key), Arg::from(id)];
    match fields {
        Some(fields) => args.extend(fields.flat_map(|(name, value)| [name, value].map(Arg::Bytes))),
        None => args.extend([Arg::from(""), Arg::from("")]),
    }
    commands.push(&args);
}

/// Removes all entries up to this one.
fn trim(key: &[u8], through: StreamId, commands: &mut Commands<'_>) {
    match through.next() {
        Some(first) => push!(commands, "XTRIM", key, "MINID", first),
        None => push!(commands, "XTRIM", key, "MAXLEN", 0_u64),
    }
}
