//! The progress of a phase, by requests or by time.

use std::time::Duration;

use tierce_progress::{Display, Unit};

use crate::engine::Goal;

/// Display of progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    Shown,
    Hidden,
}

/// The progress of one phase.
#[derive(Debug)]
pub(crate) struct Bar {
    shown: tierce_progress::Progress,
    goal: Goal,
}

impl Progress {
    pub(crate) fn bar(self, title: &str, goal: Goal) -> Bar {
        let display = match self {
            Self::Shown => Display::Shown,
            Self::Hidden => Display::Hidden,
        };
        let unit = match goal {
            Goal::Requests(_) => Unit::Requests,
            Goal::Time(_) => Unit::Milliseconds,
        };
        Bar { shown: tierce_progress::Progress::new(title, unit, display), goal }
    }
}

impl Bar {
    /// Shows that `requests` were sent in `elapsed`.
    pub(crate) fn update(&mut self, requests: u64, elapsed: Duration) {
        match self.goal {
            Goal::Requests(count) => self.shown.update(requests.min(count), count),
            Goal::Time(time) => {
                let rate = || format!("{:.0}/s", requests as f64 / elapsed.as_secs_f64().max(1e-3));
                let all = time.as_millis() as u64;
                self.shown.update_with((elapsed.as_millis() as u64).min(all), all, rate);
            }
        }
    }
}
