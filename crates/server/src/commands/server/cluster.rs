//! CLUSTER, READONLY, READWRITE, ASKING, FAILOVER: what a server answers that is no cluster and has no
//! replicas. Clients send these to find out, and go on when they are told; a command that is unknown would
//! look like a server too old for them.

use std::num::NonZeroI64;

use tierce_wire::number;
use tierce_wire::resp::Args;

use crate::command::{Flags, Group, Spec};
use crate::error::CommandError;
use crate::execute::Context;

const REFUSED: &str = "Refused: cluster support is disabled.";

/// Asks about the cluster.
const ASKS: Flags = Flags::STALE;
/// Asks about its nodes.
const LOOKS: Flags = Flags::STALE.with(Flags::ADMIN);
/// Changes it.
const CHANGES: Flags = LOOKS.with(Flags::NO_ASYNC_LOADING);

/// The order of the nodes or slots in the reply is not defined.
const UNORDERED: &[&str] = &["nondeterministic_output"];

const fn sub(name: &'static str, arity: i16, flags: Flags, syntax: &'static str) -> Spec {
    Spec::new(name, arity, Group::Cluster, disabled)
        .flags(flags)
        .doc("3.0.0", "O(1)", syntax, REFUSED)
}

const fn hint(name: &'static str) -> Spec {
    Spec::new(name, 1, Group::Cluster, disabled)
        .flags(Flags::FAST)
        .categories(&["connection"])
        .doc("3.0.0", "O(1)", "", REFUSED)
}

const fn since(version: &'static str, spec: Spec) -> Spec {
    Spec { since: version, ..spec }
}

static CLUSTER: &[Spec] = &[
    sub("addslots", -3, CHANGES, "slot [slot ...]"),
    since(
        "7.0.0",
        sub("addslotsrange", -4, CHANGES, "start-slot end-slot [start-slot end-slot ...]"),
    ),
    sub("bumpepoch", 2, CHANGES, "").tips(UNORDERED),
    sub("count-failure-reports", 3, LOOKS, "node-id").tips(UNORDERED),
    sub("countkeysinslot", 3, ASKS, "slot"),
    sub("delslots", -3, CHANGES, "slot [slot ...]"),
    since(
        "7.0.0",
        sub("delslotsrange", -4, CHANGES, "start-slot end-slot [start-slot end-slot ...]"),
    ),
    sub("failover", -2, CHANGES, "[FORCE | TAKEOVER]"),
    sub("flushslots", 2, CHANGES, ""),
    sub("forget", 3, CHANGES, "node-id"),
    sub("getkeysinslot", 4, ASKS, "slot count").tips(UNORDERED),
    since("5.0.0", sub("help", 2, ASKS.with(Flags::LOADING), "")),
    sub("info", 2, ASKS, "").tips(UNORDERED),
    sub("keyslot", 3, ASKS, "key"),
    since("7.0.0", sub("links", 2, ASKS, "").tips(UNORDERED)),
    sub("meet", -4, CHANGES, "ip port [cluster-bus-port]"),
    sub("myid", 2, ASKS, ""),
    since("7.2.0", sub("myshardid", 2, ASKS, "").tips(UNORDERED)),
    sub("nodes", 2, ASKS, "").tips(UNORDERED),
    since("5.0.0", sub("replicas", 3, LOOKS, "node-id").tips(UNORDERED)),
    sub("replicate", 3, CHANGES, "node-id"),
    sub("reset", -2, LOOKS.with(Flags::NOSCRIPT), "[HARD | SOFT]"),
    sub("saveconfig", 2, CHANGES, ""),
    sub("set-config-epoch", 3, CHANGES, "config-epoch"),
    sub(
        "setslot",
        -4,
        CHANGES,
        "slot <IMPORTING node-id | MIGRATING node-id | NODE node-id | STABLE>",
    ),
    since("7.0.0", sub("shards", 2, ASKS, "").tips(UNORDERED)),
    sub("slaves", 3, LOOKS, "node-id").tips(UNORDERED).deprecated("5.0.0", "`CLUSTER REPLICAS`"),
    sub("slots", 2, ASKS, "").tips(UNORDERED).deprecated("7.0.0", "`CLUSTER SHARDS`"),
];

pub(super) static COMMANDS: &[Spec] = &[
    Spec::container("cluster", Group::Cluster, CLUSTER, disabled).doc(
        "3.0.0",
        "Depends on subcommand.",
        "",
        "A container for commands of a cluster.",
    ),
    Spec { flags: Flags::FAST.with(Flags::LOADING).with(Flags::STALE), ..hint("readonly") },
    Spec { flags: Flags::FAST.with(Flags::LOADING).with(Flags::STALE), ..hint("readwrite") },
    hint("asking"),
    Spec::new("failover", -1, Group::Server, failover)
        .flags(Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::STALE))
        .doc(
            "6.2.0",
            "O(1)",
            "[TO host port [FORCE]] [ABORT] [TIMEOUT milliseconds]",
            "Refused: there are no replicas.",
        ),
];

type Done = Result<(), CommandError>;

fn disabled(_ctx: &mut Context<'_, '_>, _args: Args<'_>) -> Done {
    Err(CommandError::new("ERR This instance has cluster support disabled"))
}

fn failover(_ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let (mut timeout, mut is_targeted, mut is_forced) = (None, false, false);
    let mut options = args.iter().skip(1);
    if args.len() == 2 && args[1].eq_ignore_ascii_case(b"abort") {
        return Err(CommandError::new("ERR No failover in progress."));
    }
    while let Some(option) = options.next() {
        match option.to_ascii_lowercase().as_slice() {
            b"timeout" if timeout.is_none() => {
                timeout = Some(milliseconds(options.next().ok_or(CommandError::SYNTAX)?)?);
            }
            b"to" if !is_targeted => {
                let (_host, port) = (options.next(), options.next().ok_or(CommandError::SYNTAX)?);
                number::parse_i64(port).ok_or(CommandError::NOT_AN_INTEGER)?;
                is_targeted = true;
            }
            b"force" if !is_forced => is_forced = true,
            _ => return Err(CommandError::SYNTAX),
        }
    }
    Err(CommandError::new("ERR FAILOVER requires connected replicas."))
}

fn milliseconds(text: &[u8]) -> Result<NonZeroI64, CommandError> {
    let ms = number::parse_i64(text).ok_or(CommandError::NOT_AN_INTEGER)?;
    let ms = NonZeroI64::new(ms).filter(|ms| ms.is_positive());
    ms.ok_or(CommandError::new("ERR FAILOVER timeout must be greater than 0"))
}
