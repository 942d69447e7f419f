//! The chart of the README, `docs/benchmarks.svg`, drawn from `docs/benchmarks.csv`.
//!
//! Each row of the table gets a horizontal bar: Tierce divided by the other server. Less is better, and a bar beyond
//! the line at 1 loses. Drawn by hand: a plotting crate would take longer to build than all of xtask.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

const WIDTH: f64 = 760.0;
/// Left edge of the bars; the names of the rows end before it.
const BARS: f64 = 390.0;
/// Margin on the right, for the number next to the longest bar.
const RIGHT: f64 = 56.0;
/// Width of a number with its star, and the space before it.
const NUMBER: f64 = 44.0;
/// Margin above the first title.
const MARGIN: f64 = 16.0;
const ROW: f64 = 22.0;
const BAR: f64 = 14.0;

/// Colours for light pages and, in the last line, for dark ones. The page has its own colour, so that the text is
/// also readable if a viewer does not pass its theme to the picture.
const STYLE: &str = "\
.page{fill:#ffffff;stroke:#d1d9e0} text{fill:#1f2328} .note{fill:#59636e}
.less{fill:#2f6fb2} .more{fill:#c4501b} .one{stroke:#59636e}
@media (prefers-color-scheme:dark){.page{fill:#0d1117;stroke:#3d444d} text{fill:#f0f6fc} .note{fill:#9198a1}
.less{fill:#58a6ff} .more{fill:#f0883e} .one{stroke:#9198a1}}";

/// A row of the table.
struct Measured<'a> {
    /// The server that Tierce is compared with.
    other: &'a str,
    what: &'a str,
    ratio: f64,
    /// True if the ratio is the median of each round's ratio. Then no two figures have this ratio.
    is_of_rounds: bool,
    machine: &'a str,
    date: &'a str,
}

/// Parses the columns of the table that are drawn. The table has a header line and no quoted fields.
fn parse(table: &str) -> Result<Vec<Measured<'_>>, String> {
    let mut lines = table.lines();
    let names: Vec<&str> = lines.next().unwrap_or_default().split(',').collect();
    let column = |name| {
        let found = names.iter().position(|&column| column == name);
        found.ok_or_else(|| format!("the table has no column {name}"))
    };
    let (other, what, ratio) = (column("other")?, column("what")?, column("ratio")?);
    let (of, machine, date) = (column("of")?, column("machine")?, column("date")?);
    lines
        .map(|line| {
            let fields: Vec<&str> = line.split(',').collect();
            if fields.len() != names.len() {
                return Err(format!("{} fields instead of {}: {line}", fields.len(), names.len()));
            }
            let number = fields[ratio].parse().ok().filter(|ratio: &f64| *ratio > 0.0);
            let ratio = number.ok_or_else(|| format!("no ratio: {line}"))?;
            let is_of_rounds = match fields[of] {
                "rounds" => true,
                "medians" => false,
                _ => return Err(format!("a ratio is of rounds or of medians: {line}")),
            };
            Ok(Measured {
                other: fields[other],
                what: fields[what],
                ratio,
                is_of_rounds,
                machine: fields[machine],
                date: fields[date],
            })
        })
        .collect()
}

/// Returns the picture.
fn draw(rows: &[Measured<'_>]) -> String {
    let longest = rows.iter().map(|row| row.ratio).fold(1.0, f64::max);
    let scale = (WIDTH - BARS - RIGHT) / longest;
    let one = BARS + scale;
    let mut body = String::new();
    let mut y = MARGIN;
    for group in rows.chunk_by(|a, b| a.other == b.other) {
        let other = group[0].other;
        let top = y;
        let _ = writeln!(
            body,
            "<text x=\"16\" y=\"{:.0}\" font-size=\"16\" font-weight=\"bold\">Cost relative to {other}{}</text>",
            y + 14.0,
            if y == MARGIN { " (shorter is better)" } else { "" },
        );
        y += 46.0;
        for row in group {
            bar(&mut body, row, y, scale);
            y += ROW;
        }
        let _ = writeln!(
            body,
            "<line class=\"one\" x1=\"{one:.1}\" y1=\"{:.0}\" x2=\"{one:.1}\" y2=\"{y:.0}\" stroke-dasharray=\"3 3\"/>\
             <text class=\"note\" x=\"{:.1}\" y=\"{:.0}\">1.0 = same</text>",
            top + 26.0,
            one + 6.0,
            top + 38.0,
        );
        y += 16.0;
    }
    for line in footer(rows) {
        let _ = writeln!(
            body,
            "<text class=\"note\" x=\"16\" y=\"{:.0}\" font-size=\"12\">{line}</text>",
            y + 12.0
        );
        y += 18.0;
    }
    y += 10.0;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{y:.0}\" \
         viewBox=\"0 0 {WIDTH} {y:.0}\" role=\"img\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <title>Cost of Tierce relative to redis-server and memcached</title>\n<style>\n{STYLE}\n</style>\n\
         <rect class=\"page\" x=\"0.5\" y=\"0.5\" width=\"{:.0}\" height=\"{:.0}\" rx=\"6\"/>\n\
         {body}</svg>\n",
        WIDTH - 1.0,
        y - 1.0,
    )
}

/// Draws the name of a row, its bar, and its number next to it.
fn bar(body: &mut String, row: &Measured<'_>, y: f64, scale: f64) {
    let end = BARS + row.ratio * scale;
    // If the line at 1 would cross the number, the number is placed to the right of the line.
    let one = BARS + scale;
    let number = if end < one && end + NUMBER > one { one } else { end } + 6.0;
    let class = if row.ratio > 1.0 { "more" } else { "less" };
    let _ = writeln!(
        body,
        "<text x=\"{:.0}\" y=\"{:.0}\" text-anchor=\"end\">{}</text>\
         <rect class=\"{class}\" x=\"{BARS}\" y=\"{y:.0}\" width=\"{:.1}\" height=\"{BAR}\" rx=\"2\"/>\
         <text x=\"{:.1}\" y=\"{:.0}\">{:.2}{}</text>",
        BARS - 10.0,
        y + 12.0,
        row.what,
        row.ratio * scale,
        number,
        y + 12.0,
        row.ratio,
        if row.is_of_rounds { OF_ROUNDS } else { "" },
    );
}

/// Mark after a ratio that is the median of each round's ratio.
const OF_ROUNDS: &str = "*";

/// Returns the explanation of the marks, and the source of the figures.
fn footer(rows: &[Measured<'_>]) -> Vec<String> {
    let sorted = |of: fn(&Measured<'_>) -> String| {
        let mut all: Vec<_> = rows.iter().map(of).collect();
        all.sort_unstable();
        all.dedup();
        all
    };
    let machines = sorted(|row| row.machine.to_owned());
    let dates = sorted(|row| row.date.to_owned());
    let mut lines = Vec::new();
    if rows.iter().any(|row| row.is_of_rounds) {
        lines.push(format!(
            "{OF_ROUNDS} median of the ratios of all rounds; the others are ratios of medians"
        ));
    }
    if let (Some(first), Some(last)) = (dates.first(), dates.last()) {
        let machines = machines.join(", ");
        lines.push(format!(
            "Machines {machines}, {first} to {last}: commands and figures in docs/benchmarks.md"
        ));
    }
    lines
}

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs")
}

/// Draws the chart again. A test fails while it is out of date.
pub(crate) fn write() -> Result<(), String> {
    let (table, chart) = (docs().join("benchmarks.csv"), docs().join("benchmarks.svg"));
    let text = std::fs::read_to_string(&table).map_err(|e| format!("{}: {e}", table.display()))?;
    let picture = draw(&parse(&text)?);
    std::fs::write(&chart, picture).map_err(|e| format!("{}: {e}", chart.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "other,what,ratio,of,machine,date\n";

    fn kept(name: &str) -> String {
        std::fs::read_to_string(docs().join(name)).unwrap()
    }

    #[test]
    fn the_chart_shows_the_table() {
        let table = kept("benchmarks.csv");
        let rows = parse(&table).unwrap();
        assert!(kept("benchmarks.svg") == draw(&rows), "cargo xtask chart draws it anew");
        assert!(rows.iter().any(|row| row.ratio > 1.0), "no row loses");
    }

    /// Checks that the page that explains the figures has each of them.
    #[test]
    fn every_row_is_on_the_page_of_figures() {
        let page = kept("benchmarks.md");
        for row in parse(&kept("benchmarks.csv")).unwrap() {
            let line = page.lines().find(|line| line.starts_with(&format!("| {} |", row.what)));
            let line = line.unwrap_or_else(|| panic!("{} is not on the page", row.what));
            assert!(line.contains(&format!("| {:.2} |", row.ratio)), "{line}");
        }
    }

    #[test]
    fn a_damaged_table_is_refused() {
        for table in [
            "",
            "other,what\n",
            "{HEAD}a,b\n",
            "{HEAD}a,b,fast,rounds,A,1\n",
            "{HEAD}a,b,1,days,A,1\n",
        ] {
            let table = table.replace("{HEAD}", HEAD);
            assert!(parse(&table).is_err(), "{table:?}");
        }
        let rows = format!("{HEAD}a,b,0.5,rounds,A,2\na,c,1.5,medians,B,1\nd,e,1,medians,A,1\n");
        let rows = parse(&rows).unwrap();
        let picture = draw(&rows);
        assert_eq!(picture.matches("class=\"more\"").count(), 1);
        assert_eq!(picture.matches("class=\"less\"").count(), 2);
        assert_eq!(picture.matches(">Cost relative to ").count(), 2);
        assert!(picture.contains(">0.50*<") && picture.contains(">1.50<"));
        assert!(picture.contains(">Machines A, B, 1 to 2: "));
    }
}
