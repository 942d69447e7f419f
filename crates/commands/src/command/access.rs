//! What a request does to the data, as far as it matters for whether it may run now.

use tierce_wire::resp::Args;

use super::{Flags, Spec};

/// Facts about one request, of any protocol.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Access {
    /// It may change data.
    pub writes: bool,
    /// It may change data, or may not, as a program: it waits where writes wait, but only the writes themselves are
    /// refused.
    pub may_write: bool,
    /// So a program may take more memory.
    pub may_grow: bool,
    /// It sends messages to channels.
    pub publishes: bool,
    /// It may take more memory.
    pub grows: bool,
    /// Bytes that it brings, as far as room is made for them before: those of a whole transaction, which evicts nothing
    /// while it runs.
    pub brings: usize,
}

impl Access {
    /// It changes nothing.
    pub const READ: Self = Self {
        writes: false,
        may_write: false,
        may_grow: false,
        publishes: false,
        grows: false,
        brings: 0,
    };
    /// It changes or removes what is there.
    pub const CHANGE: Self = Self { writes: true, ..Self::READ };
    /// It may add something.
    pub const ADD: Self = Self { grows: true, ..Self::CHANGE };

    /// What a command has declared.
    #[inline]
    pub fn of(spec: &Spec) -> Self {
        Self {
            writes: spec.flags.contains(Flags::WRITE),
            may_write: spec.flags.contains(Flags::MAY_WRITE),
            // PFCOUNT keeps a value that is as long as the one before.
            may_grow: spec.flags.contains(Flags::MAY_WRITE.with(Flags::PROGRAM)),
            // Nothing else of channels is fast.
            publishes: spec.flags.contains(Flags::PUBSUB.with(Flags::FAST)),
            grows: spec.flags.contains(Flags::DENYOOM),
            brings: 0,
        }
    }

    /// The access of a call. DEBUG is one command, as in Redis, and some of its subcommands change keys.
    #[must_use]
    pub fn of_call(spec: &Spec, args: Args<'_>) -> Self {
        let changes = |sub: &[u8]| matches!(&*sub.to_ascii_lowercase(), b"populate" | b"reload");
        let is_change = spec.name == "debug" && args.get(1).is_some_and(changes);
        if is_change { Self::CHANGE } else { Self::of(spec) }
    }

    /// True if others than the caller may see its effects, in the data or in the stream.
    #[must_use]
    pub fn passes_on(&self) -> bool {
        self.writes || self.may_write || self.publishes
    }
}
