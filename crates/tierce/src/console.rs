//! Progress of the load at the start: a bar on a terminal. Without a terminal, the log has lines.

use std::io::IsTerminal;

use tierce_progress::{Display, Progress, Unit};

/// Progress bar of the load.
pub struct Console {
    display: Display,
    progress: Option<Progress>,
}

impl Console {
    /// Creates a display that is empty until there is something to load.
    pub fn new() -> Self {
        let display = Display::unless(!std::io::stderr().is_terminal());
        Self { display, progress: None }
    }
}

impl tierce_server::Console for Console {
    fn is_shown(&self) -> bool {
        self.display == Display::Shown
    }

    fn loading(&mut self, done: u64, total: u64) {
        let new = || Progress::new("loading", Unit::Bytes, self.display);
        self.progress.get_or_insert_with(new).update(done, total);
    }

    fn loaded(&mut self) {
        self.progress = None;
    }
}
