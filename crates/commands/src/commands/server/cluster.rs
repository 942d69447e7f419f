//! CLUSTER, READONLY, READWRITE, ASKING: answers of a server without cluster. Clients that follow redirections of a
//! replica get others. Clients send these commands to detect a cluster, and accept the answer; an unknown command
//! would look like a server too old for them.

use crate::clients::ClientFlags;
use crate::command::{Flags, Group};
use crate::error::CommandError;
use crate::pipeline::{Body, Context, Defined, Done, no_arguments};

const REFUSED: &str = "Refused: cluster support is disabled.";

/// Flags of queries about the cluster.
const ASKS: Flags = Flags::STALE;
/// Flags of queries about its nodes.
const LOOKS: Flags = Flags::STALE.with(Flags::ADMIN);
/// Flags of changes.
const CHANGES: Flags = LOOKS.with(Flags::NO_ASYNC_LOADING);

/// The order of nodes or slots in the reply is undefined.
const UNORDERED: &[&str] = &["nondeterministic_output"];

/// Example of a refused command.
macro_rules! disabled {
    ($call:literal) => {
        concat!("> ", $call, "\n(error) ERR This instance has cluster support disabled")
    };
}

const fn sub(name: &'static str, arity: i16, flags: Flags, syntax: &'static str) -> Defined {
    Defined::new(name, Group::Cluster, Body::refusal(2, arity, disabled))
        .flags(flags)
        .since("3.0.0", "O(1)")
        .doc(syntax, REFUSED)
}

const fn of_replicas(name: &'static str, body: Body) -> Defined {
    Defined::new(name, Group::Cluster, body)
        .flags(Flags::FAST.with(Flags::LOADING).with(Flags::STALE))
        .categories(&["connection"])
        .since("3.0.0", "O(1)")
}

const fn since(version: &'static str, defined: Defined) -> Defined {
    defined.since(version, "O(1)")
}

