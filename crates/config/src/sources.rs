//! Merging the sources: file, command line, environment, in rising precedence.
//!
//! Within one source the last value wins, except that `save` lines accumulate until an empty one. A later source
//! replaces a directive's values from earlier ones, save points included; `client-output-buffer-limit` replaces
//! only the classes it names.

use std::io::Read;
use std::path::{Path, PathBuf};

use super::directive::Effect;
use super::error::{ConfigError, Note, directive_hint};
use super::file;
use super::kind::Invalid;
use super::origin::{Assignment, Origin};
use super::settings::{RenamedCommand, Settings, UserLine};
use super::table::DirectiveId;
use super::table::{FileLine, Handling};
use super::value::Value;

/// Sources of the configuration; files are not read yet.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// The configuration file.
    pub file: FileSource,
    /// Assignments of the command line.
    pub arguments: Vec<Assignment>,
    /// Assignments of the environment.
    pub environment: Vec<Assignment>,
}

/// The file to read, if any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum FileSource {
    /// No file: all defaults.
    #[default]
    None,
    /// The standard input.
    Stdin,
    /// This file. If it cannot be read, the message ends with the hint.
    Path {
        /// Its path.
        path: PathBuf,
        /// Suggestion of what the user may have meant instead.
        hint: String,
    },
}

/// The outcome of reading all sources.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// Settings in force.
    pub settings: Settings,
    /// Notes for the user.
    pub notes: Vec<Note>,
}

impl Sources {
    /// Reads the file and checks everything.
    ///
    /// # Errors
    /// If a file cannot be read, a value is invalid or refused, or a file or the command line names an unknown
    /// directive.
    pub fn load(&self, stdin: &mut dyn Read) -> Result<Loaded, ConfigError> {
        let (lines, path) = self.file.read(stdin)?;
        let (mut loading, mut errors) = (Loading::new(), Vec::new());
        for source in [&lines, &self.arguments, &self.environment] {
            loading.apply(source, &mut errors);
        }
        ConfigError::all(errors)?;
        loading.imply();
        loading.finish(path)
    }
}

impl FileSource {
    /// Returns the assignments of the file, and its absolute path if CONFIG REWRITE can rewrite it.
    fn read(
        &self,
        stdin: &mut dyn Read,
    ) -> Result<(Vec<Assignment>, Option<PathBuf>), ConfigError> {
        match self {
            Self::None => Ok((Vec::new(), None)),
            Self::Stdin => Ok((file::read_stream(Path::new("-"), stdin)?, None)),
            Self::Path { path, hint } => {
                let lines = file::read(path).map_err(|error| with_hint(error, path, hint))?;
                let absolute = std::path::absolute(path).unwrap_or_else(|_| path.clone());
                Ok((lines, Some(absolute)))
            }
        }
    }
}

/// Adds the hint if the named file itself, not one that it includes, cannot be read.
fn with_hint(error: ConfigError, named: &Path, more: &str) -> ConfigError {
    match error {
        ConfigError::Unreadable { path, reason, hint } if path == named => {
            ConfigError::Unreadable { path, reason, hint: hint + more }
        }
        other => other,
    }
}

const APPENDONLY: DirectiveId = DirectiveId::of("appendonly");
const SAVE: DirectiveId = DirectiveId::of("save");

/// Returns the save points of a file that does not set any but has these settings.
pub(super) fn implied_save_points(settings: &Settings) -> Value {
    let directive = SAVE.directive();
    match directive.redis_default.filter(|_| !settings.is_on(APPENDONLY)) {
        Some(points) => directive.parse(&[points.as_bytes()], None).expect("a default of Redis"),
        None => directive.default_value(),
    }
}

/// Returns the settings from the directives of a file alone. Other lines are ignored.
///
/// # Errors
/// If a value is not valid.
pub(super) fn settings_of(lines: &[Assignment]) -> Result<Settings, ConfigError> {
    let mut loading = Loading::new();
    let sets = |line: &&Assignment| DirectiveId::find(&line.name).is_some();
    let lines: Vec<_> = lines.iter().filter(sets).cloned().collect();
    let mut errors = Vec::new();
    loading.apply(&lines, &mut errors);
    ConfigError::all(errors)?;
    loading.imply();
    Ok(loading.settings)
}

