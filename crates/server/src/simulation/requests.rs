//! The calls of the clients: a plan that the seed determines.

use std::ops::Range;

use tierce_harness::Random;
use tierce_keyspace::Keyspace;

/// String that is too long for a worker, which checks only its length: counting some bits at its end is fast.
pub(super) const BIG_KEY: &str = "big";
pub(super) const BIG_LEN: usize = 700_000;

pub(super) const LISTS: [&str; 3] = ["list0", "list1", "list2"];
pub(super) const NUMBERS: [&str; 3] = ["number0", "number1", COUNTER];
/// Number that only grows, with messages that report it.
pub(super) const COUNTER: &str = "counter";
const CHANNELS: [&str; 2] = ["news0", "news1"];
/// Pattern that matches all channels.
pub(super) const ALL_CHANNELS: &str = "news*";
pub(super) const STREAM: &str = "stream";
pub(super) const SET: &str = "set";

/// Milliseconds of simulated time in which a call that waits for nothing is answered.
const PATIENCE_MS: u64 = 2_500;

/// Time limit of a client outside of the workers.
const BESIDE_MS: u64 = 400;

/// Its time limit while a script locks the needed keys.
const HELD_MS: u64 = 30_000;

/// One of this many seeds has a script that never ends by itself.
pub(super) const ENDLESS_EACH: u64 = 4;

/// One of this many seeds has many messages.
pub(super) const MESSAGES_EACH: u64 = 3;

pub(super) type Words = Vec<String>;

/// Kinds of calls.
#[derive(Clone, Debug)]
pub(super) enum Deed {
    /// One command.
    Command(Words),
    /// WATCH of these keys.
    Watch(Words),
    /// EXEC of these commands.
    Exec(Vec<Words>),
    /// A script, which does the work of these commands and replies like the last of them.
    Script { call: Words, does: Vec<Words> },
    /// A script that undoes its changes, or is killed.
    ScriptInVain(Words),
    /// SCRIPT KILL.
    Kill,
}

impl Deed {
    /// Returns the requests to send, with the number of the one that has the reply.
    pub(super) fn requests(&self) -> (Vec<Words>, usize) {
        match self {
            Self::Command(call) | Self::Script { call, .. } | Self::ScriptInVain(call) => {
                (vec![call.clone()], 0)
            }
            Self::Watch(keys) => (vec![[words("WATCH"), keys.clone()].concat()], 0),
            Self::Exec(commands) => {
                let requests = [vec![words("MULTI")], commands.clone(), vec![words("EXEC")]];
                (requests.concat(), commands.len() + 1)
            }
            Self::Kill => (vec![words("SCRIPT KILL")], 0),
        }
    }

    /// Returns the keys, including those of the commands in it.
    fn keys(&self) -> Vec<&str> {
        let of = |words: &'static [&'static str]| words.iter().copied();
        let known = || of(&LISTS).chain(of(&NUMBERS)).chain([STREAM, SET, BIG_KEY]);
        let (requests, _) = self.requests();
        let is_used = |key: &&str| requests.iter().flatten().any(|word| word == key);
        known().filter(is_used).collect()
    }

    /// Returns true if it needs all shards.
    fn needs_all(&self) -> bool {
        match self {
            Self::Script { call, .. } => call[2] == "0",
            _ => false,
        }
    }

    /// Returns its wait for keys: none, this many milliseconds, or without limit.
    fn waits_ms(&self) -> u64 {
        let Self::Command(call) = self else { return 0 };
        let call = as_blocking(call);
        let last = || call.last().expect("words").parse::<f64>().expect("seconds");
        match call[0] {
            "BLPOP" | "BLMOVE" if last() == 0.0 => u64::MAX,
            "BLPOP" | "BLMOVE" => (last() * 1000.0) as u64,
            "XREADGROUP" => match call[8].parse() {
                Ok(0) => u64::MAX,
                ms => ms.unwrap_or(0),
            },
            _ => 0,
        }
    }
}

/// Call, with its expectations.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) client: usize,
    pub(super) deed: Deed,
    /// Milliseconds within which it is answered; `None` if it may wait without limit.
    pub(super) limit_ms: Option<u64>,
    /// True if it is sent together with the previous one.
    pub(super) follows: bool,
    /// Milliseconds before it is sent.
    pub(super) after_ms: u64,
}

/// All calls, by client and in the order of each.
#[derive(Debug)]
pub(super) struct Plan {
    calls: Vec<Call>,
    /// Number of clients with connections; the clients behind them call outside of the workers.
    pub(super) connections: usize,
    off_worker: usize,
}

