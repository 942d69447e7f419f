//! A model of the keys: each command changes them as a whole, one after the other.

use std::collections::{BTreeSet, VecDeque};

use super::requests::{BIG_KEY, Deed, LISTS, NUMBERS, SET, STREAM, Words, as_blocking};

/// Maximum age of the time that a command uses, relative to the call: a thread may read the clock, and then wait for a
/// shard.
const STALE_MS: u64 = 400;

const KEYS: usize = LISTS.len() + NUMBERS.len() + 2;

/// All keys, with their watchers.
#[derive(Clone, Debug, Default, Hash, PartialEq, Eq)]
pub(super) struct Model {
    lists: [VecDeque<String>; LISTS.len()],
    numbers: [Option<i64>; NUMBERS.len()],
    set: BTreeSet<String>,
    stream: Vec<String>,
    /// Number of entries of the stream that the group has read.
    read: usize,
    /// Expiry times of lists and numbers: between these two moments.
    expires: [Option<(u64, u64)>; KEYS],
    /// Keys that each client watches, and if one of them has changed.
    watches: Vec<Option<([bool; KEYS], bool)>>,
}

/// Time of a call, in milliseconds.
#[derive(Clone, Copy)]
pub(super) struct During {
    pub(super) sent_ms: u64,
    pub(super) answered_ms: u64,
}

/// Result of a command.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Replies(String),
    /// It finds nothing, and waits if it may.
    Nothing,
    /// It uses a key that has expired.
    Impossible,
}

fn number_of(key: &str) -> usize {
    let all = LISTS.iter().chain(&NUMBERS).chain([&STREAM, &SET]);
    all.copied().position(|name| name == key).unwrap_or_else(|| panic!("no key {key}"))
}

fn reply(text: impl ToString) -> Outcome {
    Outcome::Replies(text.to_string())
}

/// Returns the elements of a shown array.
fn elements_of(shown: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0;
    let inner = shown.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or_default();
    inner.split(move |char| {
        depth += i32::from(char == '[') - i32::from(char == ']');
        depth == 0 && char == ' '
    })
}

fn shown(all: impl IntoIterator<Item = String>) -> String {
    format!("[{}]", all.into_iter().collect::<Vec<_>>().join(" "))
}

impl Model {
    /// Aborts a transaction, and drops its watches.
    pub(super) fn abort(&mut self, client: usize) {
        self.watches.get_mut(client).and_then(Option::take);
    }

    /// Executes a call of a client, if it is possible now. Random choices follow `replied`.
    pub(super) fn act(
        &mut self,
        client: usize,
        deed: &Deed,
        replied: &str,
        during: During,
    ) -> Option<String> {
        match deed {
            Deed::Command(call) => self.run_all([(call, replied)], during)?.pop(),
            Deed::Watch(keys) => {
                if self.watches.len() <= client {
                    self.watches.resize(client + 1, None);
                }
                let (watched, _) = self.watches[client].get_or_insert_default();
                keys.iter().for_each(|key| watched[number_of(key)] = true);
                Some("OK".to_owned())
            }
            Deed::Exec(commands) => {
                let watch = self.watches.get_mut(client).and_then(Option::take);
                match watch {
                    Some((_, true)) => Some("nil".to_owned()),
                    _ if !replied.starts_with('[') => None,
                    _ => {
                        let commands = commands.iter().zip(elements_of(replied));
                        Some(shown(self.run_all(commands, during)?))
                    }
                }
            }
            Deed::Script { does, .. } => {
                self.run_all(does.iter().map(|call| (call, replied)), during)?.pop()
            }
            Deed::ScriptInVain(_) | Deed::Kill => unreachable!("they do nothing"),
        }
    }

