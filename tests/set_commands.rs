//! Sets, in both protocols.

use std::collections::BTreeSet;

use tierce_harness::{Reply, Server, TempDir, wait_until};

use crate::both_protocols::raw::{check_nil, with_both};
use crate::{launch, server};

/// Returns the elements of a reply, sorted.
fn sorted(reply: &Reply) -> Vec<String> {
    let mut items: Vec<_> = reply.items().iter().map(|item| item.text().to_owned()).collect();
    items.sort();
    items
}

const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";

#[test]
fn members_come_and_go() {
    with_both(|c| {
        c.check("SADD s a b c b", ":3");
        c.check("SADD s c d", ":1");
        c.check("SCARD s", ":4");
        c.check("SISMEMBER s a", ":1");
        c.check("SISMEMBER s x", ":0");
        c.check("SMISMEMBER s a x d", "[:1, :0, :1]");
        c.check("SMISMEMBER nosuch a b", "[:0, :0]");
        assert_eq!(sorted(&c.ask("SMEMBERS s")), ["a", "b", "c", "d"]);
        c.check("SREM s a x", ":1");
        c.check("SREM s b c d", ":3");
        c.check("EXISTS s", ":0");
        c.check("SCARD s", ":0");
        assert!(c.ask("SMEMBERS s").items().is_empty());
        c.check("SREM s a", ":0");
        c.check("SET text 1", "+OK");
        for line in [
            "SADD text a",
            "SCARD text",
            "SPOP text",
            "SINTER text",
            "SMEMBERS text",
            "SSCAN text 0",
        ] {
            c.check(line, WRONG_TYPE);
        }
    });
}

#[test]
fn the_form_follows_members_and_configuration() {
    with_both(|c| {
        c.check("SADD s 1 2 3", ":3");
        c.check("OBJECT ENCODING s", "\"intset\"");
        c.check("SADD s x", ":1");
        c.check("OBJECT ENCODING s", "\"listpack\"");
        c.ask(&format!("SADD s {}", "y".repeat(65)));
        c.check("OBJECT ENCODING s", "\"hashtable\"");
        c.check("CONFIG SET set-max-intset-entries 3", "+OK");
        c.check("SADD t 1 2 3", ":3");
        c.check("SADD t 4", ":1");
        c.check("OBJECT ENCODING t", "\"hashtable\"");
        assert_eq!(sorted(&c.ask("SMEMBERS t")), ["1", "2", "3", "4"]);
        c.check("CONFIG SET set-max-intset-entries 512", "+OK");
    });
}

#[test]
fn members_move() {
    with_both(|c| {
        c.check("SADD a x y", ":2");
        c.check("SADD b y", ":1");
        c.check("SMOVE a b x", ":1");
        c.check("SMOVE a b x", ":0");
        c.check("SMOVE a b y", ":1");
        c.check("EXISTS a", ":0");
        c.check("SCARD b", ":2");
        c.check("SMOVE b b x", ":1");
        c.check("SMOVE b b z", ":0");
        c.check("SET text 1", "+OK");
        c.check("SMOVE b text x", WRONG_TYPE);
        c.check("SMOVE b text nosuch", WRONG_TYPE);
        c.check("SMOVE text b x", WRONG_TYPE);
        c.check("SMOVE nosuch text x", ":0");
    });
}

