//! Arguments of a command, parsed from the notation of the Redis manual.
//!
//! The notation: words in lower case are values (`key`, `seconds`), words in upper case are tokens
//! (`EX`), `[...]` is optional, `a | b` is a choice, `<...>` groups, and `x [x ...]` is a
//! repetition. `COMMAND DOCS` reports the tree that [`Argument::parse`] returns.

/// Kind of an argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ArgumentKind {
    /// A value of the type with this name: `key`, `string`, `integer`, `double`, `pattern`,
    /// `unix-time`.
    Value(&'static str),
    /// The token alone.
    PureToken,
    /// One of these arguments.
    OneOf(Vec<Argument>),
    /// All of these arguments, in this order.
    Block(Vec<Argument>),
}

/// One argument of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Argument {
    /// Lower case, words joined by dashes.
    pub name: String,
    /// Its kind.
    pub kind: ArgumentKind,
    /// The token before it, or the token that it consists of.
    pub token: Option<String>,
    /// May be left out.
    pub optional: bool,
    /// May be given several times.
    pub multiple: bool,
}

impl Argument {
    /// Parses the arguments in `syntax`.
    pub fn parse(syntax: &str) -> Vec<Self> {
        let tokens = tokens(syntax);
        let mut rest = &tokens[..];
        let arguments = sequence(&mut rest);
        debug_assert!(rest.is_empty(), "unbalanced syntax: {syntax}");
        arguments
    }

    fn value(word: &str) -> Self {
        let kind = ArgumentKind::Value(value_type(word));
        Self { name: word.to_owned(), kind, token: None, optional: false, multiple: false }
    }

    fn token(word: &str) -> Self {
        Self {
            name: word.trim_matches('"').to_ascii_lowercase(),
            kind: ArgumentKind::PureToken,
            token: Some(word.trim_matches('"').to_owned()),
            optional: false,
            multiple: false,
        }
    }

    fn group(mut parts: Vec<Self>) -> Self {
        if parts.len() == 1 {
            return parts.remove(0);
        }
        let name = parts[0].name.clone();
        // A word before several values belongs to the whole block: `LIMIT offset count`.
        let first = &mut parts[0];
        let is_value = matches!(first.kind, ArgumentKind::Value(_));
        let token = if is_value { first.token.take() } else { None };
        let kind = ArgumentKind::Block(parts);
        Self { name, kind, token, optional: false, multiple: false }
    }
}

/// Returns the type of a value, recognised by the argument's name. All others are strings.
fn value_type(name: &str) -> &'static str {
    match name {
        "key" | "newkey" | "source" | "destination" | "key1" | "key2" | "destkey" | "sourcekey"
        | "src" | "dst" => "key",
        "pattern" => "pattern",
        "unix-time-seconds" | "unix-time-milliseconds" => "unix-time",
        "seconds" | "milliseconds" | "count" | "cursor" | "increment" | "decrement" | "offset"
        | "start" | "end" | "index" | "index1" | "index2" | "destination-db" | "db"
        | "client-id" | "timeout" | "protover" | "numreplicas" | "min-match-len" | "version"
        | "maxage" | "numkeys" | "weight" | "limit" | "slot" | "start-slot" | "end-slot"
        | "port" | "config-epoch" | "rank" | "num-matches" | "len" | "bit" | "integer" => "integer",
        "float" | "score" | "longitude" | "latitude" | "radius" | "width" | "height" => "double",
        _ => "string",
    }
}

fn tokens(syntax: &str) -> Vec<String> {
    let mut tokens = Vec::new();
    for word in syntax.split_whitespace() {
        let mut word = word;
        while let Some(bracket) = word.chars().next().filter(|c| "[<".contains(*c)) {
            tokens.push(bracket.to_string());
            word = &word[1..];
        }
        let inner = word.trim_end_matches([']', '>']);
        if !inner.is_empty() {
            tokens.push(inner.to_owned());
        }
        tokens.extend(word[inner.len()..].chars().map(String::from));
    }
    tokens
}

/// Parses alternatives up to a closing bracket: `a b | c`.
fn alternatives(rest: &mut &[String]) -> Argument {
    let mut choices = vec![Argument::group(sequence(rest))];
    while rest.first().is_some_and(|token| token == "|") {
        *rest = &rest[1..];
        choices.push(Argument::group(sequence(rest)));
    }
    if choices.len() == 1 {
        return choices.remove(0);
    }
    let name = choices[0].name.clone();
    let kind = ArgumentKind::OneOf(choices);
    Argument { name, kind, token: None, optional: false, multiple: false }
}

