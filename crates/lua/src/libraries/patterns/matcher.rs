//! Pattern matching by backtracking, without recursion.
//!
//! The state is a pair of positions, in the subject and in the pattern. Each item that could also match in another way
//! leaves a [`Choice`]. If an item does not match, the matcher takes the next alternative of the last choice, and
//! drops the captures made since. A pattern has at most one choice per item, so that their number is bounded by its
//! length.

use std::ffi::c_int;

use super::class::{in_class, in_set};
use crate::native::{Error, List, Outcome, Stack, Steps};

/// Maximum number of captures of a pattern.
const CAPTURES_MAX: usize = 32;

/// Choices that need no memory of the state.
const CHOICES_INLINE: usize = 16;

/// A pattern without its anchor.
#[derive(Clone, Copy)]
pub struct Pattern<'a> {
    pub text: &'a [u8],
    /// True if it began with `^`: it matches at the start of a search only.
    pub is_anchored: bool,
}

impl<'a> Pattern<'a> {
    pub fn new(text: &'a [u8]) -> Self {
        let text = Self::until_zero(text);
        match text.strip_prefix(b"^") {
            Some(rest) => Self { text: rest, is_anchored: true },
            None => Self { text, is_anchored: false },
        }
    }

    /// Returns the pattern up to its first zero, which ends it.
    pub fn until_zero(text: &'a [u8]) -> &'a [u8] {
        &text[..memchr::memchr(0, text).unwrap_or(text.len())]
    }
}

/// A match: indices of its first byte and of the one after its last.
#[derive(Clone, Copy)]
pub struct Found {
    pub start: usize,
    pub end: usize,
}

#[derive(Clone, Copy)]
struct Capture {
    start: usize,
    content: Content,
}

#[derive(Clone, Copy, PartialEq)]
enum Content {
    /// Its end has not been reached yet.
    Open,
    /// `()`: the position itself.
    Position,
    Bytes(usize),
}

/// Alternative that can be tried if the rest of the pattern does not match.
#[derive(Clone, Copy)]
enum Choice {
    /// One repetition less, down to the subject's index `least`.
    Fewer { rest: usize, least: usize, at: usize },
    /// One repetition more of the item at `item`, which ends at `end`.
    More { item: usize, end: usize, at: usize },
    /// The match without the optional item.
    Without { rest: usize, at: usize },
    /// No alternative: the capture is dropped.
    Opened,
    /// No alternative: the capture is open again.
    Closed(usize),
}

/// Next state of the matching.
enum Step {
    To { at: usize, item: usize },
    Matched(usize),
    Failed,
}

/// One subject and one pattern.
pub struct Matcher<'call> {
    stack: Stack<'call>,
    subject: &'call [u8],
    pattern: &'call [u8],
    captures: [Capture; CAPTURES_MAX],
    /// Number of captures that were opened.
    level: usize,
    choices: List<'call, Choice, CHOICES_INLINE>,
}

impl<'call> Matcher<'call> {
    /// Creates a matcher, which occupies one slot of the stack.
    pub fn new(stack: Stack<'call>, subject: &'call [u8], pattern: &'call [u8]) -> Self {
        let unused = Capture { start: 0, content: Content::Open };
        let choices = List::new(stack);
        Self { stack, subject, pattern, captures: [unused; CAPTURES_MAX], level: 0, choices }
    }

