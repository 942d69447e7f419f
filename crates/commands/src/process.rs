//! Facts that the system knows about this process.

use std::fs;

/// CPU time used so far, in seconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuTimes {
    /// In user mode.
    pub user: f64,
    /// In the kernel on our behalf.
    pub system: f64,
}

/// CPU time of all threads since the start.
pub fn cpu_times() -> CpuTimes {
    parse_stat(&fs::read_to_string("/proc/self/stat").unwrap_or_default()).unwrap_or_default()
}

/// CPU time of the thread that the process began with.
pub fn cpu_times_of_main_thread() -> CpuTimes {
    let path = format!("/proc/self/task/{}/stat", std::process::id());
    parse_stat(&fs::read_to_string(path).unwrap_or_default()).unwrap_or_default()
}

/// Clock ticks a second in `/proc/PID/stat`; a constant of the Linux ABI.
const TICKS: f64 = 100.0;

fn parse_stat(stat: &str) -> Option<CpuTimes> {
    // The second field is the program's name in parentheses and may contain spaces.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let user = fields.next()?.parse::<f64>().ok()? / TICKS;
    let system = fields.next()?.parse::<f64>().ok()? / TICKS;
    Some(CpuTimes { user, system })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_behind_an_odd_name() {
        let stat = "7 (a b) c) S 1 7 7 0 -1 4194304 1 0 0 0 150 25 0 0 20 0 1 0";
        let times = parse_stat(stat).unwrap();
        assert!((times.user - 1.5).abs() < 1e-9 && (times.system - 0.25).abs() < 1e-9);
        assert!(parse_stat("").is_none());
    }
}
