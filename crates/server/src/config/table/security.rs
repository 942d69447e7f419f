//! Who may do what.

use super::super::directive::{Directive, row};
use super::super::kind::Kind;
use super::LONG;

const ALLOWED: Kind = Kind::Word(&["no", "yes", "local"]);

#[rustfmt::skip]
pub(super) const ROWS: &[Directive] = &[
    row("requirepass", Kind::Text, "",
        "Password of the default user. Empty: none is asked for.")
        .secret(),
    row("enable-protected-configs", ALLOWED, "no",
        "Who may change `dir` and `dbfilename` at run time: nobody, everybody, or clients on this \
         machine.")
        .before_start(),
    row("enable-debug-command", ALLOWED, "no",
        "Who may use DEBUG: nobody, everybody, or clients on this machine.")
        .before_start(),
    row("enable-module-command", ALLOWED, "no",
        "Who may use MODULE: nobody, everybody, or clients on this machine.")
        .before_start()
        .accepted("There is no MODULE command to allow."),
    row("aclfile", Kind::Text, "",
        "File with the users and their rights. Empty: they are in the configuration file.")
        .before_start()
        .refused(&[],
            "there is no user but the default one, so the file would protect nothing; remove the \
             line and set requirepass"),
    row("acllog-max-len", LONG, "128",
        "Entries that ACL LOG keeps.")
        .accepted("There is no ACL LOG."),
    row("acl-pubsub-default", Kind::Word(&["allchannels", "resetchannels"]), "resetchannels",
        "Channels that a new user may use: all or none.")
        .accepted("No users can be made whom it would concern."),
];
