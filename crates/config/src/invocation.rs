//! The command line.
//!
//! `tierce [FILE | -] [--directive value...]...`, or `tierce TOOL ...`. As with redis-server, the values of a
//! directive extend to the next word that starts with two dashes, `-` as the first or last word means standard
//! input, and `--port 7000` may be one word or two. In addition, `--port=7000` works. The first value of a directive
//! may start with two dashes (a password) unless it is itself the name of a directive.
//!
//! This module reads and prints nothing and does not end the process; the caller does.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use tierce_wire::words;

use super::environment;
use super::error::{ConfigError, directive_hint};
use super::help::{self, Tool};
use super::origin::{Assignment, Origin};
use super::sources::{FileSource, Sources};
use super::suggest::suggest;
use super::table::DirectiveId;
use super::table::FileLine;

/// Task that the command line asks for.
#[derive(Clone, Debug)]
pub enum Invocation {
    /// Run the server.
    Serve(Sources),
    /// Check the configuration, report its errors, and exit.
    CheckConfig(Sources),
    /// Print this help.
    Help(String),
    /// Print this version.
    Version(String),
    /// Run a tool.
    Tool {
        /// Its name.
        name: &'static str,
        /// Arguments after the name.
        args: Vec<OsString>,
    },
}

/// Parses the command line (without the program's name) and the environment.
///
/// # Errors
/// If an option does not exist, or makes no sense at its position.
pub fn parse(
    args: impl IntoIterator<Item = OsString>,
    env: impl IntoIterator<Item = (OsString, OsString)>,
    tools: &[Tool],
) -> Result<Invocation, ConfigError> {
    let args: Vec<OsString> = args.into_iter().collect();
    let tool = args.first().and_then(|first| tools.iter().find(|tool| tool.name == first));
    if let Some(tool) = tool {
        return Ok(Invocation::Tool { name: tool.name, args: args[1..].to_vec() });
    }
    if let [first, rest @ ..] = &*args
        && first == "help"
        && !Path::new(first).exists()
    {
        return help_of(rest, tools);
    }
    let (file, options) = split_file(&args, tools);
    let mut sources = Sources { file, ..Sources::default() };
    let mut check_only = false;
    for option in split_options(options)? {
        let flag = Flag::of(&option.name);
        if flag.is_some_and(|flag| flag != Flag::CheckConfig)
            && let Some(word) = args.first().filter(|word| may_be_tool(word))
        {
            // The user asked for the help of a tool.
            let (word, hint) = (word.to_string_lossy().into_owned(), similar_tool(word, tools));
            return Err(ConfigError::UnknownTool { word, hint });
        }
        match flag {
            Some(Flag::Help) => return help_about(&option, tools),
            Some(Flag::HelpDirectives) => return Ok(Invocation::Help(help::directives())),
            Some(Flag::Version) => return Ok(Invocation::Version(help::version())),
            Some(Flag::CheckConfig) => {
                check_only = true;
                sources.take_checked_file(option)?;
            }
            None => sources.arguments.push(option.into_assignment()?),
        }
    }
    sources.environment = environment::read(env);
    Ok(if check_only { Invocation::CheckConfig(sources) } else { Invocation::Serve(sources) })
}

/// Handles `tierce help`, alone or with the name of a tool or a directive.
fn help_of(words: &[OsString], tools: &[Tool]) -> Result<Invocation, ConfigError> {
    let first = words.first();
    if let Some(tool) = tools.iter().find(|tool| first.is_some_and(|word| tool.name == word)) {
        return Ok(Invocation::Tool { name: tool.name, args: vec!["--help".into()] });
    }
    let args = first.map(|word| word.as_bytes().to_vec());
    help_about(&CommandOption { name: b"help".into(), args: args.into_iter().collect() }, tools)
}

/// Options that are not directives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flag {
    Help,
    HelpDirectives,
    Version,
    CheckConfig,
}

impl Flag {
    /// Names without the leading dashes.
    const NAMES: [(&str, Self); 4] = [
        ("help", Self::Help),
        ("help-directives", Self::HelpDirectives),
        ("version", Self::Version),
        ("check-config", Self::CheckConfig),
    ];

