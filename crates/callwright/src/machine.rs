//! What this machine has, where the system says it in a file.

/// Bytes of the machine's memory.
#[derive(Debug, Clone, Copy)]
pub struct Memory {
    /// All bytes.
    pub total: u64,
    /// Bytes that a program can get.
    pub available: u64,
}

/// The processor's name; on ARM, where the system has none, the number of its kind.
pub fn processor() -> Option<String> {
    processor_in(&std::fs::read_to_string("/proc/cpuinfo").ok()?)
}

fn processor_in(text: &str) -> Option<String> {
    let value = |key: &str| {
        let (name, value) =
            text.lines().filter_map(|line| line.split_once(':')).find(|(name, _)| name.trim() == key)?;
        Some((name.trim().to_owned(), value.trim().to_owned()))
    };
    match (value("model name"), value("CPU part")) {
        (Some((_, name)), _) => Some(name),
        (None, Some((what, number))) => Some(format!("{what} {number}")),
        (None, None) => None,
    }
}

/// The number of cores that this process may use; 1 where that is not known.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Bytes of this process that are in memory, with the pages of mapped files.
pub fn resident() -> Option<u64> {
    kilobytes(&std::fs::read_to_string("/proc/self/status").ok()?, "VmRSS")
}

/// The memory.
pub fn memory() -> Option<Memory> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    Some(Memory { total: kilobytes(&text, "MemTotal")?, available: kilobytes(&text, "MemAvailable")? })
}

/// The bytes of a line such as `MemTotal: 16 kB`.
fn kilobytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim_start_matches(':').trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
}

/// The processes that want to run, over the last minute.
pub fn load() -> Option<f64> {
    std::fs::read_to_string("/proc/loadavg").ok()?.split(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::processor_in;

    #[test]
    fn a_processor_has_a_name_or_a_number() {
        let intel = "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel\t\t: 207\nmodel name\t: INTEL(R) XEON(R)\n";
        assert_eq!(processor_in(intel).as_deref(), Some("INTEL(R) XEON(R)"));
        let arm = "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n";
        assert_eq!(processor_in(arm).as_deref(), Some("CPU part 0xd0c"));
        assert_eq!(processor_in("nothing\n"), None);
    }
}