/// State while the sources are applied one after the other.
struct Loading {
    settings: Settings,
    /// Last assignment of each directive.
    said: Vec<Option<Assignment>>,
    /// True if a file has turned the log off.
    file_keeps_no_log: bool,
    /// Lines that are refused, and the reason.
    refused_lines: Vec<(Assignment, &'static str)>,
    /// First line that defines a user.
    first_user: Option<Assignment>,
    notes: Vec<Note>,
}

impl Loading {
    fn new() -> Self {
        let said = DirectiveId::all().map(|_| None).collect();
        Self {
            settings: Settings::default(),
            said,
            file_keeps_no_log: false,
            refused_lines: Vec::new(),
            first_user: None,
            notes: Vec::new(),
        }
    }

    /// Applies a source. Continues after a mistake, so that all mistakes are found.
    fn apply(&mut self, source: &[Assignment], errors: &mut Vec<ConfigError>) {
        let mut earlier = Vec::new();
        for assignment in source {
            let done = if let Some(id) = DirectiveId::find(&assignment.name) {
                let adds_up = earlier.contains(&id);
                earlier.push(id);
                self.assign(id, assignment, adds_up)
            } else if let Some(line) = FileLine::find(&assignment.name) {
                self.take_line(line, assignment)
            } else {
                self.unknown(assignment)
            };
            errors.extend(done.err());
        }
    }

    fn assign(
        &mut self,
        id: DirectiveId,
        assignment: &Assignment,
        adds_up: bool,
    ) -> Result<(), ConfigError> {
        if is_service_link(id, assignment) {
            self.notes.push(Note::ServiceLink(assignment.clone()));
            return Ok(());
        }
        let current = self.settings.value(id);
        let args: Vec<&[u8]> = assignment.args.iter().map(Vec::as_slice).collect();
        let value = id
            .directive()
            .parse(&args, Some(current))
            .map_err(|reason| ConfigError::Invalid { assignment: assignment.clone(), reason })?;
        let value = if adds_up { current.followed_by(value) } else { value };
        if id == APPENDONLY && matches!(assignment.origin, Origin::File { .. }) {
            self.file_keeps_no_log = value == Value::Bool(false);
        }
        self.settings.replace(id, value);
        self.said[id.index()] = Some(assignment.clone());
        Ok(())
    }

    fn take_line(&mut self, line: &FileLine, assignment: &Assignment) -> Result<(), ConfigError> {
        let assignment = assignment.clone();
        let count = assignment.args.len();
        if !(line.args_min..=line.args_max).contains(&count) {
            let reason = Invalid::new("wrong number of arguments");
            return Err(ConfigError::Invalid { assignment, reason });
        }
        match line.handling {
            Handling::Refuse(why) => {
                self.refused_lines.push((assignment, why));
                Ok(())
            }
            Handling::Ignore => Ok(()),
            Handling::User => self.take_user(assignment),
            Handling::Rename => {
                let place = assignment.to_string();
                if let Ok([command, name]) = <[Vec<u8>; 2]>::try_from(assignment.args) {
                    self.settings.add_renamed_command(RenamedCommand { command, name, place });
                }
                Ok(())
            }
            Handling::Include => {
                let reason = Invalid::new("works in files only");
                Err(ConfigError::Invalid { assignment, reason })
            }
        }
    }

    /// Takes a user from a file, or without a password from the command line, which everyone can read.
    fn take_user(&mut self, assignment: Assignment) -> Result<(), ConfigError> {
        let place = assignment.to_string();
        let has_password =
            assignment.args.iter().any(|rule| matches!(rule.first(), Some(b'>' | b'<')));
        let refusal = match assignment.origin {
            Origin::Environment => Some("works in files and on the command line only"),
            Origin::Argument if has_password => Some(
                "everyone on this machine can read the command line; give the hash of the password (#...), or use a file",
            ),
            _ => None,
        };
        if let Some(reason) = refusal {
            return Err(ConfigError::Invalid { assignment, reason: Invalid::new(reason) });
        }
        self.first_user.get_or_insert_with(|| assignment.clone());
        let mut words = assignment.args.iter().cloned();
        let name = words.next().unwrap_or_default();
        if self.settings.users().iter().any(|user| user.name == name) {
            self.refused_lines
                .push((assignment.clone(), "this user is defined in an earlier line"));
        }
        self.settings.add_user(UserLine { name, rules: words.collect(), place });
        Ok(())
    }

