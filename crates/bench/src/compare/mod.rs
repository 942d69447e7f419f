//! Two servers side by side.

use clap::ValueEnum;

use crate::cli::CompareArgs;
use crate::error::Error;

/// The named workloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Name {
    /// 50 connections, one request at a time.
    P1,
}

pub(crate) fn run(_args: &CompareArgs) -> Result<(), Error> {
    todo!()
}
