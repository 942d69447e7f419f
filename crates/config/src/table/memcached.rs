//! The protocols of memcached.

use super::super::directive::{Directive, row};
use super::super::kind::{INT_MAX, Kind, PORT};

/// Lower bound of the limit on values, in bytes.
const ITEM_SIZE_MIN: u64 = 1 << 10;
/// Upper bound of the limit on values: a text command declares a length of 31 bits.
const ITEM_SIZE_LIMIT: u64 = 1 << 30;

#[rustfmt::skip]
pub(super) const ROWS: &[Directive] = &[
    row("memcached-port", PORT, "0",
        "TCP port for the text, meta and binary protocols of memcached, on the same addresses. \
         11211 by convention. 0 does not listen.")
        .own("0.1.0"),
    row("memcached-tls-port", PORT, "0",
        "TCP port for the same over encrypted connections. 0 does not listen.")
        .own("0.1.0"),
    row("memcached-unixsocket", Kind::Text, "",
        "Path of a Unix socket for the protocols of memcached, with the permissions of \
         unixsocketperm. Empty: none.")
        .own("0.1.0")
        .before_start(),
    row("memcached-database", Kind::Int(0, INT_MAX), "0",
        "The database that clients of memcached see.")
        .own("0.1.0")
        .before_start(),
    row("memcached-flush-all", Kind::Bool, "yes",
        "Lets clients of memcached flush their database. `no` refuses, as memcached -F does.")
        .own("0.1.0"),
    row("item-size-max", Kind::Memory(ITEM_SIZE_MIN, ITEM_SIZE_LIMIT), "1mb",
        "Bytes of one value that a client of memcached may store. Other protocols have limits of \
         their own.")
        .own("0.1.0"),
];
