//! The table, for people and as JSON.

use std::fmt::Write as _;

use serde::Serialize;

use super::cli::PedroKvArgs;
use super::{Cell, Row};
use crate::error::Error;
use crate::machine::Machine;
use crate::report;

/// Everything that was found out.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    machine: Machine,
    servers: Vec<String>,
    records: u64,
    data_size: u32,
    window: u32,
    connections: u32,
    client: String,
    generator_threads: u32,
    /// Asynchronous writes were waited for until they were on the device.
    is_durable: bool,
    pub(super) rows: Vec<Row>,
}

impl Report {
    pub(super) fn new(
        args: &PedroKvArgs,
        servers: Vec<String>,
        is_durable: bool,
        rows: Vec<Row>,
    ) -> Self {
        Self {
            machine: Machine::this(),
            servers,
            records: args.records,
            data_size: args.data_size,
            window: args.window,
            connections: args.connections,
            client: args.client_name(),
            generator_threads: args.threads,
            is_durable,
            rows,
        }
    }

    pub(super) fn print(&self, json: bool) -> Result<(), Error> {
        report::write(&if json { report::document(self) } else { self.text() })
    }

    pub(super) fn text(&self) -> String {
        let mut text = self.machine.line() + "\n";
        for server in &self.servers {
            let _ = writeln!(text, "{server}");
        }
        let _ = writeln!(
            text,
            "{} records of 16 and {} bytes, sent by {}; asynchronous: window {}, at most {} \
             connections, {}",
            self.records,
            self.data_size,
            self.client,
            self.window,
            self.connections,
            if self.is_durable { "writes until they are on the device" } else { "no log is kept" },
        );
        let per_second = |cell: &Cell| format!("{:.0}", cell.operations_per_second);
        text += &self.table("operations a second, clients:", per_second);
        text += &self.table("CPU µs an operation, server (and client):", cpu);
        text
    }

    fn table(&self, title: &str, figure: impl Fn(&Cell) -> String) -> String {
        let mut text = format!("\n| {title} |");
        let Some(first) = self.rows.first() else { return String::new() };
        for cell in &first.cells {
            let _ = write!(text, " {} |", cell.clients);
        }
        text += "\n|---|";
        text += &"--:|".repeat(first.cells.len());
        for row in &self.rows {
            let _ = write!(text, "\n| {} |", row.name);
            for cell in &row.cells {
                let _ = write!(text, " {} |", figure(cell));
            }
        }
        text + "\n"
    }
}

fn cpu(cell: &Cell) -> String {
    match cell.client_cpu_us {
        None => format!("{:.2}", cell.server_cpu_us),
        Some(client) => format!("{:.2} ({client:.2})", cell.server_cpu_us),
    }
}
