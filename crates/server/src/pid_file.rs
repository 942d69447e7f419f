//! The file with the process id.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// File with the process id, removed on drop.
#[derive(Debug)]
pub struct PidFile(PathBuf);

impl PidFile {
    /// Writes the file, replacing an existing one. A symbolic link is replaced, not followed, because others may write
    /// in the directory.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(path: &Path) -> io::Result<Self> {
        let process = std::process::id();
        let mut temporary = path.as_os_str().to_owned();
        temporary.push(format!(".{process}.tmp"));
        let temporary = Path::new(&temporary);
        // An earlier process with this id may have left one.
        let _ = fs::remove_file(temporary);
        let mut file = OpenOptions::new().write(true).create_new(true).open(temporary)?;
        let written = writeln!(file, "{process}").and_then(|()| fs::rename(temporary, path));
        if written.is_err() {
            let _ = fs::remove_file(temporary);
        }
        written.map(|()| Self(path.to_owned()))
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        // If it is gone already, another process has removed it.
        let _ = fs::remove_file(&self.0);
    }
}
