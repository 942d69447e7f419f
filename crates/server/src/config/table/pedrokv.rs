//! The protocol of PedroKV.

use super::super::directive::{Directive, row};
use super::super::kind::Kind;
use super::{INT_MAX, PORT};

#[rustfmt::skip]
pub(super) const ROWS: &[Directive] = &[
    row("pedrokv-port", PORT, "0",
        "TCP port for the protocol of PedroKV, on the same addresses. 1082 by convention. 0 does \
         not listen."),
    row("pedrokv-unixsocket", Kind::Text, "",
        "Path of a Unix socket for the protocol of PedroKV, with the permissions of \
         unixsocketperm. Empty: none.")
        .before_start(),
    row("pedrokv-database", Kind::Int(0, INT_MAX), "0",
        "The database that clients of PedroKV see.")
        .before_start(),
];