    /// Handles an unknown name. In the environment it gets a note, as it may exist for another reason. In a file it
    /// is an error, as it may be a misspelled password or limit.
    fn unknown(&mut self, assignment: &Assignment) -> Result<(), ConfigError> {
        match assignment.origin {
            Origin::Argument => {
                let hint = directive_hint(&assignment.name, &assignment.origin);
                Err(ConfigError::UnknownOption { option: assignment.to_string(), hint })
            }
            Origin::File { .. } => {
                Err(ConfigError::UnknownDirective { assignment: assignment.clone() })
            }
            Origin::Environment => {
                self.notes.push(Note::Unknown(assignment.clone()));
                Ok(())
            }
        }
    }

    /// Adds settings that a file implies. Redis takes snapshots if its log is turned off, because nothing else would
    /// keep the data.
    fn imply(&mut self) {
        let keeps_no_log = self.file_keeps_no_log && !self.settings.is_on(APPENDONLY);
        if keeps_no_log && self.said[SAVE.index()].is_none() {
            self.settings.replace(SAVE, implied_save_points(&self.settings));
        }
    }

    fn finish(mut self, file: Option<PathBuf>) -> Result<Loaded, ConfigError> {
        let mut objections = self.refused_lines;
        if let (Some(user), Some(_)) = (self.first_user, self.settings.acl_file()) {
            objections.push((user, "there is an aclfile, too; define users either there or here"));
        }
        for (id, assignment) in DirectiveId::all().zip(&self.said) {
            let objection = id.directive().objection(self.settings.value(id));
            objections.extend(assignment.clone().zip(objection));
        }
        if let Some((id, why)) = self.settings.contradiction() {
            // The value is not the default, so some source has set it.
            objections.extend(self.said[id.index()].clone().map(|assignment| (assignment, why)));
        }
        if !objections.is_empty() {
            let (logfile, log_format) = (self.settings.logfile(), self.settings.log_format());
            return Err(ConfigError::Refused { objections, logfile, log_format });
        }
        for (id, assignment) in DirectiveId::all().zip(self.said) {
            let directive = id.directive();
            let changed = *self.settings.value(id) != directive.default_value();
            if let (Effect::Accepted(reason), true, Some(assignment)) =
                (directive.effect, changed, assignment)
            {
                self.notes.push(Note::NoEffect(assignment, reason));
            }
        }
        self.settings.set_file(file);
        Ok(Loaded { settings: self.settings, notes: self.notes })
    }
}

/// Returns true for a variable of Kubernetes. It describes a service called tierce to every pod in variables with our
/// prefix. `TIERCE_PORT=tcp://10.0.0.1:6379` would otherwise prevent the start.
fn is_service_link(id: DirectiveId, assignment: &Assignment) -> bool {
    const PORT: DirectiveId = DirectiveId::of("port");
    let link = |arg: &Vec<u8>| arg.starts_with(b"tcp://") || arg.starts_with(b"udp://");
    id == PORT && assignment.origin == Origin::Environment && assignment.args.iter().any(link)
}

#[cfg(test)]
mod tests {
    use super::super::environment;
    use super::super::error::Severity;
    use super::super::invocation::{Invocation, parse};
    use super::{FileSource, Loaded, Sources};
    use std::ffi::OsString;
    use tierce_harness::TempDir;

    /// Loads three sources: `conf` as standard input; `args` are separated by blanks.
    fn load(conf: &str, args: &str, env: &[(&str, &str)]) -> Result<Loaded, String> {
        let args = args.split(' ').filter(|arg| !arg.is_empty());
        // Two single quotes stand for an empty argument, as in a shell.
        let args = args.map(|arg| OsString::from(if arg == "''" { "" } else { arg }));
        let env = env.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
        match parse(std::iter::once("-".into()).chain(args), env, &[]).map_err(|e| e.to_string())? {
            Invocation::Serve(sources) => {
                sources.load(&mut conf.as_bytes()).map_err(|error| error.to_string())
            }
            other => panic!("{other:?}"),
        }
    }

    fn value(loaded: &Loaded, name: &str) -> String {
        String::from_utf8(loaded.settings.get(name).text()).expect("text")
    }

