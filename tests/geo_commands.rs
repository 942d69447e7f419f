//! Geospatial indexes: the examples of the manual, and refused calls.

use crate::both_protocols::raw::with_both;
use crate::server;

const SICILY: &str = "GEOADD Sicily 13.361389 38.115556 Palermo 15.087269 37.502669 Catania";

#[test]
fn places_and_distances() {
    let server = server();
    let mut c = server.connect();
    c.check(SICILY, ":2");
    c.check("GEOADD Sicily CH 13.361389 38.115556 Palermo 12.758489 38.788135 edge1", ":1");
    c.check("GEOADD Sicily NX 0 0 Palermo", ":0");
    c.check("ZSCORE Sicily Palermo", "\"3479099956230698\"");
    c.check("GEODIST Sicily Palermo Catania", "\"166274.1516\"");
    c.check("GEODIST Sicily Palermo Catania km", "\"166.2742\"");
    c.check("GEODIST Sicily Palermo Catania MI", "\"103.3182\"");
    c.check("GEODIST Sicily Palermo nowhere", "nil");
    c.check("GEOHASH Sicily Palermo Catania nowhere", "[\"sqc8b49rny0\", \"sqdtr74hyu0\", nil]");
    let palermo = "[\"13.36138933897018433\", \"38.11555639549629859\"]";
    c.check("GEOPOS Sicily Palermo nowhere", &format!("[{palermo}, nil-array]"));
    c.check("GEOPOS nosuch a", "[nil-array]");
    let mut c = server.connect_resp3();
    c.check("GEOPOS Sicily Palermo", "[[,13.36138933897018433, ,38.11555639549629859]]");
    c.check("GEODIST Sicily Palermo Catania", "\"166274.1516\"");
}

#[test]
fn searches() {
    let server = server();
    let mut c = server.connect();
    c.check(SICILY, ":2");
    c.check("GEOADD Sicily 12.758489 38.788135 edge1 17.241510 38.788135 edge2", ":2");
    c.check("GEOSEARCH Sicily FROMLONLAT 15 37 BYRADIUS 200 km ASC", "[\"Catania\", \"Palermo\"]");
    c.check(
        "GEOSEARCH Sicily FROMLONLAT 15 37 BYBOX 400 400 km ASC WITHDIST",
        "[[\"Catania\", \"56.4413\"], [\"Palermo\", \"190.4424\"], [\"edge2\", \"279.7403\"], \
         [\"edge1\", \"279.7405\"]]",
    );
    c.check("GEOSEARCH Sicily FROMMEMBER Catania BYRADIUS 1 m", "[\"Catania\"]");
    c.check("GEOSEARCH Sicily FROMLONLAT 15 37 BYBOX 400 400 km COUNT 1", "[\"Catania\"]");
    c.check("GEOSEARCHSTORE d Sicily FROMLONLAT 15 37 BYBOX 400 400 km DESC COUNT 3", ":3");
    c.check("ZRANGE d 0 -1", "[\"Palermo\", \"edge1\", \"edge2\"]");
    c.check("GEOSEARCHSTORE d Sicily FROMLONLAT 15 37 BYRADIUS 100 km STOREDIST", ":1");
    let distance = c.ask("ZSCORE d Catania");
    assert!(distance.text().starts_with("56.44"), "{distance}");
    c.check(
        "GEORADIUS Sicily 15 37 200 km WITHHASH",
        "[[\"Palermo\", :3479099956230698], [\"Catania\", :3479447370796909]]",
    );
    c.check("GEORADIUSBYMEMBER Sicily Palermo 200 km STORE d", ":3");
    c.check("GEORADIUS nosuch 15 37 200 km STORE d", ":0");
    c.check("EXISTS d", ":0");
    c.check("GEOSEARCH nosuch FROMMEMBER a BYRADIUS 1 m", "[]");
}

