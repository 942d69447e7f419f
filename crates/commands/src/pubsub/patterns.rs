//! Patterns that have subscribers, found by the channels that they match.
//!
//! Patterns are ordered by their literal prefixes: `user:*` only matches names that begin with `user:`. So only
//! patterns whose prefix is a prefix of the channel can match, and a search skips all others.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use tierce_wire::glob::{self, Case};

use super::lengths::Lengths;
use super::names::{Added, Audiences, Name};
use super::registry::Audience;

/// All patterns, each with its subscriptions.
#[derive(Default)]
pub(super) struct Patterns {
    map: BTreeMap<Pattern, Audience>,
    lens: Lengths,
}

/// A pattern and the length of its literal prefix.
struct Pattern {
    name: Name,
    prefix_len: usize,
}

/// Position at which a visit of candidates continues: after this pattern, or at the beginning.
#[derive(Default)]
pub(super) struct Resume(Option<Name>);

/// Something with a position in the order: first by prefix, then by all bytes of the pattern.
trait Ordered {
    fn position(&self) -> (&[u8], Rank<'_>);
}

/// A position among the patterns of one prefix.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Rank<'a> {
    /// The position of this pattern.
    At(&'a [u8]),
    /// The position after all of them.
    End,
}

impl Ordered for Pattern {
    fn position(&self) -> (&[u8], Rank<'_>) {
        (&self.name[..self.prefix_len], Rank::At(&self.name))
    }
}

/// A pattern to search for.
struct Sought<'a>(&'a [u8]);

impl Ordered for Sought<'_> {
    fn position(&self) -> (&[u8], Rank<'_>) {
        (&self.0[..literal_prefix_len(self.0)], Rank::At(self.0))
    }
}

/// The position before all patterns with this prefix.
struct Begin<'a>(&'a [u8]);

impl Ordered for Begin<'_> {
    fn position(&self) -> (&[u8], Rank<'_>) {
        (self.0, Rank::At(b""))
    }
}

/// The position after all patterns with this prefix, and before those with longer prefixes.
struct End<'a>(&'a [u8]);

impl Ordered for End<'_> {
    fn position(&self) -> (&[u8], Rank<'_>) {
        (self.0, Rank::End)
    }
}

impl<'a> Borrow<dyn Ordered + 'a> for Pattern {
    fn borrow(&self) -> &(dyn Ordered + 'a) {
        self
    }
}

impl Ord for dyn Ordered + '_ {
    fn cmp(&self, other: &Self) -> Ordering {
        self.position().cmp(&other.position())
    }
}

impl PartialOrd for dyn Ordered + '_ {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for dyn Ordered + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.position() == other.position()
    }
}

impl Eq for dyn Ordered + '_ {}

impl Ord for Pattern {
    fn cmp(&self, other: &Self) -> Ordering {
        self.position().cmp(&other.position())
    }
}

