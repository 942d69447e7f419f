//! SORT and SORT_RO, in both protocols.

use redis::{Connection, Value};

use crate::both_protocols::redis::{error, run, with_both};

/// Returns the elements separated by spaces; `-` for an absent one.
fn sorted(c: &mut Connection, line: &str) -> String {
    let texts: Vec<Option<String>> = run(c, line).expect(line);
    texts.into_iter().map(|text| text.unwrap_or("-".into())).collect::<Vec<_>>().join(" ")
}

#[test]
fn by_the_elements() {
    with_both(|c| {
        run::<()>(c, "RPUSH l 10 9 -1 2.5 9 inf").expect("a list");
        assert_eq!(sorted(c, "SORT l"), "-1 2.5 9 9 10 inf");
        assert_eq!(sorted(c, "SORT_RO l DESC LIMIT 1 3"), "10 9 9");
        assert_eq!(sorted(c, "SORT l ALPHA"), "-1 10 2.5 9 9 inf");
        assert_eq!(sorted(c, "SORT l LIMIT 4 100"), "10 inf");
        assert_eq!(sorted(c, "SORT l LIMIT -1 1"), "-1");
        assert_eq!(sorted(c, "SORT l LIMIT 9 1"), "");
        assert_eq!(sorted(c, "SORT l BY nosort LIMIT 1 2"), "9 -1");
        assert_eq!(sorted(c, "SORT l BY nosort DESC LIMIT 1 2"), "9 2.5");
        assert_eq!(sorted(c, "SORT absent"), "");
        run::<()>(c, "RPUSH l word").expect("a list");
        assert_eq!(error(c, "SORT l"), "One or more scores can't be converted into double");
        assert_eq!(error(c, "SORT l LIMIT 1"), "syntax error");
        assert_eq!(error(c, "SORT_RO l STORE x"), "syntax error");
        assert_eq!(error(c, "SORT l LIMIT a b"), "value is not an integer or out of range");
        run::<()>(c, "SET s x").expect("a string");
        assert_eq!(run::<Value>(c, "SORT s").expect_err("a string").code(), Some("WRONGTYPE"));
    });
}

#[test]
fn by_other_keys() {
    with_both(|c| {
        run::<()>(c, "RPUSH l a b c d").expect("a list");
        run::<()>(c, "MSET w_a 3 w_b 1 w_c 2 name_a Ann name_c Cid").expect("strings");
        assert_eq!(sorted(c, "SORT l BY w_*"), "d b c a");
        assert_eq!(sorted(c, "SORT l BY w_* DESC GET # GET name_*"), "a Ann c Cid b - d -");
        assert_eq!(sorted(c, "SORT l BY name_* ALPHA GET w_* LIMIT 2 2"), "3 2");
        assert_eq!(sorted(c, "SORT l BY nosort GET # GET nothing"), "a - b - c - d -");
        assert_eq!(run(c, "SORT l BY w_* GET name_* STORE to"), Ok(4));
        assert_eq!(sorted(c, "LRANGE to 0 -1"), "  Cid Ann");
        assert_eq!(run(c, "SORT absent STORE to"), Ok(0));
        assert_eq!(run(c, "EXISTS to"), Ok(0));
        assert_eq!(run(c, "SORT l ALPHA DESC STORE l"), Ok(4));
        assert_eq!(sorted(c, "LRANGE l 0 -1"), "d c b a");
    });
}
