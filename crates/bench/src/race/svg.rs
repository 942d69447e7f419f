//! Axes, lines and text for drawings, without dependencies.

use std::fmt::Write as _;

/// Width of a drawing.
pub(super) const WIDTH: f64 = 720.0;
/// Margin around the axes of a panel, for text.
pub(super) const LEFT: f64 = 80.0;
pub(super) const RIGHT: f64 = 20.0;
pub(super) const TOP: f64 = 40.0;
pub(super) const BOTTOM: f64 = 40.0;

/// Returns a white page of this height with `content` on it.
pub(super) fn page(height: f64, content: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n{content}</svg>\n"
    )
}

/// The part of a page with one drawing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Panel {
    /// Top edge on the page.
    pub(super) top: f64,
    pub(super) height: f64,
    /// The largest value that is drawn.
    pub(super) highest: f64,
}

impl Panel {
    /// Returns the bottom edge, with the time axis.
    pub(super) fn bottom(&self) -> f64 {
        self.top + self.height - BOTTOM
    }

    /// Returns the vertical position of a value. There is some room above the largest one.
    pub(super) fn y(&self, value: f64) -> f64 {
        let bottom = self.bottom();
        bottom - value / (self.highest * 1.1) * (bottom - self.top - TOP)
    }

    /// Draws title, unit and the grid lines of five values.
    pub(super) fn grid(&self, text: &mut String, title: &str, unit: &str) {
        let right = WIDTH - RIGHT;
        let _ = writeln!(text, "<text x=\"{LEFT}\" y=\"{:.1}\">{title}</text>", self.top + 24.0);
        for step in 0..=4 {
            let value = self.highest * f64::from(step) / 4.0;
            let at = self.y(value);
            let _ = writeln!(
                text,
                "<line x1=\"{LEFT}\" y1=\"{at:.1}\" x2=\"{right}\" y2=\"{at:.1}\" stroke=\"#ddd\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                LEFT - 6.0,
                at + 4.0,
                number(value),
            );
        }
        let _ = writeln!(text, "<text x=\"8.0\" y=\"{:.1}\">{unit}</text>", self.top + TOP);
    }
}

/// Draws a line through points of the page. `style` holds further attributes of the element.
pub(super) fn line(text: &mut String, points: impl Iterator<Item = (f64, f64)>, style: &str) {
    let points: Vec<String> = points.map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    let points = points.join(" ");
    let _ = writeln!(text, "<polyline fill=\"none\" {style} points=\"{points}\"/>");
}

/// Formats a number with about three digits.
pub(super) fn number(value: f64) -> String {
    match value {
        _ if value >= 100.0 => format!("{value:.0}"),
        _ if value >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}
