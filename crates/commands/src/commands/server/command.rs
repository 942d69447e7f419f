//! COMMAND: the command table, for clients.

use tierce_wire::glob::{self, Case};
use tierce_wire::resp::{Args, Proto, Rest};

use crate::command::{
    Argument, ArgumentKind, Command, Flags, Group, KeyFlags, KeySearch, KeySpec, Spec,
};
use crate::commands::cursor::Options;
use crate::commands::help::help_spec;
use crate::error::CommandError;
use crate::pipeline::{Body, Context, Defined, Done, many, no_arguments};
use crate::reply::Reply;

const FLAGS: Flags = Flags::LOADING.with(Flags::STALE);

const fn sub(name: &'static str, body: Body) -> Defined {
    Defined::new(name, Group::Server, body).flags(FLAGS).categories(&["connection"])
}

pub(super) static COMMANDS: &[Defined] = &[Defined::container(
    "command",
    Group::Server,
    &[
        sub("count", no_arguments!(sub count))
            .since("2.8.13", "O(1)")
            .doc("", "Returns the number of commands.")
            .example(
                r#"
                    > COMMAND COUNT
                    (integer) ...
                    "#,
            ),
        sub("docs", many!(sub docs))
            .tips(&["nondeterministic_output_order"])
            .since("7.0.0", "O(N) where N is the number of commands to look up")
            .doc("[command-name [command-name ...]]", "Returns documentation about commands.")
            .example(
                r#"
                    > COMMAND DOCS DBSIZE
                    1) "dbsize"
                    2) 1) "summary"
                       2) "Returns the number of keys in the database."
                       3) "since"
                       4) "1.0.0"
                       5) "group"
                       6) "server"
                       7) "complexity"
                       8) "O(1)"
                    "#,
            ),
        sub("getkeys", many!(sub get_keys))
            .since("2.8.13", "O(N) where N is the number of arguments to the command")
            .doc("command [arg [arg ...]]", "Returns the keys of a command call.")
            .example(
                r#"
                    > COMMAND GETKEYS MSET user:1 Ada user:2 Grace
                    1) "user:1"
                    2) "user:2"
                    > COMMAND GETKEYS ECHO hello
                    (error) ERR The command has no key arguments
                    "#,
            ),
        sub("getkeysandflags", many!(sub get_keys_and_flags))
            .since("7.0.0", "O(N) where N is the number of arguments to the command")
            .doc(
                "command [arg [arg ...]]",
                "Returns the keys of a command call and what it does with them.",
            )
            .example(
                r#"
                    > COMMAND GETKEYSANDFLAGS RENAME draft article
                    1) 1) "draft"
                       2) 1) RW
                          2) access
                          3) delete
                    2) 1) "article"
                       2) 1) OW
                          2) update
                    "#,
            ),
        sub("info", many!(sub info))
            .tips(&["nondeterministic_output_order"])
            .since("2.8.13", "O(N) where N is the number of commands to look up")
            .doc("[command-name [command-name ...]]", "Returns facts about commands.")
            .example(
                r#"
                    > COMMAND INFO GET
                    1)  1) "get"
                        2) (integer) 2
                        3) 1) readonly
                           2) fast
                        4) (integer) 1
                        5) (integer) 1
                        6) (integer) 1
                        7) 1) @read
                           2) @string
                           3) @fast
                        8) (empty array)
                        9) 1) 1) "flags"
                              2) 1) RO
                                 2) access
                              3) "begin_search"
                              4) 1) "type"
                                 2) "index"
                                 3) "spec"
                                 4) 1) "index"
                                    2) (integer) 1
                              5) "find_keys"
                              6) 1) "type"
                                 2) "range"
                                 3) "spec"
                                 4) 1) "lastkey"
                                    2) (integer) 0
                                    3) "keystep"
                                    4) (integer) 1
                                    5) "limit"
                                    6) (integer) 0
                       10) (empty array)
                    "#,
            ),
        sub("list", many!(sub list))
            .tips(&["nondeterministic_output_order"])
            .since("7.0.0", "O(N) where N is the total number of commands")
            .doc(
                "[FILTERBY <MODULE module-name | ACLCAT category | PATTERN pattern>]",
                "Returns the names of commands.",
            )
            .example(
                r#"
                    > COMMAND LIST FILTERBY PATTERN hset*
                    1) "hset"
                    2) "hsetnx"
                    3) "hsetex"
                    "#,
            ),
        help_spec(Group::Server)
            .example(
                r#"
                    > COMMAND HELP
                     1) COMMAND <subcommand> [<arg> [value] [opt] ...]. Subcommands are:
                     2) COUNT
                     3)     Returns the number of commands.
                    ...
                    "#,
            )
            .categories(&["connection"]),
    ],
    all,
)
.arity(-1)
.flags(FLAGS)
.categories(&["connection"])
.tips(&["nondeterministic_output_order"])
.since("2.8.13", "O(N) where N is the total number of commands")
.doc("", "Returns facts about all commands.")
.example(
    r#"
            > COMMAND
            ...
            ...1) "get"
            ...2) (integer) 2
            ...
            "#,
)];

