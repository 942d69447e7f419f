//! Every directive of Redis 7.2's configuration file acts, is accepted with a reason, or is refused: in a
//! file, in CONFIG SET and in docs/configuration.md alike.

use tierce_harness::{Launch, Outcome, TempDir, certificate_file, wait_until, words};

use crate::{launch, program};

const DIRECTIVES: &str = include_str!("redis-7.2-directives.txt");
const DOCS: &str = include_str!("../docs/configuration.md");

#[derive(Debug, PartialEq)]
enum Verdict {
    Acts,
    Accepted,
    Refused,
}

fn documented(name: &str, value: &str) -> Verdict {
    let row = DOCS.lines().find(|line| line.starts_with(&format!("| `{name}`")));
    let row = row.unwrap_or_else(|| panic!("{name} is not documented"));
    match row.split_once("**Refused.**") {
        Some((_, why)) if !why.contains(&format!("`{value}`")) => Verdict::Refused,
        _ if row.contains("**Accepted.**") => Verdict::Accepted,
        _ => Verdict::Acts,
    }
}

fn checked(dir: &TempDir, line: &str) -> (Verdict, Outcome) {
    let file = dir.write("one.conf", line);
    let outcome = Launch::new(program()).argument("--check-config").argument(file).run();
    let verdict = match outcome.code {
        Some(0) if outcome.errors.contains("accepted without effect") => Verdict::Accepted,
        Some(0) => Verdict::Acts,
        _ => Verdict::Refused,
    };
    (verdict, outcome)
}

fn certificates() -> String {
    let file = |name| certificate_file(name).display().to_string();
    format!(
        "tls-cert-file {}\ntls-key-file {}\ntls-ca-cert-file {}\n",
        file("server.crt"),
        file("server.key"),
        file("ca.crt")
    )
}

/// The check also reports errors that would only prevent the start.
#[test]
fn certificates_are_checked_with_the_configuration() {
    let dir = TempDir::new();
    let outcome = checked(&dir, &format!("tls-port 6380\n{}", certificates()));
    assert_eq!(outcome.0, Verdict::Acts, "{outcome:?}");
    for (wrong, told) in [
        (String::new(), "tls-ca-cert-file is needed for tls-auth-clients"),
        (certificates().replace("ca.crt", "none.crt"), "none.crt"),
        (certificates().replace("server.key", "rsa.key"), "do not fit together"),
        (certificates() + "tls-ciphers RC4-SHA\n", "tls-ciphers"),
    ] {
        let (verdict, outcome) = checked(&dir, &format!("tls-port 6380\n{wrong}"));
        assert_eq!(verdict, Verdict::Refused, "{wrong}");
        assert!(outcome.errors.contains(told), "{outcome:?}");
    }
}

#[test]
fn file_config_set_and_documents_agree_on_every_directive() {
    let dir = TempDir::new();
    let server = launch().start();
    let mut c = server.connect();
    for line in DIRECTIVES.lines().filter(|line| !line.starts_with('#')) {
        let parts: Vec<_> = line.split('|').collect();
        let [name, _, value] = parts[..] else { panic!("{line}") };
        // It is read, so it has to exist.
        let users = dir.write("users.acl", "user alice off\n").display().to_string();
        let value = if name == "aclfile" { users.as_str() } else { value };
        // Encrypted connections need a certificate.
        let more = if name == "tls-port" { certificates() } else { String::new() };
        let (in_file, outcome) = checked(&dir, &format!("{name} {value}\n{more}"));
        assert_eq!(in_file, documented(name, value), "{name}: {outcome:?}");
        if in_file == Verdict::Refused {
            assert!(outcome.errors.contains(": refused, "), "{name}: {outcome:?}");
        }
        // The first two would take a port that another test may get, and the third needs the files of the lines
        // before it.
        if ["port", "tls-port", "tls-replication"].contains(&name) {
            continue;
        }
        let value = words(value).join(" ");
        let before = c.call(&["CONFIG", "GET", name]).items()[1].clone();
        let reply = c.call(&["CONFIG", "SET", name, &value]);
        let reply = String::from_utf8_lossy(reply.bytes()).into_owned();
        let after = c.call(&["CONFIG", "GET", name]).items()[1].clone();
        let is_fixed =
            ["immutable", "protected"].iter().any(|word| reply.contains(&format!("{word} config")));
        match (in_file, reply.as_str()) {
            (Verdict::Acts | Verdict::Accepted, "OK") => {}
            (Verdict::Refused, _) if !is_fixed => {
                let (_, why) = outcome.errors.split_once(": refused, ").expect("a reason");
                assert!(reply.ends_with(why.trim()), "{name}: {reply}");
                assert_eq!(after, before, "{name}");
            }
            _ => {
                assert!(is_fixed, "{name}: {reply}");
                assert_eq!(after, before, "{name}");
            }
        }
    }
}

/// Directives of Redis that are newer than 7.2.
const NEWER: [&str; 5] = [
    "hide-user-data-from-log",
    "max-new-connections-per-cycle",
    "max-new-tls-connections-per-cycle",
    "stream-idmp-duration",
    "stream-idmp-maxsize",
];

#[test]
fn directives_that_redis_does_not_have_say_so() {
    let names = DIRECTIVES.lines().filter_map(|line| line.split_once('|')).map(|(name, _)| name);
    let of_redis: Vec<_> = names.chain(NEWER).collect();
    let (rows, _) = DOCS.split_once("## Other lines of a file").expect("the tables of directives");
    let rows = rows.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    let mut own = 0;
    for (name, row) in rows {
        let is_own = row.contains("Since Tierce ");
        assert_eq!(is_own, !of_redis.contains(&name), "{name}");
        own += usize::from(is_own);
    }
    assert!(own > 10, "{own} directives of Tierce's own");
}

#[test]
fn what_is_refused_and_what_is_odd_reaches_the_log() {
    let dir = TempDir::new();
    let log = dir.path().join("server.log");
    let file = dir.write(
        "refused.conf",
        &format!("logfile {}\nloadmodule x.so\ntls-cluster yes\n", log.display()),
    );
    let outcome = Launch::new(program()).file(&file).run();
    assert_eq!((outcome.code, outcome.errors.lines().count()), (Some(1), 2), "{outcome:?}");
    let logged = std::fs::read_to_string(&log).expect("a log");
    for said in ["refused.conf:2: loadmodule: refused", "refused.conf:3: tls-cluster: refused"] {
        assert!(outcome.errors.contains(said) && logged.contains(said), "{said}: {logged}");
    }
    let file = dir.write("odd.conf", &format!("logfile {}\nio-threads 4\n", log.display()));
    let _server = launch().file(&file).start();
    // The line is in the log before the harness sees it on standard output.
    let logged = std::fs::read_to_string(&log).expect("a log");
    assert!(logged.contains(" * Ready to accept connections\n"), "{logged}");
    let said = "odd.conf:2: io-threads: accepted without effect";
    wait_until("the note is in the log", || {
        std::fs::read_to_string(&log).expect("a log").contains(said)
    });
}
