//! Machines reuse the tables `KEYS` and `ARGV`: no script finds data of another one in them.

use crate::harness::{Commands, TestMachine};
use proptest::prelude::*;
use tierce_harness::effort;
use tierce_lua::{Call, Script};

fn run(machine: &mut TestMachine, source: &str, keys: &[&[u8]], args: &[&[u8]]) -> String {
    let mut host = Commands { looks_left: 1000, ..Commands::default() };
    let script = Script::parse(source.as_bytes()).expect("a script");
    machine.reply.clear();
    let call = Call { keys, args, proto: machine.proto };
    let outcome = machine.machine.run(&script, &call, &mut host, &mut machine.reply);
    machine.seen(outcome)
}

/// Lists the content of a script's tables: all pairs in an order that depends on nothing else, lengths and metatables.
const LIST: &str = "local found = {} \
    for name, list in pairs({KEYS = KEYS, ARGV = ARGV}) do \
        found[#found + 1] = name .. '#' .. #list .. tostring(getmetatable(list)) \
        for key, value in pairs(list) do \
            found[#found + 1] = name .. type(key) .. tostring(key) .. '=' .. tostring(value) \
        end \
    end \
    table.sort(found) return found";

fn changes() -> impl Strategy<Value = String> {
    let key = prop_oneof![
        4 => (0..40i32).prop_map(|place| place.to_string()),
        4 => (0..40u32).prop_map(|name| format!("'k{name}'")),
        1 => Just("'1'".to_owned()),
        1 => Just("-1".to_owned()),
        1 => Just("0.5".to_owned()),
        1 => Just("true".to_owned()),
        1 => Just("{}".to_owned()),
    ];
    let value = prop_oneof![Just("1"), Just("nil"), Just("nil")];
    let table = prop_oneof![Just("KEYS"), Just("ARGV")];
    let change = prop_oneof![
        40 => (table.clone(), key, value).prop_map(|(table, key, value)| format!("{table}[{key}] = {value} ")),
        2 => (table.clone(), 1..40u32).prop_map(|(table, n)| format!("for i = 1, {n} do {table}['d' .. i] = 1 end ")),
        2 => (table.clone(), 1..40u32).prop_map(|(table, n)| format!("for i = 1, {n} do {table}['d' .. i] = nil end ")),
        2 => (table.clone(), 1..40u32).prop_map(|(table, n)| format!("for i = {n}, 1, -1 do {table}[i] = 1 end ")),
        2 => table.clone().prop_map(|table| format!("for i = 1, 40 do {table}[i] = nil end ")),
        1 => table.prop_map(|table| format!("setmetatable({table}, {{__index = KEYS}}) ")),
        1 => Just("if true then error('x') end ".to_owned()),
    ];
    proptest::collection::vec(change, 0..30).prop_map(|changes| changes.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(effort(256)))]

    #[test]
    fn nothing_of_a_script_is_seen_by_the_next(
        scripts in proptest::collection::vec((changes(), 0..5usize, 0..5usize), 1..6)
    ) {
        let texts: [&[u8]; 5] = [b"a", b"b", b"c", b"d", b"e"];
        let mut machine = TestMachine::new();
        for (source, keys, args) in scripts {
            run(&mut machine, &source, &texts[..keys], &texts[..args]);
            for (keys, args) in [(keys, args), (args, keys), (2, 0), (0, 2)] {
                let found = run(&mut machine, LIST, &texts[..keys], &texts[..args]);
                let expected = run(&mut TestMachine::new(), LIST, &texts[..keys], &texts[..args]);
                prop_assert_eq!(found, expected, "after {}", source);
                run(&mut machine, &source, &texts[..args], &texts[..keys]);
            }
        }
    }
}

/// A field among others that were removed may be after the last element in one table, and before it in another.
#[test]
fn fields_are_not_seen_wherever_the_table_keeps_them() {
    let mut machine = TestMachine::new();
    for number in 0..64 {
        let change = format!(
            "for i = 1, 8 do KEYS['d' .. i] = 1 end KEYS['f{number}'] = 1 for i = 1, 8 do KEYS['d' .. i] = nil end"
        );
        run(&mut machine, &change, &[b"x"], &[]);
        let list = format!("return {{tostring(KEYS.f{number})}}");
        assert_eq!(run(&mut machine, &list, &[b"a", b"b"], &[]), "*1\r\n$3\r\nnil\r\n", "{number}");
    }
}

/// Changes that a script made to its tables end after some more scripts.
#[test]
fn tables_that_have_grown_do_not_stay() {
    let mut machine = TestMachine::new();
    let used = |machine: &TestMachine| machine.machine.used_bytes();
    run(&mut machine, "return 1", &[], &[]);
    let before = used(&machine);
    let grow = "for i = 1, 1e5 do KEYS[i] = i end for i = 1, 1e5 do KEYS[i] = nil end";
    run(&mut machine, grow, &[], &[]);
    assert!(used(&machine) > before + (1 << 20));
    for _ in 0..64 {
        run(&mut machine, "return 1", &[], &[]);
    }
    run(&mut machine, "collectgarbage()", &[], &[]);
    assert!(used(&machine) < before + (1 << 18), "{}", used(&machine));
}
