//! Writes a snapshot as lines.

use std::io::{self, Write};
use std::path::Path;

use tierce_collections::stream::StreamId;
use tierce_keyspace::log::StreamEdit;
use tierce_keyspace::{
    CodeKind, CodeSet, CollectionPart, DbIndex, IntText, ItemNote, SavedCollection, SavedEntry,
    SavedValue, Snapshot, SnapshotPiece,
};

use super::{FORMAT, VERSION, bytes};
use crate::persistence::SaveError;

/// Length after which a line ends and the next line continues the value.
const LINE_LEN: usize = 256 * 1024;

/// Upper bound of pending entries in one element of a stream.
const PENDING_IDS: usize = 1024;

/// Writes a whole snapshot. Returns the number of keys and bytes. `told` is called with the keys so far.
///
/// # Errors
/// Fails if the snapshot is incomplete, or if writing to `path` fails.
pub(crate) fn write<W: Write>(
    out: W,
    path: &Path,
    snapshot: &mut Snapshot,
    now_ms: i64,
    mut told: impl FnMut(u64),
) -> Result<(W, u64, u64), SaveError> {
    let explain = |source| SaveError::Io { action: "write", path: path.to_owned(), source };
    let mut lines = Lines { out, line: Vec::new(), bytes: 0 };
    lines.header(now_ms).and_then(|()| lines.code(snapshot.code())).map_err(explain)?;
    let mut keys = 0;
    while let Some(piece) = snapshot.next()? {
        match piece {
            SnapshotPiece::Batch(batch) => {
                batch.iter().try_for_each(|entry| lines.entry(&entry)).map_err(explain)?;
                keys += batch.len() as u64;
            }
            SnapshotPiece::Large(mut large) => {
                let saved = large.head().clone();
                let head = Head {
                    kind: saved.kind.name(),
                    db: saved.db,
                    key: &saved.key,
                    deadline_ms: saved.deadline_ms,
                    item: ItemNote::NONE,
                };
                lines.begin(&head);
                while let Some(slice) = large.next_slice()? {
                    lines.elements(&head, &slice).map_err(explain)?;
                }
                lines.end_value().map_err(explain)?;
                keys += 1;
            }
        }
        told(keys);
    }
    lines.end(keys).map_err(explain)?;
    Ok((lines.out, keys, lines.bytes))
}

/// Members of a line that precede its value.
struct Head<'a> {
    kind: &'static str,
    db: DbIndex,
    key: &'a [u8],
    deadline_ms: Option<i64>,
    item: ItemNote,
}

struct Lines<W> {
    out: W,
    /// The line under construction.
    line: Vec<u8>,
    bytes: u64,
}

impl<W: Write> Lines<W> {
    fn header(&mut self, now_ms: i64) -> io::Result<()> {
        write!(
            self.line,
            "{{\"type\":\"header\",\"format\":\"{FORMAT}\",\"version\":{VERSION},\
             \"tierce\":\"{}\",\"written_ms\":{now_ms}}}",
            crate::VERSION
        )?;
        self.end_line()
    }

    fn code(&mut self, code: &CodeSet) -> io::Result<()> {
        for (name, source) in code.of(CodeKind::Script) {
            self.line.extend_from_slice(b"{\"type\":\"script\",\"name\":");
            bytes::write(&mut self.line, name);
            self.line.extend_from_slice(b",\"source\":");
            bytes::write(&mut self.line, source);
            self.line.push(b'}');
            self.end_line()?;
        }
        for (_, source) in code.of(CodeKind::Library) {
            self.line.extend_from_slice(b"{\"type\":\"function\",\"source\":");
            bytes::write(&mut self.line, source);
            self.line.push(b'}');
            self.end_line()?;
        }
        Ok(())
    }

    fn end(&mut self, keys: u64) -> io::Result<()> {
        write!(self.line, "{{\"type\":\"end\",\"keys\":{keys}}}")?;
        self.end_line()
    }

    fn entry(&mut self, entry: &SavedEntry<'_>) -> io::Result<()> {
        let SavedEntry { db, key, deadline_ms, item, .. } = *entry;
        let head = |kind| Head { kind, db, key, deadline_ms, item };
        match &entry.value {
            SavedValue::Str(bytes) => self.string(&head("string"), bytes),
            SavedValue::Int(int) => self.string(&head("string"), IntText::new().of(*int)),
            SavedValue::Collection(collection) => {
                let head = head(collection.kind().name());
                self.begin(&head);
                self.elements(&head, collection)?;
                self.end_value()
            }
        }
    }