pub(super) fn words(line: &str) -> Words {
    line.split(' ').map(str::to_owned).collect()
}

/// Returns a call whose result may come later, like NBLPOP, as its blocking equivalent. Its client waits for the
/// result.
pub(super) fn as_blocking(call: &Words) -> Vec<&str> {
    let words: Vec<&str> = call.iter().map(String::as_str).collect();
    match call[0].strip_prefix('N') {
        Some(name) => [&[name], &words[1..words.len() - 1]].concat(),
        None => words,
    }
}

/// Weights for choosing one of some alternatives.
struct Taste(Vec<usize>);

impl Taste {
    /// Creates weights of its own for each run: frequent repetitions of few kinds find other faults than an even mix.
    fn new(random: &mut Random, alternatives: usize) -> Self {
        let mut weights: Vec<usize> =
            (0..alternatives).map(|_| [0, 1, 1, 5][random.below(4)]).collect();
        weights[random.below(alternatives)] += 1;
        Self(weights)
    }

    fn choose(&self, random: &mut Random) -> usize {
        let mut left = random.below(self.0.iter().sum());
        let is_chosen = |weight: &usize| {
            let is_here = left < *weight;
            left = left.saturating_sub(*weight);
            is_here
        };
        self.0.iter().position(is_chosen).expect("one of them")
    }
}

/// Kinds of deeds.
const BLOCKING: usize = 0;
const SCRIPT: usize = 1;
const EXEC: usize = 2;
const WATCHED: usize = 3;
const LONG: usize = 4;
const PUBLISH: usize = 5;
const KINDS: usize = 7;

/// Kind of messages, the last one: of a script that counts.
const COUNTING: usize = 3;

struct Tastes {
    deeds: Taste,
    blocking: Taste,
    scripts: Taste,
    messages: Taste,
    commands: Taste,
    lists: Taste,
}

/// Key that a script locks until it is killed.
#[derive(Clone, Copy)]
struct Held {
    key: &'static str,
    /// Time when the script is called.
    at_ms: u64,
    /// List with an element that moves to that key; a client may wait for it.
    from: &'static str,
}

struct Planner<'k> {
    random: Random,
    tastes: Tastes,
    keyspace: &'k Keyspace,
    /// Next element; each is used once.
    next: u32,
    /// Key that a script locks until it is killed.
    held: Option<Held>,
    /// Calls of each client beyond the usual number.
    more_calls: usize,
    calls: Vec<Call>,
}

impl Plan {
    pub(super) fn new(seed: u64, keyspace: &Keyspace) -> Self {
        let mut random = Random::new(seed ^ 0x51e0);
        let has_endless = seed.is_multiple_of(ENDLESS_EACH);
        let mut taste = |alternatives| Taste::new(&mut random, alternatives);
        let mut tastes = Tastes {
            deeds: taste(KINDS),
            blocking: taste(4),
            scripts: taste(4),
            messages: taste(COUNTING + 1),
            commands: taste(18),
            lists: taste(LISTS.len()),
        };
        let has_messages = seed.is_multiple_of(MESSAGES_EACH);
        if has_messages {
            tastes.deeds.0[PUBLISH] += 10;
            tastes.messages.0[COUNTING] += 3;
        }
        if has_endless {
            // Some calls may wait for it, and others must not.
            tastes.deeds.0[EXEC] += 6;
            tastes.deeds.0[LONG] += 3;
            tastes.deeds.0[BLOCKING] += 2;
        }
        let (calls, held, more_calls) = (Vec::new(), None, if has_messages { 2 } else { 0 });
        let mut planner = Planner { random, tastes, keyspace, next: 0, held, more_calls, calls };
        let connections = 2 + planner.random.below(4) + usize::from(has_endless);
        let off_worker = planner.random.below(2);
        let mut first = 0;
        if has_endless {
            planner.endless(off_worker > 0);
            first = if planner.random.one_in(2) { planner.wait_for_held(2) } else { 2 };
        }
        for client in first..connections + first {
            planner.client(client, false);
        }
        let mut connections = connections + first;
        if planner.tastes.deeds.0[PUBLISH] > 0 {
            let subscribers = planner.random.below(3) + usize::from(has_messages);
            for client in connections..connections + subscribers {
                planner.subscriber(client);
            }
            connections += subscribers;
        }
        for client in connections..connections + off_worker {
            planner.client(client, true);
        }
        Self { calls: planner.calls, connections, off_worker }
    }