    fn of(name: &[u8]) -> Option<Self> {
        Self::NAMES.iter().find(|(known, _)| known.as_bytes() == name).map(|&(_, flag)| flag)
    }
}

/// An option and its arguments.
struct CommandOption {
    name: Vec<u8>,
    args: Vec<Vec<u8>>,
}

impl CommandOption {
    /// Converts the option to an assignment. `--save` and `--bind` without a value mean an empty list.
    fn into_assignment(mut self) -> Result<Assignment, ConfigError> {
        let known = DirectiveId::find(&self.name);
        if known.is_none() && FileLine::find(&self.name).is_none() {
            let option = format!("--{}", String::from_utf8_lossy(&self.name));
            return Err(ConfigError::UnknownOption { option, hint: option_hint(&self.name) });
        }
        let may_be_empty = matches!(known, Some(SAVE | BIND));
        if may_be_empty && self.args.is_empty() {
            self.args.push(Vec::new());
        }
        Ok(Assignment { name: self.name, args: self.args, origin: Origin::Argument })
    }
}

const SAVE: DirectiveId = DirectiveId::of("save");
const BIND: DirectiveId = DirectiveId::of("bind");

fn option_hint(name: &[u8]) -> String {
    match suggest(name, Flag::NAMES.into_iter().map(|(flag, _)| flag)) {
        Some(flag) => format!("; did you mean --{flag}?"),
        None => directive_hint(name, &Origin::Argument),
    }
}

/// Removes the configuration file from the command line: the first word unless it is an option, or `-` as first or
/// last word.
fn split_file<'a>(args: &'a [OsString], tools: &[Tool]) -> (FileSource, &'a [OsString]) {
    match args {
        [first, rest @ ..] if first == "-" => (FileSource::Stdin, rest),
        [rest @ .., last] if last == "-" => (FileSource::Stdin, rest),
        [first, rest @ ..] if !first.as_bytes().starts_with(b"-") => {
            (FileSource::Path { path: PathBuf::from(first), hint: tool_hint(first, tools) }, rest)
        }
        _ => (FileSource::None, args),
    }
}

/// Returns true for a word without slash or dot, which may be a mistyped tool rather than a file.
fn may_be_tool(word: &OsStr) -> bool {
    let word = word.as_bytes();
    !word.is_empty() && !word.starts_with(b"-") && !word.iter().any(|byte| b"/.".contains(byte))
}

fn tool_hint(word: &OsStr, tools: &[Tool]) -> String {
    match similar_tool(word, tools) {
        hint if hint.is_empty() && may_be_tool(word) => {
            "; there is no tool of that name either, see tierce --help".to_owned()
        }
        hint => hint,
    }
}

fn similar_tool(word: &OsStr, tools: &[Tool]) -> String {
    match suggest(word.as_bytes(), tools.iter().map(|tool| tool.name)) {
        Some(tool) => format!("; did you mean tierce {tool}?"),
        None => String::new(),
    }
}

/// Splits the command line into options with their values.
fn split_options(args: &[OsString]) -> Result<Vec<CommandOption>, ConfigError> {
    let mut options: Vec<CommandOption> = Vec::new();
    for arg in args {
        let bytes = arg.as_bytes();
        let needs_value = options.last().is_some_and(|option| option.args.is_empty());
        if let Some(option) = short_option(bytes).filter(|_| options.is_empty()) {
            options.push(option);
            continue;
        }
        match (bytes.strip_prefix(b"--"), options.last_mut()) {
            (Some(word), _) if !needs_value || is_known(word) => options.push(new_option(word)),
            (_, Some(option)) => option.args.push(bytes.to_vec()),
            (_, None) => {
                return Err(ConfigError::UnexpectedArgument(arg.to_string_lossy().into_owned()));
            }
        }
    }
    Ok(options)
}

fn short_option(arg: &[u8]) -> Option<CommandOption> {
    let name = match arg {
        b"-h" => "help",
        b"-v" | b"-V" => "version",
        _ => return None,
    };
    Some(CommandOption { name: name.into(), args: Vec::new() })
}

