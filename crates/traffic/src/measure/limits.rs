//! Limits of a process: its processors, descriptors and memory, as the system sets them.

use std::collections::BTreeMap;
use std::fs;

use rustix::process::{Resource, Rlimit, getrlimit};

/// The processors that a process may run on, as a list such as `0-3,6`; nothing if it is gone.
#[must_use]
pub fn affinity(pid: u32) -> Option<String> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    Some(list.trim().to_owned())
}

/// The limits of this process: of descriptors always, of others where they are limited.
pub(super) fn here() -> BTreeMap<String, String> {
    let mut limits = BTreeMap::from([("open_files".to_owned(), both(getrlimit(Resource::Nofile)))]);
    let resources =
        [("address_space_bytes", Resource::As), ("processes", Resource::Nproc), ("cpu_seconds", Resource::Cpu)];
    for (name, resource) in resources {
        let limit = getrlimit(resource);
        if limit.current.is_some() {
            limits.insert(name.to_owned(), both(limit));
        }
    }
    let path = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    limits.extend(control_group(&path, |file| fs::read_to_string(file).ok()));
    limits
}

/// The soft limit and the hard one.
fn both(limit: Rlimit) -> String {
    let text = |limit: Option<u64>| limit.map_or_else(|| "unlimited".to_owned(), |limit| limit.to_string());
    format!("{} of {}", text(limit.current), text(limit.maximum))
}

/// Of the control group (version 2) and of those above it, the first that limits anything.
fn control_group(listed: &str, read: impl Fn(&str) -> Option<String>) -> Vec<(String, String)> {
    let group = listed.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or("/").trim_end_matches('/');
    let limit = |file: &str| {
        let mut group = group;
        loop {
            let value = read(&format!("/sys/fs/cgroup{group}/{file}")).unwrap_or_default();
            let value = value.trim();
            if !value.is_empty() && !value.starts_with("max") {
                return Some(value.to_owned());
            }
            group = group.rsplit_once('/')?.0;
        }
    };
    let files =
        [("cgroup_cpu_us_of", "cpu.max"), ("cgroup_memory_bytes", "memory.max"), ("cgroup_processes", "pids.max")];
    files.into_iter().filter_map(|(name, file)| Some((name.to_owned(), limit(file)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_processors_and_descriptors() {
        let list = affinity(std::process::id()).unwrap();
        assert!(list.starts_with(|c: char| c.is_ascii_digit()), "{list}");
        assert!(here().get("open_files").is_some_and(|limit| limit.contains(" of ")));
        assert_eq!(affinity(u32::MAX), None);
    }

    #[test]
    fn the_group_that_limits_may_be_one_above() {
        let read = |file: &str| match file {
            "/sys/fs/cgroup/a/b/cpu.max" => Some("max 100000\n".to_owned()),
            "/sys/fs/cgroup/a/cpu.max" => Some("50000 100000\n".to_owned()),
            "/sys/fs/cgroup/a/b/memory.max" => Some("67108864\n".to_owned()),
            _ => None,
        };
        let limits = control_group("0::/a/b\n", read);
        let expected = [("cgroup_cpu_us_of", "50000 100000"), ("cgroup_memory_bytes", "67108864")];
        assert_eq!(limits, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert_eq!(control_group("", |_| None), []);
    }
}
