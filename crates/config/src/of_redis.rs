//! Tests that every directive of Redis 7.2's configuration file acts, is accepted with a reason, or is refused,
//! consistently at the start, under `--check-config` and in CONFIG SET.

use std::path::Path;

use super::directive::{Effect, Mutability};
use super::error::{ConfigError, Note};
use super::runtime::{Config, Peer, SetError};
use super::settings::Settings;
use super::sources::{Loaded, Sources};
use super::table::DirectiveId;
use super::{FileSource, file};

/// `name|default|another valid value`; the values are written as in a file.
const DIRECTIVES: &str = include_str!("../../../tests/redis-7.2-directives.txt");

struct Line {
    id: DirectiveId,
    name: &'static str,
    default: &'static str,
    other: &'static str,
}

fn lines() -> impl Iterator<Item = Line> {
    DIRECTIVES.lines().filter(|line| !line.starts_with('#')).map(|line| {
        let parts: Vec<_> = line.split('|').collect();
        let [name, default, other] = parts[..] else { panic!("{line}") };
        let id = DirectiveId::find(name.as_bytes()).unwrap_or_else(|| panic!("{name} is missing"));
        Line { id, name, default, other }
    })
}

fn load(conf: &str) -> Result<Loaded, ConfigError> {
    let sources = Sources { file: FileSource::Stdin, ..Sources::default() };
    sources.load(&mut conf.as_bytes())
}

/// Joins the words of a value as CONFIG SET takes them.
fn argument(name: &str, value: &str) -> Vec<u8> {
    let line = format!("{name} {value}");
    let read = file::parse(line.as_bytes(), Path::new("-")).expect("quotes");
    read[0].args.join(&b' ')
}

#[test]
fn all_are_known_with_the_default_of_redis() {
    for Line { id, name, default, .. } in lines() {
        let directive = id.directive();
        let given = directive.parse(&[&argument(name, default)], None).expect(name);
        let ours = directive.redis_default.unwrap_or(directive.default);
        let ours = directive.parse(&[ours.as_bytes()], None).expect(name);
        assert_eq!(ours, given, "{name}");
    }
}

#[test]
fn another_value_acts_or_is_accepted_with_a_reason_or_is_refused() {
    let (mut acting, mut accepted, mut refused) = (0, 0, 0);
    for Line { id, name, other, .. } in lines() {
        let loaded = load(&format!("{name} {other}\n"));
        let config = Config::new(Settings::default());
        let value = argument(name, other);
        let set = config.set(&[(name.as_bytes(), &value)], Peer::Local);
        let is_settable = id.directive().mutability == Mutability::AtAnyTime;
        let is_objected = id.directive().parse(&[&value], None).is_ok_and(|value| {
            // `supervised systemd` acts, `supervised upstart` does not.
            id.directive().objection(&value).is_some()
        });
        match (id.directive().effect, loaded) {
            (Effect::Refused { why, .. }, Err(ConfigError::Refused { objections, .. })) => {
                assert!(is_objected, "{name}");
                let reasons: Vec<_> = objections.iter().map(|&(_, why)| why).collect();
                assert_eq!(reasons, [why], "{name}");
                if is_settable {
                    let (name, reason) = (name.to_owned(), why.to_owned());
                    assert_eq!(set, Err(SetError::Refused { name, reason }));
                }
                refused += 1;
            }
            (Effect::Accepted(why), Ok(loaded)) => {
                let [Note::NoEffect(said, reason)] = &loaded.notes[..] else {
                    panic!("{name}: {:?}", loaded.notes)
                };
                assert_eq!((said.name.as_slice(), *reason), (name.as_bytes(), why));
                assert_eq!(set.is_ok(), is_settable, "{name}");
                accepted += 1;
            }
            (Effect::Acts | Effect::Refused { .. }, Ok(loaded)) => {
                assert!(!is_objected && loaded.notes.is_empty(), "{name}: {:?}", loaded.notes);
                let shown = Config::new(loaded.settings).get(&[name.as_bytes()]);
                let meant = id.directive().parse(&[&value], Some(&id.directive().default_value()));
                assert_eq!(shown[0].1, meant.expect(name).text(), "{name}");
                assert_eq!(set.is_ok(), is_settable, "{name}: {set:?}");
                acting += 1;
            }
            (effect, Err(error)) => panic!("{name} {other}: {effect:?}, but {error}"),
        }
    }
    assert!(acting > 50 && accepted > 60 && refused > 10, "{acting} {accepted} {refused}");
}

#[test]
fn a_reason_is_a_sentence_and_a_refusal_says_what_to_do() {
    for id in DirectiveId::all() {
        match id.directive().effect {
            Effect::Acts => {}
            Effect::Accepted(reason) => assert!(reason.ends_with('.'), "{}", id.name()),
            Effect::Refused { except, why } => {
                assert!(!why.ends_with('.') && why.len() > 20, "{}", id.name());
                for value in except {
                    assert!(id.directive().parse(&[value.as_bytes()], None).is_ok(), "{value}");
                }
            }
        }
    }
}

#[test]
fn lines_that_would_protect_something_are_refused_all_at_once() {
    let conf = "port 1\nuser default off\naclfile x\nloadmodule x.so\n\
                requirepass hunter2\ntls-cluster yes\nlogfile /x/y.log\n";
    let Err(error) = load(conf) else { panic!("it would protect nothing") };
    let said: Vec<_> = error.to_string().lines().map(|line| line.to_owned()).collect();
    let begins = ["-:4: loadmodule", "-:2: user", "-:6: tls-cluster"];
    assert_eq!(said.len(), begins.len(), "{error}");
    for (said, begin) in said.iter().zip(begins) {
        assert!(said.starts_with(&format!("{begin}: refused, ")), "{said}");
    }
    let ConfigError::Refused { logfile, .. } = error else { panic!("{error}") };
    assert_eq!(logfile.as_deref(), Some(Path::new("/x/y.log")));
}

#[test]
fn what_another_source_overrules_is_no_reason_to_refuse() {
    let sources = |args: &[&str]| {
        let args = std::iter::once("-").chain(args.iter().copied()).map(Into::into);
        match super::parse(args, [], &[]).expect("valid") {
            super::Invocation::Serve(sources) => sources.load(&mut &b"cluster-enabled yes\n"[..]),
            other => panic!("{other:?}"),
        }
    };
    sources(&["--port", "1"]).expect_err("a cluster");
    sources(&["--cluster-enabled", "no"]).expect("no cluster");
}