fn sequence(rest: &mut &[String]) -> Vec<Argument> {
    let mut arguments: Vec<Argument> = Vec::new();
    while let Some(token) = rest.first() {
        match token.as_str() {
            "]" | ">" | "|" => break,
            open @ ("[" | "<") => {
                *rest = &rest[1..];
                if is_repetition(rest) {
                    let words = rest.iter().take_while(|token| *token != "]").count();
                    *rest = &rest[words + 1..];
                    repeat(&mut arguments, words - 1);
                    continue;
                }
                let mut argument = alternatives(rest);
                *rest = rest.get(1..).unwrap_or_default();
                argument.optional |= open == "[";
                if open == "<" {
                    argument.token = argument.token.or_else(|| pop_token(&mut arguments));
                }
                arguments.push(argument);
            }
            word => {
                let is_token =
                    word.starts_with('"') || !word.bytes().any(|b| b.is_ascii_lowercase());
                *rest = &rest[1..];
                push_word(&mut arguments, word, is_token);
            }
        }
    }
    arguments
}

/// Adds a word. A value after a token belongs to it.
fn push_word(arguments: &mut Vec<Argument>, word: &str, is_token: bool) {
    if is_token {
        arguments.push(Argument::token(word));
        return;
    }
    let mut value = Argument::value(word);
    value.token = pop_token(arguments);
    arguments.push(value);
}

/// Removes and returns the required token before the next argument, if there is one.
fn pop_token(arguments: &mut Vec<Argument>) -> Option<String> {
    let last = arguments.pop_if(|last| last.kind == ArgumentKind::PureToken && !last.optional);
    last?.token
}

/// Returns true if the text after an opening bracket is `word ... ...]`, without brackets inside.
fn is_repetition(rest: &[String]) -> bool {
    let bracket = rest.iter().position(|token| token == "[" || token == "]");
    bracket.is_some_and(|at| at > 0 && rest[at] == "]" && rest[at - 1] == "...")
}

/// Marks the last `count` arguments as a group that may be repeated.
fn repeat(arguments: &mut Vec<Argument>, count: usize) {
    let parts = arguments.split_off(arguments.len().saturating_sub(count));
    if parts.is_empty() {
        return;
    }
    let mut argument = Argument::group(parts);
    argument.multiple = true;
    if matches!(argument.kind, ArgumentKind::Block(_)) {
        "data".clone_into(&mut argument.name);
    }
    arguments.push(argument);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A compact form of a tree, for comparisons.
    fn picture(arguments: &[Argument]) -> String {
        let one = |argument: &Argument| {
            let token = argument.token.as_deref().map(|t| format!("{t}:")).unwrap_or_default();
            let body = match &argument.kind {
                ArgumentKind::Value(kind) => format!("{}={kind}", argument.name),
                ArgumentKind::PureToken => "!".to_owned(),
                ArgumentKind::OneOf(of) => format!("one({})", picture(of)),
                ArgumentKind::Block(of) => format!("block({})", picture(of)),
            };
            let optional = if argument.optional { "?" } else { "" };
            let multiple = if argument.multiple { "*" } else { "" };
            format!("{token}{body}{optional}{multiple}")
        };
        arguments.iter().map(one).collect::<Vec<_>>().join(" ")
    }

    fn check(syntax: &str, expected: &str) {
        assert_eq!(picture(&Argument::parse(syntax)), expected, "{syntax}");
    }

    #[test]
    fn notations() {
        check("", "");
        check("key", "key=key");
        check("key [key ...]", "key=key*");
        check("key value [key value ...]", "block(key=key value=string)*");
        check("key [NX | XX]", "key=key one(NX:! XX:!)?");
        check(
            "key value [NX | XX] [GET] [EX seconds | KEEPTTL]",
            "key=key value=string one(NX:! XX:!)? GET:!? one(EX:seconds=integer KEEPTTL:!)?",
        );
        check("[ID client-id [client-id ...]]", "ID:client-id=integer?*");
        check("cursor [MATCH pattern]", "cursor=integer MATCH:pattern=pattern?");
        check(
            "[TYPE type] [ID client-id [client-id ...]]",
            "TYPE:type=string? ID:client-id=integer?*",
        );
        check("key [LIMIT offset count]", "key=key LIMIT:block(offset=integer count=integer)?");
        check(
            "[FILTERBY <MODULE m | PATTERN pattern>]",
            "FILTERBY:one(MODULE:m=string PATTERN:pattern=pattern)?",
        );
        check("source <LEFT | RIGHT> timeout", "source=key one(LEFT:! RIGHT:!) timeout=integer");
        check("<ID client-id | ALL>", "one(ID:client-id=integer ALL:!)");
        check(
            "[protover [AUTH username password]]",
            "block(protover=integer AUTH:block(username=string password=string)?)?",
        );
    }
}
