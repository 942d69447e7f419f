//! Geospatial indexes: the examples of the manual, and refused calls.

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