/// The places, polygons and distances of Valkey's own tests, with other names.
#[test]
fn polygons() {
    const SYDNEY: &str = "GEOADD sydney 151.20932132005692 -33.877723137822436 elizabeth \
                          151.2119820713997 -33.87697539508043 liverpool 151.2119820713997 \
                          -33.87156123068408 james 151.2229523062706 -33.883973760201364 oxford \
                          151.22852593660355 -33.88116782387797 goodhope 151.2224105000496 \
                          -33.87544442350019 kings 151.22953444719315 -33.874838625143106 oval";
    const CONCAVE: &str = "BYPOLYGON 11 151.21619137411474 -33.869643764947696 151.20408853981647 \
                           -33.87845382042545 151.2123775086366 -33.87864711938855 \
                           151.21046943124387 -33.87588862400425 151.21701035939626 \
                           -33.874286511854834 151.2239557405701 -33.8735722632175 \
                           151.22495056246407 -33.87893571656996 151.2274447496748 \
                           -33.882307713036354 151.23212935868654 -33.88136096120022 \
                           151.23097291274465 -33.87456240592362 151.22475424781445 \
                           -33.87099633192101";
    const CROSSING: &str = "BYPOLYGON 5 151.2154285314146 -33.867438205607186 151.20024487595015 \
                            -33.88138572784347 151.2374118848648 -33.87601765283626 \
                            151.19695829592922 -33.87272872054441 151.2278336546125 \
                            -33.88345323146266";
    with_both(|c| {
        c.check(SYDNEY, ":7");
        let search = |what: &str| format!("GEOSEARCH sydney {what}");
        c.check(&search(CONCAVE), "[\"goodhope\", \"oval\", \"elizabeth\"]");
        c.check(
            &search(&format!("{CONCAVE} WITHDIST DESC")),
            "[[\"elizabeth\", \"1035.7735\"], [\"goodhope\", \"929.4979\"], \
             [\"oval\", \"858.3013\"]]",
        );
        c.check(&search(CROSSING), "[\"elizabeth\", \"james\", \"kings\"]");
        c.check(&format!("GEOSEARCHSTORE to sydney {CONCAVE} COUNT 2 STOREDIST"), ":2");
        c.check("ZRANGE to 0 -1", "[\"oval\", \"goodhope\"]");
        c.check("GEOSEARCH nosuch BYPOLYGON 3 0 0 1 1 0 1", "[]");
        const TOO_FEW: &str = "-ERR GEOSEARCH BYPOLYGON must have at least 3 vertices";
        c.check(&search("BYPOLYGON 2 0 0 1 1"), TOO_FEW);
        c.check(&search("BYPOLYGON -9223372036854775808 0 0 1 1"), TOO_FEW);
        c.check(&search("BYPOLYGON 3 0 0 1 1"), TOO_FEW);
        let many = "-ERR GEOSEARCH BYPOLYGON must have at least 9223372036854775807 vertices";
        c.check(&search("BYPOLYGON 9223372036854775807 0 0 1 1"), many);
        const TRIANGLE: &str = "BYPOLYGON 3 0 0 1 1 0 1";
        for also in ["BYBOX 1 1 km", "BYRADIUS 1 km", "FROMLONLAT 1 1", "FROMMEMBER oval", TRIANGLE]
        {
            c.check(&search(&format!("{TRIANGLE} {also}")), "-ERR syntax error");
            c.check(&search(&format!("{also} {TRIANGLE}")), "-ERR syntax error");
        }
        let outside = "-ERR invalid longitude,latitude pair 0.000000,86.000000";
        c.check(&search("BYPOLYGON 3 0 0 1 1 0 86"), outside);
    });
}

/// Up to all of the map, whose ends they do not cross.
#[test]
fn polygons_of_any_size() {
    let server = server();
    let mut c = server.connect();
    let mut places = String::from("GEOADD earth");
    for longitude in (-180..180).step_by(20) {
        for latitude in (-84..=84).step_by(12) {
            places += &format!(" {longitude} {latitude} {longitude}:{latitude}");
        }
    }
    c.check(&places, ":270");
    for (corners, count) in [
        ("4 -180 -85 180 -85 180 85 -180 85", 270),
        ("4 -179.9 -85 179.9 -85 179.9 85 -179.9 85", 17 * 15),
        ("4 -180 80 180 80 180 85 -180 85", 18),
        ("4 -180 -85 180 -85 180 -80 -180 -80", 18),
        ("4 -170 -1 170 -1 170 1 -170 1", 17),
        ("4 150 -13 180 -13 180 13 150 13", 3),
        ("3 0 0.5 0.5 0 0.5 0.5", 0),
        ("4 -0.5 -0.5 0.5 -0.5 0.5 0.5 -0.5 0.5", 1),
    ] {
        let found = c.ask(&format!("GEOSEARCH earth BYPOLYGON {corners}"));
        assert_eq!(found.items().len(), count, "{corners}");
    }
}

