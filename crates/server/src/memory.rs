//! How much memory a batch takes where nobody says it.

use std::fs;

use tidegate_apply::limits::MEMORY_BYTES_DEFAULT;

/// Where a container's bound stands; `max` where there is none.
const CONTAINER_BOUND: &str = "/sys/fs/cgroup/memory.max";
/// Where the machine's memory stands.
const MACHINE: &str = "/proc/meminfo";
/// Which part of the memory a batch takes.
const SHARE: u64 = 4;
/// Less than this helps nobody: the parts that are handled as one take it anyway.
const BYTES_MIN: u64 = 64 << 20;

/// A quarter of the memory that this process may use, at most a GiB.
pub(crate) fn bytes_default() -> u64 {
    let container = fs::read_to_string(CONTAINER_BOUND).ok();
    let machine = fs::read_to_string(MACHINE).ok();
    of(container.as_deref(), machine.as_deref())
}

fn of(container: Option<&str>, machine: Option<&str>) -> u64 {
    let container = container.and_then(|text| text.trim().parse::<u64>().ok());
    let machine = machine.and_then(|text| {
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("MemTotal:"))?;
        let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        kibibytes.checked_mul(1024)
    });
    let all = container.into_iter().chain(machine).min();
    all.map_or(MEMORY_BYTES_DEFAULT, |bytes| bytes / SHARE)
        .clamp(BYTES_MIN, MEMORY_BYTES_DEFAULT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smaller_of_container_and_machine_counts() {
        let machine = Some("MemTotal:       24688024 kB\nMemFree: 1 kB\n");
        assert_eq!(of(Some("max\n"), machine), 1 << 30);
        assert_eq!(of(Some("1073741824\n"), machine), 256 << 20);
        assert_eq!(of(Some("1000\n"), machine), 64 << 20);
        assert_eq!(of(None, None), 1 << 30);
    }
}
