//! FUNCTION: libraries of functions.
//!
//! Loading a library runs its code, which may take long. So these commands run on a thread for long commands.

use std::collections::HashSet;
use std::sync::Arc;

use tierce_engine::library::Header;
use tierce_keyspace::CodeKind;
use tierce_rdb::WriterOptions;
use tierce_rdb::functions::{self, FunctionsError};
use tierce_wire::glob::{self, Case};
use tierce_wire::resp::Rest;

use super::check_room;
use crate::command::{Flags, Group, Scope};
use crate::commands::help::{help, help_spec};
use crate::config::DirectiveId;
use crate::error::CommandError;
use crate::pipeline::{Body, Context, Defined, Done, at_least, exactly, many, no_arguments};
use crate::scripting::{Code, Collision, Existing, Kind, KnownLibrary};

/// Name of the only engine, as replies show it.
const ENGINE: &str = "LUA";

/// Returns true for a valid name of the engine in code.
fn is_engine(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(ENGINE.as_bytes())
}

const ALL_SHARDS: &[&str] = &["request_policy:all_shards", "response_policy:all_succeeded"];

const fn sub(name: &'static str, body: Body) -> Defined {
    Defined::new(name, Group::Scripting, body).flags(Flags::NOSCRIPT)
}

/// Defines a subcommand that changes libraries, whose functions others call with their own rights. It starts without
/// locks, and then locks everything for a moment.
const fn change(name: &'static str, body: Body, more: Flags) -> Defined {
    sub(name, body)
        .flags(Flags::NOSCRIPT.with(Flags::WRITE).with(more))
        .categories(&["dangerous"])
        .locks(Scope::Stepwise)
        .tips(ALL_SHARDS)
}

pub(super) static COMMANDS: &[Defined] = &[Defined::container(
    "function",
    Group::Scripting,
    &[
        change("load", many!(sub load), Flags::DENYOOM)
            .since("7.0.0", "O(1) (considering compilation time is redundant)")
            .doc("[REPLACE] function-code", "Adds a library of functions.")
            .example(
                r##"
                > FUNCTION LOAD REPLACE "#!lua name=greetings\nredis.register_function('greet', function() return 'hello' end)"
                "greetings"
                > FCALL greet 0
                "hello"
                > FUNCTION LOAD "#!lua name=greetings\nredis.register_function('greet', function() return 'hi' end)"
                (error) ERR Library 'greetings' already exists
                "##,
            ),
        change("delete", exactly!(sub delete), Flags::NONE)
            .since("7.0.0", "O(1)")
            .doc("library-name", "Removes a library and its functions.")
            .example(
                r##"
                > FUNCTION LOAD REPLACE "#!lua name=greetings\nredis.register_function('greet', function() return 'hello' end)"
                "greetings"
                > FUNCTION DELETE greetings
                OK
                > FCALL greet 0
                (error) ERR Function not found
                "##,
            ),
        change("flush", many!(sub flush), Flags::NONE)
            .since("7.0.0", "O(N) where N is the number of functions deleted")
            .doc("[ASYNC | SYNC]", "Removes all libraries.")
            .example(
                r##"
                > FUNCTION FLUSH
                OK
                > FUNCTION LIST
                (empty array)
                "##,
            ),
        change("restore", at_least!(sub restore), Flags::DENYOOM)
            .since("7.0.0", "O(N) where N is the number of functions on the payload")
            .doc(
                "serialized-value [FLUSH | APPEND | REPLACE]",
                "Adds all libraries of a payload of FUNCTION DUMP.",
            )
            .example(
                r##"
                > FUNCTION FLUSH
                OK
                > FUNCTION RESTORE "\xf5\x1b#!lua name=empty\nnot a library\n\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
                (error) ERR DUMP payload version or checksum are wrong
                "##,
            ),
        sub("dump", no_arguments!(sub dump))
            .since("7.0.0", "O(N) where N is the number of functions")
            .doc("", "Returns all libraries as a payload for FUNCTION RESTORE.")
            .example(
                r##"
                > FUNCTION FLUSH
                OK
                > FUNCTION DUMP
                "..."
                "##,
            ),
        sub("list", many!(sub list))
            .tips(&["nondeterministic_output_order"])
            .since("7.0.0", "O(N) where N is the number of functions")
            .doc(
                "[LIBRARYNAME library-name-pattern] [WITHCODE]",
                "Returns the libraries and their functions.",
            )
            .example(
                r##"
                > FUNCTION FLUSH
                OK
                > FUNCTION LOAD REPLACE "#!lua name=greetings\nredis.register_function('greet', function() return 'hello' end)"
                "greetings"
                > FUNCTION LIST LIBRARYNAME greet*
                1) 1) "library_name"
                   2) "greetings"
                   3) "engine"
                   4) "LUA"
                   5) "functions"
                   6) 1) 1) "name"
                         2) "greet"
                         3) "description"
                         4) (nil)
                         5) "flags"
                         6) (empty array)
                "##,
            ),
        sub("stats", no_arguments!(sub stats))
            .flags(Flags::NOSCRIPT.with(Flags::ALLOW_BUSY))
            .tips(&[
                "nondeterministic_output",
                "request_policy:all_shards",
                "response_policy:special",
            ])
            .since("7.0.0", "O(1)")
            .doc("", "Returns the function that runs, and how many there are.")
            .example(
                r##"
                > FUNCTION FLUSH
                OK
                > FUNCTION STATS
                1) "running_script"
                2) (nil)
                3) "engines"
                4) 1) "LUA"
                   2) 1) "libraries_count"
                      2) (integer) 0
                      3) "functions_count"
                      4) (integer) 0
                "##,
            ),
        sub("kill", no_arguments!(sub kill))
            .flags(Flags::NOSCRIPT.with(Flags::ALLOW_BUSY))
            .tips(&["request_policy:all_shards", "response_policy:one_succeeded"])
            .since("7.0.0", "O(1)")
            .doc("", "Ends a function that runs, and undoes what it has done.")
            .example(
                r##"
                > FUNCTION KILL
                (error) NOTBUSY No scripts in execution right now.
                "##,
            ),
        help_spec(Group::Scripting).since("7.0.0", "O(1)").example(
                r#"
                > FUNCTION HELP
                 1) FUNCTION <subcommand> [<arg> [value] [opt] ...]. Subcommands are:
                 2) LOAD [REPLACE] function-code
                 3)     Adds a library of functions.
                ...
                "#),
    ],
    help,
)
.since("7.0.0", "Depends on subcommand.")
.doc("", "A container for commands on libraries of functions.")];

