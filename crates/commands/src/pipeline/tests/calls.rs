//! Random calls of a command, generated from its declaration.

use tierce_harness::Random;
use tierce_rdb::{WriterOptions, functions};

use super::bench::NOW_MS;
use crate::command::{Argument, ArgumentKind, Command, Group};

/// A command with its arguments.
pub(super) type Call = Vec<Vec<u8>>;

/// Keys of each type; few, so that calls collide.
const KEYS: usize = 4;

/// Scripts that read and write their keys and others, or do not compile.
const SCRIPTS: &[&str] = &[
    "return",
    "return ARGV",
    "return redis.call('get', KEYS[1])",
    "redis.pcall('append', KEYS[1], ARGV[1]) return redis.pcall('incr', 'string0')",
    "return +",
];

/// Libraries, and invalid code.
const LIBRARIES: &[&str] = &[
    "#!lua name=library0\nredis.register_function('function0', function() end)",
    "#!lua name=library1\nredis.register_function('function1', function(keys) return redis.pcall('get', keys[1]) end)",
    "#!lua name=library2\n\
     redis.register_function{function_name='function2', callback=function() end, flags={'no-writes'}}",
    "#!lua name=library3\nreturn +",
    "return",
];

/// The SHA-1 of the script `return`.
const SHA_OF_RETURN: &str = "63143b6f8007b98c53ca2149822777b3566f9241";

/// Generator of calls; a seed always gives the same ones.
pub(super) struct Calls {
    pub(super) random: Random,
    /// Payload for RESTORE.
    pub(super) payload: Vec<u8>,
    group: Group,
    /// Literal words of the command.
    tokens: Vec<Vec<u8>>,
    /// Number of values after a count, or in a run of keys.
    run: Option<usize>,
}

impl Calls {
    pub(super) fn new(seed: u64, payload: Vec<u8>) -> Self {
        let (random, group, tokens) = (Random::new(seed), Group::Generic, Vec::new());
        Self { random, payload, group, tokens, run: None }
    }

    /// Generates a call by the syntax of the command, which probably succeeds.
    pub(super) fn fitting(&mut self, command: &Command) -> Call {
        (self.group, self.run) = (command.spec.group, None);
        let mut arguments = Argument::parse(command.spec.syntax);
        self.tokens = tokens(&arguments);
        if self.random.one_in(3) {
            self.shuffle(&mut arguments);
        }
        let mut call = name(command);
        self.expand(&arguments, &mut call);
        call
    }

    /// Generates a call with as few arguments as the command accepts.
    pub(super) fn least(&mut self, command: &Command) -> Call {
        let mut call = name(command);
        while call.len() < command.spec.arity.unsigned_abs().into() {
            call.push(self.word());
        }
        call
    }

    /// Generates a call that only has a valid number of arguments: one by the syntax with some arguments changed, or
    /// words of the syntax and others in any order.
    pub(super) fn any(&mut self, command: &Command) -> Call {
        let first = name(command).len();
        let tokens = tokens(&Argument::parse(command.spec.syntax));
        let mut call = if self.random.one_in(3) { name(command) } else { self.fitting(command) };
        for _ in 0..self.random.below(4) {
            let word = match self.random.below(3) {
                0 if !tokens.is_empty() => tokens[self.random.below(tokens.len())].clone(),
                1 => self.key(),
                _ => self.word(),
            };
            let at = first + self.random.below(call.len() - first + 1);
            match self.random.below(3) {
                0 if at < call.len() => call[at] = word,
                1 if at < call.len() => drop(call.remove(at)),
                _ => call.insert(at, word),
            }
        }
        while !command.spec.accepts(call.len()) {
            if command.spec.arity > 0 && call.len() > command.spec.arity as usize {
                call.pop();
            } else {
                call.push(self.word());
            }
        }
        call
    }

    /// Shuffles options, which may come in any order.
    fn shuffle(&mut self, arguments: &mut [Argument]) {
        let is_option = |argument: &Argument| match &argument.kind {
            ArgumentKind::OneOf(choices) => choices.iter().all(|choice| choice.token.is_some()),
            ArgumentKind::Block(parts) => parts.first().is_some_and(|part| part.token.is_some()),
            ArgumentKind::PureToken | ArgumentKind::Value(_) => false,
        };
        let places: Vec<usize> = (0..arguments.len())
            .filter(|at| arguments[*at].token.is_some() || is_option(&arguments[*at]))
            .collect();
        for last in (1..places.len()).rev() {
            arguments.swap(places[last], places[self.random.below(last + 1)]);
        }
    }

