//! Circles, rectangles and polygons on earth, and the geohash cells that cover them.

use super::distance::{EARTH_RADIUS, between, between_latitudes};
use super::geohash::{Degrees, Geohash, MERCATOR, Move, Point, STEP_MAX};
use super::polygon::{Edges, Polygon};

/// Shape of a search area. Lengths are metres.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Shape {
    Circle {
        radius: f64,
    },
    Rectangle {
        width: f64,
        height: f64,
    },
    /// It has its own place; the centre is that of its corners.
    Polygon(Polygon),
}

/// A shape around a point.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Area {
    pub(super) centre: Point,
    pub(super) shape: Shape,
}

/// Half of the width of the map, in metres.
const MERCATOR_MAX: f64 = 20_037_726.37;

impl Area {
    /// Returns the distance of a point from the centre, in metres, if it belongs to the area.
    pub(super) fn distance(&self, point: Point) -> Option<f64> {
        match &self.shape {
            Shape::Circle { radius } => {
                let distance = between(self.centre, point);
                (distance <= *radius).then_some(distance)
            }
            Shape::Polygon(polygon) => polygon.contains(point).then(|| between(self.centre, point)),
            Shape::Rectangle { width, height } => {
                let north = between_latitudes(point.latitude, self.centre.latitude);
                if north > height / 2.0 {
                    return None;
                }
                let same_latitude = Point { longitude: self.centre.longitude, ..point };
                let east = between(point, same_latitude);
                (east <= width / 2.0).then(|| between(self.centre, point))
            }
        }
    }

    /// Returns the cells that cover the area, in the order in which Redis visits them: the cell of
    /// the centre and the needed cells around it.
    pub(super) fn cells(&self) -> Vec<Geohash> {
        let edges = self.edges();
        let mut step = self.estimated_step();
        let centre = self.shown_centre();
        let around = |step| Around::of(Geohash::of(centre, step));
        let mut cells = around(step);
        // Circles and rectangles get larger cells once, as in Redis.
        let smallest = match self.shape {
            Shape::Polygon(_) => 1,
            _ => step.saturating_sub(1).max(1),
        };
        while step > smallest && cells.is_exceeded_by(&edges) {
            step -= 1;
            cells = around(step);
        }
        if step >= 2 {
            cells.leave_out(&edges);
        }
        cells.distinct()
    }

    /// Returns the centre, or the closest point in a cell of the map: the centre of a polygon may be closer to a pole,
    /// or at the end of the map, which is in no cell.
    fn shown_centre(&self) -> Point {
        /// Degrees, less than a cell of the last step has.
        const LESS: f64 = 1e-6;
        let within = |degrees: f64, Degrees { min, max }| degrees.clamp(min, max - LESS);
        match self.shape {
            Shape::Polygon(_) => Point {
                longitude: within(self.centre.longitude, MERCATOR.longitude),
                latitude: within(self.centre.latitude, MERCATOR.latitude),
            },
            _ => self.centre,
        }
    }

    fn edges(&self) -> Edges {
        let Point { longitude, latitude } = self.centre;
        // The reach in metres: north or south, and east or west.
        let (height, width) = match &self.shape {
            Shape::Circle { radius } => (*radius, *radius),
            Shape::Rectangle { width, height } => (height / 2.0, width / 2.0),
            Shape::Polygon(polygon) => return polygon.edges(),
        };
        let north = degrees(height / EARTH_RADIUS);
        // Meridians are closest at the edge that is further from the equator.
        let edge = if latitude < 0.0 { latitude - north } else { latitude + north };
        let east = degrees(width / EARTH_RADIUS / edge.to_radians().cos());
        Edges {
            west: longitude - east,
            south: latitude - north,
            east: longitude + east,
            north: latitude + north,
        }
    }

    /// Returns the step whose cells are about as large as the area.
    fn estimated_step(&self) -> u32 {
        let mut metres = match &self.shape {
            Shape::Circle { radius } => *radius,
            Shape::Polygon(polygon) => {
                let Edges { west, south, east, north } = polygon.edges();
                let corner = |longitude, latitude| Point { longitude, latitude };
                between(corner(west, south), corner(east, north)) / 2.0
            }
            Shape::Rectangle { width, height } => {
                ((width / 2.0) * (width / 2.0) + (height / 2.0) * (height / 2.0)).sqrt()
            }
        };
        if metres == 0.0 {
            return STEP_MAX;
        }
        let mut step = 1i32;
        while metres < MERCATOR_MAX {
            metres *= 2.0;
            step += 1;
        }
        // Larger cells, so that those around the centre usually suffice.
        step -= 2;
        // Cells get narrow towards the poles.
        let latitude = self.centre.latitude.abs();
        step -= i32::from(latitude > 66.0) + i32::from(latitude > 80.0);
        step.clamp(1, STEP_MAX as i32) as u32
    }
}