/// Arguments of options may be called like options.
#[test]
fn the_key_that_the_options_name_is_written_and_no_other() {
    let server = server();
    let mut c = server.connect();
    c.check(SICILY, ":2");
    for (options, store) in [
        ("STORE STORE COUNT 1", "STORE"),
        ("COUNT 1 STOREDIST store", "store"),
        ("STORE storedist ASC", "storedist"),
        ("STORE a STOREDIST b COUNT 1", "b"),
        ("STOREDIST COUNT STORE c ANY COUNT 1", "c"),
    ] {
        for search in ["GEORADIUS Sicily 15 37 100 km", "GEORADIUSBYMEMBER Sicily Catania 100 km"] {
            c.check("MSET COUNT text ASC text a text 1 text", "+OK");
            c.check(&format!("{search} {options}"), ":1");
            c.check(&format!("ZCARD {store}"), ":1");
            c.check(&format!("DEL {store}"), ":1");
            c.check("MGET COUNT ASC a 1", "[\"text\", \"text\", \"text\", \"text\"]");
            c.check("DBSIZE", ":5");
        }
    }
}

#[test]
fn mistakes() {
    let server = server();
    let mut c = server.connect();
    c.check(SICILY, ":2");
    for (line, error) in [
        ("GEOADD g 181 0 a", "invalid longitude,latitude pair 181.000000,0.000000"),
        ("GEOADD g x 0 a", "value is not a valid float"),
        ("GEOADD g 1 2 a 3", "syntax error"),
        (
            "GEODIST Sicily Palermo Catania yd",
            "unsupported unit provided. please use M, KM, FT, MI",
        ),
        (
            "GEOSEARCH Sicily BYRADIUS 1 m WITHDIST ASC",
            "exactly one of FROMMEMBER or FROMLONLAT can be specified for GEOSEARCH",
        ),
        (
            "GEOSEARCH Sicily FROMMEMBER Palermo ASC WITHDIST WITHHASH",
            "exactly one of BYRADIUS and BYBOX can be specified for GEOSEARCH",
        ),
        (
            "GEOSEARCH Sicily FROMMEMBER nosuch BYRADIUS 1 m",
            "could not decode requested zset member",
        ),
        ("GEOSEARCH Sicily FROMMEMBER Palermo BYRADIUS x m", "need numeric radius"),
        ("GEOSEARCH Sicily FROMMEMBER Palermo BYRADIUS -1 m", "radius cannot be negative"),
        ("GEOSEARCH Sicily FROMMEMBER Palermo BYBOX 1 -1 m", "height or width cannot be negative"),
        ("GEOSEARCH Sicily FROMMEMBER Palermo BYRADIUS 1 m COUNT 0", "COUNT must be > 0"),
        (
            "GEOSEARCH Sicily FROMMEMBER Palermo BYRADIUS 1 m ANY",
            "the ANY argument requires COUNT argument",
        ),
        (
            "GEORADIUS Sicily 15 37 1 m WITHDIST STORE d",
            "STORE option in GEORADIUS is not compatible with WITHDIST, WITHHASH and WITHCOORD \
             options",
        ),
        ("GEORADIUS_RO Sicily 15 37 1 m STORE d", "syntax error"),
    ] {
        c.check(line, &format!("-ERR {error}"));
    }
    c.check("SET text 1", "+OK");
    c.check(
        "GEOSEARCH text FROMMEMBER a BYRADIUS x m",
        "-WRONGTYPE Operation against a key holding the wrong kind of value",
    );
}
