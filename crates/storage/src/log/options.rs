//! Options of a log, and their adaptation to a small device.

use crate::compression::Compression;
use crate::disk::Space;
use crate::error::{Error, Result};
use crate::tail::Geometry;

/// Options of a [`Wal`](crate::Wal).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WalOptions {
    /// Length at which a segment is finished, 256 bytes to 1 GiB. If it exceeds a quarter of the device it is reduced,
    /// down to 1 MiB.
    pub segment_size_bytes: u64,
    /// Length of the memory-mapped file that holds records before they are written to a segment, in blocks of an
    /// eighth of it. At least 1 KiB; more than 8 MiB counts as 8 MiB. If it exceeds a sixteenth of the device it is
    /// reduced, down to 64 KiB.
    pub tail_bytes: u64,
    /// Compression of new values.
    pub compression: Compression,
    /// True if the log has its own threads that write to segments and finish them. Otherwise the caller does all of
    /// that, so that everything happens in the order of the calls.
    pub background_threads: bool,
}

impl Default for WalOptions {
    fn default() -> Self {
        WalOptions {
            segment_size_bytes: 64 << 20,
            tail_bytes: 4 << 20,
            compression: Compression::None,
            background_threads: true,
        }
    }
}

const TAIL_BYTES_MIN: u64 = 1 << 10;
const SEGMENT_SIZE_MIN: u64 = 256;
/// A segment of this size plus one batch still fits the format's offsets.
const SEGMENT_SIZE_MAX: u64 = 1 << 30;

/// Divisors of the device: upper bounds for all tails of a store together, and for the segments that its shards are
/// writing, so that compaction has something to work on before the device is full.
const TAILS_PART: u64 = 16;
const SEGMENTS_PART: u64 = 4;
/// Lower bounds of this reduction.
const TAIL_BYTES_FITTED_MIN: u64 = 64 << 10;
const SEGMENT_SIZE_FITTED_MIN: u64 = 1 << 20;

impl WalOptions {
    /// Reduces tails and segments of `shards` shards on a small device.
    pub(super) fn fit_to_device(&mut self, space: Option<Space>, shards: u32) {
        let Some(space) = space else { return };
        let share = |part| space.total / part / u64::from(shards.max(1));
        let fitted = |wanted: u64, share: u64, min: u64| wanted.min(share.max(min));
        self.tail_bytes = fitted(self.tail_bytes, share(TAILS_PART), TAIL_BYTES_FITTED_MIN);
        self.segment_size_bytes =
            fitted(self.segment_size_bytes, share(SEGMENTS_PART), SEGMENT_SIZE_FITTED_MIN);
    }

    #[doc(hidden)]
    pub fn tail_geometry(&self) -> Geometry {
        Geometry::of_len(self.tail_bytes)
    }

    #[doc(hidden)]
    pub fn validate(&self) -> Result<()> {
        let invalid = |option, detail: String| Err(Error::InvalidOption { option, detail });
        if !(SEGMENT_SIZE_MIN..=SEGMENT_SIZE_MAX).contains(&self.segment_size_bytes) {
            let detail = format!("{SEGMENT_SIZE_MIN} to {SEGMENT_SIZE_MAX}");
            return invalid("segment_size_bytes", detail);
        }
        if self.tail_bytes < TAIL_BYTES_MIN {
            return invalid("tail_bytes", format!("at least {TAIL_BYTES_MIN}"));
        }
        Ok(())
    }
}