    fn expand(&mut self, arguments: &[Argument], call: &mut Call) {
        for argument in arguments {
            if argument.optional && !self.random.one_in(3) {
                continue;
            }
            if let Some(token) = &argument.token {
                call.push(token.clone().into_bytes());
            }
            let times = if argument.multiple { self.times(argument) } else { 1 };
            for _ in 0..times {
                match &argument.kind {
                    ArgumentKind::PureToken => {}
                    // Keys, groups and members may have the name of an option.
                    ArgumentKind::Value(_) if !self.tokens.is_empty() && self.random.one_in(16) => {
                        call.push(self.tokens[self.random.below(self.tokens.len())].clone());
                    }
                    ArgumentKind::Value(kind) => call.push(self.value(&argument.name, kind)),
                    ArgumentKind::Block(parts) => self.expand(parts, call),
                    ArgumentKind::OneOf(choices) => {
                        let choice = self.random.below(choices.len());
                        let chosen = Argument { optional: false, ..choices[choice].clone() };
                        self.expand(&[chosen], call);
                    }
                }
            }
        }
    }

    /// Returns a number of repetitions: the previous one, if they must agree.
    fn times(&mut self, argument: &Argument) -> usize {
        let is_counted = matches!(argument.name.as_str(), "key" | "field" | "weight" | "id");
        let times = self.run.filter(|_| is_counted).unwrap_or_else(|| 1 + self.random.below(3));
        if argument.name == "key" {
            self.run = Some(times);
        }
        times
    }

    fn key(&mut self) -> Vec<u8> {
        const TYPES: [&str; 7] = ["string", "list", "set", "zset", "hash", "stream", "counter"];
        let own = match self.group {
            Group::String | Group::Bitmap => 0,
            Group::List => 1,
            Group::Set => 2,
            Group::SortedSet | Group::Geo => 3,
            Group::Hash => 4,
            Group::Stream => 5,
            Group::HyperLogLog => 6,
            _ => self.random.below(TYPES.len()),
        };
        let of = if self.random.one_in(8) { self.random.below(TYPES.len()) } else { own };
        format!("{}{}", TYPES[of], self.random.below(KEYS)).into_bytes()
    }

