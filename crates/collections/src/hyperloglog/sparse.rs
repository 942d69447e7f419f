//! Sparse encoding: runs of equal registers.
//!
//! | bytes | meaning |
//! |---|---|
//! | `00xxxxxx` | ZERO: x + 1 registers are zero |
//! | `01xxxxxx xxxxxxxx` | XZERO: x + 1 registers are zero, the high bits first |
//! | `1vvvvvxx` | VAL: x + 1 registers have the value v + 1 |

use std::fmt::Write;
use std::ops::Range;

use super::{Error, HEADER_LEN, REGISTERS, Registers};

const ZERO_RUN_MAX: usize = 64;
const XZERO_RUN_MAX: usize = 16384;
const VALUE_RUN_MAX: usize = 4;
/// The highest value that a run can have.
const RUN_VALUE_MAX: u8 = 32;

const XZERO: u8 = 0x40;
const VALUE: u8 = 0x80;

/// Registers with the same value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Run {
    value: u8,
    len: usize,
    /// True if it takes two bytes.
    is_long: bool,
}

impl Run {
    /// Decodes the run at the beginning of `bytes`.
    fn read(bytes: &[u8]) -> Result<Self, Error> {
        let (first, rest) = bytes.split_first().ok_or(Error::Corrupt)?;
        if first & VALUE != 0 {
            let (value, len) = ((first >> 2 & 0x1f) + 1, usize::from(first & 3) + 1);
            return Ok(Self { value, len, is_long: false });
        }
        if first & XZERO == 0 {
            return Ok(Self { value: 0, len: usize::from(first & 0x3f) + 1, is_long: false });
        }
        let second = rest.first().ok_or(Error::Corrupt)?;
        let len = (usize::from(first & 0x3f) << 8 | usize::from(*second)) + 1;
        Ok(Self { value: 0, len, is_long: true })
    }

    fn bytes_len(self) -> usize {
        1 + usize::from(self.is_long)
    }
}

/// Appends runs of zeros.
pub(super) fn put_zeros(out: &mut Vec<u8>, mut len: usize) {
    while len > 0 {
        if len <= ZERO_RUN_MAX {
            out.push((len - 1) as u8);
            return;
        }
        let run = len.min(XZERO_RUN_MAX);
        out.extend_from_slice(&[XZERO | ((run - 1) >> 8) as u8, (run - 1) as u8]);
        len -= run;
    }
}

/// Appends a run of a value, unless it is empty; `len` is at most that of one run.
fn put_value(out: &mut Vec<u8>, value: u8, len: usize) {
    if len > 0 {
        out.push(VALUE | (value - 1) << 2 | (len - 1) as u8);
    }
}

/// Visits the runs, each with its first register and its range of bytes.
fn each_run(bytes: &[u8], mut visit: impl FnMut(usize, Run, Range<usize>)) -> Result<(), Error> {
    let (mut register, mut at) = (0, 0);
    while at < bytes.len() {
        let run = Run::read(&bytes[at..])?;
        let end = at + run.bytes_len();
        if register + run.len > REGISTERS {
            return Err(Error::Corrupt);
        }
        visit(register, run, at..end);
        register += run.len;
        at = end;
    }
    if register == REGISTERS { Ok(()) } else { Err(Error::Corrupt) }
}

pub(super) fn raise_all(bytes: &[u8], registers: &mut Registers) -> Result<(), Error> {
    each_run(bytes, |first, run, _| {
        let registers = registers[first..first + run.len].iter_mut();
        registers.for_each(|register| *register = (*register).max(run.value));
    })
}

pub(super) fn describe(bytes: &[u8]) -> Result<String, Error> {
    let mut text = String::new();
    each_run(bytes, |_, run, _| {
        let written = match run {
            Run { value: 0, len, is_long: false } => write!(text, "z:{len} "),
            Run { value: 0, len, is_long: true } => write!(text, "Z:{len} "),
            Run { value, len, .. } => write!(text, "v:{value},{len} "),
        };
        written.expect("a string takes any text");
    })?;
    text.truncate(text.trim_end().len());
    Ok(text)
}

pub(super) fn get(bytes: &[u8], register: usize) -> Result<u8, Error> {
    find(bytes, register).map(|found| found.run.value)
}

/// Outcome of [`raise`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Raised {
    /// True if a register has changed.
    Done(bool),
    /// Nothing changed: the string cannot hold the value, or would be too long.
    TooLong,
}

/// Sets a register of a string if it is lower.
pub(super) fn raise(
    string: &mut Vec<u8>,
    register: usize,
    value: u8,
    len_max: usize,
) -> Result<Raised, Error> {
    let Found { run, first, at, previous } = find(&string[HEADER_LEN..], register)?;
    if run.value >= value {
        return Ok(Raised::Done(false));
    }
    if value > RUN_VALUE_MAX {
        return Ok(Raised::TooLong);
    }
    let at = at.start + HEADER_LEN..at.end + HEADER_LEN;
    let mut runs = Vec::new();
    put_part(&mut runs, run, register - first);
    put_value(&mut runs, value, 1);
    put_part(&mut runs, run, first + run.len - register - 1);
    let len = string.len() - at.len() + runs.len();
    if runs.len() > at.len() && len > len_max {
        return Ok(Raised::TooLong);
    }
    let from = previous.map_or(at.start, |previous| previous + HEADER_LEN);
    string.splice(at, runs);
    join_values(string, from);
    Ok(Raised::Done(true))
}

/// Location of a register.
struct Found {
    run: Run,
    /// The first register of the run.
    first: usize,
    at: Range<usize>,
    /// Start of the run before.
    previous: Option<usize>,
}

fn find(bytes: &[u8], register: usize) -> Result<Found, Error> {
    let (mut first, mut at, mut previous) = (0, 0, None);
    while at < bytes.len() {
        let run = Run::read(&bytes[at..])?;
        let end = at + run.bytes_len();
        if register < first + run.len {
            return Ok(Found { run, first, at: at..end, previous });
        }
        first += run.len;
        previous = Some(at);
        at = end;
    }
    Err(Error::Corrupt)
}

/// Appends a part of a run.
fn put_part(out: &mut Vec<u8>, run: Run, len: usize) {
    if run.value == 0 {
        put_zeros(out, len);
    } else {
        put_value(out, run.value, len);
    }
}

/// Joins neighbouring runs of the same value, among the few runs from `at` on.
fn join_values(string: &mut Vec<u8>, mut at: usize) {
    /// Up to five: one run before the changed one, the three it became, and one after them.
    const RUNS: usize = 5;
    let mut left = RUNS;
    while at < string.len() && left > 0 {
        left -= 1;
        let Ok(run) = Run::read(&string[at..]) else { return };
        let next = at + run.bytes_len();
        let following = string.get(next..).and_then(|bytes| Run::read(bytes).ok());
        if let Some(following) = following
            && run.value != 0
            && following.value == run.value
            && run.len + following.len <= VALUE_RUN_MAX
        {
            string[next] = VALUE | (run.value - 1) << 2 | (run.len + following.len - 1) as u8;
            string.remove(at);
            // Redis examines the joined run again.
            continue;
        }
        at = next;
    }
}
