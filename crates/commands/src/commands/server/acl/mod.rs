//! ACL: users and their rights.

mod inspect;
mod log;
mod users;

use crate::command::{Flags, Group, Scope};
use crate::commands::help::{help, help_spec};
use crate::pipeline::{Body, Defined, at_least, exactly, many, no_arguments};

const OPEN: Flags = Flags::NOSCRIPT.with(Flags::LOADING).with(Flags::STALE);
const OPERATOR: Flags = OPEN.with(Flags::ADMIN);
const TO_ALL_NODES: &[&str] = &["request_policy:all_nodes", "response_policy:all_succeeded"];

const fn sub(name: &'static str, flags: Flags, body: Body) -> Defined {
    Defined::new(name, Group::Server, body).flags(flags)
}

pub(super) static COMMANDS: &[Defined] = &[Defined::container(
    "acl",
    Group::Server,
    &[
        sub("cat", OPEN, many!(sub inspect::categories))
            .since("6.0.0", "O(1) since the categories and commands are a fixed set.")
            .doc("[category]", "Lists the access categories, or the commands of one of them.")
            .example(
                r#"
                > ACL CAT
                 1) "keyspace"
                 2) "read"
                ...
                > ACL CAT hyperloglog
                1) "pfadd"
                ...
                > ACL CAT nosuch
                (error) ERR Unknown category 'nosuch'
                "#,
            ),
        sub("deluser", OPERATOR, many!(sub users::delete))
            .locks(Scope::Unlocked)
            .tips(TO_ALL_NODES)
            .since("6.0.0", "O(1) amortized time considering the typical user.")
            .doc("username [username ...]", "Deletes users, and closes their connections.")
            .example(
                r#"
                > ACL SETUSER alice on nopass
                OK
                > ACL DELUSER alice bob
                (integer) 1
                > ACL DELUSER default
                (error) ERR The 'default' user cannot be removed
                "#,
            ),
        sub("dryrun", OPERATOR, at_least!(sub inspect::dry_run))
            .since("7.0.0", "O(1).")
            .doc("username command [arg [arg ...]]", "Tells whether a user may make a call, without making it.")
            .example(
                r#"
                > ACL SETUSER alice on nopass ~user:* +get
                OK
                > ACL DRYRUN alice GET user:1
                OK
                > ACL DRYRUN alice GET order:1
                "User alice has no permissions to access the 'order:1' key"
                > ACL DRYRUN alice SET user:1 Ada
                "User alice has no permissions to run the 'set' command"
                > ACL DELUSER alice
                (integer) 1
                "#,
            ),
        sub("genpass", OPEN, many!(sub inspect::generate_password))
            .since("6.0.0", "O(1)")
            .doc("[bits]", "Returns a random password.")
            .example(
                r#"
                > ACL GENPASS
                "..."
                > ACL GENPASS 5000
                (error) ERR ACL GENPASS argument must be the number of bits for the output password, a positive number up to 4096
                "#,
            ),
        sub("getuser", OPERATOR, exactly!(sub inspect::get_user))
            .since(
                "6.0.0",
                "O(N). Where N is the number of password, command and pattern rules that the user has.",
            )
            .doc("username", "Returns the rules of a user.")
            .example(
                r#"
                > ACL SETUSER alice on nopass ~user:* +@read -hgetall
                OK
                > ACL GETUSER alice
                 1) "flags"
                 2) 1) "on"
                    2) "nopass"
                    3) "sanitize-payload"
                 3) "passwords"
                 4) (empty array)
                 5) "commands"
                 6) "-@all +@read -hgetall"
                 7) "keys"
                 8) "~user:*"
                 9) "channels"
                10) ""
                11) "selectors"
                12) (empty array)
                > ACL DELUSER alice
                (integer) 1
                > ACL GETUSER alice
                (nil)
                "#,
            ),
        sub("list", OPERATOR, no_arguments!(sub inspect::list))
            .since("6.0.0", "O(N). Where N is the number of configured users.")
            .doc("", "Lists the rules of all users, as lines of a configuration.")
            .example(
                r#"
                > ACL LIST
                1) "user default on nopass sanitize-payload ~* &* +@all"
                "#,
            ),
        sub("load", OPERATOR, no_arguments!(sub users::load))
            .locks(Scope::Unlocked)
            .since("6.0.0", "O(N). Where N is the number of configured users.")
            .doc("", "Replaces all users by those of the ACL file.")
            .example(
                r#"
                > ACL LOAD
                (error) ERR This Redis instance is not configured to use an ACL file. ...
                "#,
            ),
        sub("log", OPERATOR, many!(sub log::log))
            .since("6.0.0", "O(N) with N being the number of entries shown.")
            .doc("[count | RESET]", "Lists what was denied, newest first.")
            .example(
                r#"
                > ACL LOG RESET
                OK
                > ACL LOG
                (empty array)
                "#,
            ),
        sub("save", OPERATOR, no_arguments!(sub users::save))
            .locks(Scope::Unlocked)
            .tips(TO_ALL_NODES)
            .since("6.0.0", "O(N). Where N is the number of configured users.")
            .doc("", "Writes all users into the ACL file.")
            .example(
                r#"
                > ACL SAVE
                (error) ERR This Redis instance is not configured to use an ACL file. ...
                "#,
            ),
        sub("setuser", OPERATOR, at_least!(sub users::set))
            .locks(Scope::Unlocked)
            .tips(TO_ALL_NODES)
            .since("6.0.0", "O(N). Where N is the number of rules provided.")
            .doc("username [rule [rule ...]]", "Makes or changes a user by rules, all or none.")
            .example(
                r#"
                > ACL SETUSER alice on >secret ~user:* +@read
                OK
                > ACL SETUSER alice +nosuch
                (error) ERR Error in ACL SETUSER modifier '+nosuch': Unknown command or category name in ACL
                > ACL DELUSER alice
                (integer) 1
                "#,
            ),
        sub("users", OPERATOR, no_arguments!(sub inspect::users))
            .since("6.0.0", "O(N). Where N is the number of configured users.")
            .doc("", "Lists the names of all users.")
            .example(
                r#"
                > ACL USERS
                1) "default"
                "#,
            ),
        sub("whoami", OPEN, no_arguments!(sub inspect::who_am_i))
            .since("6.0.0", "O(1)")
            .doc("", "Returns the name of the connection's user.")
            .example(
                r#"
                > ACL WHOAMI
                "default"
                "#,
            ),
        help_spec(Group::Server).since("6.0.0", "O(1)").example(
                r#"
                > ACL HELP
                 1) ACL <subcommand> [<arg> [value] [opt] ...]. Subcommands are:
                 2) CAT [category]
                 3)     Lists the access categories, or the commands of one of them.
                ...
                "#),
    ],
    help,
)
.since("6.0.0", "Depends on subcommand.")
.doc("", "A container for commands on users and their rights.")];
