//! The protocol of PedroKV.

use super::super::directive::{Directive, row};
use super::super::kind::{INT_MAX, Kind, PORT};

#[rustfmt::skip]
pub(super) const ROWS: &[Directive] = &[
    row("pedrokv-port", PORT, "0",
        "TCP port for the protocol of PedroKV, on the same addresses. 1082 by convention. 0 does \
         not listen.")
        .own("0.1.0"),
    row("pedrokv-tls-port", PORT, "0",
        "TCP port for the same over encrypted connections. 0 does not listen.")
        .own("0.1.0"),
    row("pedrokv-unixsocket", Kind::Text, "",
        "Path of a Unix socket for the protocol of PedroKV, with the permissions of \
         unixsocketperm. Empty: none.")
        .own("0.1.0")
        .before_start(),
    row("pedrokv-remote", Kind::Bool, "no",
        "Lets `pedrokv-port` be open on addresses other than loopback. The protocol knows no passwords: \
         any client that reaches the port may read and change everything in its database.")
        .own("0.1.0")
        .before_start(),
    row("pedrokv-database", Kind::Int(0, INT_MAX), "0",
        "The database that clients of PedroKV see.")
        .own("0.1.0")
        .before_start(),
];