/// Converts to degrees with the division of Redis, which rounds differently from `to_degrees`.
fn degrees(radians: f64) -> f64 {
    radians / (std::f64::consts::PI / 180.0)
}

/// A direction: east or west, and north or south.
type Direction = (Move, Move);

const DIRECTIONS: [Direction; 9] = {
    use Move::{Back, Forth, Stay};
    [
        (Stay, Stay),
        (Stay, Forth),
        (Stay, Back),
        (Forth, Stay),
        (Back, Stay),
        (Forth, Forth),
        (Back, Forth),
        (Forth, Back),
        (Back, Back),
    ]
};

/// A cell and those around it, in the order of [`DIRECTIONS`]; `None` for omitted cells.
struct Around([Option<Geohash>; 9]);

impl Around {
    fn of(centre: Geohash) -> Self {
        Self(DIRECTIONS.map(|(east, north)| Some(centre.neighbour(east, north))))
    }

    fn at(&self, direction: Direction) -> Option<Geohash> {
        let index = DIRECTIONS.iter().position(|other| *other == direction);
        index.and_then(|index| self.0[index])
    }

    /// Returns true if the area extends beyond these cells.
    fn is_exceeded_by(&self, edges: &Edges) -> bool {
        use Move::{Back, Forth, Stay};
        let cell = |direction| self.at(direction).map(Geohash::cell);
        cell((Stay, Forth)).is_some_and(|north| north.latitude.max < edges.north)
            || cell((Stay, Back)).is_some_and(|south| south.latitude.min > edges.south)
            || cell((Forth, Stay)).is_some_and(|east| east.longitude.max < edges.east)
            || cell((Back, Stay)).is_some_and(|west| west.longitude.min > edges.west)
    }

    /// Omits the cells beyond edges that are in the middle cell.
    fn leave_out(&mut self, edges: &Edges) {
        let Some(middle) = self.0[0].map(Geohash::cell) else { return };
        for ((east, north), cell) in DIRECTIONS.into_iter().zip(&mut self.0) {
            let is_beyond = match north {
                Move::Back => middle.latitude.min < edges.south,
                Move::Forth => middle.latitude.max > edges.north,
                Move::Stay => false,
            } || match east {
                Move::Back => middle.longitude.min < edges.west,
                Move::Forth => middle.longitude.max > edges.east,
                Move::Stay => false,
            };
            // At the first step, the cell without bits would look omitted, too, but it is not used
            // there.
            if is_beyond {
                *cell = None;
            }
        }
    }

    /// Returns the present cells. With few steps some are equal. Like Redis, this omits consecutive
    /// duplicates, except for the second cell.
    fn distinct(&self) -> Vec<Geohash> {
        let mut distinct: Vec<Geohash> = Vec::with_capacity(9);
        let mut previous = None;
        for (index, cell) in self.0.iter().enumerate() {
            if let Some(cell) = cell.filter(|cell| Some(*cell) != previous) {
                distinct.push(cell);
                previous = Some(cell).filter(|_| index > 0);
            }
        }
        distinct
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_cover_the_area() {
        let palermo = Point { longitude: 13.361_389, latitude: 38.115_556 };
        for radius in [0.0, 10.0, 1e3, 2e5] {
            for centre in [palermo, Point { latitude: -81.0, ..palermo }] {
                let area = Area { centre, shape: Shape::Circle { radius } };
                let cells = area.cells();
                assert!((1..=9).contains(&cells.len()));
                for (east, north) in [(0.0, 0.0), (0.7, 0.6), (-0.7, 0.6), (0.7, -0.6)] {
                    let reach = degrees(radius / EARTH_RADIUS);
                    let longitude =
                        centre.longitude + east * reach / centre.latitude.to_radians().cos();
                    let latitude = (centre.latitude + north * reach).clamp(-85.0, 85.0);
                    let point = Point { longitude: longitude.clamp(-180.0, 180.0), latitude };
                    if area.distance(point).is_none() {
                        continue;
                    }
                    let score = Geohash::of(point, STEP_MAX).score();
                    let covers = |cell: &Geohash| {
                        let (min, max) = cell.scores();
                        (min..max).contains(&score)
                    };
                    assert!(cells.iter().any(covers), "{radius} {point:?} {cells:?}");
                }
            }
        }
    }
}
