//! The process and its surroundings.

use super::super::directive::{Directive, row};
use super::super::kind::{Invalid, Kind};
use super::super::value::Value;
use super::{COUNT_OR_SIZE, INT_MAX, LONG};

/// More workers than that no machine we know can feed.
const THREADS_MAX: i64 = 1024;
/// More shards than that only cost memory.
const SHARDS_MAX: i64 = tierce_keyspace::SHARDS_MAX as i64;

const FACILITIES: Kind = Kind::Word(&[
    "user", "local0", "local1", "local2", "local3", "local4", "local5", "local6", "local7",
]);
const SHUTDOWN: Kind = Kind::Words(&["default", "save", "nosave", "now", "force"]);

#[rustfmt::skip]
pub(super) const ROWS: &[Directive] = &[
    row("threads", Kind::Int(0, THREADS_MAX), "0",
        "Worker threads that serve clients; 0 leaves one core free: one less than there are cores, and at least one.")
        .before_start(),
    row("shards", Kind::Int(0, SHARDS_MAX), "0",
        "Parts of the key space, each with a lock of its own: a power of two, or 0 to have it \
         chosen to suit `threads`.")
        .before_start().checked(power_of_two),
    row("databases", Kind::Int(1, INT_MAX), "16",
        "Databases to choose from with SELECT, counted from 0.")
        .before_start(),
    row("loglevel", Kind::Word(&["debug", "verbose", "notice", "warning", "nothing"]), "notice",
        "How much to log: debug, verbose, notice, warning, or nothing."),
    row("logfile", Kind::Text, "",
        "File to log into. Empty: standard output.")
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
        "Seconds that a shutdown waits for replicas to catch up.")
        .accepted("There are no replicas to wait for."),
    row("shutdown-on-sigint", SHUTDOWN, "default",
        "How to shut down at SIGINT, with the words of SHUTDOWN.")
        .checked(save_or_not),
    row("shutdown-on-sigterm", SHUTDOWN, "default",
        "How to shut down at SIGTERM, with the words of SHUTDOWN.")
        .checked(save_or_not),
    row("busy-reply-threshold", LONG, "5000",
        "Milliseconds after which a running script lets others see BUSY.")
        .alias("lua-time-limit")
        .accepted("There are no scripts that could keep the server busy."),
    row("hz", Kind::Clamped(1, 500), "10",
        "How often a second Redis does its chores.")
        .accepted("Chores follow deadlines instead of a clock."),
    row("dynamic-hz", Kind::Bool, "yes",
        "Do chores more often with more clients.")
        .accepted("Chores follow deadlines instead of a clock."),
    row("io-threads", Kind::Int(1, 128), "1",
        "Threads that Redis uses to read and write.")
        .before_start()
        .accepted("`threads` says how many threads serve clients; they read and write, too."),
    row("io-threads-do-reads", Kind::Bool, "no",
        "Whether those threads read, too.")
        .before_start()
        .accepted("The `threads` that serve clients read and write, too."),
    row("server-cpulist", Kind::Text, "",
        "Cores for the threads that serve clients, such as `0-7:2`.")
        .alias("server_cpulist").before_start()
        .accepted("The scheduler places threads; a service manager can bind the process \
                   (CPUAffinity=)."),
    row("bio-cpulist", Kind::Text, "",
        "Cores for background threads.")
        .alias("bio_cpulist").before_start()
        .accepted("The scheduler places threads; a service manager can bind the process \
                   (CPUAffinity=)."),
    row("aof-rewrite-cpulist", Kind::Text, "",
        "Cores for compaction of the log.")
        .alias("aof_rewrite_cpulist").before_start()
        .accepted("The scheduler places threads; a service manager can bind the process \
                   (CPUAffinity=)."),
    row("bgsave-cpulist", Kind::Text, "",
        "Cores for writing snapshots.")
        .alias("bgsave_cpulist").before_start()
        .accepted("The scheduler places threads; a service manager can bind the process \
                   (CPUAffinity=)."),
    row("oom-score-adj", Kind::Word(&["no", "yes", "relative", "absolute"]), "no",
        "Tell the kernel whom to kill first when memory runs out.")
        .refused(&[],
            "the server does not touch its score; set OOMScoreAdjust= in the service's unit"),
    row("oom-score-adj-values", Kind::OomScores, "0 200 800",
        "Scores for a server, a replica, and background work.")
        .accepted("Only `oom-score-adj` would use them."),
    row("disable-thp", Kind::Bool, "yes",
        "Turn transparent huge pages off for the process.")
        .before_start()
        .accepted("Huge pages hurt servers that fork, which this one does not."),
    row("syslog-enabled", Kind::Bool, "no",
        "Log to the system log, too.")
        .before_start()
        .refused(&[],
            "nothing goes to the system log; with an empty logfile, systemd keeps what is logged"),
    row("syslog-ident", Kind::Text, "tierce",
        "Name in the system log.")
        .redis("redis").before_start()
        .accepted("Only `syslog-enabled` would use it."),
    row("syslog-facility", FACILITIES, "local0",
        "Facility in the system log.")
        .before_start()
        .accepted("Only `syslog-enabled` would use it."),
    row("crash-log-enabled", Kind::Bool, "yes",
        "Write a report into the log when the server crashes.")
        .accepted("A crash is reported on the standard error in any case."),
    row("crash-memcheck-enabled", Kind::Bool, "yes",
        "Check the memory after a crash.")
        .accepted("A crash does not check the memory."),
    row("use-exit-on-panic", Kind::Bool, "no",
        "Exit after a failed assertion instead of leaving a core file.")
        .hidden()
        .accepted("For tests of Redis."),
    row("watchdog-period", COUNT_OR_SIZE, "0",
        "Milliseconds after which a stuck server logs where it is.")
        .hidden()
        .accepted("No watchdog looks after the server."),
    row("always-show-logo", Kind::Bool, "no",
        "Show the logo at the start even if nobody watches.")
        .before_start()
        .accepted("There is no logo."),
    row("set-proc-title", Kind::Bool, "yes",
        "Set the process title to `proc-title-template`.")
        .before_start()
        .accepted("The title stays the command line."),
    row("proc-title-template", Kind::Text, "{title} {listen-addr} {server-mode}",
        "What the process title says.")
        .checked(title_template)
        .accepted("The title stays the command line."),
    row("hide-user-data-from-log", Kind::Bool, "no",
        "Keep keys and values out of the log.")
        .accepted("Keys and values are never logged."),
    row("locale-collate", Kind::Text, "",
        "Locale by which scripts compare texts. Empty: that of the environment.")
        .refused(&["C", "POSIX"],
            "SORT ALPHA compares bytes, as in the locale C"),
    row("ignore-warnings", Kind::Text, "",
        "Warnings of the start that should not stop the server.")
        .accepted("No warning stops a start."),
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

fn title_template(value: &Value) -> Result<(), Invalid> {
    const NAMES: [&[u8]; 7] = [
        b"title",
        b"listen-addr",
        b"server-mode",
        b"port",
        b"tls-port",
        b"unixsocket",
        b"config-file",
    ];
    let Value::Text(template) = value else { return Ok(()) };
    // Every part behind an opening brace starts with a known name and a closing brace.
    let known = !template.is_empty()
        && template.split(|&byte| byte == b'{').skip(1).all(|part| {
            let name = part.split(|&byte| byte == b'}').next();
            part.contains(&b'}') && name.is_some_and(|name| NAMES.contains(&name))
        });
    match known {
        true => Ok(()),
        false => Err(Invalid::new("template format is invalid or contains unknown variables")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::directive::DirectiveId;

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
