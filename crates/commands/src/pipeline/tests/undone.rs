//! Every command can be rolled back, as if it had never run.

use tierce_harness::effort;
use tierce_wire::resp::Proto;

use super::bench::{Bench, Way};
use super::calls::{Call, Calls};
use super::within::{chance_decides, is_run, line};
use crate::command::{Command, Flags};
use crate::commands;

const SEEDS: u64 = 25;

/// Returns true for commands on keys, and not on sessions or the server.
fn works_on_keys(command: &Command) -> bool {
    let flags = command.spec.flags;
    is_run(command) && (flags.contains(Flags::WRITE) || flags.contains(Flags::READONLY))
}

/// Compares two benches: one also runs calls that are rolled back. All else is the same, and so are the results.
fn compare(seed: u64, proto: Proto) -> usize {
    let table = commands::table();
    let run: Vec<_> = table.all().filter(|command| works_on_keys(command)).collect();
    let mut benches = [(); 2].map(|()| Bench::new(proto));
    let mut calls = Calls::new(seed, Bench::new(proto).payload("list0"));
    let mut taken_back = 0;
    for _ in 0..30 {
        let mut some = |most: usize| -> Vec<Call> {
            let count = calls.random.below(most);
            let mut next = || {
                loop {
                    let command = run[calls.random.below(run.len())];
                    // Its random effect differs each time.
                    if command.full_name != "spop" {
                        return calls.fitting(command);
                    }
                }
            };
            (0..count).map(|_| next()).collect()
        };
        let [before, undone, after] = [some(3), some(9), some(4)];
        let [undoing, plain] = &mut benches;
        let (figures, memory) = (undoing.kernel.keyspace.stats(), undoing.kernel.keyspace.memory());
        let replies = undoing.run_and_take_back(&before, &undone, &after);
        let kept = [before, after].concat();
        if kept.is_empty() {
            assert_eq!(undoing.kernel.keyspace.stats(), figures, "seed {seed}");
            let entries = undoing.kernel.keyspace.memory().entries;
            assert!(entries <= memory.entries + 4096, "seed {seed}: large strings keep some room");
        }
        taken_back += undone.len();
        let expected = plain.run(Way::All, &kept);
        for (at, (reply, expected)) in replies.iter().zip(&expected).enumerate() {
            if !chance_decides(&kept[at]) {
                let undone: String = undone.iter().map(|call| line(call) + "; ").collect();
                let call = line(&kept[at]);
                assert_eq!(reply, expected, "seed {seed}: {call} without {undone}");
            }
        }
        assert_eq!(undoing.contents(), plain.contents(), "seed {seed}: {undone:?}");
        let [undoing, plain] = benches.each_ref().map(|bench| bench.kernel.keyspace.stats());
        let lines = |calls: &[Call]| calls.iter().map(|call| line(call) + "; ").collect::<String>();
        let [kept, undone] = [&kept, &undone].map(|calls| lines(calls));
        assert_eq!(undoing, plain, "seed {seed}: {kept} without {undone}");
    }
    taken_back
}

#[test]
fn commands_are_taken_back_as_if_they_had_never_run() {
    let mut taken_back = 0;
    let seeds = effort(SEEDS);
    for seed in 0..seeds {
        let proto = if seed % 2 == 0 { Proto::Resp2 } else { Proto::Resp3 };
        taken_back += compare(seed, proto);
    }
    assert!(taken_back > 60 * seeds as usize, "{taken_back} calls");
}

#[test]
fn each_command_is_taken_back() {
    let table = commands::table();
    for command in table.all().filter(|command| works_on_keys(command)) {
        let mut bench = Bench::new(Proto::Resp3);
        let mut calls = Calls::new(11, bench.payload("set0"));
        let before = (bench.contents(), bench.kernel.keyspace.stats());
        let undone: Vec<Call> = (0..60).map(|_| calls.fitting(command)).collect();
        bench.run_and_take_back(&[], &undone, &[]);
        let stats = bench.kernel.keyspace.stats();
        assert_eq!(stats, before.1, "{}", command.full_name);
        assert_eq!(bench.contents(), before.0, "{}", command.full_name);
        bench.check_memory(&command.full_name);
    }
}