impl PartialOrd for Pattern {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Pattern {}

/// Returns the length of the literal prefix, up to the first special byte.
fn literal_prefix_len(pattern: &[u8]) -> usize {
    pattern.iter().position(|byte| b"*?[\\".contains(byte)).unwrap_or(pattern.len())
}

/// Returns true if a pattern matches a channel.
pub(super) fn is_match(pattern: &[u8], channel: &[u8]) -> bool {
    glob::matches(pattern, channel, Case::Sensitive)
}

/// Returns an upper bound of the work of a match, in matches of short patterns.
pub(super) fn weight(pattern_len: usize, channel_len: usize) -> usize {
    /// Matching steps in the time of a short match.
    const STEPS: usize = 256;
    1 + pattern_len.saturating_mul(channel_len) / STEPS
}

impl Patterns {
    pub(super) fn len(&self) -> usize {
        self.map.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// Returns the length of the longest pattern.
    pub(super) fn len_max(&self) -> usize {
        self.lens.max()
    }

    /// Returns the subscriptions to a pattern.
    pub(super) fn get(&self, pattern: &[u8]) -> Option<&Audience> {
        self.map.get(&Sought(pattern) as &dyn Ordered)
    }

    /// Visits the patterns that match `channel`.
    pub(super) fn each_match(&self, channel: &[u8], mut visit: impl FnMut(&Name, &Audience)) {
        if self.is_empty() {
            return;
        }
        let _ = self.visit(channel, Resume::default(), &mut |pattern, audience| {
            if is_match(&pattern.name, channel) {
                visit(&pattern.name, audience);
            }
            ControlFlow::Continue(())
        });
    }

    /// Visits the patterns that may match `channel`, each with the position after it, until `visit` breaks.
    pub(super) fn candidates(
        &self,
        channel: &[u8],
        resume: Resume,
        mut visit: impl FnMut(&Name, Resume) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        self.visit(channel, resume, &mut |pattern, _| {
            visit(&pattern.name, Resume(Some(Arc::clone(&pattern.name))))
        })
    }

    /// Visits the patterns whose prefix is a prefix of the channel, longest prefixes first.
    fn visit(
        &self,
        channel: &[u8],
        resume: Resume,
        visit: &mut dyn FnMut(&Pattern, &Audience) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        // Upper bound for the length of the remaining prefixes.
        let mut len_max = channel.len();
        if let Some(last) = resume.0 {
            let prefix = &last[..literal_prefix_len(&last)];
            let behind = (
                Bound::Excluded(&Sought(&last) as &dyn Ordered),
                Bound::Excluded(&End(prefix) as &dyn Ordered),
            );
            for (pattern, audience) in self.map.range::<dyn Ordered, _>(behind) {
                visit(pattern, audience)?;
            }
            match prefix.len().checked_sub(1) {
                Some(shorter) => len_max = shorter,
                None => return ControlFlow::Continue(()),
            }
        }
        while let Some(prefix) = self.last_prefix_up_to(&channel[..len_max]) {
            let common = channel.iter().zip(prefix).take_while(|(a, b)| a == b).count();
            if common < prefix.len() {
                // No prefix between this one and the channel shares more bytes with the channel than this one.
                len_max = common;
                continue;
            }
            let of_prefix = (
                Bound::Included(&Begin(prefix) as &dyn Ordered),
                Bound::Excluded(&End(prefix) as &dyn Ordered),
            );
            for (pattern, audience) in self.map.range::<dyn Ordered, _>(of_prefix) {
                visit(pattern, audience)?;
            }
            match common.checked_sub(1) {
                Some(shorter) => len_max = shorter,
                None => break,
            }
        }
        ControlFlow::Continue(())
    }

    /// Returns the greatest prefix that is not after `bytes`.
    fn last_prefix_up_to(&self, bytes: &[u8]) -> Option<&[u8]> {
        let up_to = (Bound::Unbounded, Bound::Excluded(&End(bytes) as &dyn Ordered));
        let (pattern, _) = self.map.range::<dyn Ordered, _>(up_to).next_back()?;
        Some(&pattern.name[..pattern.prefix_len])
    }
}

impl Audiences for Patterns {
    fn add(&mut self, name: &[u8], worker: u16) -> Added {
        if let Some((pattern, _)) = self.map.get_key_value(&Sought(name) as &dyn Ordered) {
            let name = Arc::clone(&pattern.name);
            self.map.get_mut(&Sought(&name) as &dyn Ordered).expect("it is there").add(worker);
            return Added { name, is_new: false };
        }
        self.lens.add(name.len());
        let name: Name = name.into();
        let pattern = Pattern { prefix_len: literal_prefix_len(&name), name: Arc::clone(&name) };
        self.map.entry(pattern).or_default().add(worker);
        Added { name, is_new: true }
    }

    fn remove(&mut self, name: &[u8], worker: u16) -> bool {
        let sought = Sought(name);
        let audience = self.map.get_mut(&sought as &dyn Ordered);
        let is_last = audience.is_some_and(|audience| audience.remove(worker));
        if is_last {
            self.map.remove(&sought as &dyn Ordered);
            self.lens.remove(name.len());
        }
        is_last
    }
}

#[cfg(test)]
mod tests {
    use tierce_harness::Random;

    use super::*;

    fn matches_of(patterns: &Patterns, channel: &[u8]) -> Vec<Vec<u8>> {
        let mut found = Vec::new();
        patterns.each_match(channel, |name, _| found.push(name.to_vec()));
        found.sort();
        found
    }

    fn text(random: &mut Random, alphabet: &[u8], len_max: usize) -> Vec<u8> {
        (0..random.below(len_max + 1)).map(|_| alphabet[random.below(alphabet.len())]).collect()
    }

    #[test]
    fn patterns_are_found_as_if_all_were_tried() {
        let mut random = Random::new(7);
        let mut patterns = Patterns::default();
        let mut all = std::collections::BTreeSet::new();
        for _ in 0..600 {
            let pattern = text(&mut random, b"aab*?[\\", 6);
            if random.one_in(4) && !all.is_empty() {
                let gone: Vec<u8> = all.iter().nth(random.below(all.len())).cloned().unwrap();
                all.remove(&gone);
                patterns.remove(&gone, 0);
            } else if all.insert(pattern.clone()) {
                patterns.add(&pattern, 0);
            }
            let channel = text(&mut random, b"aab*\\c", 6);
            let expected: Vec<_> =
                all.iter().filter(|pattern| is_match(pattern, &channel)).cloned().collect();
            assert_eq!(matches_of(&patterns, &channel), expected, "{channel:?}");
            assert_eq!(patterns.len(), all.len());
        }
    }

    #[test]
    fn candidates_go_on_where_they_stopped() {
        let mut patterns = Patterns::default();
        for pattern in ["a*", "a?*", "*", "?*", "ab*", "ab?", "b*", "abc", "ac*"] {
            patterns.add(pattern.as_bytes(), 0);
        }
        let (mut found, mut resume) = (Vec::new(), Some(Resume::default()));
        while let Some(at) = resume.take() {
            let mut next = None;
            let step = patterns.candidates(b"abc", at, |name, place| {
                found.push(String::from_utf8_lossy(name).into_owned());
                next = Some(place);
                ControlFlow::Break(())
            });
            if step.is_break() {
                resume = next;
            }
        }
        assert_eq!(found, ["abc", "ab*", "ab?", "a*", "a?*", "*", "?*"]);
    }
}
