//! Commands for operators: `slabs`, `lru`, `lru_crawler`, `cache_memlimit`, `watch`.
//!
//! Tierce has no slabs and no LRU lists. Commands that only tune these are checked and accepted without effect, so that
//! scripts that set up a server work. Commands that would show or move them are refused.

use tierce_wire::memcached::text::Reply;

use super::dump::{Dump, Form};
use super::run::Run;
use super::stats::SLAB_CLASS;

const UNKNOWN: &str = "ERROR";
const BAD_FORMAT: &str = "CLIENT_ERROR bad command line format";
const BAD_CLASS: &str = "BADCLASS invalid class id";

/// Largest number of a class that memcached may have.
const CLASS_MAX: u32 = 63;

/// Bounds of `cache_memlimit`, in megabytes.
const MEMLIMIT_MIN: u64 = 8;
const MEMLIMIT_MAX: u64 = 1_000_000_000;

/// Upper bound of the sum of the percentages of `lru tune`.
const LRU_PERCENT_MAX: u32 = 80;

/// Longest pause of the crawler, in microseconds.
const CRAWLER_SLEEP_MAX: u32 = 1_000_000;

fn number(word: &str) -> Option<u32> {
    word.parse().ok()
}

impl Run<'_, '_> {
    /// Runs a command; `rest` is the text after its name.
    pub fn admin(&mut self, name: &[u8], rest: &[u8], reply: Reply) {
        let rest = String::from_utf8_lossy(rest);
        let mut words: Vec<&str> = rest.split(' ').filter(|word| !word.is_empty()).collect();
        if reply == Reply::Unwanted {
            words.pop();
        }
        let line = match name {
            b"slabs" => slabs(&words),
            b"lru" => lru(&words),
            b"lru_crawler" => return self.lru_crawler(&words, reply),
            b"cache_memlimit" => return self.cache_memlimit(&words, reply),
            b"watch" => "CLIENT_ERROR watch commands not allowed",
            b"refresh_certs" => "Error TLS not enabled",
            _ => UNKNOWN,
        };
        self.line(reply, line);
    }

    fn lru_crawler(&mut self, words: &[&str], reply: Reply) {
        let shared = self.server.memcached;
        let line = match words {
            ["enable"] => {
                shared.enable_crawler(true);
                "OK"
            }
            ["disable"] => {
                shared.enable_crawler(false);
                "OK"
            }
            ["sleep", pause] => match number(pause) {
                Some(0..=CRAWLER_SLEEP_MAX) => "OK",
                Some(_) => "CLIENT_ERROR sleep must be one second or less",
                None => BAD_FORMAT,
            },
            ["tocrawl", count] => number(count).map_or(BAD_FORMAT, |_| "OK"),
            ["crawl" | "metadump" | "mgdump", _] if !shared.has_crawler() => {
                "CLIENT_ERROR lru crawler disabled"
            }
            // Expired keys are removed anyway, without delay.
            ["crawl", classes] => Classes::parse(classes).map_or(BAD_CLASS, |_| "OK"),
            ["metadump", classes] => return self.dump(Form::Facts, classes),
            ["mgdump", classes] => return self.dump(Form::Commands, classes),
            _ => UNKNOWN,
        };
        self.line(reply, line);
    }

    fn dump(&mut self, form: Form, classes: &str) {
        match Classes::parse(classes) {
            // The replies to later requests have to follow the dump.
            Some(Classes::Ours) => self.session.dump = Some(Dump::new(form)),
            Some(Classes::Empty) => self.write(form.end()),
            None => self.line(Reply::Wanted, BAD_CLASS),
        }
    }

    fn cache_memlimit(&mut self, words: &[&str], reply: Reply) {
        let Some(megabytes) = words.first().and_then(|word| word.parse::<u64>().ok()) else {
            return self.line(reply, UNKNOWN);
        };
        let line = match (words.len(), megabytes) {
            (3.., _) => UNKNOWN,
            (_, ..MEMLIMIT_MIN) => "MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m",
            (_, MEMLIMIT_MIN..=MEMLIMIT_MAX) => {
                let limit = format!("{megabytes}mb");
                let peer = self.session.client.peer();
                // Enforcing the limit may access all shards.
                self.release();
                match self.server.config.set(&[(b"maxmemory", limit.as_bytes())], peer) {
                    Ok(_) => "OK",
                    Err(_) => "MEMLIMIT_ADJUST_FAILED out of bounds or unable to adjust",
                }
            }
            _ => "MEMLIMIT_ADJUST_FAILED input value is megabytes not bytes",
        };
        self.line(reply, line);
    }
}

/// Classes of the requested items.
enum Classes {
    /// They include the only one that exists.
    Ours,
    /// They include only classes that do not exist.
    Empty,
}

impl Classes {
    /// Parses `all`, `hash`, or numbers separated by commas.
    fn parse(text: &str) -> Option<Self> {
        if matches!(text, "all" | "hash") {
            return Some(Self::Ours);
        }
        let classes: Option<Vec<u32>> = text
            .split(',')
            .map(|class| number(class).filter(|n| (1..=CLASS_MAX).contains(n)))
            .collect();
        Some(if classes?.contains(&SLAB_CLASS) { Self::Ours } else { Self::Empty })
    }
}

fn slabs(words: &[&str]) -> &'static str {
    match words {
        ["reassign", from, to] => {
            let (Ok(from), Ok(to)) = (from.parse::<i32>(), to.parse::<i32>()) else {
                return BAD_FORMAT;
            };
            let classes = 0..=CLASS_MAX as i32;
            match () {
                () if from == to => "SAME src and dst class are identical",
                () if classes.contains(&from) && classes.contains(&to) => {
                    "NOSPARE source class has no spare pages"
                }
                () => "BADCLASS invalid src or dst class id",
            }
        }
        ["automove", "ratio", ratio] => ratio.parse::<f64>().map_or(BAD_FORMAT, |_| "OK"),
        ["automove", "freeratio", ..] => BAD_FORMAT,
        ["automove", mode] => match number(mode) {
            Some(0..=2) => "OK",
            Some(_) => UNKNOWN,
            None => BAD_FORMAT,
        },
        _ => UNKNOWN,
    }
}

fn lru(words: &[&str]) -> &'static str {
    match words {
        ["mode", "flat" | "segmented", ..] => "OK",
        ["tune", hot, warm, hot_age, warm_age, ..] => {
            let percents = (number(hot), number(warm));
            let ages = (hot_age.parse::<f64>(), warm_age.parse::<f64>());
            match (percents, ages) {
                ((Some(hot), Some(warm)), (Ok(hot_age), Ok(warm_age))) => {
                    if hot.saturating_add(warm) > LRU_PERCENT_MAX {
                        "ERROR hot and warm pcts must not exceed 80"
                    } else if hot_age <= 0.0 || warm_age <= 0.0 {
                        "ERROR hot/warm age factors must be greater than 0"
                    } else {
                        "OK"
                    }
                }
                _ => UNKNOWN,
            }
        }
        ["temp_ttl", seconds, ..] => seconds.parse::<i32>().map_or(UNKNOWN, |_| "OK"),
        _ => UNKNOWN,
    }
}
