//! The wall clock, which a Raspberry Pi has only as long as the network gives it.

use std::time::UNIX_EPOCH;

use fogmux_net::pki;

use super::Subject;
use super::finding::Report;
use crate::clock::{TOLERANCE, newest};

pub(super) const SET: &str = "timedatectl set-ntp true";

pub(super) fn examine(subject: &Subject<'_>, report: &mut Report) {
    let newest = newest(&subject.store());
    if !pki::is_believable(UNIX_EPOCH + subject.now) {
        report.problem("clock", "the clock is before November 2026, when there was no gateway", SET);
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
