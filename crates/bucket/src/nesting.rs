//! Refuses a location inside a folder of another log.
//!
//! The folders of a log belong to it alone. The first log would take a second log in one of them for damaged objects
//! of its own log, its floors or its pins, and pruning of the first would delete objects of the second.

use object_store::path::Path;

use crate::error::{Error, Result};
use crate::group::read_floor;
use crate::record::log_name;
use crate::store::Store;

/// All folders of a log.
const FOLDERS: [&str; 6] = ["blob", "floor", "log", "pins", "probe", "snapshot"];

/// Refuses a location in a folder of another log. It sends requests only if a part of the location has such a name.
///
/// # Errors
///
/// [`Error::Invalid`] with the folder; the store's, except for missing rights, without which this check is skipped.
pub(crate) async fn refuse_nested(store: &Store) -> Result<()> {
    for (outer, folder) in outer_prefixes(store.prefix()) {
        match has_log(&store.at_prefix(outer)).await {
            Ok(false) => {}
            Err(error) if error.is_refusal() => {}
            Err(error) => return Err(error),
            Ok(true) => {
                return Err(Error::Invalid(format!(
                    "{} lies in the folder {folder}/ of another log, which belongs to that log alone; choose a \
                     location next to it",
                    store.url()
                )));
            }
        }
    }
    Ok(())
}

/// Returns the prefixes of logs in whose folders this location may lie, each with that folder.
fn outer_prefixes(prefix: &Path) -> Vec<(Path, String)> {
    let (mut outer, mut places) = (Path::default(), Vec::new());
    for part in prefix.parts() {
        if FOLDERS.contains(&part.as_ref()) {
            places.push((outer.clone(), part.as_ref().to_owned()));
        }
        outer = outer.join(part);
    }
    places
}

/// Returns true if there is a log. Its first object stays until a floor is above it.
async fn has_log(store: &Store) -> Result<bool> {
    Ok(store.exists(&log_name(1)).await? || read_floor(store).await? > 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_may_lie_in_folders_of_several_others() {
        let places = |prefix: &str| -> Vec<(String, String)> {
            let places = outer_prefixes(&Path::from(prefix)).into_iter();
            places.map(|(outer, folder)| (outer.to_string(), folder)).collect()
        };
        let pair = |outer: &str, folder: &str| (outer.to_owned(), folder.to_owned());
        assert_eq!(places("a/logs/LOG/b"), []);
        assert_eq!(places("log"), [pair("", "log")]);
        assert_eq!(places("a/log/x/pins"), [pair("a", "log"), pair("a/log/x", "pins")]);
    }
}
