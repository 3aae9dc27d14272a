//! Limits of the system: buffers of datagrams, open files, memory.

use super::Subject;
use super::finding::Report;
use crate::memory_limit;
use fogmux_net::listener::UDP_BUFFER_BYTES;

const MIB: u64 = 1 << 20;

pub(super) fn examine(subject: &Subject<'_>, report: &mut Report) {
    datagrams(subject, report);
    open_files(subject, report);
    memory(subject, report);
}

/// A small limit matters only where the kernel has dropped something for it.
fn datagrams(subject: &Subject<'_>, report: &mut Report) {
    let machine = subject.machine;
    let Some(limit) = machine.number("proc/sys/net/core/rmem_max") else {
        return report.unknown("udp-buffers", "net.core.rmem_max cannot be read");
    };
    let dropped = dropped(machine.text("proc/net/snmp").unwrap_or_default().as_str());
    let wanted = UDP_BUFFER_BYTES as u64;
    let text = format!("net.core.rmem_max is {limit}, {wanted} are asked for, {dropped} datagrams were dropped");
    if limit < wanted && dropped > 0 {
        let mend = format!(
            "echo net.core.rmem_max={wanted} | sudo tee /etc/sysctl.d/60-fogmux.conf && sudo sysctl --system, then \
             restart the gateway"
        );
        report.warning("udp-buffers", text, mend);
    } else {
        report.ok("udp-buffers", text);
    }
}

/// `RcvbufErrors` of the two lines `Udp:` of `/proc/net/snmp`: names, then numbers.
fn dropped(snmp: &str) -> u64 {
    let mut lines = snmp.lines().filter_map(|line| line.strip_prefix("Udp:")).map(str::split_whitespace);
    let (Some(names), Some(numbers)) = (lines.next(), lines.next()) else { return 0 };
    let found = names.zip(numbers).find(|(name, _)| *name == "RcvbufErrors");
    found.and_then(|(_, number)| number.parse().ok()).unwrap_or_default()
}

/// The limit of the running gateway, else of what is started from here.
fn open_files(subject: &Subject<'_>, report: &mut Report) {
    let whose = subject.running.as_ref().map_or_else(|| "self".to_owned(), |process| process.pid.to_string());
    let text = subject.machine.text(format!("proc/{whose}/limits")).unwrap_or_default();
    let hard = text.lines().find_map(|line| {
        let rest = line.strip_prefix("Max open files")?;
        rest.split_whitespace()
            .nth(1)
            .and_then(|hard| if hard == "unlimited" { Some(u64::MAX) } else { hard.parse().ok() })
    });
    let Some(hard) = hard else { return report.unknown("open-files", "the limit cannot be read") };
    let wanted = subject.config.limits.connections_max as u64;
    let text = format!("at most {hard} open files, for limits.connections_max = {wanted}");
    if hard < wanted {
        let mend = format!("LimitNOFILE={} in the unit (systemctl edit fogmux), or ulimit -n", wanted + 1024);
        report.warning("open-files", text, mend);
    } else {
        report.ok("open-files", text);
    }
}

fn memory(subject: &Subject<'_>, report: &mut Report) {
    let group = match &subject.running {
        Some(process) => {
            let groups = subject.machine.text(format!("proc/{}/cgroup", process.pid)).unwrap_or_default();
            memory_limit::limit(&groups, &subject.machine.path("sys/fs/cgroup"))
        }
        None => None,
    };
    let total = subject.machine.text("proc/meminfo").and_then(|text| {
        let rest = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
        rest.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib * 1024)
    });
    let Some(limit) = group.into_iter().chain(total).min() else {
        return report.unknown("memory", "the size of the memory cannot be read");
    };
    let warnings = memory_limit::warnings(subject.config, Some(limit));
    if warnings.is_empty() {
        report.ok("memory", format!("{} MiB, which bus.memory_high_bytes fits", limit / MIB));
    }
    for warning in warnings {
        report.warning(
            "memory",
            warning,
            "copy a file of config/ for this board to conf.d, or set bus.memory_high_bytes",
        );
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::super::machine::Process;
    use super::super::made_up::MadeUp;
    use super::*;

    #[test]
    fn small_buffers_of_datagrams_matter_where_something_was_dropped() {
        let machine = MadeUp::new("");
        let level = || machine.level("udp-buffers", examine);
        assert_eq!(level(), Level::Unknown);
        let snmp = |dropped: u64| format!("Udp: InDatagrams RcvbufErrors\nUdp: 4 {dropped}\n");
        for (limit, dropped, expected) in [
            (UDP_BUFFER_BYTES - 1, 0, Level::Ok),
            (UDP_BUFFER_BYTES - 1, 1, Level::Warning),
            (UDP_BUFFER_BYTES, 1, Level::Ok),
        ] {
            machine.write("proc/sys/net/core/rmem_max", &format!("{limit}\n"));
            machine.write("proc/net/snmp", &snmp(dropped));
            assert_eq!(level(), expected, "{limit} bytes, {dropped} dropped");
        }
    }

    #[test]
    fn fewer_open_files_than_connections_are_a_warning() {
        let mut machine = MadeUp::new("[limits]\nconnections_max = 2_000\n");
        assert_eq!(machine.level("open-files", examine), Level::Unknown);
        let limits =
            |hard: &str| format!("Limit Soft Hard Units\nMax open files            1024      {hard}    files\n");
        for (hard, expected) in [("1999", Level::Warning), ("2000", Level::Ok), ("unlimited", Level::Ok)] {
            machine.write("proc/self/limits", &limits(hard));
            assert_eq!(machine.level("open-files", examine), expected, "{hard}");
        }
        machine.running = Some(Process { pid: 7, name: "fogmux".into() });
        machine.write("proc/7/limits", &limits("1000"));
        let found = machine.found("open-files", examine);
        assert_eq!(found[0].0, Level::Warning, "the gateway's, not ours: {found:?}");
        assert!(found[0].1.contains("at most 1000 open files, for limits.connections_max = 2000"), "{found:?}");
    }

    #[test]
    fn dropped_datagrams_are_counted() {
        let snmp = "Ip: A B\nIp: 1 2\nUdp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors\n\
                    Udp: 4 1 0 4 17 0\nUdpLite: InDatagrams\nUdpLite: 0\n";
        assert_eq!(dropped(snmp), 17);
        assert_eq!(dropped(""), 0);
    }
}
