//! CLIENT and its subcommands.

use std::sync::Arc;

use tierce_wire::number;
use tierce_wire::resp::{Proto, Rest};

use super::auth::clean_name;
use super::tracking::{caching, get_redir, track, tracking_info};
use crate::caller::ReplyMode;
use crate::clients::{Client, ClientFlags, Filter, Identity, PauseMode};
use crate::command::{Flags, Group};
use crate::commands::help::{help, help_spec};
use crate::durability::SyncPolicy;
use crate::error::CommandError;
use crate::message::Notice;
use crate::pipeline::blocking;
use crate::pipeline::quiet::pause_clients;
use crate::pipeline::{Body, Context, Defined, Done, at_least, exactly, many, no_arguments};
use crate::replica_level::ReplicaLevel;

const OPEN: Flags = Flags::NOSCRIPT.with(Flags::LOADING).with(Flags::STALE);
const OPERATOR: Flags = OPEN.with(Flags::ADMIN);
const TRACKING: Flags = OPEN.with(Flags::TRACKING);

const fn sub(name: &'static str, body: Body) -> Defined {
    Defined::new(name, Group::Connection, body).flags(OPEN)
}

pub(super) static COMMANDS: &[Defined] = &[Defined::container(
    "client",
    Group::Connection,
    &[
        sub("acceptnb", exactly!(sub accept_nb))
            .since(
                "Tierce 0.1.0",
                "O(N) where N is the number of results that are pending for the connection",
            )
            .doc(
                "<ON | OFF>",
                "Allows other connections to redirect results of NB* commands to this one.",
            )
            .example(
                r#"
                > CLIENT ACCEPTNB ON
                OK
                > CLIENT ACCEPTNB OFF
                OK
                "#,
            ),
        sub("caching", exactly!(sub caching))
            .flags(TRACKING)
            .since("6.0.0", "O(1)")
            .doc(
                "<YES | NO>",
                "Says whether the keys that the next command reads are tracked.",
            )
            .example(
                r#"
                > CLIENT TRACKING ON OPTIN
                OK
                > CLIENT CACHING YES
                OK
                > CLIENT CACHING NO
                (error) ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.
                "#,
            ),
        sub("capa", at_least!(sub capa))
            .since("Valkey 8.0.0", "O(1)")
            .doc(
                "capability [capability ...]",
                "Says what the connection understands: with `redirect`, a replica replies `-REDIRECT host:port`, \
                 with the address of its primary, to what is to be done there.",
            )
            .example(
                r#"
                > CLIENT CAPA redirect
                OK
                "#,
            ),
        sub("durability", at_least!(sub durability))
            .since("Tierce 0.1.0", "O(1)")
            .doc(
                "<ALWAYS | EVERYSEC | NO | DEFAULT | REPLICAS:n | REPLICAS-LOGGED:n> [...]",
                "Says how durable the writes of the connection are when they are \
                 acknowledged, here and at replicas.",
            )
            .example(
                r#"
                > CLIENT DURABILITY ALWAYS
                OK
                > SET order:17 paid
                OK
                > CLIENT DURABILITY DEFAULT
                OK
                "#,
            ),
        sub("getname", no_arguments!(sub get_name))
            .since("2.6.9", "O(1)")
            .doc("", "Returns the name of the connection.")
            .example(
                r#"
                > CLIENT GETNAME
                (nil)
                > CLIENT SETNAME importer
                OK
                > CLIENT GETNAME
                "importer"
                "#,
            ),
        sub("getredir", no_arguments!(sub get_redir))
            .since("6.0.0", "O(1)")
            .doc("", "Returns the client to which invalidation messages are redirected.")
            .example(
                r#"
                > CLIENT GETREDIR
                (integer) -1
                "#,
            ),
        sub("id", no_arguments!(sub id))
            .since("5.0.0", "O(1)")
            .doc("", "Returns the unique id of the connection.")
            .example(
                r#"
                > CLIENT ID
                (integer) ...
                "#,
            ),
        sub("info", no_arguments!(sub info))
            .tips(&["nondeterministic_output"])
            .since("6.2.0", "O(1)")
            .doc("", "Returns information about the connection.")
            .example(
                r#"
                > CLIENT INFO
                id=... addr=127.0.0.1:... cmd=client|info ...
                "#,
            ),
        sub("kill", many!(sub kill))
            .flags(OPERATOR)
            .since("2.4.0", "O(N) where N is the number of client connections")
            .doc(
                "<ip:port | <[ID client-id [client-id ...]] [TYPE <NORMAL | MASTER | SLAVE | REPLICA | \
                 PUBSUB>] [USER username] [ADDR address] [LADDR address] [SKIPME yes/no] [MAXAGE maxage] \
                 [NAME name] [IDLE idle] [FLAGS flags] [LIB-NAME lib-name] [LIB-VER lib-ver] [DB db] \
                 [CAPA capa] [IP ip]>>",
                "Closes connections. A name with `NOT-`, such as `NOT-ID`, inverts a condition, except for \
                 `SKIPME`, `MAXAGE` and `IDLE`.",
            )
            .example(
                r#"
                > CLIENT KILL ID 1000000
                (integer) 0
                > CLIENT KILL 127.0.0.1:1
                (error) ERR No such client
                "#,
            ),
        sub("list", many!(sub list))
            .tips(&["nondeterministic_output"])
            .flags(OPERATOR)
            .since("2.4.0", "O(N) where N is the number of client connections")
            .doc(
                "[TYPE <NORMAL | MASTER | REPLICA | PUBSUB>] [ID client-id [client-id ...]] [USER username] \
                 [ADDR address] [LADDR address] [SKIPME yes/no] [MAXAGE maxage] [NAME name] [IDLE idle] \
                 [FLAGS flags] [LIB-NAME lib-name] [LIB-VER lib-ver] [DB db] [CAPA capa] [IP ip]",
                "Lists open connections, all or those that meet conditions: the ones of `CLIENT KILL`.",
            )
            .example(
                r#"
                > CLIENT LIST
                id=... addr=127.0.0.1:... cmd=client|list ...
                ...
                "#,
            ),
        sub("maint_notifications", at_least!(sub maint_notifications))
            .since("Tierce 0.1.0", "O(1)")
            .doc(
                "<ON | OFF> [MOVING-ENDPOINT-TYPE <INTERNAL-IP | INTERNAL-FQDN | EXTERNAL-IP | EXTERNAL-FQDN | NONE>]",
                "Says whether the server tells the connection of planned failovers, and where to connect \
                 then, with push messages. Needs RESP3.",
            )
            .example(
                r#"
                > CLIENT MAINT_NOTIFICATIONS OFF
                OK
                > CLIENT MAINT_NOTIFICATIONS ON MOVING-ENDPOINT-TYPE nowhere
                (error) ERR moving-endpoint-type is not one of internal-ip, internal-fqdn, external-ip, external-fqdn, none
                "#,
            ),
        sub("no-evict", exactly!(sub no_evict))
            .flags(OPERATOR)
            .since("7.0.0", "O(1)")
            .doc("<ON | OFF>", "Exempts the connection from client eviction.")
            .example(
                r#"
                > CLIENT NO-EVICT ON
                OK
                "#,
            ),
        sub("no-touch", exactly!(sub no_touch))
            .since("7.2.0", "O(1)")
            .doc(
                "<ON | OFF>",
                "Lets commands of the connection leave the access times of keys alone.",
            )
            .example(
                r#"
                > CLIENT NO-TOUCH ON
                OK
                "#,
            ),
        sub("pause", at_least!(sub pause))
            .flags(OPERATOR)
            .since("3.0.0", "O(1)")
            .doc("timeout [WRITE | ALL]", "Suspends the processing of commands.")
            .example(
                r#"
                > CLIENT PAUSE 10000 WRITE
                OK
                > CLIENT UNPAUSE
                OK
                "#,
            ),
        sub("reply", exactly!(sub reply))
            .since("3.2.0", "O(1)")
            .doc("<ON | OFF | SKIP>", "Says whether the server replies to commands.")
            .example(
                r#"
                > CLIENT REPLY SKIP
                > PING
                > PING
                PONG
                "#,
            ),
        sub("setinfo", exactly!(sub set_info))
            .since("7.2.0", "O(1)")
            .doc(
                "<LIB-NAME libname | LIB-VER libver>",
                "Sets information about the client library.",
            )
            .example(
                r#"
                > CLIENT SETINFO LIB-NAME importer
                OK
                > CLIENT SETINFO LIB-VER 1.2.0
                OK
                "#,
            ),
        sub("setname", exactly!(sub set_name))
            .since("2.6.9", "O(1)")
            .doc("connection-name", "Names the connection.")
            .example(
                r#"
                > CLIENT SETNAME importer
                OK
                > CLIENT GETNAME
                "importer"
                > CLIENT SETNAME "two words"
                (error) ERR Client names cannot contain spaces, newlines or special characters.
                "#,
            ),
        sub("tracking", at_least!(sub track))
            .flags(TRACKING)
            .since("6.0.0", "O(1). Some options may introduce additional complexity.")
            .doc(
                "<ON | OFF> [REDIRECT client-id] [PREFIX prefix [PREFIX prefix ...]] \
                 [BCAST] [OPTIN] [OPTOUT] [NOLOOP]",
                "Says whether the server tells the connection of changes of keys that it may have \
                 cached.",
            )
            .example(
                r#"
                > CLIENT TRACKING ON BCAST PREFIX user: PREFIX order:
                OK
                > CLIENT TRACKING ON
                (error) ERR You can't switch BCAST mode on/off before disabling tracking for this client, and then re-enabling it with a different mode.
                > CLIENT TRACKING OFF
                OK
                "#,
            ),
        sub("trackinginfo", no_arguments!(sub tracking_info))
            .since("6.2.0", "O(1)")
            .doc("", "Returns whether and how the connection tracks keys.")
            .example(
                r#"
                > CLIENT TRACKINGINFO
                1) "flags"
                2) 1) "off"
                3) "redirect"
                4) (integer) -1
                5) "prefixes"
                6) (empty array)
                "#,
            ),
        sub("unblock", at_least!(sub unblock))
            .flags(OPERATOR)
            .since("5.0.0", "O(log N) where N is the number of client connections")
            .doc(
                "client-id [TIMEOUT | ERROR]",
                "Ends the waiting of a client that is blocked by a command.",
            )
            .example(
                r#"
                > CLIENT UNBLOCK 1000000
                (integer) 0
                > CLIENT UNBLOCK 1000000 ERROR
                (integer) 0
                "#,
            ),
        sub("unpause", no_arguments!(sub unpause))
            .flags(OPERATOR)
            .since("6.2.0", "O(N) Where N is the number of paused clients")
            .doc("", "Resumes the processing of commands.")
            .example(
                r#"
                > CLIENT PAUSE 10000 WRITE
                OK
                > CLIENT UNPAUSE
                OK
                "#,
            ),
        help_spec(Group::Connection).example(
            r#"
                > CLIENT HELP
                 1) CLIENT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:
                 2) ACCEPTNB <ON | OFF>
                 3)     Allows other connections to redirect results of NB* commands to this one.
                 4) CACHING <YES | NO>
                 5)     Says whether the keys that the next command reads are tracked.
                ...
                "#,
        ),
    ],
    help,
)
.since("2.4.0", "Depends on subcommand.")
.doc("", "A container for client connection commands.")];