/// Makes an option from the text after the dashes: `port`, `port=7000` or `port 7000`.
fn new_option(word: &[u8]) -> CommandOption {
    let (name, value) = match word.iter().position(|&byte| byte == b'=' || byte == b' ') {
        Some(end) => (&word[..end], Some(&word[end..])),
        None => (word, None),
    };
    let args = match value {
        None => Vec::new(),
        Some([b'=', value @ ..]) => vec![value.to_vec()],
        Some(values) => words::split(values).unwrap_or_else(|_| vec![values.to_vec()]),
    };
    CommandOption { name: name.to_ascii_lowercase(), args }
}

/// Returns true if the text after the dashes names an existing directive or option.
fn is_known(word: &[u8]) -> bool {
    let name = new_option(word).name;
    DirectiveId::find(&name).is_some()
        || FileLine::find(&name).is_some()
        || Flag::of(&name).is_some()
}

fn help_about(option: &CommandOption, tools: &[Tool]) -> Result<Invocation, ConfigError> {
    let Some(name) = option.args.first() else {
        return Ok(Invocation::Help(help::overview(tools)));
    };
    match DirectiveId::find(name) {
        Some(id) => Ok(Invocation::Help(help::directive(id))),
        None => {
            let option = String::from_utf8_lossy(name).into_owned();
            let hint = directive_hint(name, &Origin::Argument);
            Err(ConfigError::UnknownOption { option, hint })
        }
    }
}

