//! Replies with members and their scores.

use tierce_collections::Element;
use tierce_wire::resp::Proto;

use crate::reply::Reply;

/// Whether and how scores accompany the members.
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
    /// What a command with WITHSCORES replies with: there are no pairs in RESP2.
    pub(in crate::commands) fn wanted(wanted: bool, reply: &Reply<'_>) -> Self {
        match (wanted, reply.proto()) {
            (false, _) => Self::None,
            (true, Proto::Resp2) => Self::Flat,
            (true, _) => Self::Pairs,
        }
    }

    /// Announces this many members.
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

    /// A whole reply.
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
