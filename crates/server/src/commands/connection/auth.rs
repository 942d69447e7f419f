//! AUTH and HELLO: who the client is and which protocol it speaks.

use tierce_wire::number;
use tierce_wire::resp::{Args, Proto};

use crate::clients::Identity;
use crate::command::{Flags, Group, Spec};
use crate::error::CommandError;
use crate::execute::Context;
use crate::stats::Stat;

const FLAGS: Flags = Flags::NOSCRIPT
    .with(Flags::LOADING)
    .with(Flags::STALE)
    .with(Flags::FAST)
    .with(Flags::NO_AUTH)
    .with(Flags::ALLOW_BUSY);

pub(super) static COMMANDS: &[Spec] = &[
    Spec::new("auth", -2, Group::Connection, auth).flags(FLAGS).doc(
        "1.0.0",
        "O(N) where N is the number of passwords defined for the user",
        "[username] password",
        "Authenticates the connection.",
    ),
    Spec::new("hello", -1, Group::Connection, hello).flags(FLAGS).doc(
        "6.0.0",
        "O(1)",
        "[protover [AUTH username password] [SETNAME clientname]]",
        "Handshakes with the server.",
    ),
];

fn auth(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let (user, password): (&[u8], &[u8]) = match args.len() {
        2 if ctx.server.is_open() => {
            return Err(CommandError::new(
                "ERR AUTH <password> called without any password configured for the default \
                 user. Are you sure your configuration is correct?",
            ));
        }
        2 => (b"default", &args[1]),
        3 => (&args[1], &args[2]),
        _ => return Err(CommandError::SYNTAX),
    };
    authenticate(ctx, user, password)?;
    ctx.reply.ok();
    Ok(())
}

fn authenticate(
    ctx: &mut Context<'_, '_>,
    user: &[u8],
    password: &[u8],
) -> Result<(), CommandError> {
    if user == b"default" && ctx.server.is_password(password) {
        ctx.session.authenticated = true;
        return Ok(());
    }
    ctx.counters.add(Stat::AuthFailures, 1);
    Err(CommandError::WRONG_PASS)
}

/// What HELLO asks for; nothing takes effect unless all of it can.
struct Handshake<'a> {
    proto: Option<Proto>,
    auth: Option<(&'a [u8], &'a [u8])>,
    name: Option<String>,
}

impl<'a> Handshake<'a> {
    fn parse(args: Args<'a>) -> Result<Self, CommandError> {
        let mut handshake = Self { proto: None, auth: None, name: None };
        if args.len() == 1 {
            return Ok(handshake);
        }
        let version = number::parse_i64(args.at(1))
            .ok_or(CommandError::new("ERR Protocol version is not an integer or out of range"))?;
        handshake.proto = Some(match version {
            2 => Proto::Resp2,
            3 => Proto::Resp3,
            _ => return Err(CommandError::new("NOPROTO unsupported protocol version")),
        });
        let mut at = 2;
        while at < args.len() {
            let left = args.len() - at - 1;
            if args[at].eq_ignore_ascii_case(b"auth") && left >= 2 {
                handshake.auth = Some((args.at(at + 1), args.at(at + 2)));
                at += 3;
            } else if args[at].eq_ignore_ascii_case(b"setname") && left >= 1 {
                handshake.name = Some(clean_name(&args[at + 1])?);
                at += 2;
            } else {
                let option = String::from_utf8_lossy(&args[at]);
                let text = format!("ERR Syntax error in HELLO option '{option}'");
                return Err(CommandError::text(text));
            }
        }
        Ok(handshake)
    }
}

/// A client's name, which must not upset the lines of `CLIENT LIST`.
pub(super) fn clean_name(name: &[u8]) -> Result<String, CommandError> {
    Identity::clean(name).ok_or(CommandError::new(
        "ERR Client names cannot contain spaces, newlines or special characters.",
    ))
}

fn hello(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let handshake = Handshake::parse(args)?;
    if let Some((user, password)) = handshake.auth {
        authenticate(ctx, user, password)?;
    }
    // The password may be gone since the client came.
    ctx.session.authenticated |= ctx.server.is_open();
    if !ctx.session.authenticated {
        return Err(CommandError::new(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the \
             HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and \
             select the RESP protocol version at the same time",
        ));
    }
    if let Some(name) = handshake.name {
        ctx.session.client.identity.lock().name = name;
    }
    if let Some(proto) = handshake.proto {
        ctx.session.set_proto(proto);
        ctx.reply.set_proto(proto);
    }
    describe_server(ctx);
    Ok(())
}

fn describe_server(ctx: &mut Context<'_, '_>) {
    let proto = if ctx.session.proto == Proto::Resp3 { 3 } else { 2 };
    let id = ctx.session.client.id as i64;
    let reply = &mut ctx.reply;
    reply.map(7);
    reply.bulk(b"server");
    reply.bulk(b"redis");
    reply.bulk(b"version");
    reply.bulk(crate::REDIS_VERSION.as_bytes());
    reply.bulk(b"proto");
    reply.int(proto);
    reply.bulk(b"id");
    reply.int(id);
    reply.bulk(b"mode");
    reply.bulk(b"standalone");
    reply.bulk(b"role");
    reply.bulk(b"master");
    reply.bulk(b"modules");
    reply.array(0);
}
