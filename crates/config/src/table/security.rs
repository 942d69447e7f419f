//! Access control.

use super::super::directive::{Directive, row};
use super::super::kind::{Kind, LONG};

const ALLOWED: Kind = Kind::Word(&["no", "yes", "local"]);

#[rustfmt::skip]
pub(super) const ROWS: &[Directive] = &[
    row("requirepass", Kind::Text, "",
        "Password of the default user. Empty: none is asked for.")
        .secret(),
    row("enable-protected-configs", ALLOWED, "no",
        "Clients that may change `dir` and `dbfilename` at run time: no client, every client, or clients on this \
         machine.")
        .before_start(),
    row("enable-debug-command", ALLOWED, "no",
        "Clients that may use DEBUG: no client, every client, or clients on this machine.")
        .before_start(),
    row("enable-module-command", ALLOWED, "no",
        "Clients that may use MODULE: no client, every client, or clients on this machine.")
        .before_start()
        .accepted("No module can be loaded in any case."),
    row("aclfile", Kind::Text, "",
        "File with the users and their rights. Empty: they are in the configuration file.")
        .before_start(),
    row("acllog-max-len", LONG, "128",
        "Entries that ACL LOG keeps."),
    row("acl-pubsub-default", Kind::Word(&["allchannels", "resetchannels"]), "resetchannels",
        "Channels that a new user may use: all or none."),
];
