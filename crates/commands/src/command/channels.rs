//! Channel arguments of commands.

use std::ops::Range;

use tierce_wire::resp::Args;

/// Positions of the channels in a call, and the way they are named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Channels {
    /// True for all arguments, false for the first one only.
    are_all: bool,
    /// Tells if they are names or patterns.
    pub named_by: ChannelUse,
}

/// The way a channel is named.
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

    /// Returns the indexes of the channels in a call; the name of the command has index 0.
    #[must_use]
    pub fn indexes(self, call: Args<'_>) -> Range<usize> {
        1..if self.are_all { call.len() } else { call.len().min(2) }
    }
}
