//! Tests of each finding, present and absent, on machines that are directories.

use std::ffi::OsString;
use std::fs;

use tierce_config::{Invocation, Loaded, Settings};
use tierce_harness::TempDir;

use super::finding::Gravity::{self, Advice, Serious};
use super::machine::Machine;
use super::*;

/// Files of a healthy machine, below its root.
const HEALTHY: &[(&str, &str)] = &[
    ("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n"),
    ("proc/self/status", "Name:\ttierce\nTHP_enabled:\t1\n"),
    ("proc/sys/vm/overcommit_memory", "0\n"),
    ("proc/sys/vm/swappiness", "60\n"),
    (
        "proc/meminfo",
        "MemTotal:       8388608 kB\nSwapTotal:            0 kB\nSwapFree:             0 kB\n",
    ),
    ("sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc\n"),
    ("sys/devices/system/clocksource/clocksource0/available_clocksource", "tsc hpet acpi_pm\n"),
    ("proc/sys/net/core/somaxconn", "4096\n"),
    ("proc/sys/kernel/osrelease", "5.10.0-8-amd64\n"),
    (
        "proc/self/limits",
        "Limit                     Soft Limit           Hard Limit           Units\n\
         Max locked memory         65536                67108864             bytes\n\
         Max open files            1024                 524288               files\n",
    ),
    ("proc/self/cgroup", "0::/system.slice/tierce.service\n"),
    ("sys/fs/cgroup/system.slice/tierce.service/memory.max", "max\n"),
    ("proc/self/mountinfo", "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n"),
    ("proc/locks", ""),
];

fn loaded(line: &str) -> Loaded {
    let words = line.split_whitespace().map(OsString::from);
    match tierce_config::parse(words, [], &[]).expect("valid") {
        Invocation::Serve(sources) => sources.load(&mut std::io::empty()).expect("valid"),
        other => panic!("{other:?}"),
    }
}

pub(super) fn settings(line: &str) -> Settings {
    loaded(line).settings
}

struct World {
    root: TempDir,
    data: TempDir,
}

impl World {
    fn new(changes: &[(&str, &str)]) -> Self {
        let root = TempDir::new();
        for (path, text) in HEALTHY.iter().chain(changes) {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            fs::write(path, text).expect("written");
        }
        Self { root, data: TempDir::new() }
    }

    /// Returns the findings, except those that depend on the disk of this test.
    fn findings(&self, line: &str) -> Vec<Finding> {
        let line = format!("--dir {} --appendonly no {line}", self.data.path().display());
        examine(&Machine::at(self.root.path()), &loaded(&line), 0).0
    }
}

/// Checks that there is one finding of this gravity with these words; the healthy machine has none.
#[track_caller]
fn check(changes: &[(&str, &str)], line: &str, gravity: Gravity, words: &str) {
    let findings = World::new(changes).findings(line);
    let [finding] = &findings[..] else { panic!("{findings:?}") };
    assert_eq!(finding.gravity, gravity, "{finding}");
    assert!(finding.to_string().contains(words), "{finding}");
}

#[track_caller]
fn check_fine(changes: &[(&str, &str)], line: &str) {
    let findings = World::new(changes).findings(line);
    assert!(findings.is_empty(), "{findings:?}");
}

#[test]
fn a_healthy_machine_has_no_findings() {
    check_fine(&[], "");
    check_fine(&[], "--maxmemory 4gb --maxmemory-policy spill --tcp-backlog 4096");
}

#[test]
fn a_machine_that_says_nothing_has_no_findings() {
    let (root, data) = (TempDir::new(), TempDir::new());
    let line = format!("--dir {} --appendonly no", data.path().display());
    assert_eq!(examine(&Machine::at(root.path()), &loaded(&line), 0).0, []);
}

#[test]
fn huge_pages_matter_unless_they_are_off_for_this_process() {
    let always = ("sys/kernel/mm/transparent_hugepage/enabled", "[always] madvise never");
    check(&[always], "", Advice, "echo madvise | sudo tee /sys/kernel/mm");
    check_fine(&[always, ("proc/self/status", "THP_enabled:\t0\n")], "");
}

#[test]
fn the_kernel_may_refuse_memory() {
    check(&[("proc/sys/vm/overcommit_memory", "2")], "", Advice, "vm.overcommit_memory=0");
    check_fine(&[("proc/sys/vm/overcommit_memory", "1")], "");
}

#[test]
fn swap_that_is_used_eagerly() {
    let memory =
        ("proc/meminfo", "MemTotal: 8388608 kB\nSwapTotal: 2097152 kB\nSwapFree: 1048576 kB\n");
    check(&[memory], "", Advice, "2.0 GB of swap, 1.0 GB of them used");
    check_fine(&[memory, ("proc/sys/vm/swappiness", "1")], "");
}

#[test]
fn slow_clocks() {
    const CURRENT: &str = "sys/devices/system/clocksource/clocksource0/current_clocksource";
    const AVAILABLE: &str = "sys/devices/system/clocksource/clocksource0/available_clocksource";
    check(&[(CURRENT, "hpet")], "", Advice, "echo tsc | sudo tee");
    check(&[(CURRENT, "xen"), (AVAILABLE, "xen")], "", Advice, "no fast clock is offered");
    for fine in ["kvm-clock", "arch_sys_counter"] {
        check_fine(&[(CURRENT, fine)], "");
    }
}

#[test]
fn a_backlog_that_the_kernel_cuts() {
    check(&[("proc/sys/net/core/somaxconn", "128")], "", Advice, "net.core.somaxconn=511");
    check_fine(&[("proc/sys/net/core/somaxconn", "128")], "--tcp-backlog 128");
}

