//! Common part of HSCAN, SSCAN and ZSCAN.

use tierce_collections::{Element, IntText};
use tierce_keyspace::{CollectionType, Entry};
use tierce_wire::glob::{self, Case};
use tierce_wire::number;
use tierce_wire::resp::Rest;

use crate::commands::cursor::Options;
use crate::commands::options::integer;
use crate::error::CommandError;
use crate::pipeline::{Context, Done};

/// Replies to such a command with the next cursor and the found elements. `visit` visits some elements from a cursor
/// on, calls [`Found::visited`] for each, and returns the next cursor.
pub(super) fn reply<T: CollectionType>(
    ctx: &mut Context<'_, '_>,
    [key, cursor]: [&[u8]; 2],
    options: Rest<'_>,
    visit: impl Fn(&T, u64, &mut Found<'_>) -> u64,
) -> Done {
    let mut cursor = self::cursor(cursor)?;
    let (scale, command) = (ctx.scale(), ctx.name());
    let (mut db, key, reply) = ctx.open(key);
    let len = db.peek(key).map_or(0, Entry::element_count);
    let Some(collection) = db.collection::<T>(key)? else {
        // Without a key the options are not checked.
        reply.array(2);
        reply.bulk(b"0");
        reply.array(0);
        return Ok(());
    };
    let options = SweepOptions::parse(Options::of(options), command)?;
    scale.weigh(options.count.min(len))?;
    let mut found = Found { options: &options, visited: 0, parts: Vec::new() };
    loop {
        cursor = visit(&collection, cursor, &mut found);
        if cursor == 0 || found.visited >= options.count {
            break;
        }
    }
    reply.array(2);
    reply.bulk(cursor.to_string().as_bytes());
    reply.bulks(found.parts);
    Ok(())
}

/// Elements found so far.
pub(super) struct Found<'o> {
    options: &'o SweepOptions<'o>,
    visited: usize,
    /// Copies, since the reply begins with their number: members, or names with their values.
    parts: Vec<Vec<u8>>,
}

impl Found<'_> {
    /// Adds an element with its value, if it matches.
    pub(super) fn visited(&mut self, name: Element<'_>, value: impl FnOnce() -> Option<Vec<u8>>) {
        self.visited += 1;
        let mut text = IntText::new();
        let name = name.bytes(&mut text);
        if self.options.matches(name) {
            self.parts.push(name.to_vec());
            if !self.options.only_names {
                self.parts.extend(value());
            }
        }
    }

    /// Skips an element that no longer exists.
    pub(super) fn passed(&mut self) {
        self.visited += 1;
    }
}

/// Options of such a command: filters and amount of work.
struct SweepOptions<'a> {
    pattern: Option<&'a [u8]>,
    /// Number of elements to visit.
    count: usize,
    /// True with NOVALUES, an option of HSCAN.
    only_names: bool,
}

impl<'a> SweepOptions<'a> {
    const COUNT_DEFAULT: usize = 10;

    fn parse(mut options: Options<'a>, command: &str) -> Result<Self, CommandError> {
        let mut parsed = Self { pattern: None, count: Self::COUNT_DEFAULT, only_names: false };
        while let Some(word) = options.next_word() {
            match &*word {
                b"match" => parsed.pattern = pattern(options.value()?),
                b"count" => parsed.count = count(options.value()?)?,
                b"novalues" if command == "hscan" => parsed.only_names = true,
                _ => return Err(CommandError::SYNTAX),
            }
        }
        Ok(parsed)
    }

    /// Returns true if a name or member matches.
    fn matches(&self, name: &[u8]) -> bool {
        self.pattern.is_none_or(|pattern| glob::matches(pattern, name, Case::Sensitive))
    }
}

/// Parses a pattern; `None` if it matches everything.
pub(super) fn pattern(arg: &[u8]) -> Option<&[u8]> {
    (arg != b"*").then_some(arg)
}

/// Parses the number of elements to visit, which must be positive.
pub(super) fn count(arg: &[u8]) -> Result<usize, CommandError> {
    let count = usize::try_from(integer(arg)?).ok();
    count.filter(|count| *count > 0).ok_or(CommandError::SYNTAX)
}

/// Parses a cursor.
pub(super) fn cursor(arg: &[u8]) -> Result<u64, CommandError> {
    number::parse_u64(arg).ok_or(CommandError::new("ERR invalid cursor"))
}
