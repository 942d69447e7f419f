//! The named tests: `-t get,set`, as in redis-benchmark.

use crate::template::Template;

/// A named command, with the preconditions of its test.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Test {
    /// Name of the test for `-t`.
    pub(crate) name: &'static str,
    words: &'static [&'static str],
}

/// All named tests, in the order of the help text.
const TESTS: &[Test] = &[
    Test { name: "ping", words: &["PING"] },
    Test { name: "set", words: &["SET", "__key__", "__data__"] },
    Test { name: "get", words: &["GET", "__key__"] },
    Test { name: "incr", words: &["INCR", "counter:__rand_int__"] },
    Test {
        name: "mset",
        words: &[
            "MSET", "__key__", "__data__", "__key__", "__data__", "__key__", "__data__", "__key__",
            "__data__", "__key__", "__data__", "__key__", "__data__", "__key__", "__data__",
            "__key__", "__data__", "__key__", "__data__", "__key__", "__data__",
        ],
    },
    Test {
        name: "mget",
        words: &[
            "MGET", "__key__", "__key__", "__key__", "__key__", "__key__", "__key__", "__key__",
            "__key__", "__key__", "__key__",
        ],
    },
    Test { name: "append", words: &["APPEND", "append:__rand_int__", "__data__"] },
    Test { name: "setnx", words: &["SETNX", "__key__", "__data__"] },
    Test { name: "setex", words: &["SETEX", "__key__", "60", "__data__"] },
    Test { name: "exists", words: &["EXISTS", "__key__"] },
    Test { name: "expire", words: &["EXPIRE", "__key__", "60"] },
    Test { name: "ttl", words: &["TTL", "__key__"] },
    Test { name: "del", words: &["DEL", "__key__"] },
    Test { name: "lpush", words: &["LPUSH", "mylist", "__data__"] },
    Test { name: "rpush", words: &["RPUSH", "mylist", "__data__"] },
    Test { name: "lpop", words: &["LPOP", "mylist"] },
    Test { name: "rpop", words: &["RPOP", "mylist"] },
    Test { name: "lrange_100", words: &["LRANGE", "mylist", "0", "99"] },
    Test { name: "lrange_300", words: &["LRANGE", "mylist", "0", "299"] },
    Test { name: "lrange_600", words: &["LRANGE", "mylist", "0", "599"] },
    Test { name: "sadd", words: &["SADD", "myset", "element:__rand_int__"] },
    Test { name: "spop", words: &["SPOP", "myset"] },
    Test { name: "hset", words: &["HSET", "myhash", "element:__rand_int__", "__data__"] },
    Test { name: "hget", words: &["HGET", "myhash", "element:__rand_int__"] },
    Test { name: "zadd", words: &["ZADD", "myzset", "__rand_int__", "element:__rand_int__"] },
    Test { name: "zpopmin", words: &["ZPOPMIN", "myzset"] },
    Test { name: "xadd", words: &["XADD", "mystream", "*", "myfield", "__data__"] },
];

/// Returns the names of all tests, for people.
pub(crate) fn names() -> String {
    TESTS.iter().map(|test| test.name).collect::<Vec<_>>().join(", ")
}

impl Test {
    /// Finds a test by name, in any case.
    pub(crate) fn named(name: &str) -> Option<Self> {
        TESTS.iter().find(|test| test.name.eq_ignore_ascii_case(name)).copied()
    }

    /// Returns the command.
    pub(crate) fn template(self) -> Template {
        Template::new(self.words)
    }

    /// Returns the headline of its results.
    pub(crate) fn title(self) -> String {
        self.name.to_uppercase()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_test_has_a_name_of_its_own_and_a_command() {
        for (index, test) in TESTS.iter().enumerate() {
            assert_eq!(test.name, test.name.to_lowercase());
            assert!(!test.template().name().is_empty());
            assert!(TESTS[index + 1..].iter().all(|other| other.name != test.name));
        }
    }

    #[test]
    fn tests_are_found_in_any_case() {
        assert_eq!(Test::named("GeT").unwrap().name, "get");
        assert!(Test::named("gett").is_none());
    }
}
