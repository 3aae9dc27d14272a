//! The machine below the gateway, as its files describe it (`/proc`, `/sys`, `/run`): processor, memory, temperature,
//! throttling and the wear of the medium, for `fogmux doctor` and the administration API. Tests examine made-up ones.

use std::path::{Path, PathBuf};

/// Where these file systems are mounted.
#[derive(Clone, Debug)]
pub struct Machine {
    root: PathBuf,
}

/// The bits of `vcgencmd get_throttled`: now, and the same 16 bits higher since the start of the machine.
pub const THROTTLING: [(u32, &str); 4] = [
    (1, "the supply voltage is too low"),
    (1 << 1, "the processor's frequency is limited"),
    (1 << 2, "the processor is slowed down"),
    (1 << 3, "the temperature is near its limit"),
];

/// The memory of the machine, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// All of it.
    pub total: u64,
    /// The part that programs can have without swapping.
    pub available: u64,
}

/// The time of all processors since the machine started, in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Processor {
    /// Not idle.
    pub busy: u64,
    /// All of it.
    pub total: u64,
    /// The number of processors.
    pub count: usize,
}

/// The block device below a file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// The partition, such as `mmcblk0p2`.
    pub partition: String,
    /// The disk or card that it is on.
    pub disk: String,
}

/// The wear of a medium.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wear {
    /// The part of its life that is used, in tenths; `None` for SD cards and disks that do not say.
    pub used_tenths: Option<u8>,
    /// 2 and 3: 80 and 90 % of the reserved blocks are used.
    pub before_end: u8,
    /// Bytes written a day, on average since the machine started.
    pub written_a_day: Option<u64>,
}

impl Machine {
    /// The one that this process runs on.
    #[must_use]
    pub fn here() -> Self {
        Self::at("/")
    }

    /// One whose files are below a directory.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The place of a file named without a leading slash.
    pub fn path(&self, file: impl AsRef<Path>) -> PathBuf {
        self.root.join(file)
    }

    /// A file's text without white space around it; `None` if it cannot be read.
    pub fn text(&self, file: impl AsRef<Path>) -> Option<String> {
        let bytes = std::fs::read(self.path(file)).ok()?;
        Some(String::from_utf8_lossy(&bytes).trim().to_owned())
    }

    /// A file that is one decimal number.
    pub fn number(&self, file: impl AsRef<Path>) -> Option<u64> {
        self.text(file)?.parse().ok()
    }

    /// The model of a board that has a device tree.
    #[must_use]
    pub fn model(&self) -> Option<String> {
        let model = self.text("proc/device-tree/model")?;
        Some(model.trim_end_matches('\0').to_owned())
    }

    /// The bits of [`THROTTLING`] that the firmware of a Raspberry Pi reports.
    #[must_use]
    pub fn throttled(&self) -> Option<u32> {
        // The kernel gives the number in hexadecimal digits; where it stands depends on the version.
        let places = [
            "sys/devices/platform/soc/soc:firmware/get_throttled",
            "sys/devices/platform/soc@107c000000/firmware/get_throttled",
        ];
        let text = places.iter().find_map(|place| self.text(place))?;
        u32::from_str_radix(text.trim_start_matches("0x"), 16).ok()
    }

    /// The temperature of the processor, in thousandths of a degree Celsius.
    #[must_use]
    pub fn temperature(&self) -> Option<i64> {
        self.text("sys/class/thermal/thermal_zone0/temp")?.parse().ok()
    }