fn failed(failure: tierce_lua::Failure) -> CommandError {
    CommandError::text(String::from_utf8_lossy(&failure.text))
}

/// Reads the header of a library and runs its code, unless its name is taken.
fn library_of(
    ctx: &Context<'_, '_>,
    code: Vec<u8>,
    is_taken: impl FnOnce(&[u8]) -> bool,
) -> Result<KnownLibrary, CommandError> {
    let header =
        Header::parse(&code).map_err(|error| CommandError::text(format!("ERR {error}")))?;
    if !is_engine(&header.engine) {
        let engine = String::from_utf8_lossy(&header.engine);
        return Err(CommandError::text(format!("ERR Engine '{engine}' not found")));
    }
    if is_taken(&header.name) {
        return Err(quoted_library_exists(&header.name));
    }
    let libraries = &ctx.kernel.scripts.libraries;
    let is_accepted = ctx.caller.is_primary();
    let whose = if is_accepted { Code::Accepted } else { Code::New };
    libraries.load(ctx.kernel, &header.name, code, whose).map_err(failed)
}

/// Adds loaded libraries. `error` creates the error for a name that is taken.
fn add(
    ctx: &mut Context<'_, '_>,
    new: Vec<KnownLibrary>,
    existing: Existing,
    error: fn(Collision) -> CommandError,
) -> Done {
    let (kernel, check) = (ctx.kernel, ctx.check_again());
    let is_of_primary = ctx.caller.is_primary();
    let libraries = &kernel.scripts.libraries;
    let sources: Vec<_> =
        new.iter().map(|it| (it.name.clone(), Arc::clone(&it.library.code))).collect();
    let check = || {
        check()?;
        check_room(kernel, is_of_primary, |code| {
            if existing == Existing::Go {
                code.clear(CodeKind::Library);
            }
            for (name, source) in sources {
                code.put(CodeKind::Library, &name, source);
            }
        })
    };
    let added: Result<_, CommandError> =
        ctx.guard.change_code(check, |code| libraries.add(kernel, code, new, existing));
    added?.map_err(error)
}

