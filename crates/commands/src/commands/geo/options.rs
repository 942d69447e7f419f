//! Coordinates and lengths as arguments.

use tierce_wire::number::parse_f64;

use super::distance::unit;
use super::geohash::{MERCATOR, Point};
use crate::error::CommandError;

pub(super) fn point([longitude, latitude]: [&[u8]; 2]) -> Result<Point, CommandError> {
    let degrees = |arg: &[u8]| parse_f64(arg).ok_or(CommandError::NOT_A_FLOAT);
    let point = Point { longitude: degrees(longitude)?, latitude: degrees(latitude)? };
    if MERCATOR.contains(point) {
        return Ok(point);
    }
    let Point { longitude, latitude } = point;
    Err(CommandError::text(format!(
        "ERR invalid longitude,latitude pair {longitude:.6},{latitude:.6}"
    )))
}

/// Parses a unit and returns its metres.
pub(super) fn metres(name: &[u8]) -> Result<f64, CommandError> {
    unit(name).ok_or(CommandError::new("ERR unsupported unit provided. please use M, KM, FT, MI"))
}

/// Parses a length, which must be a number.
pub(super) fn length(arg: &[u8], name: &str) -> Result<f64, CommandError> {
    parse_f64(arg).ok_or_else(|| CommandError::text(format!("ERR need numeric {name}")))
}
