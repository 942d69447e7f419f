//! Requests of a batch whose admission changes between the check and the request.

use std::sync::mpsc;
use std::thread;

use tierce_wire::resp::{Proto, Value};

use super::bench::{Bench, NOW_MS, Way, owned};
use super::calls::Call;
use crate::command::Access;
use crate::error::Interrupt;
use crate::fault::Fault;
use crate::kernel::Kernel;
use crate::pipeline;
use crate::pipeline::admission::{Admission, Barred};
use crate::replica_level::ReplicaLevel;
use crate::replication::failover::Plan;
use crate::replication::role::Address;
use crate::shutdown::Shutdown;

/// Returns the decision about a RESP call.
fn check(bench: &mut Bench, admission: &Admission, line: &str) -> String {
    let Bench { kernel, caller, .. } = bench;
    let call: Call = line.split(' ').map(|word| word.as_bytes().to_vec()).collect();
    let args = owned(&call);
    let command = pipeline::resolve(kernel, args.as_args()).ok().expect("a command");
    let mut locks = kernel.keyspace.locks();
    match admission.check(kernel, caller, &mut locks, command, args.as_args()) {
        Ok(()) => "runs".to_owned(),
        Err(Barred::Held(_)) => "waits".to_owned(),
        Err(Barred::Refused(refused)) => refused.error.as_str().to_owned(),
    }
}

/// Returns the decision about a write of another protocol.
fn admit(kernel: &Kernel, admission: &Admission) -> Result<(), Option<Fault>> {
    let admitted = admission.admit(kernel, &mut kernel.keyspace.locks(), Access::CHANGE, || false);
    admitted.map_err(|barred| match barred {
        Barred::Held(_) => None,
        Barred::Refused(fault) => Some(fault),
    })
}

/// The other server has all writes by then, and this one would differ from it for ever.
#[test]
fn what_a_failover_has_held_back_does_not_run_at_its_end() {
    const READ_ONLY: &str = "READONLY You can't write against a read only replica.";
    for is_done in [true, false] {
        let mut bench = Bench::new(Proto::Resp2);
        let kernel = &bench.kernel;
        kernel.role.set_serves_stale(true);
        let plan = Plan { target: None, until_ms: None, is_forced: false, leaves_bucket: false };
        assert!(kernel.begin_failover(plan));
        assert!(kernel.hand_over(1, &Address { host: b"h".to_vec(), port: 1 }, || true));
        let admission = Admission::read(kernel, &mut bench.caller, NOW_MS);
        let admission_of_others = Admission::read_for_all(kernel, NOW_MS);
        match is_done {
            true => kernel.failover_is_done(kernel.role.following().expect("the other").number),
            false => assert!(kernel.abort_failover("a test")),
        }
        assert!(!kernel.failover.is_on() && !kernel.pause.is_on(NOW_MS));
        assert_eq!(admit(kernel, &admission_of_others), Err(None));
        let writes = [
            "SET k v",
            "PFDEBUG GETREG counter0",
            "EVAL return 0",
            "PUBLISH c m",
            "DEBUG POPULATE 1",
            "debug reload",
        ];
        for line in writes {
            assert_eq!(check(&mut bench, &admission, line), "waits", "{line}");
        }
        assert_eq!(check(&mut bench, &admission, "GET string0"), "runs");
        let verdict = if is_done { READ_ONLY } else { "runs" };
        let admission = Admission::read(&bench.kernel, &mut bench.caller, NOW_MS);
        for line in ["SET k v", "DEBUG POPULATE 1", "DEBUG RELOAD"] {
            assert_eq!(check(&mut bench, &admission, line), verdict, "{line}");
        }
        let admission = Admission::read_for_all(&bench.kernel, NOW_MS);
        let verdict = if is_done { Err(Some(Fault::ReadOnly)) } else { Ok(()) };
        assert_eq!(admit(&bench.kernel, &admission), verdict);
    }
}

