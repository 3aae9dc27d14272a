//! The environment of a result: the machine, its software and its state.
//!
//! All values are read from Linux; unavailable ones are empty. None identifies the machine or its user: no host name,
//! no address, no serial number.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde::{Deserialize, Serialize};

use super::build::Build;
use super::counters::Support;
use super::limits;

/// The share of the cores that others may use before it is worth a word.
const LOAD_MAX: f64 = 0.25;

/// A machine as it was when a measurement began.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Environment {
    /// Name, release and architecture of the kernel.
    pub kernel: String,
    /// The model of the machine, such as `Raspberry Pi 4 Model B Rev 1.4`.
    pub machine: String,
    /// The model of the processor.
    pub cpu: String,
    /// The number of cores that may be used.
    pub cores: usize,
    /// Of the machine, in bytes.
    pub memory_bytes: u64,
    /// Of the processor's frequency: `ondemand`, `performance`, …
    pub governor: String,
    /// The lowest frequency that the governor may choose.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frequency_min_mhz: Option<f64>,
    /// The highest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frequency_max_mhz: Option<f64>,
    /// The temperature of the hottest sensor, in degrees Celsius.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature_c: Option<f64>,
    /// The reasons for which a Raspberry Pi's firmware throttles the processor now, or (`was …`) did since its start.
    pub throttled: Vec<String>,
    /// Whether this is a virtual machine, if it says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub virtualised: Option<bool>,
    /// The load average of the last minute.
    pub load: f64,
    /// The clock source of the kernel.
    pub clock_source: String,
    /// The available counters of instructions and cycles, in words, such as `none on this machine`.
    pub counters: String,
    /// Versions by name: `fogmux`, and the libraries that it speaks and encrypts with.
    pub software: BTreeMap<String, String>,
    /// The program that measures, which is the gateway as well where that is ours.
    pub build: Build,
    /// The processors that it may run on, as a list such as `0-3,6`. A gateway of ours has the same.
    pub affinity: String,
    /// The limits of its resources, in words.
    pub limits: BTreeMap<String, String>,
}

impl Environment {
    /// Of this machine, now.
    #[must_use]
    pub fn here() -> Self {
        let frequency = Path::new("/sys/devices/system/cpu/cpu0/cpufreq");
        let mhz = |name| number(&frequency.join(name)).map(|khz| khz / 1_000.0);
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        Self {
            kernel: kernel(),
            machine: machine(),
            cpu: cpu(&cpuinfo),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            memory_bytes: memory(&fs::read_to_string("/proc/meminfo").unwrap_or_default()),
            governor: word(&frequency.join("scaling_governor")),
            frequency_min_mhz: mhz("scaling_min_freq"),
            frequency_max_mhz: mhz("scaling_max_freq"),
            temperature_c: temperature(Path::new("/sys/class/thermal")),
            throttled: throttled_bits().map(throttled).unwrap_or_default(),
            virtualised: virtualised(&cpuinfo),
            load: first_number(&word(Path::new("/proc/loadavg"))).unwrap_or(0.0),
            clock_source: word(Path::new("/sys/devices/system/clocksource/clocksource0/current_clocksource")),
            counters: Support::here().to_string(),
            software: software(),
            build: Build::here(),
            affinity: limits::affinity(std::process::id()).unwrap_or_default(),
            limits: limits::here(),
        }
    }

    /// The circumstances that impair a measurement on this machine, in words.
    #[must_use]
    pub fn caveats(&self) -> Vec<String> {
        let mut caveats = Vec::new();
        if self.virtualised == Some(true) {
            caveats.push("a virtual machine: its host may take processor time away".to_owned());
        }
        if !matches!(self.governor.as_str(), "" | "performance") {
            caveats.push(format!("the frequency governor is {}, not performance", self.governor));
        }
        #[expect(clippy::cast_precision_loss, reason = "a number of cores")]
        if self.load > LOAD_MAX * self.cores as f64 {
            caveats.push(format!("others are at work: load {:.2} on {} cores", self.load, self.cores));
        }
        caveats.extend(self.throttled.iter().map(|what| format!("the firmware reports: {what}")));
        caveats
    }
}

/// Of this program and of what it speaks and encrypts with; a gateway of ours is the same program.
fn software() -> BTreeMap<String, String> {
    let libraries = env!("FOGMUX_LIBRARIES").split(',').filter_map(|library| library.split_once(' '));
    let built_in = [("fogmux", env!("CARGO_PKG_VERSION"))].into_iter().chain(libraries);
    let mut software: BTreeMap<_, _> = built_in.map(|(name, version)| (name.to_owned(), version.to_owned())).collect();
    software.extend(fogmux_net::openssl_version().map(|version| ("openssl".to_owned(), version.to_owned())));
    software
}

fn kernel() -> String {
    let uname = rustix::system::uname();
    let parts = [uname.sysname(), uname.release(), uname.machine()];
    parts.map(|part| part.to_string_lossy().into_owned()).join(" ")
}

/// The device tree's name for it, or the one of the firmware.
fn machine() -> String {
    let tree = word(Path::new("/proc/device-tree/model"));
    if tree.is_empty() { word(Path::new("/sys/class/dmi/id/product_name")) } else { tree }
}

/// x86 names its model; ARM gives the number of a part.
fn cpu(cpuinfo: &str) -> String {
    if let Some(name) = field(cpuinfo, "model name") {
        return name.to_owned();
    }
    match field(cpuinfo, "CPU part") {
        Some("0xb76") => "ARM1176".to_owned(),
        Some("0xc07") => "Cortex-A7".to_owned(),
        Some("0xd03") => "Cortex-A53".to_owned(),
        Some("0xd08") => "Cortex-A72".to_owned(),
        Some("0xd0b") => "Cortex-A76".to_owned(),
        Some("0xd0c") => "Neoverse N1".to_owned(),
        Some(part) => format!("ARM part {part}"),
        None => String::new(),
    }
}

