//! Geohashes: a position as a number.
//!
//! The ranges of latitudes and longitudes are halved `step` times. Each halving is a bit, 1 for the upper half. Bits
//! of longitude and latitude alternate; the top bit is the first one of the longitude. The arithmetic follows Redis
//! operation by operation, so that the bits are equal.

/// A position in degrees.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Point {
    pub(super) longitude: f64,
    pub(super) latitude: f64,
}

/// A range of degrees.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Degrees {
    pub(super) min: f64,
    pub(super) max: f64,
}

/// A rectangle between meridians and parallels.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Cell {
    pub(super) longitude: Degrees,
    pub(super) latitude: Degrees,
}

/// Map of the scores: the whole width of a square map in the Mercator projection.
pub(super) const MERCATOR: Cell = Cell {
    longitude: Degrees { min: -180.0, max: 180.0 },
    latitude: Degrees { min: -85.051_128_78, max: 85.051_128_78 },
};

/// Map of the standard geohash texts.
const STANDARD: Cell =
    Cell { longitude: MERCATOR.longitude, latitude: Degrees { min: -90.0, max: 90.0 } };

/// Steps of a score.
pub(super) const STEP_MAX: u32 = 26;

/// Bits of the latitude.
const EVEN: u64 = 0x5555_5555_5555_5555;

impl Degrees {
    fn contains(self, degrees: f64) -> bool {
        (self.min..=self.max).contains(&degrees)
    }

    /// Returns the index of the part with this position, when the range is divided into `1 << step` parts.
    fn part(self, degrees: f64, step: u32) -> u32 {
        let offset = (degrees - self.min) / (self.max - self.min);
        (offset * (1u64 << step) as f64) as u32
    }

    /// Returns the range of a part.
    fn of_part(self, part: u32, step: u32) -> Self {
        let (scale, parts) = (self.max - self.min, (1u64 << step) as f64);
        let edge = |part: f64| self.min + (part / parts) * scale;
        Self { min: edge(f64::from(part)), max: edge(f64::from(part) + 1.0) }
    }

    fn middle(self) -> f64 {
        (self.min + self.max) / 2.0
    }
}

impl Cell {
    pub(super) fn contains(self, point: Point) -> bool {
        self.longitude.contains(point.longitude) && self.latitude.contains(point.latitude)
    }
}

/// A cell of the map, identified by its halvings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Geohash {
    pub(super) bits: u64,
    pub(super) step: u32,
}

/// Direction of a step from a cell to its neighbour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Move {
    Back,
    Stay,
    Forth,
}

impl Geohash {
    /// Returns the cell of a point on the map.
    pub(super) fn of(point: Point, step: u32) -> Self {
        Self::within(MERCATOR, point, step)
    }

    fn within(whole: Cell, point: Point, step: u32) -> Self {
        let latitude = whole.latitude.part(point.latitude, step);
        let longitude = whole.longitude.part(point.longitude, step);
        Self { bits: spread(latitude) | spread(longitude) << 1, step }
    }

    /// Returns the cell encoded by a score.
    pub(super) fn of_score(score: f64) -> Self {
        /// Scores from here on fit no such integer.
        const END: f64 = 18_446_744_073_709_551_616.0;
        // Invalid scores give the same bits as the conversion by x86 processors in Redis: negative ones convert
        // through a signed number, too large ones become zero.
        let bits = match score {
            ..0.0 => score as i64 as u64,
            0.0..END => score as u64,
            _ => 0,
        };
        Self { bits, step: STEP_MAX }
    }

    /// Returns the score of this cell.
    pub(super) fn score(self) -> f64 {
        self.bits as f64
    }

    /// Returns the rectangle on the map.
    pub(super) fn cell(self) -> Cell {
        Cell {
            longitude: MERCATOR.longitude.of_part(gather(self.bits >> 1), self.step),
            latitude: MERCATOR.latitude.of_part(gather(self.bits), self.step),
        }
    }

    /// Returns the middle of the cell.
    pub(super) fn point(self) -> Point {
        let cell = self.cell();
        Point {
            longitude: cell.longitude.middle().clamp(-180.0, 180.0),
            latitude: cell.latitude.middle().clamp(MERCATOR.latitude.min, MERCATOR.latitude.max),
        }
    }

    /// Returns the range of scores of all positions in the cell; the end is exclusive.
    pub(super) fn scores(self) -> (f64, f64) {
        let shift = 2 * (STEP_MAX - self.step);
        ((self.bits << shift) as f64, ((self.bits + 1) << shift) as f64)
    }

    /// Returns an adjacent cell. The map wraps around.
    pub(super) fn neighbour(self, east: Move, north: Move) -> Self {
        let all = (1u64 << (2 * self.step)) - 1;
        let longitude = moved(self.bits & !EVEN, !EVEN & all, EVEN & all, east);
        let latitude = moved(self.bits & EVEN, EVEN & all, !EVEN & all, north);
        Self { bits: longitude | latitude, ..self }
    }

