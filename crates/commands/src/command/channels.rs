//! Which arguments of a command are channels.

use std::ops::Range;

use tierce_wire::resp::Args;

/// Where a call names channels, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Channels {
    /// All arguments behind the name, or the first one only.
    are_all: bool,
    /// Whether they are channels themselves.
    pub named_by: ChannelUse,
}

/// How a channel is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChannelUse {
    /// By its name.
    Name,
    /// By a pattern that it matches.
    Pattern,
}

impl Channels {
    /// The first argument is a channel.
    pub const FIRST: Self = Self { are_all: false, named_by: ChannelUse::Name };
    /// All arguments are channels.
    pub const ALL: Self = Self { are_all: true, named_by: ChannelUse::Name };
    /// All arguments are patterns of channels.
    pub const PATTERNS: Self = Self { are_all: true, named_by: ChannelUse::Pattern };

    /// The indexes of the channels in a call, its name included.
    #[must_use]
    pub fn indexes(self, call: Args<'_>) -> Range<usize> {
        1..if self.are_all { call.len() } else { call.len().min(2) }
    }
}
