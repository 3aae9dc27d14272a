//! The wall clock, which a Raspberry Pi has only as long as the network gives it.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::Subject;
use super::finding::Report;

/// 2026-01-01: before this there was no gateway.
const FIRST: Duration = Duration::from_secs(1_767_225_600);
/// Files may be as much newer than the clock, which is adjusted in steps.
const TOLERANCE: Duration = Duration::from_secs(300);
const SET: &str = "timedatectl set-ntp true";

pub(super) fn examine(subject: &Subject<'_>, report: &mut Report) {
    let newest = newest(&subject.store());
    if subject.now < FIRST {
        report.problem("clock", "the clock is before 2026", SET);
    } else if let Some(newest) = newest.filter(|newest| *newest > subject.now + TOLERANCE) {
        let ahead = (newest - subject.now).as_secs();
        let text = format!("the store was written {ahead} seconds after what the clock says now");
        report.problem("clock", text, SET);
    } else {
        report.ok("clock", "not before the newest file of the store");
    }
    let machine = subject.machine;
    if machine.path("run/systemd/timesync/synchronized").exists() {
        report.ok("clock-synchronised", "by systemd-timesyncd");
    } else if machine.path("run/systemd/timesync").exists() {
        report.warning(
            "clock-synchronised",
            "systemd-timesyncd has not synchronised the clock yet",
            "timedatectl timesync-status",
        );
    } else if machine.processes().any(|pid| ["chronyd", "ntpd"].contains(&&*machine.process(pid).name)) {
        report.ok("clock-synchronised", "a daemon for that runs");
    } else {
        report.unknown("clock-synchronised", "no daemon that does this is known here");
    }
}

/// When a file of the store was last written, since 1970.
fn newest(store: &Path) -> Option<Duration> {
    let journal = fogmux_store::lock_file(store);
    let entries = std::fs::read_dir(journal.parent()?).ok()?.flatten();
    let written = entries.filter_map(|entry| entry.metadata().ok()?.modified().ok());
    written.max().and_then(|newest: SystemTime| newest.duration_since(UNIX_EPOCH).ok())
}
