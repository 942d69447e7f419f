//! Pages of `docs/` that are made from tables in the code.

use std::path::Path;

/// Writes them anew. A test fails while one of them is out of date.
pub(crate) fn write() -> Result<(), String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let path = root.join("docs/commands.md");
    std::fs::write(&path, tierce_server::command::render_page(&tierce_server::command_table()))
        .map_err(|error| format!("{}: {error}", path.display()))
}
