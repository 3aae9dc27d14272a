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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::finding::Level;
    use super::super::made_up::MadeUp;
    use super::*;

    #[test]
    fn a_clock_before_the_first_gateway_or_the_last_write_is_a_problem() {
        let mut machine = MadeUp::new("");
        assert_eq!(machine.level("clock", examine), Level::Ok, "there is no store");
        let journal = fogmux_store::lock_file(&machine.path("data/store"));
        std::fs::create_dir_all(journal.parent().unwrap()).unwrap();
        let written = machine.now;
        std::fs::File::create(&journal).unwrap().set_modified(UNIX_EPOCH + written).unwrap();
        for (now, expected) in [
            (written, Level::Ok),
            (written - TOLERANCE, Level::Ok),
            (written - TOLERANCE - Duration::from_secs(1), Level::Problem),
            (Duration::from_secs(600), Level::Problem),
        ] {
            machine.now = now;
            assert_eq!(machine.level("clock", examine), expected, "{now:?}");
        }
        assert!(machine.found("clock", examine)[0].1.contains("before November 2026"));
        machine.now = written - TOLERANCE - Duration::from_secs(1);
        assert!(machine.found("clock", examine)[0].1.contains(" 301 seconds after"));
    }

    #[test]
    fn what_keeps_the_clock_right_is_named() {
        let machine = MadeUp::new("");
        let level = || machine.level("clock-synchronised", examine);
        assert_eq!(level(), Level::Unknown);
        machine.write("proc/7/comm", "cron\n");
        assert_eq!(level(), Level::Unknown);
        machine.write("proc/8/comm", "chronyd\n");
        assert_eq!(level(), Level::Ok);
        std::fs::create_dir_all(machine.path("run/systemd/timesync")).unwrap();
        assert_eq!(level(), Level::Warning, "timesyncd has not heard of the time");
        machine.write("run/systemd/timesync/synchronized", "");
        assert_eq!(level(), Level::Ok);
    }
}
