//! Rules of users: their effects, and the text that recreates a user.

use proptest::prelude::*;
use tierce_harness::effort;
use tierce_wire::resp::OwnedArgs;
use tierce_wire::words;

use super::password::PasswordHash;
use super::*;
use crate::command::Table;

struct World {
    table: Table,
    users: Users,
}

impl World {
    fn new() -> Self {
        let table = crate::table();
        let users = Users::new(Terms { table: &table, channels: ChannelDefault::None });
        Self { table, users }
    }

    fn terms(&self) -> Terms<'_> {
        Terms { table: &self.table, channels: ChannelDefault::None }
    }

    /// Applies rules, separated by blanks, to the user `name`.
    fn set(&self, name: &str, rules: &str) -> Result<(), RulesError> {
        let rules: Vec<&[u8]> = rules.split(' ').map(str::as_bytes).collect();
        self.users.change(name.as_bytes(), &rules, self.terms()).map(drop)
    }

    fn user(&self, rules: &str) -> User {
        self.set("alice", "reset").and_then(|()| self.set("alice", rules)).expect(rules);
        User::clone(&self.users.get(b"alice").expect("it was made"))
    }

    /// The line of a user with these rules.
    fn line(&self, rules: &str) -> String {
        let text = self.user(rules).describe();
        let text = String::from_utf8(text).expect("text");
        text.strip_prefix("alice ").expect("the name").to_owned()
    }

    fn check(&self, user: &User, call: &str) -> Result<(), Denial> {
        let mut args = OwnedArgs::new();
        call.split(' ').for_each(|arg| args.push(arg.as_bytes()).expect("a short call"));
        let args = args.as_args();
        let command = self.table.find(args.at(0)).expect(call);
        let command = args.get(1).and_then(|sub| command.subcommand(sub)).unwrap_or(command);
        let denial = user.check(command, args);
        if user.allows_at_once(command, args) {
            assert_eq!(denial, Ok(()), "{call} is allowed at once");
        }
        denial
    }
}

#[track_caller]
fn denies(rules: &str, calls: &[(&str, Result<(), Denial>)]) {
    let world = World::new();
    let user = world.user(rules);
    for (call, expected) in calls {
        assert_eq!(world.check(&user, call), *expected, "{rules}: {call}");
    }
}

#[test]
fn lines_are_those_of_redis() {
    let world = World::new();
    for (rules, line) in [
        ("on", "on sanitize-payload resetchannels -@all"),
        ("on nopass ~* &* +@all", "on nopass sanitize-payload ~* &* +@all"),
        ("~a %R~b %w~c ~a %R~c", "off sanitize-payload ~a %R~b ~c resetchannels -@all"),
        ("&a* &b &a*", "off sanitize-payload resetchannels &a* &b -@all"),
        ("+get +SET -get", "off sanitize-payload resetchannels -@all +set -get"),
        (
            "+@all -config +config|get +@READ -@read +config|set",
            "off sanitize-payload resetchannels +@all -config +config|get -@read +config|set",
        ),
        ("+config|get +config", "off sanitize-payload resetchannels -@all +config"),
        ("+select|0 +SELECT|1", "off sanitize-payload resetchannels -@all +select|0 +select|1"),
        ("+get allcommands", "off sanitize-payload resetchannels +@all"),
        ("skip-sanitize-payload", "off skip-sanitize-payload resetchannels -@all"),
        (
            "( ~a +get ) (&b)",
            "off sanitize-payload resetchannels -@all (~a resetchannels -@all +get) (resetchannels &b -@all)",
        ),
        ("(~a +get) clearselectors", "off sanitize-payload resetchannels -@all"),
    ] {
        assert_eq!(world.line(rules), line, "{rules}");
    }
}