fn all(ctx: &mut Context<'_, '_>) -> Done {
    describe_all(ctx);
    Ok(())
}

fn describe_all(ctx: &mut Context<'_, '_>) {
    let commands = ctx.kernel.commands.listed();
    ctx.reply.array(commands.len());
    commands.into_iter().for_each(|command| describe(ctx, command));
}

fn count(ctx: &mut Context<'_, '_>) -> Done {
    ctx.reply.count(ctx.kernel.commands.listed().len());
    Ok(())
}

fn info(ctx: &mut Context<'_, '_>, names: Rest<'_>) -> Done {
    if names.is_empty() {
        describe_all(ctx);
        return Ok(());
    }
    ctx.reply.array(names.len());
    for name in names.iter() {
        match ctx.kernel.commands.find_full(name) {
            Some(command) => describe(ctx, command),
            None => ctx.reply.null(),
        }
    }
    Ok(())
}

/// Replies with the ten elements of `COMMAND INFO` for a command.
fn describe(ctx: &mut Context<'_, '_>, command: &Command) {
    let spec = command.spec;
    let (first, last, step) = spec.key_range();
    let categories: Vec<_> = spec.all_categories().iter().map(|name| format!("@{name}")).collect();
    let flags: Vec<_> = spec.flag_names().collect();
    let reply = &mut ctx.reply;
    reply.array(10);
    reply.bulk(command.full_name.as_bytes());
    reply.int(spec.arity.into());
    reply.simple_set(&flags);
    reply.int(first.into());
    reply.int(last.into());
    reply.int(step.into());
    reply.set(categories.len());
    categories.iter().for_each(|category| reply.simple(category));
    reply.set(spec.tips.len());
    spec.tips.iter().for_each(|tip| reply.bulk(tip.as_bytes()));
    reply.set(spec.keys.len() + spec.routes.len());
    spec.keys.iter().chain(spec.routes).for_each(|keys| describe_keys(ctx, *keys));
    ctx.reply.set(command.subcommands.len());
    command.subcommands.iter().for_each(|sub| describe(ctx, sub));
}

fn describe_keys(ctx: &mut Context<'_, '_>, keys: KeySpec) {
    let reply = &mut ctx.reply;
    reply.map(3 + usize::from(keys.note.is_some()));
    if let Some(note) = keys.note {
        reply.bulk(b"notes");
        reply.bulk(note.as_bytes());
    }
    reply.bulk(b"flags");
    reply.simple_set(keys.flags.0);
    let first = i64::from(keys.first);
    reply.bulk(b"begin_search");
    match keys.search {
        KeySearch::Word(word, _) | KeySearch::FirstHalf(word, _) | KeySearch::Rest(word, _) => {
            search_step(reply, "keyword", 2);
            reply.bulk(b"keyword");
            reply.bulk(word.as_bytes());
            reply.bulk(b"startfrom");
            // From the last argument but one to the front.
            reply.int(if matches!(keys.search, KeySearch::Rest(..)) { -2 } else { first });
        }
        KeySearch::Index | KeySearch::IndexUnless(..) | KeySearch::Count => {
            search_step(reply, "index", 1);
            numbers(reply, &[("index", first)]);
        }
        KeySearch::Option(..) | KeySearch::Unknown => {
            search_step(reply, "unknown", 0);
            reply.bulk(b"find_keys");
            return search_step(reply, "unknown", 0);
        }
    }
    reply.bulk(b"find_keys");
    search_step(reply, if keys.search == KeySearch::Count { "keynum" } else { "range" }, 3);
    if keys.search == KeySearch::Count {
        numbers(reply, &[("keynumidx", 0), ("firstkey", 1), ("keystep", keys.step.into())]);
    } else {
        let last = if keys.last < 0 { keys.last } else { keys.last - keys.first };
        // A limit of 2 means that keys are the first half of the rest.
        let limit = if matches!(keys.search, KeySearch::FirstHalf(..)) { 2 } else { 0 };
        let step = keys.step.into();
        numbers(reply, &[("lastkey", last.into()), ("keystep", step), ("limit", limit)]);
    }
}

/// Begins a step of a search for keys, with this many parameters.
fn search_step(reply: &mut Reply<'_>, kind: &str, parameters: usize) {
    reply.map(2);
    reply.bulk(b"type");
    reply.bulk(kind.as_bytes());
    reply.bulk(b"spec");
    reply.map(parameters);
}

