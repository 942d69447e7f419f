//! `tierce doctor`: problems of this machine or this configuration.
//!
//! It reads the same sources as the server, and changes nothing: a server that runs on the data directory is not
//! disturbed. `kernel` reads `/proc` and `/sys` through a [`Machine`], which tests replace by a directory of their own;
//! `storage` measures the disk; `access` checks ports and certificates.

mod access;
mod finding;
mod kernel;
mod machine;
mod storage;

use std::ffi::OsString;
use std::fmt::Write as _;
use std::process::ExitCode;

use clap::Args;
use tierce_config::{Invocation, Loaded, Settings};

use self::finding::{Finding, Gravity};
use self::machine::Machine;
use self::storage::Storage;
use crate::upkeep::print;
use tierce_engine::count;

/// Say what is wrong with this machine or configuration, why it matters, and how to fix it.
///
/// Takes the configuration file and the options that the server would be started with, and reads the same
/// environment. Run it as the user and with the limits of the server. It looks at the kernel's settings, limits,
/// memory, the data directory and its disk, open ports and certificates. It changes nothing, and a running server is
/// not disturbed.
///
/// Exit code 0: nothing serious was found. 1: something serious was found. 2: the configuration is wrong, so the server
/// would not start.
#[derive(Args, Debug)]
pub struct DoctorArgs {
    /// Configuration file and options, as for the server
    #[arg(
        value_name = "FILE | --DIRECTIVE VALUE",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    server: Vec<OsString>,
}

/// Exit code for serious findings.
const SERIOUS: u8 = 1;

/// Last line of the report, before the summary.
const CHECKED: &str = "checked: configuration, kernel settings, limits, memory, data directory and disk, ports, certificates";

/// Exit code for a wrong configuration.
const WRONG_CONFIGURATION: u8 = 2;

impl DoctorArgs {
    /// Examines the machine and prints the findings.
    pub fn run(self) -> ExitCode {
        let loaded = match self.load() {
            Ok(loaded) => loaded,
            Err(error) => {
                for line in error.lines() {
                    eprintln!("tierce doctor: {line}");
                }
                return WRONG_CONFIGURATION.into();
            }
        };
        let now_s = std::time::UNIX_EPOCH.elapsed().map_or(0, |time| time.as_secs() as i64);
        let (findings, measured) = examine(&Machine::at("/"), &loaded, now_s);
        print(&report(&findings, measured.as_deref()));
        match findings.iter().any(|finding| finding.gravity == Gravity::Serious) {
            true => SERIOUS.into(),
            false => ExitCode::SUCCESS,
        }
    }

    fn load(self) -> Result<Loaded, String> {
        let parsed = tierce_config::parse(self.server, std::env::vars_os(), &[]);
        let sources = match parsed.map_err(|error| error.to_string())? {
            Invocation::Serve(sources) | Invocation::CheckConfig(sources) => sources,
            _ => return Err("unexpected argument; see tierce doctor --help".into()),
        };
        let loaded = sources.load(&mut std::io::stdin()).map_err(|error| error.to_string())?;
        tierce_server::check_access(&loaded.settings).map_err(|error| error.to_string())?;
        Ok(loaded)
    }
}

/// Returns all findings, the serious ones first, and the measurement.
fn examine(machine: &Machine, loaded: &Loaded, now_s: i64) -> (Vec<Finding>, Option<String>) {
    let settings: &Settings = &loaded.settings;
    let mut findings = kernel::findings(machine, settings);
    let Storage { findings: of_storage, measured } = storage::look_at(machine, settings);
    findings.extend(of_storage);
    findings.extend(access::findings(settings, now_s));
    findings.extend(loaded.notes.iter().map(|note| {
        Finding::advice(
            note.to_string(),
            "The configuration does not do what it seems to.",
            "remove it",
        )
    }));
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.gravity));
    (findings, measured)
}

fn report(findings: &[Finding], measured: Option<&str>) -> String {
    let mut text = String::new();
    for finding in findings {
        let _ = writeln!(text, "{finding}");
    }
    if let Some(measured) = measured {
        let _ = writeln!(text, "measured: {measured}");
    }
    let _ = writeln!(text, "{CHECKED}");
    let serious = findings.iter().filter(|finding| finding.gravity == Gravity::Serious).count();
    let advice = findings.len() - serious;
    let _ = match (serious, advice) {
        (0, 0) => writeln!(text, "nothing is wrong"),
        (0, _) => writeln!(text, "nothing serious; {} of advice", count(advice as u64, "piece")),
        _ => writeln!(
            text,
            "{}, {} of advice",
            count(serious as u64, "serious finding"),
            count(advice as u64, "piece")
        ),
    };
    text
}

#[cfg(test)]
mod tests;