#[test]
fn wrong_rules_change_nothing() {
    let world = World::new();
    world.set("alice", "on ~* &*").expect("valid");
    let before = world.users.get(b"alice").expect("it is there").describe();
    for (rule, error) in [
        ("+nosuch", RuleError::Unknown),
        ("-nosuch", RuleError::Unknown),
        ("+@nosuch", RuleError::Unknown),
        ("+config|nosuch", RuleError::Unknown),
        ("-get|x", RuleError::Unknown),
        ("+get|", RuleError::Syntax),
        ("+get|a\nuser\tevil", RuleError::Syntax),
        ("+get|a\0", RuleError::Syntax),
        ("+config|get|x", RuleError::ArgumentOfSubcommand),
        ("foo", RuleError::Syntax),
        ("%X~a", RuleError::AfterAllKeys),
        ("~a", RuleError::AfterAllKeys),
        ("&a", RuleError::AfterAllChannels),
        ("<nope", RuleError::NoSuchPassword),
        ("#zz", RuleError::NotAHash),
        ("(+nosuch)", RuleError::Unknown),
        ("(%R~a~\tb)", RuleError::Syntax),
    ] {
        let rule_error = RulesError::Rule { rule: rule.into(), error };
        assert_eq!(world.set("alice", &format!("off +get {rule}")), Err(rule_error), "{rule}");
    }
    for rule in ["%~a", "%", "%RR~a", "%RWR~a", "%a", "&a\tb", "~a\tb"] {
        let error = RulesError::Rule { rule: rule.into(), error: RuleError::Syntax };
        assert_eq!(world.set("bob", rule), Err(error), "{rule}");
    }
    assert_eq!(world.set("bob", "on (%R~c +get"), Err(RulesError::Unmatched(b"(%R~c".into())));
    assert_eq!(world.users.get(b"alice").expect("it is there").describe(), before);
    assert!(world.users.get(b"bob").is_none());
}

#[test]
fn passwords_are_added_and_removed() {
    let world = World::new();
    let hash = PasswordHash::of(b"secret");
    for (rules, right) in [
        (">secret", false),
        ("on", false),
        ("on >secret", true),
        ("on >other >secret", true),
        ("on >secret <secret", false),
        (&format!("on #{hash}"), true),
        (&format!("on >secret !{hash}"), false),
        ("on nopass", true),
        ("on nopass >other", false),
        ("on >secret nopass resetpass", false),
    ] {
        assert_eq!(world.user(rules).accepts(b"secret"), right, "{rules}");
    }
}

#[test]
fn keys_need_the_permission_for_what_is_done_with_them() {
    const KEY_1: Result<(), Denial> = Err(Denial::Key { index: 1 });
    const KEY_2: Result<(), Denial> = Err(Denial::Key { index: 2 });
    denies(
        "+@all %R~r* %W~w* ~a* ",
        &[
            ("GET r1", Ok(())),
            ("GET w1", KEY_1),
            ("SET w1 x", Ok(())),
            ("SET r1 x", KEY_1),
            // SET with GET also reads.
            ("SET w1 x GET", KEY_1),
            ("SET a1 x GET", Ok(())),
            ("COPY r1 w1", Ok(())),
            ("COPY w1 r1", KEY_1),
            ("COPY r1 r2", KEY_2),
            ("EXISTS r1 w1 a1", Ok(())),
            ("EXISTS other", KEY_1),
            ("BITFIELD r1 GET u8 0", Ok(())),
            ("BITFIELD r1 SET u8 0 1", KEY_1),
            ("MGET r1 a1 w1", Err(Denial::Key { index: 3 })),
            ("SORT r1 STORE w1", Ok(())),
            ("SORT r1 STORE r2", Err(Denial::Key { index: 3 })),
            ("XREAD COUNT 1 STREAMS r1 w1 0 0", Err(Denial::Key { index: 5 })),
            ("ZUNIONSTORE w1 2 r1 a1", Ok(())),
            ("ZUNIONSTORE w1 2 r1 w1", Err(Denial::Key { index: 4 })),
            ("PING", Ok(())),
        ],
    );
}

#[test]
fn one_selector_must_allow_all_of_a_call() {
    denies(
        "+ping ~root* (~a* +get) (~b* +get +set) (+publish &c*)",
        &[
            ("PING", Ok(())),
            ("GET a1", Ok(())),
            ("GET b1", Ok(())),
            ("SET b1 x", Ok(())),
            ("SET a1 x", Err(Denial::Key { index: 1 })),
            ("GET root1", Err(Denial::Key { index: 1 })),
            ("MGET a1 b1", Err(Denial::Command)),
            ("PUBLISH c1 x", Ok(())),
            ("PUBLISH d x", Err(Denial::Channel { index: 1 })),
            ("AUTH x", Ok(())),
            ("DEL a1", Err(Denial::Command)),
        ],
    );
}

