//! Keyspace notifications, if matching the patterns takes longer than a command may.

use crate::operations::support::TestServer;

/// Number of patterns; a command may match 10,000.
const PATTERNS: usize = 12_000;

#[test]
fn events_that_are_matched_elsewhere_come_in_the_order_of_the_changes() {
    let server = TestServer::start();
    let (mut client, mut subscriber, mut filler) =
        (server.client(), server.client(), server.client());
    client.check(&[("CONFIG SET notify-keyspace-events KEA", "OK")]);
    let patterns: String = (0..PATTERNS).map(|number| format!(" *nosuchkey{number}")).collect();
    filler.send(&format!("PSUBSCRIBE{patterns}"));
    for number in 1..=PATTERNS {
        assert!(filler.next().ends_with(&format!(":{number}]")));
    }
    subscriber.check(&[("PSUBSCRIBE __key*", "[psubscribe, __key*, :1]")]);
    client.check(&[("SET k v EX 100", "OK"), ("APPEND k v", ":2"), ("DEL k", ":1")]);
    for event in ["set", "expire", "append", "del"] {
        let channels = [("keyspace", "k", event), ("keyevent", event, "k")];
        for (kind, of, message) in channels {
            let expected = format!("[pmessage, __key*, __{kind}@0__:{of}, {message}]");
            assert_eq!(subscriber.next(), expected);
        }
    }
    // Behind pending events, and counted right.
    client.send("SET k v");
    client.send("PUBLISH __keyspace@0__:k mine");
    client.send("SET k w");
    assert_eq!([(); 3].map(|()| client.next()), ["OK", ":1", "OK"]);
    let of_key = "[pmessage, __key*, __keyspace@0__:k,";
    let of_event = "[pmessage, __key*, __keyevent@0__:set, k]";
    let mut told: Vec<String> = (0..5).map(|_| subscriber.next()).collect();
    told.retain(|message| message != of_event);
    assert_eq!(told, ["set", "mine", "set"].map(|message| format!("{of_key} {message}]")));
}