    /// Writes a string, in several lines if it is long. Text is never split inside a character.
    fn string(&mut self, head: &Head<'_>, value: &[u8]) -> io::Result<()> {
        let text = std::str::from_utf8(value).ok();
        let mut rest = 0..value.len();
        self.head(head);
        loop {
            let mut end = rest.end.min(rest.start + LINE_LEN);
            match text {
                Some(text) => {
                    while !text.is_char_boundary(end) {
                        end -= 1;
                    }
                    bytes::write_text(&mut self.line, &text[rest.start..end]);
                }
                None => bytes::write_base64(&mut self.line, &value[rest.start..end]),
            }
            rest.start = end;
            if rest.is_empty() {
                self.line.push(b'}');
                return self.end_line();
            }
            self.line.extend_from_slice(b",\"more\":true}");
            self.end_line()?;
            self.place(head);
            self.line.extend_from_slice(b",\"value\":");
        }
    }

    /// Writes type, database and key, which every line of a value has.
    fn place(&mut self, head: &Head<'_>) {
        let Head { kind, db, key, .. } = head;
        let begin = format!("{{\"type\":\"{kind}\",\"db\":{},\"key\":", db.get());
        self.line.extend_from_slice(begin.as_bytes());
        bytes::write(&mut self.line, key);
    }

    /// Writes all members that precede a value in its first line.
    fn head(&mut self, head: &Head<'_>) {
        self.place(head);
        let ItemNote { flags, marks } = head.item;
        let mut attributes = String::new();
        if let Some(ms) = head.deadline_ms {
            // Deadlines are positive: a deadline in the past deletes its key.
            attributes += &format!(",\"expires_ms\":{}", ms.max(0));
        }
        if flags != 0 {
            attributes += &format!(",\"flags\":{flags}");
        }
        for (name, is_set) in [("stale", marks.stale), ("won", marks.won)] {
            if is_set {
                attributes += &format!(",\"{name}\":true");
            }
        }
        self.line.extend_from_slice(attributes.as_bytes());
        self.line.extend_from_slice(b",\"value\":");
    }

    fn begin(&mut self, head: &Head<'_>) {
        self.head(head);
        self.line.push(b'[');
    }

    fn end_value(&mut self) -> io::Result<()> {
        self.line.extend_from_slice(b"]}");
        self.end_line()
    }

    /// Begins the next element, in a new line if this one is long enough.
    fn next_element(&mut self, head: &Head<'_>) -> io::Result<()> {
        if self.line.len() >= LINE_LEN {
            self.line.extend_from_slice(b"],\"more\":true}");
            self.end_line()?;
            self.place(head);
            self.line.extend_from_slice(b",\"value\":[");
        } else if !self.line.ends_with(b"[") {
            // No element ends with an opening bracket.
            self.line.push(b',');
        }
        Ok(())
    }

    fn elements(&mut self, head: &Head<'_>, slice: &SavedCollection<'_>) -> io::Result<()> {
        for part in slice.parts() {
            if let CollectionPart::Stream(StreamEdit::Pending { group, consumer, delivery, ids }) =
                part
            {
                let (ids, whose): (Vec<_>, _) = (ids.collect(), [group, consumer]);
                for ids in ids.chunks(PENDING_IDS) {
                    self.next_element(head)?;
                    write_pending(&mut self.line, whose, delivery.at_ms, delivery.count, ids)?;
                }
                continue;
            }
            // The format has no deadlines of members.
            if matches!(part, CollectionPart::MemberDeadline { .. }) {
                continue;
            }
            self.next_element(head)?;
            write_part(&mut self.line, part)?;
        }
        Ok(())
    }

    fn end_line(&mut self) -> io::Result<()> {
        self.line.push(b'\n');
        self.bytes += self.line.len() as u64;
        self.out.write_all(&self.line)?;
        self.line.clear();
        Ok(())
    }
}