#[test]
fn patterns_of_channels_are_compared_as_texts() {
    denies(
        "+@pubsub &news.* &orders",
        &[
            ("SUBSCRIBE news.1 orders", Ok(())),
            ("SUBSCRIBE news.1 other", Err(Denial::Channel { index: 2 })),
            ("PSUBSCRIBE news.*", Ok(())),
            ("PSUBSCRIBE news.1*", Err(Denial::Channel { index: 1 })),
            ("SSUBSCRIBE other", Err(Denial::Channel { index: 1 })),
            ("UNSUBSCRIBE other", Ok(())),
        ],
    );
}

#[test]
fn subcommands_and_first_arguments_are_told_apart() {
    denies(
        "+config|get +select|0 -client +client|id",
        &[
            ("CONFIG GET x", Ok(())),
            ("CONFIG SET x y", Err(Denial::Command)),
            ("SELECT 0", Ok(())),
            ("SELECT 1", Err(Denial::Command)),
            ("CLIENT ID", Ok(())),
            ("CLIENT LIST", Err(Denial::Command)),
        ],
    );
    denies(
        "+@all -select +select|1 -config|set",
        &[
            ("SELECT 1", Ok(())),
            ("SELECT 0", Err(Denial::Command)),
            ("CONFIG GET x", Ok(())),
            ("CONFIG SET x y", Err(Denial::Command)),
        ],
    );
}

/// `+@read` does not allow scripts, because they may run for any time.
#[test]
fn scripts_are_not_in_the_category_of_reads() {
    let scripts = ["EVAL_RO x 0", "EVALSHA_RO x 0", "FCALL_RO f 0", "EVAL x 0", "FCALL f 0"];
    let denied = scripts.map(|call| (call, Err(Denial::Command)));
    denies("+@read +@write ~*", &[&denied[..], &[("GET a", Ok(()))]].concat());
    denies("+@all -@read -@write ~*", &scripts.map(|call| (call, Ok(()))));
    denies("+@all -@scripting ~*", &denied);
}

#[test]
fn a_user_keeps_its_identity_until_it_is_removed() {
    let world = World::new();
    world.set("alice", "on nopass +get").expect("valid");
    let alice = world.users.get(b"alice").expect("it was made");
    let mut rights = Rights::of(alice, &world.users);
    world.set("alice", "+@all ~* &*").expect("valid");
    assert!(rights.are_old(&world.users) && rights.are_restricted());
    assert!(rights.renew(&world.users) && !rights.are_restricted());
    assert!(world.users.remove(b"alice") && !world.users.remove(b"default"));
    world.set("alice", "on nopass +@all ~* &*").expect("valid");
    assert!(!rights.renew(&world.users) && rights.are_restricted());
}

#[test]
fn the_default_user_is_open_while_it_needs_no_password() {
    let world = World::new();
    assert!(world.users.is_open());
    for (rules, is_open) in [("off", false), ("on", true), (">x", false), ("nopass", true)] {
        world.set("default", rules).expect("valid");
        assert_eq!(world.users.is_open(), is_open, "{rules}");
    }
    let users = vec![world.users.new_user(b"bob", world.terms())];
    world.users.replace(users, world.terms());
    let names: Vec<_> = world.users.all().iter().map(|user| user.name().to_vec()).collect();
    assert_eq!(names, [b"bob".to_vec(), b"default".to_vec()]);
}

