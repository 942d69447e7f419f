//! PFDEBUG, PFSELFTEST: internals of a HyperLogLog.

use tierce_collections::hyperloglog::{self, Encoding, HyperLogLog, REGISTERS};

use super::{copy, read, refused, store};
use crate::command::{Flags, Group, KeyFlags, KeySpec};
use crate::error::CommandError;
use crate::pipeline::{Context, Defined, Done, exactly, no_arguments};
use tierce_keyspace::Event;

pub(super) static COMMANDS: &[Defined] = &[
    Defined::new("pfdebug", Group::HyperLogLog, exactly!(pfdebug))
        .flags(Flags::WRITE.with(Flags::DENYOOM).with(Flags::ADMIN).with(Flags::SYSTEM))
        .keys(&[KeySpec::at(2, KeyFlags(&["RW", "access"]))])
        .since("2.8.9", "N/A")
        .doc(
            "subcommand key",
            "Shows registers and encoding of a HyperLogLog. An internal command.",
        )
        .example(
            r#"
            > PFADD visitors Ada Grace
            (integer) 1
            > PFDEBUG ENCODING visitors
            sparse
            > PFDEBUG TODENSE visitors
            (integer) 1
            > PFDEBUG ENCODING visitors
            dense
            "#,
        ),
    Defined::new("pfselftest", Group::HyperLogLog, no_arguments!(pfselftest))
        .flags(Flags::ADMIN.with(Flags::SYSTEM))
        .since("2.8.9", "N/A")
        .doc("", "Tests HyperLogLogs. An internal command.")
        .example(
            r#"
            > PFSELFTEST
            OK
            "#,
        ),
];

fn pfdebug(ctx: &mut Context<'_, '_>, [subcommand, key]: [&[u8]; 2]) -> Done {
    const MISSING: CommandError = CommandError::new("ERR The specified key does not exist");
    const NOT_SPARSE: CommandError = CommandError::new("ERR HLL encoding is not sparse");
    let (mut db, key, reply) = ctx.open(key);
    let counter = copy(&mut db, key)?.ok_or(MISSING)?;
    match subcommand.to_ascii_lowercase().as_slice() {
        b"getreg" => {
            // As a side effect, Redis converts it to dense here.
            let mut registers = Box::new([0; REGISTERS]);
            read(&mut db, key, |bytes| hyperloglog::raise_all(bytes, &mut registers))?;
            reply.array(REGISTERS);
            registers.iter().for_each(|register| reply.int((*register).into()));
        }
        b"decode" => {
            let text = read(&mut db, key, hyperloglog::describe_sparse)?.flatten();
            reply.bulk(text.ok_or(NOT_SPARSE)?.as_bytes());
        }
        b"encoding" => reply.simple(match counter.encoding() {
            Encoding::Dense => "dense",
            Encoding::Sparse => "sparse",
        }),
        b"todense" => {
            let is_sparse = counter.encoding() == Encoding::Sparse;
            if is_sparse {
                let mut dense = counter;
                dense.make_dense().map_err(refused)?;
                store(&mut db, key, None, dense)?;
                db.event(Event::Debug, key);
            }
            reply.int(is_sparse.into());
        }
        _ => {
            let name = String::from_utf8_lossy(subcommand);
            return Err(CommandError::text(format!("ERR Unknown PFDEBUG subcommand '{name}'")));
        }
    }
    Ok(())
}

/// Checks the accuracy of estimates, and that sparse and dense counters agree.
fn pfselftest(ctx: &mut Context<'_, '_>) -> Done {
    const FAILED: CommandError = CommandError::new("ERR TESTFAILED estimates are wrong");
    const ELEMENTS: u64 = 20_000;
    /// Length at which the sparse counter becomes dense.
    const SPARSE_LEN_MAX: usize = 3000;
    /// Four times the standard error of this number of registers.
    const ERROR_MAX: f64 = 4.0 * 1.04 / 128.0;
    let (mut sparse, mut dense) = (HyperLogLog::new(), HyperLogLog::new());
    dense.make_dense().map_err(refused)?;
    for element in 1..=ELEMENTS {
        let bytes = element.to_le_bytes();
        let changed = sparse.add(&bytes, SPARSE_LEN_MAX).map_err(refused)?;
        if changed != dense.add(&bytes, SPARSE_LEN_MAX).map_err(refused)? {
            return Err(FAILED);
        }
        if element.is_power_of_two() || element == ELEMENTS {
            let estimates = [&mut sparse, &mut dense].map(HyperLogLog::count);
            let expected = element as f64;
            let is_good =
                |count: u64| (count as f64 - expected).abs() <= (ERROR_MAX * expected).ceil();
            if estimates[0] != estimates[1] || !estimates[0].is_ok_and(is_good) {
                return Err(FAILED);
            }
        }
    }
    ctx.reply.ok();
    Ok(())
}