#[test]
fn members_by_chance() {
    with_both(|c| {
        for (key, count) in [("ints", 300), ("table", 2000)] {
            for number in 0..count {
                c.ask(&format!("SADD {key} {}", number * 7));
            }
            let all: BTreeSet<String> =
                sorted(&c.ask(&format!("SMEMBERS {key}"))).into_iter().collect();
            assert_eq!(all.len(), count);
            for wanted in [0, 5, 150, 5000] {
                let drawn = sorted(&c.ask(&format!("SRANDMEMBER {key} {wanted}")));
                assert_eq!(drawn.len(), wanted.min(count));
                let distinct: BTreeSet<String> = drawn.into_iter().collect();
                assert_eq!(distinct.len(), wanted.min(count));
                assert!(distinct.is_subset(&all));
            }
            assert_eq!(c.ask(&format!("SRANDMEMBER {key} -4000")).items().len(), 4000);
            assert!(all.contains(c.ask(&format!("SRANDMEMBER {key}")).text()));
            c.check(
                &format!("SRANDMEMBER {key} -9000000000000000000"),
                "-ERR value is out of range",
            );
            let popped: BTreeSet<String> =
                sorted(&c.ask(&format!("SPOP {key} 100"))).into_iter().collect();
            assert!(popped.len() == 100 && popped.is_subset(&all));
            let one = c.ask(&format!("SPOP {key}")).text().to_owned();
            assert!(all.contains(&one) && !popped.contains(&one));
            c.check(&format!("SCARD {key}"), &format!(":{}", count - 101));
            assert_eq!(c.ask(&format!("SPOP {key} 100000")).items().len(), count - 101);
            c.check(&format!("EXISTS {key}"), ":0");
        }
        check_nil(c, "SPOP nosuch", "nil");
        assert!(c.ask("SPOP nosuch 3").items().is_empty());
        c.check("SPOP nosuch -1", "-ERR value is out of range, must be positive");
        c.check("SPOP nosuch 1 2", "-ERR syntax error");
        check_nil(c, "SRANDMEMBER nosuch", "nil");
        c.check("SRANDMEMBER nosuch 3", "[]");
        c.check("SRANDMEMBER nosuch x", "-ERR value is not an integer or out of range");
    });
}

