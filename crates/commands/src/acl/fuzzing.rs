//! Target that fuzzes rules of users; see `tierce_wire::fuzzing`.
//!
//! It panics if a guarantee is violated. This is not part of the crate's interface.

use std::path::Path;
use std::sync::LazyLock;

use tierce_wire::resp::OwnedArgs;

use super::user::UserId;
use super::{ChannelDefault, Terms, User, Users, file};
use crate::command::Table;

static TABLE: LazyLock<Table> = LazyLock::new(crate::table);

/// Calls that are checked for each user. They read keys, write keys, do both, use channels or a subcommand, or use
/// nothing.
const CALLS: &[&[&[u8]]] = &[
    &[b"GET", b"a"],
    &[b"SET", b"ab", b"x", b"GET"],
    &[b"COPY", b"a", b"b"],
    &[b"PUBLISH", b"c", b"x"],
    &[b"CONFIG", b"GET", b"dir"],
    &[b"SELECT", b"0"],
    &[b"PING"],
];

/// Each rule or file line is either refused or gives a user whose description recreates that user. Bit 0 of the first
/// byte selects the format of the rest: arguments of `ACL SETUSER`, one a line, or an `aclfile`.
pub fn acl_rules(data: &[u8]) {
    let Some((&parameters, input)) = data.split_first() else { return };
    let channels = if parameters & 2 == 0 { ChannelDefault::None } else { ChannelDefault::All };
    let terms = Terms { table: &TABLE, channels };
    let users = Users::new(terms);
    if parameters & 1 == 0 {
        let rules: Vec<_> = input.split(|byte| *byte == b'\n').collect();
        let mut user = User::new(UserId(1), b"ann", terms);
        if user.apply_all(&rules, terms).is_ok() {
            check(&user, &users, terms);
        }
    } else {
        let read = file::parse(input, Path::new("users.acl"), &users, terms);
        read.unwrap_or_default().iter().for_each(|user| check(user, &users, terms));
    }
}

fn check(user: &User, users: &Users, terms: Terms<'_>) {
    let line = [b"user ", user.describe().as_slice()].concat();
    let again = file::parse(&line, Path::new("again.acl"), users, terms).expect("its own line");
    assert_eq!(again.iter().map(User::describe).collect::<Vec<_>>(), [user.describe()]);
    for call in CALLS {
        let mut args = OwnedArgs::new();
        call.iter().for_each(|arg| args.push(arg).expect("a short call"));
        let args = args.as_args();
        let command = terms.table.find(args.at(0)).expect("a command");
        let command = args.get(1).and_then(|sub| command.subcommand(sub)).unwrap_or(command);
        let denial = user.check(command, args);
        assert_eq!(again[0].check(command, args), denial);
        assert!(!user.allows_at_once(command, args) || denial.is_ok(), "allowed at once alone");
        assert!(!user.is_unrestricted() || denial.is_ok(), "not unrestricted");
    }
}

#[cfg(test)]
#[test]
fn fuzz_smoke() {
    tierce_harness::fuzz_smoke(acl_rules, b"\n\n +-@~&%RW()|*>#<!abcgetsl\"'\\0123456789", &[
        b"\0on\n>secret\n~a*\n%R~b\n&c*\n+@all\n-config\n+config|get\n+select|0",
        b"\0nopass\n(~a\n+get)\n(&b -@all +@read)\n(%W~c\n+set\n)\nclearselectors\n(\n)",
        b"\0reset\nallkeys\nallchannels\nallcommands\nresetkeys\nresetchannels\nnocommands",
        b"\x01user ann on nopass ~* &* +@all\nuser bob off (~a +get)\n\n# none\n",
        b"\x03user ann on #e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855 -@all\r\n",
    ]);
}
