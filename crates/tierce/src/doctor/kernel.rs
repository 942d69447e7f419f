//! Checks of the kernel's settings, and of the limits of the process.

use tierce_config::{DirectiveId, Settings};

use super::finding::{Finding, bytes};
use super::machine::Machine;

/// Clocks that are read without a system call.
const FAST_CLOCKS: [&str; 5] =
    ["tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page", "riscv_clocksource"];

/// Locked memory for the queues of spilled values, on kernels that count it.
const LOCKED_BYTES: u64 = 8 << 20;

/// Returns all findings about the kernel.
pub fn findings(machine: &Machine, settings: &Settings) -> Vec<Finding> {
    let checks = [
        huge_pages(machine),
        overcommit(machine),
        swap(machine),
        clock(machine),
        backlog(machine, settings),
        descriptors(machine, settings),
        locked_memory(machine, settings),
        memory(machine, settings),
    ];
    checks.into_iter().flatten().collect()
}

/// Checks huge pages. The program disables them for itself; they matter only if that failed.
fn huge_pages(machine: &Machine) -> Option<Finding> {
    const PATH: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
    let status = machine.text("proc/self/status").unwrap_or_default();
    let is_off_here = status
        .lines()
        .any(|line| line.strip_prefix("THP_enabled:").is_some_and(|value| value.trim() == "0"));
    if is_off_here || !machine.text(PATH)?.contains("[always]") {
        return None;
    }
    Some(Finding::advice(
        "Transparent huge pages are on, and this process could not switch them off for itself.",
        "Memory grows by 2 MB at a time and goes back late, and pauses get longer.",
        format!("echo madvise | sudo tee {PATH}"),
    ))
}

fn overcommit(machine: &Machine) -> Option<Finding> {
    (machine.number("proc/sys/vm/overcommit_memory")? == 2).then(|| {
        Finding::advice(
            "The kernel does not overcommit memory (vm.overcommit_memory is 2).",
            "It refuses reservations before memory runs out, and a server that is refused memory ends.",
            "sudo sysctl -w vm.overcommit_memory=0",
        )
    })
}

fn swap(machine: &Machine) -> Option<Finding> {
    let total = machine.memory("SwapTotal").filter(|total| *total > 0)?;
    let swappiness = machine.number("proc/sys/vm/swappiness").filter(|value| *value > 10)?;
    let used = total.saturating_sub(machine.memory("SwapFree").unwrap_or(total));
    Some(Finding::advice(
        format!(
            "There are {} of swap, {} of them used, and vm.swappiness is {swappiness}.",
            bytes(total),
            bytes(used)
        ),
        "Keys that were swapped out take milliseconds to read, and others wait meanwhile.",
        "sudo sysctl -w vm.swappiness=1   (or maxmemory with maxmemory-policy spill)",
    ))
}

fn clock(machine: &Machine) -> Option<Finding> {
    const FOLDER: &str = "/sys/devices/system/clocksource/clocksource0";
    let current = machine.text(&format!("{FOLDER}/current_clocksource"))?;
    if FAST_CLOCKS.contains(&&*current) {
        return None;
    }
    let available = machine.text(&format!("{FOLDER}/available_clocksource")).unwrap_or_default();
    let fast = FAST_CLOCKS.iter().find(|fast| available.split(' ').any(|name| name == **fast));
    Some(Finding::advice(
        format!("The clock source is {current}."),
        "Each request reads the clock, and with this one that is a system call.",
        match fast {
            Some(fast) => format!("echo {fast} | sudo tee {FOLDER}/current_clocksource"),
            None => {
                "check the settings of the hypervisor or the firmware: no fast clock is offered"
                    .into()
            }
        },
    ))
}

fn backlog(machine: &Machine, settings: &Settings) -> Option<Finding> {
    const BACKLOG: DirectiveId = DirectiveId::of("tcp-backlog");
    let (wanted, max) = (settings.count(BACKLOG), machine.number("proc/sys/net/core/somaxconn")?);
    (max < wanted).then(|| {
        Finding::advice(
            format!(
                "tcp-backlog is {wanted}, and the kernel cuts it to {max} (net.core.somaxconn)."
            ),
            "Connections that arrive at once are dropped and repeated after a second.",
            format!("sudo sysctl -w net.core.somaxconn={wanted}"),
        )
    })
}

fn descriptors(machine: &Machine, settings: &Settings) -> Option<Finding> {
    const MAXCLIENTS: DirectiveId = DirectiveId::of("maxclients");
    let (needed, limit) =
        (tierce_server::descriptors_needed(settings), machine.hard_limit("Max open files")?);
    (limit < needed).then(|| {
        let clients = settings.count(MAXCLIENTS);
        Finding::serious(
            format!("The limit of open files is {limit}; maxclients {clients} needs {needed}."),
            "The server serves fewer clients than configured, and refuses the others.",
            format!(
                "ulimit -Hn {needed}, or LimitNOFILE={needed} in the unit, or a lower maxclients"
            ),
        )
    })
}

/// Checks the limit of locked memory. Before Linux 5.12, the queues of io_uring count as locked
/// memory.
fn locked_memory(machine: &Machine, settings: &Settings) -> Option<Finding> {
    const POLICY: DirectiveId = DirectiveId::of("maxmemory-policy");
    let release = machine.text("proc/sys/kernel/osrelease")?;
    let mut parts = release.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    let version = (parts.next()?.ok()?, parts.next()?.ok()?);
    let limit = machine.hard_limit("Max locked memory")?;
    let counts = settings.word(POLICY) == "spill" && version < (5, 12);
    (counts && limit < LOCKED_BYTES).then(|| {
        Finding::advice(
            format!("The limit of locked memory is {}, on Linux {release}.", bytes(limit)),
            "Spilled values are read by threads instead of io_uring, which is slower.",
            "ulimit -l 8192, or LimitMEMLOCK=8M in the unit",
        )
    })
}

/// Checks `maxmemory` against the machine's memory, or the limit of a container.
fn memory(machine: &Machine, settings: &Settings) -> Option<Finding> {
    const MAXMEMORY: DirectiveId = DirectiveId::of("maxmemory");
    let group = machine.memory_limit();
    let (there, whose) = match (group, machine.memory("MemTotal")?) {
        (Some(limit), total) if limit < total => (limit, "the limit of the control group"),
        (_, total) => (total, "the memory of this machine"),
    };
    let maxmemory = settings.bytes(MAXMEMORY);
    let suggested = bytes_of_directive(there / 4 * 3);
    if maxmemory > there {
        return Some(Finding::serious(
            format!("maxmemory is {}, more than {whose}, {}.", bytes(maxmemory), bytes(there)),
            "The kernel kills the server before the limit is reached.",
            format!("maxmemory {suggested}"),
        ));
    }
    if maxmemory > there / 10 * 9 {
        return Some(Finding::advice(
            format!("maxmemory is {} of {whose}, {}.", bytes(maxmemory), bytes(there)),
            "Clients, the log and the system need memory in addition to the keys.",
            format!("maxmemory {suggested}"),
        ));
    }
    (maxmemory == 0 && group.is_some_and(|limit| limit == there)).then(|| {
        Finding::advice(
            format!("There is no maxmemory, and {whose} is {}.", bytes(there)),
            "The kernel kills a server that reaches the limit; with maxmemory, it evicts, spills or refuses writes.",
            format!("maxmemory {suggested}"),
        )
    })
}

fn bytes_of_directive(count: u64) -> String {
    format!("{}mb", count >> 20)
}
