//! Replies with members and their scores.

use tierce_collections::Element;
use tierce_wire::resp::Proto;

use crate::reply::Reply;

/// Format of scores in a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::commands) enum Scores {
    /// Members only.
    None,
    /// Members and scores, alternating.
    Flat,
    /// A pair for each member.
    Pairs,
}

impl Scores {
    /// Returns the format for WITHSCORES. RESP2 has no pairs.
    pub(in crate::commands) fn wanted(wanted: bool, reply: &Reply<'_>) -> Self {
        match (wanted, reply.proto()) {
            (false, _) => Self::None,
            (true, Proto::Resp2) => Self::Flat,
            (true, _) => Self::Pairs,
        }
    }

    /// Begins a reply of this many members.
    #[inline]
    pub(in crate::commands) fn begin(self, reply: &mut Reply<'_>, members: usize) {
        reply.array(if self == Self::Flat { 2 * members } else { members });
    }

    #[inline]
    pub(in crate::commands) fn entry(self, reply: &mut Reply<'_>, member: Element<'_>, score: f64) {
        if self == Self::Pairs {
            reply.array(2);
        }
        reply.element(member);
        if self != Self::None {
            reply.double(score);
        }
    }

    /// Writes a whole reply.
    #[inline]
    pub(in crate::commands) fn all<'e>(
        self,
        reply: &mut Reply<'_>,
        entries: impl ExactSizeIterator<Item = (Element<'e>, f64)>,
    ) {
        self.begin(reply, entries.len());
        entries.for_each(|(member, score)| self.entry(reply, member, score));
    }
}