#[test]
fn a_file_is_loaded_as_a_whole_or_not_at_all() {
    let world = World::new();
    let parse = |text: &str| {
        parse(text.as_bytes(), std::path::Path::new("users.acl"), &world.users, world.terms())
            .map_err(|error| error.to_string())
    };
    let users = parse("# all\n\nuser alice on nopass (~x +get)\r\nuser bob off\n").expect("valid");
    let lines: Vec<_> =
        users.iter().map(|user| String::from_utf8(user.describe()).expect("text")).collect();
    assert_eq!(
        lines[0],
        "alice on nopass sanitize-payload resetchannels -@all (~x resetchannels -@all +get)"
    );
    let error =
        parse("user a on\nfoo\nuser b +nosuch\nuser a off\nuser c (~x\nuser e &a&*\tb\nuser\n")
            .expect_err("wrong");
    let expected = "users.acl:2 should start with user keyword followed by the username. \
        users.acl:3: Error in applying operation '+nosuch': Unknown command or category name in ACL. \
        WARNING: Duplicate user 'a' found on line 4. \
        users.acl:5: Unmatched parenthesis in selector definition. users.acl:6: Syntax error. \
        users.acl:7 should start with user keyword followed by the username. \
        WARNING: ACL errors detected, no change to the previously active ACL rules was performed";
    assert_eq!(error, expected);
    assert!(!parse("user a <hunter2").expect_err("no such password").contains("hunter2"));
}

/// A rule of any kind, most of them valid.
fn rule() -> impl Strategy<Value = String> {
    let table = crate::table();
    let names: Vec<String> = table.all().map(|command| command.full_name.clone()).collect();
    let sign = || prop::sample::select(vec!["+", "-"]);
    let name = || prop::sample::select(names.clone());
    let category = prop::sample::select(crate::command::category::ALL.to_vec());
    prop_oneof![
        4 => (sign(), name()).prop_map(|(sign, name)| format!("{sign}{name}")),
        3 => (sign(), category).prop_map(|(sign, name)| format!("{sign}@{name}")),
        1 => "\\+(get|set|select|ping)\\|[a-c0]",
        1 => sign().prop_map(|sign| format!("{sign}@all")),
        3 => "(~|%R~|%W~|%RW~)[ab*]{0,4}\\*?",
        2 => "&[ab*]{0,3}",
        2 => prop::sample::select(vec!["allkeys", "resetkeys", "allchannels", "resetchannels", "on", "off",
            "nopass", "resetpass", "clearselectors", "reset", ">a", ">b", "<a", "sanitize-payload",
            "skip-sanitize-payload"]).prop_map(str::to_owned),
        1 => "(~|&|\\+get\\|)[a*\"'\\\\)(]{1,4}",
        2 => "(~|&|\\+get\\|)[a*\"'\\\\)(]{1,4}".prop_map(|rule| {
            let rule = String::from_utf8(words::quote(rule.as_bytes())).expect("ASCII");
            format!("({rule} +set)")
        }),
        2 => "\\((~|%R~)[ab]{1,2}\\* \\+(get|set|@read|@all)( -(get|@write))?( &a)?\\)",
    ]
}

fn calls() -> impl Strategy<Value = String> {
    prop_oneof![
        "(get|del|exists|incr|lpush|strlen) [ab]{1,3} ?",
        "(set|rename|copy|mget|getset) [ab]{1,3} [ab]{1,3}",
        "(publish|subscribe|psubscribe) [ab*]{1,3} [ab]",
        "(select|ping|config get|client id|config set) [a-c0]",
    ]
    .prop_map(|call| call.trim_end().to_owned())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(effort(256)))]

    /// The line of a user recreates that user, with equal rights; and shortcuts agree with the rules.
    #[test]
    fn lines_make_the_same_users(
        rules in prop::collection::vec(rule(), 0..16),
        calls in prop::collection::vec(calls(), 0..24),
    ) {
        let world = World::new();
        for rule in rules {
            let _ = world.users.change(b"alice", &[rule.as_bytes()], world.terms());
        }
        let Some(user) = world.users.get(b"alice") else { return Ok(()) };
        let line = user.describe();
        let rules: Vec<&[u8]> = line.split(|byte| *byte == b' ').skip(1).collect();
        let mut again = world.users.new_user(b"alice", world.terms());
        prop_assert_eq!(again.apply_all(&rules, world.terms()), Ok(()));
        prop_assert_eq!(again.describe(), line);
        prop_assert_eq!(again.selectors(), user.selectors());
        for call in calls {
            prop_assert_eq!(world.check(&user, &call), world.check(&again, &call), "{}", call);
        }
    }
}
