//! Bytes written so far: by a process, by the device below it, and in commits.

use std::collections::BTreeSet;
use std::fs;
use std::ops::Sub;

use anyhow::{Context, Result};

use crate::medium::Medium;
use crate::subject::Running;

/// A reading, or the difference of two.
#[derive(Clone, Copy)]
pub(crate) struct Written {
    /// Bytes that the process handed to `write` (`wchar` of proc(5)).
    pub(crate) calls: u64,
    /// Bytes of the page cache that became dirty by that (`write_bytes`). Where a file system caches in units larger
    /// than a page, as ext4 does since Linux 6.16, a write counts for the whole unit, of which only the blocks are
    /// written that have changed: 64 KiB for a commit of 4 KiB.
    pub(crate) pages: u64,
    /// Bytes that the device was given, if it is counted.
    pub(crate) device: Option<u64>,
    /// Commits, of brokers that count them.
    pub(crate) commits: Option<u64>,
}

impl Written {
    pub(crate) fn read(medium: &Medium, broker: &Running) -> Result<Self> {
        let mut sums = (0, 0);
        for pid in family(broker.pid()) {
            let Ok(io) = fs::read_to_string(format!("/proc/{pid}/io")) else { continue };
            sums.0 += field(&io, "write_bytes: ")?;
            sums.1 += field(&io, "wchar: ")?;
        }
        Ok(Self { pages: sums.0, calls: sums.1, device: medium.device_bytes()?, commits: broker.commits()? })
    }
}

impl Sub for Written {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        let difference = |now: Option<u64>, before: Option<u64>| Some(now?.saturating_sub(before?));
        Self {
            pages: self.pages.saturating_sub(before.pages),
            calls: self.calls.saturating_sub(before.calls),
            device: difference(self.device, before.device),
            commits: difference(self.commits, before.commits),
        }
    }
}

fn field(io: &str, name: &str) -> Result<u64> {
    let line = io.lines().find_map(|line| line.strip_prefix(name)).with_context(|| format!("no {name}in {io:?}"))?;
    Ok(line.trim().parse()?)
}

/// A process and its descendants. Those that have ended and were waited for count with their parents.
fn family(pid: u32) -> BTreeSet<u32> {
    let mut family = BTreeSet::from([pid]);
    let mut waiting = vec![pid];
    while let Some(parent) = waiting.pop() {
        let tasks = fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten().flatten();
        for task in tasks {
            let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            let new = children.split_whitespace().filter_map(|child| child.parse().ok());
            waiting.extend(new.filter(|child| family.insert(*child)));
        }
    }
    family
}
