//! Progress bars on standard error, only if that is a terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::engine::Goal;

/// Whether progress is to be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    Shown,
    Hidden,
}

/// The bar of one phase. It disappears when it is dropped.
#[derive(Debug)]
pub(crate) struct Bar {
    bar: ProgressBar,
    goal: Goal,
}

impl Progress {
    pub(crate) fn bar(self, title: &str, goal: Goal) -> Bar {
        let length = match goal {
            Goal::Requests(count) => count,
            Goal::Time(time) => time.as_millis() as u64,
        };
        // Standard error is drawn on only if it is a terminal; indicatif sees to that.
        let target = match self {
            Self::Shown => ProgressDrawTarget::stderr(),
            Self::Hidden => ProgressDrawTarget::hidden(),
        };
        let bar = ProgressBar::with_draw_target(Some(length), target);
        let style = ProgressStyle::with_template("{prefix:12} {wide_bar} {percent:>3} % {msg}")
            .unwrap_or_else(|_| ProgressStyle::default_bar());
        bar.set_style(style);
        bar.set_prefix(title.to_owned());
        Bar { bar, goal }
    }
}

impl Bar {
    /// Shows that `requests` were sent in `elapsed`.
    pub(crate) fn update(&self, requests: u64, elapsed: Duration) {
        if self.bar.is_hidden() {
            return;
        }
        self.bar.set_position(match self.goal {
            Goal::Requests(count) => requests.min(count),
            Goal::Time(_) => elapsed.as_millis() as u64,
        });
        let rate = requests as f64 / elapsed.as_secs_f64().max(1e-3);
        self.bar.set_message(format!("{rate:.0}/s"));
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
