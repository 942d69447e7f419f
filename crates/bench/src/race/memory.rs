//! Memory of this process, as the kernel accounts for it.

use std::fs;

/// Values of `/proc/self/status`, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
pub(super) struct Memory {
    /// Peak of resident memory of all kinds.
    pub(super) peak: u64,
    /// Resident private memory: heap and stacks.
    pub(super) anonymous: u64,
    /// Resident pages of files: program text, mapped files. The kernel can reclaim them at any
    /// time.
    pub(super) file: u64,
}

impl Memory {
    /// Reads the values of this process. Missing values are 0.
    pub(super) fn read() -> Self {
        Self::parse(&fs::read_to_string("/proc/self/status").unwrap_or_default())
    }

    fn parse(status: &str) -> Self {
        let field = |name: &str| -> Option<u64> {
            let value = status.lines().find_map(|line| line.strip_prefix(name))?;
            let kibibytes: u64 = value.trim().strip_suffix("kB")?.trim_end().parse().ok()?;
            kibibytes.checked_mul(1024)
        };
        Self {
            peak: field("VmHWM:").unwrap_or_default(),
            anonymous: field("RssAnon:").unwrap_or_default(),
            file: field("RssFile:").unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_is_read() {
        let text = "Name:\tx\nVmHWM:\t    2048 kB\nRssAnon:\t 1024 kB\nRssFile:\t   4 kB\n";
        assert_eq!(Memory::parse(text), Memory { peak: 2 << 20, anonymous: 1 << 20, file: 4096 });
        assert_eq!(Memory::parse(""), Memory::default());
    }

    #[test]
    fn this_process_has_memory() {
        let memory = Memory::read();
        assert!(memory.peak >= memory.anonymous && memory.anonymous > 0);
    }
}