    /// Returns the stack that it was made on.
    pub fn stack(&self) -> Stack<'call> {
        self.stack
    }

    /// Returns the bytes of a match.
    pub fn text(&self, found: Found) -> &'call [u8] {
        &self.subject[found.start..found.end]
    }

    /// Returns the first match at `start` or, unless the pattern is anchored, after it.
    pub fn search(
        &mut self,
        start: usize,
        is_anchored: bool,
        steps: &mut Steps,
    ) -> Outcome<Option<Found>> {
        if is_anchored {
            return Ok(self.match_at(start, steps)?.map(|end| Found { start, end }));
        }
        let first = self.first_literal();
        let mut start = start;
        while start <= self.subject.len() {
            if let Some(literal) = first {
                let Some(skipped) = memchr::memchr(literal, &self.subject[start..]) else {
                    return Ok(None);
                };
                start += skipped;
            }
            if let Some(end) = self.match_at(start, steps)? {
                return Ok(Some(Found { start, end }));
            }
            start += 1;
        }
        Ok(None)
    }

    /// Returns the byte that every match begins with, if the pattern determines it.
    fn first_literal(&self) -> Option<u8> {
        let (&first, rest) = self.pattern.split_first()?;
        let is_optional = matches!(rest.first(), Some(b'*' | b'?' | b'-'));
        (!is_optional && !b"$.[%()".contains(&first)).then_some(first)
    }

    /// Returns the end of the match that begins at `start`.
    pub fn match_at(&mut self, start: usize, steps: &mut Steps) -> Outcome<Option<usize>> {
        self.level = 0;
        self.choices.clear();
        let (mut at, mut item) = (start, 0);
        loop {
            steps.take(self.stack, 1);
            match self.step(at, item, steps)? {
                Step::Matched(end) => return Ok(Some(end)),
                Step::To { at: next_at, item: next_item } => (at, item) = (next_at, next_item),
                Step::Failed => match self.choose_again() {
                    Some(choice) => (at, item) = choice,
                    None => return Ok(None),
                },
            }
        }
    }

    fn fault(&self, message: &str) -> Error {
        self.stack.error(format_args!("{message}"))
    }

    fn step(&mut self, at: usize, item: usize, steps: &mut Steps) -> Outcome<Step> {
        let Some((&first, rest)) = self.pattern[item..].split_first() else {
            return Ok(Step::Matched(at));
        };
        match first {
            b'(' if rest.first() == Some(&b')') => self.open(at, item + 2, Content::Position),
            b'(' => self.open(at, item + 1, Content::Open),
            b')' => self.close(at, item + 1),
            b'%' => match rest {
                [b'b', open, close, ..] => Ok(self.balance(at, *open, *close, item + 4, steps)),
                [b'b', ..] => Err(self.fault("unbalanced pattern")),
                [b'f', ..] => self.frontier(at, item + 2),
                [digit @ b'0'..=b'9', ..] => self.repeat_capture(at, *digit, item + 2),
                _ => self.single(at, item, steps),
            },
            b'$' if rest.is_empty() => {
                Ok(if at == self.subject.len() { Step::Matched(at) } else { Step::Failed })
            }
            _ => self.single(at, item, steps),
        }
    }

    fn open(&mut self, at: usize, rest: usize, content: Content) -> Outcome<Step> {
        let Some(capture) = self.captures.get_mut(self.level) else {
            return Err(self.fault("too many captures"));
        };
        *capture = Capture { start: at, content };
        self.level += 1;
        self.choices.push(Choice::Opened);
        Ok(Step::To { at, item: rest })
    }

    /// Closes the capture that was opened last.
    fn close(&mut self, at: usize, rest: usize) -> Outcome<Step> {
        let Some(index) =
            self.captures[..self.level].iter().rposition(|it| it.content == Content::Open)
        else {
            return Err(self.fault("invalid pattern capture"));
        };
        let capture = &mut self.captures[index];
        capture.content = Content::Bytes(at - capture.start);
        self.choices.push(Choice::Closed(index));
        Ok(Step::To { at, item: rest })
    }

    /// `%bxy`: from an x to its matching y.
    fn balance(&self, at: usize, open: u8, close: u8, rest: usize, steps: &mut Steps) -> Step {
        if self.subject.get(at) != Some(&open) {
            return Step::Failed;
        }
        let mut depth = 1_usize;
        for (end, &byte) in (at + 1..).zip(&self.subject[at + 1..]) {
            steps.take(self.stack, 1);
            if byte == close {
                depth -= 1;
                if depth == 0 {
                    return Step::To { at: end + 1, item: rest };
                }
            } else if byte == open {
                depth += 1;
            }
        }
        Step::Failed
    }

    /// `%f[set]`: the border between a byte outside of the set and one in it. Zeros surround the subject.
    fn frontier(&self, at: usize, item: usize) -> Outcome<Step> {
        if self.pattern.get(item) != Some(&b'[') {
            return Err(self.fault("missing '[' after '%f' in pattern"));
        }
        let end = self.item_end(item)?;
        let set = &self.pattern[item + 1..end - 1];
        let before = at.checked_sub(1).map_or(0, |before| self.subject[before]);
        let after = self.subject.get(at).copied().unwrap_or(0);
        let is_frontier = !in_set(before, set) && in_set(after, set);
        Ok(if is_frontier { Step::To { at, item: end } } else { Step::Failed })
    }

    /// `%1`: the content of a capture, again.
    fn repeat_capture(&self, at: usize, digit: u8, rest: usize) -> Outcome<Step> {
        let index = usize::from(digit).checked_sub(usize::from(b'1'));
        let capture = index.and_then(|index| self.captures[..self.level].get(index));
        let content = match capture {
            Some(Capture { start, content: Content::Bytes(len) }) => {
                &self.subject[*start..start + len]
            }
            // No subject is as long as the value of a position capture.
            Some(Capture { content: Content::Position, .. }) => return Ok(Step::Failed),
            _ => return Err(self.fault("invalid capture index")),
        };
        let is_there = self.subject[at..].starts_with(content);
        Ok(if is_there { Step::To { at: at + content.len(), item: rest } } else { Step::Failed })
    }

    /// Matches an item for one byte, with its repetitions.
    fn single(&mut self, at: usize, item: usize, steps: &mut Steps) -> Outcome<Step> {
        let end = self.item_end(item)?;
        let is_here = self.matches(at, item, end);
        Ok(match self.pattern.get(end) {
            Some(b'?') if is_here => {
                self.choices.push(Choice::Without { rest: end + 1, at });
                Step::To { at: at + 1, item: end + 1 }
            }
            Some(b'?') => Step::To { at, item: end + 1 },
            Some(b'*') => self.repeat(at, at, item, end, steps),
            Some(b'+') if is_here => self.repeat(at + 1, at + 1, item, end, steps),
            Some(b'+') => Step::Failed,
            Some(b'-') => {
                self.choices.push(Choice::More { item, end, at });
                Step::To { at, item: end + 1 }
            }
            _ if is_here => Step::To { at: at + 1, item: end },
            _ => Step::Failed,
        })
    }

    /// Matches as many repetitions as possible from `at` on.
    fn repeat(
        &mut self,
        least: usize,
        mut at: usize,
        item: usize,
        end: usize,
        steps: &mut Steps,
    ) -> Step {
        while self.matches(at, item, end) {
            steps.take(self.stack, 1);
            at += 1;
        }
        if at > least {
            self.choices.push(Choice::Fewer { rest: end + 1, least, at });
        }
        Step::To { at, item: end + 1 }
    }

    /// Returns true if the item matches the byte at `at`.
    fn matches(&self, at: usize, item: usize, end: usize) -> bool {
        let Some(&byte) = self.subject.get(at) else { return false };
        match self.pattern[item] {
            b'.' => true,
            b'%' => in_class(byte, self.pattern[item + 1]),
            b'[' => in_set(byte, &self.pattern[item + 1..end - 1]),
            literal => literal == byte,
        }
    }

    /// Returns the end of the item for one byte that begins at `item`.
    fn item_end(&self, item: usize) -> Outcome<usize> {
        match &self.pattern[item..] {
            [b'%'] => Err(self.fault("malformed pattern (ends with '%')")),
            [b'%', ..] => Ok(item + 2),
            [b'[', set @ ..] => match set_len(set) {
                Some(len) => Ok(item + 1 + len + 1),
                None => Err(self.fault("malformed pattern (missing ']')")),
            },
            _ => Ok(item + 1),
        }
    }

    /// Takes the next alternative of the last choice that has one.
    fn choose_again(&mut self) -> Option<(usize, usize)> {
        loop {
            let choice = *self.choices.last_mut()?;
            match choice {
                Choice::Fewer { rest, least, at } if at > least => {
                    *self.choices.last_mut()? = Choice::Fewer { rest, least, at: at - 1 };
                    return Some((at - 1, rest));
                }
                Choice::More { item, end, at } if self.matches(at, item, end) => {
                    *self.choices.last_mut()? = Choice::More { item, end, at: at + 1 };
                    return Some((at + 1, end + 1));
                }
                Choice::Without { rest, at } => {
                    self.choices.pop();
                    return Some((at, rest));
                }
                Choice::Opened => self.level -= 1,
                Choice::Closed(index) => self.captures[index].content = Content::Open,
                Choice::Fewer { .. } | Choice::More { .. } => {}
            }
            self.choices.pop();
        }
    }

    /// Pushes capture `index` of a match; in a pattern without captures, the first one is the match itself.
    pub fn push_capture(&self, index: usize, found: Found) -> Outcome<()> {
        let Some(capture) = self.captures[..self.level].get(index) else {
            if index > 0 {
                return Err(self.fault("invalid capture index"));
            }
            self.stack.push_bytes(self.text(found));
            return Ok(());
        };
        match capture.content {
            Content::Open => return Err(self.fault("unfinished capture")),
            Content::Position => super::push_position(self.stack, capture.start + 1),
            Content::Bytes(len) => {
                self.stack.push_bytes(&self.subject[capture.start..capture.start + len]);
            }
        }
        Ok(())
    }

    /// Pushes all captures, or the match itself if the pattern has none, and returns their number.
    pub fn push_captures(&self, found: Found) -> Outcome<c_int> {
        self.push_first(self.level.max(1), found)
    }

    /// Pushes all captures, and returns their number.
    pub fn push_own_captures(&self) -> Outcome<c_int> {
        self.push_first(self.level, Found { start: 0, end: 0 })
    }

    fn push_first(&self, count: usize, found: Found) -> Outcome<c_int> {
        self.stack.reserve_or(CAPTURES_MAX as c_int, "too many captures")?;
        for index in 0..count {
            self.push_capture(index, found)?;
        }
        Ok(count as c_int)
    }
}

/// Returns the length of a set up to its closing bracket. A bracket that comes first is a member, and so is one after
/// a `%`.
fn set_len(set: &[u8]) -> Option<usize> {
    let mut at = usize::from(set.first() == Some(&b'^'));
    loop {
        let is_escape = *set.get(at)? == b'%';
        at += 1;
        if is_escape && at < set.len() {
            at += 1;
        }
        if *set.get(at)? == b']' {
            return Some(at);
        }
    }
}

pub fn push_position(stack: Stack<'_>, position: usize) {
    stack.push_integer(i64::try_from(position).unwrap_or(i64::MAX));
}
