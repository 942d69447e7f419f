//! Functions can be fetched without keys and without the stream (`REPLCONF rdb-filter-only`).

use super::durability::primary;

#[test]
fn functions_can_be_fetched_alone() {
    let server = primary().start();
    let mut c = server.connect();
    let library = "#!lua name=mylib\nserver.register_function('f', function() return 7 end)";
    c.check("SET key 1", "+OK");
    c.call(&["FUNCTION", "LOAD", library]);
    let mut replica = server.connect();
    replica.check("REPLCONF rdb-filter-only keys", "-ERR Unsupported rdb-filter-only option: keys");
    replica.check("REPLCONF rdb-filter-only functions", "+OK");
    replica.check("REPLCONF rdb-only 1", "+OK");
    for (filter, has_library) in [("functions", true), ("", false)] {
        let told = replica.call(&["REPLCONF", "rdb-filter-only", filter]);
        assert_eq!(told.to_string(), "+OK");
        let copy = replica.ask("SYNC");
        let holds = |what: &[u8]| copy.bytes().windows(what.len()).any(|found| found == what);
        assert!(copy.bytes().starts_with(b"REDIS"));
        assert_eq!((holds(b"mylib"), holds(b"key")), (has_library, false), "{filter:?}");
    }
}
