//! Results on standard output, in the requested form.

mod csv;
mod json;
mod table;

use std::io::{self, IsTerminal, Write};

use crate::error::Error;
use crate::measure::Measurement;
pub(crate) use json::document;

/// The form of results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// A few lines for each test, for people.
    Table,
    /// One line for each test.
    Line,
    Csv,
    Json,
}

impl Format {
    pub(crate) fn new(json: bool, csv: bool, quiet: bool) -> Self {
        match (json, csv, quiet) {
            (true, ..) => Self::Json,
            (_, true, _) => Self::Csv,
            (.., true) => Self::Line,
            _ => Self::Table,
        }
    }
}

/// Prints measurements as they come.
#[derive(Debug)]
pub(crate) struct Printer {
    format: Format,
    printed: Vec<Measurement>,
}

impl Printer {
    pub(crate) fn new(format: Format) -> Self {
        Self { format, printed: Vec::new() }
    }

    pub(crate) fn print(&mut self, measurement: Measurement) -> Result<(), Error> {
        let text = match self.format {
            Format::Table => table::block(&measurement),
            Format::Line => table::line(&measurement),
            Format::Csv if self.printed.is_empty() => csv::header() + &csv::row(&measurement),
            Format::Csv => csv::row(&measurement),
            Format::Json => String::new(),
        };
        self.printed.push(measurement);
        write(&text)
    }

    pub(crate) fn finish(self) -> Result<(), Error> {
        match self.format {
            Format::Json => write(&document(&self.printed)),
            Format::Table if io::stdout().is_terminal() => {
                write("Next to another server: tierce bench compare --help\n")
            }
            Format::Table | Format::Line | Format::Csv => Ok(()),
        }
    }
}

/// Writes to standard output. A reader that has exited, such as `head`, is not an error.
pub(crate) fn write(text: &str) -> Result<(), Error> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Error::io("writing results")(error))
        }
        _ => Ok(()),
    }
}
