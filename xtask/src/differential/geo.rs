//! Geospatial commands.

/// Templates with their weights, as in `stream`.
pub(super) const TEMPLATES: &[(usize, &str)] = &[
    (14, "GEOADD {geo} {position} {position} {place} [{position} {position} {place}]"),
    (6, "GEOADD {geo} [(NX | XX)] [CH] {position} {position} {place}"),
    (6, "GEOPOS {geo} [{place}] [{place}]"),
    (4, "GEOHASH {geo} [{place}] [{place}]"),
    (8, "GEODIST {geo} {place} {place} [{unit}]"),
    (
        14,
        "GEOSEARCH {geo} (FROMMEMBER {place} | FROMLONLAT {degrees} {degrees}) \
         (BYRADIUS {length} {unit} | BYBOX {length} {length} {unit}) [(ASC | DESC)] \
         [COUNT {small} [ANY]] [WITHCOORD] [WITHDIST] [WITHHASH]",
    ),
    (
        8,
        "GEOSEARCHSTORE {geo} {geo} (FROMMEMBER {place} | FROMLONLAT {degrees} {degrees}) \
         (BYRADIUS {length} {unit} | BYBOX {length} {length} {unit}) [(ASC | DESC)] \
         [COUNT {small} [ANY]] [STOREDIST] [WITHDIST]",
    ),
    (
        6,
        "GEORADIUS {geo} {degrees} {degrees} {length} {unit} [WITHCOORD] [WITHDIST] [COUNT {small} [ANY]] \
         [(ASC | DESC)]",
    ),
    (4, "GEORADIUS {geo} {degrees} {degrees} {length} {unit} [ASC] (STORE | STOREDIST) {geo}"),
    (3, "GEORADIUS_RO {geo} {degrees} {degrees} {length} {unit} [WITHHASH] [STORE {geo}]"),
    (
        6,
        "GEORADIUSBYMEMBER {geo} {place} {length} {unit} [WITHDIST] [COUNT {small}] [(STORE | STOREDIST) {geo}]",
    ),
    (3, "GEORADIUSBYMEMBER_RO {geo} {place} {length} {unit} [WITHCOORD] [DESC]"),
    (2, "ZRANGE {geo} 0 -1 WITHSCORES"),
    (
        1,
        "COMMAND INFO (geoadd | geopos | geosearch | geosearchstore) (georadius | georadiusbymember_ro)",
    ),
    (1, "COMMAND GETKEYS GEORADIUS {geo} 1 1 1 km (STORE | STOREDIST) {geo}"),
];