    fn check(conf: &str, args: &str, env: &[(&str, &str)], name: &str, expected: &str) {
        let shown = load(conf, args, env).map(|loaded| value(&loaded, name));
        assert_eq!(shown.unwrap_or_else(|error| error), expected, "{conf:?} {args:?} {env:?}");
    }

    #[test]
    fn the_environment_beats_the_command_line_beats_the_file() {
        check("", "", &[], "port", "6379");
        check("port 1", "", &[], "port", "1");
        check("port 1", "--port 2", &[], "port", "2");
        check("port 1", "--port 2", &[("TIERCE_PORT", "3")], "port", "3");
        check("", "--tcp-keepalive 2", &[("TIERCE_TCP_KEEPALIVE", "3")], "tcp-keepalive", "3");
        check("port 1\nport 2", "", &[], "port", "2");
    }

    #[test]
    fn save_points_add_up_within_a_source() {
        check("save 60 1\nsave 300 10", "", &[], "save", "60 1 300 10");
        check("save \"60 1 300 10\"", "", &[], "save", "60 1 300 10");
        check("save 60 1\nsave \"\"", "", &[], "save", "");
        check("save 60 1\nsave \"\"\nsave 5 5", "", &[], "save", "5 5");
        check("save 60 1", "--save 300 10", &[], "save", "300 10");
        check("save 60 1", "--save '' --save 60 1 --save 300 10", &[], "save", "60 1 300 10");
        check("save 60 1", "--save --port 1", &[], "save", "");
        check("save 60 1", "", &[("TIERCE_SAVE", "")], "save", "");
        check("", "", &[("TIERCE_SAVE", "60 1 300 10")], "save", "60 1 300 10");
    }

    #[test]
    fn a_file_without_a_log_has_the_save_points_of_redis() {
        const POINTS: &str = "3600 1 300 100 60 10000";
        check("appendonly no", "", &[], "save", POINTS);
        check("appendonly no", "--appendonly no", &[], "save", POINTS);
        check("appendonly no\nsave \"\"", "", &[], "save", "");
        check("appendonly no\nsave 5 5", "", &[], "save", "5 5");
        check("appendonly no", "--save 5 5", &[], "save", "5 5");
        check("appendonly no", "", &[("TIERCE_SAVE", "")], "save", "");
        // There is a log after all, or the file was not written for Redis.
        check("appendonly no", "--appendonly yes", &[], "save", "");
        check("appendonly no\nappendonly yes", "", &[], "save", "");
        check("port 1", "--appendonly no", &[], "save", "");
        check("", "", &[("TIERCE_APPENDONLY", "no")], "save", "");
    }

    #[test]
    fn output_limits_change_class_by_class() {
        let conf = "client-output-buffer-limit normal 1mb 1kb 3\n\
                    client-output-buffer-limit replica 2 2 2";
        let expected = "normal 1048576 1024 3 slave 2 2 2 pubsub 4 4 4";
        let args = "--client-output-buffer-limit pubsub 4 4 4";
        check(conf, args, &[], "client-output-buffer-limit", expected);
    }

    #[test]
    fn mistakes_name_the_place() {
        check(
            "\nmaxmemory 1zb",
            "",
            &[],
            "port",
            "-:2: maxmemory: must be a size such as 512mb or 4gb",
        );
        check("port", "", &[], "port", "-:1: port: wrong number of arguments");
        check("port 1 2", "", &[], "port", "-:1: port: wrong number of arguments");
        check("include a b", "", &[], "port", "-:1: include: wrong number of arguments");
        let range =
            "--port: argument must be between 0 and 65535 inclusive; see tierce --help port";
        check("", "--port 99999", &[], "port", range);
        let yes = "TIERCE_PROTECTED_MODE: argument must be 'yes' or 'no'; see tierce --help protected-mode";
        check("", "", &[("TIERCE_PROTECTED_MODE", "true")], "port", yes);
        check("", "--include x", &[], "port", "--include: works in files only");
    }

