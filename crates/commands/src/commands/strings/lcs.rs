//! LCS: the longest common subsequence of two strings.

use tierce_keyspace::{IntText, Value};
use tierce_wire::resp::{AuthState, Rest};

use crate::command::{Flags, Group, KeyFlags, KeySpec, Scope, Weight};
use crate::commands::cursor::Options;
use crate::commands::options::integer;
use crate::error::CommandError;
use crate::pipeline::{Context, Defined, Done, at_least};
use crate::reply::Reply;

pub(super) static COMMANDS: &[Defined] = &[Defined::new("lcs", Group::String, at_least!(lcs))
    .flags(Flags::READONLY)
    .keys(&[KeySpec { last: 2, ..KeySpec::at(1, KeyFlags::READ) }])
    .weighs(Weight::Pairs)
    .locks(Scope::InTurns)
    .since("7.0.0", "O(N*M) where N and M are the lengths of s1 and s2, respectively")
    .doc(
        "key1 key2 [LEN] [IDX] [MINMATCHLEN min-match-len] [WITHMATCHLEN]",
        "Finds the longest common substring.",
    )
    .example(
        r#"
        > MSET first ohmytext second mynewtext
        OK
        > LCS first second
        "mytext"
        > LCS first second LEN
        (integer) 6
        > LCS first second IDX MINMATCHLEN 4 WITHMATCHLEN
        1) "matches"
        2) 1) 1) 1) (integer) 4
                 2) (integer) 7
              2) 1) (integer) 5
                 2) (integer) 8
              3) (integer) 4
        3) "len"
        4) (integer) 6
        "#,
    )];

/// Options of the reply.
#[derive(Default)]
struct LcsOptions {
    len: bool,
    idx: bool,
    with_match_len: bool,
    min_match_len: usize,
}

impl LcsOptions {
    fn parse(mut words: Options<'_>) -> Result<Self, CommandError> {
        let mut options = Self::default();
        while let Some(word) = words.next_word() {
            match &*word {
                b"len" => options.len = true,
                b"idx" => options.idx = true,
                b"withmatchlen" => options.with_match_len = true,
                b"minmatchlen" => options.min_match_len = integer(words.value()?)?.max(0) as usize,
                _ => return Err(CommandError::SYNTAX),
            }
        }
        if options.idx && options.len {
            return Err(CommandError::new(
                "ERR If you want both the length and indexes, please just use IDX.",
            ));
        }
        Ok(options)
    }
}

fn lcs(ctx: &mut Context<'_, '_>, [key1, key2]: [&[u8]; 2], options: Rest<'_>) -> Done {
    let keys = ctx.keys([key1, key2].into_iter());
    let (scale, bytes_max) =
        (ctx.scale(), ctx.kernel.request_limits(AuthState::Granted).max_bulk_len);
    ctx.read(&keys, |values, reply| {
        let [mut text1, mut text2] = [IntText::new(), IntText::new()];
        let [Some(a), Some(b)] = [values.first(), values.get(1)] else {
            return Err(CommandError::SYNTAX);
        };
        let (a, b) = (text_of(a, &mut text1)?, text_of(b, &mut text2)?);
        let options = LcsOptions::parse(Options::of(options))?;
        // A cell takes some nanoseconds.
        scale.weigh_bytes(a.len().saturating_mul(b.len()))?;
        let table = Table::fill(a, b, bytes_max)?;
        if options.len {
            reply.count(table.longest());
        } else if options.idx {
            reply_ranges(reply, &table, &options);
        } else {
            reply.bulk(&table.subsequence());
        }
        Ok(())
    })
}

/// Returns the bytes of a string. An integer is written into `scratch`; an absent key is empty.
fn text_of<'v>(
    value: &'v Option<Value<'_>>,
    scratch: &'v mut IntText,
) -> Result<&'v [u8], CommandError> {
    match value {
        None => Ok(&[]),
        Some(Value::Str(text)) => Ok(text.bytes(scratch)),
        Some(Value::Collection(_)) => {
            Err(CommandError::new("ERR The specified keys must contain string values"))
        }
    }
}

/// A common stretch of both strings, by the positions of its first byte.
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
        for (i, &byte) in a.iter().enumerate() {
            let (above, row) = table.cells[i * width..(i + 2) * width].split_at_mut(width);
            fill_row(byte, b, above, row);
        }
        Ok(table)
    }

    fn at(&self, i: usize, j: usize) -> u32 {
        self.cells[i * (self.b.len() + 1) + j]
    }

    fn longest(&self) -> usize {
        self.at(self.a.len(), self.b.len()) as usize
    }

    /// Walks back from the end. Calls `on_equal` with the positions of each common byte.
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

    /// Returns the common stretches, last first.
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

/// Computes a row from the one above, except for its first cell, which is 0.
///
/// Equality of bytes is unpredictable, so the code does not branch on it. A cell is never less than its neighbours,
/// and at most one more than the cell above the left one. An equal byte adds one to that cell, and the largest of the
/// three is right in both cases.
fn fill_row(byte: u8, b: &[u8], above: &[u32], row: &mut [u32]) {
    let mut left = 0;
    let above = above.iter().zip(&above[1..]);
    for ((cell, (diagonal, up)), other) in row[1..].iter_mut().zip(above).zip(b) {
        left = left.max((*up).max(diagonal + u32::from(byte == *other)));
        *cell = left;
    }
}

fn reply_ranges(reply: &mut Reply<'_>, table: &Table<'_>, options: &LcsOptions) {
    let mut matches = table.matches();
    matches.retain(|found| found.len >= options.min_match_len);
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
