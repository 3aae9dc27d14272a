//! The machine as its files describe it, with its processes. Tests examine made-up ones.

use std::ops::Deref;
use std::path::Path;
#[cfg(test)]
use std::path::PathBuf;

use super::finding::printable;

/// The machine that is examined.
#[derive(Clone, Debug)]
pub(super) struct Machine(fogmux_gateway::machine::Machine);

impl Deref for Machine {
    type Target = fogmux_gateway::machine::Machine;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

/// A process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) pid: u32,
    /// At most 15 bytes of its name (proc_pid_comm(5)).
    pub(super) name: String,
}

impl Machine {
    /// The one that this process runs on.
    pub(super) fn here() -> Self {
        Self(fogmux_gateway::machine::Machine::here())
    }

    #[cfg(test)]
    pub(super) fn at(root: impl Into<PathBuf>) -> Self {
        Self(fogmux_gateway::machine::Machine::at(root))
    }

    /// The names in a directory, in order; none if it cannot be read.
    pub(super) fn names(&self, directory: impl AsRef<Path>) -> Vec<String> {
        let entries = std::fs::read_dir(self.path(directory)).into_iter().flatten().flatten();
        let mut names: Vec<_> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        names
    }

    /// The process of a number.
    pub(super) fn process(&self, pid: u32) -> Process {
        // A process chooses its name.
        Process { pid, name: printable(&self.text(format!("proc/{pid}/comm")).unwrap_or_default()) }
    }

    /// The argument by which a gateway was started at other addresses than its files name, if there is one.
    pub(super) fn overriding(&self, process: &Process) -> Option<&'static str> {
        let line = std::fs::read(self.path(format!("proc/{}/cmdline", process.pid))).ok()?;
        let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
        let sets = |key: &[u8]| key.starts_with(b"listeners.");
        let is_set = words.windows(2).any(|pair| matches!(pair, [b"--set", key] if sets(key)))
            || words.iter().any(|word| word.strip_prefix(b"--set=").is_some_and(sets));
        if words.contains(&b"--free-ports".as_slice()) { Some("--free-ports") } else { is_set.then_some("--set") }
    }

    /// All numbers of processes.
    pub(super) fn processes(&self) -> impl Iterator<Item = u32> {
        self.names("proc").into_iter().filter_map(|name| name.parse().ok())
    }

    /// The process that holds the file locked by flock(2), as `/proc/locks` lists it. Looking does not lock: a gateway
    /// that starts at this moment must find the file free.
    pub(super) fn locked_by(&self, device: u64, inode: u64) -> Option<Process> {
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let wanted = format!("{major:02x}:{minor:02x}:{inode}");
        let any_device = format!(":{inode}");
        let locks = self.text("proc/locks")?;
        let holders = locks.lines().filter_map(|line| {
            let mut fields = line.split_whitespace().skip(1);
            let (kind, _, _) = (fields.next()?, fields.next()?, fields.next()?);
            let (pid, file) = (fields.next()?.parse::<u32>().ok()?, fields.next()?);
            (kind == "FLOCK").then_some((pid, file))
        });
        // Some file systems give files another device than their locks; then the name of the program has to fit.
        let found = holders.map(|(pid, file)| (self.process(pid), file)).find(|(process, file)| {
            *file == wanted || file.ends_with(&any_device) && process.name.starts_with("fogmux")
        });
        found.map(|(process, _)| process)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_of_a_lock_is_found() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("proc/7")).unwrap();
        std::fs::create_dir_all(root.path().join("proc/8")).unwrap();
        std::fs::write(root.path().join("proc/7/comm"), "fogmux\n").unwrap();
        std::fs::write(root.path().join("proc/8/comm"), "cron\n").unwrap();
        let locks = "1: POSIX  ADVISORY  WRITE 8 08:01:99 0 EOF\n2: FLOCK  ADVISORY  WRITE 7 fe:00:42 0 EOF\n\
                     3: FLOCK  ADVISORY  WRITE 8 00:1b:43 0 EOF\n";
        std::fs::write(root.path().join("proc/locks"), locks).unwrap();
        let machine = Machine::at(root.path());
        let device = rustix::fs::makedev(0xfe, 0);
        assert_eq!(machine.locked_by(device, 42), Some(Process { pid: 7, name: "fogmux".into() }));
        assert_eq!(machine.locked_by(rustix::fs::makedev(0, 5), 42).map(|process| process.pid), Some(7));
        assert_eq!(machine.locked_by(device, 43), None, "another program's, on another device");
        assert_eq!(machine.locked_by(device, 99), None, "not by flock");
    }

    #[test]
    fn arguments_that_come_before_the_files_are_seen() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("proc/7")).unwrap();
        let machine = Machine::at(root.path());
        for (line, expected) in [
            ("fogmux\0serve\0--free-ports\0", Some("--free-ports")),
            ("fogmux\0serve\0--set\0listeners.mqtt.address=[::]:1\0", Some("--set")),
            ("fogmux\0serve\0--set=listeners.mqtt.address=[::]:1\0", Some("--set")),
            ("fogmux\0serve\0--set\0workers.count=1\0", None),
            ("fogmux\0serve\0--config\0/etc/--set.toml\0", None),
        ] {
            std::fs::write(root.path().join("proc/7/cmdline"), line).unwrap();
            assert_eq!(machine.overriding(&machine.process(7)), expected, "{line:?}");
        }
        assert_eq!(machine.overriding(&machine.process(8)), None, "no such process");
    }
}