/// They run for long, while the role may change or a pause may begin.
#[test]
fn subcommands_of_debug_that_change_keys_are_judged_again() {
    const READ_ONLY: &str = "READONLY You can't write against a read only replica.";
    let words = |line: &str| line.split(' ').map(|word| word.as_bytes().to_vec()).collect::<Call>();
    let mut bench = Bench::with(Proto::Resp2, "enable-debug-command yes");
    let changes = bench.changes();
    bench.kernel.pause.hold();
    let interrupt = bench.with_long(&words("DEBUG POPULATE 1"), |ctx| ctx.run());
    assert_eq!((interrupt, bench.changes()), (Some(Interrupt::Admission), changes));
    bench.kernel.role.follow(Some(Address { host: b"h".to_vec(), port: 1 }), NOW_MS);
    for line in ["DEBUG POPULATE 1", "DEBUG RELOAD NOSAVE"] {
        let replies = bench.run(Way::Long, &[words(line)]);
        assert_eq!(replies, [Value::Error(READ_ONLY.into())], "{line}");
    }
    assert_eq!(bench.changes(), changes);
}

/// Another server may already own the log in the bucket.
#[test]
fn a_failover_to_the_bucket_is_not_undone_behind_the_handover() {
    let Bench { kernel, .. } = &Bench::new(Proto::Resp2);
    let plan = Plan { target: None, until_ms: None, is_forced: false, leaves_bucket: true };
    assert!(kernel.begin_failover(plan));
    assert!(kernel.failover.hand_over(1));
    kernel.shutdown().ask(Shutdown::HandsOver);
    assert!(!kernel.abort_failover("a test"));
    assert!(kernel.failover.is_on() && kernel.pause.is_on(NOW_MS));
}

/// Nothing may change before the end of a server, whatever happens to a failover.
#[test]
fn a_failover_that_is_given_up_during_a_shutdown_lets_nothing_expire() {
    for hands_over in [false, true] {
        let Bench { kernel, .. } = &Bench::new(Proto::Resp2);
        let plan = Plan { target: None, until_ms: None, is_forced: false, leaves_bucket: false };
        assert!(kernel.begin_failover(plan));
        kernel.keyspace.set_following(true);
        kernel.shutdown().await_replicas(Some(NOW_MS));
        if hands_over {
            assert!(kernel.hand_over(1, &Address { host: b"h".to_vec(), port: 1 }, || true));
        }
        assert!(kernel.abort_failover("a test"));
        assert!(kernel.keyspace.is_following(), "{hands_over}");
        kernel.shutdown().await_replicas(None);
        kernel.settle_expiry();
        assert!(kernel.keyspace.is_following(), "it ends");
        kernel.shutdown().cancel();
        kernel.settle_expiry();
        assert!(!kernel.keyspace.is_following());
    }
}

/// A replica has no stream of its own, and its clients must go to the primary.
#[test]
fn at_the_end_of_a_failover_writes_are_refused_for_the_role() {
    const ROUNDS: usize = 20_000;
    let Bench { kernel, .. } = &Bench::new(Proto::Resp2);
    kernel.role.set_serves_stale(true);
    let level = Some(ReplicaLevel { replicas: 1, is_logged: false });
    let plan = Plan { target: None, until_ms: None, is_forced: false, leaves_bucket: false };
    let target = Address { host: b"h".to_vec(), port: 1 };
    thread::scope(|scope| {
        // If one of the threads panics, its channel ends are dropped, and the other one does not
        // wait for it.
        let (rounds, begun) = mpsc::channel();
        let (told, tells) = mpsc::channel();
        let looks = scope.spawn(move || {
            let mut faults = Vec::new();
            for () in begun {
                let _ = told.send("it looks");
                loop {
                    faults.extend(kernel.fault_of_writes(level));
                    if !kernel.failover.is_on() {
                        break;
                    }
                }
                let _ = told.send("it has looked");
            }
            faults
        });
        for number in 1..=ROUNDS as u64 {
            assert!(kernel.begin_failover(plan.clone()));
            assert!(kernel.hand_over(number, &target, || true));
            let link = kernel.role.following().expect("the target").number;
            rounds.send(()).expect("the other thread");
            assert_eq!(tells.recv(), Ok("it looks"));
            kernel.failover_is_done(link);
            assert_eq!(tells.recv(), Ok("it has looked"));
            kernel.role.follow(None, NOW_MS);
        }
        drop(rounds);
        let faults = looks.join().expect("the other thread");
        assert!(!faults.is_empty());
        assert!(faults.iter().all(|fault| *fault == Fault::ReadOnly), "NOREPLICAS");
    });
}
