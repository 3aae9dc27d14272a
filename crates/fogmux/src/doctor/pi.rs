//! A Raspberry Pi: its power supply and temperature, as its firmware reports them.

use fogmux_gateway::machine::THROTTLING;

use super::Subject;
use super::finding::{Level, Report};

/// Above this the processor is slowed down soon, in thousandths of a degree Celsius.
const HOT: i64 = 80_000;
const MEND: &str = "use the power supply of the board's maker and a heat sink; vcgencmd get_throttled";

pub(super) fn examine(subject: &Subject<'_>, report: &mut Report) {
    let machine = subject.machine;
    let model = machine.model().unwrap_or_default();
    if !model.starts_with("Raspberry Pi") {
        return;
    }
    let before = report.0.len();
    if let Some(bits) = machine.throttled() {
        for (bit, text) in THROTTLING {
            if bits & bit != 0 {
                report.problem("raspberry-pi", format!("{text} now"), MEND);
            } else if bits & (bit << 16) != 0 {
                report.warning("raspberry-pi", format!("{text}: this was so since the machine started"), MEND);
            }
        }
    }
    if let Some(hot) = machine.temperature().filter(|temperature| *temperature > HOT) {
        report.warning("raspberry-pi", format!("the processor has {} degrees Celsius", hot / 1000), MEND);
    }
    if report.0.get(before..).is_none_or(|found| found.iter().all(|finding| finding.level == Level::Ok)) {
        report.ok("raspberry-pi", format!("{model}: voltage and temperature are right"));
    }
}

#[cfg(test)]
mod tests {
    use super::super::machine::Machine;
    use super::*;
    use crate::config::Config;

    #[test]
    fn voltage_and_temperature_are_told_now_and_since_the_start() {
        let root = tempfile::tempdir().unwrap();
        let write = |file: &str, text: &str| {
            let file = root.path().join(file);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        };
        let (machine, config) = (Machine::at(root.path()), Config::default());
        let examined = || {
            let mut report = Report::default();
            let (directory, now) = (root.path().into(), std::time::Duration::ZERO);
            let subject =
                Subject { machine: &machine, config: &config, config_file: None, directory, running: None, now };
            examine(&subject, &mut report);
            report.0.iter().map(|finding| finding.level).collect::<Vec<_>>()
        };
        assert_eq!(examined(), [], "no Raspberry Pi");
        write("proc/device-tree/model", "Raspberry Pi 3 Model B Plus Rev 1.3\0");
        assert_eq!(examined(), [Level::Ok]);
        write("sys/devices/platform/soc/soc:firmware/get_throttled", "50005\n");
        assert_eq!(examined(), [Level::Problem, Level::Problem]);
        write("sys/devices/platform/soc/soc:firmware/get_throttled", "50000\n");
        write("sys/class/thermal/thermal_zone0/temp", "81000\n");
        assert_eq!(examined(), [Level::Warning, Level::Warning, Level::Warning]);
    }
}
