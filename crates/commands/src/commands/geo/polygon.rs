//! Polygons on the map, whose sides are straight lines between degrees of longitude and latitude.

use std::sync::Arc;

use super::geohash::Point;

/// A polygon of at least one corner, which is closed by a side from the last corner to the first one.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Polygon {
    corners: Arc<[Point]>,
    edges: Edges,
}

/// Edges of an area, in degrees.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Edges {
    pub(super) west: f64,
    pub(super) south: f64,
    pub(super) east: f64,
    pub(super) north: f64,
}

impl Polygon {
    pub(super) fn of(corners: Vec<Point>) -> Self {
        let nothing = Edges {
            west: f64::INFINITY,
            south: f64::INFINITY,
            east: f64::NEG_INFINITY,
            north: f64::NEG_INFINITY,
        };
        let edges = corners.iter().fold(nothing, |edges, corner| Edges {
            west: edges.west.min(corner.longitude),
            south: edges.south.min(corner.latitude),
            east: edges.east.max(corner.longitude),
            north: edges.north.max(corner.latitude),
        });
        Self { corners: corners.into(), edges }
    }

    /// Returns the rectangle around it.
    pub(super) fn edges(&self) -> Edges {
        self.edges
    }

    /// Returns the number of its corners.
    pub(super) fn len(&self) -> usize {
        self.corners.len()
    }

    /// Returns the point on the sphere above the mean of the corners, which distances are measured from, as in Valkey.
    pub(super) fn centre(&self) -> Point {
        let add = |[x, y, z]: [f64; 3], corner: &Point| {
            let (east, north) = (corner.longitude.to_radians(), corner.latitude.to_radians());
            [x + north.cos() * east.cos(), y + north.cos() * east.sin(), z + north.sin()]
        };
        let [x, y, z] = self.corners.iter().fold([0.0; 3], add);
        Point {
            longitude: y.atan2(x).to_degrees(),
            latitude: z.atan2((x * x + y * y).sqrt()).to_degrees(),
        }
    }

    /// Returns true for points inside of an odd number of windings: a line to the west crosses an odd number of sides.
    pub(super) fn contains(&self, point: Point) -> bool {
        let Edges { west, south, east, north } = self.edges;
        if !(west..=east).contains(&point.longitude) || !(south..=north).contains(&point.latitude) {
            return false;
        }
        let mut from = self.corners[self.corners.len() - 1];
        let mut is_inside = false;
        for &to in &*self.corners {
            // A corner belongs to the side above it, so that it counts once.
            if (from.latitude > point.latitude) != (to.latitude > point.latitude) {
                let part = (point.latitude - from.latitude) / (to.latitude - from.latitude);
                let crossing = from.longitude + part * (to.longitude - from.longitude);
                is_inside ^= crossing < point.longitude;
            }
            from = to;
        }
        is_inside
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn polygon(corners: &[(f64, f64)]) -> Polygon {
        let point = |&(longitude, latitude): &(f64, f64)| Point { longitude, latitude };
        Polygon::of(corners.iter().map(point).collect())
    }

    #[test]
    fn points_are_inside_or_outside() {
        // A square with a notch in its northern side.
        let notched = polygon(&[(0., 0.), (10., 0.), (10., 10.), (5., 2.), (0., 10.)]);
        for (longitude, latitude, is_inside) in [
            (5.0, 1.0, true),
            (1.0, 5.0, true),
            (9.0, 5.0, true),
            // In line with corners.
            (4.9, 2.0, true),
            (5.1, 2.0, true),
            (5.0, 3.0, false),
            (5.0, 9.9, false),
            (-1.0, 2.0, false),
            (11.0, 2.0, false),
            (5.0, -1.0, false),
        ] {
            let point = Point { longitude, latitude };
            assert_eq!(notched.contains(point), is_inside, "{point:?}");
        }
        // Two windings around a point cancel each other.
        let star = polygon(&[(0., 10.), (6., -8.), (-9.5, 3.), (9.5, 3.), (-6., -8.)]);
        assert!(!star.contains(Point { longitude: 0.0, latitude: 0.0 }));
        assert!(star.contains(Point { longitude: 0.0, latitude: 8.0 }));
    }

    #[test]
    fn lines_contain_nothing() {
        let line = polygon(&[(0., 0.), (10., 10.), (5., 5.)]);
        assert!(!line.contains(Point { longitude: 6.0, latitude: 5.0 }));
        let flat = polygon(&[(0., 5.), (10., 5.), (5., 5.)]);
        assert!(!flat.contains(Point { longitude: 5.0, latitude: 5.0 }));
    }

    #[test]
    fn the_centre_is_on_the_sphere() {
        let at_a_pole = polygon(&[(0., 85.), (120., 85.), (-120., 85.)]);
        assert!((at_a_pole.centre().latitude - 90.0).abs() < 1e-6);
        let across_the_date_line = polygon(&[(170., 1.), (-170., 1.), (-170., -1.), (170., -1.)]);
        assert!((across_the_date_line.centre().longitude.abs() - 180.0).abs() < 1e-6);
    }
}