fn get_name(ctx: &mut Context<'_, '_>) -> Done {
    let identity = ctx.caller.client.identity.lock();
    if identity.name.is_empty() {
        ctx.reply.null();
    } else {
        ctx.reply.bulk(identity.name.as_bytes());
    }
    Ok(())
}

fn set_name(ctx: &mut Context<'_, '_>, [connection_name]: [&[u8]; 1]) -> Done {
    ctx.caller.client.identity.lock().name = clean_name(connection_name)?;
    ctx.reply.ok();
    Ok(())
}

fn set_info(ctx: &mut Context<'_, '_>, [attribute, value]: [&[u8]; 2]) -> Done {
    let name = String::from_utf8_lossy(attribute).to_ascii_lowercase();
    let value = Identity::clean(value).ok_or_else(|| {
        CommandError::text(format!(
            "ERR {name} cannot contain spaces, newlines or special characters."
        ))
    });
    let mut identity = ctx.caller.client.identity.lock();
    match name.as_str() {
        "lib-name" => identity.library = value?,
        "lib-ver" => identity.library_version = value?,
        _ => {
            let name = String::from_utf8_lossy(attribute);
            return Err(CommandError::text(format!("ERR Unrecognized option '{name}'")));
        }
    }
    drop(identity);
    ctx.reply.ok();
    Ok(())
}

