//! The table, printed and drawn.

use super::plot;
use super::report::Report;
use super::{Cell, PedroKvArgs, Row};
use clap::Parser;

#[derive(Debug, Parser)]
struct Program {
    #[command(flatten)]
    args: PedroKvArgs,
}

fn report() -> Report {
    let program = Program::parse_from(["pedrokv", "--clients", "1,4", "--server", "x {port}"]);
    let cells = |factor: f64| {
        [1, 4]
            .map(|clients| Cell {
                clients,
                operations: 100,
                seconds: 1.0,
                operations_per_second: factor * clients as f64,
                server_cpu_us: 0.5,
                client_cpu_us: (factor > 500.0).then_some(0.25),
            })
            .into()
    };
    let rows = vec![
        Row { name: "async write", cells: cells(1000.0) },
        Row { name: "Redis write", cells: cells(100.0) },
    ];
    Report::new(&program.args, vec!["x {port}".into()], true, rows)
}

#[test]
fn the_table_has_a_row_for_each_load_and_a_column_for_each_number_of_clients() {
    let text = report().text();
    for line in [
        "| operations a second, clients: | 1 | 4 |",
        "| async write | 1000 | 4000 |",
        "| Redis write | 100 | 400 |",
        "| async write | 0.50 (0.25) | 0.50 (0.25) |",
        "| Redis write | 0.50 | 0.50 |",
    ] {
        assert!(text.lines().any(|it| it == line), "{line} in\n{text}");
    }
}

#[test]
fn the_drawing_has_a_line_for_each_row_and_names_it() {
    let svg = plot::svg(&report().rows);
    assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
    // Each in the drawing and once more beside its name.
    assert_eq!(svg.matches("<polyline").count(), 4);
    assert!(svg.contains(">async write</text>") && svg.contains(">Redis write</text>"));
    assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
}
