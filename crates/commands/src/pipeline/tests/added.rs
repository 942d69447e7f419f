//! A command that is added while the server runs is executed, listed and counted like any other.

use tierce_wire::resp::{Proto, Value};

use super::bench::{Bench, Way};
use crate::command::{Flags, Group, KeyFlags, KeySpec};
use crate::error::CommandError;
use crate::pipeline::{Context, Defined, Done, exactly};

static OWN: Defined = Defined::new("own.set", Group::String, exactly!(set))
    .flags(Flags::WRITE.with(Flags::DENYOOM))
    .keys(&[KeySpec::at(1, KeyFlags::OVERWRITE)])
    .since("1.0.0", "O(1)")
    .doc("key value", "Sets a key, but to nothing bad.");

fn set(ctx: &mut Context<'_, '_>, [key, value]: [&[u8]; 2]) -> Done {
    if value == b"bad" {
        return Err(CommandError::SYNTAX);
    }
    let (mut db, key, reply) = ctx.open(key);
    db.set(key, value, tierce_keyspace::Expiry::Never)?;
    db.event(tierce_keyspace::Event::Set, key);
    reply.ok();
    Ok(())
}

fn ask(bench: &mut Bench, line: &str) -> Value {
    let call = line.split(' ').map(|word| word.as_bytes().to_vec()).collect();
    bench.run(Way::Alone, &[call]).remove(0)
}

fn names(bench: &mut Bench) -> Vec<Vec<u8>> {
    let list = ask(bench, "COMMAND LIST");
    let names = list.as_values().expect("an array").iter();
    names.map(|name| name.as_bytes().expect("a name").to_vec()).collect()
}

#[test]
fn an_added_command_is_run_listed_and_counted() {
    let mut bench = Bench::new(Proto::Resp2);
    let docs = ask(&mut bench, "COMMAND DOCS own.set");
    let before = names(&mut bench);
    OWN.add_to(&bench.kernel.commands).expect("the name is free");
    assert!(!ask(&mut bench, "OWN.SET k v").is_error());
    assert_eq!(ask(&mut bench, "GET k").as_bytes(), Some(&b"v"[..]));
    assert!(ask(&mut bench, "own.set k bad").is_error());
    let after = names(&mut bench);
    assert!(after.contains(&b"own.set".to_vec()) && after.len() == before.len() + 1);
    assert_ne!(ask(&mut bench, "COMMAND DOCS own.set"), docs);
    let info = ask(&mut bench, "COMMAND INFO own.set");
    assert!(info.as_values().is_some_and(|found| found[0].as_values().is_some()));
    let stats = ask(&mut bench, "INFO commandstats");
    let stats = String::from_utf8_lossy(stats.as_bytes().expect("a text")).into_owned();
    assert!(stats.contains("cmdstat_own.set:"), "{stats}");
    assert!(bench.kernel.commands.remove("own.set"));
    assert_eq!(names(&mut bench), before);
    assert_eq!(ask(&mut bench, "COMMAND DOCS own.set"), docs);
}