    pub(super) fn calls(&self) -> &[Call] {
        &self.calls
    }

    /// Returns the clients that call outside of the workers.
    pub(super) fn off_worker(&self) -> Range<usize> {
        self.connections..self.connections + self.off_worker
    }
}

impl Planner<'_> {
    fn element(&mut self) -> String {
        self.next += 1;
        format!("e{}", self.next)
    }

    fn list(&mut self) -> &'static str {
        match self.held {
            Some(Held { key, .. }) if self.random.one_in(3) => key,
            Some(Held { from, .. }) if self.random.one_in(2) => from,
            _ => LISTS[self.tastes.lists.choose(&mut self.random)],
        }
    }

    /// Adds a script that never ends, of the first client, and the second client, which kills it.
    fn endless(&mut self, is_brief: bool) {
        let shard = |key: &str| self.keyspace.shard_of(self.keyspace.hash(key.as_bytes()));
        let is_elsewhere = |key: &&&str| shard(key) != shard(BIG_KEY);
        let first = self.random.below(LISTS.len());
        let key =
            LISTS[first..].iter().chain(&LISTS).find(is_elsewhere).copied().unwrap_or(LISTS[0]);
        let source = "redis.call('rpush', KEYS[1], 'never') while true do end";
        let call = ["EVAL", source, "1", key].map(str::to_owned).to_vec();
        let after_ms = self.random.u64_below(20);
        let from = LISTS.iter().find(|list| **list != key).copied().unwrap_or(key);
        self.held = Some(Held { key, at_ms: after_ms, from });
        let deed = Deed::ScriptInVain(call);
        self.calls.push(Call {
            client: 0,
            deed,
            limit_ms: Some(HELD_MS),
            follows: false,
            after_ms,
        });
        // Callers outside of the workers retry each millisecond.
        let from_ms = if is_brief { 500 } else { 3_500 };
        let (deed, after_ms) = (Deed::Kill, from_ms + self.random.u64_below(from_ms));
        self.calls.push(Call { client: 1, deed, limit_ms: None, follows: false, after_ms });
    }

    /// Adds a client that waits for an element at the key that the script locks, and another one that adds the element.
    /// Returns the next client.
    fn wait_for_held(&mut self, client: usize) -> usize {
        let Some(Held { key, from, at_ms }) = self.held else { return client };
        let deed = Deed::Command(words(&format!("BLMOVE {from} {key} LEFT RIGHT 0")));
        self.calls.push(Call { client, deed, limit_ms: None, follows: false, after_ms: 0 });
        let deed = Deed::Command(words(&format!("RPUSH {from} {}", self.element())));
        let (limit_ms, after_ms) = (Some(HELD_MS), at_ms + self.random.u64_below(30));
        self.calls.push(Call { client: client + 1, deed, limit_ms, follows: false, after_ms });
        client + 2
    }

    fn client(&mut self, client: usize, is_off_worker: bool) {
        let count = 1 + self.random.below(4) + self.more_calls;
        for number in 0..count {
            let is_last = number + 1 == count || self.held.is_some() && self.random.one_in(2);
            let kind = self.tastes.deeds.choose(&mut self.random);
            let deed = match kind {
                // They need a connection.
                BLOCKING | EXEC | WATCHED if is_off_worker => Deed::Command(self.command()),
                BLOCKING => self.blocking(is_last),
                SCRIPT => self.script(),
                EXEC => self.exec(None),
                WATCHED => {
                    let key = self.list();
                    self.add(client, Deed::Watch(vec![key.to_owned()]), false);
                    self.exec(Some(key))
                }
                LONG => Deed::Command(words(&format!("BITCOUNT {BIG_KEY} -4 -1"))),
                PUBLISH => self.publish(is_off_worker),
                _ => Deed::Command(self.command()),
            };
            // Behind an endless script it is unknown which calls wait for which.
            let is_known = self.held.is_none() && !is_off_worker && kind != WATCHED;
            // The reply to the next request would come before a result that comes later.
            let is_behind_later = self.calls.last().is_some_and(|call| match &call.deed {
                Deed::Command(call) => call[0].starts_with('N'),
                _ => false,
            });
            let follows = is_known && number > 0 && !is_behind_later && self.random.one_in(3);
            self.add(client, deed, follows);
            if self.calls.last().is_some_and(|call| call.limit_ms.is_none()) {
                break;
            }
        }
        if is_off_worker {
            let of_client = self.calls.iter_mut().filter(|call| call.client == client);
            of_client.for_each(|call| {
                call.limit_ms = call.limit_ms.map(|ms| if ms < HELD_MS { BESIDE_MS } else { ms });
            });
        }
    }

    fn add(&mut self, client: usize, deed: Deed, follows: bool) {
        let shard = |key: &&str| self.keyspace.shard_of(self.keyspace.hash(key.as_bytes()));
        let is_held = self.held.is_some_and(|held| {
            deed.needs_all() || deed.keys().iter().any(|key| shard(key) == shard(&held.key))
        });
        let before_ms = match self.calls.last() {
            Some(before) if follows => before.limit_ms.unwrap_or_default(),
            _ => 0,
        };
        let limit_ms = match deed.waits_ms() {
            u64::MAX => None,
            ms if is_held => Some(before_ms + ms + HELD_MS),
            ms => Some(before_ms + ms + PATIENCE_MS),
        };
        let is_first = self.calls.last().is_none_or(|before| before.client != client);
        let after_ms = match (self.held, self.random.below(4)) {
            (Some(Held { at_ms, .. }), 0 | 1) if is_first => at_ms,
            (_, 0) | (Some(_), 1) => self.random.u64_below(60),
            _ => 0,
        };
        self.calls.push(Call { client, deed, limit_ms, follows, after_ms });
    }

    fn blocking(&mut self, is_last: bool) -> Deed {
        let forever = is_last && !self.random.one_in(if self.held.is_some() { 4 } else { 2 });
        let ms = if forever { 0 } else { 1 + self.random.below(60) };
        let seconds = ms as f64 / 1000.0;
        let (from, to) = (self.list(), self.list());
        let call = match self.tastes.blocking.choose(&mut self.random) {
            0 => format!("BLPOP {from} {seconds}"),
            1 if from != to => format!("BLPOP {from} {to} {seconds}"),
            2 => {
                let group = "GROUP g c COUNT 1 NOACK";
                let call = format!("XREADGROUP {group} BLOCK {ms} STREAMS {STREAM} >");
                return Deed::Command(words(&call));
            }
            _ => format!("BLMOVE {from} {to} LEFT RIGHT {seconds}"),
        };
        let comes_later = self.random.one_in(3);
        Deed::Command(words(&if comes_later { format!("N{call} 0") } else { call }))
    }

    fn script(&mut self) -> Deed {
        let turns = self.random.pick(&["0", "20", "100"]);
        let (from, to, element) = (self.list(), self.list(), self.element());
        let spin = format!("for _ = 1, {turns} do redis.call('exists', KEYS[1] or ARGV[1]) end ");
        let eval = |source: String, args: &[&str]| {
            let args = args.iter().map(|arg| (*arg).to_owned());
            ["EVAL".to_owned(), source].into_iter().chain(args).collect::<Words>()
        };
        match self.tastes.scripts.choose(&mut self.random) {
            0 => {
                let source = format!(
                    "#!lua flags=atomic\nredis.call('rpush', KEYS[1], 'never') {spin} error('no')"
                );
                Deed::ScriptInVain(eval(source, &["1", from]))
            }
            1 => {
                let source = format!(
                    "redis.call('sadd', KEYS[1], ARGV[1]) {spin} \
                     local popped = redis.call('spop', KEYS[1]) {spin} return popped"
                );
                let add = words(&format!("SADD {SET} {element}"));
                let does = vec![add, words(&format!("SPOP {SET}"))];
                Deed::Script { call: eval(source, &["1", SET, &element]), does }
            }
            2 => {
                let source = format!("{spin} return redis.call('rpush', ARGV[1], ARGV[2])");
                let does = vec![words(&format!("RPUSH {to} {element}"))];
                Deed::Script { call: eval(source, &["0", to, &element]), does }
            }
            _ => {
                let source = format!(
                    "{spin} redis.call('rpush', KEYS[1], ARGV[1]) {spin} \
                     return redis.call('lmove', KEYS[1], KEYS[2], 'LEFT', 'RIGHT')"
                );
                let push = words(&format!("RPUSH {from} {element}"));
                let does = vec![push, words(&format!("LMOVE {from} {to} LEFT RIGHT"))];
                Deed::Script { call: eval(source, &["2", from, to, &element]), does }
            }
        }
    }

    /// Returns a message, alone or with a change that it reports.
    fn publish(&mut self, is_off_worker: bool) -> Deed {
        let (channel, element) = (self.random.pick(&CHANNELS), self.element());
        let turns = self.random.pick(&["0", "0", "0", "20", "100"]);
        let spin = format!("for _ = 1, {turns} do redis.call('exists', KEYS[1] or ARGV[3]) end ");
        let publish = words(&format!("PUBLISH {channel} {element}"));
        let count = words(&format!("INCR {COUNTER}"));
        match self.tastes.messages.choose(&mut self.random) {
            0 => Deed::Command(publish),
            1 if !is_off_worker => {
                let mut commands = vec![count, publish];
                if self.random.one_in(3) {
                    commands.push(words(&format!("BITCOUNT {BIG_KEY} -4 -1")));
                }
                Deed::Exec(commands)
            }
            2 => {
                let source = format!(
                    "#!lua flags=atomic\nredis.call('publish', ARGV[1], 'never') {spin} error('no')"
                );
                let call = ["EVAL", &source, "1", COUNTER, channel];
                Deed::ScriptInVain(call.map(str::to_owned).to_vec())
            }
            _ => {
                // They are two scripts: one that has once needed more keys than it declares begins with all.
                let (key, keys) = self.random.pick(&[&("ARGV[3]", "0"), &("KEYS[1]", "1")]);
                let source = format!(
                    "local n = redis.call('incr', {key}) {spin} \
                     redis.call('publish', ARGV[1], ARGV[2]) {spin} return n"
                );
                let mut call = vec!["EVAL", &source, keys];
                call.extend((*keys == "1").then_some(COUNTER));
                call.extend([channel, &element, COUNTER]);
                let call = call.into_iter().map(str::to_owned).collect();
                Deed::Script { call, does: vec![publish, count] }
            }
        }
    }

    /// Adds a client that subscribes, mostly before there are messages, and later changes or ends its subscription.
    fn subscriber(&mut self, client: usize) {
        let begin = self.calls.len();
        for _ in 0..1 + self.random.below(3) {
            let channel = self.random.pick(&[CHANNELS[0], CHANNELS[1], ALL_CHANNELS, ALL_CHANNELS]);
            let kind = if channel == ALL_CHANNELS { "P" } else { "" };
            for name in ["SUBSCRIBE", "UNSUBSCRIBE"] {
                let call = words(&format!("{kind}{name} {channel}"));
                self.add(client, Deed::Command(call), false);
                let at_most = if name == "SUBSCRIBE" { 2 } else { 20 };
                self.calls.last_mut().expect("it was added").after_ms =
                    self.random.u64_below(at_most);
            }
        }
        if self.random.one_in(2) {
            self.calls.pop();
        }
        if self.random.one_in(2) {
            self.calls[begin].after_ms = 0;
        }
    }

    /// Returns a transaction, which uses a key that is watched.
    fn exec(&mut self, watched: Option<&str>) -> Deed {
        let mut commands: Vec<Words> =
            (0..1 + self.random.below(2)).map(|_| self.command()).collect();
        commands.extend(watched.map(|key| words(&format!("LPOP {key}"))));
        if self.random.one_in(if self.held.is_none() { 3 } else { 1 }) {
            // It goes to a thread for long commands.
            commands.push(words(&format!("BITCOUNT {BIG_KEY} -4 -1")));
        }
        Deed::Exec(commands)
    }

    fn command(&mut self) -> Words {
        let (list, number) = (self.list(), self.random.pick(&NUMBERS[..2]));
        let element = self.element();
        words(&match self.tastes.commands.choose(&mut self.random) {
            0..=2 => format!("RPUSH {list} {element}"),
            3 => format!("LPUSH {list} {element} {}", self.element()),
            4 => format!("LPOP {list}"),
            5 => format!("LRANGE {list} 0 -1"),
            6 => format!("LMOVE {list} {} LEFT RIGHT", self.list()),
            7 => format!("INCR {number}"),
            8 => format!("GET {number}"),
            9 => format!("SET {number} 7 PX {}", 1 + self.random.below(30)),
            10 => format!("PEXPIRE {list} {}", 1 + self.random.below(30)),
            11 => format!("DEL {list}"),
            12 => format!("XADD {STREAM} * field {element}"),
            13 => format!("XLEN {STREAM}"),
            14 => format!("SADD {SET} {element} {}", self.element()),
            15 => format!("SPOP {SET}"),
            // It may need any shard.
            16 if self.held.is_none() => "RANDOMKEY".to_owned(),
            _ => format!("SRANDMEMBER {SET}"),
        })
    }
}
