//! A directory for a test, removed at its end.

use std::fs;
use std::path::{Path, PathBuf};

/// Owns a directory that no other test uses.
pub(crate) struct TestDir(PathBuf);

impl TestDir {
    /// Makes a directory; each test gives another name.
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("tierce-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("temporary directory");
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a file, and the directories it is in.
    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().expect("inside the directory")).expect("directory");
        fs::write(&path, text).expect("file");
        path
    }
}

impl Drop for TestDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
