//! Tests that run once in each protocol, on an empty server.
//!
//! `raw` uses the harness, which sees every byte; `redis` uses the `redis` crate, like an
//! application.

/// Uses the harness.
pub(crate) mod raw {
    use tierce_harness::Connection;

    use crate::server;

    /// Runs `test` with a connection of either protocol.
    pub(crate) fn with_both(test: impl Fn(&mut Connection)) {
        let server = server();
        for mut c in [server.connect(), server.connect_resp3()] {
            c.check("FLUSHALL", "+OK");
            test(&mut c);
        }
    }

    /// Checks a reply whose null is `nil` in RESP2.
    pub(crate) fn check_nil(c: &mut Connection, line: &str, expected: &str) {
        let reply = c.ask(line).to_string();
        assert_eq!(reply.replace("null", "nil"), expected, "the reply to: {line}");
    }
}

/// Uses the `redis` crate.
pub(crate) mod redis {
    use ::redis::{Connection, FromRedisValue, RedisResult, Value};
    use tierce_harness::Server;

    use crate::server;

    /// Runs `test` with a connection of either protocol.
    pub(crate) fn with_both(test: impl Fn(&mut Connection)) {
        let server = server();
        for protocol in ["resp2", "resp3"] {
            let mut c = connect(&server, protocol);
            run::<()>(&mut c, "FLUSHALL").expect("an empty server");
            test(&mut c);
        }
    }

    pub(crate) fn connect(server: &Server, protocol: &str) -> Connection {
        let url = format!("redis://{}/?protocol={protocol}", server.address());
        let client = ::redis::Client::open(url).expect("an address");
        client.get_connection().expect("a connection")
    }

    /// Sends the words of a line and returns the reply as the requested type.
    pub(crate) fn run<T: FromRedisValue>(c: &mut Connection, line: &str) -> RedisResult<T> {
        let words = tierce_harness::words(line);
        ::redis::cmd(&words[0]).arg(&words[1..]).query(c)
    }

    /// Returns the error reply to a command, without its kind.
    pub(crate) fn error(c: &mut Connection, line: &str) -> String {
        let error = run::<Value>(c, line).expect_err(line);
        error.detail().unwrap_or_default().to_owned()
    }
}