fn id(ctx: &mut Context<'_, '_>) -> Done {
    ctx.reply.int(ctx.caller.client.id as i64);
    Ok(())
}

fn info(ctx: &mut Context<'_, '_>) -> Done {
    let line = ctx.kernel.describe_client(&ctx.caller.client, ctx.now_ms) + "\n";
    ctx.reply.verbatim(&line);
    Ok(())
}

fn list(ctx: &mut Context<'_, '_>, options: Rest<'_>) -> Done {
    let filter = Filter::for_list(options, ctx.caller.client.id, &ctx.kernel.acl.users)?;
    let clients = ctx.kernel.clients.matching(&filter, ctx.now_ms);
    let line_of = |client: &Arc<Client>| ctx.kernel.describe_client(client, ctx.now_ms) + "\n";
    let lines: String = clients.iter().map(line_of).collect();
    ctx.reply.verbatim(&lines);
    Ok(())
}

fn kill(ctx: &mut Context<'_, '_>, arguments: Rest<'_, 1>) -> Done {
    if let Some([address]) = arguments.exactly() {
        let victims = ctx.kernel.clients.matching(&Filter::for_address(address), ctx.now_ms);
        let victim = victims.first().ok_or(CommandError::new("ERR No such client"))?;
        end(ctx, victim);
        ctx.reply.ok();
        return Ok(());
    }
    let filter = Filter::for_kill(arguments.any(), ctx.caller.client.id, &ctx.kernel.acl.users)?;
    let victims = ctx.kernel.clients.matching(&filter, ctx.now_ms);
    victims.iter().for_each(|victim| end(ctx, victim));
    ctx.reply.count(victims.len());
    Ok(())
}