#[test]
fn too_few_descriptors_for_maxclients() {
    let limits = |hard: &str| format!("Max open files            256   {hard}   files\n");
    let few = limits("1024");
    check(&[("proc/self/limits", &few)], "", Serious, "maxclients 10000 needs");
    check_fine(&[("proc/self/limits", &few)], "--maxclients 500 --threads 2");
    check_fine(&[("proc/self/limits", &limits("unlimited"))], "");
}

#[test]
fn locked_memory_matters_to_spilling_on_old_kernels() {
    let limits = "Max locked memory         65536   65536   bytes\n\
                  Max open files            1024   524288   files\n";
    let spill = "--maxmemory 1gb --maxmemory-policy spill";
    check(&[("proc/self/limits", limits)], spill, Advice, "64 KB, on Linux 5.10.0");
    check_fine(&[("proc/self/limits", limits)], "");
    check_fine(&[("proc/self/limits", limits), ("proc/sys/kernel/osrelease", "6.1.0")], spill);
}

#[test]
fn memory_that_is_not_there() {
    check(&[], "--maxmemory 9gb", Serious, "more than the memory of this machine, 8.0 GB");
    check(&[], "--maxmemory 7900mb", Advice, "maxmemory 6144mb");
}

#[test]
fn limits_of_containers_count() {
    let own = ("sys/fs/cgroup/system.slice/tierce.service/memory.max", "1073741824");
    check(
        &[own],
        "",
        Advice,
        "There is no maxmemory, and the limit of the control group is 1.0 GB",
    );
    check(&[own], "--maxmemory 2gb", Serious, "the limit of the control group, 1.0 GB");
    check_fine(&[own], "--maxmemory 700mb");
    let above = ("sys/fs/cgroup/system.slice/memory.max", "1073741824");
    check(&[above], "--maxmemory 2gb", Serious, "the limit of the control group");
    let first = [
        ("proc/self/cgroup", "9:cpu,memory:/box\n0::/\n"),
        ("sys/fs/cgroup/memory/box/memory.limit_in_bytes", "1073741824"),
    ];
    check(&first, "--maxmemory 2gb", Serious, "the limit of the control group");
    let none = ("sys/fs/cgroup/memory/box/memory.limit_in_bytes", "9223372036854771712");
    check_fine(&[first[0], none], "");
}

#[test]
fn file_systems_that_keep_nothing() {
    let on = |kind: &str| {
        let world = World::new(&[]);
        // The longest matching mount point wins, whatever the order.
        let data = fs::canonicalize(world.data.path()).expect("there");
        let text = format!(
            "2 1 0:5 / {} rw shared:1 - {kind} x rw\n1 0 8:1 / / rw - ext4 /dev/sda1 rw\n",
            data.display()
        );
        fs::write(world.root.path().join("proc/self/mountinfo"), text).expect("written");
        world
            .findings("")
            .into_iter()
            .map(|finding| (finding.gravity, finding.what))
            .collect::<Vec<_>>()
    };
    for kind in ["tmpfs", "overlay", "nfs4", "fuse.sshfs"] {
        let findings = on(kind);
        assert!(
            matches!(&findings[..], [(Serious, what)] if what.ends_with(&format!("is on {kind}."))),
            "{findings:?}"
        );
    }
    for kind in ["ext4", "xfs", "btrfs"] {
        assert_eq!(on(kind), []);
    }
}

#[test]
fn a_log_that_is_not_loaded() {
    let world = World::new(&[]);
    world.data.write("wal/MANIFEST", "");
    let findings = world.findings("");
    let [finding] = &findings[..] else { panic!("{findings:?}") };
    assert_eq!(finding.gravity, Serious);
    assert!(finding.to_string().contains("there is a log in"), "{finding}");
}

#[test]
fn directives_without_effect_are_advice() {
    check(&[], "--io-threads 4", Advice, "accepted without effect");
}

#[test]
fn a_disk_in_use_is_not_measured() {
    use std::os::unix::fs::MetadataExt;
    let world = World::new(&[]);
    let log = world.data.path().join("log");
    fs::create_dir(&log).expect("made");
    fs::write(log.join("LOCK"), "").expect("written");
    let inode = fs::metadata(log.join("LOCK")).expect("there").ino();
    let measured = || {
        let settings = settings(&format!("--dir {}", world.data.path().display()));
        storage::look_at(&Machine::at(world.root.path()), &settings).measured.expect("a line")
    };
    assert!(measured().contains("syncs a second"), "{}", measured());
    let lock = format!("1: FLOCK  ADVISORY  WRITE 4711 08:01:{inode} 0 EOF\n");
    fs::write(world.root.path().join("proc/locks"), lock).expect("written");
    assert!(measured().contains("was not measured"), "{}", measured());
}

#[test]
fn the_serious_ones_come_first_and_are_counted() {
    let world = World::new(&[("proc/sys/vm/overcommit_memory", "2")]);
    let findings = world.findings("--maxmemory 9gb");
    let text = report(&findings, Some("100 syncs a second"));
    let (serious, advice) = (text.find("SERIOUS").expect("one"), text.find("advice").expect("one"));
    assert!(serious < advice, "{text}");
    assert!(
        text.ends_with(&format!(
            "measured: 100 syncs a second\n{CHECKED}\n1 serious finding, 1 piece of advice\n"
        )),
        "{text}"
    );
    assert_eq!(report(&[], None), format!("{CHECKED}\nnothing is wrong\n"));
}