fn load(ctx: &mut Context<'_, '_>, arguments: Rest<'_, 1>) -> Done {
    const NO_CODE: CommandError = CommandError::new("ERR Function code is missing");
    ctx.weigh(usize::MAX)?;
    let (mut existing, mut arguments) = (Existing::Stay, arguments.iter());
    let code = arguments.next_back().ok_or(NO_CODE)?;
    for option in arguments {
        if !option.eq_ignore_ascii_case(b"replace") {
            let option = String::from_utf8_lossy(option);
            return Err(CommandError::text(format!("ERR Unknown option given: {option}")));
        }
        existing = Existing::AreReplaced;
    }
    let library = library_of(ctx, code.to_vec(), |name| {
        existing == Existing::Stay && ctx.kernel.scripts.libraries.contains(ctx.kernel, name)
    })?;
    let name = library.name.clone();
    add(ctx, vec![library], existing, |collision| match collision {
        Collision::Library(name) => quoted_library_exists(&name),
        Collision::Function(name) => already_exists("Function", &text(&name)),
    })?;
    ctx.reply.bulk(&name);
    Ok(())
}

/// Converts a name, which consists of letters, digits and underscores.
fn text(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

/// Returns the error of Redis for code that is being loaded; it differs from that for existing libraries.
fn quoted_library_exists(name: &[u8]) -> CommandError {
    already_exists("Library", &format!("'{}'", text(name)))
}

fn already_exists(what: &str, name: &str) -> CommandError {
    CommandError::text(format!("ERR {what} {name} already exists"))
}

fn delete(ctx: &mut Context<'_, '_>, [name]: [&[u8]; 1]) -> Done {
    const NOT_FOUND: CommandError = CommandError::new("ERR Library not found");
    let (kernel, check) = (ctx.kernel, ctx.check_again());
    let libraries = &kernel.scripts.libraries;
    let removed: Result<_, CommandError> =
        ctx.guard.change_code(check, |code| libraries.remove(kernel, code, name));
    if !removed? {
        return Err(NOT_FOUND);
    }
    ctx.reply.ok();
    Ok(())
}

/// Removes all libraries. Their code is always freed at once, since it is small.
fn flush(ctx: &mut Context<'_, '_>, options: Rest<'_>) -> Done {
    const OPTIONS: CommandError =
        CommandError::new("ERR FUNCTION FLUSH only supports SYNC|ASYNC option");
    let mut options = options.iter();
    let is_known =
        |option: &[u8]| [&b"sync"[..], b"async"].iter().any(|it| option.eq_ignore_ascii_case(it));
    let option = options.next();
    if options.next().is_some() {
        return Err(CommandError::subcommand_syntax(ctx.spelled_name(), "function"));
    }
    if option.is_some_and(|option| !is_known(option)) {
        return Err(OPTIONS);
    }
    let (kernel, check) = (ctx.kernel, ctx.check_again());
    let libraries = &kernel.scripts.libraries;
    let done: Done = ctx.guard.change_code(check, |code| libraries.clear(kernel, code));
    done?;
    ctx.reply.ok();
    Ok(())
}

fn dump(ctx: &mut Context<'_, '_>) -> Done {
    const COMPRESSION: DirectiveId = DirectiveId::of("rdbcompression");
    let libraries = ctx.kernel.scripts.libraries.all(ctx.kernel);
    ctx.scale().weigh_bytes(libraries.iter().map(|library| library.library.code.len()).sum())?;
    let compression = ctx.kernel.config.settings().is_on(COMPRESSION);
    let options = WriterOptions { compression, ..WriterOptions::default() };
    let sources = libraries.iter().map(|library| &*library.library.code);
    let payload = functions::encode(options, sources);
    let payload = payload.map_err(|error| CommandError::text(format!("ERR {error}")))?;
    ctx.reply.bulk(&payload);
    Ok(())
}

fn restore(ctx: &mut Context<'_, '_>, [serialized_value]: [&[u8]; 1], options: Rest<'_>) -> Done {
    ctx.weigh(usize::MAX)?;
    let existing = policy(ctx, options)?;
    // All libraries together may be as large as a value, compressed or not.
    let bytes_max = ctx.kernel.keyspace.value_len_max();
    let sources = functions::decode(serialized_value, bytes_max);
    let sources = sources.map_err(|_| CommandError::WRONG_PAYLOAD)?;
    let mut new: Vec<KnownLibrary> = Vec::new();
    let mut names = HashSet::new();
    for source in sources {
        let source = source.map_err(bad_library)?;
        let is_taken = |name: &[u8]| new.iter().any(|other| other.name == name);
        let library = library_of(ctx, source, is_taken)?;
        for function in &library.functions {
            if !names.insert(function.function.name.to_ascii_lowercase()) {
                return Err(already_exists("Function", &text(&function.function.name)));
            }
        }
        new.push(library);
    }
    add(ctx, new, existing, |collision| match collision {
        Collision::Library(name) => already_exists("Library", &text(&name)),
        Collision::Function(name) => already_exists("Function", &text(&name)),
    })?;
    ctx.reply.ok();
    Ok(())
}

/// Parses the policy for existing libraries.
fn policy(ctx: &Context<'_, '_>, options: Rest<'_>) -> Result<Existing, CommandError> {
    const WRONG: CommandError = CommandError::new(
        "ERR Wrong restore policy given, value should be either FLUSH, APPEND or REPLACE.",
    );
    let mut options = options.iter();
    let word = options.next().map(<[u8]>::to_ascii_lowercase);
    if options.next().is_some() {
        return Err(CommandError::subcommand_syntax(ctx.spelled_name(), "function"));
    }
    match word.as_deref() {
        None | Some(b"append") => Ok(Existing::Stay),
        Some(b"replace") => Ok(Existing::AreReplaced),
        Some(b"flush") => Ok(Existing::Go),
        Some(_) => Err(WRONG),
    }
}

fn bad_library(error: FunctionsError) -> CommandError {
    CommandError::new(match error {
        FunctionsError::Unreleased => "ERR Pre-GA function format not supported",
        FunctionsError::NotALibrary { .. } => "ERR given type is not a function",
        FunctionsError::TooLarge { .. } => {
            "ERR the libraries are larger than allowed (proto-max-bulk-len)"
        }
        _ => "ERR Failed loading library payload",
    })
}

fn list(ctx: &mut Context<'_, '_>, options: Rest<'_>) -> Done {
    const NO_NAME: CommandError = CommandError::new("ERR library name argument was not given");
    let (mut pattern, mut with_code, mut options) = (None, false, options.iter());
    while let Some(option) = options.next() {
        if !with_code && option.eq_ignore_ascii_case(b"withcode") {
            with_code = true;
        } else if pattern.is_none() && option.eq_ignore_ascii_case(b"libraryname") {
            pattern = Some(options.next().ok_or(NO_NAME)?);
        } else {
            let option = String::from_utf8_lossy(option);
            return Err(CommandError::text(format!("ERR Unknown argument {option}")));
        }
    }
    let mut libraries = ctx.kernel.scripts.libraries.all(ctx.kernel);
    libraries.retain(|library| {
        pattern.is_none_or(|pattern| glob::matches(pattern, &library.name, Case::Ignored))
    });
    ctx.weigh(libraries.iter().map(|library| 1 + library.functions.len()).sum())?;
    ctx.reply.array(libraries.len());
    for library in libraries {
        list_one(ctx, &library, with_code);
    }
    Ok(())
}

fn list_one(ctx: &mut Context<'_, '_>, library: &KnownLibrary, with_code: bool) {
    let reply = &mut ctx.reply;
    reply.map(3 + usize::from(with_code));
    reply.bulk(b"library_name");
    reply.bulk(&library.name);
    reply.bulk(b"engine");
    reply.bulk(ENGINE.as_bytes());
    reply.bulk(b"functions");
    reply.array(library.functions.len());
    for known in &library.functions {
        let function = &known.function;
        reply.map(3);
        reply.bulk(b"name");
        reply.bulk(&function.name);
        reply.bulk(b"description");
        match &function.description {
            Some(description) => reply.bulk(description),
            None => reply.null(),
        }
        reply.bulk(b"flags");
        let flags: Vec<&str> = function.flags.names().collect();
        reply.simple_set(&flags);
    }
    if with_code {
        reply.bulk(b"library_code");
        reply.bulk(&library.library.code);
    }
}

fn stats(ctx: &mut Context<'_, '_>) -> Done {
    let kernel = ctx.kernel;
    let runs = kernel.scripts.running.all();
    let (libraries, functions) = kernel.scripts.libraries.counts(kernel);
    let reply = &mut ctx.reply;
    reply.map(2);
    reply.bulk(b"running_script");
    match runs.iter().find(|run| run.kind() == Kind::Function) {
        None => reply.null(),
        Some(run) => {
            reply.map(3);
            reply.bulk(b"name");
            reply.bulk(run.name());
            reply.bulk(b"command");
            reply.array(run.call().len());
            run.call().iter().for_each(|word| reply.bulk(word));
            reply.bulk(b"duration_ms");
            reply.int(run.elapsed().as_millis() as i64);
        }
    }
    reply.bulk(b"engines");
    reply.map(1);
    reply.bulk(ENGINE.as_bytes());
    reply.map(2);
    reply.bulk(b"libraries_count");
    reply.count(libraries);
    reply.bulk(b"functions_count");
    reply.count(functions);
    Ok(())
}

fn kill(ctx: &mut Context<'_, '_>) -> Done {
    let threshold = ctx.kernel.busy_threshold();
    ctx.kernel.scripts.running.kill(Kind::Function, threshold)?;
    ctx.reply.ok();
    Ok(())
}