/// Closes a connection. The caller's own connection closes after this reply.
fn end(ctx: &mut Context<'_, '_>, victim: &Client) {
    victim.set(ClientFlags::CLOSING, true);
    if victim.id == ctx.caller.client.id {
        ctx.caller.closing = true;
    } else {
        ctx.kernel.end_connection(victim);
    }
}

pub(super) fn on_off(arg: &[u8]) -> Result<bool, CommandError> {
    match arg.to_ascii_lowercase().as_slice() {
        b"on" => Ok(true),
        b"off" => Ok(false),
        _ => Err(CommandError::SYNTAX),
    }
}

fn no_evict(ctx: &mut Context<'_, '_>, [state]: [&[u8]; 1]) -> Done {
    ctx.caller.client.set(ClientFlags::NO_EVICT, on_off(state)?);
    ctx.reply.ok();
    Ok(())
}

/// Tells the client of maintenance, or no longer.
fn maint_notifications(ctx: &mut Context<'_, '_>, [state]: [&[u8]; 1], options: Rest<'_>) -> Done {
    const OLD_PROTOCOL: CommandError = CommandError::new(
        "ERR CLIENT MAINT_NOTIFICATIONS sends push messages, which need RESP3: send HELLO 3 first",
    );
    let is_on = on_off(state)?;
    let keeps_endpoint = match options.exactly() {
        None if options.is_empty() => false,
        Some([name, kind]) if name.eq_ignore_ascii_case(b"moving-endpoint-type") => {
            has_no_endpoint(kind)?
        }
        _ => return Err(CommandError::SYNTAX),
    };
    if is_on && ctx.caller.proto == Proto::Resp2 {
        return Err(OLD_PROTOCOL);
    }
    let client = &ctx.caller.client;
    client.set(ClientFlags::MAINTENANCE, is_on);
    client.set(ClientFlags::KEEPS_ENDPOINT, keeps_endpoint);
    client.set(ClientFlags::MOVED, false);
    ctx.reply.ok();
    Ok(())
}

/// Parses the kind of address in `MOVING`; returns true for none. This server knows one address of each replica: the
/// one that it announces, else the one from which it connects.
fn has_no_endpoint(kind: &[u8]) -> Result<bool, CommandError> {
    const UNKNOWN: CommandError = CommandError::new(
        "ERR moving-endpoint-type is not one of internal-ip, internal-fqdn, external-ip, external-fqdn, none",
    );
    match kind.to_ascii_lowercase().as_slice() {
        b"none" => Ok(true),
        b"internal-ip" | b"internal-fqdn" | b"external-ip" | b"external-fqdn" => Ok(false),
        _ => Err(UNKNOWN),
    }
}

fn accept_nb(ctx: &mut Context<'_, '_>, [state]: [&[u8]; 1]) -> Done {
    blocking::accept_results(ctx.kernel, &ctx.caller.client, on_off(state)?);
    ctx.reply.ok();
    Ok(())
}

