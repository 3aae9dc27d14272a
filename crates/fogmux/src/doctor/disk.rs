//! The file system of the data directory and the card or disk below it; what damage has cost the store.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use fogmux_gateway::machine::{Machine, Wear};
use rustix::fs::{StatVfsMountFlags, statvfs};

use super::Subject;
use super::finding::Report;
use super::kinds;
use crate::modes::quoted;

const MIB: u64 = 1 << 20;
/// With less than this the store is near its end.
const SCARCE: u64 = 64 * MIB;
/// With less than this it is warned of.
const LOW: u64 = 512 * MIB;
/// Files that can still be created.
const INODES_SCARCE: u64 = 1_000;

pub(super) fn examine(subject: &Subject<'_>, report: &mut Report) {
    losses(&subject.store(), report);
    let Some(place) = existing(&subject.store()) else { return };
    match statvfs(&place) {
        Ok(found) => {
            let free = found.f_bavail.saturating_mul(found.f_frsize);
            // Some file systems have no fixed number.
            let inodes = if found.f_files == 0 { u64::MAX } else { found.f_favail };
            space(&place, free, inodes, report);
            if found.f_flag.contains(StatVfsMountFlags::RDONLY) {
                let mend = "sudo dmesg --level err,warn; then start the machine with fsck.mode=force on the kernel's command line";
                report.problem("disk-read-only", format!("{}: mounted read-only", place.display()), mend);
            } else {
                report.ok("disk-read-only", format!("{}: mounted for writing", place.display()));
            }
        }
        Err(error) => report.unknown("disk-space", format!("{}: {error}", place.display())),
    }
    if let Ok(found) = std::fs::metadata(&place) {
        device(subject.machine, found.dev(), report);
    }
}

/// The directory, or the nearest one above it that exists.
fn existing(directory: &Path) -> Option<PathBuf> {
    let directory = std::path::absolute(directory).ok()?;
    directory.ancestors().find(|above| above.exists()).map(Path::to_owned)
}

fn space(place: &Path, free: u64, inodes: u64, report: &mut Report) {
    let text = format!("{}: {} MiB free", place.display(), free / MIB);
    let mend = format!("df -h {0}; du -xh {0} | sort -h | tail", quoted(place));
    if free < SCARCE {
        report.problem("disk-space", text, mend);
    } else if inodes < INODES_SCARCE {
        let mend = format!("df -i {}", quoted(place));
        report.problem("disk-space", format!("{}: {inodes} more files can be created", place.display()), mend);
    } else if free < LOW {
        report.warning("disk-space", text, mend);
    } else {
        report.ok("disk-space", text);
    }
}

/// Errors of the file system, and the wear of the medium, by the number of the device.
fn device(machine: &Machine, number: u64, report: &mut Report) {
    let Some(device) = machine.device(number) else {
        report.unknown("disk-errors", "the file system has no block device that can be seen");
        return;
    };
    let partition = &device.partition;
    match machine.ext4_errors(&device) {
        Some(0) => report.ok("disk-errors", format!("{partition}: ext4 has noted no error")),
        Some(errors) => {
            let mend = format!(
                "start with fsck.mode=force on the kernel's command line, or fsck.ext4 -f /dev/{partition} unmounted"
            );
            report.problem("disk-errors", format!("{partition}: ext4 has noted {errors} errors"), mend);
        }
        None => report.unknown("disk-errors", format!("{partition}: not ext4, whose errors can be seen")),
    }
    wear(&device.disk, machine.wear(&device.disk), report);
}

fn wear(disk: &str, wear: Wear, report: &mut Report) {
    let Wear { used_tenths, before_end, written_a_day: written } = wear;
    let rate = written.map(|bytes| format!(", {} MiB written a day since the start", bytes / MIB)).unwrap_or_default();
    let mend = "fogmux backup FILE, then replace it; docs/store.md says how to write less";
    match used_tenths {
        // 11: beyond its life. 2 and 3 of pre_eol_info: 80 and 90 % of the reserved blocks are used.
        Some(used) if used >= 10 || before_end >= 2 => {
            report.problem("disk-wear", format!("{disk}: {} % of its life is used{rate}", u32::from(used) * 10), mend);
        }
        Some(used) if used >= 8 => {
            report.warning("disk-wear", format!("{disk}: {} % of its life is used{rate}", u32::from(used) * 10), mend);
        }
        Some(used) => {
            report.ok("disk-wear", format!("{disk}: at most {} % of its life is used{rate}", u32::from(used) * 10));
        }
        None if written.is_some() => {
            report.ok("disk-wear", format!("{disk} does not say how much of its life is used{rate}"));
        }
        None => report.unknown("disk-wear", format!("{disk} does not say")),
    }
}

/// Losses that starts of the store have noted.
fn losses(store: &Path, report: &mut Report) {
    let file = store.join(fogmux_store::LOSSES);
    if kinds::is_strange(&file, report) {
        return;
    }
    match std::fs::read_to_string(&file) {
        Ok(text) if !text.trim().is_empty() => {
            let last = text.lines().next_back().unwrap_or_default();
            let found = format!("{}: {} losses noted, the last: {last}", file.display(), text.lines().count());
            let mend = format!("look at the disk; when this is understood: mv {0} {0}.old", quoted(&file));
            report.warning("store-losses", found, mend);
        }
        Ok(_) => report.ok("store-losses", "none noted"),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => report.ok("store-losses", "none noted"),
        Err(error) => report.unknown("store-losses", format!("{}: {error}", file.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    fn levels(report: &Report) -> Vec<(&'static str, Level)> {
        report.0.iter().map(|finding| (finding.name, finding.level)).collect()
    }

    #[test]
    fn space_is_judged_by_bytes_and_by_files() {
        let judged = |free, inodes| {
            let mut report = Report::default();
            space(Path::new("/x"), free, inodes, &mut report);
            report.worst()
        };
        assert_eq!(judged(LOW, u64::MAX), Level::Ok);
        assert_eq!(judged(LOW - 1, u64::MAX), Level::Warning);
        assert_eq!(judged(SCARCE - 1, u64::MAX), Level::Problem);
        assert_eq!(judged(u64::MAX, 999), Level::Problem);
    }

    #[test]
    fn a_worn_card_and_errors_of_its_file_system_are_found() {
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
        let examined = || {
            let mut report = Report::default();
            device(&machine, rustix::fs::makedev(179, 2), &mut report);
            levels(&report)
        };
        assert_eq!(examined(), [("disk-errors", Level::Unknown), ("disk-wear", Level::Unknown)]);
        write("sys/fs/ext4/mmcblk0p2/errors_count", "0\n");
        write("sys/block/mmcblk0/stat", " 1 2 3 4 5 6 2048 8\n");
        write("proc/uptime", "86400.00 1.0\n");
        assert_eq!(examined(), [("disk-errors", Level::Ok), ("disk-wear", Level::Ok)]);
        write("sys/block/mmcblk0/device/life_time", "0x01 0x08\n");
        assert_eq!(examined()[1].1, Level::Warning);
        write("sys/block/mmcblk0/device/pre_eol_info", "0x02\n");
        write("sys/fs/ext4/mmcblk0p2/errors_count", "3\n");
        assert_eq!(examined(), [("disk-errors", Level::Problem), ("disk-wear", Level::Problem)]);
    }
}