    fn run_all<'c>(
        &mut self,
        calls: impl IntoIterator<Item = (&'c Words, &'c str)>,
        during: During,
    ) -> Option<Vec<String>> {
        let run = |(call, replied)| match self.run(call, replied, during) {
            Outcome::Replies(reply) => Some(reply),
            Outcome::Nothing => Some("nil".to_owned()),
            Outcome::Impossible => None,
        };
        calls.into_iter().map(run).collect()
    }

    fn run(&mut self, call: &Words, replied: &str, during: During) -> Outcome {
        let words = as_blocking(call);
        let key = words.get(1).copied().unwrap_or_default();
        let uses = |key: &&str| LISTS.contains(key) || NUMBERS.contains(key);
        if words[1..].iter().filter(|word| uses(word)).any(|key| self.is_over(key, during)) {
            return Outcome::Impossible;
        }
        match words[0] {
            "RPUSH" => self.push(key, &words[2..], VecDeque::push_back),
            "LPUSH" => self.push(key, &words[2..], VecDeque::push_front),
            "LPOP" => self.pop(key).map_or(Outcome::Nothing, reply),
            "LRANGE" => reply(shown(self.lists[number_of(key)].iter().cloned())),
            // The key keeps its expiry time.
            "LMOVE" | "BLMOVE" if key == words[2] => {
                let list = &mut self.lists[number_of(key)];
                let Some(element) = list.pop_front() else { return Outcome::Nothing };
                list.push_back(element.clone());
                self.changed(number_of(key));
                reply(element)
            }
            "LMOVE" | "BLMOVE" => match self.pop(key) {
                None => Outcome::Nothing,
                Some(element) => {
                    self.push(words[2], &[&element], VecDeque::push_back);
                    reply(element)
                }
            },
            "BLPOP" => {
                let keys = &words[1..words.len() - 1];
                let found = keys.iter().find_map(|key| Some((*key, self.pop(key)?)));
                found.map_or(Outcome::Nothing, |(key, element)| reply(format!("[{key} {element}]")))
            }
            "DEL" => reply(i64::from(self.remove(number_of(key)))),
            "INCR" => {
                let number = self.number(key).get_or_insert(0);
                *number += 1;
                let number = *number;
                self.changed(number_of(key));
                reply(number)
            }
            "GET" => self.number(key).map_or(Outcome::Nothing, reply),
            "SET" => {
                *self.number(key) = Some(words[2].parse().expect("a number"));
                self.expire(number_of(key), words[4], during);
                reply("OK")
            }
            "PEXPIRE" => {
                let is_there = !self.lists[number_of(key)].is_empty();
                if is_there {
                    self.expire(number_of(key), words[2], during);
                }
                reply(i64::from(is_there))
            }
            "PUBLISH" => reply(PUBLISHED),
            "BITCOUNT" if key == BIG_KEY => reply(BITS_OF_BIG),
            "RANDOMKEY" if replied == BIG_KEY => reply(replied),
            "RANDOMKEY" if self.is_there(number_of(replied)) => reply(replied),
            "SADD" => {
                let members = words[2..].iter().map(|member| (*member).to_owned());
                let added = members.filter(|member| self.set.insert(member.clone())).count();
                self.changed(number_of(key));
                reply(added)
            }
            "SPOP" | "SRANDMEMBER" if self.set.is_empty() => Outcome::Nothing,
            "SRANDMEMBER" if self.set.contains(replied) => reply(replied),
            "SPOP" if self.set.remove(replied) => {
                self.changed(number_of(key));
                reply(replied)
            }
            "SPOP" | "SRANDMEMBER" | "RANDOMKEY" => Outcome::Impossible,
            "SMEMBERS" => reply(shown(self.set.iter().cloned())),
            "XADD" => {
                self.stream.push(words[4].to_owned());
                self.changed(number_of(key));
                reply("id")
            }
            "XLEN" => reply(self.stream.len()),
            "XREADGROUP" => {
                let count: usize = words[5].parse().expect("a count");
                let some: Vec<String> =
                    self.stream.iter().skip(self.read).take(count).cloned().collect();
                self.read += some.len();
                if some.is_empty() { Outcome::Nothing } else { reply(some.join(" ")) }
            }
            name => panic!("{name} is not modelled"),
        }
    }

    fn number(&mut self, key: &str) -> &mut Option<i64> {
        &mut self.numbers[number_of(key) - LISTS.len()]
    }

    fn push(
        &mut self,
        key: &str,
        elements: &[&str],
        push: impl Fn(&mut VecDeque<String>, String),
    ) -> Outcome {
        let list = &mut self.lists[number_of(key)];
        elements.iter().for_each(|element| push(list, (*element).to_owned()));
        let len = list.len();
        self.changed(number_of(key));
        reply(len)
    }

    fn pop(&mut self, key: &str) -> Option<String> {
        let number = number_of(key);
        let element = self.lists[number].pop_front()?;
        if self.lists[number].is_empty() {
            self.expires[number] = None;
        }
        self.changed(number);
        Some(element)
    }

    /// Marks the watchers of a key as dirty.
    fn changed(&mut self, number: usize) {
        for (watched, is_dirty) in self.watches.iter_mut().flatten() {
            *is_dirty |= watched[number];
        }
    }

    fn is_there(&self, number: usize) -> bool {
        let (lists, numbers) = (LISTS.len(), NUMBERS.len());
        match number {
            number if number < lists => !self.lists[number].is_empty(),
            number if number < lists + numbers => self.numbers[number - lists].is_some(),
            number if number == number_of(SET) => !self.set.is_empty(),
            _ => true,
        }
    }

    fn remove(&mut self, number: usize) -> bool {
        let was_there = self.is_there(number);
        if was_there {
            match number.checked_sub(LISTS.len()) {
                None => self.lists[number].clear(),
                Some(number) => self.numbers[number] = None,
            }
            self.expires[number] = None;
            self.changed(number);
        }
        was_there
    }

    fn expire(&mut self, number: usize, ms: &str, during: During) {
        let ms: u64 = ms.parse().expect("milliseconds");
        let from_ms = during.sent_ms.saturating_sub(STALE_MS) + ms;
        self.expires[number] = Some((from_ms, during.answered_ms + ms));
        self.changed(number);
    }

    /// Returns true if a key has certainly expired before a call.
    fn is_over(&self, key: &str, during: During) -> bool {
        let expires = self.expires[number_of(key)];
        expires.is_some_and(|(_, until_ms)| until_ms + STALE_MS < during.sent_ms)
    }

    /// Returns the states after each key that may expire by this time.
    pub(super) fn expired_by(&self, ms: u64) -> impl Iterator<Item = Self> {
        let may = move |number: &usize| {
            self.expires[*number].is_some_and(|(from_ms, _)| from_ms <= ms.saturating_add(1))
        };
        (0..KEYS).filter(may).map(|number| {
            let mut then = self.clone();
            then.remove(number);
            then
        })
    }
}

/// Reply to PUBLISH: it depends on the subscribers, which are not modelled.
pub(super) const PUBLISHED: &str = "published";

/// Number of bits of the only non-zero byte of the string, an x.
const BITS_OF_BIG: u32 = b'x'.count_ones();
