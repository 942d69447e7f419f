//! Every command has the same effects and replies inside a guard as outside.

use tierce_harness::effort;
use tierce_wire::resp::Proto;

use super::bench::{Bench, Way};
use super::calls::{Call, Calls};
use crate::command::{Command, Flags, Scope};
use crate::commands;

/// Commands that end something, or wait for absent parties (a saver, the operator), or manage transactions, which
/// cannot be nested.
const NOT_RUN: &[&str] = &[
    "debug",
    "shutdown",
    "bgsave",
    "multi",
    "exec",
    "discard",
    "replconf",
    "replicaof",
    "slaveof",
];

/// Sequences of calls that are compared.
const SEEDS: u64 = 12;

/// Commands with random replies, or replies about the process; and MONITOR, which a transaction refuses.
const OWN_STORY: &[&str] = &[
    "info",
    "time",
    "lolwut",
    "lastsave",
    "spop",
    "srandmember",
    "hrandfield",
    "zrandmember",
    "randomkey",
    "hotkeys|get",
    "latency|histogram",
    "memory|stats",
    "memory|doctor",
    "memory|malloc-stats",
    "slowlog|get",
    "slowlog|len",
    "commandlog|get",
    "commandlog|len",
    "client|list",
    "client|info",
    "acl|genpass",
    "acl|log",
    "monitor",
];

/// Commands that are refused without a password, file of users, replicas, modules, long scripts, log or configuration
/// file, or if clients track no keys and name no subcommand. Those of CLUSTER are refused, too.
const REFUSED: &[&str] = &[
    "auth",
    "acl|load",
    "acl|save",
    "readonly",
    "readwrite",
    "asking",
    "failover",
    "client|caching",
    "config|rewrite",
    "bgrewriteaof",
    "latency|graph",
    "module|load",
    "module|loadex",
    "module|unload",
    "script|kill",
    "function|kill",
];

pub(super) fn is_run(command: &Command) -> bool {
    let spec = command.spec;
    let ends = spec.flags.contains(Flags::NO_MULTI) || NOT_RUN.contains(&spec.name);
    !spec.is_container && !ends
}

/// Returns true if the reply is random or about the process.
pub(super) fn chance_decides(call: &Call) -> bool {
    let name = String::from_utf8_lossy(&call[0]).into_owned();
    let full = call.get(1).map(|sub| format!("{name}|{}", sub.escape_ascii()));
    OWN_STORY.iter().any(|own| *own == name || Some(*own) == full.as_deref())
}

/// Checks that calls have equal results one after the other, on a thread for long commands, and inside both kinds of
/// guard.
fn compare(seed: u64, proto: Proto) -> usize {
    let table = commands::table();
    let run: Vec<_> = table.all().filter(|command| is_run(command)).collect();
    let ways = [Way::Alone, Way::Long, Way::Declared, Way::All];
    let mut benches = ways.map(|_| Bench::new(proto));
    let mut calls = Calls::new(seed, benches[0].payload("list0"));
    let mut understood = 0;
    for _ in 0..60 {
        let together: Vec<Call> = (0..1 + calls.random.below(5))
            .map(|_| {
                loop {
                    let command = run[calls.random.below(run.len())];
                    // SPOP is random, a transaction refuses SSUBSCRIBE, and a pause ends by the clock of the system.
                    if !["spop", "ssubscribe", "client|pause"].contains(&&*command.full_name) {
                        break calls.fitting(command);
                    }
                }
            })
            .collect();
        let replies: Vec<_> =
            ways.iter().zip(&mut benches).map(|(way, bench)| bench.run(*way, &together)).collect();
        for (at, reply) in replies[0].iter().enumerate() {
            if chance_decides(&together[at]) {
                continue;
            }
            understood += usize::from(!reply.is_error());
            for (other, way) in replies.iter().zip(ways).skip(1) {
                assert_eq!(reply, &other[at], "{way:?}, seed {seed}: {}", line(&together[at]));
            }
        }
    }
    let [alone, others @ ..] = benches.each_mut().map(Bench::contents);
    for (other, way) in others.iter().zip(&ways[1..]) {
        assert_eq!(alone, *other, "{way:?}, seed {seed}");
    }
    understood
}

fn words(line: &str) -> Call {
    line.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}

pub(super) fn line(call: &Call) -> String {
    call.iter().map(|word| format!("{} ", word.escape_ascii())).collect()
}

#[test]
fn commands_inside_of_a_guard_do_what_they_do_outside() {
    let mut understood = 0;
    let seeds = effort(SEEDS);
    for seed in 0..seeds {
        let proto = if seed % 2 == 0 { Proto::Resp2 } else { Proto::Resp3 };
        understood += compare(seed, proto);
    }
    assert!(understood > 30 * seeds as usize, "most calls are understood: {understood}");
}

#[test]
fn each_command_is_understood_inside_of_a_guard() {
    let table = commands::table();
    let mut refused = Vec::new();
    for command in table.all().filter(|command| is_run(command)) {
        let mut bench = Bench::new(Proto::Resp3);
        let mut calls = Calls::new(7, bench.payload("set0"));
        let ways = [Way::Declared, Way::All].into_iter().cycle().take(200);
        let mut understood = false;
        for way in ways {
            understood |= !bench.run(way, &[calls.fitting(command)])[0].is_error();
            if understood {
                break;
            }
        }
        if !understood {
            refused.push(command.full_name.clone());
        }
    }
    refused.retain(|name| !name.starts_with("cluster|") && !REFUSED.contains(&name.as_str()));
    assert_eq!(refused, [""; 0]);
}

#[test]
fn what_takes_long_holds_no_shard() {
    let table = commands::table();
    let is_long = |command: &&Command| matches!(command.spec.scope(), Scope::Unlocked);
    let mut names = Vec::new();
    for command in table.all().filter(is_long).filter(|command| is_run(command)) {
        let mut bench = Bench::new(Proto::Resp2);
        let mut calls = Calls::new(3, Vec::new());
        for _ in 0..20 {
            let call = calls.fitting(command);
            // It returns when another thread has locked each shard, while this one may continue its batch.
            bench.run_and_let_others_in(&[words("GET string0"), call]);
        }
        names.push(command.full_name.as_str());
    }
    let users = ["acl|deluser", "acl|load", "acl|save", "acl|setuser"];
    let others = ["config|set", "waitaof", "info", "failover", "wait"];
    assert_eq!(names, [&["publish", "spublish", "unwatch"][..], &users, &others].concat());
}

#[test]
fn what_needs_the_threads_of_the_server_is_refused_or_left_for_later() {
    let mut bench = Bench::new(Proto::Resp2);
    for (line, expected) in [
        ("SAVE", "Command not allowed inside a transaction"),
        ("BGSAVE", "Background saving scheduled"),
        ("WAITAOF 0 0 0", "[Int(0), Int(0)]"),
        ("CONFIG SET maxmemory-policy spill", "cannot be set within a transaction"),
        ("CONFIG SET maxmemory 100mb", "OK"),
        ("CLIENT UNBLOCK 99", "Int(0)"),
    ] {
        let replies = bench.run(Way::All, &[words("SET k v"), words(line), words("GET k")]);
        let shown = match replies[1].as_bytes() {
            Some(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            None => format!("{:?}", replies[1]),
        };
        assert!(shown.contains(expected), "{line}: {shown}");
        assert_eq!(replies[2].as_bytes(), Some(&b"v"[..]));
    }
}