    /// Returns the standard geohash text of the position.
    pub(super) fn text(self) -> [u8; 11] {
        const ALPHABET: &[u8; 32] = b"0123456789bcdefghjkmnpqrstuvwxyz";
        let bits = Self::within(STANDARD, self.point(), STEP_MAX).bits;
        std::array::from_fn(|at| match 52_u32.checked_sub(5 * (at as u32 + 1)) {
            Some(shift) => ALPHABET[(bits >> shift & 31) as usize],
            // The bits fill ten and a half letters.
            None => ALPHABET[0],
        })
    }
}

/// Adds 1 to, or subtracts it from, a number in the bits of `own`, which alternate with those of `other`. A position
/// at the very end of the map has one bit more, and keeps it if it does not move.
fn moved(number: u64, own: u64, other: u64, direction: Move) -> u64 {
    match direction {
        Move::Stay => number,
        // The bits between let the carry through, and must not borrow.
        Move::Forth => own & number.wrapping_add(other + 1),
        Move::Back => own & (number | other).wrapping_sub(other + 1),
    }
}

/// Spreads the bits of a number to the even positions (Anderson, "Bit Twiddling Hacks", interleave by binary magic
/// numbers).
fn spread(number: u32) -> u64 {
    let mut bits = u64::from(number);
    for (shift, mask) in [
        (16, 0x0000_FFFF_0000_FFFF),
        (8, 0x00FF_00FF_00FF_00FF),
        (4, 0x0F0F_0F0F_0F0F_0F0F),
        (2, 0x3333_3333_3333_3333),
        (1, EVEN),
    ] {
        bits = (bits | bits << shift) & mask;
    }
    bits
}

/// Returns the number in the bits at even positions.
fn gather(bits: u64) -> u32 {
    let mut bits = bits & EVEN;
    for (shift, mask) in [
        (1, 0x3333_3333_3333_3333),
        (2, 0x0F0F_0F0F_0F0F_0F0F),
        (4, 0x00FF_00FF_00FF_00FF),
        (8, 0x0000_FFFF_0000_FFFF),
        (16, 0x0000_0000_FFFF_FFFF),
    ] {
        bits = (bits | bits >> shift) & mask;
    }
    bits as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    const PALERMO: Point = Point { longitude: 13.361_389, latitude: 38.115_556 };

    #[test]
    fn palermo_is_where_the_manual_says() {
        let hash = Geohash::of(PALERMO, STEP_MAX);
        assert_eq!(hash.score(), 3_479_099_956_230_698.0);
        assert_eq!(Geohash::of_score(hash.score()), hash);
        assert_eq!(&hash.text(), b"sqc8b49rny0");
        let point = hash.point();
        assert!((point.longitude - PALERMO.longitude).abs() < 1e-5);
        assert!((point.latitude - PALERMO.latitude).abs() < 1e-5);
        let (min, max) = Geohash::of(PALERMO, 10).scores();
        assert!((min..max).contains(&hash.score()));
    }

    /// Expected values are those of redis-server 7.0.
    #[test]
    fn scores_that_are_no_places_are_somewhere() {
        for (score, text) in [
            (0.5, b"00bh0hbj200"),
            (-2.5, b"bp05b5048p0"),
            (1e17, b"bp05b5048p0"),
            (1e19, b"bp05b5048p0"),
            (f64::INFINITY, b"00bh0hbj200"),
            (f64::NEG_INFINITY, b"00bh0hbj200"),
        ] {
            assert_eq!(&Geohash::of_score(score).text(), text, "{score}");
        }
    }

    #[test]
    fn bits_are_spread_and_gathered() {
        for number in [0, 1, 2, 0x8000_0000, 0xDEAD_BEEF, u32::MAX] {
            assert_eq!(gather(spread(number)), number);
            assert_eq!(spread(number) & !EVEN, 0);
            assert_eq!(spread(number).count_ones(), number.count_ones());
        }
    }

    #[test]
    fn neighbours_are_beside_and_around_the_world() {
        let here = Geohash::of(PALERMO, 8);
        let east = here.neighbour(Move::Forth, Move::Stay);
        assert_eq!(east.cell().longitude.min, here.cell().longitude.max);
        assert_eq!(east.cell().latitude, here.cell().latitude);
        assert_eq!(east.neighbour(Move::Back, Move::Stay), here);
        let south = here.neighbour(Move::Stay, Move::Back);
        assert_eq!(south.cell().latitude.max, here.cell().latitude.min);
        assert_eq!(south.neighbour(Move::Stay, Move::Forth), here);
        let edge = Geohash { bits: !EVEN & 0xFFFF, step: 8 };
        assert_eq!(edge.neighbour(Move::Forth, Move::Stay).bits, 0);
        assert_eq!(Geohash { bits: 0, step: 8 }.neighbour(Move::Back, Move::Stay), edge);
    }
}