fn numbers(reply: &mut Reply<'_>, pairs: &[(&str, i64)]) {
    for (name, number) in pairs {
        reply.bulk(name.as_bytes());
        reply.int(*number);
    }
}

fn docs(ctx: &mut Context<'_, '_>, names: Rest<'_>) -> Done {
    let kernel = ctx.kernel;
    let commands: Vec<_> = if names.is_empty() {
        kernel.commands.listed()
    } else {
        names.iter().filter_map(|name| kernel.commands.find_full(name)).collect()
    };
    ctx.reply.map(commands.len());
    commands.into_iter().for_each(|command| document(ctx, command));
    Ok(())
}

fn document(ctx: &mut Context<'_, '_>, command: &Command) {
    let spec = command.spec;
    let arguments = Argument::parse(spec.syntax);
    let reply = &mut ctx.reply;
    reply.bulk(command.full_name.as_bytes());
    let optional = usize::from(!arguments.is_empty())
        + usize::from(spec.is_container)
        + usize::from(spec.flags.contains(Flags::SYSTEM))
        + if spec.deprecated.is_some() { 3 } else { 0 };
    reply.map(4 + optional);
    for (name, text) in [
        ("summary", spec.summary),
        ("since", spec.since),
        ("group", spec.group.name()),
        ("complexity", spec.complexity),
    ] {
        reply.bulk(name.as_bytes());
        reply.bulk(text.as_bytes());
    }
    if spec.flags.contains(Flags::SYSTEM) {
        reply.bulk(b"doc_flags");
        reply.simple_set(&["syscmd"]);
    }
    if let Some((since, replaced_by)) = spec.deprecated {
        reply.bulk(b"doc_flags");
        reply.simple_set(&["deprecated"]);
        for (name, text) in [("deprecated_since", since), ("replaced_by", replaced_by)] {
            reply.bulk(name.as_bytes());
            reply.bulk(text.as_bytes());
        }
    }
    if !arguments.is_empty() {
        reply.bulk(b"arguments");
        document_arguments(ctx, &arguments, &mut KeyPositions::new(spec));
    }
    if !command.subcommands.is_empty() {
        ctx.reply.bulk(b"subcommands");
        ctx.reply.map(command.subcommands.len());
        command.subcommands.iter().for_each(|sub| document(ctx, sub));
    }
}

/// Assigns arguments, in order, to the key specifications of a command.
struct KeyPositions {
    keys: &'static [KeySpec],
    next: usize,
}

impl KeyPositions {
    fn new(spec: &Spec) -> Self {
        Self { keys: spec.keys, next: 0 }
    }

    /// Returns the specification of an argument of this kind; `None` if it names no key.
    fn of(&mut self, kind: &str) -> Option<usize> {
        let last = self.keys.len().checked_sub(1)?;
        let names_unknown = |at: usize| self.keys[at.min(last)].search == KeySearch::Unknown;
        match kind {
            "pattern" => Some(self.next.min(last)).filter(|at| names_unknown(*at)),
            "key" => {
                self.next += usize::from(names_unknown(self.next));
                self.next += 1;
                Some((self.next - 1).min(last))
            }
            _ => None,
        }
    }
}

fn document_arguments(ctx: &mut Context<'_, '_>, arguments: &[Argument], keys: &mut KeyPositions) {
    ctx.reply.array(arguments.len());
    arguments.iter().for_each(|argument| document_argument(ctx, argument, keys));
}

fn document_argument(ctx: &mut Context<'_, '_>, argument: &Argument, keys: &mut KeyPositions) {
    let (kind, inner): (_, &[Argument]) = match &argument.kind {
        ArgumentKind::Value(kind) => (*kind, &[]),
        ArgumentKind::PureToken => ("pure-token", &[]),
        ArgumentKind::OneOf(inner) => ("oneof", inner),
        ArgumentKind::Block(inner) => ("block", inner),
    };
    let flags: Vec<_> = [(argument.optional, "optional"), (argument.multiple, "multiple")]
        .into_iter()
        .filter_map(|(set, name)| set.then_some(name))
        .collect();
    // Values have a display name; a group is described by its parts.
    let is_leaf = inner.is_empty();
    let key = keys.of(kind);
    // A key of no database, as in CLUSTER KEYSLOT.
    let kind = if kind == "key" && key.is_none() { "string" } else { kind };
    let reply = &mut ctx.reply;
    let fields = 2
        + usize::from(is_leaf)
        + usize::from(key.is_some())
        + usize::from(argument.token.is_some())
        + usize::from(!flags.is_empty())
        + usize::from(!is_leaf);
    reply.map(fields);
    reply.bulk(b"name");
    reply.bulk(argument.name.as_bytes());
    reply.bulk(b"type");
    reply.bulk(kind.as_bytes());
    if is_leaf {
        reply.bulk(b"display_text");
        reply.bulk(argument.name.as_bytes());
    }
    if let Some(index) = key {
        reply.bulk(b"key_spec_index");
        reply.count(index);
    }
    if let Some(token) = &argument.token {
        reply.bulk(b"token");
        reply.bulk(token.as_bytes());
    }
    if !flags.is_empty() {
        reply.bulk(b"flags");
        reply.simple_set(&flags);
    }
    if !is_leaf {
        reply.bulk(b"arguments");
        document_arguments(ctx, inner, keys);
    }
}