static CLUSTER: &[Defined] = &[
    sub("addslots", -3, CHANGES, "slot [slot ...]").example(disabled!("CLUSTER ADDSLOTS 0 1 2")),
    since(
        "7.0.0",
        sub("addslotsrange", -4, CHANGES, "start-slot end-slot [start-slot end-slot ...]")
            .example(disabled!("CLUSTER ADDSLOTSRANGE 0 5460")),
    ),
    sub("bumpepoch", 2, CHANGES, "").example(disabled!("CLUSTER BUMPEPOCH")).tips(UNORDERED),
    sub("count-failure-reports", 3, LOOKS, "node-id")
        .example(disabled!(
            "CLUSTER COUNT-FAILURE-REPORTS 07c37dfeb235213a872192d90877d0cd55635b91"
        ))
        .tips(UNORDERED),
    sub("countkeysinslot", 3, ASKS, "slot").example(disabled!("CLUSTER COUNTKEYSINSLOT 7000")),
    sub("delslots", -3, CHANGES, "slot [slot ...]").example(disabled!("CLUSTER DELSLOTS 0 1 2")),
    since(
        "7.0.0",
        sub("delslotsrange", -4, CHANGES, "start-slot end-slot [start-slot end-slot ...]")
            .example(disabled!("CLUSTER DELSLOTSRANGE 0 5460")),
    ),
    sub("failover", -2, CHANGES, "[FORCE | TAKEOVER]").example(disabled!("CLUSTER FAILOVER")),
    sub("flushslots", 2, CHANGES, "").example(disabled!("CLUSTER FLUSHSLOTS")),
    sub("forget", 3, CHANGES, "node-id")
        .example(disabled!("CLUSTER FORGET 07c37dfeb235213a872192d90877d0cd55635b91")),
    sub("getkeysinslot", 4, ASKS, "slot count")
        .example(disabled!("CLUSTER GETKEYSINSLOT 7000 3"))
        .tips(UNORDERED),
    since(
        "5.0.0",
        sub("help", 2, ASKS.with(Flags::LOADING), "").example(disabled!("CLUSTER HELP")),
    ),
    sub("info", 2, ASKS, "").example(disabled!("CLUSTER INFO")).tips(UNORDERED),
    sub("keyslot", 3, ASKS, "key").example(disabled!("CLUSTER KEYSLOT user:1")),
    since("7.0.0", sub("links", 2, ASKS, "").example(disabled!("CLUSTER LINKS")).tips(UNORDERED)),
    sub("meet", -4, CHANGES, "ip port [cluster-bus-port]")
        .example(disabled!("CLUSTER MEET 127.0.0.1 7000")),
    sub("myid", 2, ASKS, "").example(disabled!("CLUSTER MYID")),
    since(
        "7.2.0",
        sub("myshardid", 2, ASKS, "").example(disabled!("CLUSTER MYSHARDID")).tips(UNORDERED),
    ),
    sub("nodes", 2, ASKS, "").example(disabled!("CLUSTER NODES")).tips(UNORDERED),
    since(
        "5.0.0",
        sub("replicas", 3, LOOKS, "node-id")
            .example(disabled!("CLUSTER REPLICAS 07c37dfeb235213a872192d90877d0cd55635b91"))
            .tips(UNORDERED),
    ),
    sub("replicate", 3, CHANGES, "node-id")
        .example(disabled!("CLUSTER REPLICATE 07c37dfeb235213a872192d90877d0cd55635b91")),
    sub("reset", -2, LOOKS.with(Flags::NOSCRIPT), "[HARD | SOFT]")
        .example(disabled!("CLUSTER RESET")),
    sub("saveconfig", 2, CHANGES, "").example(disabled!("CLUSTER SAVECONFIG")),
    sub("set-config-epoch", 3, CHANGES, "config-epoch")
        .example(disabled!("CLUSTER SET-CONFIG-EPOCH 5")),
    sub(
        "setslot",
        -4,
        CHANGES,
        "slot <IMPORTING node-id | MIGRATING node-id | NODE node-id | STABLE>",
    )
    .example(disabled!("CLUSTER SETSLOT 0 STABLE")),
    since("7.0.0", sub("shards", 2, ASKS, "").example(disabled!("CLUSTER SHARDS")).tips(UNORDERED)),
    sub("slaves", 3, LOOKS, "node-id")
        .example(disabled!("CLUSTER SLAVES 07c37dfeb235213a872192d90877d0cd55635b91"))
        .tips(UNORDERED)
        .deprecated("5.0.0", "`CLUSTER REPLICAS`"),
    sub("slots", 2, ASKS, "")
        .example(disabled!("CLUSTER SLOTS"))
        .tips(UNORDERED)
        .deprecated("7.0.0", "`CLUSTER SHARDS`"),
];

pub(super) static COMMANDS: &[Defined] = &[
    Defined::container("cluster", Group::Cluster, CLUSTER, disabled)
        .since("3.0.0", "Depends on subcommand.")
        .doc("", "A container for commands of a cluster."),
    of_replicas("readonly", no_arguments!(|ctx| choose_reads(ctx, true)))
        .doc("", "Lets a connection with `CLIENT CAPA redirect` read from a replica.")
        .example(
            r#"
            > READONLY
            (error) ERR This instance has cluster support disabled
            > CLIENT CAPA redirect
            OK
            > READONLY
            OK
            "#,
        ),
    of_replicas("readwrite", no_arguments!(|ctx| choose_reads(ctx, false)))
        .doc("", "Ends what `READONLY` has begun.")
        .example(
            r#"
            > CLIENT CAPA redirect
            OK
            > READONLY
            OK
            > READWRITE
            OK
            "#,
        ),
    Defined::new("asking", Group::Cluster, Body::refusal(1, 1, disabled))
        .flags(Flags::FAST)
        .categories(&["connection"])
        .since("3.0.0", "O(1)")
        .doc("", REFUSED)
        .example(disabled!("ASKING")),
];

/// Sets if a connection with redirection reads from a replica. For any other connection, which reads there anyway,
/// the command is about a cluster.
fn choose_reads(ctx: &mut Context<'_, '_>, from_replicas: bool) -> Done {
    let client = &ctx.caller.client;
    if !client.has(ClientFlags::REDIRECTS) {
        return disabled(ctx);
    }
    client.set(ClientFlags::READS_REPLICAS, from_replicas);
    ctx.reply.ok();
    Ok(())
}

fn disabled(_: &mut Context<'_, '_>) -> Done {
    Err(CommandError::new("ERR This instance has cluster support disabled"))
}
