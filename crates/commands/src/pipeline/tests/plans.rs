//! A plan does not depend on the plans before it.

use tierce_wire::resp::Proto;

use super::bench::{Bench, owned};
use crate::pipeline::plan::{Plan, Planned};

#[test]
fn what_was_planned_before_changes_nothing() {
    let bench = Bench::new(Proto::Resp2);
    let kernel = &bench.kernel;
    let calls = [
        // Several of these share a cache slot.
        "SET k v",
        "LRANGE k 0 1",
        "SADD k v",
        "GET k",
        "get k",
        "GET k k",
        "GET",
        "DEL k",
        "DEL k k",
        "CLIENT LIST",
        "G k",
        "NOSUCHCOMMAND k",
        "NOSUCHCOMMANDNAME k",
        "",
    ];
    let calls = calls.map(|call| {
        owned(&call.split(' ').map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>())
    });
    let plan = |plan: &mut Plan, call| -> Planned { plan.plan_one(kernel, call) };
    for before in &calls {
        for call in &calls {
            let mut used = Plan::default();
            plan(&mut used, before.as_args());
            let fresh = plan(&mut Plan::default(), call.as_args());
            assert_eq!(plan(&mut used, call.as_args()), fresh, "{call:?} behind {before:?}");
        }
    }
}