    #[test]
    fn unknown_names_are_errors_but_in_the_environment() {
        let env = [("TIERCE_TIME_OUT", "1"), ("OTHER", "1")];
        let loaded = load("port 7000\n", "", &env).expect("valid");
        let notes: Vec<String> = loaded.notes.iter().map(ToString::to_string).collect();
        let expected = "TIERCE_TIME_OUT: unknown directive, ignored; did you mean TIERCE_TIMEOUT?";
        assert_eq!(notes, [expected]);
        assert!(loaded.notes.iter().all(|note| note.severity() == Severity::Warning));
        let error = load("port 1\nrequirepas x\n", "", &[]).expect_err("unknown");
        assert_eq!(error, "-:2: requirepas: unknown directive; did you mean requirepass?");
        let error = load("", "--prot 7000", &[]).expect_err("unknown");
        let expected = "--prot: unknown option; did you mean --port?; see tierce --help";
        assert_eq!(error, expected);
    }

    #[test]
    fn what_has_no_effect_is_named_if_it_differs_from_the_default() {
        let conf = "appendonly no\nactiverehashing no\nrepl-disable-tcp-nodelay yes\nport 1\n\
                    list-max-ziplist-value 3\n";
        let loaded = load(conf, "--hz 10 --io-threads 4", &[]).expect("valid");
        let notes: Vec<String> = loaded.notes.iter().map(ToString::to_string).collect();
        let begins =
            ["-:3: repl-disable-tcp-nodelay: ", "-:2: activerehashing: ", "--io-threads: "];
        assert_eq!(notes.len(), begins.len(), "{notes:?}");
        for (note, begin) in notes.iter().zip(begins) {
            assert!(note.starts_with(&format!("{begin}accepted without effect. ")), "{note}");
        }
    }

    #[test]
    fn a_service_link_of_kubernetes_does_not_stop_the_server() {
        let env = [("TIERCE_PORT", "tcp://10.0.0.1:6379")];
        let loaded = load("port 7000", "", &env).expect("valid");
        assert_eq!(value(&loaded, "port"), "7000");
        let notes: Vec<String> = loaded.notes.iter().map(ToString::to_string).collect();
        assert_eq!(notes, ["TIERCE_PORT: ignored, it describes a service and not this server"]);
    }

    #[test]
    fn only_a_file_can_be_rewritten_later() {
        let dir = TempDir::new();
        let path = dir.write("a.conf", "port 7000\n");
        let file = FileSource::Path { path: path.clone(), hint: String::new() };
        let sources = Sources { file, ..Sources::default() };
        let loaded = sources.load(&mut std::io::empty()).expect("valid");
        assert_eq!(loaded.settings.file(), Some(path.as_path()));
        assert_eq!(load("", "", &[]).expect("valid").settings.file(), None);
    }

    #[test]
    fn users_and_names_of_commands_are_collected() {
        let conf = "user alice on >x ~a*\nrename-command FLUSHALL \"\"\nuser bob off\n";
        let loaded = load(conf, "--user carol on --rename-command KEYS k", &[]).expect("valid");
        let users: Vec<_> =
            loaded.settings.users().iter().map(|user| user.name.as_slice()).collect();
        assert_eq!(users, [&b"alice"[..], b"bob", b"carol"]);
        let renamed = loaded.settings.renamed_commands();
        assert_eq!((renamed[0].name.as_slice(), renamed[1].name.as_slice()), (&b""[..], &b"k"[..]));
        check(
            "user a on\nuser a off",
            "",
            &[],
            "port",
            "-:2: user: refused, this user is defined in an earlier line",
        );
        let both =
            "-:1: user: refused, there is an aclfile, too; define users either there or here";
        check("user a on\naclfile x", "", &[], "port", both);
        let error = load("", "--user a >hunter2", &[]).expect_err("visible");
        assert!(error.contains("command line") && !error.contains("hunter2"), "{error}");
        assert!(load("", "", &[("TIERCE_USER", "a on")]).is_err());
    }

    #[test]
    fn passwords_never_appear_in_messages() {
        let conf = "requirepass a b\n";
        let error = load(conf, "", &[]).expect_err("two arguments");
        assert_eq!(error, "-:1: requirepass: wrong number of arguments");
        let error = load("masterauth hunter2 x", "", &[]).expect_err("two arguments");
        assert!(!error.contains("hunter2"), "{error}");
        assert_eq!(environment::read([("TIERCE_REQUIREPASS".into(), "a b".into())]).len(), 1);
    }
}
