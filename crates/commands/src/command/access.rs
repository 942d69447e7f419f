//! Effects of a request on the data, as needed to decide if it may run now.

use tierce_wire::resp::Args;

use super::{Flags, Spec};

/// Facts about one request, of any protocol.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Access {
    /// It may change data.
    pub writes: bool,
    /// It may change data as a program, or may not. It waits while writes wait, but only its actual writes are refused.
    pub may_write: bool,
    /// Such a program may also take more memory.
    pub may_grow: bool,
    /// It sends messages to channels.
    pub publishes: bool,
    /// It may take more memory.
    pub grows: bool,
    /// Bytes for which room is made beforehand: those of a whole transaction, which evicts nothing while it runs.
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
    /// It changes or removes existing data.
    pub const CHANGE: Self = Self { writes: true, ..Self::READ };
    /// It may add data.
    pub const ADD: Self = Self { grows: true, ..Self::CHANGE };

    /// Returns the declared access of a command.
    #[inline]
    pub fn of(spec: &Spec) -> Self {
        Self {
            writes: spec.flags.contains(Flags::WRITE),
            may_write: spec.flags.contains(Flags::MAY_WRITE),
            // PFCOUNT stores a value with the size of the previous one.
            may_grow: spec.flags.contains(Flags::MAY_WRITE.with(Flags::PROGRAM)),
            // No other pub/sub command is fast.
            publishes: spec.flags.contains(Flags::PUBSUB.with(Flags::FAST)),
            grows: spec.flags.contains(Flags::DENYOOM),
            brings: 0,
        }
    }

    /// Returns the access of a call. DEBUG is one command, as in Redis, and some of its subcommands change keys.
    #[must_use]
    pub fn of_call(spec: &Spec, args: Args<'_>) -> Self {
        let changes = |sub: &[u8]| matches!(&*sub.to_ascii_lowercase(), b"populate" | b"reload");
        let is_change = spec.name == "debug" && args.get(1).is_some_and(changes);
        if is_change { Self::CHANGE } else { Self::of(spec) }
    }

    /// Returns true if others than the caller may see its effects, in the data or in the stream.
    #[must_use]
    pub fn passes_on(&self) -> bool {
        self.writes || self.may_write || self.publishes
    }
}
