//! Figures that the system has of the process, under the names that Prometheus' client libraries use.

use std::fs;

use rustix::process::{Resource, getrlimit};

/// Ticks of a second in `/proc`: Linux shows 100 to programs, whatever its own clock does.
const TICKS: f64 = 100.0;

/// A reading.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Process {
    /// Seconds of processor time, of the process and of the system for it.
    pub(crate) cpu_s: f64,
    /// When it started, in seconds since 1970.
    pub(crate) started_unix_s: f64,
    pub(crate) virtual_bytes: u64,
    pub(crate) resident_bytes: u64,
    pub(crate) open_fds: u64,
    /// `None` without a limit.
    pub(crate) fds_max: Option<u64>,
    pub(crate) threads: u64,
}

impl Process {
    /// Reads `/proc`. `None` where there is none.
    pub(crate) fn read() -> Option<Self> {
        let (stat, system) = (fs::read_to_string("/proc/self/stat").ok()?, fs::read_to_string("/proc/stat").ok()?);
        Some(Self {
            resident_bytes: fogmux_memory::resident_bytes().unwrap_or(0),
            // Without the one that reads the directory.
            open_fds: u64::try_from(fs::read_dir("/proc/self/fd").ok()?.count()).unwrap_or(0).saturating_sub(1),
            fds_max: getrlimit(Resource::Nofile).current,
            ..Self::of(&stat, &system)?
        })
    }

    /// Reads `/proc/self/stat` and `/proc/stat` (proc(5)).
    fn of(stat: &str, system: &str) -> Option<Self> {
        // The name of the program, in parentheses, may contain anything.
        let (_, rest) = stat.rsplit_once(')')?;
        // The first of the rest is the third field.
        let field = |number: usize| rest.split_ascii_whitespace().nth(number - 3)?.parse::<u64>().ok();
        let booted = system.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse::<u64>().ok()?;
        Some(Self {
            cpu_s: (field(14)? + field(15)?) as f64 / TICKS,
            started_unix_s: booted as f64 + field(22)? as f64 / TICKS,
            virtual_bytes: field(23)?,
            resident_bytes: 0,
            open_fds: 0,
            fds_max: None,
            threads: field(20)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_counted_behind_the_name_of_the_program() {
        let stat = "7 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 150 250 13 14 20 0 5 0 1000 4096 99 18446744073709551615";
        let read = Process::of(stat, "cpu  1 2\nbtime 1700000000\nprocesses 3\n").unwrap();
        assert_eq!((read.cpu_s, read.started_unix_s), (4.0, 1_700_000_010.0));
        assert_eq!((read.virtual_bytes, read.threads), (4096, 5));
        assert_eq!(Process::of("7 (a S 1", "btime 1"), None);
        assert_eq!(Process::of(stat, "cpu 1"), None);
    }

    #[test]
    fn the_own_process_is_read() {
        let read = Process::read().unwrap();
        assert!(read.open_fds >= 3 && read.resident_bytes > 0 && read.threads > 0, "{read:?}");
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
        assert!((now - 86_400.0..=now + 60.0).contains(&read.started_unix_s), "{read:?} at {now}");
    }
}
