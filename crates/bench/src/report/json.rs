//! Results as one JSON document.

use serde::Serialize;

/// Serializes any results, indented, with a line end.
pub(crate) fn document<T: Serialize + ?Sized>(results: &T) -> String {
    let mut text = serde_json::to_string_pretty(results)
        .expect("results hold no maps with other keys than text, and writing to memory succeeds");
    text.push('\n');
    text
}
