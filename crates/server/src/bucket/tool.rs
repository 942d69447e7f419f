//! `tierce bucket restore`: restores a moment into a directory of its own, without a server and without a claim.

use std::fs;
use std::num::NonZeroUsize;
use std::sync::Arc;

use tierce_bucket::{Group, Location, Moment, Store};
use tierce_storage::disk::{Disk, OsDisk};

use super::error::{BucketError, unusable};
use super::restore::{self, Restored};
use super::runtime;
use crate::config::{Config, LogLevel, Settings};
use crate::engine::Opening;
use crate::log::Log;

/// Fills the directory in the settings with the state of the log at `url` at a moment. `report` gets the done and the
/// total bytes. The bucket does not change, except for a pin, which is removed at the end. The directory gets no
/// bucket: a server that starts on it is independent of the log.
///
/// # Errors
/// If the directory is not empty, the log does not have that moment, or an object is missing or damaged.
pub fn restore_into(
    settings: Settings,
    url: &str,
    moment: Moment,
    report: impl FnMut(u64, u64),
) -> Result<Restored, BucketError> {
    let dir = settings.dir();
    let unusable_dir =
        |error| BucketError::Settings(format!("cannot restore into {}: {error}", dir.display()));
    fs::create_dir_all(&dir).map_err(unusable_dir)?;
    if fs::read_dir(&dir).map_err(unusable_dir)?.next().is_some() {
        let text = format!("{} is not empty; name a new directory", dir.display());
        return Err(BucketError::Settings(text));
    }
    let failed = |error| BucketError::Store { url: url.to_owned(), error };
    let runtime = runtime()?;
    let location = Location::parse(url).map_err(unusable)?;
    runtime.block_on(location.check_credentials()).map_err(unusable)?;
    let store = Store::new(&location);
    let group = runtime.block_on(Group::open(&store)).map_err(failed)?;
    if group.end().number == 0 {
        return Err(BucketError::Settings(format!("there is no log in {url}")));
    }
    // It has no workers, and so does not use their number.
    let startup = settings.startup(NonZeroUsize::MIN);
    let log = Log::open(None, LogLevel::Warning).map_err(std::io::Error::other)?;
    let disk: Arc<dyn Disk> = Arc::new(OsDisk);
    let config = Arc::new(Config::new(settings));
    let mut opening = Opening::begin(config, &startup, &disk, log, Default::default())?;
    let (restored, _) = restore::fill(&runtime, &group, moment, &mut opening, report)?;
    let engine = opening.engine();
    engine.durability.stop(&engine.log);
    Ok(restored)
}
