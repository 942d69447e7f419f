//! The process and its environment.

use super::super::directive::{Directive, row};
use super::super::kind::{COUNT_OR_SIZE, INT_MAX, Invalid, Kind, LONG};
use super::super::value::Value;

/// Upper bound of worker threads. No machine we know can use more.
const THREADS_MAX: i64 = 1024;
/// Upper bound of shards. More would only cost memory.
const SHARDS_MAX: i64 = tierce_keyspace::SHARDS_MAX as i64;
const SHUTDOWN: Kind = Kind::Words(&["default", "save", "nosave", "now", "force"]);

#[rustfmt::skip]
pub(super) const ROWS: &[Directive] = &[
    row("threads", Kind::Int(0, THREADS_MAX), "0",
        "Worker threads that serve clients. 0: one less than there are cores, and at least one.")
        .own("0.1.0")
        .before_start(),
    row("shards", Kind::Int(0, SHARDS_MAX), "0",
        "Shards of the keyspace, each with its own lock: a power of two. 0: 64 for each worker thread, from 256 to 1024.")
        .own("0.1.0")
        .before_start().checked(power_of_two),
    row("databases", Kind::Int(1, INT_MAX), "16",
        "Number of databases. SELECT counts them from 0.")
        .before_start(),
    row("loglevel", Kind::Word(&["debug", "verbose", "notice", "warning", "nothing"]), "notice",
        "Amount of logging: debug, verbose, notice, warning, or nothing."),
    row("log-format", Kind::Word(&["redis", "json"]), "redis",
        "Format of the log: lines as in Redis, or a JSON object with `time`, `level`, `pid`, `role` and \
         `message`.")
        .own("0.1.0"),
    row("logfile", Kind::Text, "",
        "File to log into, which SIGHUP opens again, after a rotation. Empty: standard output.")
        .before_start(),
    row("pidfile", Kind::Text, "",
        "File to write the process id into, removed at a clean exit. Empty: none.")
        .before_start(),
    row("daemonize", Kind::Bool, "no",
        "Run in the background, once the server is ready.")
        .before_start(),
    row("supervised", Kind::Word(&["upstart", "systemd", "auto", "no"]), "no",
        "Tell systemd when the server is ready, and when it ends, over $NOTIFY_SOCKET. `auto`: if there \
         is one.")
        .before_start()
        .refused(&["systemd", "auto"],
            "upstart is gone from all distributions; use systemd, or auto"),
    row("shutdown-timeout", COUNT_OR_SIZE, "10",
        "Seconds that a shutdown waits for replicas to catch up, while writes are held back. 0: it does not."),
    row("shutdown-on-sigint", SHUTDOWN, "default",
        "Kind of shutdown at SIGINT, with the words of SHUTDOWN.")
        .checked(save_or_not),
    row("shutdown-on-sigterm", SHUTDOWN, "default",
        "Kind of shutdown at SIGTERM, with the words of SHUTDOWN.")
        .checked(save_or_not),
    row("busy-reply-threshold", LONG, "5000",
        "Milliseconds after which clients that need keys which a script holds get BUSY. 0: never.")
        .alias("lua-time-limit"),
    row("script-time-limit", LONG, "0",
        "Milliseconds after which a script or function is ended, and what it has written is undone. 0: never.")
        .own("0.1.0"),
    row("script-memory-limit", Kind::Memory(0, i64::MAX as u64), "0",
        "Bytes that a script or function may take, with what is kept to undo its writes. One that needs more is \
         ended, and what it has written is undone. 0: no limit.")
        .own("0.1.0"),
    row("script-atomic", Kind::Bool, "no",
        "Undo what a script or function has written when it fails, as if it had the flag `atomic`.")
        .own("0.1.0"),
    row("oom-score-adj", Kind::Word(&["no", "yes", "relative", "absolute"]), "no",
        "Tell the kernel whom to kill first when memory runs out.")
        .refused(&[],
            "the server does not touch its score; set OOMScoreAdjust= in the service's unit"),
    row("syslog-enabled", Kind::Bool, "no",
        "Log to the system log, too.")
        .before_start()
        .refused(&[],
            "nothing goes to the system log; with an empty logfile, systemd keeps what is logged"),
    row("locale-collate", Kind::Text, "",
        "Locale by which scripts compare texts. Empty: that of the environment.")
        .refused(&["C", "POSIX"],
            "SORT ALPHA compares bytes, as in the locale C"),
];

fn power_of_two(value: &Value) -> Result<(), Invalid> {
    match value {
        Value::Int(0) => Ok(()),
        Value::Int(number) if number.unsigned_abs().is_power_of_two() => Ok(()),
        _ => Err(Invalid::new("argument must be a power of two, or 0")),
    }
}

fn save_or_not(value: &Value) -> Result<(), Invalid> {
    match value {
        Value::Words(words) if words.contains(&"save") && words.contains(&"nosave") => {
            Err(Invalid::new("shutdown options SAVE and NOSAVE can't be used simultaneously"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::table::DirectiveId;

    fn check(name: &str, given: &str, expected: Result<(), &str>) {
        let directive = DirectiveId::of(name).directive();
        let result = directive.parse(&[given.as_bytes()], None);
        let reason = result.map(drop).map_err(|reason| reason.to_string());
        assert_eq!(reason, expected.map_err(str::to_owned), "{name} {given:?}");
    }

    #[test]
    fn shards_are_a_power_of_two() {
        check("shards", "0", Ok(()));
        check("shards", "1024", Ok(()));
        check("shards", "1000", Err("argument must be a power of two, or 0"));
    }

    #[test]
    fn a_shutdown_saves_or_does_not() {
        check("shutdown-on-sigint", "nosave now", Ok(()));
        let both = "shutdown options SAVE and NOSAVE can't be used simultaneously";
        check("shutdown-on-sigint", "save nosave", Err(both));
    }

    #[test]
    fn a_title_names_known_variables() {
        let unknown = Err("template format is invalid or contains unknown variables");
        check("proc-title-template", "db {port}{tls-port} }", Ok(()));
        check("proc-title-template", "{foo}", unknown);
        check("proc-title-template", "{port", unknown);
        check("proc-title-template", "{}", unknown);
        check("proc-title-template", "", unknown);
    }
}