    /// Its memory.
    #[must_use]
    pub fn memory(&self) -> Option<Memory> {
        let text = self.text("proc/meminfo")?;
        let kilobytes = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().next()?.parse::<u64>().ok()
        };
        let (total, available) = (kilobytes("MemTotal:")?, kilobytes("MemAvailable:")?);
        Some(Memory { total: total.saturating_mul(1024), available: available.saturating_mul(1024) })
    }

    /// The time of its processors (proc_stat(5)).
    #[must_use]
    pub fn processor(&self) -> Option<Processor> {
        let text = self.text("proc/stat")?;
        let is_one =
            |line: &&str| line.strip_prefix("cpu").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
        let count = text.lines().filter(is_one).count();
        // user, nice, system, idle, iowait, irq, softirq, steal; what guests use is a part of the first two.
        let fields = text.lines().next()?.strip_prefix("cpu ")?.split_whitespace().take(8);
        let ticks: Vec<u64> = fields.map_while(|field| field.parse().ok()).collect();
        let total = ticks.iter().sum::<u64>();
        let idle = ticks.get(3)? + ticks.get(4).copied().unwrap_or_default();
        Some(Processor { busy: total.saturating_sub(idle), total, count })
    }

    /// The mean number of tasks that run or want to, over one minute.
    #[must_use]
    pub fn load(&self) -> Option<f64> {
        self.text("proc/loadavg")?.split_whitespace().next()?.parse().ok()
    }

    /// The block device of this number; `None` for memory and network, which have none.
    #[must_use]
    pub fn device(&self, number: u64) -> Option<Device> {
        let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
        // Of a partition: …/block/mmcblk0/mmcblk0p2.
        let place = std::fs::canonicalize(self.path(format!("sys/dev/block/{major}:{minor}"))).ok()?;
        let disk = if place.join("partition").exists() { place.parent().unwrap_or(&place) } else { &place };
        let name = |place: &Path| place.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        Some(Device { partition: name(&place), disk: name(disk) })
    }

    /// The errors that ext4 has noted; `None` for another file system.
    #[must_use]
    pub fn ext4_errors(&self, device: &Device) -> Option<u64> {
        self.number(format!("sys/fs/ext4/{}/errors_count", device.partition))
    }

    /// eMMC says how much of its life is used (JEDEC JESD84-B51 §7.4.84, in tenths). An SD card does not: for it there
    /// is the number of bytes written a day.
    #[must_use]
    pub fn wear(&self, disk: &str) -> Wear {
        let device = |file: &str| self.text(format!("sys/block/{disk}/device/{file}"));
        let byte = |text: &str| u8::from_str_radix(text.trim_start_matches("0x"), 16).ok();
        Wear {
            used_tenths: device("life_time").and_then(|text| text.split_whitespace().filter_map(byte).max()),
            before_end: device("pre_eol_info").and_then(|text| byte(&text)).unwrap_or_default(),
            written_a_day: self.written_a_day(disk),
        }
    }

    /// Bytes written to the disk a day, on average since the machine started.
    fn written_a_day(&self, disk: &str) -> Option<u64> {
        // The seventh field of stat: sectors of 512 bytes (Documentation/block/stat).
        let sectors: u64 = self.text(format!("sys/block/{disk}/stat"))?.split_whitespace().nth(6)?.parse().ok()?;
        let uptime: f64 = self.text("proc/uptime")?.split_whitespace().next()?.parse().ok()?;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate for people to read")]
        let a_day = (sectors as f64 * 512.0 * 86_400.0 / uptime.max(3_600.0)) as u64;
        Some(a_day)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_and_processors_are_read() {
        let root = tempfile::tempdir().unwrap();
        let write = |file: &str, text: &str| {
            let file = root.path().join(file);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        };
        let machine = Machine::at(root.path());
        assert_eq!((machine.memory(), machine.processor(), machine.load()), (None, None, None));
        write("proc/meminfo", "MemTotal:  512 kB\nMemFree: 1 kB\nMemAvailable:  100 kB\n");
        write("proc/stat", "cpu  10 20 30 400 50 6 7 8 90 0\ncpu0 1 2 3\ncpu1 1 2 3\nintr 5\n");
        write("proc/loadavg", "0.25 0.1 0.05 1/100 7\n");
        assert_eq!(machine.memory(), Some(Memory { total: 512 << 10, available: 100 << 10 }));
        assert_eq!(machine.processor(), Some(Processor { busy: 81, total: 531, count: 2 }));
        assert_eq!(machine.load(), Some(0.25));
    }

    #[test]
    fn the_wear_of_a_card_is_read_below_its_partition() {
        let root = tempfile::tempdir().unwrap();
        let write = |file: &str, text: &str| {
            let file = root.path().join(file);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        };
        write("sys/devices/block/mmcblk0/mmcblk0p2/partition", "2\n");
        std::fs::create_dir_all(root.path().join("sys/dev/block")).unwrap();
        std::os::unix::fs::symlink("../../devices/block/mmcblk0/mmcblk0p2", root.path().join("sys/dev/block/179:2"))
            .unwrap();
        let machine = Machine::at(root.path());
        assert_eq!(machine.device(rustix::fs::makedev(179, 1)), None);
        let device = machine.device(rustix::fs::makedev(179, 2)).unwrap();
        assert_eq!((&*device.partition, &*device.disk), ("mmcblk0p2", "mmcblk0"));
        assert_eq!((machine.wear("mmcblk0"), machine.ext4_errors(&device)), (Wear::default(), None));
        write("sys/block/mmcblk0/stat", " 1 2 3 4 5 6 2048 8\n");
        write("proc/uptime", "86400.00 1.0\n");
        write("sys/block/mmcblk0/device/life_time", "0x01 0x08\n");
        write("sys/fs/ext4/mmcblk0p2/errors_count", "3\n");
        let wear = Wear { used_tenths: Some(8), before_end: 0, written_a_day: Some(1 << 20) };
        assert_eq!((machine.wear("mmcblk0"), machine.ext4_errors(&device)), (wear, Some(3)));
    }
}