/// Checks a call given as arguments, and returns its command and arguments.
fn called<'k, 'a>(
    ctx: &Context<'_, 'k>,
    call: Rest<'a, 1>,
) -> Result<(&'k Command, Args<'a>), CommandError> {
    let call = call.as_args();
    let command = crate::pipeline::resolve(ctx.kernel, call).map_err(|refused| {
        // A known command has a wrong number of arguments.
        CommandError::new(if refused.command.is_some() {
            "ERR Invalid number of arguments specified for command"
        } else {
            "ERR Invalid command specified"
        })
    })?;
    if command.spec.keys.is_empty() {
        return Err(CommandError::new("ERR The command has no key arguments"));
    }
    Ok((command, call))
}

/// Returns the keys of a call, with their flags.
fn keys_of<'a>(
    command: &Command,
    call: Args<'a>,
) -> Result<Vec<(&'a [u8], KeyFlags)>, CommandError> {
    const WRONG: CommandError = CommandError::new("ERR Invalid arguments specified for command");
    // A program may have no keys.
    let needs_keys = !command.spec.flags.contains(Flags::PROGRAM);
    let mut found = Vec::new();
    for keys in command.spec.keys {
        let before = found.len();
        let indexes = keys.indexes(call).filter_map(|index| call.get(index));
        found.extend(indexes.map(|key| (key, keys.flags.of_call(command.spec.name, call))));
        if keys.search == KeySearch::Count && found.len() == before && needs_keys {
            return Err(WRONG);
        }
    }
    if found.is_empty() && needs_keys { Err(WRONG) } else { Ok(found) }
}

fn get_keys(ctx: &mut Context<'_, '_>, call: Rest<'_, 1>) -> Done {
    let (command, call) = called(ctx, call)?;
    let keys = keys_of(command, call)?;
    ctx.reply.bulks(keys.into_iter().map(|(key, _)| key));
    Ok(())
}

fn get_keys_and_flags(ctx: &mut Context<'_, '_>, call: Rest<'_, 1>) -> Done {
    let (command, call) = called(ctx, call)?;
    let keys = keys_of(command, call)?;
    ctx.reply.array(keys.len());
    for (key, flags) in keys {
        ctx.reply.array(2);
        ctx.reply.bulk(key);
        ctx.reply.simple_set(flags.0);
    }
    Ok(())
}

/// Filter of `COMMAND LIST FILTERBY`.
enum ListFilter<'a> {
    All,
    Nothing,
    Category(&'a [u8]),
    Pattern(&'a [u8]),
}

impl<'a> ListFilter<'a> {
    fn parse(mut options: Options<'a>) -> Result<Self, CommandError> {
        if !options.take("filterby") {
            return options.end().map(|()| Self::All);
        }
        let [kind, value] = options.values()?;
        options.end()?;
        match kind.to_ascii_lowercase().as_slice() {
            b"module" => Ok(Self::Nothing),
            b"aclcat" => Ok(Self::Category(value)),
            b"pattern" => Ok(Self::Pattern(value)),
            _ => Err(CommandError::SYNTAX),
        }
    }

    fn admits(&self, command: &Command) -> bool {
        match self {
            Self::All => true,
            Self::Nothing => false,
            Self::Category(wanted) => command
                .spec
                .all_categories()
                .iter()
                .any(|category| category.as_bytes().eq_ignore_ascii_case(wanted)),
            Self::Pattern(pattern) => {
                glob::matches(pattern, command.full_name.as_bytes(), Case::Ignored)
            }
        }
    }
}

fn list(ctx: &mut Context<'_, '_>, options: Rest<'_>) -> Done {
    let filter = ListFilter::parse(Options::of(options))?;
    let names: Vec<_> = ctx
        .kernel
        .commands
        .all()
        .filter(|command| filter.admits(command))
        .map(|command| command.full_name.as_str())
        .collect();
    if ctx.reply.proto() == Proto::Resp3 {
        ctx.reply.set(names.len());
        names.iter().for_each(|name| ctx.reply.bulk(name.as_bytes()));
    } else {
        ctx.reply.bulks(names);
    }
    Ok(())
}
