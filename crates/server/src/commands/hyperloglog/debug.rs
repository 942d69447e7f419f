//! PFDEBUG, PFSELFTEST: what a HyperLogLog looks like inside.

use tierce_collections::hyperloglog::{self, Encoding, HyperLogLog, REGISTERS};
use tierce_wire::resp::Args;

use super::{copy, look, refused, store};
use crate::command::{Flags, Group, KeyFlags, KeySpec, Spec};
use crate::error::CommandError;
use crate::execute::Context;

pub(super) static COMMANDS: &[Spec] = &[
    Spec::new("pfdebug", 3, Group::HyperLogLog, pfdebug)
        .flags(Flags::WRITE.with(Flags::DENYOOM).with(Flags::ADMIN).with(Flags::SYSTEM))
        .keys(&[KeySpec::at(2, KeyFlags(&["RW", "access"]))])
        .doc(
            "2.8.9",
            "N/A",
            "subcommand key",
            "Shows registers and encoding of a HyperLogLog. An internal command.",
        ),
    Spec::new("pfselftest", 1, Group::HyperLogLog, pfselftest)
        .flags(Flags::ADMIN.with(Flags::SYSTEM))
        .doc("2.8.9", "N/A", "", "Tests HyperLogLogs. An internal command."),
];

type Done = Result<(), CommandError>;

fn pfdebug(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    const MISSING: CommandError = CommandError::new("ERR The specified key does not exist");
    const NOT_SPARSE: CommandError = CommandError::new("ERR HLL encoding is not sparse");
    let (mut db, key, reply) = ctx.open(args.at(2));
    let counter = copy(&mut db, key)?.ok_or(MISSING)?;
    match args[1].to_ascii_lowercase().as_slice() {
        b"getreg" => {
            // Redis makes it dense on this occasion, which nobody has asked for.
            let mut registers = Box::new([0; REGISTERS]);
            look(&mut db, key, |bytes| hyperloglog::raise_all(bytes, &mut registers))?;
            reply.array(REGISTERS);
            registers.iter().for_each(|register| reply.int((*register).into()));
        }
        b"decode" => {
            let text = look(&mut db, key, hyperloglog::describe_sparse)?.flatten();
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
            }
            reply.int(is_sparse.into());
        }
        _ => {
            let name = String::from_utf8_lossy(&args[1]);
            return Err(CommandError::text(format!("ERR Unknown PFDEBUG subcommand '{name}'")));
        }
    }
    Ok(())
}

/// Whether estimates are as good as they should be, and a sparse counter sees what a dense one does.
fn pfselftest(ctx: &mut Context<'_, '_>, _: Args<'_>) -> Done {
    const FAILED: CommandError = CommandError::new("ERR TESTFAILED estimates are wrong");
    const ELEMENTS: u64 = 20_000;
    /// Where a sparse one becomes dense on the way.
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
