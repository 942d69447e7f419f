//! Directives come from a file, the command line and the environment, in rising precedence. A wrong
//! option or directive ends with one clear line and exit code 1.

use tierce_harness::{Launch, Outcome, TempDir};

use crate::{launch, program};

#[test]
fn precedence() {
    let dir = TempDir::new();
    let file = dir.write("server.conf", "timeout 10\nslowlog-max-len 10\nmaxclients 10\n");
    let server = launch()
        .file(&file)
        .with("slowlog-max-len", "20")
        .with("maxclients", "20")
        .variable("TIERCE_MAXCLIENTS", "30")
        .variable("TIERCE_LATENCY_MONITOR_THRESHOLD", "31")
        .start();
    let mut c = server.connect();
    for (name, value) in [
        ("timeout", 10),
        ("slowlog-max-len", 20),
        ("maxclients", 30),
        ("latency-monitor-threshold", 31),
    ] {
        c.check(&format!("CONFIG GET {name}"), &format!("[\"{name}\", \"{value}\"]"));
    }
}

#[test]
fn a_file_may_include_another() {
    let dir = TempDir::new();
    dir.write("more.conf", "timeout 20\n");
    let file = dir.write(
        "server.conf",
        "# A comment\n\n  TIMEOUT 10\ninclude more.conf\nrequirepass \"a \\x41\"\n",
    );
    // The path of an included file is relative to the working directory of the server.
    std::fs::write(
        dir.path().join("abs.conf"),
        std::fs::read_to_string(&file)
            .expect("the file")
            .replace("more.conf", &dir.path().join("more.conf").display().to_string()),
    )
    .expect("a file");
    let server = launch().file(dir.path().join("abs.conf")).start();
    let mut c = server.connect();
    c.check("AUTH 'a A'", "+OK");
    c.check("CONFIG GET timeout", "[\"timeout\", \"20\"]");
}

/// Expects one line on standard error that contains `named`, nothing else, and exit code 1.
fn check_refused(outcome: &Outcome, named: &str) {
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    assert_eq!(outcome.errors.lines().count(), 1, "{outcome:?}");
    assert!(outcome.errors.starts_with("tierce: "), "{outcome:?}");
    assert!(outcome.errors.contains(named), "{named} in {outcome:?}");
}

#[test]
fn mistakes_are_one_line_and_exit_code_1() {
    let bare = || Launch::new(program());
    check_refused(&bare().with("maxclients", "many").run(), "maxclients");
    check_refused(&bare().with("no-such-directive", "1").run(), "no-such-directive");
    check_refused(&bare().with("shards", "1000").run(), "shards");
    check_refused(&bare().argument("nowhere.conf").run(), "nowhere.conf");
    check_refused(&bare().variable("TIERCE_PORT", "x").run(), "TIERCE_PORT");
    check_refused(&bare().with("port", "99999").run(), "port");
    let dir = TempDir::new();
    let file = dir.write("broken.conf", "timeout 5\nmaxclients\n");
    check_refused(&bare().file(&file).run(), "broken.conf:2");
    // It may be a misspelled password.
    let file = dir.write("unknown.conf", "timeout 5\nrequirepas secret\n");
    check_refused(&bare().file(&file).run(), "unknown.conf:2: requirepas: unknown directive");
    let file = dir.write("quotes.conf", "requirepass \"open\n");
    check_refused(&bare().file(&file).run(), "quotes.conf:1");
    let file = dir.write("outer.conf", "timeout 5\ninclude /no/such.conf\n");
    check_refused(&bare().file(&file).run(), "outer.conf:2: include: cannot read /no/such.conf");
    check_refused(
        &bare().with("port", "0").with("unixsocket", "s").with("dir", "/dev/null").run(),
        "dir /dev/null: ",
    );
    check_refused(&bare().file(dir.path()).run(), dir.path().to_str().expect("UTF-8"));
}

#[test]
fn all_mistakes_of_a_configuration_are_told_at_once() {
    let dir = TempDir::new();
    let file = dir.write("many.conf", "maxclients many\ntimeout 5\nrequirepas x\n");
    for check in [&[][..], &["--check-config"]] {
        let launch = check.iter().fold(Launch::new(program()), |to, word| to.argument(word));
        let outcome = launch.argument(&file).argument("--port").argument("99999").run();
        assert_eq!(outcome.code, Some(1), "{outcome:?}");
        let lines: Vec<&str> = outcome.errors.lines().collect();
        assert_eq!(lines.len(), 3, "{outcome:?}");
        for (line, named) in
            lines.iter().zip(["many.conf:1: maxclients", "many.conf:3: requirepas", "port"])
        {
            assert!(line.starts_with("tierce: ") && line.contains(named), "{named}: {outcome:?}");
        }
    }
}

#[test]
fn help_and_version() {
    let bare = || Launch::new(program());
    for argument in ["--help", "-h", "--version", "-v", "--help-directives"] {
        let outcome = bare().argument(argument).run();
        assert_eq!((outcome.code, outcome.errors.as_str()), (Some(0), ""), "{argument}");
        assert!(outcome.output.starts_with("tierce ") || argument == "--help-directives");
    }
    let tools = [
        "bench", "race", "check", "repair", "import", "export", "inspect", "doctor", "bucket",
        "man",
    ];
    for tool in tools.into_iter().chain(["completions"]) {
        let outcome = bare().argument(tool).argument("--help").run();
        assert_eq!((outcome.code, outcome.errors.as_str()), (Some(0), ""), "{tool}");
        let usage = format!("Usage: tierce {tool} ");
        assert!(outcome.output.contains(&usage), "{outcome:?}");
        assert!(!outcome.output.contains("command line of"), "{outcome:?}");
        assert!(outcome.output.contains(&format!("Example:\n  tierce {tool} ")), "{outcome:?}");
    }
    check_refused(&bare().argument("nosuchtool").argument("--help").run(), "no such tool");
    check_refused(
        &bare().argument("imprt").argument("--help").run(),
        "did you mean tierce import?",
    );
    let help = bare().argument("--help").run().output;
    assert!(help.contains("Usage:") && help.contains("port"), "{help}");
    assert!(help.lines().all(|line| line.len() <= 80), "{help}");
    assert!(help.lines().count() < 24, "more than a screen with its prompt: {help}");
}

#[test]
fn the_start_says_what_runs() {
    let server = launch().with("threads", "2").start();
    let said = server.output() + &server.errors();
    assert!(said.contains(&format!("127.0.0.1:{}", server.port())), "{said}");
    let workers = said.lines().find(|line| line.contains("workers")).expect("a line on workers");
    assert!(workers.contains(" 2 "), "{workers}");
    assert!(said.contains(&*server.dir().to_string_lossy()), "{said}");
    assert!(said.lines().count() <= 12, "a few lines: {said}");
}
