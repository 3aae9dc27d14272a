//! The memory that the gateway may use, and settings that do not fit it.

use std::{fs, path::Path};

use crate::config::Config;

/// Returns warnings about marks that are reached too early or too late. `limit` is that of the control group.
pub(crate) fn warnings(config: &Config, limit: Option<u64>) -> Vec<String> {
    let mut warnings = Vec::new();
    let mark = config.bus.memory_high_bytes;
    #[cfg(feature = "http")]
    if config.http.door.event_streams_bytes >= mark {
        let streams = config.http.door.event_streams_bytes;
        warnings.push(format!(
            "http.event_streams_bytes ({streams}) is not below bus.memory_high_bytes ({mark}): event streams that \
             nobody reads can hold so much that publishers of their user are paused"
        ));
    }
    if let Some(limit) = limit.filter(|limit| *limit / 2 < u64::try_from(mark).unwrap_or(u64::MAX)) {
        warnings.push(format!(
            "the control group allows {limit} bytes of memory, less than twice bus.memory_high_bytes ({mark}), which \
             queues may hold for a short time"
        ));
    }
    warnings
}

/// The memory limit of the process's control group, or of one above it.
pub(crate) fn of_control_group() -> Option<u64> {
    limit(&fs::read_to_string("/proc/self/cgroup").ok()?, Path::new("/sys/fs/cgroup"))
}

/// The least limit, by the lines of `/proc/self/cgroup`: `0::<path>` in version 2, `<number>:memory:<path>` in 1.
pub(crate) fn limit(groups: &str, root: &Path) -> Option<u64> {
    let limits = groups.lines().filter_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (root, file) = match fields.next()? {
            "" => (root.to_owned(), "memory.max"),
            controllers if controllers.split(',').any(|name| name == "memory") => {
                (root.join("memory"), "memory.limit_in_bytes")
            }
            _ => return None,
        };
        let group = root.join(fields.next()?.trim_start_matches('/'));
        let groups = group.ancestors().take_while(|group| group.starts_with(&root));
        // "max" is no number.
        groups.filter_map(|group| fs::read_to_string(group.join(file)).ok()?.trim().parse().ok()).min()
    });
    limits.min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_limit_of_a_group_and_those_above_it_counts() {
        let home = tempfile::tempdir().unwrap();
        let write = |file: &str, text: &str| {
            let file = home.path().join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        };
        write("system.slice/fogmux.service/memory.max", "max\n");
        write("system.slice/memory.max", "1000\n");
        write("memory/docker/memory.limit_in_bytes", "900\n");
        write("memory/memory.limit_in_bytes", "9223372036854771712\n");
        let limit = |groups| limit(groups, home.path());
        assert_eq!(limit("0::/system.slice/fogmux.service\n"), Some(1000));
        assert_eq!(limit("0::/\n"), None);
        assert_eq!(limit("4:cpu,cpuacct:/docker\n3:memory:/docker\n"), Some(900));
        assert_eq!(limit("3:memory:/unknown\n"), Some(9_223_372_036_854_771_712));
    }

    #[cfg(feature = "http")]
    #[test]
    fn marks_that_do_not_fit_are_warned_of() {
        let mut config = Config::default();
        let mark = config.bus.memory_high_bytes;
        let twice = 2 * u64::try_from(mark).unwrap();
        assert!(warnings(&config, None).is_empty() && warnings(&config, Some(twice)).is_empty());
        assert_eq!(warnings(&config, Some(twice - 1)).len(), 1);
        config.http.door.event_streams_bytes = mark;
        assert_eq!(warnings(&config, None).len(), 1);
    }
}
