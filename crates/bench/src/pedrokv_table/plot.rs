//! The table as a drawing: a line for each row, over the numbers of clients.

use std::fmt::Write as _;

use super::Row;
use crate::svg::{self, BOTTOM, LEFT, Panel, RIGHT, WIDTH};

const HEIGHT: f64 = 420.0;
/// Below the drawing, for each row a line that names it.
const LEGEND_HEIGHT: f64 = 20.0;

/// Colours tell what is done, dashes that it is Redis'.
const COLOURS: [&str; 4] = ["#06c", "#090", "#c60", "#909"];

/// The whole drawing.
pub(super) fn svg(rows: &[Row]) -> String {
    let values = rows.iter().flat_map(|row| &row.cells).map(|cell| cell.operations_per_second);
    let panel = Panel { top: 0.0, height: HEIGHT, highest: values.fold(1e-9, f64::max) / 1e3 };
    let mut text = String::new();
    panel.grid(&mut text, "operations a second, over the number of clients", "k/s");
    let columns = rows.iter().map(|row| row.cells.len()).max().unwrap_or(0);
    let step = (WIDTH - LEFT - RIGHT) / columns.max(1) as f64;
    let x = |column: usize| LEFT + step * (column as f64 + 0.5);
    for (column, cell) in rows.first().into_iter().flat_map(|row| &row.cells).enumerate() {
        let _ = writeln!(
            text,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            x(column),
            panel.bottom() + 18.0,
            cell.clients,
        );
    }
    for (index, row) in rows.iter().enumerate() {
        let style = style(index);
        let points = row.cells.iter().enumerate();
        let points = points.map(|(at, cell)| (x(at), panel.y(cell.operations_per_second / 1e3)));
        svg::line(&mut text, points, &style);
        let y = HEIGHT + LEGEND_HEIGHT * index as f64;
        svg::line(&mut text, [(LEFT, y), (LEFT + 40.0, y)].into_iter(), &style);
        let (label_x, label_y) = (LEFT + 50.0, y + 4.0);
        let _ = writeln!(text, "<text x=\"{label_x}\" y=\"{label_y:.1}\">{}</text>", row.name);
    }
    svg::page(HEIGHT + LEGEND_HEIGHT * rows.len() as f64 + BOTTOM / 2.0, &text)
}

fn style(index: usize) -> String {
    let colour = COLOURS[index % COLOURS.len()];
    let dashes = if index < COLOURS.len() { "" } else { " stroke-dasharray=\"6 4\"" };
    format!("stroke=\"{colour}\" stroke-width=\"1.5\"{dashes}")
}