#[test]
fn sets_make_sets() {
    with_both(|c| {
        c.check("SADD a 1 2 3 4 x", ":5");
        c.check("SADD b 2 3 y x", ":4");
        c.check("SADD c 3 x z", ":3");
        assert_eq!(sorted(&c.ask("SINTER a b c")), ["3", "x"]);
        assert_eq!(sorted(&c.ask("SUNION a b c")), ["1", "2", "3", "4", "x", "y", "z"]);
        assert_eq!(sorted(&c.ask("SDIFF a b c")), ["1", "4"]);
        assert_eq!(sorted(&c.ask("SDIFF nosuch a")), [""; 0]);
        assert_eq!(sorted(&c.ask("SINTER a nosuch")), [""; 0]);
        assert_eq!(sorted(&c.ask("SUNION nosuch c")), ["3", "x", "z"]);
        c.check("SINTERCARD 2 a b", ":3");
        c.check("SINTERCARD 2 a b LIMIT 2", ":2");
        c.check("SINTERCARD 2 a b LIMIT 0", ":3");
        c.check("SINTERCARD 0 a", "-ERR numkeys should be greater than 0");
        c.check("SINTERCARD 3 a b", "-ERR Number of keys can't be greater than number of args");
        c.check("SINTERCARD 2 a b LIMIT -1", "-ERR LIMIT can't be negative");
        c.check("SINTERCARD 2 a b NOSUCH 1", "-ERR syntax error");
        c.check("SUNIONCARD 3 a b c", ":7");
        c.check("SUNIONCARD 3 a b c LIMIT 6", ":6");
        c.check("SUNIONCARD 3 a nosuch a LIMIT 0", ":5");
        c.check("SUNIONCARD 2 nosuch nosuch", ":0");
        c.check("SUNIONCARD 3 a b c approx", ":7");
        c.check("SUNIONCARD 3 a b c LIMIT 100 APPROX", ":7");
        c.check("SUNIONCARD 3 a b c APPROX LIMIT 3", ":3");
        c.check("SDIFFCARD 3 a b c", ":2");
        c.check("SDIFFCARD 3 a b c LIMIT 1", ":1");
        c.check("SDIFFCARD 1 a LIMIT 9", ":5");
        c.check("SDIFFCARD 2 a a", ":0");
        c.check("SDIFFCARD 2 nosuch a", ":0");
        c.check("SDIFFCARD 2 a b APPROX", "-ERR syntax error");
        for command in ["SUNIONCARD", "SDIFFCARD"] {
            for (arguments, error) in [
                ("0 a", "numkeys should be greater than 0"),
                ("x a", "numkeys should be greater than 0"),
                ("3 a b", "Number of keys can't be greater than number of args"),
                ("2 a b LIMIT -1", "LIMIT can't be negative"),
                ("2 a b LIMIT", "syntax error"),
                ("2 a b NOSUCH", "syntax error"),
            ] {
                c.check(&format!("{command} {arguments}"), &format!("-ERR {error}"));
            }
        }
        c.check("SINTERSTORE d a b", ":3");
        assert_eq!(sorted(&c.ask("SMEMBERS d")), ["2", "3", "x"]);
        c.check("SUNIONSTORE d d c", ":4");
        c.check("SDIFFSTORE a a b", ":2");
        c.check("OBJECT ENCODING a", "\"intset\"");
        c.check("SET text 1", "+OK");
        c.check("SUNIONSTORE text a", ":2");
        c.check("TYPE text", "+set");
        c.check("SINTERSTORE text a nosuch", ":0");
        c.check("EXISTS text", ":0");
        c.check("SET text 1", "+OK");
        for line in [
            "SINTER a text",
            "SINTER nosuch text",
            "SUNION a text",
            "SDIFFSTORE d a text",
            "SUNIONCARD 2 a text",
            "SDIFFCARD 2 nosuch text",
        ] {
            c.check(line, WRONG_TYPE);
        }
        c.check("COMMAND GETKEYS SINTERCARD 2 a b LIMIT 5", r#"["a", "b"]"#);
        c.check("COMMAND GETKEYS SINTERSTORE d a b", r#"["d", "a", "b"]"#);
    });
}

/// The estimate is that of a HyperLogLog with the same elements.
#[test]
fn large_unions_are_counted_exactly_or_estimated() {
    let server = crate::server();
    let mut c = server.connect();
    for from in (0..30_000).step_by(1000) {
        let members: String = (from..from + 1000).map(|number| format!(" {number}")).collect();
        c.ask(&format!("SADD {}{members}", if from < 20_000 { "a" } else { "b" }));
        c.ask(&format!("PFADD counter{members}"));
    }
    c.check("SADD b 0 1 2", ":3");
    c.check("SUNIONCARD 2 a b", ":30000");
    c.check("SUNIONCARD 2 a b LIMIT 29999", ":29999");
    c.check("SDIFFCARD 2 a b", ":19997");
    c.check("SDIFFCARD 2 b a", ":10000");
    c.check("SDIFFCARD 2 b a LIMIT 1", ":1");
    let estimate = c.ask("PFCOUNT counter").int();
    c.check("SUNIONCARD 2 a b APPROX", &format!(":{estimate}"));
    c.check("SUNIONCARD 2 a b APPROX LIMIT 5000", ":5000");
    c.check("SUNIONCARD 2 a b APPROX LIMIT 100000", &format!(":{estimate}"));
}

#[test]
fn a_scan_meets_every_member_that_stays() {
    with_both(|c| {
        for number in 0..1500 {
            c.ask(&format!("SADD s member{number}"));
        }
        let (mut cursor, mut met) = ("0".to_owned(), BTreeSet::new());
        loop {
            let reply = c.ask(&format!("SSCAN s {cursor} COUNT 20 MATCH member*"));
            cursor = reply.items()[0].text().to_owned();
            met.extend(reply.items()[1].items().iter().map(|name| name.text().to_owned()));
            if cursor == "0" {
                break;
            }
            c.ask(&format!("SREM s member{}", 1000 + met.len() % 500));
        }
        assert!((0..1000).all(|number| met.contains(&format!("member{number}"))));
        c.check("SADD small 1 2 11", ":3");
        c.check("SSCAN small 0 MATCH 1*", r#"["0", ["1", "11"]]"#);
        c.check("SSCAN small 0 NOVALUES", "-ERR syntax error");
        c.check("SSCAN nosuch 0 NOSUCH", r#"["0", []]"#);
    });
}

#[test]
fn sets_survive_a_kill_a_save_and_a_dump() {
    let dir = TempDir::new();
    for appendonly in ["yes", "no"] {
        let own = dir.path().join(appendonly);
        std::fs::create_dir_all(&own).expect("a directory");
        let launch =
            launch().with("appendonly", appendonly).with("dir", &own.display().to_string());
        let server = launch.start();
        let mut c = server.connect();
        c.check("SADD ints 1 -5 70000 9999999999", ":4");
        c.check("SADD small 1 x ''", ":3");
        for number in 0..700 {
            c.ask(&format!("SADD large member{number} {number}"));
        }
        c.check("SREM large member0 1", ":2");
        for key in ["ints", "small", "large"] {
            let payload = c.call(&["DUMP", key]).bytes().to_vec();
            c.check(&format!("DEL {key}"), ":1");
            let restored = c.call(&[&b"RESTORE"[..], key.as_bytes(), b"0", &payload]);
            assert_eq!(restored.to_string(), "+OK");
        }
        if appendonly == "no" {
            c.check("SAVE", "+OK");
        }
        drop::<Server>(server);
        let server = launch.start();
        let mut c = server.connect();
        assert_eq!(sorted(&c.ask("SMEMBERS ints")), ["-5", "1", "70000", "9999999999"]);
        c.check("OBJECT ENCODING ints", "\"intset\"");
        assert_eq!(sorted(&c.ask("SMEMBERS small")), ["", "1", "x"]);
        c.check("OBJECT ENCODING small", "\"listpack\"");
        c.check("SCARD large", ":1398");
        c.check("SMISMEMBER large member0 member1 1 2", "[:0, :1, :0, :1]");
        c.check("OBJECT ENCODING large", "\"hashtable\"");
    }
}

#[test]
fn a_key_may_be_named_again() {
    let server = crate::server();
    let mut c = server.connect();
    c.check("SADD a 1 2 3", ":3");
    c.check("SADD b 3 4", ":2");
    c.check("SINTER a b a a b", "[\"3\"]");
    c.check("SINTERCARD 4 a a a a LIMIT 2", ":2");
    c.check("SUNIONSTORE to a b a b", ":4");
    c.check("SDIFF b a a", "[\"4\"]");
    c.check("SDIFF a b a", "[]");
    c.check("SDIFFSTORE a a a", ":0");
    c.check("EXISTS a", ":0");
}

#[test]
fn members_have_deadlines() {
    with_both(|c| {
        c.check("SADD s a b c 7", ":4");
        c.check("STTL s MEMBERS 2 a nosuch", "[:-1, :-2]");
        c.check("SEXPIRE s 1000 MEMBERS 2 a nosuch", "[:1, :-2]");
        c.check("SEXPIRE s 1000 NX MEMBERS 2 a b", "[:0, :1]");
        c.check("SEXPIRE s 2000 GT MEMBERS 3 a b c", "[:1, :1, :0]");
        c.check("SEXPIRE s 1500 LT MEMBERS 3 a b c", "[:1, :1, :1]");
        c.check("SEXPIRE s 1500 XX MEMBERS 2 c 7", "[:1, :0]");
        c.check("SPEXPIREAT s 9999999999123 MEMBERS 2 a 7", "[:1, :1]");
        c.check("SPEXPIRETIME s MEMBERS 2 a 7", "[:9999999999123, :9999999999123]");
        c.check("SEXPIRETIME s MEMBERS 1 a", "[:10000000000]");
        c.check("SEXPIREAT s 9999999999 MEMBERS 1 a", "[:1]");
        c.check("SPEXPIRETIME s MEMBERS 1 a", "[:9999999999000]");
        let left = c.ask("SPTTL s MEMBERS 1 b").items()[0].int();
        assert!((1_400_000..=1_500_000).contains(&left), "{left}");
        c.check("OBJECT ENCODING s", "\"listpackex\"");
        c.check("SADD s a", ":0");
        c.check("SPEXPIRETIME s MEMBERS 1 a", "[:9999999999000]");
        c.check("SMOVE s other a", ":1");
        c.check("SPEXPIRETIME other MEMBERS 1 a", "[:9999999999000]");
        c.check("SUNIONSTORE plain other s", ":4");
        c.check("STTL plain MEMBERS 2 a 7", "[:-1, :-1]");
        c.check("SPERSIST s MEMBERS 4 b c 7 nosuch", "[:1, :1, :1, :-2]");
        c.check("OBJECT ENCODING s", "\"listpack\"");
        c.check("SPERSIST s MEMBERS 1 b", "[:-1]");
        c.check("SPERSIST nosuch MEMBERS 1 a", "[:-2]");
        c.check("STTL nosuch MEMBERS 1 a", "[:-2]");
        c.check("SEXPIRE s 0 MEMBERS 1 b", "[:2]");
        c.check("SPEXPIREAT s 1 MEMBERS 2 c 7", "[:2, :2]");
        c.check("EXISTS s", ":0");
        c.check("SEXPIRE s 10 MEMBERS 1 a", "[:-2]");
        c.check("SET text 1", "+OK");
        for line in
            ["SADDEX text MEMBERS 1 a", "STTL text MEMBERS 1 a", "SEXPIRE text 1 MEMBERS 1 a"]
        {
            c.check(line, "-WRONGTYPE Operation against a key holding the wrong kind of value");
        }
        for (line, error) in [
            ("SEXPIRE s -1 MEMBERS 1 a", "invalid expire time, must be >= 0"),
            (
                "SEXPIRE s 1 MEMBERS 2 a",
                "The `nummembers` parameter must match the number of arguments",
            ),
            ("SEXPIRE s 1 MEMBERS 0 a", "Parameter `numMembers` should be greater than 0"),
            ("STTL s MEMBERS 0 a", "Number of members must be a positive integer"),
            (
                "STTL s FIELDS 1 a",
                "Mandatory argument MEMBERS is missing or not at the right position",
            ),
        ] {
            c.check(line, &format!("-ERR {error}"));
        }
    });
}

#[test]
fn members_are_added_with_deadlines() {
    with_both(|c| {
        c.check("SADDEX s MEMBERS 2 a b", ":1");
        c.check("SADDEX s PXAT 9999999999123 MEMBERS 2 a c", ":1");
        c.check("SPEXPIRETIME s MEMBERS 3 a b c", "[:9999999999123, :-1, :9999999999123]");
        c.check("SADDEX s KEEPTTL MEMBERS 2 a d", ":1");
        c.check("SPEXPIRETIME s MEMBERS 2 a d", "[:9999999999123, :-1]");
        c.check("SADDEX s MEMBERS 1 a", ":1");
        c.check("STTL s MEMBERS 1 a", "[:-1]");
        c.check("SADDEX s MNX MEMBERS 2 e a", ":0");
        c.check("SADDEX s MXX EX 10 MEMBERS 2 a e", ":0");
        c.check("SCARD s", ":4");
        c.check("SADDEX s MEMBERS 1 e mnx", ":1");
        c.check("SADDEX s EXAT 9999999999 mxx MEMBERS 1 e", ":1");
        c.check("SPEXPIRETIME s MEMBERS 1 e", "[:9999999999000]");
        c.check("SADDEX nosuch MXX MEMBERS 1 a", ":0");
        c.check("SADDEX s PX 0 MEMBERS 2 a new", ":1");
        c.check("SMISMEMBER s a new", "[:0, :0]");
        c.check("SADDEX fresh PXAT 1 MEMBERS 1 a", ":1");
        c.check("EXISTS fresh nosuch", ":0");
        c.check("SADDEX s PXAT 1 MEMBERS 4 b c d e", ":1");
        c.check("EXISTS s", ":0");
        for (arguments, error) in [
            ("MEMBERS 0 a", "invalid number of members"),
            ("MEMBERS 2 a", "wrong number of arguments"),
            ("EX 1 PX 1", "Only one of EX, PX, EXAT, PXAT or KEEPTTL arguments can be specified"),
            ("MNX MXX MEMBERS 1 a", "Only one of MXX or MNX arguments can be specified"),
            ("NX MEMBERS 1 a", "unknown argument: NX"),
            ("MNX EX 10", "missing MEMBERS argument"),
            ("MEMBERS 1 a MEMBERS 1 a", "MEMBERS keyword specified multiple times"),
        ] {
            c.check(&format!("SADDEX s {arguments}"), &format!("-ERR {error}"));
        }
    });
}

#[test]
fn expired_members_are_gone_from_all_commands() {
    let server = server();
    let mut c = server.connect();
    for (key, others) in [("small", 1), ("large", 700)] {
        for number in 0..others {
            c.ask(&format!("SADD {key} stays{number}"));
        }
        c.check(&format!("SADDEX {key} PX 1 MEMBERS 3 a 7 'a long member that expires'"), ":1");
        wait_until("members expire", || c.ask(&format!("SCARD {key}")).int() == others);
        c.check(&format!("SMISMEMBER {key} a 7 stays0"), "[:0, :0, :1]");
        assert_eq!(c.ask(&format!("SMEMBERS {key}")).items().len() as i64, others);
        assert_eq!(c.ask(&format!("SINTER {key} {key}")).items().len() as i64, others);
        assert_eq!(c.ask(&format!("SRANDMEMBER {key} 1000")).items().len() as i64, others);
        c.check(&format!("STTL {key} MEMBERS 1 a"), "[:-2]");
        c.check(&format!("SREM {key} a"), ":0");
        c.check(&format!("SADD {key} a"), ":1");
        c.check(&format!("STTL {key} MEMBERS 1 a"), "[:-1]");
    }
    c.check("SADDEX whole PX 1 MEMBERS 2 a b", ":1");
    wait_until("the set expires", || c.ask("EXISTS whole").int() == 0);
    c.check("SPOP whole", "nil");
}

#[test]
fn deadlines_of_members_survive_a_kill_a_save_and_a_reload() {
    let dir = TempDir::new();
    for appendonly in ["yes", "no"] {
        let launch = launch()
            .with("appendonly", appendonly)
            .with("enable-debug-command", "yes")
            .with("dir", &dir.path().join(appendonly).display().to_string());
        std::fs::create_dir_all(dir.path().join(appendonly)).expect("a directory");
        let server = launch.start();
        let mut c = server.connect();
        c.check("SADD timed a b 7", ":3");
        c.check("SPEXPIREAT timed 9999999999123 MEMBERS 2 a 7", "[:1, :1]");
        for first in (0..20_000).step_by(100) {
            let members: Vec<_> =
                (first..first + 100).map(|number| format!("member:{number:010}")).collect();
            c.ask(&format!("SADD large {}", members.join(" ")));
        }
        c.check("SPEXPIREAT large 9999999999456 MEMBERS 1 member:0000000007", "[:1]");
        c.check("SADDEX gone PXAT 9999999999456 MEMBERS 1 a", ":1");
        c.check("SPERSIST gone MEMBERS 1 a", "[:1]");
        if appendonly == "no" {
            c.check("SAVE", "+OK");
        }
        drop::<Server>(server);
        let server = launch.start();
        let mut c = server.connect();
        for round in 0..2 {
            c.check("SPEXPIRETIME timed MEMBERS 3 a b 7", "[:9999999999123, :-1, :9999999999123]");
            c.check("SCARD large", ":20000");
            c.check(
                "SPEXPIRETIME large MEMBERS 2 member:0000000007 member:0000000008",
                "[:9999999999456, :-1]",
            );
            c.check("SPEXPIRETIME gone MEMBERS 1 a", "[:-1]");
            if round == 0 {
                c.check("COPY timed copy", ":1");
                c.check("RENAME copy timed", "+OK");
                c.check("DEBUG RELOAD", "+OK");
            }
        }
        let payload = c.call(&["DUMP", "timed"]).bytes().to_vec();
        c.call(&[&b"RESTORE"[..], b"restored", b"0", &payload]);
        c.check("STTL restored MEMBERS 3 a b 7", "[:-1, :-1, :-1]");
    }
}
