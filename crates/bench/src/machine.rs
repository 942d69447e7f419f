//! The machine of a measurement. Figures mean nothing without it.

use std::fs;
use std::thread;

use serde::Serialize;

/// Facts to print above a table.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Machine {
    pub(crate) processor: String,
    pub(crate) cores: usize,
    pub(crate) kernel: String,
}

impl Machine {
    /// Describes this machine. Facts that are not available are called unknown.
    pub(crate) fn this() -> Self {
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease");
        Self {
            processor: fs::read_to_string("/proc/cpuinfo")
                .ok()
                .and_then(|text| processor(&text))
                .unwrap_or_else(|| "unknown processor".into()),
            cores: thread::available_parallelism().map_or(1, usize::from),
            kernel: kernel.map_or_else(|_| "unknown".into(), |text| text.trim().to_owned()),
        }
    }

    pub(crate) fn line(&self) -> String {
        format!("{} × {}, Linux {}", self.cores, self.processor, self.kernel)
    }
}

fn processor(cpuinfo: &str) -> Option<String> {
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processor_is_named_where_the_kernel_names_it() {
        let text = "processor\t: 0\nmodel name\t: AMD EPYC\nmodel name\t: other\n";
        assert_eq!(processor(text).as_deref(), Some("AMD EPYC"));
        assert_eq!(processor("processor\t: 0\n"), None);
    }
}