    /// Returns a possible value of an argument of this name.
    fn value(&mut self, name: &str, kind: &str) -> Vec<u8> {
        let small = self.random.below(4).to_string();
        let text: &str = match (name, kind) {
            (_, "key") => return self.key(),
            (_, "pattern") => self.random.pick(&["*", "[a-m]*", "weight_*", "hash*->a"]),
            ("numkeys" | "numfields" | "numids", _) => {
                let run = 1 + self.random.below(3);
                self.run = Some(run);
                return run.to_string().into_bytes();
            }
            ("serialized-value", _) if self.group == Group::Scripting => {
                let library = self.random.pick(LIBRARIES).as_bytes();
                let payload = functions::encode(WriterOptions::default(), [library]);
                return payload.expect("a vector takes everything");
            }
            ("serialized-value", _) if !self.random.one_in(4) => return self.payload.clone(),
            ("client-id", _) => self.random.pick(&["1", "2"]),
            ("maxage" | "idle", _) => &small,
            ("flags", _) => "N",
            ("capa", _) => "r",
            ("host", _) if self.group == Group::Generic => "127.0.0.1",
            ("port", _) if self.group == Group::Generic => "6379",
            ("timeout", _) => self.random.pick(&["0", "1", "0.01"]),
            ("fieldset-name", _) => "fieldset0",
            ("numlocal" | "numreplicas", _) => "0",
            ("parameter", _) => "maxmemory",
            ("value", _) if self.group == Group::Server => "100mb",
            ("command", _) => "get",
            // The other user has no password, so no client can become it.
            ("username", _) => self.random.pick(&["default", "nobody"]),
            ("rule", _) => {
                self.random.pick(&["on", "off", "+get", "-@write", "~list*", "(%R~a +get)"])
            }
            ("category", _) => self.random.pick(&["read", "geo"]),
            ("subcommand", _) if self.group == Group::HyperLogLog => {
                self.random.pick(&["encoding", "todense", "getreg"])
            }
            ("seconds" | "milliseconds" | "ttl", _) => {
                self.random.pick(&["1000000", "0", "2000000"])
            }
            ("unix-time-seconds", _) => &(NOW_MS / 1000 + 500_000).to_string(),
            ("unix-time-milliseconds", _) => &(NOW_MS + 500_000_000).to_string(),
            // Of the first contents, which DELIFEQ and the like are to find.
            ("value" | "ifeq-value" | "ifne-value", _)
                if self.group == Group::String && self.random.one_in(4) =>
            {
                self.random.pick(&["5", "abc"])
            }
            // The digest of "abc", and none.
            ("ifdeq-digest" | "ifdne-digest", _) => {
                self.random.pick(&["78af5f94892f3950", "0123456789abcdef"])
            }
            ("lowerbound", _) => self.random.pick(&["-1000", "-1", "0"]),
            ("upperbound", _) => self.random.pick(&["0", "3", "1000"]),
            ("longitude", _) => self.random.pick(&["13.4", "13.5", "-0.1"]),
            ("latitude", _) => self.random.pick(&["52.5", "52.6", "51.5"]),
            ("radius" | "width" | "height", _) => "20",
            ("encoding", _) => self.random.pick(&["u8", "i5", "u63"]),
            ("bit", _) => self.random.pick(&["0", "1"]),
            ("group", _) => "g",
            ("consumer" | "newconsumer", _) => self.random.pick(&["c", "d"]),
            ("id" | "last-id", _) => self.random.pick(&["0-0", "5-1", "*", "$", ">", "0"]),
            ("start" | "end", _) if self.group == Group::Stream => self.random.pick(&["-", "+"]),
            ("min" | "max", _) => self.random.pick(&["-inf", "+inf", "(1", "[a", "-", "+", "2"]),
            ("index" | "index1" | "index2" | "db" | "destination-db", _) => &small,
            ("start" | "stop" | "end", _) => self.random.pick(&["0", "-1", "1", "-2"]),
            (_, "integer" | "double") => self.random.pick(&["0", "1", "2", "-1", "3.5"]),
            ("threshold", _) => &small,
            ("script", _) => self.random.pick(SCRIPTS),
            ("sha1", _) => SHA_OF_RETURN,
            ("function-code", _) => self.random.pick(LIBRARIES),
            ("library-name", _) => "library0",
            ("function", _) => self.random.pick(&["function0", "function1", "function2"]),
            ("name", _) if self.group == Group::Scripting => "script0",
            _ => return self.element(),
        };
        text.as_bytes().to_vec()
    }

    /// Returns a member, field or value.
    fn element(&mut self) -> Vec<u8> {
        match self.random.below(12) {
            0 => vec![b'v'; 200],
            1..5 => self.random.below(5).to_string().into_bytes(),
            _ => vec![b'a' + self.random.below(6) as u8],
        }
    }

    /// Returns any word.
    fn word(&mut self) -> Vec<u8> {
        const WORDS: [&str; 14] = [
            "",
            "0",
            "1",
            "2",
            "-1",
            "9223372036854775807",
            "-9223372036854775808",
            "nan",
            "1e400",
            "0.5",
            "(",
            "[",
            "*",
            "5-1",
        ];
        match self.random.below(5) {
            0 => self.key(),
            1 => self.element(),
            _ => self.random.pick(&WORDS).as_bytes().to_vec(),
        }
    }
}

/// Returns the words that a call begins with.
fn name(command: &Command) -> Call {
    command.full_name.split('|').map(|word| word.as_bytes().to_vec()).collect()
}

/// Returns all literal words of a syntax.
fn tokens(arguments: &[Argument]) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    for argument in arguments {
        found.extend(argument.token.clone().map(String::into_bytes));
        if let ArgumentKind::OneOf(parts) | ArgumentKind::Block(parts) = &argument.kind {
            found.extend(tokens(parts));
        }
    }
    found
}
