//! The file with the process id.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A file with the process id, removed when this is dropped.
#[derive(Debug)]
pub struct PidFile(PathBuf);

impl PidFile {
    /// Writes the file, over one that is there.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(path: &Path) -> io::Result<Self> {
        fs::write(path, format!("{}\n", std::process::id()))?;
        Ok(Self(path.to_owned()))
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        // If it is gone already, another process has removed it.
        let _ = fs::remove_file(&self.0);
    }
}
