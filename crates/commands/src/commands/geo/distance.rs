//! Distances on earth, treated as a sphere.

use super::geohash::Point;

/// Metres.
pub(super) const EARTH_RADIUS: f64 = 6_372_797.560_856;

/// Returns the distance of two parallels, in metres.
pub(super) fn between_latitudes(from: f64, to: f64) -> f64 {
    EARTH_RADIUS * (to.to_radians() - from.to_radians()).abs()
}

/// Returns the distance of two points, in metres, by the haversine formula (Sinnott, "Virtues of
/// the Haversine", 1984).
pub(super) fn between(from: Point, to: Point) -> f64 {
    let east = ((to.longitude.to_radians() - from.longitude.to_radians()) / 2.0).sin();
    // On one meridian a simpler formula suffices.
    if east == 0.0 {
        return between_latitudes(from.latitude, to.latitude);
    }
    let (from, to) = (from.latitude.to_radians(), to.latitude.to_radians());
    let north = ((to - from) / 2.0).sin();
    let square = north * north + from.cos() * to.cos() * east * east;
    // Rounding may lead above 1 for opposite points.
    2.0 * EARTH_RADIUS * square.min(1.0).sqrt().asin()
}

/// Returns the metres of a unit.
pub(super) fn unit(name: &[u8]) -> Option<f64> {
    match name.to_ascii_lowercase().as_slice() {
        b"m" => Some(1.0),
        b"km" => Some(1000.0),
        b"ft" => Some(0.3048),
        b"mi" => Some(1609.34),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opposite_points_have_a_distance() {
        for at in 0..20_000 {
            let here =
                Point { longitude: f64::from(at) / 120.0 - 180.0, latitude: f64::from(at) / 240.0 };
            let there = Point { longitude: here.longitude + 180.0, latitude: -here.latitude };
            let half = std::f64::consts::PI * EARTH_RADIUS;
            assert!((between(here, there) - half).abs() < 1.0, "{here:?}");
        }
    }

    #[test]
    fn from_palermo_to_catania() {
        let palermo = Point { longitude: 13.361_389, latitude: 38.115_556 };
        let catania = Point { longitude: 15.087_269, latitude: 37.502_669 };
        assert!((between(palermo, catania) - 166_274.0).abs() < 1.0);
        let north = Point { latitude: 39.115_556, ..palermo };
        assert_eq!(between(palermo, north), between_latitudes(38.115_556, 39.115_556));
        assert_eq!(unit(b"KM"), Some(1000.0));
        assert_eq!(unit(b"yd"), None);
    }
}