fn write_part(line: &mut Vec<u8>, part: CollectionPart<'_>) -> io::Result<()> {
    use CollectionPart::Stream;
    match part {
        CollectionPart::MemberDeadline { .. } => {}
        CollectionPart::Element(element) | CollectionPart::Member(element) => {
            bytes::write(line, element);
        }
        CollectionPart::Scored { member, score } => {
            line.push(b'[');
            bytes::write(line, member);
            line.push(b',');
            write_score(line, score)?;
            line.push(b']');
        }
        CollectionPart::Field { name, value, deadline_ms } => {
            line.push(b'[');
            bytes::write(line, name);
            line.push(b',');
            bytes::write(line, value);
            if let Some(ms) = deadline_ms {
                write!(line, ",{ms}")?;
            }
            line.push(b']');
        }
        Stream(StreamEdit::State(state)) => write!(
            line,
            "{{\"state\":{{\"last_id\":{},\"max_deleted_id\":{},\"entries_added\":{}}}}}",
            Id(state.last_id),
            Id(state.max_deleted_id),
            state.entries_added
        )?,
        Stream(StreamEdit::Entry { id, fields }) => {
            write!(line, "{{\"entry\":{{\"id\":{},\"fields\":[", Id(id))?;
            for (at, (name, value)) in fields.enumerate() {
                line.extend_from_slice(if at == 0 { b"" } else { b"," });
                bytes::write(line, name);
                line.push(b',');
                bytes::write(line, value);
            }
            line.extend_from_slice(b"]}}");
        }
        Stream(StreamEdit::Group { name, last_delivered, entries_read, .. }) => {
            line.extend_from_slice(b"{\"group\":{\"name\":");
            bytes::write(line, name);
            write!(line, ",\"last_delivered\":{}", Id(last_delivered))?;
            if let Some(read) = entries_read {
                write!(line, ",\"entries_read\":{read}")?;
            }
            line.extend_from_slice(b"}}");
        }
        Stream(StreamEdit::Consumer { group, name, seen_ms, active_ms }) => {
            line.extend_from_slice(b"{\"consumer\":{\"group\":");
            bytes::write(line, group);
            line.extend_from_slice(b",\"name\":");
            bytes::write(line, name);
            write!(line, ",\"seen_ms\":{seen_ms}")?;
            if let Some(ms) = active_ms {
                write!(line, ",\"active_ms\":{ms}")?;
            }
            line.extend_from_slice(b"}}");
        }
        Stream(StreamEdit::Messages { limits, counts }) => write!(
            line,
            "{{\"messages\":{{\"duration_s\":{},\"messages_max\":{},\"added\":{},\"duplicates\":{}}}}}",
            limits.duration_s, limits.messages_max, counts.added, counts.duplicates
        )?,
        Stream(StreamEdit::Remember { producer, message, id, at_ms, .. }) => {
            line.extend_from_slice(b"{\"message\":{\"producer\":");
            bytes::write(line, producer);
            line.extend_from_slice(b",\"name\":");
            bytes::write(line, message);
            write!(line, ",\"id\":{},\"at_ms\":{at_ms}}}}}", Id(id))?;
        }
        // `Lines::elements` splits pending entries. An unknown part must not be lost silently.
        part => return Err(io::Error::other(format!("the format has no element for {part:?}"))),
    }
    Ok(())
}

fn write_pending(
    line: &mut Vec<u8>,
    [group, consumer]: [&[u8]; 2],
    delivered_ms: u64,
    deliveries: u32,
    ids: &[StreamId],
) -> io::Result<()> {
    line.extend_from_slice(b"{\"pending\":{\"group\":");
    bytes::write(line, group);
    line.extend_from_slice(b",\"consumer\":");
    bytes::write(line, consumer);
    write!(line, ",\"delivered_ms\":{delivered_ms},\"deliveries\":{deliveries},\"ids\":[")?;
    for (at, id) in ids.iter().enumerate() {
        line.extend_from_slice(if at == 0 { b"" } else { b"," });
        write!(line, "{}", Id(*id))?;
    }
    line.extend_from_slice(b"]}}");
    Ok(())
}

/// Writes a score. Infinity is a text, since JSON has no number for it.
fn write_score(line: &mut Vec<u8>, score: f64) -> io::Result<()> {
    match score {
        f64::INFINITY => line.extend_from_slice(b"\"inf\""),
        f64::NEG_INFINITY => line.extend_from_slice(b"\"-inf\""),
        _ => serde_json::to_writer(line, &score)?,
    }
    Ok(())
}

/// ID of an entry as JSON.
struct Id(StreamId);

impl std::fmt::Display for Id {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "\"{}-{}\"", self.0.ms, self.0.seq)
    }
}