impl Sources {
    /// Handles `--check-config FILE`, which names the file like the first word would.
    fn take_checked_file(&mut self, option: CommandOption) -> Result<(), ConfigError> {
        let mut args = option.args.into_iter();
        if let Some(path) = args.next().filter(|_| self.file == FileSource::None) {
            let path = PathBuf::from(OsString::from_vec(path));
            self.file = FileSource::Path { path, hint: String::new() };
        }
        match args.next() {
            Some(more) => {
                Err(ConfigError::UnexpectedArgument(String::from_utf8_lossy(&more).into_owned()))
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{FileSource, Invocation, Tool, parse};

    const TOOLS: [Tool; 1] = [Tool { name: "bench", about: "Load a server." }];

    fn run(args: &[&str]) -> Result<Invocation, String> {
        let args = args.iter().map(Into::into);
        parse(args, std::iter::empty(), &TOOLS).map_err(|error| error.to_string())
    }

    /// Compares file and directives, written as `file | name=arg,arg name=arg`.
    fn check(args: &[&str], expected: &str) {
        let shown = match run(args) {
            Ok(Invocation::Serve(sources)) => {
                let file = match &sources.file {
                    FileSource::None => String::new(),
                    FileSource::Stdin => "-".into(),
                    FileSource::Path { path, .. } => path.display().to_string(),
                };
                let text = |bytes: &Vec<u8>| String::from_utf8(bytes.clone()).expect("text");
                let options = sources.arguments.iter().map(|option| {
                    let args: Vec<String> = option.args.iter().map(text).collect();
                    format!(" {}={}", text(&option.name), args.join(","))
                });
                format!("{file} |{}", options.collect::<String>())
            }
            Ok(other) => format!("{other:?}"),
            Err(error) => error,
        };
        assert_eq!(shown, expected, "{args:?}");
    }

    #[test]
    fn nothing_means_defaults() {
        check(&[], " |");
    }

    #[test]
    fn a_first_word_is_a_file() {
        check(&["/etc/redis.conf"], "/etc/redis.conf |");
        check(&["a.conf", "--port", "1"], "a.conf | port=1");
        check(&["-"], "- |");
        check(&["-", "--port", "1"], "- | port=1");
        check(&["--port", "1", "-"], "- | port=1");
    }

    #[test]
    fn values_reach_to_the_next_option() {
        check(&["--port", "7000", "--bind", "127.0.0.1", "::1"], " | port=7000 bind=127.0.0.1,::1");
        check(
            &["--save", "", "--appendonly", "no", "--save", "60", "1", "--save", "300", "10"],
            " | save= appendonly=no save=60,1 save=300,10",
        );
        check(&["--list-max-listpack-size", "-2"], " | list-max-listpack-size=-2");
        check(&["--PORT", "1"], " | port=1");
    }

    #[test]
    fn one_word_may_hold_name_and_value() {
        check(&["--port=7000"], " | port=7000");
        check(&["--port 7000"], " | port=7000");
        check(&["--requirepass=a=b c"], " | requirepass=a=b c");
        check(&["--save 60 1", "--port", "1"], " | save=60,1 port=1");
    }

    #[test]
    fn an_option_without_value_is_followed_by_the_next_one() {
        check(&["--save", "--port", "1"], " | save= port=1");
        check(&["--bind", "--port", "1"], " | bind= port=1");
        check(&["--save"], " | save=");
        check(&["--port", "--bind", "::1"], " | port= bind=::1");
    }

    #[test]
    fn a_value_may_start_with_dashes() {
        check(&["--requirepass", "--secret", "--port", "1"], " | requirepass=--secret port=1");
    }

    #[test]
    fn unknown_options_are_errors() {
        check(&["--prot", "1"], "--prot: unknown option; did you mean --port?; see tierce --help");
        check(&["--hlep"], "--hlep: unknown option; did you mean --help?; see tierce --help");
        check(&["--xyzzy-plugh"], "--xyzzy-plugh: unknown option; see tierce --help");
        check(&["-p", "7000"], "-p: unexpected argument; see tierce --help");
        check(&["a.conf", "b.conf"], "b.conf: unexpected argument; see tierce --help");
    }

    #[test]
    fn help_and_version() {
        for args in [&["-h"][..], &["--help"], &["a.conf", "--help"], &["--port", "1", "--help"]] {
            assert!(matches!(run(args), Ok(Invocation::Help(_))), "{args:?}");
        }
        let Ok(Invocation::Help(text)) = run(&["--help", "maxclients"]) else { panic!() };
        assert!(text.contains("10000"), "{text}");
        let error = run(&["--help", "maxclient"]).expect_err("unknown");
        assert_eq!(
            error,
            "maxclient: unknown option; did you mean --maxclients?; see tierce --help"
        );
        for args in [["-v"], ["-V"], ["--version"]] {
            let Ok(Invocation::Version(text)) = run(&args) else { panic!("{args:?}") };
            assert!(text.starts_with("tierce "), "{text}");
        }
    }

    #[test]
    fn tools_get_the_rest_untouched() {
        let Ok(Invocation::Tool { name, args }) = run(&["bench", "--help", "-c", "50"]) else {
            panic!()
        };
        assert_eq!(name, "bench");
        assert_eq!(args, ["--help", "-c", "50"]);
    }

    #[test]
    fn help_on_a_tool_that_does_not_exist_is_an_error() {
        for (args, expected) in [
            (["nosuchtool", "--help"], "nosuchtool: there is no such tool; see tierce --help"),
            (
                ["bnech", "--version"],
                "bnech: there is no such tool; did you mean tierce bench?; see tierce --help",
            ),
        ] {
            assert_eq!(run(&args).expect_err("no tool"), expected);
        }
        let Ok(Invocation::Serve(sources)) = run(&["nosuchtool"]) else { panic!() };
        let error = sources.load(&mut std::io::empty()).expect_err("no such file").to_string();
        let expected = "cannot read nosuchtool: No such file or directory; there is no tool of that \
                        name either, see tierce --help";
        assert_eq!(error, expected);
    }

    #[test]
    fn a_mistyped_tool_gets_a_hint() {
        let Ok(Invocation::Serve(sources)) = run(&["bnech"]) else { panic!() };
        let error = sources.load(&mut std::io::empty()).expect_err("no such file").to_string();
        let expected = "cannot read bnech: No such file or directory; did you mean tierce bench?";
        assert_eq!(error, expected);
    }

    #[test]
    fn a_configuration_can_be_checked() {
        for args in [&["a.conf", "--check-config"][..], &["--check-config", "a.conf"]] {
            let Ok(Invocation::CheckConfig(sources)) = run(args) else { panic!("{args:?}") };
            let expected = FileSource::Path { path: "a.conf".into(), hint: String::new() };
            assert_eq!(sources.file, expected);
        }
        let error = run(&["--check-config", "a.conf", "b.conf"]).expect_err("two files");
        assert_eq!(error, "b.conf: unexpected argument; see tierce --help");
    }
}