/// Sets the durability of this client. Unnamed options get the server's values.
fn durability(ctx: &mut Context<'_, '_>, [first]: [&[u8]; 1], rest: Rest<'_>) -> Done {
    let (mut here, mut at_replicas) = (None, None);
    for word in std::iter::once(first).chain(rest.as_args().iter()) {
        let is_again = if let Some(level) = ReplicaLevel::parse(word) {
            at_replicas.replace(level).is_some()
        } else if word.eq_ignore_ascii_case(b"default") {
            !rest.is_empty()
        } else {
            here.replace(SyncPolicy::parse(word).ok_or(CommandError::SYNTAX)?).is_some()
        };
        if is_again {
            return Err(CommandError::SYNTAX);
        }
    }
    if here == Some(SyncPolicy::Bucket) && !ctx.kernel.bucket.is_on() {
        return Err(CommandError::new("ERR There is no bucket (directive bucket)"));
    }
    ctx.set_durability(here, at_replicas);
    ctx.reply.ok();
    Ok(())
}

/// Records capabilities. Unknown ones are ignored, since they may be of a later version.
fn capa(ctx: &mut Context<'_, '_>, [first]: [&[u8]; 1], rest: Rest<'_>) -> Done {
    let mut all = std::iter::once(first).chain(rest.as_args().iter());
    if all.any(|name| name.eq_ignore_ascii_case(b"redirect")) {
        ctx.caller.client.set(ClientFlags::REDIRECTS, true);
    }
    ctx.reply.ok();
    Ok(())
}

fn no_touch(ctx: &mut Context<'_, '_>, [state]: [&[u8]; 1]) -> Done {
    ctx.caller.no_touch = on_off(state)?;
    ctx.guard.set_touch(ctx.caller.touch());
    ctx.caller.client.set(ClientFlags::NO_TOUCH, ctx.caller.no_touch);
    ctx.reply.ok();
    Ok(())
}

fn reply(ctx: &mut Context<'_, '_>, [mode]: [&[u8]; 1]) -> Done {
    match mode.to_ascii_lowercase().as_slice() {
        b"on" => {
            ctx.caller.reply_mode = ReplyMode::On;
            ctx.reply.ok();
        }
        b"off" => ctx.caller.reply_mode = ReplyMode::Off,
        b"skip" if ctx.caller.reply_mode != ReplyMode::Off => {
            ctx.caller.reply_mode = ReplyMode::SkipNext;
        }
        b"skip" => {}
        _ => return Err(CommandError::SYNTAX),
    }
    Ok(())
}

fn pause(ctx: &mut Context<'_, '_>, [timeout]: [&[u8]; 1], options: Rest<'_>) -> Done {
    if options.len() > 1 {
        return Err(CommandError::subcommand_syntax(ctx.spelled_name(), "client"));
    }
    let mode = match options.get(0).map(<[u8]>::to_ascii_lowercase).as_deref() {
        None | Some(b"all") => PauseMode::All,
        Some(b"write") => PauseMode::Write,
        Some(_) => return Err(CommandError::new("ERR CLIENT PAUSE mode must be WRITE or ALL")),
    };
    let timeout = number::parse_i64(timeout)
        .ok_or(CommandError::new("ERR timeout is not an integer or out of range"))?;
    if timeout < 0 {
        return Err(CommandError::new("ERR timeout is negative"));
    }
    pause_clients(ctx, timeout, mode)?;
    ctx.reply.ok();
    Ok(())
}

fn unpause(ctx: &mut Context<'_, '_>) -> Done {
    ctx.kernel.pause.end();
    ctx.kernel.tell_all(&Notice::Resume);
    ctx.reply.ok();
    Ok(())
}

/// Ends the wait of a blocked client, as if its timeout had passed or with an error.
fn unblock(ctx: &mut Context<'_, '_>, [client_id]: [&[u8]; 1], options: Rest<'_>) -> Done {
    let known = |reason: &[u8]| {
        reason.eq_ignore_ascii_case(b"timeout") || reason.eq_ignore_ascii_case(b"error")
    };
    if options.len() > 1 {
        return Err(CommandError::subcommand_syntax(ctx.spelled_name(), "client"));
    }
    if options.get(0).is_some_and(|reason| !known(reason)) {
        return Err(CommandError::new("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR"));
    }
    let id = number::parse_i64(client_id).ok_or(CommandError::NOT_AN_INTEGER)?;
    let with_error = options.get(0).is_some_and(|reason| reason.eq_ignore_ascii_case(b"error"));
    let client = u64::try_from(id).ok().and_then(|id| ctx.kernel.clients.get(id));
    let unblocked = client.is_some_and(|client| blocking::unblock(ctx.kernel, &client, with_error));
    ctx.reply.int(unblocked.into());
    Ok(())
}
