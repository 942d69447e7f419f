//! Patterns give the same as Lua's own library: values, errors, and arguments of called functions.

use std::fmt::Write;

use tierce_harness::{Random, effort};
use tierce_lua::fuzzing::{STOPPED, State};

/// Parts of patterns, including malformed ones.
const PARTS: &[&str] = &[
    "a", "b", "x", ".", "%a", "%d", "%s", "%w", "%A", "%z", "%%", "%.", "[ab]", "[^a]", "[a-c]",
    "[%d_]", "[]a]", "[^]]", "[a-]", "[%]]", "(", ")", "()", "(a)", "(.-)", "%1", "%2", "%b()",
    "%bab", "%f[%w]", "%f[^a]", "^", "$", "-", "[", "]", "%", "%f", "%b", "%bx", "[a", "[%", "\\0",
    "\\255", "%0",
];
const REPEATS: &[&str] = &["", "", "", "*", "+", "-", "?"];
const SUBJECT: &[&str] = &[
    "a", "b", "ab", "x", "()", "(a)", " ", "1", "_", "]", "^", "$", "-", "\\0", "\\255", "%", ".",
];
const REPLACEMENTS: &[&str] = &[
    "'<%0>'",
    "'%1%2'",
    "'x%'",
    "'%%'",
    "''",
    "'\\0'",
    "7",
    "true",
    "{a = 'A', ab = false, b = 1, x = {}}",
    "function(...) log(...) return ... end",
    "function(a) return a == 'a' and {} end",
    "function() error('e', 0) end",
    "setmetatable({}, {__index = function(_, key) return #key .. key end})",
];
const INITS: &[&str] = &[
    "",
    "",
    "",
    ", 1",
    ", 2",
    ", 0",
    ", -1",
    ", -2",
    ", 100",
    ", -100",
    ", 2, true",
    ", 'x'",
    ", '2'",
];
const LIMITS: &[&str] = &["", "", "", ", 0", ", 1", ", -1", ", 4294967297", ", 'y'"];

fn pick(random: &mut Random, from: &[&'static str]) -> &'static str {
    from[(random.next_u64() % from.len() as u64) as usize]
}

fn quoted(
    random: &mut Random,
    parts: &[&'static str],
    repeats: &[&'static str],
    len: u64,
) -> String {
    let mut text = String::from("'");
    for _ in 0..random.next_u64() % (len + 1) {
        text.push_str(pick(random, parts));
        text.push_str(pick(random, repeats));
    }
    text.push('\'');
    text
}

/// Returns a call of one function, in the table of functions named `library`.
fn call(random: &mut Random) -> String {
    let subject = quoted(random, SUBJECT, &[""], 8);
    let pattern = quoted(random, PARTS, REPEATS, 5);
    match random.next_u64() % 4 {
        0 => format!("return library.find({subject}, {pattern}{})", pick(random, INITS)),
        1 => format!("return library.match({subject}, {pattern}{})", pick(random, INITS)),
        2 => format!("for a, b, c in library.gmatch({subject}, {pattern}) do log(a, b, c) end"),
        _ => {
            let (by, limit) = (pick(random, REPLACEMENTS), pick(random, LIMITS));
            format!("return library.gsub({subject}, {pattern}, {by}{limit})")
        }
    }
}

/// Runs a call with both libraries, and reports differences.
const COMPARE: &str = "
    local code = ...
    local function run(library)
        local lines = {}
        local function log(...)
            for n = 1, select('#', ...) do lines[#lines + 1] = tostring((select(n, ...))) end
            lines[#lines + 1] = ';'
        end
        local chunk = assert(loadstring('local library, log = ... ' .. code, '=chunk'))
        local results = {pcall(chunk, library, log)}
        log(unpack(results, 1, 40))
        return table.concat(lines, ' ')
    end
    return run(puc), run(string)";

#[test]
fn thousands_of_patterns_give_what_lua_gives() {
    let seed = std::env::var("TIERCE_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    println!("TIERCE_SEED={seed}");
    let mut random = Random::new(seed);
    let state = State::new();
    let mut matches = 0;
    let calls = effort(14_000);
    for _ in 0..calls {
        let call = call(&mut random);
        let results = state.run(COMPARE, &[call.as_bytes()]).unwrap_or_else(|error| {
            panic!("{call}: {}", error.escape_ascii());
        });
        assert_eq!(
            results[0].escape_ascii().to_string(),
            results[1].escape_ascii().to_string(),
            "{call}"
        );
        matches += u32::from(results[0].starts_with(b"true"));
    }
    assert!(matches > calls / 20, "{matches} matches");
}

#[test]
fn a_pattern_that_backtracks_without_end_is_stopped() {
    let state = State::new();
    let subject = "a".repeat(200);
    for call in [
        "string.find(..., '.-.-.-.-.-.-x')",
        "string.match(..., 'a*a*a*a*a*a*b')",
        "string.gsub(..., '(.-)(.-)(.-)(.-)%1%2%3%4$.', '')",
    ] {
        assert_eq!(
            state.run(&format!("return {call}"), &[subject.as_bytes()]),
            Err(STOPPED.to_vec()),
            "{call}"
        );
    }
    // A bracket that is never closed costs the square of the subject's length.
    let open = "(".repeat(100_000);
    assert_eq!(
        state.run("return string.find(..., '%b()')", &[open.as_bytes()]),
        Err(STOPPED.to_vec())
    );
}

#[test]
fn a_long_pattern_needs_no_recursion() {
    let state = State::new();
    let mut pattern = String::new();
    for _ in 0..50_000 {
        write!(pattern, "a?").unwrap();
    }
    let subject = "a".repeat(50_000);
    let results = state.run("return string.find(...)", &[subject.as_bytes(), pattern.as_bytes()]);
    assert_eq!(results, Ok(vec![b"1".to_vec(), b"50000".to_vec()]));
}

#[test]
fn errors_of_functions_pass_through() {
    let state = State::new();
    let script = "
        local thrown = {}
        local ok, caught = pcall(string.gsub, ('a'):rep(2000), 'a', function() error(thrown) end)
        return ok, caught == thrown, pcall(string.gsub, 'a', 'a', function() local x = nil; return x.y end)";
    let results = state.run(script, &[]).unwrap();
    let text: Vec<_> = results.iter().map(|it| it.escape_ascii().to_string()).collect();
    assert_eq!(text[..3], ["false", "true", "false"]);
    assert_eq!(text[3], "user_script:4: attempt to index local \\'x\\' (a nil value)");
}
