//! LCS: the longest common subsequence of two strings.

use tierce_keyspace::Key;
use tierce_wire::resp::{Args, AuthState};

use crate::command::{Flags, Group, KeyFlags, KeySpec, Scope, Spec};
use crate::commands::options::integer;
use crate::error::CommandError;
use crate::execute::Context;

pub(super) static COMMANDS: &[Spec] = &[Spec::new("lcs", -3, Group::String, lcs)
    .flags(Flags::READONLY)
    .keys(&[KeySpec { last: 2, ..KeySpec::at(1, KeyFlags::READ) }])
    .locks(Scope::Briefly)
    .doc(
        "7.0.0",
        "O(N*M) where N and M are the lengths of s1 and s2, respectively",
        "key1 key2 [LEN] [IDX] [MINMATCHLEN min-match-len] [WITHMATCHLEN]",
        "Finds the longest common substring.",
    )];

/// What the caller wants to see.
#[derive(Default)]
struct Options {
    len: bool,
    idx: bool,
    with_match_len: bool,
    min_match_len: usize,
}

impl Options {
    fn parse(args: Args<'_>) -> Result<Self, CommandError> {
        let mut options = Self::default();
        let mut at = 0;
        while at < args.len() {
            match args[at].to_ascii_lowercase().as_slice() {
                b"len" => options.len = true,
                b"idx" => options.idx = true,
                b"withmatchlen" => options.with_match_len = true,
                b"minmatchlen" if at + 1 < args.len() => {
                    at += 1;
                    options.min_match_len = integer(&args[at])?.max(0) as usize;
                }
                _ => return Err(CommandError::SYNTAX),
            }
            at += 1;
        }
        if options.idx && options.len {
            return Err(CommandError::new(
                "ERR If you want both the length and indexes, please just use IDX.",
            ));
        }
        Ok(options)
    }
}

fn lcs(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let (a, b) = ctx.briefly(args, |ctx| read_both(ctx, args.at(1), args.at(2)))?;
    let options = Options::parse(args.from(3))?;
    let table = Table::fill(&a, &b, ctx.server.request_limits(AuthState::Granted).max_bulk_len)?;
    if options.len {
        ctx.reply.count(table.longest());
    } else if options.idx {
        reply_ranges(ctx, &table, &options);
    } else {
        let text = table.subsequence();
        ctx.reply.bulk(&text);
    }
    Ok(())
}

/// Copies both values; comparing them takes long, and no shard may be locked meanwhile.
fn read_both(
    ctx: &mut Context<'_, '_>,
    a: &[u8],
    b: &[u8],
) -> Result<(Vec<u8>, Vec<u8>), CommandError> {
    let (db, now_ms) = (ctx.session.db, ctx.now_ms);
    let keys = [a, b].map(|key| ctx.server.keyspace.key(key));
    let mut read = |key: Key<'_>| match ctx.guard.db(db, key.hash(), now_ms).string(key) {
        Ok(value) => Ok(value.map(|value| value.to_vec()).unwrap_or_default()),
        Err(_) => Err(CommandError::new("ERR The specified keys must contain string values")),
    };
    Ok((read(keys[0])?, read(keys[1])?))
}

/// A stretch that both strings have in common, by the positions of its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Match {
    a: usize,
    b: usize,
    len: usize,
}

/// The dynamic programming table of the classic algorithm (Wagner and Fischer): cell `(i, j)` is
/// the length of the longest subsequence of the first `i` bytes of `a` and the first `j` of `b`.
struct Table<'a> {
    a: &'a [u8],
    b: &'a [u8],
    cells: Vec<u32>,
}

impl<'a> Table<'a> {
    fn fill(a: &'a [u8], b: &'a [u8], bytes_max: usize) -> Result<Self, CommandError> {
        let width = b.len() + 1;
        let cells = (a.len() + 1).checked_mul(width).filter(|cells| {
            cells.checked_mul(size_of::<u32>()).is_some_and(|bytes| bytes <= bytes_max)
        });
        let Some(cells) = cells else {
            return Err(CommandError::new(
                "ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len",
            ));
        };
        let mut table = Self { a, b, cells: vec![0; cells] };
        for i in 1..=a.len() {
            for j in 1..=b.len() {
                table.cells[i * width + j] = if a[i - 1] == b[j - 1] {
                    table.at(i - 1, j - 1) + 1
                } else {
                    table.at(i - 1, j).max(table.at(i, j - 1))
                };
            }
        }
        Ok(table)
    }

    fn at(&self, i: usize, j: usize) -> u32 {
        self.cells[i * (self.b.len() + 1) + j]
    }

    fn longest(&self) -> usize {
        self.at(self.a.len(), self.b.len()) as usize
    }

    /// Walks back from the end; calls `on_equal` with the positions of each byte in common.
    fn walk(&self, mut on_equal: impl FnMut(usize, usize)) {
        let (mut i, mut j) = (self.a.len(), self.b.len());
        while i > 0 && j > 0 {
            if self.a[i - 1] == self.b[j - 1] {
                (i, j) = (i - 1, j - 1);
                on_equal(i, j);
            } else if self.at(i - 1, j) > self.at(i, j - 1) {
                i -= 1;
            } else {
                j -= 1;
            }
        }
    }

    fn subsequence(&self) -> Vec<u8> {
        let mut text = Vec::with_capacity(self.longest());
        self.walk(|i, _| text.push(self.a[i]));
        text.reverse();
        text
    }

    /// Stretches in common, last first.
    fn matches(&self) -> Vec<Match> {
        let mut matches: Vec<Match> = Vec::new();
        self.walk(|a, b| match matches.last_mut() {
            Some(last) if last.a == a + 1 && last.b == b + 1 => {
                *last = Match { a, b, len: last.len + 1 };
            }
            _ => matches.push(Match { a, b, len: 1 }),
        });
        matches
    }
}

fn reply_ranges(ctx: &mut Context<'_, '_>, table: &Table<'_>, options: &Options) {
    let mut matches = table.matches();
    matches.retain(|found| found.len >= options.min_match_len);
    let reply = &mut ctx.reply;
    reply.map(2);
    reply.bulk(b"matches");
    reply.array(matches.len());
    for found in matches {
        reply.array(2 + usize::from(options.with_match_len));
        for start in [found.a, found.b] {
            reply.array(2);
            reply.count(start);
            reply.count(start + found.len - 1);
        }
        if options.with_match_len {
            reply.count(found.len);
        }
    }
    reply.bulk(b"len");
    reply.count(table.longest());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_the_manual() {
        let table = Table::fill(b"ohmytext", b"mynewtext", usize::MAX).unwrap();
        assert_eq!(table.longest(), 6);
        assert_eq!(table.subsequence(), b"mytext");
        let matches = table.matches();
        assert_eq!(matches, [Match { a: 4, b: 5, len: 4 }, Match { a: 2, b: 0, len: 2 }]);
    }

    #[test]
    fn nothing_in_common() {
        for (a, b) in [(&b""[..], &b""[..]), (b"abc", b""), (b"abc", b"xyz")] {
            let table = Table::fill(a, b, usize::MAX).unwrap();
            assert_eq!((table.longest(), table.matches().len()), (0, 0));
        }
    }

    #[test]
    fn memory_is_bounded() {
        assert!(Table::fill(&[0; 100], &[0; 100], 1000).is_err());
    }
}