fn memory(meminfo: &str) -> u64 {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    line.and_then(|line| line.split_ascii_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) * 1_024
}

/// The kernel marks the processors of x86 guests; elsewhere the device tree may.
fn virtualised(cpuinfo: &str) -> Option<bool> {
    if let Some(flags) = field(cpuinfo, "flags") {
        return Some(flags.split_ascii_whitespace().any(|flag| flag == "hypervisor"));
    }
    Path::new("/proc/device-tree/hypervisor").exists().then_some(true)
}

/// Thousandths of a degree, in one file per sensor.
fn temperature(thermal: &Path) -> Option<f64> {
    let zones = fs::read_dir(thermal).ok()?.flatten();
    let degrees = zones.filter_map(|zone| Some(number(&zone.path().join("temp"))? / 1_000.0));
    degrees.max_by(f64::total_cmp)
}

/// The firmware's word, from the driver or the tool that asks it.
fn throttled_bits() -> Option<u32> {
    let said = fs::read_to_string("/sys/devices/platform/soc/soc:firmware/get_throttled").ok().or_else(|| {
        let output = Command::new("vcgencmd").arg("get_throttled").output().ok()?;
        String::from_utf8(output.stdout).ok()?.trim().strip_prefix("throttled=").map(ToOwned::to_owned)
    })?;
    u32::from_str_radix(said.trim().trim_start_matches("0x"), 16).ok()
}

/// Raspberry Pi documentation, "vcgencmd get_throttled": bits 0 to 3 are now, 16 to 19 since the start.
fn throttled(bits: u32) -> Vec<String> {
    let names = ["under-voltage", "frequency capped", "throttled", "soft temperature limit"];
    let set = |bit: usize| bits >> bit & 1 == 1;
    let now = names.iter().enumerate().filter(|(bit, _)| set(*bit)).map(|(_, name)| (*name).to_owned());
    let before = names.iter().enumerate().filter(|(bit, _)| set(bit + 16) && !set(*bit));
    now.chain(before.map(|(_, name)| format!("was {name}"))).collect()
}

fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let values = text.lines().filter_map(|line| line.split_once(':'));
    values.filter(|(key, _)| key.trim() == name).map(|(_, value)| value.trim()).next()
}

fn word(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.trim_matches(|c: char| c.is_whitespace() || c == '\0').to_owned()
}

fn first_number(text: &str) -> Option<f64> {
    text.split_ascii_whitespace().next()?.parse().ok()
}

fn number(path: &Path) -> Option<f64> {
    first_number(&word(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_says_something() {
        let here = Environment::here();
        assert!(here.kernel.starts_with("Linux "), "{here:?}");
        assert!(here.cores > 0 && here.memory_bytes > 1 << 20, "{here:?}");
        assert!(!here.affinity.is_empty() && !here.limits.is_empty() && !here.build.profile.is_empty(), "{here:?}");
        assert_eq!(here.counters, Support::here().to_string());
        assert_eq!(here.software.get("fogmux").map(String::as_str), Some(env!("CARGO_PKG_VERSION")));
        for library in ["h2", "quinn", "ring", "rustls"] {
            let version = here.software.get(library).map(String::as_str).unwrap_or_default();
            assert!(version.contains('.'), "{library}: {version}");
        }
        let has_openssl = here.software.get("openssl").is_some_and(|version| version.starts_with("OpenSSL "));
        assert_eq!(has_openssl, cfg!(feature = "tls-openssl"), "{:?}", here.software);
    }

    #[test]
    fn what_an_older_report_does_not_have_is_empty() {
        let read: Environment = serde_json::from_str(r#"{"kernel":"Linux 6.1"}"#).unwrap();
        assert_eq!(read, Environment { kernel: "Linux 6.1".to_owned(), ..Environment::default() });
        let here = Environment::here();
        let text = serde_json::to_string(&here).unwrap();
        assert_eq!(serde_json::from_str::<Environment>(&text).unwrap(), here);
    }

    #[test]
    fn processors_are_named() {
        let pi = "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd08\nModel\t\t: Raspberry Pi 4\n";
        assert_eq!(cpu(pi), "Cortex-A72");
        assert_eq!(virtualised(pi), None);
        let guest = "model name\t: Some Xeon\nflags\t\t: fpu sse hypervisor avx\n";
        assert_eq!((cpu(guest).as_str(), virtualised(guest)), ("Some Xeon", Some(true)));
        assert_eq!(virtualised("flags : fpu sse\n"), Some(false));
    }

    #[test]
    fn the_firmware_tells_now_from_before() {
        assert_eq!(throttled(0), Vec::<String>::new());
        assert_eq!(throttled(0x5_0001), ["under-voltage", "was throttled"]);
        assert_eq!(throttled(0x5_0005), ["under-voltage", "throttled"]);
    }

    #[test]
    fn a_slow_governor_and_load_are_said() {
        let quiet = Environment { cores: 4, load: 0.1, governor: "performance".to_owned(), ..Environment::default() };
        assert_eq!(quiet.caveats(), Vec::<String>::new());
        let busy = Environment { load: 3.0, governor: "ondemand".to_owned(), throttled: throttled(4), ..quiet };
        assert_eq!(busy.caveats().len(), 3, "{:?}", busy.caveats());
    }
}
