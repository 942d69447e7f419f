//! AUTH and HELLO: authentication and the protocol version.

use tierce_wire::number;
use tierce_wire::resp::{Proto, Rest};

use crate::acl;
use crate::clients::Identity;
use crate::command::{Flags, Group};
use crate::commands::cursor::Options;
use crate::error::CommandError;
use crate::pipeline::{Context, Defined, Done, many};

const FLAGS: Flags = Flags::NOSCRIPT
    .with(Flags::LOADING)
    .with(Flags::STALE)
    .with(Flags::FAST)
    .with(Flags::NO_AUTH)
    .with(Flags::ALLOW_BUSY);

pub(super) static COMMANDS: &[Defined] = &[
    Defined::new("auth", Group::Connection, many!(auth))
        .flags(FLAGS)
        .since("1.0.0", "O(N) where N is the number of passwords defined for the user")
        .doc("[username] password", "Authenticates the connection.")
        .example(
            r#"
            > CONFIG SET requirepass secret
            OK
            > AUTH secret
            OK
            > AUTH guess
            (error) WRONGPASS invalid username-password pair or user is disabled.
            > CONFIG SET requirepass ""
            OK
            "#,
        ),
    Defined::new("hello", Group::Connection, many!(hello))
        .flags(FLAGS)
        .since("6.0.0", "O(1)")
        .doc(
            "[protover [AUTH username password] [SETNAME clientname]]",
            "Handshakes with the server.",
        )
        .example(
            r#"
            > HELLO 2
             1) "server"
             2) "redis"
             3) "version"
             4) "7..."
             5) "proto"
             6) (integer) 2
            ...
            > HELLO 3
            1# "server" => "redis"
            2# "version" => "7..."
            3# "proto" => (integer) 3
            ...
            > HELLO 4
            (error) NOPROTO unsupported protocol version
            "#,
        ),
];

fn auth(ctx: &mut Context<'_, '_>, arguments: Rest<'_, 1>) -> Done {
    let (user, password): (&[u8], &[u8]) = match (arguments.get(0), arguments.get(1)) {
        (Some(_), None) if ctx.kernel.acl.users.default_user().needs_no_password() => {
            return Err(CommandError::new(
                "ERR AUTH <password> called without any password configured for the default \
                 user. Are you sure your configuration is correct?",
            ));
        }
        (Some(password), None) => (acl::DEFAULT, password),
        (Some(user), Some(password)) if arguments.len() == 2 => (user, password),
        _ => return Err(CommandError::SYNTAX),
    };
    authenticate(ctx, user, password)?;
    ctx.reply.ok();
    Ok(())
}

fn authenticate(ctx: &mut Context<'_, '_>, user: &[u8], password: &[u8]) -> Done {
    // A command in EXEC cannot wait.
    let (guesses, host) = (&ctx.kernel.acl.guesses, ctx.caller.client.host());
    if ctx.is_within() && guesses.delay_ms(host, user, ctx.now_ms) > 0 {
        return Err(CommandError::new(
            "ERR too many wrong passwords: AUTH has to be called outside of a transaction",
        ));
    }
    let rights = ctx.kernel.authenticate(&ctx.caller.client, user, password, ctx.now_ms);
    if let Some(rights) = rights {
        ctx.caller.become_user(rights, true);
        return Ok(());
    }
    let origin = match ctx.is_within() {
        true => acl::Origin::Multi,
        false => acl::Origin::TopLevel,
    };
    let (command, called) = (ctx.name(), ctx.call.word(0));
    ctx.kernel.log_wrong_password(&ctx.caller.client, command, called, user, origin);
    Err(CommandError::WRONG_PASS)
}

/// Arguments of HELLO. Nothing takes effect unless all of them can.
struct Handshake<'a> {
    proto: Option<Proto>,
    auth: Option<(&'a [u8], &'a [u8])>,
    name: Option<String>,
}

impl<'a> Handshake<'a> {
    fn parse(mut options: Options<'a>) -> Result<Self, CommandError> {
        let mut handshake = Self { proto: None, auth: None, name: None };
        let Some(version) = options.next_value() else { return Ok(handshake) };
        let version = number::parse_i64(version)
            .ok_or(CommandError::new("ERR Protocol version is not an integer or out of range"))?;
        handshake.proto = Some(match version {
            2 => Proto::Resp2,
            3 => Proto::Resp3,
            _ => return Err(CommandError::new("NOPROTO unsupported protocol version")),
        });
        while let Some(word) = options.next_word() {
            let wrong = |_| {
                let option = String::from_utf8_lossy(word.spelled);
                CommandError::text(format!("ERR Syntax error in HELLO option '{option}'"))
            };
            match &*word {
                b"auth" => {
                    let [user, password] = options.values().map_err(wrong)?;
                    handshake.auth = Some((user, password));
                }
                b"setname" => {
                    handshake.name = Some(clean_name(options.value().map_err(wrong)?)?);
                }
                _ => return Err(wrong(CommandError::SYNTAX)),
            }
        }
        Ok(handshake)
    }
}

/// Checks a client's name, which must not break the lines of `CLIENT LIST`.
pub(super) fn clean_name(name: &[u8]) -> Result<String, CommandError> {
    Identity::clean(name).ok_or(CommandError::new(
        "ERR Client names cannot contain spaces, newlines or special characters.",
    ))
}

fn hello(ctx: &mut Context<'_, '_>, options: Rest<'_>) -> Done {
    let handshake = Handshake::parse(Options::of(options))?;
    if let Some((user, password)) = handshake.auth {
        authenticate(ctx, user, password)?;
    }
    // The password may have been removed since the client connected.
    ctx.caller.authenticated |= ctx.kernel.is_open();
    if !ctx.caller.authenticated {
        return Err(CommandError::new(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the \
             HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and \
             select the RESP protocol version at the same time",
        ));
    }
    if let Some(name) = handshake.name {
        ctx.caller.client.identity.lock().name = name;
    }
    if let Some(proto) = handshake.proto {
        ctx.caller.set_proto(proto);
        ctx.reply.set_proto(proto);
    }
    describe_server(ctx);
    Ok(())
}

fn describe_server(ctx: &mut Context<'_, '_>) {
    let proto = if ctx.caller.proto == Proto::Resp3 { 3 } else { 2 };
    let id = ctx.caller.client.id as i64;
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
